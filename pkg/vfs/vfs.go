package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FS is a file system. Errors are *fs.PathError or wrap one; errors.Is with fs.ErrNotExist and fs.ErrExist
// works on all implementations. Safe for concurrent use.
type FS interface {
	// OpenFile takes the flags of package os; O_APPEND is refused, since every write names its position.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Remove(name string) error
	RemoveAll(name string) error
	// Rename replaces newName atomically. Both must be in the same directory: between two directories no
	// order of syncs makes a move safe against a crash.
	Rename(oldName, newName string) error
	MkdirAll(name string, perm fs.FileMode) error
	// ReadDir returns the entries in name order.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes creations, renames and removals in the directory durable. Syncing a file does not.
	SyncDir(name string) error
	// Lock takes an exclusive lock named by a file, which it creates; it fails at once when another process
	// (or another owner in memory) holds it.
	Lock(name string) (io.Closer, error)
}

// File is an open file without a current position.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Sync makes content and size durable. After an error nothing is known of what was written before it,
	// and a second Sync that succeeds proves nothing.
	Sync() error
	// WriteBack has the system begin to write what was written to a range. It does not wait for it and makes nothing
	// durable; where there is no such thing it does nothing.
	WriteBack(off, n int64) error
	Name() string
}

// OSFiler is a File over a real descriptor, for sendfile.
type OSFiler interface {
	OSFile() *os.File
}

// ReadFile returns the content of a file of at most 1 GiB.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > 1<<30 {
		return nil, fmt.Errorf("read %s: %d bytes are more than is read at once", name, size)
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); err != nil && (!errors.Is(err, io.EOF) || n != len(data)) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// WriteFileAtomic replaces a file so that after a crash either the old or the new content is there, and the
// new one once it has returned: temporary file, sync, rename, sync of the directory.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	tmp := name + ".tmp"
	if err := WriteFile(fsys, tmp, data, true); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// WriteFile creates or replaces a file in place, synced if asked for; its directory entry is not synced.
func WriteFile(fsys FS, name string, data []byte, sync bool) (err error) {
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	if sync {
		return f.Sync()
	}
	return nil
}

func sameDirectory(oldName, newName string) error {
	if filepath.Dir(filepath.Clean(oldName)) != filepath.Dir(filepath.Clean(newName)) {
		return &fs.PathError{Op: "rename", Path: oldName,
			Err: fmt.Errorf("to %s: %w: another directory", newName, fs.ErrInvalid)}
	}
	return nil
}
