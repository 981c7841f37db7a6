package log

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/highwater-io/highwater/pkg/vfs"
)

// What a log leaves to be done beside its owner, so that no append waits for it: the index files and producer snapshots
// of sealed segments are written, the files of dropped ones are unlinked, the file of the next segment is made ahead,
// and the kernel is told to begin with writing what was appended.
//
// With Config.ChoresApart the owner runs them: BeginChores under its lock, Run without it, EndChores under it again, when
// ChoresWanted says so. Else every call does those that it leaves, at its end.
//
// Whatever the order, nothing is lost: a flush writes what is pending of the segments that it covers, a truncation
// completes or cancels it, Close does all that is left, and a start removes what a crash has left.

const (
	// nextSegmentFile is the file that the next segment will get. It is empty until it is renamed. Apache Kafka ignores
	// it, and a start removes it.
	nextSegmentFile = "next-segment.tmp"
	// unlinkStepBytes is how much of a dropped segment is given back at once: file systems free the blocks of a file
	// while others wait for their journal.
	unlinkStepBytes = 64 << 20
	// writeBackBytes is how much may be appended before the kernel is told to begin writing it, so that it never has
	// gigabytes to write when somebody waits.
	writeBackBytes = 8 << 20
)

// Chores are between BeginChores and EndChores.
type Chores struct {
	fsys      vfs.FS
	dir       string
	seals     []*seal
	doomed    []*doomed
	prepare   bool
	writeBack *handle // of the active segment, one reference
	from, to  int64   // what is to be written of it

	prepared bool
	mu       sync.Mutex // held by Run
	stopped  atomic.Bool
	err      error // the outcome of Run
}

// doomed are the files of a segment that was dropped, by their new names.
type doomed struct {
	segment *segment
	bytes   int64
	files   []string // the batches first
	gone    atomic.Bool
}

// ChoresWanted says whether BeginChores has something to do.
func (l *Log) ChoresWanted() bool {
	if l.chores != nil || l.err != nil {
		return false
	}
	return len(l.seals) > 0 || l.wantsNext() || l.writeBackDue() > 0 || l.firstUnused() != nil
}

// BeginChores takes what there is to do; it is nil when there is nothing, or when chores are under way.
func (l *Log) BeginChores() *Chores {
	if !l.ChoresWanted() {
		return nil
	}
	c := &Chores{fsys: l.fsys, dir: l.dir, prepare: l.wantsNext()}
	c.seals = append(c.seals, l.seals...)
	for _, d := range l.doomed {
		if d.segment.unused() {
			c.doomed = append(c.doomed, d)
		}
	}
	if a := l.active(); l.writeBackDue() > 0 {
		c.writeBack, c.from, c.to = a.pinned.Load(), a.writtenBack, a.size
		c.writeBack.refs.Add(1)
		a.writtenBack = a.size
	}
	l.chores = c
	return c
}

// Run does the chores. It may run beside everything the owner does.
func (c *Chores) Run() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = c.run()
	}
	return c.err
}

func (c *Chores) run() error {
	for _, s := range c.seals {
		if c.stopped.Load() {
			return nil
		}
		if err := s.write(); err != nil {
			return err
		}
	}
	if c.prepare && !c.stopped.Load() {
		if err := vfs.WriteFile(c.fsys, filepath.Join(c.dir, nextSegmentFile), nil, false); err != nil {
			return err
		}
		c.prepared = true
	}
	if c.writeBack != nil && !c.stopped.Load() {
		if err := c.writeBack.file.WriteBack(c.from, c.to-c.from); err != nil {
			return err
		}
	}
	for _, d := range c.doomed {
		if err := d.unlink(c.fsys, true, c.stopped.Load); err != nil {
			return err
		}
	}
	return nil
}

// unlink removes the files, the large one in steps if nobody reads from it. What is missing is gone already.
func (d *doomed) unlink(fsys vfs.FS, inSteps bool, stopped func() bool) error {
	if inSteps && d.bytes > unlinkStepBytes {
		if err := d.shrink(fsys, stopped); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if stopped() {
		return nil
	}
	for _, name := range d.files {
		if err := removeIfThere(fsys, name); err != nil {
			return err
		}
	}
	d.gone.Store(true)
	return nil
}

func (d *doomed) shrink(fsys vfs.FS, stopped func() bool) error {
	f, err := fsys.OpenFile(d.files[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for size := d.bytes - unlinkStepBytes; size > 0 && !stopped(); size -= unlinkStepBytes {
		if err := f.Truncate(size); err != nil {
			f.Close()
			return err
		}
	}
	return f.Close()
}

// stop makes sure that no chore runs from now on.
func (c *Chores) stop() {
	c.stopped.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
}

// EndChores takes the outcome of Run. An error poisons the log.
func (l *Log) EndChores(c *Chores, runErr error) error {
	if l.chores != c {
		return l.err // it was closed meanwhile
	}
	l.takeChores()
	if runErr != nil {
		return l.poison("chores", runErr)
	}
	return l.err
}

// takeChores takes over what the chores under way have done.
func (l *Log) takeChores() {
	c := l.chores
	l.chores = nil
	if c.writeBack != nil {
		c.writeBack.release()
	}
	l.prepared = l.prepared || c.prepared
	if len(c.seals) > 0 {
		l.dirDirty = true
	}
	l.collectSeals()
	l.collectDoomed()
}

// RunChores does the chores that there are, here and now.
func (l *Log) RunChores() error {
	if c := l.BeginChores(); c != nil {
		return l.EndChores(c, c.Run())
	}
	return l.err
}

// settle does the chores that a call has left, unless somebody else does.
func (l *Log) settle() error {
	if l.cfg.ChoresApart {
		return nil
	}
	return l.RunChores()
}

// wantsNext says whether the file of the next segment is worth making: when that is likely to come soon.
func (l *Log) wantsNext() bool {
	return l.cfg.ChoresApart && !l.prepared && l.active().size > l.cfg.SegmentBytes/2
}

// writeBackDue is how much was appended since the kernel was told to write, once that is enough.
func (l *Log) writeBackDue() int64 {
	a := l.active()
	if n := a.size - a.writtenBack; l.cfg.ChoresApart && n >= writeBackBytes {
		return n
	}
	return 0
}

// createNext makes the file of a new active segment, from the one that is prepared when there is one.
func (l *Log) createNext(s *segment) error {
	if !l.prepared {
		return s.create()
	}
	l.prepared = false
	if err := l.fsys.Rename(filepath.Join(l.dir, nextSegmentFile), s.path(logSuffix)); err != nil {
		return err
	}
	return s.pin()
}

// doom renames the files of a segment that the view no longer holds, to be unlinked by a chore, once nobody reads from
// them. The batches go first: an index alone is removed at the next start, batches without it would be batches still.
func (l *Log) doom(s *segment) error {
	s.drop()
	d := &doomed{segment: s, bytes: s.size}
	for i := len(segmentSuffixes) - 1; i >= 0; i-- {
		from := s.path(segmentSuffixes[i])
		to := l.doomedName(from)
		if err := renameIfThere(l.fsys, from, to); err != nil {
			return err
		}
		d.files = append(d.files, to)
	}
	l.doomed = append(l.doomed, d)
	return nil
}

// doomedName is Kafka's, with a number when a file of that name waits to be unlinked.
func (l *Log) doomedName(name string) string {
	out := name + deletedSuffix
	for n := 1; l.isDoomed(out); n++ {
		out = name + "." + strconv.Itoa(n) + deletedSuffix
	}
	return out
}

func (l *Log) isDoomed(name string) bool {
	for _, d := range l.doomed {
		for _, f := range d.files {
			if f == name {
				return true
			}
		}
	}
	return false
}

// firstUnused returns a dropped segment that nobody reads from any more.
func (l *Log) firstUnused() *doomed {
	for _, d := range l.doomed {
		if d.segment.unused() {
			return d
		}
	}
	return nil
}

func (l *Log) collectDoomed() {
	kept := l.doomed[:0]
	for _, d := range l.doomed {
		if !d.gone.Load() {
			kept = append(kept, d)
		}
	}
	clear(l.doomed[len(kept):])
	l.doomed = kept
}

// stopChores ends the chores under way, for a log that is being closed.
func (l *Log) stopChores() {
	if c := l.chores; c != nil {
		c.stop()
		l.takeChores()
		if c.err != nil {
			_ = l.poison("chores", c.err)
		}
	}
}

// finishChores does all that is left, for a log that is closed in order.
func (l *Log) finishChores() error {
	if l.prepared {
		if err := removeIfThere(l.fsys, filepath.Join(l.dir, nextSegmentFile)); err != nil {
			return err
		}
	}
	for _, d := range l.doomed {
		if err := d.unlink(l.fsys, d.segment.unused(), func() bool { return false }); err != nil {
			return err
		}
	}
	l.collectDoomed()
	return nil
}
