package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// model is what a log should hold: the epoch of each record from start on. A record's content follows from its
// epoch and offset.
type model struct {
	start  ident.Offset
	epochs []ident.Epoch
}

func (m model) end() ident.Offset { return m.start + ident.Offset(len(m.epochs)) }

func (m model) truncated(to ident.Offset) model {
	if to < m.start {
		return model{start: to}
	}
	return model{m.start, m.epochs[:min(to, m.end())-m.start]}
}

// holds says whether the log is a prefix of m.
func (m model) holds(l *Log, records map[ident.Offset]string) error {
	if l.EndOffset() > m.end() {
		return fmt.Errorf("ends at %d, model at %d", l.EndOffset(), m.end())
	}
	for o := max(l.StartOffset(), m.start); o < l.EndOffset(); o++ {
		want := string(value(m.epochs[o-m.start], o, 0))
		if got := records[o]; len(got) < len(want) || got[:len(want)] != want {
			return fmt.Errorf("record %d is %.20q, want %q", o, got, want)
		}
	}
	return nil
}

// crashRun drives a log through a scenario, and before each change of the file system loses power in many ways
// and looks at what a restart finds.
type crashRun struct {
	t       *testing.T
	mem     *vfs.Mem
	log     *Log
	cfg     Config
	before  model // what the log holds now
	after   model // what it will hold once the step that is under way is done
	flushed ident.Offset
	told    ident.Offset // the highest flushed offset of all times: a recovery point that nobody has taken back
	seeds   uint64
	cases   int
	bases   []ident.Offset // of the batches
	current string

	chores *Chores // under way, when the owner runs them
	ran    bool
	rng    *rand.Rand // decides when

	choresDone int
}

func (c *crashRun) hook(op, path string) error {
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
			clone := c.mem.CrashClone(rand.New(rand.NewPCG(seed, uint64(c.cases))), keep)
			if err := c.verify(clone, keep, rand.New(rand.NewPCG(uint64(c.cases), 7))); err != nil {
				c.t.Fatalf("case %d (%s, before %s %s, keep %d %%, seed %d): %v", c.cases, c.current, op, path, keep, seed, err)
			}
		}
	}
	return nil
}

// verify restarts on what the crash has left.
func (c *crashRun) verify(disk *vfs.Mem, keep int, rng *rand.Rand) error {
	cfg := c.cfg
	cfg.StopOnCorruption = rng.IntN(2) == 0
	cfg.StartOffset = c.before.start
	cfg.ChoresApart = rng.IntN(2) == 0
	stale := false
	switch rng.IntN(4) {
	case 0, 1:
		cfg.RecoveryPoint = min(c.flushed, c.after.end())
	case 2:
		cfg.RecoveryPoint, cfg.StopOnCorruption, stale = c.told, false, true
	}
	if rng.IntN(4) == 0 {
		disk = crashInRecovery(disk, cfg, rng)
	}
	l, rec, err := Open(disk, "/data/t-0", cfg)
	if err != nil {
		return err
	}
	// What a truncation had taken back is missed when the recovery point says that it was flushed.
	if l.Damaged() && !stale {
		return fmt.Errorf("taken for damage: %v", rec.Repairs)
	}
	quarantined := l.Damaged()
	if quarantined {
		if _, err := l.Quarantine(); err != nil {
			return err
		}
	}
	records := check(c.t, l)
	if err := c.before.holds(l, records); err != nil {
		if err2 := c.after.holds(l, records); err2 != nil {
			return fmt.Errorf("not before: %w; not after: %w", err, err2)
		}
	}
	if s := l.StartOffset(); s != c.before.start && s != c.after.start && (s < c.before.start || c.after.end() != c.before.end()) {
		return fmt.Errorf("starts at %d, not at %d or %d", s, c.before.start, c.after.start)
	}
	floor := min(c.flushed, c.before.end(), c.after.end())
	if keep == 100 {
		floor = min(c.before.end(), c.after.end())
	}
	if c.after.start < c.before.start || c.after.start > c.before.end() || len(c.after.epochs) == 0 {
		floor = 0 // truncated fully
	}
	if quarantined {
		r, ok := l.Refilling()
		if !ok || l.Damaged() || r.To < floor {
			return fmt.Errorf("after a quarantine, refilling %v to %d, damaged %v", ok, r.To, l.Damage())
		}
		floor = 0
	}
	if l.EndOffset() < floor {
		return fmt.Errorf("ends at %d, but %d was flushed; %v", l.EndOffset(), floor, rec.Repairs)
	}
	if l.FlushedOffset() != l.EndOffset() {
		return fmt.Errorf("flushed to %d of %d after recovery", l.FlushedOffset(), l.EndOffset())
	}
	if l.segments[0].base == 0 {
		got := string(l.producers.encode())
		l.producers.snapshots = nil
		if err := l.rebuildProducers(nil); err != nil {
			return err
		}
		if got != string(l.producers.encode()) {
			return errors.New("producer state is not what the batches say")
		}
	}
	// What recovery calls flushed must outlive the next loss of power.
	next, _, err := Open(disk.CrashClone(rng, 0), "/data/t-0", cfg)
	if err != nil {
		return err
	}
	if next.EndOffset() != l.FlushedOffset() {
		return fmt.Errorf("recovery said %d was flushed, the next one finds %d", l.FlushedOffset(), next.EndOffset())
	}
	return goOn(c.t, disk, l, cfg)
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

// goOn writes to the recovered log, closes it, and opens it once more.
func goOn(t *testing.T, disk *vfs.Mem, l *Log, cfg Config) error {
	end := l.EndOffset()
	mustAppend(t, l, 1000, 2, 30)
	mustClose(t, l)
	cfg.CleanShutdown, cfg.RecoveryPoint = true, end+2 // the owner writes it down before the mark
	again, rec, err := Open(disk, "/data/t-0", cfg)
	if err != nil {
		return err
	}
	if rec.Repaired() || again.EndOffset() != end+2 {
		return fmt.Errorf("after a clean shutdown: ends at %d, want %d; %v", again.EndOffset(), end+2, rec.Repairs)
	}
	check(t, again)
	return nil
}

// step does one thing; after is what the model will be.
func (c *crashRun) step(name string, after model, do func() error) {
	c.t.Helper()
	c.current, c.after = name, after
	if err := do(); err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	c.before = after
	if c.log.EndOffset() != after.end() || c.log.StartOffset() != after.start {
		c.t.Fatalf("%s: log is %d to %d, model %d to %d", name, c.log.StartOffset(), c.log.EndOffset(), after.start, after.end())
	}
	c.flushed = min(c.flushed, after.end())
	c.told = max(c.told, c.flushed)
	c.someChores()
}

// someChores begins, runs or ends chores, so that all that a log does may come between.
func (c *crashRun) someChores() {
	c.t.Helper()
	switch c.current = "chores"; c.rng.IntN(4) {
	case 0:
		if run := c.log.BeginChores(); run != nil {
			c.chores, c.ran = run, false
		}
	case 1, 2:
		if c.chores != nil {
			if err := c.chores.Run(); err != nil {
				c.t.Fatal(err)
			}
			c.ran = true
		}
	case 3:
		if c.chores != nil && c.ran {
			if err := c.log.EndChores(c.chores, nil); err != nil {
				c.t.Fatal(err)
			}
			c.chores = nil
			c.choresDone++
		}
	}
}

func (c *crashRun) append(e ident.Epoch, n, size int) {
	c.t.Helper()
	after := model{c.before.start, append(append([]ident.Epoch{}, c.before.epochs...), make([]ident.Epoch, n)...)}
	o := c.before.end()
	sequence := int32(0)
	if s := c.log.producers.byID[int64(e)]; s != nil && s.n > 0 {
		sequence = batch.AddSequence(s.batches[s.n-1].lastSequence, 1)
	}
	b := batch.NewBuilder(0, -1, 1000+int64(o)).Producer(int64(e), 0, sequence)
	c.bases = append(c.bases, o)
	for i := range n {
		after.epochs[len(after.epochs)-n+i] = e
		b.Append(nil, value(e, o+ident.Offset(i), size))
	}
	c.step("append", after, func() error { _, err := c.log.AppendAsLeader(b.Build(), e); return err })
}

func (c *crashRun) flush() {
	c.t.Helper()
	c.step("flush", c.before, func() error {
		o, err := c.log.Flush()
		c.flushed = o
		return err
	})
}

// truncate truncates at the start of the batch that holds to.
func (c *crashRun) truncate(to ident.Offset) {
	c.t.Helper()
	for c.bases[len(c.bases)-1] > to {
		c.bases = c.bases[:len(c.bases)-1]
	}
	to = c.bases[len(c.bases)-1]
	c.flushed = min(c.flushed, to)
	c.step(fmt.Sprintf("truncate to %d", to), c.before.truncated(to), func() error { return c.log.Truncate(to) })
}

func newCrashRun(t *testing.T, cfg Config, seeds uint64) *crashRun {
	c := &crashRun{t: t, mem: vfs.NewMem(), cfg: cfg, seeds: seeds, rng: rand.New(rand.NewPCG(5, 6))}
	c.current = "open"
	l, _, err := Open(vfs.Inject(c.mem, c.hook), "/data/t-0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.log = l
	return c
}

func TestEveryCrashLeavesAPrefixWithAllThatWasFlushed(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	t.Run("chores at once", func(t *testing.T) { crashScenario(t, false, seeds, 0) })
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("chores apart %d", seed), func(t *testing.T) { crashScenario(t, true, seeds, seed) })
	}
}

func crashScenario(t *testing.T, apart bool, seeds, when uint64) {
	c := newCrashRun(t, Config{Settings: Settings{SegmentBytes: 1500, IndexIntervalBytes: 300}, ChoresApart: apart}, seeds)
	c.rng = rand.New(rand.NewPCG(when, 6))
	for i := range 6 {
		c.append(1, 1+i%3, 150)
	}
	c.flush()
	for i := range 12 { // rolls, some of it unflushed
		c.append(2, 2, 40+60*(i%4))
		if i%5 == 4 {
			c.flush()
		}
	}
	c.truncate(c.before.end() - 5)
	c.append(3, 2, 700)
	c.append(3, 1, 700)
	c.flush()
	c.truncate(5)  // back over several segments
	for range 11 { // and on, unflushed, to where it had been flushed
		c.append(4, 2, 250)
	}
	c.flush()
	start := c.before.start + 7
	c.step("move the start", model{start, c.before.epochs[7:]}, func() error { return c.log.SetStartOffset(start) })
	c.append(5, 2, 100)
	c.step("truncate fully", model{start: 50}, func() error { return c.log.TruncateFully(50) })
	c.flushed = 50
	c.append(6, 2, 100)
	c.flush()
	c.append(6, 2, 600)
	t.Logf("%d crashes, chores done %d times", c.cases, c.choresDone)
	if apart == (c.choresDone == 0) {
		t.Fatal("no crash fell into chores")
	}
}
