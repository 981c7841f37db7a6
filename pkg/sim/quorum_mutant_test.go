package sim

import (
	"testing"

	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// TestQuorumMutantsAreCaught breaks one rule after another: a simulator that does not notice would not notice the
// mistake either. Those of the core are behind raft.Config.Mutant, those of the disk are made here. Two that only
// cost availability have scenarios of their own (quorum_scenario_test.go).
func TestQuorumMutantsAreCaught(t *testing.T) {
	for _, m := range []struct {
		mutant raft.Mutant
		within uint64 // seeds
	}{
		{raft.MutateCommitOldEpoch, 20},
		{raft.MutateCountUnflushed, 20},
		{raft.MutateFetchUnflushed, 20},
		{raft.MutateVoteAnyLog, 20},
		{raft.MutateVoteTwice, 100},
		{raft.MutateLeadAgain, 20},
		{raft.MutateIgnoreDivergence, 20},
		{raft.MutateMinorityCommit, 20},
		{MutateVoteUnsynced, 20},
		{MutateLogUnsynced, 20},
		{MutateSnapshotUnsynced, 300},
		{raft.MutateInstallKeepsLog, 100},
		{raft.MutateTwoChanges, 300},
	} {
		t.Run(string(m.mutant), func(t *testing.T) {
			for seed := uint64(1); seed <= m.within; seed++ {
				if r := RunQuorum(QuorumOptions{Seed: seed, Mutant: m.mutant}); r.Violation != "" {
					t.Logf("caught by seed %d: %s\nreplay: %s", seed, r.Violation, replayQuorum(seed, m.mutant))
					return
				}
			}
			t.Errorf("not caught within %d seeds", m.within)
		})
	}
}
