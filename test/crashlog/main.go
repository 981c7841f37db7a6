package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	p := &proof{stats: &stats{}}
	flag.DurationVar(&p.duration, "for", 5*time.Minute, "how long to play histories")
	flag.Int64Var(&p.least, "cases", 200_000, "fail when fewer cases than this were played")
	flag.Uint64Var(&p.seed, "seed", 1, "the first history")
	flag.IntVar(&p.only, "case", 0, "play this case of the history -seed alone, and tell of it")
	flag.IntVar(&p.workers, "workers", runtime.GOMAXPROCS(0), "histories at a time")
	flag.Int64Var(&p.stopAfter, "stop-after", 1<<62, "stop once so many cases were played")
	hunt := flag.Bool("mutants", false, "show that every mutant is caught, each within -within cases")
	within := flag.Int64("within", 100_000, "how many cases a mutant may survive")
	name := flag.String("mutant", "", "with -seed and -case: the mutant; with -mutants: only these, separated by commas")
	flag.Parse()
	if *hunt {
		os.Exit(runMutants(*within, *name))
	}
	if *name != "" {
		if p.mutant = mutantNamed(*name); p.mutant == nil {
			fmt.Fprintf(os.Stderr, "crash-log: there is no mutant %q\n", *name)
			os.Exit(2)
		}
		if p.mutant.file != "" {
			os.Exit(p.playBuilt())
		}
	}
	os.Exit(p.run())
}

// proof plays histories one after the other until its time is over or one fails.
type proof struct {
	duration time.Duration
	least    int64
	seed     uint64
	only     int
	workers  int
	// stopAfter ends the proof early.
	stopAfter int64
	mutant    *mutant
	stats     *stats
}

// playBuilt plays a case with a mutant that has to be built.
func (p *proof) playBuilt() int {
	dir, err := os.MkdirTemp("", "crashlog-mutant-")
	if err == nil {
		defer os.RemoveAll(dir)
		var program string
		if program, err = p.mutant.build(dir); err == nil {
			command := exec.Command(program, fmt.Sprintf("-seed=%d", p.seed), fmt.Sprintf("-case=%d", p.only), fmt.Sprintf("-workers=%d", p.workers))
			command.Stdout, command.Stderr = os.Stdout, os.Stderr
			err = command.Run()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash-log:", err)
		return 1
	}
	return 0
}

func (p *proof) run() int {
	if p.only > 0 {
		return p.one()
	}
	started := time.Now()
	var next, failures atomic.Uint64
	next.Store(p.seed)
	var failed atomic.Pointer[failure]
	var wg sync.WaitGroup
	for range p.workers {
		wg.Go(func() {
			for failed.Load() == nil && time.Since(started) < p.duration && p.stats.cases.Load() < p.stopAfter {
				if f := play(next.Add(1)-1, p.mutant, p.stats, 0); f != nil {
					failures.Add(1)
					failed.CompareAndSwap(nil, f)
				}
			}
		})
	}
	wg.Wait()
	cases := p.stats.cases.Load()
	fmt.Printf("crash-log: %d cases in %d histories, seeds %d to %d, in %s: %d failures\n", cases,
		p.stats.histories.Load(), p.seed, next.Load()-1, time.Since(started).Round(time.Second), failures.Load())
	fmt.Println(p.stats)
	if f := failed.Load(); f != nil {
		fmt.Print(f)
		return 1
	}
	if missing := p.stats.missing(); len(missing) > 0 && p.least > 0 {
		fmt.Printf("crash-log: MISSED: no case met %v\n", missing)
		return 1
	}
	if cases < p.least {
		fmt.Printf("crash-log: MISSED: fewer than %d cases; give it more time (-for)\n", p.least)
		return 1
	}
	fmt.Println("crash-log: ok")
	return 0
}

// one plays a single case.
func (p *proof) one() int {
	f := play(p.seed, p.mutant, p.stats, p.only)
	if f == nil {
		fmt.Printf("history %d has no case %d\n", p.seed, p.only)
		return 2
	}
	fmt.Print(f)
	if f.cas == 0 {
		return 0
	}
	return 1
}
