package partition

import (
	"fmt"
	"slices"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
)

// toInts is for the API, which has plain numbers.
func toInts(ids []ident.NodeID) []int32 {
	if len(ids) == 0 {
		return nil
	}
	ints := make([]int32, len(ids))
	for i, id := range ids {
		ints[i] = int32(id)
	}
	return ints
}

// list is for messages.
func list[T ~int32](ids []T) string {
	if len(ids) == 0 {
		return "none"
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = fmt.Sprint(int32(id))
	}
	return strings.Join(texts, ", ")
}

// without returns the members of a that are not in b, in the order of a.
func without(a, b []int32) []int32 {
	var rest []int32
	for _, id := range a {
		if !slices.Contains(b, id) {
			rest = append(rest, id)
		}
	}
	return rest
}
