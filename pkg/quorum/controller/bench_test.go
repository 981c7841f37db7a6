package controller

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/bigcluster"
	"github.com/highwater-io/highwater/pkg/ident"
)

// One partition's change must cost what a change costs, not what the cluster holds.
func BenchmarkAlterPartition(b *testing.B) {
	for _, topics := range []int{10, 1000} {
		b.Run(fmt.Sprintf("%d partitions", topics*50), func(b *testing.B) {
			h := newHarness(b, testConfig())
			h.start(1, 2, 3)
			var last ident.UUID
			for i := range topics {
				d := h.c.CreateTopics(h.now, createRequest(automatic(fmt.Sprintf("t%d", i), 50, 3)))
				h.next, h.committed = d.CommitOffset, d.Image
				last = d.Response.(*kmsg.CreateTopicsResponse).Topics[0].TopicID
			}
			isr := [][]ident.NodeID{{1, 2}, {1, 2, 3}}
			b.ResetTimer()
			for i := range b.N {
				p, _ := h.committed.Partition(ident.TopicPartition{Topic: last})
				others := without(p.Replicas, []ident.NodeID{p.Leader})
				members := append([]ident.NodeID{p.Leader}, others[:len(isr[i%2])-1]...)
				d := h.c.AlterPartition(h.now, h.proposal(p.Leader, last, 0, members...))
				if code := alterCode(d); code != 0 || len(d.Records) != 1 {
					b.Fatal(name(code))
				}
				h.committed = d.Image
			}
		})
	}
}

func BenchmarkBecomeLeader(b *testing.B) {
	h := newHarness(b, testConfig())
	h.start(1, 2, 3)
	for i := range 1000 {
		d := h.c.CreateTopics(h.now, createRequest(automatic(fmt.Sprintf("t%d", i), 50, 3)))
		h.next, h.committed = d.CommitOffset, d.Image
	}
	b.ResetTimer()
	for range b.N {
		if _, err := h.c.BecomeLeader(h.now, 2, h.committed, h.next, false); err != nil {
			b.Fatal(err)
		}
		h.c.Tick(h.now)
	}
}

func BenchmarkNewIndex(b *testing.B) {
	for _, s := range bigcluster.Shapes {
		image, err := s.Image()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(s.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				newIndex(image)
			}
		})
	}
}
