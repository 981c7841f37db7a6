package sim

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

var (
	quorumSeed   = flag.Uint64("quorum.seed", 0, "play only this seed of the quorum simulation, with its trace")
	quorumSeeds  = flag.Uint64("quorum.seeds", 300, "how many seeds of the quorum simulation are played")
	quorumFirst  = flag.Uint64("quorum.first", 1, "the first of them")
	quorumMutant = flag.String("quorum.mutant", "", "with -quorum.seed: the rule that is broken")
)

func replayQuorum(seed uint64, mutant raft.Mutant) string {
	return fmt.Sprintf("go test ./pkg/sim -run 'TestQuorumHolds$' -v -quorum.seed=%d -quorum.mutant='%s'", seed, mutant)
}

// TestQuorumHolds plays random schedules of faults; see RunQuorum.
func TestQuorumHolds(t *testing.T) {
	if *quorumSeed != 0 {
		r := RunQuorum(QuorumOptions{Seed: *quorumSeed, Mutant: raft.Mutant(*quorumMutant), Verbose: true})
		os.Stdout.WriteString(r.Trace)
		if r.Violation != "" {
			t.Fatal(r.Violation)
		}
		t.Logf("%d steps, hash %016x, %+v", r.Steps, r.Hash, r.Counts)
		return
	}
	var sum QuorumCounts
	steps := 0
	for seed := *quorumFirst; seed < *quorumFirst+*quorumSeeds; seed++ {
		r := RunQuorum(QuorumOptions{Seed: seed})
		if r.Violation != "" {
			t.Fatalf("seed %d: %s\nreplay: %s", seed, r.Violation, replayQuorum(seed, ""))
		}
		steps += r.Steps
		sum.add(r.Counts)
	}
	t.Logf("%d seeds, %d steps: %+v", *quorumSeeds, steps, sum)
}

func TestQuorumRunRepeatsItself(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, b := RunQuorum(QuorumOptions{Seed: seed}), RunQuorum(QuorumOptions{Seed: seed, Verbose: true})
		if a.Hash != b.Hash || a.Steps != b.Steps {
			t.Fatalf("seed %d: hash %016x in %d steps, then %016x in %d", seed, a.Hash, a.Steps, b.Hash, b.Steps)
		}
	}
}
