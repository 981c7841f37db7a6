package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/sim"
)

func main() {
	p := &proof{}
	flag.IntVar(&p.quorum, "quorum", 20_000, "schedules of the metadata quorum")
	flag.IntVar(&p.isr, "isr", 2_000, "schedules of the ISR protocol")
	flag.DurationVar(&p.limit, "for", 20*time.Minute, "give up after this time; fewer schedules than asked for are a failure")
	flag.Uint64Var(&p.seed, "seed", 0, "the seed of the first schedule; 0: a fresh one, which is printed")
	flag.IntVar(&p.workers, "workers", runtime.GOMAXPROCS(0), "schedules at a time")
	flag.IntVar(&p.twice, "twice", 50, "play each so-manyth schedule a second time and compare")
	mutants := flag.Bool("mutants", false, "show that every mutant is caught within its number of schedules")
	replay := flag.Uint64("replay", 0, "play the quorum's schedule of this seed alone and print its trace")
	replayISR := flag.Uint64("replay-isr", 0, "the same of an ISR schedule")
	disk := flag.String("disk", "", "with -replay-isr: the disk mode, where it does not follow from the seed")
	skip := flag.String("skip", "", "with -replay: what is left out of the schedule")
	mutant := flag.String("mutant", "", "with -replay: the rule that is broken, with -replay-isr its number in pkg/replication; with -mutants: only these, separated by commas")
	flag.Parse()
	// Schedules leave much garbage and keep little.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(2 << 30)
	left, err := sim.ParseSkip(*skip)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "sim: -skip:", err)
		os.Exit(2)
	case *replay != 0:
		os.Exit(play(sim.QuorumOptions{Seed: *replay, Skip: left, Mutant: raft.Mutant(*mutant), Verbose: true}))
	case *replayISR != 0:
		rule := 0
		if *mutant != "" {
			if rule, err = strconv.Atoi(*mutant); err != nil {
				fmt.Fprintln(os.Stderr, "sim: -mutant of an ISR schedule is a number:", err)
				os.Exit(2)
			}
		}
		os.Exit(playISR(sim.ISROptions{Seed: *replayISR, Disk: sim.DiskMode(*disk), Mutant: replication.Mutant(rule), Verbose: true}))
	}
	if p.seed == 0 {
		p.seed = rand.Uint64N(1 << 48)
	}
	if *mutants {
		os.Exit(p.hunt(strings.FieldsFunc(*mutant, func(r rune) bool { return r == ',' })))
	}
	os.Exit(p.run())
}

// play plays one schedule and tells all of it.
func play(opts sim.QuorumOptions) int {
	r := sim.RunQuorum(opts)
	fmt.Print(r.Trace)
	fmt.Printf("seed %d: traits %v, %d steps, trace %016x, %+v\n", opts.Seed, r.Traits, r.Steps, r.Hash, r.Counts)
	return verdict(r.Violation)
}

func playISR(opts sim.ISROptions) int {
	r := sim.RunISR(opts)
	fmt.Print(r.Trace)
	fmt.Printf("seed %d (%s): %d steps, trace %016x, %+v\n", opts.Seed, r.Disk, r.Steps, r.Hash, r.Counts)
	return verdict(r.Violation)
}

func verdict(violation string) int {
	if violation != "" {
		fmt.Println("FAILED:", violation)
		return 1
	}
	fmt.Println("every invariant held, and everything healed")
	return 0
}
