package sim

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
)

var (
	quorumSeeds = flag.Uint64("quorum.seeds", 100, "how many schedules of the quorum simulation are played")
	quorumFirst = flag.Uint64("quorum.first", 0, "the seed of the first of them; 0: a fresh one")
)

// TestQuorumHolds plays random schedules of faults with fresh seeds; see RunQuorum.
func TestQuorumHolds(t *testing.T) {
	first := *quorumFirst
	if first == 0 {
		first = rand.Uint64N(1 << 40)
	}
	t.Logf("seeds from %d on", first)
	var sum QuorumCounts
	steps := 0
	for seed := first; seed < first+*quorumSeeds; seed++ {
		r := RunQuorum(QuorumOptions{Seed: seed})
		if r.Violation != "" {
			failed(t, QuorumOptions{Seed: seed}, r)
		}
		steps += r.Steps
		sum.Add(r.Counts)
	}
	t.Logf("%d schedules, %d steps: %+v", *quorumSeeds, steps, sum)
}

// failed shows a failing schedule as small as it can be made.
func failed(t *testing.T, opts QuorumOptions, r QuorumReport) {
	t.Helper()
	small, shrunk := ShrinkQuorum(opts, 400)
	t.Fatalf("seed %d: %s\nreplay: %s\nshrunk: %s\nreplay: %s\n%s", opts.Seed, r.Violation, ReplayQuorum(opts), shrunk.Violation, ReplayQuorum(small), shrunk.Trace)
}

func TestQuorumRunRepeatsItself(t *testing.T) {
	first := rand.Uint64N(1 << 40)
	for seed := first; seed < first+10; seed++ {
		a, b := RunQuorum(QuorumOptions{Seed: seed, Visit: func(uint64) {}}), RunQuorum(QuorumOptions{Seed: seed, Verbose: true})
		if a.Hash != b.Hash || a.Steps != b.Steps {
			t.Fatalf("seed %d: hash %016x in %d steps, then %016x in %d", seed, a.Hash, a.Steps, b.Hash, b.Steps)
		}
	}
}

// A failure is shrunk to a schedule that is smaller, fails by the same invariant, and is played again by what the
// command says.
func TestQuorumFailureIsShrunkAndReplayed(t *testing.T) {
	for seed := uint64(1); ; seed++ {
		opts := QuorumOptions{Seed: seed, Mutant: MutateVoteUnsynced}
		r := RunQuorum(opts)
		if r.Violation == "" || len(r.Played) < 20 {
			continue
		}
		small, shrunk := ShrinkQuorum(opts, 300)
		if len(shrunk.Played) >= len(r.Played)/2 || InvariantOf(shrunk.Violation) != InvariantOf(r.Violation) {
			t.Fatalf("seed %d: %d events of %d are left, %q of %q", seed, len(shrunk.Played), len(r.Played), shrunk.Violation, r.Violation)
		}
		if !strings.Contains(shrunk.Trace, "VIOLATION "+shrunk.Violation) {
			t.Fatal("the trace does not end with the violation")
		}
		skip, err := ParseSkip(small.Skip.String())
		if err != nil {
			t.Fatal(err)
		}
		again := RunQuorum(QuorumOptions{Seed: seed, Mutant: MutateVoteUnsynced, Skip: skip})
		if again.Hash != shrunk.Hash || again.Violation != shrunk.Violation {
			t.Fatalf("%s fails by %q, not %q", ReplayQuorum(small), again.Violation, shrunk.Violation)
		}
		t.Logf("%d of %d events are left: %s", len(shrunk.Played), len(r.Played), ReplayQuorum(small))
		return
	}
}

func TestSkipReadsWhatItWrites(t *testing.T) {
	s, err := ParseSkip("noise,f3-5,f9,p0")
	if err != nil || s.String() != "f3-5,f9,p0,noise" {
		t.Fatalf("%q, %v", s, err)
	}
	for _, wrong := range []string{"x1", "f3-1", "f", "nois", "f1-x"} {
		if _, err := ParseSkip(wrong); err == nil {
			t.Errorf("%q is read", wrong)
		}
	}
}
