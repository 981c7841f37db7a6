package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Skip names what is left out of a schedule: faults ("f7"), proposals ("p12") and traits by name ("noise"). What is
// left stays as it was, since each fault and each proposal has dice of its own; so a failing schedule can be made
// smaller. The zero value leaves nothing out.
type Skip map[string]bool

// ParseSkip reads what String writes: "f1,f4-9,p0-30,noise".
func ParseSkip(text string) (Skip, error) {
	s := Skip{}
	for _, item := range strings.Split(text, ",") {
		if item == "" {
			continue
		}
		from, to, isRange := strings.Cut(item, "-")
		lo, err := strconv.Atoi(from[min(1, len(from)):])
		if (from[0] != 'f' && from[0] != 'p') || err != nil {
			if !slices.Contains(traitNames, item) {
				return nil, fmt.Errorf("%q is no fault, no proposal and none of the traits %v", item, traitNames)
			}
			s[item] = true
			continue
		}
		hi := lo
		if isRange {
			if hi, err = strconv.Atoi(to); err != nil || hi < lo || hi > 1_000_000 {
				return nil, fmt.Errorf("%q is no range", item)
			}
		}
		for i := lo; i <= hi; i++ {
			s[eventName(from[0], i)] = true
		}
	}
	return s, nil
}

func eventName(kind byte, i int) string { return string(kind) + strconv.Itoa(i) }

// String writes ranges where it can.
func (s Skip) String() string {
	var items []string
	for _, kind := range []byte{'f', 'p'} {
		var numbers []int
		for name := range s {
			if i, err := strconv.Atoi(name[1:]); err == nil && name[0] == kind {
				numbers = append(numbers, i)
			}
		}
		slices.Sort(numbers)
		for i := 0; i < len(numbers); {
			j := i
			for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
				j++
			}
			item := eventName(kind, numbers[i])
			if j > i {
				item += fmt.Sprintf("-%d", numbers[j])
			}
			items = append(items, item)
			i = j + 1
		}
	}
	for _, name := range traitNames {
		if s[name] {
			items = append(items, name)
		}
	}
	return strings.Join(items, ",")
}

func (s Skip) with(names []string) Skip {
	out := make(Skip, len(s)+len(names))
	for name := range s {
		out[name] = true
	}
	for _, name := range names {
		out[name] = true
	}
	return out
}
