package vfs

import (
	"io"
	"io/fs"
	"os"
)

// Names of the operations that Inject asks about.
const (
	OpOpen     = "open"
	OpCreate   = "create" // an open that may create or empty the file
	OpRead     = "read"
	OpWrite    = "write"
	OpTruncate = "truncate"
	OpSync     = "sync"
	OpBack     = "writeback"
	OpSyncDir  = "syncdir"
	OpClose    = "close"
	OpRemove   = "remove"
	OpRename   = "rename"
	OpMkdir    = "mkdir"
	OpReadDir  = "readdir"
	OpStat     = "stat"
	OpLock     = "lock"
)

// Inject returns fsys with hook called before every operation; an error of it is returned instead of doing
// the operation. hook may also change the underlying file system, or count. Its files are no OSFilers.
func Inject(fsys FS, hook func(op, path string) error) FS { return &injectFS{fsys, hook} }

type injectFS struct {
	fsys FS
	hook func(op, path string) error
}

type injectFile struct {
	File
	hook func(op, path string) error
}

func (i *injectFS) before(op, path string) error {
	if err := i.hook(op, path); err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

func (i *injectFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	op := OpOpen
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		op = OpCreate
	}
	if err := i.before(op, name); err != nil {
		return nil, err
	}
	f, err := i.fsys.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &injectFile{f, i.before}, nil
}

func (i *injectFS) Remove(name string) error {
	if err := i.before(OpRemove, name); err != nil {
		return err
	}
	return i.fsys.Remove(name)
}

func (i *injectFS) RemoveAll(name string) error {
	if err := i.before(OpRemove, name); err != nil {
		return err
	}
	return i.fsys.RemoveAll(name)
}

func (i *injectFS) Rename(oldName, newName string) error {
	if err := i.before(OpRename, oldName); err != nil {
		return err
	}
	return i.fsys.Rename(oldName, newName)
}

func (i *injectFS) MkdirAll(name string, perm fs.FileMode) error {
	if err := i.before(OpMkdir, name); err != nil {
		return err
	}
	return i.fsys.MkdirAll(name, perm)
}

func (i *injectFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := i.before(OpReadDir, name); err != nil {
		return nil, err
	}
	return i.fsys.ReadDir(name)
}

func (i *injectFS) Stat(name string) (fs.FileInfo, error) {
	if err := i.before(OpStat, name); err != nil {
		return nil, err
	}
	return i.fsys.Stat(name)
}

func (i *injectFS) SyncDir(name string) error {
	if err := i.before(OpSyncDir, name); err != nil {
		return err
	}
	return i.fsys.SyncDir(name)
}

func (i *injectFS) Lock(name string) (io.Closer, error) {
	if err := i.before(OpLock, name); err != nil {
		return nil, err
	}
	return i.fsys.Lock(name)
}

func (f *injectFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.hook(OpRead, f.Name()); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *injectFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.hook(OpWrite, f.Name()); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *injectFile) Truncate(size int64) error {
	if err := f.hook(OpTruncate, f.Name()); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *injectFile) Sync() error {
	if err := f.hook(OpSync, f.Name()); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *injectFile) WriteBack(off, n int64) error {
	if err := f.hook(OpBack, f.Name()); err != nil {
		return err
	}
	return f.File.WriteBack(off, n)
}

func (f *injectFile) Close() error {
	if err := f.hook(OpClose, f.Name()); err != nil {
		return err
	}
	return f.File.Close()
}
