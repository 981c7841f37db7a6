package node

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// logDir is the vfs.FS of its directory: no writer has to remember what an error means, since every change comes by
// here. Reads go through; one that fails takes the directory out of service too.

// change does one change of the directory, or refuses it.
func (d *logDir) change(op string, do func() error) error {
	f := d.offline()
	if f != nil && !f.allows(op) {
		return f
	}
	return d.check(op, do())
}

// allows says whether a change may still be made. On a full disk it is removing that makes room, and it claims
// nothing of what was written.
func (f *logDirFailure) allows(op string) bool {
	return f.reason == nodefact.DiskFull && (op == vfs.OpRemove || op == vfs.OpRename || op == vfs.OpSyncDir)
}

// check takes the directory out of service unless the error is an answer and no failure.
func (d *logDir) check(op string, err error) error {
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrClosed):
		return err
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return err // the process has too many files open; log.Files closes some and tries again
	case op == vfs.OpRemove && !diskError(err):
		return err // in use, say: nothing is lost, and whoever removes tries again
	}
	_ = d.fail(op, err)
	if d.offline().comesBack() && offlineReason(op, err) == nodefact.IOError {
		d.broken(err) // a full disk that is broken besides; the change may have begun before the disk was known to be full
	}
	return err
}

// diskError says whether an error speaks of the disk and not of one file.
func diskError(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains([]syscall.Errno{syscall.EIO, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT}, errno)
}

// OpenFile is vfs.FS's.
func (d *logDir) OpenFile(name string, flag int, perm fs.FileMode) (f vfs.File, err error) {
	if flag&(os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_RDWR) == 0 {
		f, err = d.under.OpenFile(name, flag, perm)
	} else {
		err = d.change(vfs.OpCreate, func() (err error) { f, err = d.under.OpenFile(name, flag, perm); return err })
	}
	if err != nil {
		return nil, err
	}
	file := logDirFile{f, d}
	if o, ok := f.(vfs.OSFiler); ok {
		return logDirOSFile{file, o}, nil
	}
	return file, nil
}

// Remove is vfs.FS's.
func (d *logDir) Remove(name string) error {
	return d.change(vfs.OpRemove, func() error { return d.under.Remove(name) })
}

// RemoveAll is vfs.FS's.
func (d *logDir) RemoveAll(name string) error {
	return d.change(vfs.OpRemove, func() error { return d.under.RemoveAll(name) })
}

// Rename is vfs.FS's.
func (d *logDir) Rename(oldName, newName string) error {
	return d.change(vfs.OpRename, func() error { return d.under.Rename(oldName, newName) })
}

// MkdirAll is vfs.FS's.
func (d *logDir) MkdirAll(name string, perm fs.FileMode) error {
	return d.change(vfs.OpMkdir, func() error { return d.under.MkdirAll(name, perm) })
}

// SyncDir is vfs.FS's.
func (d *logDir) SyncDir(name string) error {
	return d.change(vfs.OpSyncDir, func() error { return d.under.SyncDir(name) })
}

// ReadDir is vfs.FS's.
func (d *logDir) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := d.under.ReadDir(name)
	return entries, d.check(vfs.OpReadDir, err)
}

// Stat is vfs.FS's.
func (d *logDir) Stat(name string) (fs.FileInfo, error) { return d.under.Stat(name) }

// Lock is vfs.FS's.
func (d *logDir) Lock(name string) (io.Closer, error) { return d.under.Lock(name) }

// Space is vfs.Spacer's.
func (d *logDir) Space(dir string) (vfs.Space, error) { return vfs.SpaceOf(d.under, dir) }

// logDirFile is a file in a logDir.
type logDirFile struct {
	vfs.File
	dir *logDir
}

// logDirOSFile is one with a descriptor that sendfile can use.
type logDirOSFile struct {
	logDirFile
	vfs.OSFiler
}

// ReadAt is vfs.File's.
func (f logDirFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	return n, f.dir.check(vfs.OpRead, err)
}

// WriteAt is vfs.File's.
func (f logDirFile) WriteAt(p []byte, off int64) (int, error) {
	if failure := f.dir.offline(); failure != nil {
		return 0, failure
	}
	if err := f.dir.takeRoom(f.Name(), int64(len(p))); err != nil {
		return 0, f.dir.fail(vfs.OpWrite, err)
	}
	n, err := f.File.WriteAt(p, off)
	return n, f.dir.check(vfs.OpWrite, err)
}

// Truncate is vfs.File's.
func (f logDirFile) Truncate(size int64) error {
	return f.dir.change(vfs.OpTruncate, func() error { return f.File.Truncate(size) })
}

// WriteBack is vfs.File's. Pages that can't be written then are lost as in a sync.
func (f logDirFile) WriteBack(off, n int64) error {
	return f.dir.change(vfs.OpBack, func() error { return f.File.WriteBack(off, n) })
}

// Sync is vfs.File's.
func (f logDirFile) Sync() error { return f.dir.change(vfs.OpSync, f.File.Sync) }

// Close is vfs.File's; of files on a network it is a write.
func (f logDirFile) Close() error { return f.dir.check(vfs.OpClose, f.File.Close()) }
