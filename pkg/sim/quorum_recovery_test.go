package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// Two of four stand at the very same moment when their leader is gone, and often split the votes. The next round of
// their time-outs parts them (KAFKA-18345: a back-off that grows made it slow).
func TestQuorumTwoCandidatesAtOnceSoonHaveALeader(t *testing.T) {
	var took []time.Duration
	split := 0 // elections that nobody won at first
	for seed := uint64(1); seed <= 100; seed++ {
		s := calmQuorum(t, QuorumOptions{Seed: seed, Voters: 5})
		l := s.leading(s.w.Dice)
		rest := s.followers(l)
		epoch, life, start := l.epoch, l.life, s.w.Now()
		l.kill(s.w.Dice, true)
		for i, n := range slices.Backward(rest) { // the last two first, so that they give their votes
			successor := rest[i%2].key()
			n.receive(l.id, life, 0, &raft.EndQuorumEpochRequest{
				ClusterID: "sim", Leader: l.id, Epoch: epoch, Successors: []raft.ReplicaKey{successor},
			})
			if stands := n.q.Core().Role() == raft.Prospective; stands != (i < 2) {
				t.Fatalf("seed %d: %d is %s", seed, n.id, n.q.Core().Role())
			}
		}
		s.until(t, 10*time.Second, "a leader", func() bool { n := s.leading(s.w.Dice); return n != nil && n.epoch > epoch })
		took = append(took, s.w.Now().Sub(start))
		if s.leading(s.w.Dice).epoch > epoch+1 {
			split++
		}
	}
	slices.Sort(took)
	median, longest := took[50], took[99]
	t.Logf("median %v, longest %v, %d split votes", median, longest, split)
	if split < 10 {
		t.Fatalf("%d split votes of 100", split)
	}
	if median > 3*raft.DefaultElectionTimeout || longest > 8*raft.DefaultElectionTimeout {
		t.Fatalf("median %v, longest %v: an election time-out is %v", median, longest, raft.DefaultElectionTimeout)
	}
}

// redpanda#2071: each follower is restarted twenty times, and the leader does not change.
func TestQuorumFollowersThatRestartAgainAndAgainDisturbNobody(t *testing.T) {
	s := calmQuorum(t, QuorumOptions{Seed: 3, Voters: 3})
	l := s.leading(s.w.Dice)
	epoch := l.epoch
	for round := range 20 {
		for _, f := range s.followers(l) {
			f.kill(s.w.Dice, round%2 == 0)
			s.run(t, 50*time.Millisecond)
			f.boot()
			s.run(t, 300*time.Millisecond)
			if s.leading(s.w.Dice) != l || l.q.Core().Epoch() != epoch {
				t.Fatalf("round %d: the leader of epoch %d is gone", round, epoch)
			}
		}
	}
}

// seaweedfs#6067: everybody is killed while two of five fetch a snapshot. There is a leader soon, and all have
// everything (canonical/raft#199: each of them starts). The installs take longer than a snapshot's interval
// (consul#9609).
func TestQuorumKilledWhileTwoInstallSnapshotsComesBack(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		s := newQuorumSim(QuorumOptions{Seed: seed, Voters: 5})
		s.plan.snapshotBytes, s.plan.snapshotChunk = 600, 64
		s.populate()
		for _, n := range s.nodes {
			n.boot()
		}
		s.keepProposing()
		s.until(t, 10*time.Second, "a leader", func() bool { return s.leading(s.w.Dice) != nil && s.check.end() > 5 })
		away := s.followers(s.leading(s.w.Dice))[:2]
		behind := s.check.end()
		for _, n := range away {
			n.kill(s.w.Dice, true)
			behind = max(behind, n.shadow.end())
		}
		s.until(t, time.Minute, "a log that is trimmed", func() bool {
			l := s.leading(s.w.Dice)
			return l != nil && l.q.Log().StartOffset() > behind
		})
		for _, n := range away {
			for _, o := range s.nodes {
				s.net.Slow(o.id, n.id, 30*time.Millisecond)
			}
			n.boot()
		}
		s.until(t, 10*time.Second, "two that install", func() bool {
			return !slices.ContainsFunc(away, func(n *quorumNode) bool {
				i := n.q.Core().Install()
				return !i.Active || i.Bytes == 0
			})
		})
		for _, n := range s.nodes {
			n.kill(s.w.Dice, true)
		}
		for _, n := range s.nodes {
			n.boot()
		}
		start := s.w.Now()
		s.until(t, 5*time.Second, "a leader after all were killed", func() bool { return s.leading(s.w.Dice) != nil })
		if d := s.w.Now().Sub(start); d > 10*raft.DefaultElectionTimeout {
			t.Fatalf("seed %d: a leader after %v", seed, d)
		}
		goal := s.check.end() + 20
		s.until(t, 30*time.Second, "everybody has what came after", func() bool {
			return !slices.ContainsFunc(s.nodes, func(n *quorumNode) bool { return n.q == nil || n.q.HighWatermark() < goal })
		})
	}
}
