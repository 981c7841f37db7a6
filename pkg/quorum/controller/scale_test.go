package controller

import (
	"testing"

	"github.com/highwater-io/highwater/internal/bigcluster"
	"github.com/highwater-io/highwater/pkg/ident"
)

// A decision about one partition must cost what a change costs, not what the cluster holds: image, index and answer.
func TestAllocationsOfAnAlterPartitionGrowWithTheLogarithm(t *testing.T) {
	decide := func(s bigcluster.Shape) (allocs, bytes float64) {
		image, err := s.Image()
		if err != nil {
			t.Fatal(err)
		}
		h := newHarness(t, testConfig())
		h.committed, h.next = image, bigcluster.Offset+1
		h.lead(2)
		topic := 0
		return bigcluster.Spent(500, func() {
			id := bigcluster.TopicID(topic % s.Topics)
			p, _ := h.committed.Partition(ident.TopicPartition{Topic: id, Index: 7})
			isr := p.Replicas[:2] // once without the last member, once with it
			if len(p.ISR) == 2 {
				isr = p.Replicas
			}
			d := h.c.AlterPartition(h.now, h.proposal(p.Leader, id, 7, isr...))
			if code := alterCode(d); code != 0 || len(d.Records) != 1 {
				t.Fatalf("%s, %d records", name(code), len(d.Records))
			}
			h.committed = d.Image
			topic += 7
		})
	}
	large := bigcluster.Shapes[1]
	small := large
	small.Topics /= 100
	a1, b1 := decide(small)
	a2, b2 := decide(large)
	t.Logf("%s: %.1f allocations of %.0f bytes; %s: %.1f of %.0f", small, a1, b1, large, a2, b2)
	// The image takes one path more of a level or two; the index has what changed since the leadership began.
	if a2 > a1+10 || b2 > 2*b1 {
		t.Errorf("%s: a decision costs %.1f allocations of %.0f bytes, %s: %.1f of %.0f", small, a1, b1, large, a2, b2)
	}
}
