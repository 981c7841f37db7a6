package sim

import (
	"flag"
	"fmt"
	"testing"

	"github.com/highwater-io/highwater/pkg/replication"
)

var (
	isrSeed   = flag.Uint64("isr.seed", 0, "play only this seed of the ISR simulation, with its trace")
	isrSeeds  = flag.Int("isr.seeds", 1000, "how many seeds of the ISR simulation are played")
	isrDisk   = flag.String("isr.disk", "", "with -isr.seed: the disk mode, where it does not follow from the seed")
	isrMutant = flag.Int("isr.mutant", 0, "with -isr.seed: the rule that is broken, by its number in pkg/replication")
)

// replayISR is the command that plays one seed again and prints its trace.
func replayISR(seed uint64, mutant replication.Mutant, disk DiskMode) string {
	return fmt.Sprintf("go test ./pkg/sim -run 'TestISRHolds$' -v -isr.seed=%d -isr.mutant=%d -isr.disk=%s", seed, mutant, disk)
}

// TestISRHolds plays random schedules of faults; see RunISR.
func TestISRHolds(t *testing.T) {
	if *isrSeed != 0 {
		r := RunISR(ISROptions{Seed: *isrSeed, Mutant: replication.Mutant(*isrMutant), Disk: DiskMode(*isrDisk), Verbose: true})
		fmt.Print(r.Trace)
		if r.Violation != "" {
			t.Fatal(r.Violation)
		}
		t.Logf("%d steps, hash %016x, %+v", r.Steps, r.Hash, r.Counts)
		return
	}
	var sum ISRCounts
	modes := map[DiskMode]int{}
	steps := 0
	for seed := uint64(1); seed <= uint64(*isrSeeds); seed++ {
		r := RunISR(ISROptions{Seed: seed})
		if r.Violation != "" {
			t.Fatalf("seed %d (%s): %s\nreplay: %s", seed, r.Disk, r.Violation, replayISR(seed, 0, ""))
		}
		modes[r.Disk]++
		steps += r.Steps
		sum.add(r.Counts)
	}
	t.Logf("%d seeds (%v), %d steps: %+v", *isrSeeds, modes, steps, sum)
}

func (c *ISRCounts) add(o ISRCounts) {
	c.Acked += o.Acked
	c.Read += o.Read
	c.Refused += o.Refused
	c.TimedOut += o.TimedOut
	c.Elections += o.Elections
	c.Shrinks += o.Shrinks
	c.Expands += o.Expands
	c.Refusal += o.Refusal
	c.Kills += o.Kills
	c.Losses += o.Losses
	c.Pauses += o.Pauses
	c.Cuts += o.Cuts
	c.Truncations += o.Truncations
	c.Resets += o.Resets
	c.DiskErrors += o.DiskErrors
	c.Retentions += o.Retentions
	c.MinISRs += o.MinISRs
	c.Blackouts += o.Blackouts
	c.Switches += o.Switches
	c.Rots += o.Rots
	c.Damages += o.Damages
	c.Quarantines += o.Quarantines
	c.Refills += o.Refills
}
