package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater-io/highwater/pkg/sim"
)

// shrinkRuns bounds the work on making a failure smaller.
const shrinkRuns = 2000

// proof plays schedules until there are as many as were asked for, or one fails.
type proof struct {
	quorum, isr    int
	limit          time.Duration
	seed           uint64
	workers, twice int
	failed         atomic.Pointer[string]
	deadline       time.Time
}

func (p *proof) run() int {
	fmt.Printf("sim: %d schedules of the quorum and %d of the ISR protocol, %d at a time, SEED=%d\n", p.quorum, p.isr, p.workers, p.seed)
	p.deadline = time.Now().Add(p.limit)
	missed := false
	if p.quorum > 0 {
		t := &quorumTally{}
		missed = p.playAll("quorum", p.quorum, func(seed uint64) { p.playQuorum(t, seed) }, t)
	}
	if p.isr > 0 && p.failed.Load() == nil {
		t := &isrTally{}
		missed = p.playAll("ISR", p.isr, func(seed uint64) { p.playISR(t, seed) }, t) || missed
	}
	switch failure := p.failed.Load(); {
	case failure != nil:
		fmt.Print(*failure)
		fmt.Println("sim: 1 failure")
		return 1
	case missed:
		fmt.Println("sim: MISSED: fewer schedules than asked for; give it more time (-for)")
		return 1
	}
	fmt.Println("sim: 0 failures")
	return 0
}

// tally says what was counted.
type tally interface {
	line() string
	missing() []string
	fmt.Stringer
}

// playAll plays a number of schedules, says every few seconds how far it is, and whether it missed something.
func (p *proof) playAll(what string, count int, one func(seed uint64), t tally) (missed bool) {
	started := time.Now()
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range p.workers {
		wg.Go(func() {
			for p.failed.Load() == nil && time.Now().Before(p.deadline) {
				i := next.Add(1) - 1
				if i >= int64(count) {
					return
				}
				one(p.seed + uint64(i))
				done.Add(1)
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	progress := time.NewTicker(5 * time.Second)
	defer progress.Stop()
	for {
		select {
		case <-progress.C:
			fmt.Printf("  %s %6d/%d in %4.0fs: %s\n", what, done.Load(), count, time.Since(started).Seconds(), t.line())
			continue
		case <-over:
		}
		break
	}
	took := time.Since(started)
	fmt.Printf("%s: %d schedules, seeds %d to %d, in %s (%.1f ms of a core each)\n%s\n", what, done.Load(), p.seed, p.seed+uint64(max(done.Load(), 1))-1,
		took.Round(100*time.Millisecond), float64(took.Milliseconds())*float64(min(p.workers, count))/float64(max(done.Load(), 1)), t)
	if names := t.missing(); done.Load() >= 1000 && len(names) > 0 {
		fmt.Printf("sim: MISSED: no schedule met %v\n", names)
		missed = true
	}
	return missed || done.Load() < int64(count)
}

func (p *proof) fail(text string) { p.failed.CompareAndSwap(nil, &text) }

func (p *proof) playQuorum(t *quorumTally, seed uint64) {
	r := sim.RunQuorum(sim.QuorumOptions{Seed: seed, Visit: t.states.add})
	opts := sim.QuorumOptions{Seed: seed}
	if r.Violation != "" {
		fmt.Printf("sim: schedule %d breaks %s; making it smaller\n", seed, sim.InvariantOf(r.Violation))
		small, shrunk := sim.ShrinkQuorum(opts, shrinkRuns)
		p.fail(fmt.Sprintf("%s\nFAILED: seed %d: %s\nreplay:  %s\nshrunk to %d of %d events: %s\nreplay:  %s\n", shrunk.Trace, seed, r.Violation,
			sim.ReplayQuorum(opts), len(shrunk.Played), len(r.Played), shrunk.Violation, sim.ReplayQuorum(small)))
		return
	}
	again := false
	if p.twice > 0 && seed%uint64(p.twice) == 0 {
		again = true
		if second := sim.RunQuorum(opts); second.Hash != r.Hash || second.Steps != r.Steps {
			p.fail(fmt.Sprintf("FAILED: seed %d is not played the same twice: trace %016x in %d steps, then %016x in %d\nreplay:  %s\n",
				seed, r.Hash, r.Steps, second.Hash, second.Steps, sim.ReplayQuorum(opts)))
			return
		}
	}
	t.took(r.Steps, r.Counts, again)
}

func (p *proof) playISR(t *isrTally, seed uint64) {
	opts := sim.ISROptions{Seed: seed}
	if seed%6 == 0 {
		opts.Disk = sim.FlushSwitched // no seed draws this one by itself
	}
	r := sim.RunISR(opts)
	if r.Violation != "" {
		opts.Verbose = true
		p.fail(fmt.Sprintf("%s\nFAILED: seed %d (%s): %s\nreplay:  %s\n", sim.RunISR(opts).Trace, seed, r.Disk, r.Violation, sim.ReplayISR(opts)))
		return
	}
	again := p.twice > 0 && seed%uint64(p.twice) == 0
	if again {
		if second := sim.RunISR(opts); second.Hash != r.Hash || second.Steps != r.Steps {
			p.fail(fmt.Sprintf("FAILED: seed %d is not played the same twice: trace %016x, then %016x\n", seed, r.Hash, second.Hash))
			return
		}
	}
	t.took(r.Steps, r.Counts, again)
}
