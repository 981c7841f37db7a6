package topicconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Validate says whether the value may be set for the key, in words that a person can act on. Both may be anything
// that a client sends.
func Validate(name, value string) error {
	key, ok := Lookup(name)
	if !ok {
		if slices.Contains(notYet, name) {
			return fmt.Errorf("topic config %s is not supported here; the supported ones are %s", name, names())
		}
		return fmt.Errorf("unknown topic config name: %q; the supported ones are %s", name, names())
	}
	return key.check(value)
}

func names() string {
	all := make([]string, len(table))
	for i, k := range table {
		all[i] = k.Name
	}
	return strings.Join(all, ", ")
}

// IsList says whether the key's value is a list, to which AlterConfigs may append.
func (k Key) IsList() bool { return k.Type == configTypeList }

func (k Key) check(value string) error {
	invalid := func(format string, args ...any) error {
		const limit = 64 // an error message is not where a client's megabyte belongs
		shown := value
		if len(shown) > limit {
			shown = shown[:limit] + "..."
		}
		return fmt.Errorf("invalid value %q for configuration %s: %s", shown, k.Name, fmt.Sprintf(format, args...))
	}
	switch k.Type {
	case configTypeBoolean:
		if _, ok := parseBool(value); !ok {
			return invalid("expected true or false")
		}
	case configTypeInt, configTypeLong:
		n, err := parseNumber(value)
		if err != nil {
			return invalid("not a whole number")
		}
		if n < k.min {
			return invalid("must be at least %d", k.min)
		}
		if n > k.max {
			return invalid("must be at most %d", k.max)
		}
	case configTypeDouble:
		f, err := parseRatio(value)
		if err != nil {
			return invalid("not a number")
		}
		if !(f >= 0 && f <= k.maxRatio) { // which NaN is neither
			return invalid("must be between 0 and %v", k.maxRatio)
		}
	case configTypeList:
		members := SplitList(value)
		if len(members) == 0 {
			return invalid("must be one or more of: %s", strings.Join(k.only, ", "))
		}
		for i, m := range members {
			if !slices.Contains(k.only, m) {
				return invalid("must be one or more of: %s", strings.Join(k.only, ", "))
			}
			if slices.Contains(members[:i], m) {
				return invalid("%s stands there twice", m)
			}
		}
	default:
		if !slices.Contains(k.only, value) {
			return invalid("must be one of: %s", strings.Join(k.only, ", "))
		}
	}
	return nil
}

// SplitList returns the members of a list config's value: separated by commas, blanks dropped.
func SplitList(value string) []string {
	var members []string
	for m := range strings.SplitSeq(value, ",") {
		if m = strings.TrimSpace(m); m != "" {
			members = append(members, m)
		}
	}
	return members
}

// parseBool and parseNumber read what Kafka reads: blanks around the value and any case of true and false.
func parseBool(value string) (b, ok bool) {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

func parseNumber(value string) (int64, error) {
	return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
}

func parseRatio(value string) (float64, error) {
	return strconv.ParseFloat(strings.TrimSpace(value), 64)
}

// ValidateTogether says whether a topic's configs fit each other, in words that a person can act on. Each of them has
// passed Validate.
func (d Defaults) ValidateTogether(topic Get) error {
	values, err := d.Values(topic)
	if err != nil {
		return nil // what is wrong by itself was there before, and counts as not set
	}
	if values.MinCompactionLagMs > values.MaxCompactionLagMs {
		return fmt.Errorf("%s (%d) is above %s (%d)", MinCompactionLagMs, values.MinCompactionLagMs, MaxCompactionLagMs, values.MaxCompactionLagMs)
	}
	return nil
}

// IsTrue says whether a boolean config's value is true; one that can't be read is not.
func IsTrue(value string) bool {
	b, _ := parseBool(value)
	return b
}
