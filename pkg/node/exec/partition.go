package exec

import (
	"errors"
	"fmt"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// PartitionConfig is what a Partition is opened with.
type PartitionConfig struct {
	FS    vfs.FS
	Dir   string // the partition's own directory, <data dir>/<topic>-<index>
	Topic string
	ID    ident.TopicPartition
	Log   log.Config
	// Replication holds the core's configuration with the checkpointed high watermark.
	Replication replication.Config
	Cluster     replication.Cluster
	// Flush is when records are made durable; it sets Replication.FlushAlways.
	Flush FlushPolicy
	// FlushApart leaves flushes to the caller (Output.Flush), who can let go of the mutex while the disk works; else
	// Drain does them.
	FlushApart bool
	// ScrubApart leaves the check of suspect segments to the caller (Output.Scrub), as FlushApart does flushes.
	ScrubApart bool
	// ChoresApart leaves the log's chores to the caller in the same way (Output.Chores); else Drain does them.
	ChoresApart bool
	// MaxMessageBytes is the topic's max.message.bytes; 0 means no limit.
	MaxMessageBytes int
	// TimestampAfterMaxMs is the topic's message.timestamp.after.max.ms; negative means no limit.
	TimestampAfterMaxMs int64
}

// Partition is one partition replica: its log, its core and what lies between them. It is synchronous and has no
// lock of its own: the caller calls it under one mutex per partition. After every call but the read-only ones the
// caller drains it (Drain), releases the mutex, and only then answers, wakes and sends.
type Partition struct {
	cfg  PartitionConfig
	log  *log.Log
	core *replication.Replica

	eff       replication.Effects
	todo      []replication.Event
	answer    replication.FetchAnswer
	records   []byte   // of the produce that is being decided
	response  []byte   // records of the fetch response that is being used
	fetched   [][]byte // its batches
	batches   []replication.Batch
	flush     bool // wanted
	flushing  bool // under way
	unflushed flushClock
	stamps    map[replication.Token]int64 // log append times of produces that are not answered yet
	deleted   []replication.Deletion      // not told yet
	start     ident.Offset                // of the log, as the caller knows it may be written down
	closed    bool
	outputs   Output
	appendErr string
	damage    []log.Damage // that the caller knows of
	failure   error
}

// Output is what a Partition has for its caller. Drain moves it into one that the caller owns and reuses.
type Output struct {
	// Completed produces, in the order in which they are to be answered.
	Completed []Produced
	// Deleted: DeleteRecords that are to be answered, once log-start-offset-checkpoint has the new start.
	Deleted []replication.Deletion
	// LogStart: where the log's start may be written down (log.DurableStartOffset) has moved: worth a checkpoint.
	LogStart bool
	// Wake: fetches that were parked and are to be evaluated again.
	Wake []replication.Token
	// Proposal to send to the controller; answer by AlterPartitionDone. The last one counts.
	Proposal *replication.Proposal
	// Fetcher: NextFetch has changed.
	Fetcher bool
	// Flush: with FlushApart, call BeginFlush; none is under way.
	Flush bool
	// Chores: with ChoresApart, call BeginChores; none are under way.
	Chores bool
	// HighWatermark has moved: worth a checkpoint.
	HighWatermark bool
	Facts         []replication.Fact
	// Refused is why fetched records were not appended: the leader, or the way from it, damages them.
	Refused error
	// Damage was found in the log since the last Drain: offsets that can't be read as they were written.
	Damage []log.Damage
	// Quarantined is what was taken out of the log to be fetched again, Refilled that it was.
	Quarantined *log.Quarantined
	Refilled    *Refilled
	// Directory: what the core's DirectoryWish says has changed.
	Directory bool
	// Scrub: with ScrubApart, call BeginScrub: segments are suspect.
	Scrub bool
	// Failed is why the log dir can't be used any more, once.
	Failed error
}

// Produced answers one produce.
type Produced struct {
	Token    replication.Token
	Code     replication.Code
	Base     ident.Offset // -1 when nothing was appended
	LogStart ident.Offset
	// LogAppendTime is when the leader appended the records, in ms since 1970; -1 where they keep the producer's time.
	LogAppendTime int64
	Message       string // for people, when the records themselves are at fault
}

// OpenPartition opens or creates the log and makes a replica that waits for metadata.
func OpenPartition(cfg PartitionConfig) (*Partition, log.Recovery, error) {
	cfg.Log.ChoresApart = true
	l, recovery, err := log.Open(cfg.FS, cfg.Dir, cfg.Log)
	if err != nil {
		return nil, recovery, fmt.Errorf("open the log of %s-%d: %w", cfg.Topic, cfg.ID.Index, err)
	}
	cfg.Replication.FlushAlways = cfg.Flush.Always
	p := &Partition{cfg: cfg, log: l, stamps: map[replication.Token]int64{}}
	if cfg.Flush.Always {
		// Recovery may have found records that were never flushed; only what is on the disk counts from now on.
		if _, err := l.Flush(); err != nil {
			return nil, recovery, errors.Join(fmt.Errorf("flush the log of %s-%d: %w", cfg.Topic, cfg.ID.Index, err), l.Close())
		}
	}
	p.start = l.DurableStartOffset()
	p.core = replication.New(cfg.Replication, l, cfg.Cluster)
	p.noteDamage(0)
	return p, recovery, nil
}

// ID names the partition by topic id.
func (p *Partition) ID() ident.TopicPartition { return p.cfg.ID }

// Core is for reading: role, epochs, high watermark, followers. Its Step is the executor's alone.
func (p *Partition) Core() *replication.Replica { return p.core }

// Log is for reading.
func (p *Partition) Log() *log.Log { return p.log }

// SetTimestampAfterMax follows the topic's configuration.
func (p *Partition) SetTimestampAfterMax(ms int64) { p.cfg.TimestampAfterMaxMs = ms }

// SetMaxMessageBytes follows the topic's configuration.
func (p *Partition) SetMaxMessageBytes(n int) { p.cfg.MaxMessageBytes = n }

// Produce offers one record batch to append. The answer comes in Output.Completed, at once or later, for acks=0
// too. The bytes are the caller's again after the call; offsets and epoch are written into them.
func (p *Partition) Produce(now ident.Instant, ev replication.Produce, records []byte) {
	if code, why := p.checkProduce(records); code != replication.None {
		p.outputs.Completed = append(p.outputs.Completed, Produced{Token: ev.Token, Code: code, Base: -1, LogStart: -1, LogAppendTime: -1, Message: why})
		return
	}
	p.records = records
	p.step(now, ev)
	p.records = nil
}

// DeleteRecords asks the leader to drop the records below an offset. The answer comes in Output.Deleted, at once or
// later.
func (p *Partition) DeleteRecords(now ident.Instant, ev replication.DeleteRecords) { p.step(now, ev) }

// ApplyMetadata takes over a committed state of the partition, known already or new.
func (p *Partition) ApplyMetadata(now ident.Instant, m replication.MetadataChanged) { p.step(now, m) }

// AlterPartitionDone answers a proposal; also when the sending failed, with NetworkException or RequestTimedOut.
func (p *Partition) AlterPartitionDone(now ident.Instant, ev replication.AlterPartitionDone) {
	p.step(now, ev)
}

// Tick does what is due; NextDeadline says when it is wanted at the latest.
func (p *Partition) Tick(now ident.Instant) { p.step(now, replication.Tick{}) }

// BrokersChanged says that the nodes in metadata have changed, whether or not the partition has.
func (p *Partition) BrokersChanged(now ident.Instant) { p.step(now, replication.BrokersChanged{}) }

// NextDeadline is when a Tick is wanted at the latest.
func (p *Partition) NextDeadline() ident.Instant {
	return min(p.core.NextDeadline(), p.flushDeadline())
}

// Drain flushes the log if that is wanted (once for all that was appended since the last Drain), does its chores, and
// moves what there is for the caller into out, which is emptied first.
func (p *Partition) Drain(now ident.Instant, out *Output) {
	p.examineSuspects(now)
	p.noteDamage(now)
	for p.flush && !p.cfg.FlushApart {
		if f, ok := p.BeginFlush(now); ok {
			p.EndFlush(now, f, f.Sync())
		}
	}
	p.noteLogStart()
	p.outputs.Chores = p.chores(now)
	p.outputs.Flush = p.flush && !p.flushing && !p.closed && p.failure == nil
	spare := Output{Completed: out.Completed[:0], Deleted: out.Deleted[:0], Wake: out.Wake[:0], Facts: out.Facts[:0]}
	*out, p.outputs = p.outputs, spare
}

// HighWatermark is for the checkpoint.
func (p *Partition) HighWatermark() ident.Offset { return p.core.HighWatermark() }

// FailDir says that the log directory is lost for another reason than what this partition saw itself.
func (p *Partition) FailDir(now ident.Instant, err error) { p.step(now, p.fail("log directory", err)) }

// Close ends the replica: everything that waits is answered (drain it afterwards), and the log is closed in order
// unless it failed.
func (p *Partition) Close(now ident.Instant) error {
	p.step(now, replication.Removed{})
	p.closed = true
	if err := p.log.Close(); err != nil && p.failure == nil {
		return fmt.Errorf("close the log of %s-%d: %w", p.cfg.Topic, p.cfg.ID.Index, err)
	}
	return nil
}

// BeginDiscard ends a replica whose directory is about to be deleted: everything that waits is answered, and nothing of
// the log is made durable. Discard ends the log, at once after what is returned has been waited for.
func (p *Partition) BeginDiscard(now ident.Instant) *log.Abandoning {
	p.step(now, replication.Removed{})
	p.closed = true
	return p.log.BeginAbandon()
}

// Discard is the end of BeginDiscard.
func (p *Partition) Discard() { p.log.Abandon() }

// step hands an event to the core and does what it wants done, which may be events again.
func (p *Partition) step(now ident.Instant, ev replication.Event) {
	p.todo = append(p.todo, ev)
	for done := 0; done < len(p.todo); { // perform adds to it
		next := p.todo[done]
		done++
		p.eff.Reset()
		p.core.Step(now, next, &p.eff)
		p.perform()
	}
	clear(p.todo)
	p.todo = p.todo[:0]
	p.noteUnflushed(now)
}

// perform does the effects of one step. Disk first; what the caller is to do is collected.
func (p *Partition) perform() {
	e := &p.eff
	p.collect(e)
	if e.AssignEpoch != nil {
		p.do("assign epoch", p.log.AssignEpoch(*e.AssignEpoch))
	}
	for _, token := range e.Append {
		p.todo = append(p.todo, p.append(token))
	}
	if e.AppendFetched > 0 {
		p.todo = append(p.todo, p.appendFetched(e.AppendFetched))
	}
	if t := e.Truncate; t != nil {
		err := p.truncate(*t)
		p.do("truncate", err)
		if err == nil {
			p.todo = append(p.todo, replication.TruncateDone{})
		}
	}
	if e.Quarantine {
		p.todo = append(p.todo, p.quarantine(), replication.QuarantineDone{})
	}
	if e.Refilled {
		p.todo = append(p.todo, p.endRefill())
	}
	if e.RaiseLogStart != nil {
		err := p.log.SetStartOffset(*e.RaiseLogStart)
		p.do("raise the log start", err)
		if err == nil {
			p.todo = append(p.todo, replication.LogStartRaised{})
		}
	}
	p.flush = p.flush || e.Flush
}

func (p *Partition) collect(e *replication.Effects) {
	for _, c := range e.Completed {
		done := Produced{Token: c.Token, Code: c.Code, Base: c.Base, LogStart: c.LogStart, LogAppendTime: -1, Message: p.appendErr}
		if stamp, ok := p.stamps[c.Token]; ok {
			done.LogAppendTime = stamp
			delete(p.stamps, c.Token)
		}
		p.outputs.Completed = append(p.outputs.Completed, done)
	}
	p.appendErr = ""
	for _, a := range e.Answers {
		p.answer = a
	}
	p.deleted = append(p.deleted, e.Deleted...)
	p.outputs.Wake = append(p.outputs.Wake, e.Wake...)
	p.outputs.Facts = append(p.outputs.Facts, e.Facts...)
	if e.Proposal != nil {
		p.outputs.Proposal = e.Proposal
	}
	p.outputs.Fetcher = p.outputs.Fetcher || e.Fetcher
	p.outputs.HighWatermark = p.outputs.HighWatermark || e.HighWatermark
	p.outputs.Directory = p.outputs.Directory || e.Directory
}

func (p *Partition) truncate(t replication.Truncation) error {
	if t.Full {
		return p.log.TruncateFully(t.To)
	}
	return p.log.Truncate(t.To)
}

// do notes a disk error.
func (p *Partition) do(what string, err error) {
	if err != nil {
		p.todo = append(p.todo, p.fail(what, err))
	}
}

// fail makes the log unusable: after a failed write or flush nobody knows what the disk holds, and trying again
// proves nothing.
func (p *Partition) fail(what string, err error) replication.Event {
	if p.failure == nil {
		p.failure = fmt.Errorf("%s of %s-%d: %w", what, p.cfg.Topic, p.cfg.ID.Index, err)
		p.outputs.Failed = p.failure
	}
	return replication.DirFailed{}
}

// checkProduce refuses what a client may not write, before anybody asks who leads. The checksum is the log's to check,
// once, as it appends.
func (p *Partition) checkProduce(records []byte) (replication.Code, string) {
	one, rest, h, err := batch.Next(records)
	switch {
	case err != nil:
		return batchCode(err), err.Error()
	case len(rest) > 0:
		return InvalidRecord, "a produce request holds exactly one record batch per partition"
	case p.cfg.MaxMessageBytes > 0 && len(one) > p.cfg.MaxMessageBytes:
		return MessageTooLarge, fmt.Sprintf("the batch has %d bytes, max.message.bytes is %d", len(one), p.cfg.MaxMessageBytes)
	}
	if err := batch.CheckFromClient(h); err != nil {
		return batchCode(err), err.Error()
	}
	if limit := p.cfg.TimestampAfterMaxMs; limit >= 0 && p.cfg.Log.WallMillis != nil && !p.log.StampsAppends() {
		if ahead := h.MaxTimestamp - p.cfg.Log.WallMillis(); ahead > limit {
			return InvalidTimestamp, fmt.Sprintf("a record's timestamp is %d ms ahead, message.timestamp.after.max.ms is %d", ahead, limit)
		}
	}
	if p.log.Compacted() {
		if err := batch.CheckKeyed(one, h); err != nil {
			return batchCode(err), err.Error()
		}
	}
	return replication.None, ""
}
