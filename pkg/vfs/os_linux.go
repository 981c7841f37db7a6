package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Space is statfs: what is kept back for the superuser does not count as free, whoever asks.
func (osFS) Space(dir string) (Space, error) {
	var st syscall.Statfs_t
	for {
		err := syscall.Statfs(dir, &st)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return Space{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
		return Space{FreeBytes: int64(st.Bavail) * st.Bsize, TotalBytes: int64(st.Blocks) * st.Bsize}, nil
	}
}

// datasync is fdatasync: it also makes a changed size durable, but not the times, which nobody reads.
func datasync(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var syncErr error
	if err := raw.Control(func(fd uintptr) {
		for {
			syncErr = syscall.Fdatasync(int(fd))
			if syncErr != syscall.EINTR {
				return
			}
		}
	}); err != nil {
		return err
	}
	return syncErr
}

// WriteBack is File's: sync_file_range, without waiting.
func (f osFile) WriteBack(off, n int64) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var writeErr error
	if err := raw.Control(func(fd uintptr) {
		for {
			writeErr = unix.SyncFileRange(int(fd), off, n, unix.SYNC_FILE_RANGE_WRITE)
			if !errors.Is(writeErr, syscall.EINTR) {
				return
			}
		}
	}); err != nil {
		return err
	}
	if writeErr == nil || errors.Is(writeErr, errors.ErrUnsupported) {
		return nil
	}
	return &fs.PathError{Op: "write back", Path: f.Name(), Err: writeErr}
}
