package raft_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// trimmed is a log [start..end) of epoch 5 behind a snapshot that ends with a record of epoch 3.
func trimmed(start, end int) *fakeLog {
	l := &fakeLog{}
	l.append(1, 2)
	l.append(3, start-2)
	l.snapshot(ident.Offset(start), votersOf(1, 2, 3), true)
	if end > start {
		l.append(5, end-start)
	}
	return l
}

func TestWhoNeedsASnapshotIsOfferedTheLatest(t *testing.T) {
	for name, c := range map[string]struct {
		log    *fakeLog
		offset ident.Offset
		last   ident.Epoch
		want   raft.SnapshotID // zero: none
	}{
		"below the log's start":                        {trimmed(10, 12), 9, 3, raft.SnapshotID{End: 10, Epoch: 3}},
		"empty, although nothing is trimmed":           {untrimmed(), 0, 0, raft.SnapshotID{End: 4, Epoch: 1}},
		"at the start in the snapshot's epoch":         {trimmed(10, 12), 10, 3, raft.SnapshotID{}},
		"at the start in another epoch":                {trimmed(10, 12), 10, 4, raft.SnapshotID{End: 10, Epoch: 3}},
		"at the start in an older epoch":               {trimmed(10, 12), 10, 1, raft.SnapshotID{End: 10, Epoch: 3}},
		"beyond the start, of an epoch from before it": {trimmed(10, 12), 11, 2, raft.SnapshotID{End: 10, Epoch: 3}},
		"beyond the start, of the snapshot's epoch":    {trimmed(10, 12), 11, 3, raft.SnapshotID{}},
		"within an untrimmed log, before the snapshot": {untrimmed(), 2, 1, raft.SnapshotID{}},
		"at the end": {trimmed(10, 12), 12, 5, raft.SnapshotID{}},
		"the very end of a log that is only a snapshot": {trimmed(10, 10), 10, 3, raft.SnapshotID{}},
	} {
		t.Run(name, func(t *testing.T) {
			p, now := elected(t, config(1), c.log)
			r := p.ask(now, fetch(2, p.node.Epoch(), c.offset, c.last)).(*raft.FetchResponse)
			got := raft.SnapshotID{}
			if r.Snapshot != nil {
				got = *r.Snapshot
			}
			if r.Code != raft.None || got != c.want || c.want != (raft.SnapshotID{}) && (r.Diverging != nil || len(r.Records) > 0) {
				t.Fatalf("offered %s, want %s; code %d, diverging %v, %d records", got, c.want, r.Code, r.Diverging, len(r.Records))
			}
			if d, _ := p.node.Describe(now); c.want != (raft.SnapshotID{}) && d.Voters[1].Fetched {
				t.Fatal("a replica that needs a snapshot counts as one that has fetched")
			}
		})
	}
}

// A damaged snapshot is offered to nobody, and still tells of which epoch the record before the log's start is.
func TestDamagedSnapshotIsNotOfferedAndItsPositionNotForgotten(t *testing.T) {
	log := trimmed(10, 12)
	log.damaged = true
	p, now := elected(t, config(1), log)
	if r := p.ask(now, fetch(2, p.node.Epoch(), 9, 3)).(*raft.FetchResponse); r.Code != raft.OffsetOutOfRange || r.Snapshot != nil {
		t.Fatalf("%+v", r)
	}
	if r := p.ask(now, fetch(2, p.node.Epoch(), 10, 3)).(*raft.FetchResponse); r.Code != raft.None || r.Snapshot != nil || r.Diverging != nil || len(r.Records) == 0 {
		t.Fatalf("%+v", r)
	}
	log.damaged = false
	if r := p.ask(now, fetch(2, p.node.Epoch(), 9, 3)).(*raft.FetchResponse); r.Snapshot == nil {
		t.Fatalf("%+v", r)
	}
}

// untrimmed has a snapshot beside a log that goes back to 0.
func untrimmed() *fakeLog {
	l := logOf(1, 1, 1, 1, 1)
	l.snapshot(4, votersOf(1, 2, 3), false)
	return l
}

// The record before the log's start is known by the snapshot that ends with it: a follower of a longer log of that
// epoch is told where to cut, not that nothing is known of it.
func TestDivergenceBehindASnapshotIsFoundByItsEpoch(t *testing.T) {
	p, now := elected(t, config(1), trimmed(10, 12))
	r := p.ask(now, fetch(2, p.node.Epoch(), 15, 3)).(*raft.FetchResponse)
	if r.Diverging == nil || *r.Diverging != (raft.EpochEnd{Epoch: 3, End: 10}) {
		t.Fatalf("diverging %v", r.Diverging)
	}
	// And so does the follower, whose log is nothing but the snapshot's successor in another epoch.
	l := trimmed(10, 10)
	l.append(4, 3)
	f := newPeer(t, config(2), l, raft.VoteState{Epoch: 6, Leader: 1, Voted: raft.Nobody}, votersOf(1, 2, 3))
	f.answerAll(1, func(raft.Send) raft.Message {
		return &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 1, Epoch: 6}, HighWatermark: 10, Diverging: &raft.EpochEnd{Epoch: 3, End: 10}}
	})
	if f.fatal != nil || l.EndOffset() != 10 {
		t.Fatalf("log %s; %v", l, f.fatal)
	}
}

func TestFetchSnapshotIsAnsweredByTheLeaderOnly(t *testing.T) {
	p, now := elected(t, config(1), trimmed(10, 12))
	e := p.node.Epoch()
	id := raft.SnapshotID{End: 10, Epoch: 3}
	ask := func(change func(*raft.FetchSnapshotRequest)) *raft.FetchSnapshotResponse {
		m := &raft.FetchSnapshotRequest{ClusterID: "c", Replica: keyOf(2), Epoch: e, Snapshot: id, MaxBytes: 4}
		change(m)
		return p.ask(now, m).(*raft.FetchSnapshotResponse)
	}
	for name, c := range map[string]struct {
		change func(*raft.FetchSnapshotRequest)
		code   raft.Code
		bytes  int
	}{
		"the first piece":    {func(*raft.FetchSnapshotRequest) {}, raft.None, 4},
		"the last piece":     {func(m *raft.FetchSnapshotRequest) { m.Position = 8 }, raft.None, 2},
		"beyond the end":     {func(m *raft.FetchSnapshotRequest) { m.Position = 10 }, raft.PositionOutOfRange, 0},
		"a negative byte":    {func(m *raft.FetchSnapshotRequest) { m.Position = -1 }, raft.PositionOutOfRange, 0},
		"another snapshot":   {func(m *raft.FetchSnapshotRequest) { m.Snapshot.End = 9 }, raft.SnapshotNotFound, 0},
		"the 0-0 checkpoint": {func(m *raft.FetchSnapshotRequest) { m.Snapshot = raft.SnapshotID{} }, raft.SnapshotNotFound, 0},
		"an older epoch":     {func(m *raft.FetchSnapshotRequest) { m.Epoch-- }, raft.FencedLeaderEpoch, 0},
		"a later epoch":      {func(m *raft.FetchSnapshotRequest) { m.Epoch++ }, raft.UnknownLeaderEpoch, 0},
		"another cluster":    {func(m *raft.FetchSnapshotRequest) { m.ClusterID = "x" }, raft.InconsistentClusterID, 0},
		"no room for a byte": {func(m *raft.FetchSnapshotRequest) { m.MaxBytes = 0 }, raft.InvalidRequest, 0},
		"an observer":        {func(m *raft.FetchSnapshotRequest) { m.Replica = raft.Nobody }, raft.None, 4},
	} {
		if r := ask(c.change); r.Code != c.code || len(r.Bytes) != c.bytes || r.Current.Leader != 1 || c.code == raft.None && r.Size != 10 {
			t.Errorf("%s: %+v, want code %d and %d bytes", name, r, c.code, c.bytes)
		}
	}
	f := newPeer(t, config(2), trimmed(10, 12), raft.VoteState{Epoch: 5, Leader: 1, Voted: raft.Nobody}, votersOf(1, 2, 3))
	r := f.ask(1, &raft.FetchSnapshotRequest{ClusterID: "c", Replica: keyOf(3), Epoch: 5, Snapshot: id, MaxBytes: 4}).(*raft.FetchSnapshotResponse)
	if r.Code != raft.NotLeaderOrFollower || r.Current.Leader != 1 {
		t.Fatalf("a follower answers %+v", r)
	}
}

// A leader whose only other voters download a snapshot is in contact with a majority (KAFKA-15489).
func TestDownloadCountsAsContactForCheckQuorum(t *testing.T) {
	p, now := elected(t, config(1), trimmed(10, 12))
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		p.ask(now, &raft.FetchSnapshotRequest{ClusterID: "c", Replica: keyOf(2), Epoch: p.node.Epoch(), Snapshot: raft.SnapshotID{End: 10, Epoch: 3}, MaxBytes: 1})
	}
	if p.node.Role() != raft.Leader {
		t.Fatalf("%s after 10 s of downloads", p.node.Role())
	}
}

// downloading is a follower of node 1 in epoch 5, [0..2) of epoch 1, that was just offered snapshot 9-4 of which it
// asks 4 bytes at a time. next returns what it asks for and lets the test answer it.
func downloading(t *testing.T, cfg raft.Config) (p *peer, next func() raft.Send) {
	t.Helper()
	cfg.SnapshotChunkBytes = 4
	p = newPeer(t, cfg, logOf(1, 1), raft.VoteState{Epoch: 5, Leader: 1, Voted: raft.Nobody}, votersOf(1, 2, 3))
	now := ident.Instant(0)
	next = func() raft.Send {
		t.Helper()
		for range 100 {
			if sends := p.take(); len(sends) > 0 {
				return sends[0]
			}
			now = p.node.NextDeadline()
			p.step(now, raft.Tick{})
		}
		t.Fatal("asks for nothing")
		return raft.Send{}
	}
	s := next()
	p.step(1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{
		Current: raft.LeaderInfo{Leader: 1, Epoch: 5}, HighWatermark: 12, Snapshot: &raft.SnapshotID{End: 9, Epoch: 4},
	}})
	return p, next
}

var snapshot94 = []byte{1, 1, 1, 2, 2, 2, 3, 3, 4}

// piece answers a request for a snapshot from these bytes.
func piece(s raft.Send, all []byte) *raft.FetchSnapshotResponse {
	m := s.Msg.(*raft.FetchSnapshotRequest)
	end := min(int64(len(all)), m.Position+int64(m.MaxBytes))
	return &raft.FetchSnapshotResponse{
		Current: raft.LeaderInfo{Leader: 1, Epoch: m.Epoch}, Snapshot: m.Snapshot,
		Size: int64(len(all)), Position: m.Position, Bytes: all[m.Position:end],
	}
}

func TestDownloadThenInstallThenFetchBehindIt(t *testing.T) {
	p, next := downloading(t, config(2))
	if i := p.node.Install(); !i.Active || i.Target != 12 || i.Downloads != 1 || i.Snapshot != (raft.SnapshotID{End: 9, Epoch: 4}) {
		t.Fatalf("%+v", i)
	}
	for want := range 3 {
		s := next()
		if m := s.Msg.(*raft.FetchSnapshotRequest); m.Position != int64(want*4) || m.MaxBytes != 4 || m.Replica != keyOf(2) {
			t.Fatalf("asks for %+v", m)
		}
		p.step(p.node.NextDeadline()-1, raft.Response{From: 1, Correlation: s.Correlation, Msg: piece(s, snapshot94)})
	}
	if i := p.node.Install(); p.installs != 1 || !i.Active || p.node.HighWatermark() != 9 {
		t.Fatalf("%d installs, %+v, high watermark %d", p.installs, i, p.node.HighWatermark())
	}
	s := next()
	if m := s.Msg.(*raft.FetchRequest); m.Offset != 9 || m.LastEpoch != 4 || m.HighWatermark != 9 {
		t.Fatalf("goes on with %+v", m)
	}
	now := p.node.NextDeadline() - 1
	p.step(now, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{
		Current: raft.LeaderInfo{Leader: 1, Epoch: 5}, HighWatermark: 12, Records: []byte{5, 5, 5}}})
	if i := p.node.Install(); i.Active || p.node.HighWatermark() != 12 {
		t.Fatalf("%+v, high watermark %d", i, p.node.HighWatermark())
	}
	// The next start finds it so, and asks nobody for a snapshot again (curvine#1551).
	p.start(now)
	if m := p.take()[0].Msg.(*raft.FetchRequest); m.Offset != 12 || m.LastEpoch != 5 || p.node.HighWatermark() != 9 {
		t.Fatalf("after a restart %+v, high watermark %d", m, p.node.HighWatermark())
	}
}

func TestDownloadThatIsNotWhatItShouldBeStartsOver(t *testing.T) {
	for name, tc := range map[string]struct {
		why   error
		spoil func(*raft.FetchSnapshotResponse)
	}{
		"gone by now":      {raft.ErrDownloadGone, func(m *raft.FetchSnapshotResponse) { m.Code, m.Bytes = raft.SnapshotNotFound, nil }},
		"shrunk":           {raft.ErrDownloadGone, func(m *raft.FetchSnapshotResponse) { m.Code, m.Bytes = raft.PositionOutOfRange, nil }},
		"another snapshot": {raft.ErrDownloadID, func(m *raft.FetchSnapshotResponse) { m.Snapshot.End++ }},
		"another piece":    {raft.ErrDownloadID, func(m *raft.FetchSnapshotResponse) { m.Position++ }},
		"another size":     {raft.ErrDownloadSize, func(m *raft.FetchSnapshotResponse) { m.Size++ }},
		"no size":          {raft.ErrDownloadSize, func(m *raft.FetchSnapshotResponse) { m.Size = 0 }},
		"nothing":          {raft.ErrDownloadSize, func(m *raft.FetchSnapshotResponse) { m.Bytes = nil }},
		"too much":         {raft.ErrDownloadSize, func(m *raft.FetchSnapshotResponse) { m.Bytes = make([]byte, 20) }},
	} {
		t.Run(name, func(t *testing.T) {
			p, next := downloading(t, config(2))
			s := next()
			p.step(p.node.NextDeadline()-1, raft.Response{From: 1, Correlation: s.Correlation, Msg: piece(s, snapshot94)})
			s = next()
			m := piece(s, snapshot94)
			tc.spoil(m)
			p.step(p.node.NextDeadline()-1, raft.Response{From: 1, Correlation: s.Correlation, Msg: m})
			if _, ok := next().Msg.(*raft.FetchRequest); !ok {
				t.Fatal("does not ask for an offer again")
			}
			if i := p.node.Install(); len(p.partial) > 0 || !i.Active || i.Bytes != 0 || p.node.Trouble() == nil || p.node.Role() != raft.Follower {
				t.Fatalf("%d bytes left, %+v, trouble %v, %s", len(p.partial), i, p.node.Trouble(), p.node.Role())
			}
			if i := p.node.Install(); i.Failures != 1 || !errors.Is(i.Failure, tc.why) {
				t.Fatalf("%d failures, %v; want %v", i.Failures, i.Failure, tc.why)
			}
		})
	}
}

// What is downloaded whole and does not verify is thrown away, and asked for again.
func TestRottenSnapshotIsNotInstalled(t *testing.T) {
	p, next := downloading(t, config(2))
	rotten := append([]byte(nil), snapshot94...)
	rotten[8] = 3
	for range 3 {
		s := next()
		p.step(p.node.NextDeadline()-1, raft.Response{From: 1, Correlation: s.Correlation, Msg: piece(s, rotten)})
	}
	if m := next().Msg.(*raft.FetchRequest); p.installs != 0 || m.Offset != 2 || p.log.EndOffset() != 2 {
		t.Fatalf("%d installs, goes on with %+v", p.installs, m)
	}
	if err := p.node.Trouble(); err == nil || !strings.Contains(err.Error(), "not snapshot 9-4") || !errors.Is(p.node.Install().Failure, err) {
		t.Fatalf("trouble %v, %+v", err, p.node.Install())
	}
}

// A slow link: each request that is not answered in time asks for half as much, and what is here is kept.
func TestDownloadOverASlowLinkAsksForLess(t *testing.T) {
	cfg := config(2)
	p, next := downloading(t, cfg)
	s := next()
	p.step(p.node.NextDeadline()-1, raft.Response{From: 1, Correlation: s.Correlation, Msg: piece(s, snapshot94)})
	for range 2 {
		s = next()
		// The leader lives, as its BeginQuorumEpoch shows; only the answers don't come.
		p.step(p.node.NextDeadline()-1, raft.Request{Token: 1, Msg: &raft.BeginQuorumEpochRequest{ClusterID: "c", Voter: keyOf(2), Leader: 1, Epoch: 5}})
	}
	if m := s.Msg.(*raft.FetchSnapshotRequest); m.Position != 4 {
		t.Fatalf("asks for %+v", m)
	}
	big := config(2)
	big.SnapshotChunkBytes = 1 << 20
	q := newPeer(t, big, logOf(1, 1), raft.VoteState{Epoch: 5, Leader: 1, Voted: raft.Nobody}, votersOf(1, 2, 3))
	q.answerAll(1, func(raft.Send) raft.Message {
		return &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 1, Epoch: 5}, Snapshot: &raft.SnapshotID{End: 9, Epoch: 4}}
	})
	now, asked := ident.Instant(1), int32(0)
	for range 40 {
		now = max(now+1, min(q.node.NextDeadline(), now.Add(300*time.Millisecond)))
		q.step(now, raft.Tick{})
		q.step(now, raft.Request{Token: 1, Msg: &raft.BeginQuorumEpochRequest{ClusterID: "c", Voter: keyOf(2), Leader: 1, Epoch: 5}})
		for _, s := range q.take() {
			if m, ok := s.Msg.(*raft.FetchSnapshotRequest); ok {
				asked = m.MaxBytes
			}
		}
	}
	if asked != 16<<10 || q.node.Role() != raft.Follower {
		t.Fatalf("asks for %d bytes at last, as %s", asked, q.node.Role())
	}
}

// When the connection gives up first it is the same; an error that comes at once says nothing of the link. Once answers
// come fast again, whatever they carry, more is asked for again. The log is fetched by the same rule.
func TestFetchAsksForWhatTheLinkCarries(t *testing.T) {
	cfg := config(2)
	cfg.FetchMaxBytes = 1 << 20
	var s raft.Send
	p := newPeer(t, cfg, logOf(1, 1), raft.VoteState{Epoch: 5, Leader: 1, Voted: raft.Nobody}, votersOf(1, 2, 3))
	now := ident.Instant(0)
	// The leader lives: it says so beside the fetches.
	alive := func(until ident.Instant) {
		for ; now < until; now = min(until, now.Add(100*time.Millisecond)) {
			p.step(now, raft.Request{Token: 1, Msg: &raft.BeginQuorumEpochRequest{ClusterID: "c", Voter: keyOf(2), Leader: 1, Epoch: 5}})
		}
	}
	ask := func() int32 {
		t.Helper()
		for range 100 {
			for _, s = range p.take() {
				switch m := s.Msg.(type) {
				case *raft.FetchRequest:
					return m.MaxBytes
				case *raft.FetchSnapshotRequest:
					return m.MaxBytes
				}
			}
			alive(max(now+1, p.node.NextDeadline()))
			p.step(now, raft.Tick{})
		}
		t.Fatal("asks for nothing")
		return 0
	}
	answer := func(after time.Duration, m raft.Message, err error) {
		t.Helper()
		alive(now.Add(after))
		p.step(now, raft.Response{From: 1, Correlation: s.Correlation, Msg: m, Err: err})
	}
	expect := func(want int32) {
		t.Helper()
		if got := ask(); got != want {
			t.Fatalf("asks for %d bytes, want %d", got, want)
		}
	}
	slow, empty := errors.New("no answer in time"), &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 1, Epoch: 5}, HighWatermark: 2}
	const most = raft.DefaultFetchMaxWait + raft.DefaultRequestTimeout - 1
	expect(1 << 20)
	answer(time.Millisecond, nil, errors.New("connection reset"))
	expect(1 << 20)
	answer(most, nil, slow)
	expect(1 << 19)
	answer(most, nil, slow)
	expect(1 << 18)
	answer(time.Millisecond, empty, nil) // which says nothing of the link
	expect(1 << 18)
	long := func() *raft.FetchResponse {
		return &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 1, Epoch: 5}, HighWatermark: 2, Records: bytes.Repeat([]byte{5}, 1<<18)}
	}
	answer(time.Millisecond, long(), nil)
	expect(1 << 19)
	answer(most, long(), nil)
	expect(1 << 19)
	answer(most, nil, slow)
	expect(1 << 18)
	offer := *empty
	offer.Snapshot = &raft.SnapshotID{End: 1 << 20, Epoch: 5}
	answer(most, &offer, nil)
	expect(1 << 18)
	if _, ok := s.Msg.(*raft.FetchSnapshotRequest); !ok {
		t.Fatalf("asks with a %T, want the snapshot", s.Msg)
	}
	answer(most, nil, slow)
	expect(1 << 17)
}

// An offer, or a download, of another leader or epoch says nothing (etcd#1763, redpanda#19964).
func TestDownloadIsNotContinuedElsewhere(t *testing.T) {
	for name, news := range map[string]raft.Message{
		"another leader":                   &raft.BeginQuorumEpochRequest{ClusterID: "c", Voter: keyOf(2), Leader: 3, Epoch: 6},
		"the same leader in another epoch": &raft.BeginQuorumEpochRequest{ClusterID: "c", Voter: keyOf(2), Leader: 1, Epoch: 7},
	} {
		t.Run(name, func(t *testing.T) {
			p, next := downloading(t, config(2))
			s := next()
			p.step(p.node.NextDeadline()-1, raft.Response{From: 1, Correlation: s.Correlation, Msg: piece(s, snapshot94)})
			late := next()
			p.ask(p.node.NextDeadline()-1, news)
			p.step(p.node.NextDeadline()-1, raft.Response{From: 1, Correlation: late.Correlation, Msg: piece(late, snapshot94)})
			s = next()
			if m, ok := s.Msg.(*raft.FetchRequest); !ok || m.Offset != 2 || len(p.partial) > 0 {
				t.Fatalf("goes on with %+v, %d bytes left", s.Msg, len(p.partial))
			}
			if i := p.node.Install(); !i.Active || i.Downloads != 1 || i.Failures != 1 || !errors.Is(i.Failure, raft.ErrDownloadLeader) {
				t.Fatalf("%+v", i)
			}
		})
	}
}

// A snapshot that holds less than this node knows to be committed is an old one (E-99 of many systems).
func TestStaleOfferIsRefused(t *testing.T) {
	p, s := follower(t, logOf(1, 1, 1))
	p.step(1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: leader1, HighWatermark: 3}})
	p.step(p.node.NextDeadline(), raft.Tick{})
	s = p.take()[0]
	p.step(p.node.NextDeadline()-1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{
		Current: leader1, HighWatermark: 3, Snapshot: &raft.SnapshotID{End: 3, Epoch: 1}}})
	if i := p.node.Install(); i.Active || p.node.Trouble() == nil {
		t.Fatalf("%+v, trouble %v", i, p.node.Trouble())
	}
	for _, id := range []raft.SnapshotID{{End: 0, Epoch: 0}, {End: 9, Epoch: -1}, {End: -1, Epoch: 1}} {
		p, s := follower(t, logOf(1))
		p.step(1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: leader1, Snapshot: &id}})
		if i := p.node.Install(); i.Active || p.node.Trouble() == nil {
			t.Fatalf("%s: %+v, trouble %v", id, i, p.node.Trouble())
		}
	}
}

// An installing node votes, and does not stand before the others when its leader says goodbye; it stands like anybody
// when the leader is lost for good (seaweedfs#6067: no state without a timer).
func TestInstallingNodeVotesAndStandsLate(t *testing.T) {
	cfg := config(2)
	p, next := downloading(t, cfg)
	next()
	now := p.node.NextDeadline() - 1
	p.ask(now, &raft.EndQuorumEpochRequest{ClusterID: "c", Leader: 1, Epoch: 5, Successors: []raft.ReplicaKey{keyOf(2), keyOf(3)}})
	p.step(now+1, raft.Tick{})
	if p.node.Role() != raft.Follower {
		t.Fatalf("%s at once: it would stand with half a log", p.node.Role())
	}
	r := p.ask(now+2, &raft.VoteRequest{ClusterID: "c", Voter: keyOf(2), Candidate: keyOf(3), Epoch: 6, LastEpoch: 5, EndOffset: 12}).(*raft.VoteResponse)
	if !r.Granted {
		t.Fatalf("no vote for a candidate that has everything: %+v", r)
	}
	limit := now.Add(5 * time.Second)
	for p.node.Role() != raft.Prospective && now < limit {
		now = max(now+3, p.node.NextDeadline())
		p.step(now, raft.Tick{})
	}
	if p.node.Role() != raft.Prospective {
		t.Fatalf("%s 5 s after the leader was lost", p.node.Role())
	}
}

// A leader elected with a log that is nothing but a snapshot says so in its votes, and leads from there.
func TestCandidateBehindASnapshotSaysItsEpoch(t *testing.T) {
	p := newPeer(t, config(1), trimmed(10, 10), raft.NoVote(), votersOf(1, 2, 3))
	for p.node.Role() != raft.Prospective {
		p.take()
		p.step(p.node.NextDeadline(), raft.Tick{})
	}
	m, ok := p.take()[0].Msg.(*raft.VoteRequest)
	if !ok || m.LastEpoch != 3 || m.EndOffset != 10 || p.node.Epoch() != 3 {
		t.Fatalf("%+v in epoch %d", m, p.node.Epoch())
	}
	elect(t, p, p.node.NextDeadline())
	if p.log.String() != "(10) [10..11)e4" {
		t.Fatalf("log %s: the voters of the snapshot need not be written again", p.log)
	}
}

func TestRefusedChunkStartsOver(t *testing.T) {
	var out raft.Effects
	n, err := raft.New(config(2), logOf(1), raft.VoteState{Epoch: 5, Leader: 1, Voted: raft.Nobody}, []raft.VotersAt{{Offset: raft.BootstrapOffset, Voters: votersOf(1, 2, 3)}})
	if err != nil {
		t.Fatal(err)
	}
	n.Step(0, raft.Start{}, &out)
	answer := func(now ident.Instant, m raft.Message) {
		c := out.Sends[len(out.Sends)-1].Correlation
		out.Reset()
		n.Step(now, raft.Response{From: 1, Correlation: c, Msg: m}, &out)
	}
	id := raft.SnapshotID{End: 9, Epoch: 4}
	answer(1, &raft.FetchResponse{Current: leader1, Snapshot: &id})
	answer(2, &raft.FetchSnapshotResponse{Current: leader1, Snapshot: id, Size: 9, Bytes: []byte{1}})
	if out.Chunk == nil || len(out.Sends) > 0 {
		t.Fatal("asks for more before this piece is stored")
	}
	out.Reset()
	n.Step(3, raft.SnapshotRefused{Snapshot: id, Err: errors.New("spoilt")}, &out)
	if !out.DropSnapshot || n.Trouble() == nil || n.NextDeadline() == ident.Never {
		t.Fatalf("drop %v, trouble %v, deadline %d", out.DropSnapshot, n.Trouble(), n.NextDeadline())
	}
}
