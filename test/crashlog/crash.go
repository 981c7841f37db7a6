package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// percents are how much of what was not synced a loss of power leaves; 100 is a killed process.
var percents = []int{0, 0, 10, 30, 50, 70, 90, 100}

// boundary plays the cases of one point in the history: right before an operation, or after a step.
func (r *run) boundary(op, path string) {
	r.aCase(op, path, 0, false)
	r.aCase(op, path, percents[1+r.rngOf(r.cases).IntN(len(percents)-1)], false)
	r.aCase(op, path, percents[r.rngOf(r.cases).IntN(len(percents))], true)
}

// rngOf is the randomness of one case, so that it can be played without the ones before it.
func (r *run) rngOf(n int) *rand.Rand { return rand.New(rand.NewPCG(r.seed, uint64(n)<<8|2)) }

func (r *run) aCase(op, path string, percent int, damage bool) {
	r.cases++
	if r.only > 0 && r.only != r.cases {
		return
	}
	n := r.cases
	rng := r.rngOf(n)
	rng.Uint64()
	c := &kase{settings: r.settings, mutant: r.mutant, rng: rng, expect: r.expectations(percent == 100 && !r.unsure && !damage), clock: r.clock}
	if path != "" {
		path = strings.TrimPrefix(path, dataDir+"/")
	}
	c.note("%s: power lost before %s %s, keeping %d %% of what was not synced", r.step, op, path, percent)
	if op == "done" {
		c.what[0] = fmt.Sprintf("%s: power lost after it, keeping %d %% of what was not synced", r.step, percent)
	}
	disk := r.mem.CrashClone(rng, percent)
	var err error
	if damage {
		kind := c.flip(disk)
		r.stats.flips.add(kind)
		err = c.damaged(disk, kind)
	} else {
		if rng.IntN(4) == 0 {
			disk = c.crashInRecovery(disk)
			r.stats.cutRecoveries.Add(1)
		}
		err = c.play(disk)
	}
	r.stats.cases.Add(1)
	r.stats.ops.add(op)
	r.stats.kept.add(fmt.Sprintf("%d %%", percent))
	if err != nil {
		f := r.failed(n, "%v", err)
		f.trace = append(f.trace, c.what...)
		panic(f)
	}
	if r.only > 0 {
		panic(heldCase(c.what))
	}
}

// kase is one restart on one disk.
type kase struct {
	settings *settings
	mutant   *mutant
	rng      *rand.Rand
	expect   []expectation
	clock    int64
	what     []string
}

func (c *kase) note(format string, args ...any) {
	c.what = append(c.what, fmt.Sprintf(format, args...))
}

// crashInRecovery lets the restart be cut off by another loss of power.
func (c *kase) crashInRecovery(disk *vfs.Mem) *vfs.Mem {
	left := c.rng.IntN(12)
	percent := percents[c.rng.IntN(len(percents))]
	_, err := startOwner(vfs.Inject(c.mutant.disk(disk), func(op, _ string) error {
		switch op {
		case vfs.OpRead, vfs.OpOpen, vfs.OpStat, vfs.OpReadDir, vfs.OpClose:
			return nil
		}
		if left--; left < 0 {
			return errPower
		}
		return nil
	}), c.settings, c.mutant)
	if err != nil && !errors.Is(err, errPower) {
		return disk // the next start says so
	}
	c.note("and again in the start after it, keeping %d %%", percent)
	return disk.CrashClone(c.rng, percent)
}

// play starts, compares, starts once more, goes on, stops and starts.
func (c *kase) play(disk *vfs.Mem) error {
	o, err := startOwner(c.mutant.disk(disk), c.settings, c.mutant)
	if err != nil {
		return err
	}
	histories := make([]*history, len(o.logs))
	for i := range o.logs {
		if histories[i], err = c.expect[i].check(o, i, c.rng); err != nil {
			return err
		}
	}
	for _, percent := range []int{0, 100} {
		if err := c.again(disk.CrashClone(c.rng, percent), o, percent); err != nil {
			return err
		}
	}
	return c.goOn(disk, o, histories)
}

// again starts a second time, after a start that nothing has followed: there must be nothing left to do.
func (c *kase) again(disk *vfs.Mem, first *owner, percent int) error {
	o, err := startOwner(c.mutant.disk(disk), c.settings, c.mutant)
	if err != nil {
		return fmt.Errorf("second start, keeping %d %%: %w", percent, err)
	}
	for i, l := range o.logs {
		before := first.logs[i]
		if o.recoveries[i].Repaired() {
			return fmt.Errorf("second start, keeping %d %%: partition %d: there was something to repair again: %v, after %v", percent, i, o.recoveries[i].Repairs, first.recoveries[i].Repairs)
		}
		if l.StartOffset() != before.StartOffset() || l.EndOffset() != before.EndOffset() {
			return fmt.Errorf("second start, keeping %d %%: partition %d is %d to %d, was %d to %d", percent, i, l.StartOffset(), l.EndOffset(), before.StartOffset(), before.EndOffset())
		}
	}
	return nil
}

// goOn writes to the recovered logs, stops in order, looks at every file, and starts from the mark.
func (c *kase) goOn(disk *vfs.Mem, o *owner, histories []*history) error {
	for i, l := range o.logs {
		e := max(l.LatestEpoch(), 0) + 1
		for range 1 + c.rng.IntN(3) {
			b := batch.NewBuilder(l.EndOffset(), e, c.clock)
			for range 1 + c.rng.IntN(3) {
				b.Append(nil, fmt.Appendf(nil, "later %d", c.rng.Uint64()))
			}
			raw := b.Build()
			if _, err := l.AppendAsLeader(raw, e); err != nil {
				return fmt.Errorf("going on: %w", err)
			}
			h, err := batch.ParseHeader(raw)
			if err != nil {
				return err
			}
			histories[i] = histories[i].appended([]entry{{h, raw}})
		}
	}
	if err := o.stop(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	for i := range o.logs {
		if err := checkFiles(disk, partitionDir(i), histories[i], c.expect[i].expired || histories[i].beheaded); err != nil {
			return fmt.Errorf("files after the stop: %w", err)
		}
	}
	disk = disk.CrashClone(c.rng, 0)
	next, err := startOwner(c.mutant.disk(disk), c.settings, c.mutant)
	if err != nil {
		return fmt.Errorf("start after a stop: %w", err)
	}
	if !next.clean {
		return errors.New("start after a stop: there is no mark of it")
	}
	for i, h := range histories {
		e := expectation{before: h, after: h, floor: h.end, promised: h.end, startUpTo: h.start, expired: c.expect[i].expired}
		if _, err := e.check(next, i, c.rng); err != nil {
			return fmt.Errorf("start after a stop: %w", err)
		}
	}
	if _, err := disk.Stat(filepath.Join(dataDir, log.CleanShutdownFile)); err == nil {
		return errors.New("the mark of a clean shutdown is still there after the start")
	}
	return nil
}
