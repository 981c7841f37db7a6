package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

func TestEventsHappenInOrderOfTimeThenOfCreation(t *testing.T) {
	w := NewWorld(1)
	var got []string
	note := func(s string) func() { return func() { got = append(got, s) } }
	w.At(20, note("c"))
	w.At(10, note("a"))
	w.At(10, note("b"))
	stopped := w.At(15, note("never"))
	w.At(ident.Never, note("never"))
	if !stopped.Stop() || stopped.Stop() {
		t.Fatal("Stop: want true, then false")
	}
	w.At(5, func() { w.At(1, note("past")) })
	w.Run(19)
	if want := []string{"past", "a", "b"}; !slices.Equal(got, want) || w.Now() != 19 {
		t.Fatalf("at %d happened %v, want %v at 19", w.Now(), got, want)
	}
	if !w.Step() || w.Step() || w.Now() != 20 {
		t.Fatalf("want one more event, at 20; now %d", w.Now())
	}
}

// exchange sends numbered messages over a faulty network and returns what arrived, in order.
func exchange(seed uint64, faults Faults, before func(*Network)) ([]int, *World) {
	w := NewWorld(seed)
	w.Verbose = true
	n := NewNetwork(w, faults)
	if before != nil {
		before(n)
	}
	var got []int
	for i := range 300 {
		w.After(time.Duration(i)*100*time.Microsecond, func() {
			n.Send(1, 2, func() { got = append(got, i); w.Trace("got %d", i) })
		})
	}
	for w.Step() {
	}
	return got, w
}

func TestCalmNetworkKeepsAllInOrder(t *testing.T) {
	got, w := exchange(3, Calm, nil)
	if len(got) != 300 || !slices.IsSorted(got) {
		t.Fatalf("%d arrived, sorted %v; want 300 in order", len(got), slices.IsSorted(got))
	}
	if strings.Count(w.Text(), "\n") != 300 {
		t.Fatalf("trace has %d lines, want 300", strings.Count(w.Text(), "\n"))
	}
}

func TestFaultyNetworkLosesDoublesAndReorders(t *testing.T) {
	f := Faults{DelayMin: time.Millisecond, DelayMax: 2 * time.Millisecond, Loss: 100, Duplicate: 100, Reorder: 100}
	got, a := exchange(4, f, nil)
	_, b := exchange(4, f, nil)
	_, c := exchange(5, f, nil)
	distinct := slices.Compact(slices.Sorted(slices.Values(got)))
	if len(distinct) == 300 || len(distinct) == len(got) || slices.IsSorted(got) {
		t.Fatalf("%d arrived, %d distinct, sorted %v; want losses, doubles and disorder", len(got), len(distinct), slices.IsSorted(got))
	}
	if a.Hash() != b.Hash() || a.Hash() == c.Hash() {
		t.Fatalf("hashes %x %x of one seed, %x of another", a.Hash(), b.Hash(), c.Hash())
	}
}

func TestCutIsOneWayAndLosesWhatIsUnderWay(t *testing.T) {
	w := NewWorld(1)
	n := NewNetwork(w, Calm)
	forth, back := 0, 0
	n.Send(1, 2, func() { forth++ })
	n.Cut(1, 2)
	n.Send(1, 2, func() { forth++ })
	n.Send(2, 1, func() { back++ })
	w.Run(w.Now().Add(time.Second))
	if forth != 0 || back != 1 {
		t.Fatalf("%d arrived over the cut link, %d the other way; want 0 and 1", forth, back)
	}
	n.Heal()
	n.Send(1, 2, func() { forth++ })
	w.Run(w.Now().Add(time.Second))
	if forth != 1 {
		t.Fatalf("after healing %d arrived, want 1", forth)
	}
}
