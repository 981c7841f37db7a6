//go:build !linux

package vfs

import "os"

func datasync(f *os.File) error { return f.Sync() }

// WriteBack is File's; there is nothing like it here.
func (osFile) WriteBack(_, _ int64) error { return nil }
