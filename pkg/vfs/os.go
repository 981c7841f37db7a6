package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// OS returns the real file system. Its files are OSFilers.
func OS() FS { return osFS{} }

type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) OSFile() *os.File { return f.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Sync() error {
	if err := datasync(f.File); err != nil {
		return &fs.PathError{Op: "sync", Path: f.Name(), Err: err}
	}
	return nil
}

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if flag&os.O_APPEND != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("O_APPEND: %w", fs.ErrInvalid)}
	}
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Remove(name string) error    { return os.Remove(name) }
func (osFS) RemoveAll(name string) error { return os.RemoveAll(name) }

func (osFS) Rename(oldName, newName string) error {
	if err := sameDirectory(oldName, newName); err != nil {
		return err
	}
	return os.Rename(oldName, newName)
}

func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }

func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

func (osFS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: name, Err: fmt.Errorf("held by another process: %w", err)}
	}
	return f, nil
}
