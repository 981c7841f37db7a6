package sim

import (
	"fmt"
	"slices"
	"strings"
)

// InvariantOf is the name that a violation begins with.
func InvariantOf(violation string) string {
	name, _, _ := strings.Cut(violation, ":")
	return name
}

// ShrinkQuorum makes a failing schedule smaller: it leaves out faults, proposals and traits as long as the same invariant
// breaks, first many at a time, then ever fewer (delta debugging), in at most so many runs. It returns what is left of
// the schedule and its report, with the text of the trace.
func ShrinkQuorum(opts QuorumOptions, runs int) (QuorumOptions, QuorumReport) {
	opts.Visit = nil
	report := RunQuorum(opts)
	want := InvariantOf(report.Violation)
	if want == "" {
		return opts, report
	}
	try := func(skip []string) bool {
		if runs--; runs < 0 {
			return false
		}
		smaller := opts
		smaller.Skip = opts.Skip.with(skip)
		r := RunQuorum(smaller)
		if InvariantOf(r.Violation) != want {
			return false
		}
		opts, report = smaller, r
		return true
	}
	for _, trait := range slices.Clone(report.Traits) {
		try([]string{trait})
	}
	for before := len(report.Played) + 1; len(report.Played) < before; {
		before = len(report.Played)
		for size := (before + 1) / 2; size > 0; size /= 2 {
			// From the end: what happened last is less likely to have brought the rest about.
			for end := len(report.Played); end > 0; {
				part := slices.Clone(report.Played[max(0, end-size):end])
				end -= len(part)
				try(part)
				end = min(end, len(report.Played))
			}
		}
	}
	opts.Skip = opts.Skip.with(opts.unplayed(report.Played))
	opts.Verbose = true
	return opts, RunQuorum(opts)
}

// unplayed are the events of the plan that did not come to happen, so that what is left can be seen from Skip.
func (o QuorumOptions) unplayed(played []string) (names []string) {
	plan := newQuorumPlan(o)
	for _, e := range slices.Concat(plan.faults, plan.proposals) {
		if !slices.Contains(played, e.name) {
			names = append(names, e.name)
		}
	}
	return names
}

// ReplayQuorum is the one command that plays a schedule again and prints its trace.
func ReplayQuorum(o QuorumOptions) string {
	command := fmt.Sprintf("go run ./test/sim -replay=%d", o.Seed)
	if o.Mutant != "" {
		command += fmt.Sprintf(" -mutant=%s", o.Mutant)
	}
	if len(o.Skip) > 0 {
		command += fmt.Sprintf(" -skip=%s", o.Skip)
	}
	return command
}
