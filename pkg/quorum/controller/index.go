package controller

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/benbjohnson/immutable"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// An index finds the partitions that a broker leads or is in sync for, and those without a leader, in the order of
// topic ids. It shares structure with the one it was made from, as images do.
type index struct {
	// The value says whether the broker leads. Partitions without a leader stand under ident.NoNode too.
	entries *immutable.SortedMap[indexKey, bool]
}

type indexKey struct {
	node ident.NodeID
	tp   ident.TopicPartition
}

type indexOrder struct{}

func (indexOrder) Compare(a, b indexKey) int {
	if c := cmp.Compare(a.node, b.node); c != 0 {
		return c
	}
	return a.tp.Compare(b.tp)
}

// newIndex goes through the whole image. A new leader does it before it decides anything, so the keys are put in their
// order first: a map that is filled from its first key to its last takes two thirds of the time.
func newIndex(image *metadata.Image) index {
	topics := slices.SortedFunc(image.Topics(), func(a, b *metadata.Topic) int { return a.ID.Compare(b.ID) })
	leads := map[ident.NodeID][]lead{}
	for _, topic := range topics {
		for i, p := range topic.Partitions() {
			for _, k := range keysOf(ident.TopicPartition{Topic: topic.ID, Index: i}, p) {
				leads[k.node] = append(leads[k.node], lead{k.tp, k.node == p.Leader})
			}
		}
	}
	b := immutable.NewSortedMapBuilder[indexKey, bool](indexOrder{})
	for _, node := range slices.Sorted(maps.Keys(leads)) {
		for _, l := range leads[node] {
			b.Set(indexKey{node, l.tp}, l.leader)
		}
	}
	return index{b.Map()}
}

type lead struct {
	tp     ident.TopicPartition
	leader bool
}

func keysOf(tp ident.TopicPartition, p *metadata.Partition) []indexKey {
	keys := make([]indexKey, 0, len(p.ISR)+1)
	for _, node := range p.ISR {
		keys = append(keys, indexKey{node, tp})
	}
	if !slices.Contains(p.ISR, p.Leader) {
		keys = append(keys, indexKey{p.Leader, tp})
	}
	return keys
}

// after returns the index of the image that delta made out of the one that x is of.
func (x index) after(image *metadata.Image, delta *metadata.Delta) index {
	drop := func(tp ident.TopicPartition, p *metadata.Partition) {
		for _, k := range keysOf(tp, p) {
			x.entries = x.entries.Delete(k)
		}
	}
	for _, topic := range delta.DeletedTopics() {
		for i, p := range topic.Partitions() {
			drop(ident.TopicPartition{Topic: topic.ID, Index: i}, p)
		}
	}
	for _, tp := range delta.ChangedPartitions() {
		if p, ok := delta.Base().Partition(tp); ok {
			drop(tp, p)
		}
		if p, ok := image.Partition(tp); ok {
			for _, k := range keysOf(tp, p) {
				x.entries = x.entries.Set(k, k.node == p.Leader)
			}
		}
	}
	return x
}

// of returns the partitions in whose ISR the broker is or which it leads; of ident.NoNode, those without a leader.
func (x index) of(node ident.NodeID) []ident.TopicPartition {
	var out []ident.TopicPartition
	x.each(node, func(tp ident.TopicPartition, _ bool) bool {
		out = append(out, tp)
		return true
	})
	return out
}

// leads says whether the broker leads any partition.
func (x index) leads(node ident.NodeID) bool {
	found := false
	x.each(node, func(_ ident.TopicPartition, leader bool) bool {
		found = leader
		return !found
	})
	return found
}

// nodes goes through the brokers that lead or are in sync for something, in the order of their ids.
func (x index) nodes() iter.Seq[ident.NodeID] {
	return func(yield func(ident.NodeID) bool) {
		it := x.entries.Iterator()
		for it.Seek(firstOf(0)); !it.Done(); {
			k, _, _ := it.Next()
			if !yield(k.node) {
				return
			}
			it.Seek(firstOf(k.node + 1))
		}
	}
}

// firstOf stands before all keys of the broker.
func firstOf(node ident.NodeID) indexKey {
	return indexKey{node: node, tp: ident.TopicPartition{Index: math.MinInt32}}
}

func (x index) each(node ident.NodeID, yield func(tp ident.TopicPartition, leader bool) bool) {
	it := x.entries.Iterator()
	it.Seek(firstOf(node))
	for !it.Done() {
		k, leader, _ := it.Next()
		if k.node != node || !yield(k.tp, leader) {
			return
		}
	}
}
