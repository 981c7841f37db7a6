package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// placementState has brokers with the given racks ("" for none); those of dead are fenced.
func placementState(t fataler, racks []string, dead ...int) *state {
	delta := metadata.NewDelta(metadata.Empty())
	for i, rack := range racks {
		r := &metadata.RegisterBrokerRecord{BrokerID: ident.NodeID(i), Fenced: slices.Contains(dead, i)}
		if rack != "" {
			r.Rack = &rack
		}
		if err := delta.Replay(r); err != nil {
			t.Fatalf("%v", err)
		}
	}
	s := newState(delta.Image(1, 1), nil)
	return &s
}

func TestPlacementSpreadsOverRacksBeforeItRepeatsOne(t *testing.T) {
	for _, c := range []struct {
		racks  []string
		factor int
		want   int // racks that every partition must be on
	}{
		{[]string{"a", "a", "b", "b", "c", "c"}, 3, 3},
		{[]string{"a", "a", "b", "b", "c", "c"}, 2, 2},
		{[]string{"a", "a", "a", "a", "b"}, 3, 2},
		{[]string{"a", "b", "c"}, 3, 3},
		{[]string{"", "", "a"}, 2, 2},
		{[]string{"", "", ""}, 3, 1},
	} {
		s := placementState(t, c.racks)
		ctl, _ := New(testConfig())
		placed, why := ctl.place(s, 50, c.factor)
		if why != nil {
			t.Fatal(why)
		}
		for _, replicas := range placed {
			racks := map[string]bool{}
			for _, id := range replicas {
				racks[c.racks[id]] = true
			}
			if len(racks) != c.want {
				t.Errorf("racks %v, factor %d: %v is on %d racks, want %d", c.racks, c.factor, replicas, len(racks), c.want)
			}
		}
	}
}

func TestPlacementProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 1, 12).Draw(t, "racks")
		var dead []int
		for i := range racks {
			if rapid.IntRange(0, 3).Draw(t, fmt.Sprintf("dead%d", i)) == 0 {
				dead = append(dead, i)
			}
		}
		factor := rapid.IntRange(1, len(racks)+1).Draw(t, "factor")
		n := rapid.IntRange(1, 40).Draw(t, "partitions")
		cfg := testConfig()
		cfg.Random = rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)
		ctl, _ := New(cfg)
		placed, why := ctl.place(placementState(t, racks, dead...), n, factor)
		live := len(racks) - len(dead)
		if live == 0 || factor > len(racks) {
			if why == nil {
				t.Fatalf("placed %d replicas on %d brokers, %d of them alive", factor, len(racks), live)
			}
			return
		}
		if why != nil {
			t.Fatalf("refused: %s", why.message)
		}
		leads, holds := map[ident.NodeID]int{}, map[ident.NodeID]int{}
		for _, replicas := range placed {
			if len(replicas) != factor || slices.Contains(dead, int(replicas[0])) {
				t.Fatalf("%v: want %d replicas, the first alive", replicas, factor)
			}
			alive := 0
			for i, id := range replicas {
				if slices.Contains(replicas[:i], id) {
					t.Fatalf("%v holds %d twice", replicas, id)
				}
				if !slices.Contains(dead, int(id)) {
					alive++
				}
				holds[id]++
			}
			if alive != min(live, factor) {
				t.Fatalf("%v: %d of %d live brokers", replicas, alive, live)
			}
			leads[replicas[0]]++
		}
		for i := range racks {
			if id := ident.NodeID(i); !slices.Contains(dead, i) && (leads[id] < n/live || leads[id] > (n+live-1)/live) {
				t.Fatalf("%d leads %d of %d partitions, of %d live brokers", id, leads[id], n, live)
			}
		}
	})
}

func TestTopicsOfOnePartitionSpreadToo(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	leads := map[ident.NodeID]int{}
	for i := range 90 {
		topic := fmt.Sprintf("t%d", i)
		h.createTopics(createRequest(automatic(topic, 1, 2)))
		leads[h.partition(topic, 0).Leader]++
	}
	for _, id := range []ident.NodeID{1, 2, 3} {
		if leads[id] < 15 {
			t.Errorf("of 90 topics %d lead %v", id, leads)
		}
	}
}
