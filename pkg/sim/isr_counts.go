package sim

import "fmt"

// ReplayISR is the one command that plays a schedule again and prints its trace.
func ReplayISR(o ISROptions) string {
	command := fmt.Sprintf("go run ./test/sim -replay-isr=%d", o.Seed)
	if o.Disk != "" {
		command += fmt.Sprintf(" -disk=%s", o.Disk)
	}
	if o.Mutant != 0 {
		command += fmt.Sprintf(" -mutant=%d", o.Mutant)
	}
	return command
}

// Add adds.
func (c *ISRCounts) Add(o ISRCounts) {
	c.Acked += o.Acked
	c.Read += o.Read
	c.Refused += o.Refused
	c.TimedOut += o.TimedOut
	c.Elections += o.Elections
	c.Shrinks += o.Shrinks
	c.Expands += o.Expands
	c.Refusal += o.Refusal
	c.Kills += o.Kills
	c.Losses += o.Losses
	c.Pauses += o.Pauses
	c.Cuts += o.Cuts
	c.Truncations += o.Truncations
	c.Resets += o.Resets
	c.DiskErrors += o.DiskErrors
	c.Retentions += o.Retentions
	c.MinISRs += o.MinISRs
	c.Blackouts += o.Blackouts
	c.Switches += o.Switches
	c.Rots += o.Rots
	c.Damages += o.Damages
	c.Quarantines += o.Quarantines
	c.Refills += o.Refills
	c.Compactions += o.Compactions
	c.Gone += o.Gone
	c.Deletions += o.Deletions
}
