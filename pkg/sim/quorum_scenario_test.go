package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// calmQuorum is a quorum without faults that has a leader and a stream of proposals.
func calmQuorum(t *testing.T, opts QuorumOptions) *quorumSim {
	t.Helper()
	s := newQuorumSim(opts)
	s.populate()
	for _, n := range s.nodes {
		n.boot()
	}
	s.keepProposing()
	s.until(t, 10*time.Second, "a leader whose records everybody has", func() bool {
		for _, n := range s.nodes {
			if n.q.HighWatermark() < 5 {
				return false
			}
		}
		return s.leading(s.w.Dice) != nil
	})
	return s
}

// until runs until done, and fails when that takes longer than limit.
func (s *quorumSim) until(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	ok := s.w.RunUntil(s.w.Now().Add(limit), func() bool { return s.check.violation != "" || done() })
	if s.check.violation != "" {
		t.Fatalf("seed %d: %s", s.opts.Seed, s.check.violation)
	}
	if !ok {
		t.Fatalf("seed %d: not within %v: %s; %s", s.opts.Seed, limit, what, s.state())
	}
}

func (s *quorumSim) run(t *testing.T, d time.Duration) {
	t.Helper()
	s.w.RunUntil(s.w.Now().Add(d), func() bool { return s.check.violation != "" })
	if s.check.violation != "" {
		t.Fatalf("seed %d: %s", s.opts.Seed, s.check.violation)
	}
}

func (s *quorumSim) followers(l *quorumNode) []*quorumNode {
	return slices.DeleteFunc(slices.Clone(s.nodes[:len(s.voters)]), func(n *quorumNode) bool { return n == l })
}

// unavailable kills the leader and returns how long it takes until a record is committed again.
func (s *quorumSim) unavailable(t *testing.T, hint bool) time.Duration {
	t.Helper()
	l := s.leading(s.w.Dice)
	start, committed := s.w.Now(), s.check.end()
	l.kill(s.w.Dice, true)
	if hint {
		for _, n := range s.followers(l) {
			n.do("unreachable", func(now ident.Instant) error { return n.q.Unreachable(now, l.id) })
		}
	}
	s.until(t, 10*time.Second, "a record committed by a new leader", func() bool {
		// A proposal, not only the start of the epoch.
		last := len(s.check.committed) - 1
		return s.check.end() > committed+1 && s.check.committedIn[last] > l.epoch
	})
	return s.w.Now().Sub(start)
}

// From the death of the leader to metadata that can be written: under 1.5 s in the middle (DESIGN, section 5).
func TestQuorumLeaderKilledToWritable(t *testing.T) {
	for _, c := range []struct {
		name        string
		hint        bool
		median, max time.Duration
	}{
		{"host gone, nothing refuses a connection", false, 1500 * time.Millisecond, 3 * time.Second},
		{"process killed, connections refused", true, 500 * time.Millisecond, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			var took []time.Duration
			for seed := uint64(1); seed <= 101; seed++ {
				took = append(took, calmQuorum(t, QuorumOptions{Seed: seed, Voters: 3}).unavailable(t, c.hint))
			}
			slices.Sort(took)
			median, longest := took[len(took)/2], took[len(took)-1]
			t.Logf("median %v, 90 %% %v, longest %v", median, took[len(took)*9/10], longest)
			if median > c.median || longest > c.max {
				t.Fatalf("median %v (limit %v), longest %v (limit %v)", median, c.median, longest, c.max)
			}
		})
	}
}

// disturbance cuts followers off, lets them come back, restarts them and pauses them, one after another, and
// returns whether the leader's epoch survived (KIP-996, redpanda#2071).
func disturbance(t *testing.T, opts QuorumOptions) bool {
	t.Helper()
	s := calmQuorum(t, opts)
	l := s.leading(s.w.Dice)
	epoch := l.epoch
	for round := range 3 {
		for _, f := range s.followers(l) {
			switch round {
			case 0:
				s.net.Separate([]ident.NodeID{f.id}, s.others(f))
				s.run(t, 3*time.Second)
				s.net.Heal()
			case 1:
				f.kill(s.w.Dice, true)
				s.run(t, 100*time.Millisecond)
				f.boot()
			case 2:
				f.pause()
				s.run(t, 2*time.Second)
				f.resume()
			}
			s.run(t, time.Second)
			if n := s.leading(s.w.Dice); n != l || l.q.Core().Epoch() != epoch {
				return false
			}
		}
	}
	s.until(t, time.Second, "everybody caught up", func() bool {
		for _, n := range s.nodes {
			if n.q.HighWatermark() < l.q.HighWatermark()-20 {
				return false
			}
		}
		return true
	})
	return true
}

func TestQuorumFollowersThatComeBackDisturbNobody(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		if !disturbance(t, QuorumOptions{Seed: seed, Voters: 3}) {
			t.Fatalf("seed %d: the leader was unseated by a follower that came back", seed)
		}
	}
}

// A leader that resigns hands over within a round trip or two.
func TestQuorumResigningLeaderHandsOverAtOnce(t *testing.T) {
	quick := 0
	const runs = 100
	for seed := uint64(1); seed <= runs; seed++ {
		s := calmQuorum(t, QuorumOptions{Seed: seed, Voters: 3})
		l := s.leading(s.w.Dice)
		epoch := l.epoch
		start := s.w.Now()
		l.do("resign", func(now ident.Instant) error { return l.q.Resign(now, epoch) })
		s.until(t, 5*time.Second, "another leader", func() bool { n := s.leading(s.w.Dice); return n != nil && n.epoch > epoch })
		if s.w.Now().Sub(start) < 100*time.Millisecond && s.leading(s.w.Dice).epoch == epoch+1 {
			quick++
		}
	}
	if quick < runs*95/100 {
		t.Fatalf("%d of %d hand-overs took one election of less than 100 ms (redpanda#2606)", quick, runs)
	}
}

// What is committed reaches idle observers without waiting for the next record or the end of a fetch's wait.
func TestQuorumCommitReachesIdleObserversAtOnce(t *testing.T) {
	s := calmQuorum(t, QuorumOptions{Seed: 1, Voters: 3})
	l := s.leading(s.w.Dice)
	for range 20 {
		// Proposals go on only for this leader's sake; stop them by counting from one that we make.
		s.run(t, 50*time.Millisecond)
		start := s.w.Now()
		l.propose(s.w.Dice)
		end := l.q.EndOffset()
		s.until(t, 100*time.Millisecond, "the record committed everywhere (KAFKA-14145)", func() bool {
			for _, n := range s.nodes {
				if n.q.HighWatermark() < end {
					return false
				}
			}
			return true
		})
		if d := s.w.Now().Sub(start); d > 50*time.Millisecond {
			t.Fatalf("took %v", d)
		}
	}
}

// minority cuts a leader of five and one other off from the rest, and returns whether the leader has resigned
// before all is mended. It must not commit anything meanwhile.
func minority(t *testing.T, opts QuorumOptions) bool {
	t.Helper()
	s := calmQuorum(t, opts)
	l := s.leading(s.w.Dice)
	friend := s.followers(l)[0]
	var rest []ident.NodeID
	for _, n := range s.nodes {
		if n != l && n != friend {
			rest = append(rest, n.id)
		}
	}
	s.net.Separate([]ident.NodeID{l.id, friend.id}, rest)
	s.run(t, 50*time.Millisecond) // what was under way
	before := l.q.HighWatermark()
	s.run(t, 2500*time.Millisecond)
	if l.q.HighWatermark() != before {
		t.Fatalf("seed %d: a leader that reaches one of four committed from %d to %d", opts.Seed, before, l.q.HighWatermark())
	}
	resigned := l.q.Core().Role() != raft.Leader
	s.net.Heal()
	s.until(t, 3*time.Second, "the old leader has what the others committed", func() bool {
		return s.leading(s.w.Dice) != nil && l.q.HighWatermark() > before && friend.q.HighWatermark() > before
	})
	return resigned
}

func TestQuorumMinorityCommitsNothingAndItsLeaderResigns(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		if !minority(t, QuorumOptions{Seed: seed, Voters: 5}) {
			t.Fatalf("seed %d: a leader without majority did not resign (KAFKA-15489)", seed)
		}
	}
}
