package raft_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// fakeLog holds one epoch per record; a "record" on the fake wire is one byte, its epoch.
type fakeLog struct {
	damaged   bool          // the snapshots
	records   []ident.Epoch // from offset 0 on; those below start are what the snapshots tell
	table     epoch.Table
	start     ident.Offset
	snapshots []fakeSnapshot // the oldest first
}

// fakeSnapshot is on the fake wire one byte for each record below its end.
type fakeSnapshot struct {
	id      raft.SnapshotID
	records []ident.Epoch
	voters  raft.VoterSet
}

func (s fakeSnapshot) bytes() []byte {
	var out []byte
	for _, e := range s.records {
		out = append(out, byte(e))
	}
	return out
}

// voterSets has the voter sets in the control records of a quorum. Offset and epoch name a record, and so its content.
type voterSets map[raft.SnapshotID]raft.VoterSet

func (l *fakeLog) OldestSnapshot() (raft.SnapshotID, bool) {
	if len(l.snapshots) == 0 {
		return raft.SnapshotID{}, false
	}
	return l.snapshots[0].id, true
}

func (l *fakeLog) LatestSnapshot() (raft.SnapshotID, bool) {
	if len(l.snapshots) == 0 {
		return raft.SnapshotID{}, false
	}
	return l.snapshots[len(l.snapshots)-1].id, true
}

func (l *fakeLog) WholeSnapshot() (raft.SnapshotID, bool) {
	if l.damaged {
		return raft.SnapshotID{}, false
	}
	return l.LatestSnapshot()
}

// snapshot takes one of all records below end; with trim the log begins there afterwards.
func (l *fakeLog) snapshot(end ident.Offset, voters raft.VoterSet, trim bool) raft.SnapshotID {
	id := raft.SnapshotID{End: end, Epoch: l.records[end-1]}
	l.snapshots = append(l.snapshots, fakeSnapshot{id, slices.Clone(l.records[:end]), voters})
	if trim {
		l.start = end
		l.trimTable()
		l.snapshots = l.snapshots[len(l.snapshots)-1:]
	}
	return id
}

func (l *fakeLog) trimTable() {
	l.table.TruncateFromStart(l.start)
	if l.start == l.EndOffset() {
		l.table = epoch.Table{}
	}
}

// install is what an executor does with a whole snapshot.
func (l *fakeLog) install(s fakeSnapshot) {
	end := s.id.End
	holds := l.start < end && end <= l.EndOffset() && l.records[end-1] == s.id.Epoch
	if holds {
		l.start = end
		l.trimTable()
	} else {
		l.records, l.start = slices.Clone(s.records), end
		l.table = epoch.Table{}
	}
	l.snapshots = []fakeSnapshot{s}
}

func (l *fakeLog) StartOffset() ident.Offset { return l.start }
func (l *fakeLog) EndOffset() ident.Offset   { return ident.Offset(len(l.records)) }

func (l *fakeLog) LatestEpoch() ident.Epoch {
	e, _ := l.table.Latest()
	return e
}

func (l *fakeLog) EpochEndOffset(e ident.Epoch) (ident.Epoch, ident.Offset, bool) {
	return l.table.EndOffsetFor(e, l.EndOffset())
}

func (l *fakeLog) append(e ident.Epoch, count int) {
	l.table.Assign(e, l.EndOffset())
	for range count {
		l.records = append(l.records, e)
	}
}

func (l *fakeLog) truncate(to ident.Offset) {
	l.records = l.records[:to]
	l.table.TruncateFromEnd(to)
}

func (l *fakeLog) String() string {
	var b strings.Builder
	if l.start > 0 {
		fmt.Fprintf(&b, "(%d) ", l.start)
	}
	for i, e := range l.records {
		if i < int(l.start) || i > int(l.start) && e == l.records[i-1] {
			continue
		}
		end := i
		for end < len(l.records) && l.records[end] == e {
			end++
		}
		fmt.Fprintf(&b, "[%d..%d)e%d ", i, end, e)
	}
	return strings.TrimSpace(b.String())
}

func logOf(epochs ...ident.Epoch) *fakeLog {
	l := &fakeLog{}
	for _, e := range epochs {
		l.append(e, 1)
	}
	return l
}

func dir(id ident.NodeID) ident.UUID { return ident.UUID{0: 0xd1, 15: byte(id)} }

func keyOf(id ident.NodeID) raft.ReplicaKey { return raft.ReplicaKey{ID: id, DirectoryID: dir(id)} }

func votersOf(ids ...ident.NodeID) raft.VoterSet {
	var vs []raft.Voter
	for _, id := range ids {
		vs = append(vs, raft.Voter{Key: keyOf(id), Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: fmt.Sprintf("node-%d", id), Port: 9093}}})
	}
	s, err := raft.NewVoterSet(vs...)
	if err != nil {
		panic(err)
	}
	return s
}

func config(id ident.NodeID) raft.Config {
	return raft.Config{Self: keyOf(id), ClusterID: "c", Seed: 7}
}

// peer runs one Node over a fakeLog and does what its effects say, except that it sends nothing.
type peer struct {
	t      testing.TB
	id     ident.NodeID
	cfg    raft.Config
	log    *fakeLog
	saved  raft.VoteState
	node   *raft.Node
	voters []raft.VotersAt
	sets   voterSets
	// holdFlush leaves FlushDone to the test.
	holdFlush bool
	flushed   ident.Offset
	saves     int

	partial  []byte
	installs int
	drops    int

	replies []raft.Reply
	sends   []raft.Send
	hw      []ident.Offset
	leading []raft.EpochStart
	led     ident.Epoch // the last of leading, whatever starts came between
	leaders []raft.Leadership
	fatal   error
	// note gets a line for what is worth telling.
	note func(format string, args ...any)
	last string
}

func newPeer(t testing.TB, cfg raft.Config, log *fakeLog, vote raft.VoteState, voters raft.VoterSet) *peer {
	p := &peer{
		t: t, id: cfg.Self.ID, cfg: cfg, log: log, saved: vote, sets: voterSets{},
		voters: []raft.VotersAt{{Offset: raft.BootstrapOffset, Voters: voters}},
		note:   func(string, ...any) {},
	}
	p.start(0)
	return p
}

func (p *peer) start(now ident.Instant) {
	p.t.Helper()
	node, err := raft.New(p.cfg, p.log, p.saved, p.votersOnDisk())
	if err != nil {
		p.t.Fatal(err)
	}
	p.node, p.flushed = node, p.log.EndOffset()
	p.replies, p.sends, p.hw = nil, nil, nil
	p.step(now, raft.Start{})
}

// votersOnDisk is what an executor finds at a start: the set that the peer was made with, or the latest snapshot's,
// and those in the log.
func (p *peer) votersOnDisk() []raft.VotersAt {
	found := slices.Clone(p.voters)
	if n := len(p.log.snapshots); n > 0 && len(p.log.snapshots[0].voters) > 0 {
		s := p.log.snapshots[0]
		found = []raft.VotersAt{{Offset: s.id.End - 1, Voters: s.voters}}
	}
	for o := p.log.start; o < p.log.EndOffset(); o++ {
		if set, ok := p.sets[raft.SnapshotID{End: o, Epoch: p.log.records[o]}]; ok {
			found = append(found, raft.VotersAt{Offset: o, Voters: set})
		}
	}
	p.partial = nil
	return found
}

// appendVoters puts a voter set into the log.
func (p *peer) appendVoters(e ident.Epoch, set raft.VoterSet) []raft.VotersAt {
	o := p.log.EndOffset()
	p.sets[raft.SnapshotID{End: o, Epoch: e}] = set
	p.log.append(e, 1)
	return []raft.VotersAt{{Offset: o, Voters: set}}
}

func (p *peer) step(now ident.Instant, ev raft.Event) {
	p.t.Helper()
	if p.fatal != nil {
		return
	}
	events := []raft.Event{ev}
	for len(events) > 0 {
		var out raft.Effects
		p.node.Step(now, events[0], &out)
		events = append(events[1:], p.perform(&out)...)
	}
	if d := p.node.NextDeadline(); d <= now && p.fatal == nil {
		p.t.Fatalf("node %d: after a step at %d the next deadline is %d: a loop would spin", p.id, now, d)
	} else if d == ident.Never && p.fatal == nil && p.node.IsVoter() && p.node.Role() != raft.Leader {
		p.t.Fatalf("node %d: a voter that is %s has no timer: it would never stand (seaweedfs#6067)", p.id, p.node.Role())
	}
}

func (p *peer) perform(out *raft.Effects) (done []raft.Event) {
	if out.Fatal != nil {
		p.fatal = out.Fatal
		p.note("FATAL %v", out.Fatal)
		return nil
	}
	switch role := p.node.Role(); {
	case (out.LeaderStart != nil || out.AppendVoters != nil || out.Leading != nil) && role != raft.Leader,
		(out.Append != nil || out.Truncate != nil || out.Chunk != nil) && role != raft.Follower:
		p.t.Fatalf("node %d: as %s it wants done %+v", p.id, role, *out)
	}
	if out.SaveVote != nil {
		p.saved = *out.SaveVote
		p.saves++
		if f := p.log.EndOffset(); f > p.flushed {
			p.flushed = f
			done = append(done, raft.FlushDone{End: f})
		}
	}
	if out.Truncate != nil {
		p.note("truncates to %d", *out.Truncate)
		p.log.truncate(*out.Truncate)
		p.flushed = min(p.flushed, *out.Truncate)
		done = append(done, raft.TruncateDone{To: *out.Truncate})
	}
	if s := out.LeaderStart; s != nil {
		ev := raft.AppendDone{}
		p.log.append(s.Epoch, 1)
		if s.Bootstrap != nil {
			p.log.append(s.Epoch, 1)
			ev.Voters = p.appendVoters(s.Epoch, s.Bootstrap)
		}
		ev.End = p.log.EndOffset()
		done = append(done, ev)
	}
	if c := out.AppendVoters; c != nil {
		voters := p.appendVoters(c.Epoch, c.Voters)
		done = append(done, raft.AppendDone{End: p.log.EndOffset(), Voters: voters})
	}
	if a := out.Append; a != nil {
		done = append(done, p.appendFetched(a))
	}
	if out.DropSnapshot {
		p.partial = nil
		p.drops++
	}
	if c := out.Chunk; c != nil {
		done = append(done, p.storeChunk(c))
	}
	if id := out.Install; id != nil {
		done = append(done, p.install(*id))
	}
	if out.FlushWanted && !p.holdFlush {
		p.flushed = p.log.EndOffset()
		done = append(done, raft.FlushDone{End: p.flushed})
	}
	for _, r := range out.Reads {
		end := min(p.log.EndOffset(), r.Offset+ident.Offset(max(1, r.MaxBytes)))
		for _, e := range p.log.records[r.Offset:end] {
			r.Response.Records = append(r.Response.Records, byte(e))
		}
		p.replies = append(p.replies, raft.Reply{Token: r.Token, Msg: r.Response})
	}
	for _, r := range out.SnapshotReads {
		p.readSnapshot(r)
	}
	p.replies = append(p.replies, out.Replies...)
	p.sends = append(p.sends, out.Sends...)
	if out.HighWatermark != nil {
		p.hw = append(p.hw, *out.HighWatermark)
	}
	if l := out.Leading; l != nil {
		// The state machine may be told once all before the epoch and its start are committed, and once only (KAFKA-17333).
		if l.Epoch <= p.led || p.node.Role() != raft.Leader || l.Epoch != p.node.Epoch() || p.node.HighWatermark() <= l.Start {
			p.t.Fatalf("node %d: told of its leadership %+v as %s of epoch %d, high watermark %d, told before of epoch %d",
				p.id, *l, p.node.Role(), p.node.Epoch(), p.node.HighWatermark(), p.led)
		}
		p.led = l.Epoch
		p.leading = append(p.leading, *l)
	}
	if out.Leadership != nil {
		p.leaders = append(p.leaders, *out.Leadership)
	}
	if now := fmt.Sprintf("%s epoch %d", p.node.Role(), p.node.Epoch()); now != p.last {
		p.last = now
		p.note("%s", now)
	}
	return done
}

func (p *peer) storeChunk(c *raft.SnapshotChunk) raft.Event {
	if c.Position == 0 {
		p.partial = nil
	}
	if int(c.Position) != len(p.partial) {
		p.t.Fatalf("node %d: a chunk of %s at %d, after %d bytes", p.id, c.Snapshot, c.Position, len(p.partial))
	}
	p.partial = append(p.partial, c.Bytes...)
	return raft.ChunkStored{Snapshot: c.Snapshot, Position: int64(len(p.partial))}
}

func (p *peer) install(id raft.SnapshotID) raft.Event {
	s := fakeSnapshot{id: id}
	for _, b := range p.partial {
		s.records = append(s.records, ident.Epoch(b))
	}
	p.partial = nil
	if len(s.records) != int(id.End) || s.records[id.End-1] != id.Epoch {
		return raft.SnapshotRefused{Snapshot: id, Err: fmt.Errorf("not snapshot %s: %d records", id, len(s.records))}
	}
	for o, e := range s.records {
		if set, ok := p.sets[raft.SnapshotID{End: ident.Offset(o), Epoch: e}]; ok {
			s.voters = set
		}
	}
	p.log.install(s)
	p.installs++
	p.flushed = p.log.EndOffset()
	p.note("installs snapshot %s", id)
	return raft.SnapshotInstalled{Snapshot: id, Voters: s.voters}
}

func (p *peer) readSnapshot(r raft.SnapshotRead) {
	resp := r.Response
	i := slices.IndexFunc(p.log.snapshots, func(s fakeSnapshot) bool { return s.id == resp.Snapshot })
	if i < 0 {
		resp.Code = raft.SnapshotNotFound
	} else {
		all := p.log.snapshots[i].bytes()
		resp.Size = int64(len(all))
		if resp.Position >= resp.Size {
			resp.Code = raft.PositionOutOfRange
		} else {
			resp.Bytes = all[resp.Position:min(resp.Size, resp.Position+int64(r.MaxBytes))]
		}
	}
	p.replies = append(p.replies, raft.Reply{Token: r.Token, Msg: resp})
}

func (p *peer) appendFetched(a *raft.FetchedRecords) raft.Event {
	if a.Offset != p.log.EndOffset() {
		return raft.AppendRefused{Err: fmt.Errorf("offset %d, log ends at %d", a.Offset, p.log.EndOffset())}
	}
	ev := raft.AppendDone{}
	for i, e := range a.Records {
		if ident.Epoch(e) < p.log.LatestEpoch() || e > 127 {
			if i > 0 {
				break
			}
			return raft.AppendRefused{Err: fmt.Errorf("epoch %d after %d", e, p.log.LatestEpoch())}
		}
		if ident.Epoch(e) > a.Epoch {
			break
		}
		at := raft.SnapshotID{End: p.log.EndOffset(), Epoch: ident.Epoch(e)}
		if set, ok := p.sets[at]; ok {
			ev.Voters = append(ev.Voters, raft.VotersAt{Offset: at.End, Voters: set})
		}
		p.log.append(ident.Epoch(e), 1)
	}
	ev.End = p.log.EndOffset()
	return ev
}

func (p *peer) flush(now ident.Instant) {
	p.flushed = p.log.EndOffset()
	p.step(now, raft.FlushDone{End: p.flushed})
}

// ask delivers a request and returns the reply, nil when it has to wait.
func (p *peer) ask(now ident.Instant, m raft.Message) raft.Message {
	p.t.Helper()
	p.replies = nil
	p.step(now, raft.Request{Token: 99, Msg: m})
	return p.replyTo(99)
}

func (p *peer) replyTo(token uint64) raft.Message {
	i := slices.IndexFunc(p.replies, func(r raft.Reply) bool { return r.Token == token })
	if i < 0 {
		return nil
	}
	return p.replies[i].Msg
}

// take returns and forgets the sends.
func (p *peer) take() []raft.Send {
	s := p.sends
	p.sends = nil
	return s
}

// answerAll answers all sends at once.
func (p *peer) answerAll(now ident.Instant, answer func(raft.Send) raft.Message) {
	p.t.Helper()
	for _, s := range p.take() {
		if m := answer(s); m != nil {
			p.step(now, raft.Response{From: s.To, Correlation: s.Correlation, Msg: m})
		}
	}
}

// elected makes a leader of 1, 2, 3 out of node 1 over the given log; nobody has fetched yet.
func elected(t testing.TB, cfg raft.Config, log *fakeLog) (*peer, ident.Instant) {
	t.Helper()
	p := newPeer(t, cfg, log, raft.NoVote(), votersOf(1, 2, 3))
	return p, elect(t, p, p.node.NextDeadline())
}

// elect lets all others vote for p until it leads.
func elect(t testing.TB, p *peer, now ident.Instant) ident.Instant {
	t.Helper()
	limit := now.Add(5 * time.Second)
	for ; p.node.Role() != raft.Leader; now = now.Add(time.Millisecond) {
		p.step(now, raft.Tick{})
		p.answerAll(now, func(s raft.Send) raft.Message {
			if m, ok := s.Msg.(*raft.VoteRequest); ok {
				return &raft.VoteResponse{Granted: true, Current: raft.LeaderInfo{Leader: -1, Epoch: m.Epoch}}
			}
			return nil
		})
		if now > limit {
			t.Fatalf("not elected: %s", p.node.Role())
		}
	}
	return now
}

func fetch(id ident.NodeID, e ident.Epoch, offset ident.Offset, last ident.Epoch) *raft.FetchRequest {
	return &raft.FetchRequest{
		ClusterID: "c", Replica: keyOf(id), Epoch: e, Offset: offset, LastEpoch: last,
		HighWatermark: raft.HighWatermarkNotNamed, MaxBytes: 1 << 20, MaxWait: 100 * time.Millisecond,
	}
}
