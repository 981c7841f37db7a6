package metadata

import (
	"cmp"
	"iter"
	"slices"

	"github.com/benbjohnson/immutable"
)

// sorted is an immutable map in the order of its keys: a change costs O(log n) and shares the rest. One that is being
// filled (by a delta that loads a snapshot, and which nobody else sees) is written in place until it is frozen.
type sorted[K, V any] struct {
	m       *immutable.SortedMap[K, V]
	filling *immutable.SortedMapBuilder[K, V] // m is nil then
}

type comparer[K any] func(a, b K) int

// Compare orders keys.
func (c comparer[K]) Compare(a, b K) int { return c(a, b) }

func newSorted[K, V any](compare func(a, b K) int) sorted[K, V] {
	return sorted[K, V]{m: immutable.NewSortedMap[K, V](comparer[K](compare))}
}

func ordered[K cmp.Ordered, V any]() sorted[K, V] { return newSorted[K, V](cmp.Compare[K]) }

// toFill returns an empty map that is written in place.
func toFill[K, V any](compare func(a, b K) int) sorted[K, V] {
	return sorted[K, V]{filling: immutable.NewSortedMapBuilder[K, V](comparer[K](compare))}
}

// frozen returns the map with all that was written; one that was being filled is of no use any more.
func (s sorted[K, V]) frozen() sorted[K, V] {
	if s.filling != nil {
		return sorted[K, V]{m: s.filling.Map()}
	}
	return s
}

func (s sorted[K, V]) get(k K) (V, bool) {
	if s.filling != nil {
		return s.filling.Get(k)
	}
	return s.m.Get(k)
}

func (s sorted[K, V]) set(k K, v V) sorted[K, V] {
	if s.filling != nil {
		s.filling.Set(k, v)
		return s
	}
	return sorted[K, V]{m: s.m.Set(k, v)}
}

func (s sorted[K, V]) delete(k K) sorted[K, V] {
	if s.filling != nil {
		s.filling.Delete(k)
		return s
	}
	return sorted[K, V]{m: s.m.Delete(k)}
}

func (s sorted[K, V]) len() int {
	if s.filling != nil {
		return s.filling.Len()
	}
	return s.m.Len()
}

// iterator stands at the first key. The keys of a map that is being filled must not change while it is in use.
func (s sorted[K, V]) iterator() *immutable.SortedMapIterator[K, V] {
	if s.filling != nil {
		return s.filling.Iterator()
	}
	return s.m.Iterator()
}

func (s sorted[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for it := s.iterator(); !it.Done(); {
			k, v, _ := it.Next()
			if !yield(k, v) {
				return
			}
		}
	}
}

func (s sorted[K, V]) values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for it := s.iterator(); !it.Done(); {
			if _, v, _ := it.Next(); !yield(v) {
				return
			}
		}
	}
}

// sortedKeys returns a set's members in order, so that no map order gets out.
func sortedKeys[K comparable](set map[K]struct{}, compare func(a, b K) int) []K {
	out := make([]K, 0, len(set))
	for k := range set {
		out = append(out, k)
	}
	slices.SortFunc(out, compare)
	return out
}
