package vfs

import (
	"os"
	"syscall"
)

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
