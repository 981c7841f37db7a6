package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// run is one history: what its seed says, until a failure.
type run struct {
	seed     uint64
	rng      *rand.Rand
	settings *settings
	mutant   *mutant
	stats    *stats
	only     int // the one case that is played, 0 for all

	mem    *vfs.Mem
	fsys   vfs.FS // mem, seen through the hook
	owner  *owner
	parts  []*part
	cases  int
	step   string
	trace  []string
	clock  int64 // ms since 1970
	unique int

	// unsure is set while a start after a loss of power has not yet said what is there.
	unsure  bool
	powerIn int // changes of the disk until the power goes; negative: it stays
}

// part is what a history knows of one partition.
type part struct {
	index         int
	log           *log.Log
	before, after *history     // around the step that is under way
	written       ident.Offset // the log start that the owner has surely written down
	startUpTo     ident.Offset // to where the step under way may move the start
	resets        bool         // the step under way may lose everything
	promised      ident.Offset // what was called flushed and has not been truncated since
	flush         *log.PendingFlush
	chores        *log.Chores
	choresErr     error
	choresDone    bool // chores have run
	clean         *log.Clean
	cleanErr      error
	cleaned       bool         // clean has run
	committed     ident.Offset // no truncation goes below, where logs are compacted
	epoch         ident.Epoch
	expired       bool // producers were forgotten
}

// errPower is what every change of the disk returns once the power is gone.
var errPower = errors.New("power lost")

// heldCase ends a history of which one case was to be played, and held; it says what the case was.
type heldCase []string

// failure ends a history.
type failure struct {
	seed  uint64
	cas   int // 0: not in a case
	what  string
	trace []string
}

// String tells of the failure, and how to have it again.
func (f *failure) String() string {
	out := fmt.Sprintf("FAILED: %s\n", f.what)
	for _, line := range f.trace {
		out += "  " + line + "\n"
	}
	if f.cas > 0 {
		out += fmt.Sprintf("again: go run ./test/crashlog -seed=%d -case=%d\n", f.seed, f.cas)
	} else {
		out += fmt.Sprintf("again: go run ./test/crashlog -seed=%d -workers=1\n", f.seed)
	}
	return out
}

// play runs the history of a seed and returns its first failure.
func play(seed uint64, m *mutant, st *stats, only int) (failed *failure) {
	r := &run{seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), mutant: m, stats: st, only: only,
		mem: vfs.NewMem(), clock: 1_700_000_000_000, powerIn: -1}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *failure:
			failed = e
		case heldCase:
			failed = &failure{seed: seed, what: "nothing: the case holds", trace: append(r.trace, e...)}
		default:
			failed = r.failed(0, "panic: %v\n%s", e, debug.Stack())
		}
	}()
	r.settings = drawSettings(r.rng)
	r.note("settings %+v", *r.settings)
	for i := range r.settings.partitions {
		h := emptied(0)
		r.parts = append(r.parts, &part{index: i, before: h, after: h})
	}
	r.start(true)
	for range r.settings.steps {
		r.draw()
	}
	r.stopCleaning()
	r.named("stop", r.owner.stop)
	r.stats.histories.Add(1)
	return nil
}

func (r *run) failed(cas int, format string, args ...any) *failure {
	return &failure{seed: r.seed, cas: cas, what: fmt.Sprintf(format, args...), trace: slices.Clone(r.trace)}
}

func (r *run) fail(format string, args ...any) { panic(r.failed(0, format, args...)) }

// note adds a line to the trace; only the last ones are kept unless one case is played.
func (r *run) note(format string, args ...any) {
	const kept = 24
	r.trace = append(r.trace, fmt.Sprintf(format, args...))
	if len(r.trace) > kept && r.only == 0 {
		r.trace = slices.Delete(r.trace, 0, 1)
	}
}

// hook runs before each operation on the disk.
func (r *run) hook(op, path string) error {
	switch op {
	case vfs.OpRead, vfs.OpOpen, vfs.OpStat, vfs.OpReadDir, vfs.OpClose, vfs.OpLock:
		return nil
	}
	if r.powerIn == 0 {
		return errPower
	}
	if r.powerIn > 0 {
		r.powerIn--
	}
	if r.only > 0 {
		r.note("    %s %s", op, strings.TrimPrefix(path, dataDir+"/"))
	}
	r.boundary(op, path)
	return nil
}

// start opens the data directory through the hook. What is then there becomes the history. keepAll says that
// nothing but the process was lost.
func (r *run) start(keepAll bool) {
	r.fsys = vfs.Inject(r.mutant.disk(r.mem), r.hook)
	r.step = "start"
	r.note("start")
	r.unsure = !keepAll
	expect := r.expectations(keepAll)
	var err error
	if r.owner, err = startOwner(r.fsys, r.settings, r.mutant); err != nil {
		r.fail("%v", err)
	}
	for i, p := range r.parts {
		p.log, p.flush, p.clean, p.chores = r.owner.logs[i], nil, nil, nil
		found, err := expect[i].check(r.owner, i, r.rng)
		if err != nil {
			r.fail("start: %v", err)
		}
		p.before, p.after = found, found
		p.promised, p.startUpTo, p.resets = p.log.FlushedOffset(), 0, false
		p.written = r.owner.files[log.LogStartCheckpointFile][topicIndex(i)]
	}
	r.unsure = false
	r.stats.steps.add("start")
}

// named does one step: what the parts' after say will hold then, and the crashes within the step may leave either.
func (r *run) named(name string, do func() error) {
	r.step = name
	r.note("%s", name)
	r.stats.steps.add(strings.Fields(name)[0])
	err := do()
	if errors.Is(err, errPower) {
		r.restart(false)
		return
	}
	if err != nil {
		r.fail("%s: %v", name, err)
	}
	for i, p := range r.parts {
		p.before, p.startUpTo, p.resets = p.after, 0, false
		if s, e := p.log.StartOffset(), p.log.EndOffset(); s != p.before.start || e != p.before.end {
			r.fail("%s: partition %d is %d to %d, want %d to %d", name, i, s, e, p.before.start, p.before.end)
		}
		flushed := p.log.FlushedOffset()
		if flushed < p.promised || flushed > p.before.end {
			r.fail("%s: partition %d is flushed to %d, after %d and with its end at %d", name, i, flushed, p.promised, p.before.end)
		}
		p.promised = flushed
	}
	r.boundary("done", "")
}

// restart takes the disk as a crash leaves it and starts from there.
func (r *run) restart(keepAll bool) {
	percent := percents[r.rng.IntN(len(percents))]
	if keepAll {
		percent = 100
	}
	r.note("crash, keeping %d %%", percent)
	r.mem = r.mem.CrashClone(r.rng, percent)
	r.powerIn = -1
	r.start(percent == 100)
}

// restartCleanly starts after a stop, from the same disk or as a loss of power leaves it.
func (r *run) restartCleanly() {
	if r.rng.IntN(2) == 0 {
		r.restart(false)
		return
	}
	r.powerIn = -1
	r.start(true)
}
