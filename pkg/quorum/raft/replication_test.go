package raft_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

func TestFirstLeaderWritesTheBootstrapVotersIntoTheLog(t *testing.T) {
	p, now := elected(t, config(1), logOf())
	if p.log.String() != "[0..3)e1" {
		t.Fatalf("log %s, want leader change, kraft.version and voters", p.log)
	}
	p.ask(now, fetch(2, 1, 3, 1))
	p.step(now, raft.Resign{Epoch: 1})
	if p.node.HighWatermark() != 3 {
		t.Fatalf("high watermark %d", p.node.HighWatermark())
	}
	// The next leader finds them in the log.
	elect(t, p, now)
	if got := p.log.EndOffset(); got != 4 {
		t.Fatalf("the second leader appended %d records, want only the leader change: %s", got-3, p.log)
	}
}

func TestTruncatedVotersAreWrittenAgain(t *testing.T) {
	p, now := elected(t, config(1), logOf())
	p.step(now, raft.Request{Token: 1, Msg: &raft.BeginQuorumEpochRequest{Voter: keyOf(1), Leader: 2, Epoch: 2}})
	p.answerAll(now, func(s raft.Send) raft.Message {
		if _, ok := s.Msg.(*raft.FetchRequest); !ok {
			return nil
		}
		return &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 2, Epoch: 2}, Diverging: &raft.EpochEnd{Epoch: 0, End: 0}}
	})
	if p.log.EndOffset() != 0 {
		t.Fatalf("log %s, want it cut to 0", p.log)
	}
	if len(p.node.Voters()) != 3 {
		t.Fatalf("voters %v after the cut, want those of the bootstrap checkpoint", p.node.Voters())
	}
}

func TestHighWatermarkNeedsARecordOfThisEpochOnAMajority(t *testing.T) {
	// Figure 8 of the Raft paper: entries of epoch 2 on a majority are not safe by that.
	p, now := elected(t, config(1), logOf(1, 2, 2))
	start := p.log.EndOffset() - 3
	for _, offset := range []ident.Offset{1, 3} {
		last := ident.Epoch(1)
		if offset == 3 {
			last = 2
		}
		p.ask(now, fetch(2, 3, offset, last))
		if p.node.HighWatermark() != ident.UnknownOffset {
			t.Fatalf("high watermark %d when a majority holds all below %d; the epoch starts at %d", p.node.HighWatermark(), offset, start)
		}
	}
	if len(p.leading) != 0 {
		t.Fatal("told to lead before anything of the epoch is committed")
	}
	p.ask(now, fetch(2, 3, p.log.EndOffset(), 3))
	if p.node.HighWatermark() != p.log.EndOffset() || len(p.leading) != 1 || p.leading[0].Start != start {
		t.Fatalf("high watermark %d of %d, leading %v", p.node.HighWatermark(), p.log.EndOffset(), p.leading)
	}
}

func TestLeaderCountsItselfOnlyAfterItsOwnFsync(t *testing.T) {
	cfg := config(1)
	p, now := elected(t, cfg, logOf())
	p.holdFlush = true
	p.ask(now, fetch(2, 1, 3, 1))
	p.log.append(1, 2)
	p.step(now, raft.AppendDone{End: 5})
	p.ask(now, fetch(2, 1, 5, 1))
	if p.node.HighWatermark() != 3 {
		t.Fatalf("high watermark %d with two of three holding 5, one of them unflushed", p.node.HighWatermark())
	}
	p.flush(now)
	if p.node.HighWatermark() != 5 {
		t.Fatalf("high watermark %d after the fsync", p.node.HighWatermark())
	}
	p.log.append(1, 1)
	p.step(now, raft.AppendDone{End: 6})
	p.ask(now, fetch(2, 1, 6, 1))
	p.ask(now, fetch(3, 1, 6, 1))
	if p.node.HighWatermark() != 6 {
		t.Fatalf("high watermark %d: the two others are a majority without the leader's disk", p.node.HighWatermark())
	}
}

func TestObserversDoNotCountForTheHighWatermark(t *testing.T) {
	p, now := elected(t, config(1), logOf())
	p.ask(now, fetch(10, 1, 3, 1))
	wiped := fetch(2, 1, 3, 1)
	wiped.Replica.DirectoryID = dir(99)
	p.ask(now, wiped)
	if p.node.HighWatermark() != ident.UnknownOffset {
		t.Fatalf("high watermark %d by an observer and a voter's id with another directory", p.node.HighWatermark())
	}
	d, ok := p.node.Describe(now)
	if !ok || len(d.Voters) != 3 || len(d.Observers) != 2 {
		t.Fatalf("%+v", d)
	}
}

func TestFetchIsRefusedWithKafkasCode(t *testing.T) {
	p, now := elected(t, config(1), logOf(1, 2, 2, 4))
	last := p.node.Epoch()
	if last != 5 {
		t.Fatalf("epoch %d", last)
	}
	own := fetch(1, last, 0, 0)
	for _, c := range []struct {
		name      string
		m         *raft.FetchRequest
		code      raft.Code
		diverging *raft.EpochEnd
	}{
		{"earlier epoch", fetch(2, last-1, 0, 0), raft.FencedLeaderEpoch, nil},
		{"later epoch", fetch(2, last+1, 0, 0), raft.UnknownLeaderEpoch, nil},
		{"negative offset", fetch(2, last, -1, 0), raft.InvalidRequest, nil},
		{"no last epoch", fetch(2, last, 3, -1), raft.InvalidRequest, nil},
		{"the leader's own id", own, raft.InvalidRequest, nil},
		{"start", fetch(2, last, 0, 0), raft.None, nil},
		{"prefix", fetch(2, last, 3, 2), raft.None, nil},
		{"longer in an epoch than the leader", fetch(2, last, 9, 2), raft.None, &raft.EpochEnd{Epoch: 2, End: 3}},
		{"epoch the leader never saw", fetch(2, last, 4, 3), raft.None, &raft.EpochEnd{Epoch: 2, End: 3}},
		{"beyond the leader's end", fetch(2, last, 99, last), raft.None, &raft.EpochEnd{Epoch: last, End: p.log.EndOffset()}},
		{"record of an epoch after its own", fetch(2, last, 2, last+9), raft.InvalidRequest, nil},
		{"negative wait", waitNegative(last), raft.InvalidRequest, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.t = t
			r := p.ask(now, c.m).(*raft.FetchResponse)
			if r.Code != c.code || r.Current.Leader != 1 || r.Current.Epoch != last {
				t.Fatalf("%+v, want code %d and the leader", r, c.code)
			}
			if (r.Diverging == nil) != (c.diverging == nil) || r.Diverging != nil && *r.Diverging != *c.diverging {
				t.Fatalf("diverging %v, want %v", r.Diverging, c.diverging)
			}
		})
	}
}

func waitNegative(e ident.Epoch) *raft.FetchRequest {
	m := fetch(2, e, 0, 0)
	m.MaxWait = -1
	return m
}

func TestFetchBelowTheLogStartGetsAClearError(t *testing.T) {
	log := logOf(1, 1, 1)
	log.start = 2
	p, now := elected(t, config(1), log)
	r := p.ask(now, fetch(2, 2, 1, 1)).(*raft.FetchResponse)
	if r.Code != raft.OffsetOutOfRange || r.LogStartOffset != 2 {
		t.Fatalf("%+v", r)
	}
	f := newPeer(t, config(2), logOf(1), raft.VoteState{Epoch: 2, Leader: 1, Voted: raft.Nobody}, votersOf(1, 2, 3))
	f.answerAll(1, func(raft.Send) raft.Message { return r })
	if err := f.node.Trouble(); err == nil || !strings.Contains(err.Error(), "starts at 2") {
		t.Fatalf("trouble %v", err)
	}
}

func TestParkedFetchIsWokenByAppendHighWatermarkAndTime(t *testing.T) {
	p, now := elected(t, config(1), logOf())
	p.ask(now, fetch(2, 1, 3, 1))
	at := func(token uint64, id ident.NodeID, offset, hw ident.Offset) {
		m := fetch(id, 1, offset, 1)
		m.HighWatermark = hw
		p.step(now, raft.Request{Token: token, Msg: m})
	}
	p.replies = nil
	at(1, 10, 3, 3)
	at(2, 11, 3, 3)
	if len(p.replies) != 0 {
		t.Fatalf("answered at once: %v", p.replies)
	}
	p.log.append(1, 1)
	p.step(now, raft.AppendDone{End: 4})
	for _, token := range []uint64{1, 2} {
		if r := p.replyTo(token).(*raft.FetchResponse); len(r.Records) != 1 || r.HighWatermark != 3 {
			t.Fatalf("woken by the append with %+v", r)
		}
	}
	p.replies = nil
	at(3, 10, 4, 3)
	p.ask(now, fetch(2, 1, 4, 1))
	if r, ok := p.replyTo(3).(*raft.FetchResponse); !ok || r.HighWatermark != 4 || len(r.Records) != 0 {
		t.Fatalf("not woken by the high watermark alone (KIP-1166): %+v", r)
	}
	p.replies = nil
	at(4, 10, 4, 4)
	p.step(now.Add(100*time.Millisecond-1), raft.Tick{})
	if p.replyTo(4) != nil {
		t.Fatal("answered before its time")
	}
	p.step(now.Add(100*time.Millisecond), raft.Tick{})
	if p.replyTo(4) == nil {
		t.Fatal("not answered when its time was over")
	}
}

// What a new leader knew as a follower may be behind what its predecessor told the others, and a follower of Apache
// Kafka's ends when its high watermark goes back.
func TestNewLeaderTellsNoHighWatermarkUntilItsEpochHasOne(t *testing.T) {
	p, s := follower(t, logOf(1, 1, 1))
	p.step(1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: leader1, HighWatermark: 2}})
	now := elect(t, p, 1)
	epoch, end := p.node.Epoch(), p.log.EndOffset()
	if p.node.HighWatermark() != 2 {
		t.Fatalf("high watermark %d", p.node.HighWatermark())
	}
	for _, from := range []struct {
		id     ident.NodeID
		offset ident.Offset
		last   ident.Epoch
	}{{10, 3, 1}, {10, end, epoch}} {
		m := fetch(from.id, epoch, from.offset, from.last)
		m.HighWatermark = ident.UnknownOffset
		r, ok := p.ask(now, m).(*raft.FetchResponse)
		if parks := from.offset == end; ok == parks || ok && r.HighWatermark != ident.UnknownOffset {
			t.Errorf("a fetch at %d is answered with %+v", from.offset, r)
		}
	}
	if d, _ := p.node.Describe(now); d.HighWatermark != ident.UnknownOffset {
		t.Errorf("described with high watermark %d", d.HighWatermark)
	}
	r, ok := p.ask(now, fetch(3, epoch, end, epoch)).(*raft.FetchResponse)
	if p.node.HighWatermark() != end || ok && r.HighWatermark != end {
		t.Errorf("a majority has everything: high watermark %d, told %+v", p.node.HighWatermark(), r)
	}
	if r, ok := p.replyTo(99).(*raft.FetchResponse); !ok || r.HighWatermark != end {
		t.Errorf("who waited is told %+v", r)
	}
}

func TestParkedFetchOfADeposedLeaderIsAnsweredWithTheNewOne(t *testing.T) {
	p, now := elected(t, config(1), logOf())
	p.step(now, raft.Request{Token: 5, Msg: fetch(10, 1, 3, 1)})
	p.step(now, raft.Request{Token: 6, Msg: &raft.BeginQuorumEpochRequest{Voter: keyOf(1), Leader: 3, Epoch: 9}})
	r, ok := p.replyTo(5).(*raft.FetchResponse)
	if !ok || r.Code != raft.NotLeaderOrFollower || r.Current.Leader != 3 || r.Current.Epoch != 9 {
		t.Fatalf("%+v", r)
	}
}

func TestSecondFetchOfAReplicaEndsTheWaitOfTheFirst(t *testing.T) {
	p, now := elected(t, config(1), logOf())
	p.step(now, raft.Request{Token: 5, Msg: fetch(10, 1, 3, 1)})
	p.step(now, raft.Request{Token: 6, Msg: fetch(10, 1, 3, 1)})
	if p.replyTo(5) == nil || p.replyTo(6) != nil {
		t.Fatalf("replies %v; want the first answered and the second waiting", p.replies)
	}
}

func TestProposalIsRefusedClearly(t *testing.T) {
	p, _ := elected(t, config(1), logOf())
	if err := p.node.CheckPropose(1, 100); err != nil {
		t.Fatal(err)
	}
	if err := p.node.CheckPropose(2, 100); !errors.Is(err, raft.ErrNotLeader) {
		t.Fatalf("another epoch: %v", err)
	}
	if err := p.node.CheckPropose(1, raft.DefaultProposeMaxBytes+1); !errors.Is(err, raft.ErrTooLarge) {
		t.Fatalf("too large: %v", err)
	}
}

// follower is node 2, following node 1 in epoch 5 from the given log, with its first fetch sent.
func follower(t *testing.T, log *fakeLog) (*peer, raft.Send) {
	p := newPeer(t, config(2), log, raft.VoteState{Epoch: 5, Leader: 1, Voted: raft.Nobody}, votersOf(1, 2, 3))
	return p, onlyFetch(t, p)
}

func onlyFetch(t *testing.T, p *peer) raft.Send {
	t.Helper()
	s := p.take()
	if len(s) != 1 || s[0].To != 1 {
		t.Fatalf("sends %v, want one fetch to the leader", s)
	}
	return s[0]
}

var leader1 = raft.LeaderInfo{Leader: 1, Epoch: 5}

func TestFollowerFetchesOnlyFromItsFlushedEnd(t *testing.T) {
	p, s := follower(t, logOf(1, 1))
	p.holdFlush = true
	p.step(1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: leader1, HighWatermark: 2, Records: []byte{5, 5}}})
	if p.log.EndOffset() != 4 || p.node.HighWatermark() != 2 {
		t.Fatalf("log %s, high watermark %d", p.log, p.node.HighWatermark())
	}
	if s := p.take(); len(s) != 0 {
		t.Fatalf("sent %v before the fsync: that would acknowledge what a crash can take", s)
	}
	p.flush(2)
	if m := onlyFetch(t, p).Msg.(*raft.FetchRequest); m.Offset != 4 || m.LastEpoch != 5 || m.HighWatermark != 2 {
		t.Fatalf("%+v", m)
	}
}

func TestFollowerCutsItsLogWhereItDiverges(t *testing.T) {
	for _, c := range []struct {
		name string
		log  *fakeLog
		says raft.EpochEnd
		want string
	}{
		{"leader's epoch ends earlier", logOf(1, 1, 4, 4), raft.EpochEnd{Epoch: 1, End: 1}, "[0..1)e1"},
		{"own epoch ends earlier", logOf(1, 1, 4, 4), raft.EpochEnd{Epoch: 1, End: 3}, "[0..2)e1"},
		{"epoch not known here", logOf(1, 1, 4, 4), raft.EpochEnd{Epoch: 3, End: 9}, "[0..2)e1"},
		{"nothing in common", logOf(4, 4), raft.EpochEnd{Epoch: 2, End: 7}, ""},
		{"one conflicting record", logOf(1, 1, 4), raft.EpochEnd{Epoch: 1, End: 2}, "[0..2)e1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, s := follower(t, c.log)
			p.step(1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: leader1, HighWatermark: 9, Diverging: &c.says}})
			if p.log.String() != c.want {
				t.Fatalf("log %s, want %s", p.log, c.want)
			}
			if p.node.HighWatermark() != ident.UnknownOffset {
				t.Fatalf("took the high watermark %d out of a diverging answer", p.node.HighWatermark())
			}
			if m := onlyFetch(t, p).Msg.(*raft.FetchRequest); m.Offset != p.log.EndOffset() {
				t.Fatalf("fetches from %d", m.Offset)
			}
		})
	}
}

func TestDivergenceBelowTheHighWatermarkIsFatal(t *testing.T) {
	p, s := follower(t, logOf(1, 1, 4))
	p.step(1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: leader1, HighWatermark: 3}})
	s = onlyFetch(t, p)
	p.step(2, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: leader1, Diverging: &raft.EpochEnd{Epoch: 1, End: 2}}})
	if p.fatal == nil || !strings.Contains(p.fatal.Error(), "below the high watermark 3") {
		t.Fatalf("fatal %v (KAFKA-12460)", p.fatal)
	}
	if p.log.EndOffset() != 3 {
		t.Fatalf("log %s was cut", p.log)
	}
}

func TestAnswerOfAnotherEpochOrLeaderIsNotUsed(t *testing.T) {
	p, s := follower(t, logOf(1, 1))
	p.step(1, raft.Request{Token: 1, Msg: &raft.BeginQuorumEpochRequest{Voter: keyOf(2), Leader: 3, Epoch: 6}})
	p.step(2, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: leader1, HighWatermark: 9, Records: []byte{5, 5}}})
	if p.log.EndOffset() != 2 || p.node.HighWatermark() != ident.UnknownOffset {
		t.Fatalf("log %s, high watermark %d", p.log, p.node.HighWatermark())
	}
}

func TestHighWatermarkOfAFollowerStaysWithinItsLog(t *testing.T) {
	p, s := follower(t, logOf(1, 1))
	p.step(1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: leader1, HighWatermark: 100}})
	if p.node.HighWatermark() != 2 {
		t.Fatalf("high watermark %d, log end 2", p.node.HighWatermark())
	}
}

func TestFollowerThatOnlyHearsOfDivergenceOrSnapshotsKeepsItsLeader(t *testing.T) {
	p, _ := follower(t, logOf(1))
	p.step(0, raft.Tick{})
	for now := ident.Instant(0); now < ident.Instant(10*time.Second); now = max(now+1, p.node.NextDeadline()) {
		p.step(now, raft.Tick{})
		for len(p.sends) > 0 {
			p.answerAll(now, func(s raft.Send) raft.Message {
				switch m := s.Msg.(type) {
				case *raft.FetchRequest:
					return &raft.FetchResponse{Current: leader1, Snapshot: &raft.SnapshotID{Epoch: 1, End: 50}}
				case *raft.FetchSnapshotRequest:
					return &raft.FetchSnapshotResponse{Current: leader1, Snapshot: m.Snapshot, Code: raft.SnapshotNotFound}
				}
				t.Fatalf("sends a %T: pre-votes against a leader in steady contact (redpanda#30815)", s.Msg)
				return nil
			})
		}
	}
	if p.node.Role() != raft.Follower || p.node.Epoch() != 5 {
		t.Fatalf("%s in epoch %d", p.node.Role(), p.node.Epoch())
	}
}

func TestFollowerWhoseFetchIsNotAnsweredTriesAgainAndThenStands(t *testing.T) {
	p, _ := follower(t, logOf(1))
	p.step(ident.Instant(900*time.Millisecond), raft.Tick{})
	if p.node.Role() != raft.Prospective {
		t.Fatalf("%s 0.9 s after the last sign of its leader", p.node.Role())
	}
}

func TestRefusedRecordsAreAskedForAgain(t *testing.T) {
	p, s := follower(t, logOf(1))
	var out raft.Effects
	p.node.Step(1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: leader1, Records: []byte{5}}}, &out)
	if out.Append == nil {
		t.Fatal("records not handed on")
	}
	p.step(1, raft.AppendRefused{Err: errors.New("checksum")})
	if err := p.node.Trouble(); err == nil {
		t.Fatal("no word of the trouble")
	}
	p.step(p.node.NextDeadline(), raft.Tick{})
	if m := onlyFetch(t, p).Msg.(*raft.FetchRequest); m.Offset != 1 {
		t.Fatalf("%+v", m)
	}
}

func TestRestartedVoterFollowsWithoutElection(t *testing.T) {
	// It knows only an old leader; the one that leads now tells it.
	p := newPeer(t, config(2), logOf(1), raft.VoteState{Epoch: 3, Leader: 3, Voted: raft.Nobody}, votersOf(1, 2, 3))
	p.answerAll(1, func(raft.Send) raft.Message {
		return &raft.FetchResponse{Code: raft.FencedLeaderEpoch, Current: raft.LeaderInfo{Leader: 1, Epoch: 5, Endpoints: []raft.Endpoint{{Host: "new", Port: 1}}}}
	})
	l := p.node.Leadership()
	if l.Leader != 1 || l.Epoch != 5 || l.Endpoints[0].Host != "new" {
		t.Fatalf("%+v", l)
	}
	if m := onlyFetch(t, p).Msg.(*raft.FetchRequest); m.Epoch != 5 {
		t.Fatalf("%+v", m)
	}
}

func TestNewerEndpointsOfTheSameLeaderAreTaken(t *testing.T) {
	p, _ := follower(t, logOf(1))
	p.step(1, raft.Request{Token: 1, Msg: &raft.BeginQuorumEpochRequest{Voter: keyOf(2), Leader: 1, Epoch: 5, Endpoints: []raft.Endpoint{{Host: "moved", Port: 2}}}})
	if e := p.node.Endpoints(1); len(e) != 1 || e[0].Host != "moved" {
		t.Fatalf("%v (KAFKA-16927)", e)
	}
}
