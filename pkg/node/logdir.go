package node

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// logDir is one directory of the node, of the partitions or of the metadata log, and the file system for all who
// write there (logdir_fs.go). It is online until the first write, sync or other change fails. From then on it refuses
// every change, so that nobody goes on by mistake: no later sync, checkpoint or mark of a clean stop can claim what
// nobody knows. It never becomes online again: the way back is a node that opens the directory anew and recovers.
type logDir struct {
	under vfs.FS
	path  string
	// minFreeBytes are left free for others on the volume, the metadata log above all: what would use them up counts
	// as a full disk. 0: nothing is.
	minFreeBytes int64

	failure atomic.Pointer[logDirFailure]
	down    chan struct{} // closed when the directory is offline

	room     atomic.Int64 // bytes that may be written before somebody asks for the free space again
	roomLock sync.Mutex
}

// logDirFailure is why a directory is offline: the first error, and since when.
type logDirFailure struct {
	dir    string
	reason string // of nodefact's
	err    error
	since  time.Time
}

func newLogDir(under vfs.FS, path string, minFreeBytes int64) *logDir {
	return &logDir{under: under, path: path, minFreeBytes: minFreeBytes, down: make(chan struct{})}
}

// offline returns why the directory is out of service, nil while it is not.
func (d *logDir) offline() *logDirFailure { return d.failure.Load() }

// inherit takes the directory out of service for what an earlier life of the node in this process met.
func (d *logDir) inherit(f *logDirFailure) {
	if d.failure.CompareAndSwap(nil, f) {
		close(d.down)
	}
}

// fail takes the directory out of service; only the first error counts. op is one of package vfs's names, empty when
// it is not known. It returns err.
func (d *logDir) fail(op string, err error) error {
	d.inherit(&logDirFailure{dir: d.path, reason: offlineReason(op, err), err: err, since: time.Now()})
	return err
}

// offlineReason tells from the operation and its error what kind of failure it is. A sync that failed is one of the
// disk whatever the error: pages that could not be written count as clean afterwards, so also "no space left" means
// that records are gone that were taken for written (thin volumes, NFS).
func offlineReason(op string, err error) string {
	var path *fs.PathError
	if op == "" && errors.As(err, &path) {
		op = path.Op
	}
	switch {
	case op == vfs.OpSync || op == vfs.OpSyncDir || op == vfs.OpBack || op == vfs.OpClose:
		return nodefact.IOError
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return nodefact.DiskFull
	case errors.Is(err, syscall.EROFS):
		return nodefact.ReadOnly
	case errors.Is(err, syscall.EIO):
		return nodefact.IOError
	case op == vfs.OpWrite, op == vfs.OpTruncate, op == vfs.OpCreate, op == vfs.OpRename, op == vfs.OpRemove, op == vfs.OpMkdir:
		return nodefact.IOError
	}
	return nodefact.Unreadable
}

// comesBack says whether the directory can be used again without anybody's word once a probe succeeds. After an
// I/O error it can't: what a start would read from the page cache may not be on the disk.
func (f *logDirFailure) comesBack() bool {
	return f.reason == nodefact.DiskFull || f.reason == nodefact.ReadOnly
}

// Error says what failed and what to do about it.
func (f *logDirFailure) Error() string {
	return fmt.Sprintf("%s is offline (%s): %v; %s", f.dir, f.reason, f.err, f.whatToDo())
}

func (f *logDirFailure) Unwrap() error { return f.err }

func (f *logDirFailure) whatToDo() string {
	if errors.Is(f.err, log.ErrLaterVersion) {
		return "run the version that wrote it, or a newer one: nothing was touched"
	}
	switch f.reason {
	case nodefact.DiskFull:
		return "make room: expand the volume, delete topics, or move partitions away; the node comes back by itself when there is room"
	case nodefact.ReadOnly:
		return "make the volume writable again; the node comes back by itself"
	case nodefact.IOError:
		return "check the disk and replace the volume: what was not synced may be lost although it can still be read from memory; restart the node on it only if you are sure that the disk has everything"
	}
	return "check the volume; restart the node when it can be read again, or replace the volume"
}

// space is what the volume has room for.
func (d *logDir) space() (vfs.Space, error) { return vfs.SpaceOf(d.under, d.path) }

// roomRefreshBytes bounds how much is written before the free space is looked at again: others write too.
const roomRefreshBytes = 64 << 20

// lookAgain has the next write ask for the free space. Somebody looks again every few seconds: what others write on the
// volume shows in no count of this node's, and on a small volume it could be long until they have written as much.
func (d *logDir) lookAgain() { d.room.Store(0) }

// takeRoom says whether n more bytes leave enough free. The free space is asked for only when what was seen last is
// used up.
func (d *logDir) takeRoom(name string, n int64) error {
	if d.minFreeBytes <= 0 || d.room.Add(-n) >= 0 {
		return nil
	}
	d.roomLock.Lock()
	defer d.roomLock.Unlock()
	space, err := d.space()
	if err != nil {
		return nil // the write itself will tell
	}
	left := space.FreeBytes - d.minFreeBytes - n
	if left < 0 {
		return &fs.PathError{Op: vfs.OpWrite, Path: name, Err: fmt.Errorf("%d bytes are free on the volume and %d are kept free: %w",
			space.FreeBytes, d.minFreeBytes, syscall.ENOSPC)}
	}
	d.room.Store(min(left, roomRefreshBytes))
	return nil
}

// Bounds of what is kept free where nobody says how much.
const (
	keptFreePart     = 20 // one part in so many of the volume
	keptFreeMaxBytes = 256 << 20
)

// keptFree is how much of the volume of a directory is kept free.
func keptFree(fsys vfs.FS, dir string, configured int64) int64 {
	if configured >= 0 {
		return configured
	}
	space, err := vfs.SpaceOf(fsys, dir)
	if err != nil {
		return 0
	}
	return min(space.TotalBytes/keptFreePart, keptFreeMaxBytes)
}
