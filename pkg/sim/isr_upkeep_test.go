package sim

import (
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
)

// TestUpkeepHappens: the seeds that compact logs and delete records do so, with followers that copy the gaps.
func TestUpkeepHappens(t *testing.T) {
	var sum ISRCounts
	for seed := uint64(4); seed <= 80; seed += 4 {
		r := RunISR(ISROptions{Seed: seed})
		if r.Violation != "" {
			t.Fatalf("seed %d: %s", seed, r.Violation)
		}
		sum.Add(r.Counts)
	}
	if sum.Compactions < 20 || sum.Gone < 100 || sum.Deletions < 20 {
		t.Fatalf("%d compactions, %d records found gone, %d deletions", sum.Compactions, sum.Gone, sum.Deletions)
	}
}

// TestLastRecordOfAKeyIsMissed: the checker would notice a compaction that removes too much.
func TestLastRecordOfAKeyIsMissed(t *testing.T) {
	s := &isrSim{w: NewWorld(1), compact: true}
	c := newISRChecker(s)
	s.check = c
	for o, value := range []string{"a", "b", "a"} {
		c.truth = append(c.truth, isrEntry{value: value})
		c.last[string(s.keyOf(value))] = ident.Offset(o)
	}
	n, l := &isrNode{s: s, id: 2}, &isrLog{}
	if c.gap(n, l, 1); s.violation != "" || len(l.entries) != 1 {
		t.Fatalf("a record whose key came again: %q", s.violation)
	}
	if c.gap(n, l, 2); !strings.Contains(s.violation, "is gone") {
		t.Fatalf("the last record of its key: %q", s.violation)
	}
}
