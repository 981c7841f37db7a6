package log

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// Flush makes everything durable that was appended before, and returns the offset up to which that is.
func (l *Log) Flush() (ident.Offset, error) {
	f, err := l.BeginFlush()
	if err != nil {
		return l.FlushedOffset(), err
	}
	return l.EndFlush(f, f.Sync())
}

// PendingFlush is a flush between BeginFlush and EndFlush.
type PendingFlush struct {
	fsys        vfs.FS
	dir         string
	upTo        ident.Offset
	start       ident.Offset // of the log
	records     int64
	bytes       int64
	truncations int
	segments    []*segment // pinned until the flush has ended
	files       []*handle  // of these segments, one reference each
	seals       []*seal    // to be written before they are synced
	indexes     []string   // index files and producer snapshots
	syncDir     bool
	epochs      []byte // content of leader-epoch-checkpoint, nil when it need not be written
	number      int    // counts the flushes of this log
	syncs       *syncs
}

// syncs is what flushes of one log share, since the owner may have to flush while another flush runs.
type syncs struct {
	mu sync.Mutex
	// epochsOf is the latest flush whose leader epochs, or later ones, are in the file: an older flush that comes
	// to it later must not put its own there.
	epochsOf int
	// err is the first sync that failed. No later one may succeed, even before EndFlush has been told: the kernel
	// reports a page that it could not write only once.
	err error
}

// BeginFlush notes what has to be synced. The owner may let go of its lock, call Sync, which takes long, and
// pass the outcome to EndFlush under the lock again; appends may go on meanwhile. One that begins while another is
// under way takes over all that the other has to sync: whether that has happened yet is not known.
func (l *Log) BeginFlush() (*PendingFlush, error) {
	if l.err != nil {
		return nil, l.err
	}
	var indexes []string
	for _, other := range l.pending {
		for _, s := range other.segments {
			s.dirty = true
		}
		indexes = append(indexes, other.indexes...)
		l.epochsDirty = l.epochsDirty || other.epochs != nil
		l.dirDirty = l.dirDirty || other.syncDir
	}
	l.flushes++
	f := &PendingFlush{fsys: l.fsys, dir: l.dir, upTo: l.active().next, truncations: l.truncations, syncDir: l.dirDirty,
		indexes: indexes, number: l.flushes, syncs: &l.syncs, bytes: l.unflushedBytes, start: l.start}
	f.records = int64(f.upTo - l.FlushedOffset())
	l.unflushedBytes = 0
	for _, s := range l.segments {
		if s.dirty {
			h := s.pinned.Load()
			h.refs.Add(1)
			f.segments, f.files = append(f.segments, s), append(f.files, h)
			s.dirty = false
		}
		if s.indexDirty {
			f.indexes = append(f.indexes, s.path(indexSuffix), s.path(timeIndexSuffix))
			s.indexDirty = false
		}
	}
	for _, o := range l.producers.unsynced {
		f.indexes = append(f.indexes, l.producers.path(o))
	}
	l.producers.unsynced = nil
	if l.epochsDirty {
		f.epochs = encodeEpochs(l.epochs.Entries())
		l.epochsDirty = false
	}
	f.seals = append(f.seals, l.seals...)
	f.syncDir = f.syncDir || len(f.seals) > 0
	l.active().writtenBack = l.active().size
	l.dirDirty = false
	l.pending = append(l.pending, f)
	return f, nil
}

// Records and Bytes are how much of the log the flush makes durable; for metrics.
func (f *PendingFlush) Records() int64 { return f.records }

// Bytes are those that were appended since the flush before it began.
func (f *PendingFlush) Bytes() int64 { return f.bytes }

// Sync does the flush. It may run beside appends.
func (f *PendingFlush) Sync() error {
	f.syncs.mu.Lock()
	defer f.syncs.mu.Unlock()
	if f.syncs.err == nil {
		f.syncs.err = f.sync()
	}
	return f.syncs.err
}

func (f *PendingFlush) sync() error {
	for _, s := range f.seals {
		if err := s.write(); err != nil {
			return err
		}
	}
	for _, h := range f.files {
		if err := h.file.Sync(); err != nil {
			return err
		}
	}
	for _, name := range f.indexes {
		if err := syncFile(f.fsys, name); err != nil {
			return err
		}
	}
	if f.epochs != nil && f.number > f.syncs.epochsOf {
		// Before the offset is called flushed: recovery trusts the table below it.
		f.syncs.epochsOf = f.number
		if err := vfs.WriteFileAtomic(f.fsys, filepath.Join(f.dir, EpochCheckpointFile), f.epochs); err != nil {
			return err
		}
	} else if f.syncDir {
		return f.fsys.SyncDir(f.dir)
	}
	return nil
}

// EndFlush notes the outcome of Sync and returns the offset up to which the log is durable. An error poisons it.
func (l *Log) EndFlush(f *PendingFlush, syncErr error) (ident.Offset, error) {
	l.pending = slices.DeleteFunc(l.pending, func(p *PendingFlush) bool { return p == f })
	for _, h := range f.files {
		h.release()
	}
	l.collectSeals()
	if syncErr == nil {
		for _, s := range f.segments {
			if s != l.active() && !s.dirty && !l.syncing(s) {
				s.unpin()
			}
		}
	}
	if f.truncations != l.truncations && f.epochs != nil {
		l.epochsDirty = true // an older table may have been written over the truncated one
	}
	if syncErr != nil {
		return l.FlushedOffset(), l.poison("flush", syncErr)
	}
	if l.err != nil {
		return l.FlushedOffset(), l.err
	}
	if f.truncations == l.truncations {
		l.flushed.Store(max(l.flushed.Load(), int64(f.upTo)))
		l.durable = max(l.durable, f.start)
	}
	return l.FlushedOffset(), nil
}

// syncing says whether a flush of the segment is under way.
func (l *Log) syncing(s *segment) bool {
	return slices.ContainsFunc(l.pending, func(f *PendingFlush) bool { return slices.Contains(f.segments, s) })
}

// syncFile syncs a file by name. One that was removed meanwhile, with its segment, needs no sync.
func syncFile(fsys vfs.FS, name string) error {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
