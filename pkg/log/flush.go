package log

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
	truncations int
	segments    []*segment // one reference each
	indexes     []string
	syncDir     bool
	epochs      []byte // content of leader-epoch-checkpoint, nil when it need not be written
}

// BeginFlush notes what has to be synced. The owner may let go of its lock, call Sync, which takes long, and
// pass the outcome to EndFlush under the lock again; appends may go on meanwhile. At most one at a time.
func (l *Log) BeginFlush() (*PendingFlush, error) {
	if l.err != nil {
		return nil, l.err
	}
	f := &PendingFlush{fsys: l.fsys, dir: l.dir, upTo: l.active().next, truncations: l.truncations, syncDir: l.dirDirty}
	for _, s := range l.segments {
		if s.dirty && s.acquire() {
			f.segments = append(f.segments, s)
			s.dirty = false
		}
		if s.indexDirty {
			f.indexes = append(f.indexes, s.path(indexSuffix), s.path(timeIndexSuffix))
			s.indexDirty = false
		}
	}
	if l.epochsDirty {
		f.epochs = encodeEpochs(l.epochs.Entries())
		l.epochsDirty = false
	}
	l.dirDirty = false
	return f, nil
}

// Sync does the flush. It may run beside appends.
func (f *PendingFlush) Sync() error {
	for _, s := range f.segments {
		if err := s.file.Sync(); err != nil {
			return err
		}
	}
	for _, name := range f.indexes {
		if err := syncFile(f.fsys, name); err != nil {
			return err
		}
	}
	if f.epochs != nil {
		// Before the offset is called flushed: recovery trusts the table below it.
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
	for _, s := range f.segments {
		s.release()
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
	}
	return l.FlushedOffset(), nil
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
