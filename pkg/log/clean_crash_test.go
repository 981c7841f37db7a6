package log

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// cleanCrash drives a compacted log, and before each change of the file system loses power in many ways and looks at
// what a restart finds.
type cleanCrash struct {
	t         *testing.T
	mem       *vfs.Mem
	log       *Log
	model     *keyed
	cfg       Config
	now       int64
	retention int64
	flushed   ident.Offset
	cleaned   ident.Offset // the checkpoint of the cleaner
	rng       *rand.Rand
	seeds     uint64
	cases     int
	finished  int // restarts that finished an exchange
	current   string
}

func (c *cleanCrash) hook(op, path string) error {
	switch op {
	case vfs.OpRead, vfs.OpOpen, vfs.OpStat, vfs.OpReadDir, vfs.OpClose:
		return nil
	}
	for _, keep := range []int{0, 50, 100} {
		tries := uint64(1)
		if keep == 50 {
			tries = c.seeds
		}
		for seed := range tries {
			c.cases++
			rng := rand.New(rand.NewPCG(seed, uint64(c.cases)))
			if err := c.verify(c.mem.CrashClone(rng, keep), rng); err != nil {
				c.t.Fatalf("case %d (%s, before %s %s, keep %d %%, seed %d): %v", c.cases, c.current, op, path, keep, seed, err)
			}
		}
	}
	return nil
}

func (c *cleanCrash) verify(disk *vfs.Mem, rng *rand.Rand) error {
	cfg := c.cfg
	cfg.StartOffset = c.model.start
	cfg.ChoresApart = rng.IntN(2) == 0
	cfg.RecoveryPoint = []ident.Offset{0, c.flushed}[rng.IntN(2)]
	cfg.CleanOffset = []ident.Offset{0, c.cleaned}[rng.IntN(2)]
	if rng.IntN(3) == 0 {
		disk = crashInRecovery(disk, cfg, rng)
	}
	l, rec, err := Open(disk, "/data/t-0", cfg)
	if err != nil {
		return err
	}
	for _, r := range rec.Repairs {
		if bytes.HasPrefix([]byte(r), []byte("finished the compaction")) {
			c.finished++
		}
	}
	if l.Damaged() || l.EndOffset() < c.flushed {
		return fmt.Errorf("ends at %d, %d was flushed; %v", l.EndOffset(), c.flushed, rec.Repairs)
	}
	// What was compacted when power was lost counts as compacted already: it may be, or not.
	model := c.model.clone()
	for o := range model.end() {
		if _, ok := model.cleaned[o]; !ok {
			model.cleaned[o] = c.now
		}
	}
	if err := model.holds(l, c.now, c.retention, 0); err != nil {
		return fmt.Errorf("%w; %v", err, rec.Repairs)
	}
	got := l.producers.ends()
	l.producers.snapshots = nil
	if err := l.rebuildProducers(nil); err != nil {
		return err
	}
	if l.segments[0].base == 0 && !maps.Equal(got, l.producers.ends()) {
		return fmt.Errorf("producers are %v, the batches say %v", got, l.producers.ends())
	}
	// It goes on from there, with another compaction, and what that leaves survives a restart.
	raw := sequence(c.t, l, model.batchForEnd(l.EndOffset(), rng.IntN, c.now))
	if _, err := l.AppendAsLeader(raw, 1); err != nil {
		return err
	}
	if err := l.Roll(); err != nil {
		return err
	}
	compact(c.t, l, c.now)
	if err := model.holds(l, c.now, c.retention, l.CleanOffset()); err != nil {
		return fmt.Errorf("after another compaction: %w", err)
	}
	again, _, err := Open(disk.CrashClone(rng, 0), "/data/t-0", cfg)
	if err != nil {
		return err
	}
	if again.EndOffset() != l.FlushedOffset() {
		return fmt.Errorf("flushed to %d, then found %d", l.FlushedOffset(), again.EndOffset())
	}
	return model.holds(again, c.now, c.retention, l.CleanOffset())
}

// batchForEnd is batchFor at the end of a log that may have lost some.
func (k *keyed) batchForEnd(end ident.Offset, intN func(int) int, now int64) []byte {
	k.truncate(end)
	return k.batchFor(intN, now)
}

func (c *cleanCrash) append(n int) {
	c.t.Helper()
	c.current = "append"
	for range n {
		// What a crash on the way leaves of it must be known.
		raw := sequence(c.t, c.log, c.model.batchFor(c.rng.IntN, c.now))
		raw = compressed(c.t, raw, batch.Compression(c.rng.IntN(5)))
		if _, err := c.log.AppendAsLeader(raw, 1); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cleanCrash) flush() {
	c.t.Helper()
	c.current = "flush"
	o, err := c.log.Flush()
	if err != nil {
		c.t.Fatal(err)
	}
	c.flushed = o
}

func (c *cleanCrash) roll() {
	c.t.Helper()
	c.current = "roll"
	mustRoll(c.t, c.log)
}

func (c *cleanCrash) clean(between func()) bool {
	c.t.Helper()
	c.current = "compaction"
	run, err := c.log.BeginClean(c.now, c.log.EndOffset(), CleanOptions{Map: NewOffsetMap(0)})
	if err != nil || run == nil {
		c.t.Fatalf("nothing to compact: %v", err)
	}
	runErr := run.Run()
	if between != nil {
		between()
	}
	c.current = "exchange"
	done, err := c.log.EndClean(run, runErr)
	if err != nil {
		c.t.Fatal(err)
	}
	if !done {
		return false
	}
	for o := range run.Stats.To {
		if _, ok := c.model.cleaned[o]; !ok {
			c.model.cleaned[o] = c.now
		}
	}
	if err := c.model.holds(c.log, c.now, c.retention, c.log.CleanOffset()); err != nil {
		c.t.Fatal(err)
	}
	c.cleaned = c.log.CleanOffset()
	return true
}

func TestEveryCrashInACompactionLeavesTheOldOrTheNew(t *testing.T) {
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	c := &cleanCrash{t: t, mem: vfs.NewMem(), model: &keyed{cleaned: map[ident.Offset]int64{}}, now: 1_000_000, retention: 300,
		rng: rand.New(rand.NewPCG(3, 4)), seeds: seeds, current: "open"}
	c.cfg = Config{Settings: cleanSettings(c.retention)}
	l, _, err := Open(vfs.Inject(c.mem, c.hook), "/data/t-0", c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.log = l
	c.append(25)
	c.roll()
	c.flush()
	c.append(3) // not flushed
	if !c.clean(nil) {
		t.Fatal("given up")
	}
	c.now += 200
	c.append(12)
	c.roll()
	c.flush()
	c.clean(func() { c.append(3) })
	c.now += 200 // the first tombstones' time is over
	c.append(12)
	c.roll()
	c.flush()
	if !c.clean(nil) { // and segments become fewer
		t.Fatal("given up")
	}
	c.append(14)
	c.roll()
	c.append(2)
	c.flush()
	end := c.log.Segments()[len(c.log.Segments())-2]
	if c.clean(func() { // a truncation into what is being compacted
		c.current = "truncate"
		to := end + 1
		c.flushed = min(c.flushed, end)
		mustTruncate(t, c.log, to)
		c.model.truncate(c.log.EndOffset())
	}) {
		t.Fatal("compacted segments replaced truncated ones")
	}
	c.append(10)
	c.roll()
	c.flush()
	if !c.clean(nil) {
		t.Fatal("given up")
	}
	t.Logf("%d crashes, %d exchanges finished at the start", c.cases, c.finished)
	if c.finished == 0 {
		t.Fatal("no crash fell into an exchange")
	}
}

// A log that can't exchange its segments is poisoned, and the next start has all.
func TestFailedExchangeLosesNothing(t *testing.T) {
	broken := errors.New("input/output error")
	for at := 0; ; at++ {
		mem, model := vfs.NewMem(), &keyed{cleaned: map[ident.Offset]int64{}}
		left, armed := at, false
		fsys := vfs.Inject(mem, func(op, _ string) error {
			if armed && op != vfs.OpRead && op != vfs.OpClose {
				if left--; left == -1 {
					return broken
				}
			}
			return nil
		})
		cfg := Config{Settings: cleanSettings(100)}
		l, _ := mustOpen(t, fsys, cfg)
		rng := rand.New(rand.NewPCG(uint64(at), 1))
		for range 20 {
			if _, err := l.AppendAsLeader(sequence(t, l, model.batchFor(rng.IntN, 1000)), 1); err != nil {
				t.Fatal(err)
			}
		}
		mustRoll(t, l)
		mustFlush(t, l)
		armed = true
		c, err := l.BeginClean(2000, l.EndOffset(), CleanOptions{Map: NewOffsetMap(0)})
		if err != nil {
			t.Fatal(err)
		}
		done, err := l.EndClean(c, c.Run())
		armed = false
		if left >= 0 {
			if !done || err != nil {
				t.Fatalf("done %v, %v", done, err)
			}
			if at < 20 {
				t.Fatalf("only %d operations", at)
			}
			return
		}
		if done || !errors.Is(err, broken) {
			t.Fatalf("failure %d: done %v, %v", at, done, err)
		}
		again, _ := mustOpen(t, mem.CrashClone(nil, 100), cfg)
		if err := model.holds(again, 2000, 100, 0); err != nil || again.EndOffset() != model.end() {
			t.Fatalf("failure %d: %v", at, err)
		}
	}
}

// crashInRecovery lets the restart itself be cut off by another crash.
func crashInRecovery(disk *vfs.Mem, cfg Config, rng *rand.Rand) *vfs.Mem {
	left := rng.IntN(12)
	power := errors.New("power lost")
	_, _, err := Open(vfs.Inject(disk, func(op, _ string) error {
		if op == vfs.OpRead || op == vfs.OpOpen {
			return nil
		}
		if left--; left < 0 {
			return power
		}
		return nil
	}), "/data/t-0", cfg)
	if err != nil && !errors.Is(err, power) {
		return disk // the next Open says so
	}
	return disk.CrashClone(rng, 50)
}
