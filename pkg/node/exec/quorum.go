package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// QuorumConfig is what a Quorum is opened with.
type QuorumConfig struct {
	FS vfs.FS
	// Dir is the directory of the metadata log, <metadata dir>/__cluster_metadata-0.
	Dir  string
	Raft raft.Config
	Log  log.Config
	// Voters are whom a node asks first that knows of no voters yet: an observer, or one that joins. One of the first
	// voters has them in its 0-0 checkpoint (FormatQuorum). They never make this node itself a voter; only a checkpoint
	// or the log does.
	Voters raft.VoterSet
	// ChoresApart leaves the log's chores to the caller (BeginChores); else EndFlush does them.
	ChoresApart bool
	// WallMillis is the time that control records carry, in ms since 1970.
	WallMillis func() int64
}

// Quorum is this node's member of the metadata quorum, voter or observer: the raft core, its log and its vote. It
// is synchronous and has no lock of its own; one goroutine (or mutex) drives it:
//
//	q, recovery, err := OpenQuorum(cfg); q.Start(now)
//	HandleRequest, HandleResponse, Propose, Tick (at NextDeadline at the latest), Resign, Unreachable
//	after each: Drain(&out) — send out.Sends, answer out.Replies, look at what moved
//	when FlushWanted: f := BeginFlush(); f.Sync() anywhere, without the lock; EndFlush(now, f, err); Drain again
//
// An error of any call but CheckPropose and Propose is a broken disk or invariant: the node must stop. Err
// returns it again, and nothing more is sent or answered.
type Quorum struct {
	cfg       QuorumConfig
	log       *log.Log
	point     *flushedPoint
	snapshots *snapshotFiles
	node      *raft.Node
	err       error
	now       ident.Instant // of the step that is under way

	state   *State   // that a snapshot brought, until TakeState
	partial *partial // snapshot that is being fetched

	installed, received int64 // counts: snapshots, bytes of them

	effects     raft.Effects
	todo        []raft.Event
	out         QuorumOutput
	flushWanted bool

	// flushing is between BeginFlush and EndFlush. A vote or truncation that comes up meanwhile has to wait for
	// it, and so does everything after: held is what the core wants done, todo what happened since.
	flushing *QuorumFlush
	held     *raft.Effects
}

// QuorumOutput is what a Quorum has for its caller.
type QuorumOutput struct {
	Sends   []raft.Send
	Replies []raft.Reply
	// Leadership changed: who leads now, as far as this node knows.
	Leadership *raft.Leadership
	// Leading: this node leads this epoch and everything before it is committed. The controller takes over when
	// it has applied everything below HighWatermark as of now.
	Leading *raft.EpochStart
	// HighWatermark moved; Quorum.HighWatermark has it.
	HighWatermark bool
	// Damaged snapshots were found just now; a new one is wanted at once (Quorum.SnapshotWanted).
	Damaged []DamagedSnapshot
}

// OpenQuorum opens or makes the log, reads the vote and finds the voters. A torn tail is cut off and told in
// Recovery; damage elsewhere, or below what is known to have been flushed, is an error.
func OpenQuorum(cfg QuorumConfig) (*Quorum, log.Recovery, error) {
	point, note, err := readFlushedPoint(cfg.FS, cfg.Dir)
	if err != nil {
		return nil, log.Recovery{}, fmt.Errorf("open the metadata log: %w", err)
	}
	cfg.Log.StopOnCorruption, cfg.Log.ChoresApart = true, true
	cfg.Log.RecoveryPoint, cfg.Log.LowerCheckpoints = point.at, point.lower
	l, recovery, err := log.Open(cfg.FS, cfg.Dir, cfg.Log)
	if point.lost != nil {
		err = point.lost
	}
	if err != nil {
		return nil, recovery, fmt.Errorf("open the metadata log: %w", err)
	}
	if note != "" {
		recovery.Repairs = append(recovery.Repairs, note)
	}
	point.opening = false
	q := &Quorum{cfg: cfg, log: l, point: point}
	if err := q.load(&recovery); err != nil {
		return nil, recovery, errors.Join(err, l.Close())
	}
	return q, recovery, nil
}

func (q *Quorum) load(recovery *log.Recovery) error {
	// What recovery found may never have been synced, but from now on it is stood on.
	if _, err := q.log.Flush(); err != nil {
		return fmt.Errorf("flush the metadata log: %w", err)
	}
	fromSnapshot, err := q.loadSnapshots(recovery)
	if err != nil {
		return err
	}
	vote, err := loadVote(q.cfg.FS, q.cfg.Dir, q.log.EndOffset() == 0)
	if err != nil {
		return err
	}
	if q.cfg.Raft.Mutant == raft.MutateForgetVote {
		vote.Voted = raft.Nobody
	}
	bootstrap, err := readBootstrap(q.cfg.FS, q.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(bootstrap) == 0 {
		self := q.cfg.Raft.Self.ID
		bootstrap = slices.DeleteFunc(slices.Clone(q.cfg.Voters), func(v raft.Voter) bool { return v.Key.ID == self })
	}
	voters, err := votersOf(q.log)
	if err != nil {
		return fmt.Errorf("look for voters in the metadata log: %w", err)
	}
	first := raft.VotersAt{Offset: raft.BootstrapOffset, Voters: bootstrap}
	if latest, ok := q.snapshots.latest(); ok && len(fromSnapshot) > 0 {
		first = raft.VotersAt{Offset: latest.EndOffset - 1, Voters: fromSnapshot}
		voters = slices.DeleteFunc(voters, func(v raft.VotersAt) bool { return v.Offset <= first.Offset })
	}
	q.node, err = raft.New(q.cfg.Raft, quorumLog{q.log, q.snapshots}, vote, append([]raft.VotersAt{first}, voters...))
	return err
}

// Start takes up the role that the vote asks for.
func (q *Quorum) Start(now ident.Instant) error { return q.step(now, raft.Start{}) }

// Tick does what is due.
func (q *Quorum) Tick(now ident.Instant) error { return q.step(now, raft.Tick{}) }

// NextDeadline is when a Tick is wanted at the latest; never before Start.
func (q *Quorum) NextDeadline() ident.Instant {
	if q.held != nil || q.err != nil {
		return ident.Never
	}
	return q.node.NextDeadline()
}

// HandleRequest takes a request of another node. The answer is in QuorumOutput.Replies with the same token, now
// or later.
func (q *Quorum) HandleRequest(now ident.Instant, token uint64, m raft.Message) error {
	return q.step(now, raft.Request{Token: token, Msg: m})
}

// HandleResponse takes the answer to one of QuorumOutput.Sends, or err when there is none. Answers may come in any
// order, late, or never.
func (q *Quorum) HandleResponse(now ident.Instant, from ident.NodeID, correlation uint64, m raft.Message, err error) error {
	if err != nil {
		m = nil
	}
	return q.step(now, raft.Response{From: from, Correlation: correlation, Msg: m, Err: err})
}

// Unreachable hints that a node's connection was reset and that it refuses a new one.
func (q *Quorum) Unreachable(now ident.Instant, id ident.NodeID) error {
	return q.step(now, raft.Unreachable{Node: id})
}

// Resign gives up the leadership of an epoch and names the successors; nothing happens when it is over already.
func (q *Quorum) Resign(now ident.Instant, epoch ident.Epoch) error {
	return q.step(now, raft.Resign{Epoch: epoch})
}

// Propose appends whole batches as leader of an epoch and returns the offset of their first record; offsets and
// epoch are written into them. They are committed once HighWatermark is beyond them. raft.ErrNotLeader and
// raft.ErrTooLarge leave everything as it was; after any other error the node must stop.
func (q *Quorum) Propose(now ident.Instant, epoch ident.Epoch, batches []byte) (ident.Offset, error) {
	if err := q.CheckPropose(epoch, len(batches)); err != nil {
		return ident.UnknownOffset, err
	}
	info, err := q.log.AppendAsLeader(batches, epoch)
	if err != nil {
		return ident.UnknownOffset, q.fail("append", err)
	}
	return info.First, q.step(now, raft.AppendDone{End: info.End()})
}

// CheckPropose says whether Propose would append.
func (q *Quorum) CheckPropose(epoch ident.Epoch, sizeBytes int) error {
	switch {
	case q.err != nil:
		return q.err
	case q.held != nil:
		return fmt.Errorf("append in epoch %d: the epoch is changing: %w", epoch, raft.ErrNotLeader)
	}
	return q.node.CheckPropose(epoch, sizeBytes)
}

// Drain moves what there is for the caller into out, which is emptied first.
func (q *Quorum) Drain(out *QuorumOutput) {
	*out, q.out = q.out, QuorumOutput{Sends: out.Sends[:0], Replies: out.Replies[:0]}
	if q.err != nil {
		*out = QuorumOutput{}
	}
}

// FlushWanted says that somebody waits for a flush and none is under way.
func (q *Quorum) FlushWanted() bool { return q.flushWanted && q.flushing == nil && q.err == nil }

// BeginFlush starts a flush. The caller runs Sync on it, beside other calls if it likes, and then EndFlush.
func (q *Quorum) BeginFlush() (*QuorumFlush, error) {
	if q.err != nil {
		return nil, q.err
	}
	if q.flushing != nil {
		return nil, errors.New("a flush of the metadata log is under way")
	}
	pending, err := q.log.BeginFlush()
	if err != nil {
		return nil, q.fail("flush", err)
	}
	end := q.log.EndOffset()
	q.flushing = &QuorumFlush{pending, end, q.point.flushing(q.now, end)}
	q.flushWanted = false
	return q.flushing, nil
}

// EndFlush takes the outcome of a flush.
func (q *Quorum) EndFlush(now ident.Instant, f *QuorumFlush, syncErr error) error {
	if f == nil || f != q.flushing {
		return errors.New("EndFlush of a flush that is not under way")
	}
	q.flushing = nil
	end, err := q.log.EndFlush(f.log, syncErr)
	if err != nil {
		return q.fail("flush", err)
	}
	if f.point != nil {
		f.point.at = f.end
	}
	if q.err != nil {
		return q.err
	}
	if !q.cfg.ChoresApart {
		if err := q.log.RunChores(); err != nil {
			return q.fail("chores", err)
		}
	}
	held := q.held
	if held == nil {
		return q.step(now, raft.FlushDone{End: end})
	}
	// The vote or truncation that waited comes first, then the flush, which says nothing of what is cut off,
	// then what happened meanwhile.
	if held.Truncate != nil {
		end = min(end, *held.Truncate)
	}
	q.held = nil
	q.todo = append([]raft.Event{raft.FlushDone{End: end}}, q.todo...)
	if err := q.perform(held); err != nil {
		return err
	}
	return q.run(now)
}

// BeginChores takes what the log has left to be done, nil when there is nothing. The caller runs it beside other calls,
// and then calls EndChores.
func (q *Quorum) BeginChores() *log.Chores {
	if q.err != nil {
		return nil
	}
	return q.log.BeginChores()
}

// EndChores takes the outcome of chores.
func (q *Quorum) EndChores(c *log.Chores, runErr error) error {
	if err := q.log.EndChores(c, runErr); err != nil && !errors.Is(err, log.ErrClosed) {
		return q.fail("chores", err)
	}
	return q.err
}

// Flush does a whole flush, when one is wanted.
func (q *Quorum) Flush(now ident.Instant) error {
	if !q.FlushWanted() {
		return q.err
	}
	f, err := q.BeginFlush()
	if err != nil {
		return err
	}
	return q.EndFlush(now, f, f.Sync())
}

// ReadCommitted appends to dst whole batches from the one that holds offset from on, as far as they are committed,
// and returns the offset after them. Nothing is appended when there are none yet.
func (q *Quorum) ReadCommitted(dst []byte, from ident.Offset, maxBytes int) ([]byte, ident.Offset, error) {
	below := q.node.HighWatermark()
	if from >= below {
		return dst, from, nil
	}
	return readLog(q.log, dst, from, maxBytes, below)
}

// HighWatermark is the end of what is known to be committed, ident.UnknownOffset when nothing is.
func (q *Quorum) HighWatermark() ident.Offset { return q.node.HighWatermark() }

// EndOffset is where the next record will be appended.
func (q *Quorum) EndOffset() ident.Offset { return q.log.EndOffset() }

// Core is for reading: role, epoch, voters, leadership, endpoints, trouble, Describe.
func (q *Quorum) Core() *raft.Node { return q.node }

// Log is for reading.
func (q *Quorum) Log() *log.Log { return q.log }

// Err is why the node must stop, nil while all is well.
func (q *Quorum) Err() error { return q.err }

// Close closes the log. A leader should Resign before, and its sends should go out.
func (q *Quorum) Close() error {
	if q.partial != nil { // the next start removes it
		_ = q.partial.file.Close()
		q.partial = nil
	}
	end := q.log.EndOffset()
	if err := q.log.Close(); err != nil || q.err != nil || end <= q.point.at {
		return err
	}
	return q.point.write(end)
}

func (q *Quorum) fail(what string, err error) error {
	if q.err == nil {
		q.err = fmt.Errorf("metadata quorum: %s: %w", what, err)
	}
	return q.err
}

// step hands an event, and all that follow from it, to the core.
func (q *Quorum) step(now ident.Instant, ev raft.Event) error {
	q.todo = append(q.todo, ev)
	return q.run(now)
}

// run works off what happened, unless something is held.
func (q *Quorum) run(now ident.Instant) error {
	q.now = now
	for q.err == nil && q.held == nil && len(q.todo) > 0 {
		next := q.todo[0]
		q.todo = q.todo[1:]
		q.effects.Reset()
		q.node.Step(now, next, &q.effects)
		waits := q.effects.SaveVote != nil || q.effects.Truncate != nil || q.effects.Install != nil
		if q.flushing != nil && waits && q.effects.Fatal == nil {
			q.held = q.effects.Clone()
			break
		}
		if err := q.perform(&q.effects); err != nil {
			return err
		}
	}
	if len(q.todo) == 0 {
		q.todo = nil
	}
	return q.err
}

// perform does what the core wants done, in its order. What follows comes before anything else that happened.
func (q *Quorum) perform(e *raft.Effects) error {
	if e.Fatal != nil {
		return q.fail("stop", e.Fatal)
	}
	var done []raft.Event
	for _, act := range []func(*raft.Effects) (raft.Event, error){
		q.saveVote, q.truncate, q.appendLeaderStart, q.appendVoters, q.appendFetched, q.dropSnapshot, q.storeChunk, q.install,
	} {
		ev, err := act(e)
		if err != nil {
			return err
		}
		if ev != nil {
			done = append(done, ev)
		}
	}
	q.todo = append(done, q.todo...)
	q.flushWanted = e.FlushWanted
	for i := range e.Reads {
		if err := q.read(&e.Reads[i]); err != nil {
			return err
		}
	}
	for i := range e.SnapshotReads {
		r := &e.SnapshotReads[i]
		if err := q.snapshots.serve(q.now, r); errors.Is(err, errDamaged) {
			q.out.Damaged = append(q.out.Damaged, DamagedSnapshot{fileID(r.Response.Snapshot), err})
		} else if err != nil {
			return q.fail("serve a snapshot", err)
		}
		q.out.Replies = append(q.out.Replies, raft.Reply{Token: r.Token, Msg: r.Response})
	}
	q.out.Replies = append(q.out.Replies, e.Replies...)
	q.out.Sends = append(q.out.Sends, e.Sends...)
	if e.Leadership != nil {
		q.out.Leadership = e.Leadership
	}
	if e.Leading != nil {
		q.out.Leading = e.Leading
	}
	q.out.HighWatermark = q.out.HighWatermark || e.HighWatermark != nil
	return nil
}

func (q *Quorum) saveVote(e *raft.Effects) (raft.Event, error) {
	if e.SaveVote == nil {
		return nil, nil
	}
	end, err := q.log.Flush()
	if err != nil {
		return nil, q.fail("flush before a vote", err)
	}
	if err := writeVote(q.cfg.FS, q.cfg.Dir, *e.SaveVote); err != nil {
		return nil, q.fail("save the vote", err)
	}
	return raft.FlushDone{End: end}, nil
}

func (q *Quorum) truncate(e *raft.Effects) (raft.Event, error) {
	if e.Truncate == nil {
		return nil, nil
	}
	if err := q.log.Truncate(*e.Truncate); err != nil {
		return nil, q.fail("truncate", err)
	}
	return raft.TruncateDone{To: q.log.EndOffset()}, nil
}

func (q *Quorum) appendLeaderStart(e *raft.Effects) (raft.Event, error) {
	s := e.LeaderStart
	if s == nil {
		return nil, nil
	}
	b := batch.NewBuilder(q.log.EndOffset(), s.Epoch, q.wallMillis())
	b.AppendControl(batch.LeaderChangeType, batch.LeaderChange{
		Version: 0, LeaderID: s.Leader, Voters: voterKeys(s.Voters), Granting: voterKeys(s.Granting),
	}.Encode())
	ev := raft.AppendDone{}
	if s.Bootstrap != nil {
		b.AppendControl(batch.KRaftVersionType, batch.KRaftVersion{KRaftVersion: kraftVersion}.Encode())
		b.AppendControl(batch.VotersType, votersRecord(s.Bootstrap).Encode())
		ev.Voters = []raft.VotersAt{{Offset: q.log.EndOffset() + 2, Voters: s.Bootstrap}}
	}
	info, err := q.log.AppendAsLeader(b.Build(), s.Epoch)
	if err != nil {
		return nil, q.fail("append the start of the epoch", err)
	}
	ev.End = info.End()
	return ev, nil
}

// appendVoters appends a changed voter set.
func (q *Quorum) appendVoters(e *raft.Effects) (raft.Event, error) {
	c := e.AppendVoters
	if c == nil {
		return nil, nil
	}
	b := batch.NewBuilder(q.log.EndOffset(), c.Epoch, q.wallMillis())
	b.AppendControl(batch.VotersType, votersRecord(c.Voters).Encode())
	info, err := q.log.AppendAsLeader(b.Build(), c.Epoch)
	if err != nil {
		return nil, q.fail("append the voters", err)
	}
	return raft.AppendDone{End: info.End(), Voters: []raft.VotersAt{{Offset: info.First, Voters: c.Voters}}}, nil
}

func (q *Quorum) wallMillis() int64 {
	if q.cfg.WallMillis == nil {
		return 0
	}
	return q.cfg.WallMillis()
}

// appendFetched appends what the leader sent, as far as it is whole and not of a later epoch than it was asked in.
// Anything wrong with it is the leader's fault or the network's, not the disk's: it is refused and asked for again.
func (q *Quorum) appendFetched(e *raft.Effects) (raft.Event, error) {
	if e.Append == nil {
		return nil, nil
	}
	whole := 0
	for rest := e.Append.Records; len(rest) > 0; {
		_, after, h, err := batch.Next(rest)
		if err != nil && (whole == 0 || !errors.Is(err, batch.ErrTruncated)) {
			return raft.AppendRefused{Err: err}, nil
		}
		if err != nil || h.LeaderEpoch > e.Append.Epoch {
			break
		}
		whole = len(e.Append.Records) - len(after)
		rest = after
	}
	records := e.Append.Records[:whole]
	if whole == 0 {
		return raft.AppendRefused{Err: fmt.Errorf("records at offset %d are of a later epoch than %d", e.Append.Offset, e.Append.Epoch)}, nil
	}
	voters, err := votersIn(records)
	if err != nil {
		return raft.AppendRefused{Err: err}, nil
	}
	info, err := q.log.AppendAsFollower(records)
	switch {
	case q.log.Err() != nil:
		return nil, q.fail("append", q.log.Err())
	case err != nil:
		return raft.AppendRefused{Err: err}, nil
	}
	return raft.AppendDone{End: info.End(), Voters: voters}, nil
}

func (q *Quorum) read(r *raft.Read) error {
	q.snapshots.passed(r.Replica, r.Offset)
	records, _, err := readLog(q.log, nil, r.Offset, int(r.MaxBytes), q.log.EndOffset())
	if err != nil {
		return q.fail(fmt.Sprintf("read at offset %d", r.Offset), err)
	}
	r.Response.Records = records
	q.out.Replies = append(q.out.Replies, raft.Reply{Token: r.Token, Msg: r.Response})
	return nil
}
