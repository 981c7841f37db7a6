package sim

import "testing"

// TestFlushAlwaysSurvivesAnyPowerLoss: any number of machines lose what they have not flushed, one by one and all at
// once, and nothing that was acknowledged, committed or read is lost by it.
func TestFlushAlwaysSurvivesAnyPowerLoss(t *testing.T) { holdsOn(t, FlushAlways) }

// TestFlushAlwaysIsSwitchedWhileTheTopicIsUsed: what is committed once all nodes go by it survives the same.
func TestFlushAlwaysIsSwitchedWhileTheTopicIsUsed(t *testing.T) { holdsOn(t, FlushSwitched) }

func holdsOn(t *testing.T, disk DiskMode) {
	t.Helper()
	var sum ISRCounts
	seeds := max(1, *isrSeeds/3)
	first := firstISR(t)
	for seed := first; seed < first+uint64(seeds); seed++ {
		r := RunISR(ISROptions{Seed: seed, Disk: disk})
		if r.Violation != "" {
			t.Fatalf("seed %d: %s\nreplay: %s", seed, r.Violation, ReplayISR(ISROptions{Seed: seed, Disk: disk}))
		}
		sum.Add(r.Counts)
	}
	if sum.Losses == 0 || sum.Acked == 0 || seeds >= 100 && sum.Blackouts == 0 || disk == FlushSwitched && sum.Switches == 0 {
		t.Fatalf("the runs prove nothing: %+v", sum)
	}
	t.Logf("%d seeds: %+v", seeds, sum)
}
