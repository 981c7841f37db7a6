package main

import (
	"flag"
	"fmt"
	"os"
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
	flag.Parse()
	os.Exit(p.run())
}

// proof plays histories one after the other until its time is over or one fails.
type proof struct {
	duration time.Duration
	least    int64
	seed     uint64
	only     int
	workers  int
	stats    *stats
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
			for failed.Load() == nil && time.Since(started) < p.duration {
				if f := play(next.Add(1)-1, nil, p.stats, 0); f != nil {
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
	if missing := p.stats.missing(); len(missing) > 0 {
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
	f := play(p.seed, nil, p.stats, p.only)
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
