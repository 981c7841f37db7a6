package sim

import "testing"

// TestFlushAlwaysSurvivesAnyPowerLoss: any number of machines lose what they have not flushed, one by one and all at
// once, and nothing that was acknowledged, committed or read is lost by it.
func TestFlushAlwaysSurvivesAnyPowerLoss(t *testing.T) { holdsOn(t, FlushAlways) }

// TestFlushAlwaysIsSwitchedWhileTheTopicIsUsed: what is committed once all nodes go by it survives the same.
func TestFlushAlwaysIsSwitchedWhileTheTopicIsUsed(t *testing.T) { holdsOn(t, FlushSwitched) }

func holdsOn(t *testing.T, disk DiskMode) {
	t.Helper()
	if *isrSeed != 0 {
		return // one seed is played by TestISRHolds
	}
	var sum ISRCounts
	seeds := max(1, *isrSeeds/3)
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		r := RunISR(ISROptions{Seed: seed, Disk: disk})
		if r.Violation != "" {
			t.Fatalf("seed %d: %s\nreplay: %s", seed, r.Violation, replayISR(seed, 0, disk))
		}
		sum.add(r.Counts)
	}
	if sum.Losses == 0 || sum.Acked == 0 || seeds >= 100 && sum.Blackouts == 0 || disk == FlushSwitched && sum.Switches == 0 {
		t.Fatalf("the runs prove nothing: %+v", sum)
	}
	t.Logf("%d seeds: %+v", seeds, sum)
}
