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
// topic ids. It is what a leadership began with, in plain lists, and what changed since then in a map that shares
// structure with the one it was made from, as images do: a new leader has to have it before it decides anything, and
// filling a map took it a third of a second with 100,000 partitions.
type index struct {
	base    *baseIndex
	changed *immutable.SortedMap[indexKey, role]
}

// role is what a broker is for a partition. Under ident.NoNode stand those without a leader.
type role int8

const (
	outOfSync role = iota // no entry
	inSync
	leading
)

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

// baseIndex is never written to. Lists are in the order of their partitions.
type baseIndex struct {
	nodes   []ident.NodeID // that have entries, in order
	entries map[ident.NodeID][]indexEntry
}

type indexEntry struct {
	tp   ident.TopicPartition
	role role
}

func (b *baseIndex) role(k indexKey) role {
	list := b.entries[k.node]
	i, ok := slices.BinarySearchFunc(list, k.tp, func(e indexEntry, tp ident.TopicPartition) int { return e.tp.Compare(tp) })
	if !ok {
		return outOfSync
	}
	return list[i].role
}

func newIndex(image *metadata.Image) index {
	base := &baseIndex{entries: map[ident.NodeID][]indexEntry{}}
	counts := map[ident.NodeID]int{}
	for topic := range image.Topics() {
		for _, p := range topic.Partitions() {
			eachRole(p, func(node ident.NodeID, _ role) { counts[node]++ })
		}
	}
	for node, n := range counts {
		base.entries[node] = make([]indexEntry, 0, n)
	}
	for _, topic := range slices.SortedFunc(image.Topics(), func(a, b *metadata.Topic) int { return a.ID.Compare(b.ID) }) {
		for i, p := range topic.Partitions() {
			eachRole(p, func(node ident.NodeID, r role) {
				base.entries[node] = append(base.entries[node], indexEntry{ident.TopicPartition{Topic: topic.ID, Index: i}, r})
			})
		}
	}
	base.nodes = slices.Sorted(maps.Keys(base.entries))
	return index{base, immutable.NewSortedMap[indexKey, role](indexOrder{})}
}

// eachRole goes through the entries of a partition.
func eachRole(p *metadata.Partition, do func(ident.NodeID, role)) {
	for _, node := range p.ISR {
		do(node, roleOf(p, node))
	}
	if !slices.Contains(p.ISR, p.Leader) {
		do(p.Leader, leading)
	}
}

func roleOf(p *metadata.Partition, node ident.NodeID) role {
	switch {
	case node == p.Leader:
		return leading
	case slices.Contains(p.ISR, node):
		return inSync
	}
	return outOfSync
}

// after returns the index of the image that delta made out of the one that x is of.
func (x index) after(image *metadata.Image, delta *metadata.Delta) index {
	for _, topic := range delta.DeletedTopics() {
		for i, p := range topic.Partitions() {
			eachRole(p, func(node ident.NodeID, _ role) {
				x = x.with(indexKey{node, ident.TopicPartition{Topic: topic.ID, Index: i}}, outOfSync)
			})
		}
	}
	for _, tp := range delta.ChangedPartitions() {
		now, ok := image.Partition(tp)
		if !ok {
			continue
		}
		if before, ok := delta.Base().Partition(tp); ok {
			eachRole(before, func(node ident.NodeID, _ role) {
				if roleOf(now, node) == outOfSync {
					x = x.with(indexKey{node, tp}, outOfSync)
				}
			})
		}
		eachRole(now, func(node ident.NodeID, r role) { x = x.with(indexKey{node, tp}, r) })
	}
	return x
}

// with returns the index with one entry set, or taken out.
func (x index) with(k indexKey, r role) index {
	if x.base.role(k) == r {
		x.changed = x.changed.Delete(k)
	} else if have, ok := x.changed.Get(k); !ok || have != r {
		x.changed = x.changed.Set(k, r)
	}
	return x
}

// of returns the partitions in whose ISR the broker is or which it leads; of ident.NoNode, those without a leader.
func (x index) of(node ident.NodeID) []ident.TopicPartition {
	var out []ident.TopicPartition
	for tp := range x.each(node) {
		out = append(out, tp)
	}
	return out
}

// leads says whether the broker leads any partition.
func (x index) leads(node ident.NodeID) bool {
	for _, r := range x.each(node) {
		if r == leading {
			return true
		}
	}
	return false
}

// nodes goes through the brokers that lead or are in sync for something, in the order of their ids.
func (x index) nodes() iter.Seq[ident.NodeID] {
	return func(yield func(ident.NodeID) bool) {
		for from := ident.NodeID(0); ; from++ {
			var ok bool
			if from, ok = x.nodeFrom(from); !ok {
				return
			}
			for range x.each(from) { // there is one
				if !yield(from) {
					return
				}
				break
			}
		}
	}
}

// nodeFrom returns the first id, not below from, under which there are, or were, entries.
func (x index) nodeFrom(from ident.NodeID) (node ident.NodeID, ok bool) {
	if i, _ := slices.BinarySearch(x.base.nodes, from); i < len(x.base.nodes) {
		node, ok = x.base.nodes[i], true
	}
	it := x.changed.Iterator()
	if it.Seek(firstOf(from)); !it.Done() {
		if k, _, _ := it.Next(); !ok || k.node < node {
			node, ok = k.node, true
		}
	}
	return node, ok
}

// each goes through the broker's partitions and what it is for them.
func (x index) each(node ident.NodeID) iter.Seq2[ident.TopicPartition, role] {
	return func(yield func(ident.TopicPartition, role) bool) {
		base := x.base.entries[node]
		it := x.changed.Iterator()
		for it.Seek(firstOf(node)); !it.Done(); {
			k, r, _ := it.Next()
			if k.node != node {
				break
			}
			for len(base) > 0 && base[0].tp.Compare(k.tp) < 0 {
				if !yield(base[0].tp, base[0].role) {
					return
				}
				base = base[1:]
			}
			if len(base) > 0 && base[0].tp == k.tp {
				base = base[1:] // it changed
			}
			if r != outOfSync && !yield(k.tp, r) {
				return
			}
		}
		for _, e := range base {
			if !yield(e.tp, e.role) {
				return
			}
		}
	}
}

// firstOf stands before all keys of the broker.
func firstOf(node ident.NodeID) indexKey {
	return indexKey{node: node, tp: ident.TopicPartition{Index: math.MinInt32}}
}
