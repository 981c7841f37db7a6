package metadata

import (
	"cmp"
	"iter"
	"slices"

	"github.com/benbjohnson/immutable"
)

// sorted is an immutable map in the order of its keys: a change costs O(log n) and shares the rest.
type sorted[K, V any] struct{ m *immutable.SortedMap[K, V] }

type comparer[K any] func(a, b K) int

// Compare orders keys.
func (c comparer[K]) Compare(a, b K) int { return c(a, b) }

func newSorted[K, V any](compare func(a, b K) int) sorted[K, V] {
	return sorted[K, V]{immutable.NewSortedMap[K, V](comparer[K](compare))}
}

func ordered[K cmp.Ordered, V any]() sorted[K, V] { return newSorted[K, V](cmp.Compare[K]) }

func (s sorted[K, V]) get(k K) (V, bool)         { return s.m.Get(k) }
func (s sorted[K, V]) set(k K, v V) sorted[K, V] { return sorted[K, V]{s.m.Set(k, v)} }
func (s sorted[K, V]) delete(k K) sorted[K, V]   { return sorted[K, V]{s.m.Delete(k)} }
func (s sorted[K, V]) len() int                  { return s.m.Len() }

func (s sorted[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for it := s.m.Iterator(); !it.Done(); {
			k, v, _ := it.Next()
			if !yield(k, v) {
				return
			}
		}
	}
}

func (s sorted[K, V]) values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for it := s.m.Iterator(); !it.Done(); {
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
