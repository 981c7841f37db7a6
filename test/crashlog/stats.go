package main

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// stats count what was played.
type stats struct {
	histories, cases, cutRecoveries atomic.Int64
	steps, ops, kept, flips         counters
}

type counters struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counters) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

func (c *counters) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]string, 0, len(c.n))
	for name := range c.n {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, c.n[name])
	}
	return strings.Join(names, ", ")
}

func (s *stats) String() string {
	return fmt.Sprintf("  power lost before: %s\n  in steps: %s\n  kept of what was not synced: %s\n  recoveries that were cut off too: %d\n  bits flipped in: %s",
		&s.ops, &s.steps, &s.kept, s.cutRecoveries.Load(), &s.flips)
}

// missing are the kinds that must be met and were not.
func (s *stats) missing() []string {
	return slices.Concat(
		s.steps.missing("start", "stop", "append-as-leader", "append-as-follower", "append-again", "flush", "flush-begin",
			"flush-end", "roll", "truncate", "truncate-fully", "move-start", "retain", "assign-epoch",
			"expire-producers", "checkpoint", "clean-begin", "clean-run", "clean-end",
			"chores-begin", "chores-run", "chores-end"),
		s.ops.missing("create", "write", "truncate", "sync", "syncdir", "remove", "rename", "mkdir", "done"),
		s.flips.missing(flipKinds...))
}

// missing are the names that were never met.
func (c *counters) missing(names ...string) (absent []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if c.n[name] == 0 {
			absent = append(absent, name)
		}
	}
	return absent
}
