package sim

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var (
	isrSeeds = flag.Int("isr.seeds", 300, "how many schedules of the ISR simulation are played")
	isrFirst = flag.Uint64("isr.first", 0, "the seed of the first of them; 0: a fresh one")
)

// firstISR is the seed to begin with.
func firstISR(t *testing.T) uint64 {
	t.Helper()
	first := *isrFirst
	if first == 0 {
		first = rand.Uint64N(1 << 40)
	}
	t.Logf("seeds from %d on", first)
	return first
}

// TestISRHolds plays random schedules of faults with fresh seeds; see RunISR.
func TestISRHolds(t *testing.T) {
	var sum ISRCounts
	modes := map[DiskMode]int{}
	steps, first := 0, firstISR(t)
	for seed := first; seed < first+uint64(*isrSeeds); seed++ {
		r := RunISR(ISROptions{Seed: seed})
		if r.Violation != "" {
			t.Fatalf("seed %d (%s): %s\nreplay: %s", seed, r.Disk, r.Violation, ReplayISR(ISROptions{Seed: seed}))
		}
		modes[r.Disk]++
		steps += r.Steps
		sum.Add(r.Counts)
	}
	t.Logf("%d seeds (%v), %d steps: %+v", *isrSeeds, modes, steps, sum)
}
