package v1alpha1

import (
	"fmt"
	"time"
)

// Parse returns the time that d says. The schema admits only what parses, so an error means an object that was
// stored under another schema.
func (d Duration) Parse() (time.Duration, error) {
	parsed, err := time.ParseDuration(string(d))
	if err != nil {
		return 0, fmt.Errorf("duration %q: want a number with a unit, like 500ms, 30s or 1h: %w", string(d), err)
	}
	return parsed, nil
}
