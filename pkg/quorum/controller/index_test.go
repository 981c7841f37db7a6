package controller

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// The index that follows the changes says what one of the same image says that was made anew, in the same order,
// wherever its leadership began.
func TestIndexThatFollowsIsTheOneMadeAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		image := metadata.Empty()
		x := newIndex(image)
		topics := map[ident.UUID]int32{}
		nodes := func(least int) []ident.NodeID {
			return rapid.SliceOfNDistinct(rapid.Map(rapid.Int32Range(0, 5), func(i int32) ident.NodeID { return ident.NodeID(i) }), least, 4, rapid.ID[ident.NodeID]).Draw(t, "nodes")
		}
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.IntRange(0, 7).Draw(t, "another leadership") == 0 {
				x = newIndex(image)
			}
			delta := metadata.NewDelta(image)
			for range rapid.IntRange(1, 4).Draw(t, "records") {
				id := ident.UUID{15: rapid.ByteRange(1, 4).Draw(t, "topic")}
				partitions, there := topics[id]
				var r metadata.Record
				switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); {
				case !there:
					r = &metadata.TopicRecord{Name: id.String(), TopicID: id}
					topics[id] = 0
				case kind == 0:
					r = &metadata.RemoveTopicRecord{TopicID: id}
					delete(topics, id)
				case kind == 1 || partitions == 0:
					isr := nodes(0)
					leader := append([]ident.NodeID{ident.NoNode}, isr...)[rapid.IntRange(0, len(isr)).Draw(t, "leader")]
					r = &metadata.PartitionRecord{Version: 1, TopicID: id, PartitionID: partitions, Replicas: isr, ISR: isr, Leader: leader}
					topics[id]++
				default:
					change := metadata.NewPartitionChange(1)
					change.TopicID, change.PartitionID = id, rapid.Int32Range(0, partitions-1).Draw(t, "partition")
					change.ISR = nodes(0)
					change.Leader = rapid.SampledFrom([]ident.NodeID{ident.NoNode, metadata.NoLeaderChange, 0, 1, 2, 3, 4, 5}).Draw(t, "leader")
					r = change
				}
				if err := delta.Replay(r); err != nil {
					t.Fatal(err)
				}
			}
			image = delta.Image(ident.Offset(step), 1)
			x = x.after(image, delta)
			sameIndex(t, x, newIndex(image))
		}
	})
}

// sameIndex fails unless both say the same of every broker.
func sameIndex(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, got, want index,
) {
	t.Helper()
	brokers, wanted := slices.Collect(got.nodes()), slices.Collect(want.nodes())
	if !slices.Equal(brokers, wanted) {
		t.Fatalf("the index has brokers %v, want %v", brokers, wanted)
	}
	for _, node := range append(wanted, ident.NoNode) {
		entries, wanted := entriesOf(got, node), entriesOf(want, node)
		if !slices.Equal(entries, wanted) {
			t.Fatalf("the index has %v under broker %d, want %v", entries, node, wanted)
		}
		if !slices.IsSortedFunc(entries, func(a, b indexEntry) int { return a.tp.Compare(b.tp) }) {
			t.Fatalf("the index has %v under broker %d, out of order", entries, node)
		}
		if leads := slices.ContainsFunc(entries, func(e indexEntry) bool { return e.role == leading }); got.leads(node) != leads {
			t.Fatalf("the index says that broker %d leads: %v, want %v", node, !leads, leads)
		}
	}
}

func entriesOf(x index, node ident.NodeID) (all []indexEntry) {
	for tp, r := range x.each(node) {
		all = append(all, indexEntry{tp, r})
	}
	return all
}
