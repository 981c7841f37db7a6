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
func (c *ISRCounts) Add(o ISRCounts) { addCounts(c, o) }
