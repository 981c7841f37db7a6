package log

import (
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"sync/atomic"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// Log is one partition's log. See the package comment for who may call what when.
type Log struct {
	fsys vfs.FS
	dir  string
	cfg  Config

	segments  []*segment // in offset order; the last is the active one; never empty
	start     ident.Offset
	durable   ident.Offset // DurableStartOffset
	epochs    *epoch.Table
	producers *Producers

	clean    ident.Offset // what lies below was compacted: the first dirty offset
	gaps     bool         // batches with gaps between them were met
	cleaning *Clean       // between BeginClean and EndClean

	// Of Open, see weighRecoveryPoint: what is below is flushed, if it is there; the log had come to there; it was closed
	// there, noOffset when that is not known.
	scanPoint, reached, closedAt ident.Offset
	exchanged                    ident.Offset // below it compacted segments took their place in Open: they were synced before

	flushed        atomic.Int64
	unflushedBytes int64           // appended since the last flush began
	epochsDirty    bool            // the table differs from its file
	dirDirty       bool            // files were created since the directory was synced
	truncations    int             // counts them, so that a flush that ran beside one says nothing
	pending        []*PendingFlush // between BeginFlush and EndFlush
	flushes        int             // counts them
	syncs          syncs
	err            error
	headers        []batch.Header // scratch of append

	seals    []*seal   // of sealed segments, in offset order, to be written
	doomed   []*doomed // dropped segments, to be unlinked
	prepared bool      // nextSegmentFile is there
	chores   *Chores   // between BeginChores and EndChores

	refilling  *Refill // set by Quarantine
	damageFile string  // content of DamageCheckpointFile, empty when there is none
	scrub      scrubState

	view atomic.Pointer[view]
}

// view is what readers see.
type view struct {
	sealed []segmentView // shared by all views until a segment is added or goes
	active segmentView
	start  ident.Offset
	end    ident.Offset
	damage []Damage
}

type segmentView struct {
	*segment
	size int64
	next ident.Offset
}

func (v *view) count() int { return len(v.sealed) + 1 }

func (v *view) at(i int) *segmentView {
	if i == len(v.sealed) {
		return &v.active
	}
	return &v.sealed[i]
}

// find returns the index of the segment that holds offset o, at least 0.
func (v *view) find(o ident.Offset) int {
	return max(0, sort.Search(v.count(), func(i int) bool { return v.at(i).base > o })-1)
}

func (l *Log) active() *segment { return l.segments[len(l.segments)-1] }

// publish shows the log's state to readers. sealedChanged says that more than the active segment has changed.
func (l *Log) publish(sealedChanged bool) {
	a := l.active()
	v := &view{active: segmentView{a, a.size, a.next}, start: l.start, end: a.next}
	if old := l.view.Load(); old != nil && !sealedChanged {
		v.sealed, v.damage = old.sealed, old.damage
	} else {
		v.damage = l.allDamage()
		for _, s := range l.segments[:len(l.segments)-1] {
			v.sealed = append(v.sealed, segmentView{s, s.size, s.next})
		}
	}
	l.view.Store(v)
}

// StartOffset is the first offset that can be read.
func (l *Log) StartOffset() ident.Offset { return l.view.Load().start }

// DurableStartOffset is the StartOffset that may be written down: the last one that a flush has covered. So what is
// written down is never beyond what a crash leaves of the log, its leader epochs begin there, and no segment lies wholly
// below; a start that contradicts one of them has come to be wrong. It belongs to the log's owner.
func (l *Log) DurableStartOffset() ident.Offset { return l.durable }

// EndOffset is the offset that the next record will get.
func (l *Log) EndOffset() ident.Offset { return l.view.Load().end }

// FlushedOffset is the offset below which everything is durable. It falls with a truncation.
func (l *Log) FlushedOffset() ident.Offset { return ident.Offset(l.flushed.Load()) }

// Size is the length of all segments in bytes.
func (l *Log) Size() int64 {
	v := l.view.Load()
	n := v.active.size
	for i := range v.sealed {
		n += v.sealed[i].size
	}
	return n
}

// Dir is the log's directory.
func (l *Log) Dir() string { return l.dir }

// Segments returns the base offsets of the segments, in order.
func (l *Log) Segments() []ident.Offset {
	v := l.view.Load()
	out := make([]ident.Offset, 0, v.count())
	for i := range v.count() {
		out = append(out, v.at(i).base)
	}
	return out
}

// Err is the error that poisoned the log, nil while it is healthy.
func (l *Log) Err() error { return l.err }

// Producers is the state of the idempotent producers. It belongs to the log's owner.
func (l *Log) Producers() *Producers { return l.producers }

// poison notes the first error of a write and returns it.
func (l *Log) poison(what string, err error) error {
	if l.err == nil {
		l.err = fmt.Errorf("log %s: %s: %w", l.dir, what, err)
	}
	return l.err
}

// Close flushes everything, indexes and the state of the producers too, and closes the files, so that the log
// can be opened with CleanShutdown. Chunks that are not yet released stay readable. A log that was poisoned is
// closed as well, and the error returned: it was not a clean shutdown.
func (l *Log) Close() error {
	if errors.Is(l.err, ErrClosed) {
		return nil
	}
	l.stopChores()
	err := l.err
	if err == nil {
		err = l.closeCleanly()
	}
	for _, s := range l.segments {
		s.drop()
	}
	l.err = fmt.Errorf("log %s: %w", l.dir, ErrClosed)
	return err
}

func (l *Log) closeCleanly() error {
	a := l.active()
	if err := a.writeIndexes(); err != nil {
		return l.poison("write index", err)
	}
	l.dirDirty = true
	if err := l.writeSegments(); err != nil {
		return l.poison("write "+SegmentCheckpointFile, err)
	}
	if err := l.producers.writeSnapshot(a.next); err != nil {
		return l.poison("write producer snapshot", err)
	}
	if err := l.finishChores(); err != nil {
		return l.poison("unlink dropped segments", err)
	}
	_, err := l.Flush()
	return err
}

func removeIfThere(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
