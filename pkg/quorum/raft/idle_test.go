package raft_test

import (
	"errors"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// KAFKA-17751, KAFKA-19605: a loop that sleeps until NextDeadline turns seldom, in each role and whatever the others do
// or don't do. (The harness also checks after every step that the deadline has not passed.)
func TestIdleNodeWakesSeldomInEachRole(t *testing.T) {
	const idle = 20 * time.Second
	// A peer that refuses is asked again after the back-off: one wake for the question, one for the refusal.
	const refusals = 2 * int(time.Second/raft.DefaultRetryBackoff)
	refused := errors.New("connection refused")
	current := raft.LeaderInfo{Leader: 2, Epoch: 5}
	following := raft.VoteState{Epoch: 5, Leader: 2, Voted: raft.Nobody}
	// answers answers a fetch as a leader without news does, when its wait is over; others at once.
	answers := func(m raft.Message) (raft.Message, time.Duration) {
		switch m := m.(type) {
		case *raft.FetchRequest:
			return &raft.FetchResponse{Current: current, HighWatermark: 1}, m.MaxWait
		case *raft.UpdateVoterRequest:
			return &raft.ChangeVotersResponse{Current: current}, time.Millisecond
		}
		return nil, 0
	}
	silent := func(raft.Message) (raft.Message, time.Duration) { return nil, 0 }
	for _, c := range []struct {
		name   string
		id     ident.NodeID
		vote   raft.VoteState
		voters raft.VoterSet
		answer func(raft.Message) (raft.Message, time.Duration) // nil message: none comes
		refuse bool                                             // else: an error at once
		roles  []raft.Role                                      // all that it may be in
		limit  int                                              // wakes in a second
	}{
		{"sole leader", 1, raft.NoVote(), votersOf(1), silent, false, []raft.Role{raft.Leader}, 0},
		{"follower of an idle leader", 1, following, votersOf(1, 2, 3), answers, false, []raft.Role{raft.Follower}, 12},
		{"observer of an idle leader", 9, following, votersOf(1, 2, 3), answers, false, []raft.Role{raft.Follower}, 12},
		{"voter whose peers hang", 1, following, votersOf(1, 2, 3), silent, false, []raft.Role{raft.Follower, raft.Prospective}, 12},
		{"voter whose peers are down", 1, following, votersOf(1, 2, 3), silent, true, []raft.Role{raft.Follower, raft.Prospective}, 2 * refusals},
		{"voter that knows nobody, peers hang", 1, raft.NoVote(), votersOf(1, 2, 3), silent, false, []raft.Role{raft.Unattached, raft.Prospective}, 12},
		{"voter that knows nobody, peers down", 1, raft.NoVote(), votersOf(1, 2, 3), silent, true, []raft.Role{raft.Unattached, raft.Prospective}, 2 * refusals},
		{"candidate after a restart, peers hang", 1, raft.VoteState{Epoch: 5, Leader: -1, Voted: keyOf(1)}, votersOf(1, 2, 3), silent, false,
			[]raft.Role{raft.Candidate, raft.Prospective, raft.Unattached}, 12},
		{"resigned leader, peers hang", 1, raft.VoteState{Epoch: 5, Leader: 1, Voted: keyOf(1)}, votersOf(1, 2, 3), silent, false,
			[]raft.Role{raft.Resigned, raft.Prospective, raft.Unattached}, 12},
		{"observer whose voters hang", 9, following, votersOf(1, 2, 3), silent, false, []raft.Role{raft.Follower}, 12},
		{"observer whose voters are down", 9, following, votersOf(1, 2, 3), silent, true, []raft.Role{raft.Follower}, refusals},
		{"observer that knows nobody, voters down", 9, raft.NoVote(), votersOf(1, 2, 3), silent, true, []raft.Role{raft.Unattached}, refusals},
		{"observer without voters", 9, raft.NoVote(), nil, silent, false, []raft.Role{raft.Unattached}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(c.id)
			cfg.Endpoints = []raft.Endpoint{{Name: "CONTROLLER", Host: "elsewhere", Port: 1}} // the voter set wants to be told
			p := newPeer(t, cfg, logOf(1), c.vote, c.voters)
			type answer struct {
				at ident.Instant
				ev raft.Response
			}
			var coming []answer
			now, wakes := ident.Instant(0), 0
			for {
				for _, s := range p.take() {
					m, after := c.answer(s.Msg)
					switch {
					case m != nil:
						coming = append(coming, answer{now.Add(max(after, 1)), raft.Response{From: s.To, Correlation: s.Correlation, Msg: m}})
					case c.refuse:
						coming = append(coming, answer{now + 1, raft.Response{From: s.To, Correlation: s.Correlation, Err: refused}})
					}
				}
				next, which := p.node.NextDeadline(), -1
				for i, a := range coming {
					if a.at <= next {
						next, which = a.at, i
					}
				}
				if next > ident.Instant(idle) {
					break
				}
				now = next
				if which < 0 {
					p.step(now, raft.Tick{})
				} else {
					ev := coming[which].ev
					coming = append(coming[:which], coming[which+1:]...)
					p.step(now, ev)
				}
				wakes++
				ok := false
				for _, r := range c.roles {
					ok = ok || r == p.node.Role()
				}
				if !ok {
					t.Fatalf("is %s", p.node.Role())
				}
			}
			if limit := c.limit * int(idle/time.Second); wakes > limit {
				t.Fatalf("%d wakes in %v, limit %d", wakes, idle, limit)
			}
			t.Logf("%d wakes in %v", wakes, idle)
		})
	}
	t.Run("leader of idle followers", func(t *testing.T) {
		p, now := elected(t, config(1), logOf())
		end, wakes := now.Add(idle), 0
		fetchAt := map[ident.NodeID]ident.Instant{2: now, 3: now + 1}
		for now < end {
			next := p.node.NextDeadline()
			for _, at := range fetchAt {
				next = min(next, at)
			}
			now = max(now, next)
			asked := false
			for id, at := range fetchAt {
				if at > now {
					continue
				}
				asked = true
				m := fetch(id, 1, p.log.EndOffset(), 1)
				m.HighWatermark, m.MaxWait = p.node.HighWatermark(), raft.DefaultFetchMaxWait
				p.replies = nil
				p.step(now, raft.Request{Token: uint64(id), Msg: m})
				fetchAt[id] = ident.Never
			}
			if !asked {
				p.step(now, raft.Tick{})
			}
			for id := range fetchAt {
				if p.replyTo(uint64(id)) != nil {
					fetchAt[id] = now + 1000
				}
			}
			p.replies = nil
			wakes++
		}
		if limit := 30 * int(idle/time.Second); wakes > limit || p.node.Role() != raft.Leader || p.node.Epoch() != 1 {
			t.Fatalf("%d wakes in %v as %s of epoch %d, limit %d", wakes, idle, p.node.Role(), p.node.Epoch(), limit)
		}
		t.Logf("%d wakes in %v", wakes, idle)
	})
}
