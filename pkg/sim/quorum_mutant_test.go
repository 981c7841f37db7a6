package sim

import "testing"

// TestQuorumMutantsAreCaught tries those that schedules catch within a few dozen; make sim-mutants tries all.
func TestQuorumMutantsAreCaught(t *testing.T) {
	for _, m := range QuorumMutants {
		if m.Within > 100 {
			continue
		}
		t.Run(string(m.Name), func(t *testing.T) {
			for seed := uint64(1); seed <= uint64(m.Within); seed++ {
				if r := RunQuorum(QuorumOptions{Seed: seed, Mutant: m.Name}); r.Violation != "" {
					t.Logf("caught by seed %d: %s", seed, r.Violation)
					return
				}
			}
			t.Errorf("not caught within %d schedules", m.Within)
		})
	}
}
