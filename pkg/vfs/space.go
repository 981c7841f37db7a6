package vfs

import (
	"errors"
	"fmt"
)

// Space is what a volume has room for.
type Space struct {
	// FreeBytes is what an ordinary user may still write, TotalBytes the size of the volume.
	FreeBytes, TotalBytes int64
}

// Spacer is an FS that can tell the room on the volume that holds a directory.
type Spacer interface {
	Space(dir string) (Space, error)
}

// SpaceOf asks a file system for the room on the volume that holds dir. errors.ErrUnsupported says that it can't tell.
func SpaceOf(fsys FS, dir string) (Space, error) {
	if s, ok := fsys.(Spacer); ok {
		return s.Space(dir)
	}
	return Space{}, fmt.Errorf("free space of %s: %w", dir, errors.ErrUnsupported)
}

// Space is Spacer's.
func (i *injectFS) Space(dir string) (Space, error) { return SpaceOf(i.fsys, dir) }
