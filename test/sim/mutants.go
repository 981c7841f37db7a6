package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater-io/highwater/pkg/sim"
)

// hunt plays schedules against each mutant until one catches it, and fails when one survives.
func (p *proof) hunt(only []string) int {
	fmt.Printf("sim: %d mutants of the quorum, SEED=%d\n", len(sim.QuorumMutants), p.seed)
	started := time.Now()
	survivors, tried := 0, 0
	for _, m := range sim.QuorumMutants {
		if len(only) > 0 && !slices.Contains(only, string(m.Name)) {
			continue
		}
		tried++
		opts, violation, n := p.catch(m)
		if violation == "" {
			survivors++
			fmt.Printf("  SURVIVED %-20s %s: not caught within %d schedules\n", m.Name, m.Mistake, m.Within)
			continue
		}
		fmt.Printf("  caught   %-20s by %-18s schedule %4d of at most %4d, seed %d: %s\n", m.Name, sim.InvariantOf(violation), n, m.Within, opts.Seed, m.Mistake)
	}
	fmt.Printf("sim: %d of %d mutants caught in %s\n", tried-survivors, tried, time.Since(started).Round(time.Second))
	if survivors > 0 || tried == 0 {
		return 1
	}
	return 0
}

// catch returns the first schedule that catches a mutant, and which it was, from 1 on.
func (p *proof) catch(m sim.QuorumMutant) (sim.QuorumOptions, string, int) {
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	first, violation := int64(m.Within)+1, ""
	for range p.workers {
		wg.Go(func() {
			for {
				i := next.Add(1)
				mu.Lock()
				over := i >= first || i > int64(m.Within)
				mu.Unlock()
				if over {
					return
				}
				if r := sim.RunQuorum(sim.QuorumOptions{Seed: p.seed + uint64(i) - 1, Mutant: m.Name}); r.Violation != "" {
					mu.Lock()
					if i < first {
						first, violation = i, r.Violation
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return sim.QuorumOptions{Seed: p.seed + uint64(first) - 1, Mutant: m.Name}, violation, int(first)
}
