package replication

import (
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// fakeLog is a log without bytes: where it starts and ends, and its epochs.
type fakeLog struct {
	start, end, flushed ident.Offset
	damagedFrom         ident.Offset // where Quarantine cuts
	epochs              epoch.Table
}

func (l *fakeLog) StartOffset() ident.Offset                { return l.start }
func (l *fakeLog) EndOffset() ident.Offset                  { return l.end }
func (l *fakeLog) FlushedOffset() ident.Offset              { return l.flushed }
func (l *fakeLog) LatestEpoch() ident.Epoch                 { e, _ := l.epochs.Latest(); return e }
func (l *fakeLog) append(e ident.Epoch, n int)              { l.epochs.Assign(e, l.end); l.end += ident.Offset(n) }
func (l *fakeLog) appendTo(e ident.Epoch, end ident.Offset) { l.append(e, int(end-l.end)) }

func (l *fakeLog) EpochEndOffset(e ident.Epoch) (ident.Epoch, ident.Offset, bool) {
	return l.epochs.EndOffsetFor(e, l.end)
}

func (l *fakeLog) truncate(t Truncation) {
	if t.Full {
		l.start, l.end, l.flushed = t.To, t.To, t.To
		l.epochs = epoch.Table{}
		return
	}
	l.end = min(l.end, t.To)
	l.flushed = min(l.flushed, l.end)
	l.epochs.TruncateFromEnd(t.To)
}

// fakeCluster is the nodes that metadata has.
type fakeCluster map[ident.NodeID]Broker

func (c fakeCluster) Broker(id ident.NodeID) (Broker, bool) { b, ok := c[id]; return b, ok }

// bench is a replica with what it stands on, and the executor's part played at once.
type bench struct {
	r       *Replica
	log     *fakeLog
	cluster fakeCluster
	now     ident.Instant
	records map[Token]int // of produces not yet appended
	out     Effects       // all effects of the last call
}

const second = ident.Instant(time.Second)

// newBench makes replica 1 of nodes 1, 2 and 3 with broker epochs 101, 102, 103 and a lag time of 10 s.
func newBench(cfg Config) *bench {
	b := &bench{
		log: &fakeLog{}, records: map[Token]int{}, now: 100 * second,
		cluster: fakeCluster{1: {Epoch: 101}, 2: {Epoch: 102}, 3: {Epoch: 103}},
	}
	cfg.Self = 1
	if cfg.LagTimeMax == 0 {
		cfg.LagTimeMax = 10 * time.Second
	}
	b.r = New(cfg, b.log, b.cluster)
	return b
}

// step runs one event and the completions that the executor would report.
func (b *bench) step(ev Event) {
	b.out = Effects{}
	todo := []Event{ev}
	for len(todo) > 0 {
		var e Effects
		b.r.Step(b.now, todo[0], &e)
		todo = append(todo[1:], b.perform(ev, &e)...)
		merge(&b.out, &e)
	}
}

func (b *bench) perform(ev Event, e *Effects) (done []Event) {
	if a := e.AssignEpoch; a != nil {
		b.log.epochs.Assign(*a, b.log.end)
	}
	for _, token := range e.Append {
		base := b.log.end
		b.log.append(b.r.LeaderEpoch(), b.records[token])
		done = append(done, AppendDone{Token: token, Base: base, End: b.log.end})
	}
	if e.AppendFetched > 0 {
		for _, batch := range ev.(FetchResponse).Batches[:e.AppendFetched] {
			b.log.appendTo(batch.Epoch, batch.End)
		}
		done = append(done, FetchedAppended{})
	}
	if e.Truncate != nil {
		b.log.truncate(*e.Truncate)
		done = append(done, TruncateDone{})
	}
	if e.Quarantine {
		was := b.log.end
		b.log.truncate(Truncation{To: b.log.damagedFrom})
		done = append(done, DamageChanged{Refilling: true, RefillTo: was}, QuarantineDone{})
	}
	if e.Refilled {
		done = append(done, DamageChanged{})
	}
	if e.RaiseLogStart != nil {
		b.log.start = *e.RaiseLogStart
		done = append(done, LogStartRaised{})
	}
	return done
}

func merge(into, e *Effects) {
	into.Append = append(into.Append, e.Append...)
	into.Completed = append(into.Completed, e.Completed...)
	into.Deleted = append(into.Deleted, e.Deleted...)
	into.Answers = append(into.Answers, e.Answers...)
	into.Wake = append(into.Wake, e.Wake...)
	into.Facts = append(into.Facts, e.Facts...)
	into.HighWatermark = into.HighWatermark || e.HighWatermark
	into.Fetcher = into.Fetcher || e.Fetcher
	into.Flush = into.Flush || e.Flush
	into.Quarantine = into.Quarantine || e.Quarantine
	into.Refilled = into.Refilled || e.Refilled
	into.Directory = into.Directory || e.Directory
	into.AppendFetched += e.AppendFetched
	if e.AssignEpoch != nil {
		into.AssignEpoch = e.AssignEpoch
	}
	if e.Truncate != nil {
		into.Truncate = e.Truncate
	}
	if e.Proposal != nil {
		into.Proposal = e.Proposal
	}
}

// lead makes the replica leader of epoch 5 of replicas 1, 2, 3.
func (b *bench) lead(minISR int, isr ...ident.NodeID) {
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 5, PartitionEpoch: 20, Replicas: []ident.NodeID{1, 2, 3}, ISR: isr, MinISR: minISR})
}

// follow makes it follower of node 2 in the given epoch.
func (b *bench) follow(e ident.Epoch, partitionEpoch int32) {
	b.step(MetadataChanged{Leader: 2, LeaderEpoch: e, PartitionEpoch: partitionEpoch, Replicas: []ident.NodeID{1, 2, 3}, ISR: []ident.NodeID{1, 2, 3}, MinISR: 2})
}

func (b *bench) produce(token Token, acks int16, records int) {
	b.records[token] = records
	b.step(Produce{Token: token, Acks: acks, Timeout: 5 * time.Second})
}

// fetch has a follower read at an offset, with its proper broker epoch and the leader's epoch.
func (b *bench) fetch(id ident.NodeID, offset ident.Offset) FetchAnswer {
	b.step(Fetch{Token: 1000 + Token(id), Replica: id, BrokerEpoch: 100 + int64(id), LeaderEpoch: b.r.LeaderEpoch(), Offset: offset, LastFetchedEpoch: -1})
	return b.out.Answers[0]
}

// wait lets time pass, ticking whenever the core asked for it, and gathers the effects.
func (b *bench) wait(d time.Duration) {
	var all Effects
	end := b.now.Add(d)
	for next := b.r.NextDeadline(); next <= end; next = b.r.NextDeadline() {
		b.now = max(next, b.now+1)
		b.step(Tick{})
		merge(&all, &b.out)
	}
	b.now = end
	b.out = all
}

// accept answers the proposal that is in flight with success.
func (b *bench) accept() {
	p := b.r.leader.pending
	b.step(AlterPartitionDone{
		LeaderEpoch: p.proposal.LeaderEpoch, PartitionEpoch: p.proposal.PartitionEpoch, NowLeader: 1,
		NowLeaderEpoch: p.proposal.LeaderEpoch, NowPartitionEpoch: p.proposal.PartitionEpoch + 1, NowISR: p.isr,
	})
}

func (b *bench) refuse(code Code) {
	p := b.r.leader.pending
	b.step(AlterPartitionDone{LeaderEpoch: p.proposal.LeaderEpoch, PartitionEpoch: p.proposal.PartitionEpoch, Code: code})
}

func (b *bench) codeOf(t *testing.T, token Token) Code {
	t.Helper()
	for _, c := range b.out.Completed {
		if c.Token == token {
			return c.Code
		}
	}
	t.Fatalf("produce %d is not completed: %+v", token, b.out.Completed)
	return 0
}

func (b *bench) wantHW(t *testing.T, want ident.Offset) {
	t.Helper()
	if got := b.r.HighWatermark(); got != want {
		t.Fatalf("high watermark %d, want %d", got, want)
	}
}
