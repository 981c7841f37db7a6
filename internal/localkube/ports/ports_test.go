package ports

import "testing"

func TestNoPortIsInTwoRanges(t *testing.T) {
	ranges := []Range{Pods, Proxies, ControlPlane}
	for i, r := range ranges {
		if r.First > r.Last || r.Last >= 32768 {
			t.Errorf("range %v: want ports in order, below those of outgoing connections", r)
		}
		for _, other := range ranges[i+1:] {
			if r.First <= other.Last && other.First <= r.Last {
				t.Errorf("ranges %v and %v overlap", r, other)
			}
		}
		for range 1000 {
			if p := r.Draw(); p < r.First || p > r.Last {
				t.Fatalf("range %v gave %d", r, p)
			}
		}
	}
}
