package sim

import (
	"testing"

	"github.com/highwater-io/highwater/pkg/replication"
)

// TestISRMutantsAreCaught breaks one rule after another in the shipping core: a simulator that does not notice would
// not notice the mistake either.
func TestISRMutantsAreCaught(t *testing.T) {
	for _, m := range []struct {
		name   string
		mutant replication.Mutant
		within uint64 // seeds
		disk   DiskMode
	}{
		{"minimal ISR for the high watermark", replication.MinimalISR, 1000, ""},
		{"truncation to the high watermark", replication.TruncateToHighWatermark, 1000, ""},
		{"stale broker epoch accepted", replication.StaleBrokerEpochAccepted, 1000, MachineLoss},
		{"joining at the high watermark", replication.ExpandOnHighWatermark, 1000, ""},
		{"unclear answer taken as refusal", replication.UnclearAnswerIsRefusal, 3000, ""},
		{"acknowledged on append", replication.AckOnAppend, 1000, ""},
		{"stale response used", replication.StaleResponseUsed, 1000, ""},
		{"divergence ignored", replication.DivergenceIgnored, 1000, ""},
		{"acknowledged before the flush", replication.AckBeforeFlush, 1000, FlushAlways},
		{"fetching on before the flush", replication.FetchBeforeFlush, 1000, FlushAlways},
		{"switching flush: Always on has no effect", replication.FlushSwitchIgnored, 1000, FlushSwitched},
		{"a damaged log cut while in the ISR", replication.QuarantineInISR, 1000, ""},
		{"a damaged replica that says it is whole", replication.RejoinDamaged, 1000, ""},
		{"known damage passed over in silence", replication.DamageServed, 1000, ""},
		{"latest offset before the epoch start", replication.LatestBeforeEpochStart, 1000, ""},
	} {
		t.Run(m.name, func(t *testing.T) {
			for seed := uint64(1); seed <= m.within; seed++ {
				if r := RunISR(ISROptions{Seed: seed, Mutant: m.mutant, Disk: m.disk}); r.Violation != "" {
					t.Logf("caught by seed %d: %s\nreplay: %s", seed, r.Violation, ReplayISR(ISROptions{Seed: seed, Mutant: m.mutant, Disk: m.disk}))
					return
				}
			}
			t.Errorf("not caught within %d seeds", m.within)
		})
	}
}

func TestISRRunRepeatsItself(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, b := RunISR(ISROptions{Seed: seed}), RunISR(ISROptions{Seed: seed, Verbose: true})
		if a.Hash != b.Hash || a.Steps != b.Steps {
			t.Fatalf("seed %d: hash %016x in %d steps, then %016x in %d", seed, a.Hash, a.Steps, b.Hash, b.Steps)
		}
	}
}
