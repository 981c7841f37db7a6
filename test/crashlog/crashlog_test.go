package main

import "testing"

// A bounded part of what `make crash-log` plays for minutes.
func TestNoCrashLosesWhatWasFlushedOrServesWhatWasNotWritten(t *testing.T) {
	histories := uint64(8)
	if testing.Short() {
		histories = 2
	}
	st := &stats{}
	for seed := range histories {
		if f := play(seed, nil, st, 0); f != nil {
			t.Fatal(f)
		}
	}
	t.Logf("%d cases\n%s", st.cases.Load(), st)
}
