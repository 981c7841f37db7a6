package raft_test

import (
	"slices"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// camunda#14367: the last piece, or the offer, of a snapshot that is installed already comes again. It is neither
// installed twice nor taken for an error that ends anything.
func TestSnapshotThatComesTwiceIsInstalledOnce(t *testing.T) {
	p, next := downloading(t, config(2))
	var late raft.Response
	for range 3 {
		s := next()
		late = raft.Response{From: 1, Correlation: s.Correlation, Msg: piece(s, snapshot94)}
		p.step(p.node.NextDeadline()-1, late)
	}
	s := next()
	p.step(p.node.NextDeadline()-1, late)
	if p.installs != 1 || len(p.partial) > 0 {
		t.Fatalf("%d installs, %d bytes left", p.installs, len(p.partial))
	}
	drops := p.drops
	offer := &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 1, Epoch: 5}, HighWatermark: 12, Snapshot: &raft.SnapshotID{End: 9, Epoch: 4}}
	p.step(p.node.NextDeadline()-1, raft.Response{From: 1, Correlation: s.Correlation, Msg: offer})
	s = next()
	if m, ok := s.Msg.(*raft.FetchRequest); !ok || m.Offset != 9 || p.installs != 1 || p.drops != drops || p.node.Role() != raft.Follower {
		t.Fatalf("goes on with %+v as %s, %d installs", s.Msg, p.node.Role(), p.installs)
	}
	p.step(p.node.NextDeadline()-1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{
		Current: raft.LeaderInfo{Leader: 1, Epoch: 5}, HighWatermark: 12, Records: []byte{5, 5, 5}}})
	if i := p.node.Install(); i.Active || p.node.HighWatermark() != 12 || p.log.StartOffset() != 9 {
		t.Fatalf("%+v, high watermark %d, log %s", i, p.node.HighWatermark(), p.log)
	}
}

// hashicorp/raft#212: a link that is slow, and breaks down again and again, ends no download and begins no election:
// what is here is kept, and contact while it comes is contact with the leader.
func TestDownloadOverALinkThatBreaksDownIsFinishedWithoutAnElection(t *testing.T) {
	const (
		size      = 2 << 20
		chunk     = 16 << 10
		bytesRate = 160 << 10 // a second: 0.1 s a piece, 13 s in all
		works     = 2 * time.Second
		broken    = 500 * time.Millisecond
	)
	all := slices.Repeat([]byte{1}, size)
	current := raft.LeaderInfo{Leader: 1, Epoch: 5}
	cfg := config(2)
	cfg.SnapshotChunkBytes = chunk
	p := newPeer(t, cfg, logOf(), raft.VoteState{Epoch: 5, Leader: 1, Voted: raft.Nobody}, votersOf(1, 2, 3))
	up := func(at ident.Instant) bool { return time.Duration(at)%(works+broken) < works }
	type answer struct {
		at ident.Instant
		ev raft.Event
	}
	var coming []answer
	begin, breaks := ident.Instant(0), 0
	for now := ident.Instant(0); p.installs == 0; {
		if now > ident.Instant(time.Minute) {
			t.Fatalf("not finished: %+v, trouble %v", p.node.Install(), p.node.Trouble())
		}
		for _, s := range p.take() {
			switch m := s.Msg.(type) {
			case *raft.FetchRequest:
				coming = append(coming, answer{now + 1, raft.Response{From: 1, Correlation: s.Correlation, Msg: &raft.FetchResponse{
					Current: current, HighWatermark: size, Snapshot: &raft.SnapshotID{End: size, Epoch: 1}}}})
			case *raft.FetchSnapshotRequest:
				r := piece(s, all)
				took := time.Duration(len(r.Bytes)) * time.Second / bytesRate
				coming = append(coming, answer{now.Add(took), raft.Response{From: 1, Correlation: s.Correlation, Msg: r}})
				if !up(now) || !up(now.Add(took)) {
					coming = coming[:len(coming)-1]
					breaks++
				}
			case *raft.VoteRequest:
				if !m.PreVote {
					t.Fatalf("stands at %v", time.Duration(now))
				}
				// The other voter hears its leader.
				coming = append(coming, answer{now + 1, raft.Response{From: s.To, Correlation: s.Correlation, Msg: &raft.VoteResponse{Current: current}}})
			}
		}
		next, which := min(p.node.NextDeadline(), begin), -1
		for i, a := range coming {
			if a.at <= next {
				next, which = a.at, i
			}
		}
		now = max(now, next)
		switch {
		case which >= 0:
			ev := coming[which].ev
			coming = slices.Delete(coming, which, which+1)
			p.step(now, ev)
		case now >= begin: // the leader calls a voter that does not fetch
			if begin = now.Add(raft.DefaultFetchTimeout / 2); up(now) {
				p.ask(now, &raft.BeginQuorumEpochRequest{ClusterID: "c", Voter: keyOf(2), Leader: 1, Epoch: 5})
			}
		default:
			p.step(now, raft.Tick{})
		}
	}
	if i := p.node.Install(); i.Downloads != 1 || p.node.Epoch() != 5 || p.node.Role() != raft.Follower || breaks < 4 {
		t.Fatalf("%+v, %s of epoch %d, %d pieces lost", i, p.node.Role(), p.node.Epoch(), breaks)
	}
}
