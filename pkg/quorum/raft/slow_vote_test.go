package raft_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// slowVotes are three voters whose disks take long to save a vote. As in a node, nothing is handled meanwhile, and nothing
// leaves before.
type slowVotes struct {
	took  time.Duration
	peers map[ident.NodeID]*peer
	busy  map[ident.NodeID]ident.Instant
	mail  []slowMail
}

type slowMail struct {
	at    ident.Instant
	to    ident.NodeID
	event raft.Event
}

func (s *slowVotes) step(at ident.Instant, id ident.NodeID, ev raft.Event) {
	p := s.peers[id]
	saves := p.saves
	p.replies = nil
	p.step(at, ev)
	done := at.Add(time.Duration(p.saves-saves) * s.took)
	s.busy[id] = done
	for _, r := range p.replies {
		asked := s.asked(r.Token)
		s.mail = append(s.mail, slowMail{done.Add(time.Millisecond), asked.from, raft.Response{From: id, Correlation: asked.correlation, Msg: r.Msg}})
	}
	for _, m := range p.take() {
		s.mail = append(s.mail, slowMail{done.Add(time.Millisecond), m.To, raft.Request{Token: m.Correlation<<8 | uint64(id), Msg: m.Msg}})
	}
}

type slowAsked struct {
	from        ident.NodeID
	correlation uint64
}

func (s *slowVotes) asked(token uint64) slowAsked {
	return slowAsked{ident.NodeID(token & 0xff), token >> 8}
}

// run goes on until all follow one leader, and says when that was; false when the limit came first.
func (s *slowVotes) run(limit ident.Instant) (ident.Instant, bool) {
	for {
		at, id, which := ident.Never, ident.NodeID(0), -1
		for i := range ident.NodeID(3) {
			if due := max(s.peers[i+1].node.NextDeadline(), s.busy[i+1]); due < at {
				at, id = due, i+1
			}
		}
		for i, m := range s.mail {
			if due := max(m.at, s.busy[m.to]); due < at || due == at && which < 0 {
				at, id, which = due, m.to, i
			}
		}
		if at > limit {
			return at, false
		}
		ev := raft.Event(raft.Tick{})
		if which >= 0 {
			ev = s.mail[which].event
			s.mail = append(s.mail[:which], s.mail[which+1:]...)
		}
		s.step(at, id, ev)
		following := 0
		for _, p := range s.peers {
			if p.node.Follows() && p.node.HighWatermark() > 0 {
				following++
			}
		}
		if following == 3 {
			return at, true
		}
	}
}

// An election comes to its end on disks that take longer to save a vote than an election may last. The time of the disks
// is in no time-out of the configuration: who loses by it waits longer the next time.
func TestElectionsEndOnDisksThatAreSlowToSaveAVote(t *testing.T) {
	for _, took := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) {
			var longest ident.Instant
			for seed := range uint64(20) {
				s := &slowVotes{took: took, peers: map[ident.NodeID]*peer{}, busy: map[ident.NodeID]ident.Instant{}}
				for id := range ident.NodeID(3) {
					cfg := config(id + 1)
					cfg.Seed = seed
					s.peers[id+1] = newPeer(t, cfg, logOf(), raft.NoVote(), votersOf(1, 2, 3))
				}
				at, ok := s.run(ident.Instant(60 * time.Second))
				if !ok {
					var roles []string
					for id := range ident.NodeID(3) {
						n := s.peers[id+1].node
						roles = append(roles, fmt.Sprintf("%s of epoch %d", n.Role(), n.Epoch()))
					}
					t.Fatalf("seed %d: nobody leads after a minute: %v", seed, roles)
				}
				longest = max(longest, at)
			}
			t.Logf("at most %v", time.Duration(longest))
		})
	}
}
