package testscale

import "testing"

func TestFactorIsOneUnlessAPositiveNumberIsSet(t *testing.T) {
	for in, want := range map[string]float64{"": 1, "3": 3, "0.5": 0.5, "-2": 1, "0": 1, "fast": 1} {
		if got := parse(in); got != want {
			t.Errorf("parse(%q) = %v, want %v", in, got, want)
		}
	}
}
