package vfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// memBlockBytes is the unit in which a volume of limited size is used up; a new file or directory wants one free.
const memBlockBytes = 4096

// memVolume is a directory of a Mem that is a volume of its own.
type memVolume struct {
	dir      string
	capacity int64 // 0: no limit
	readOnly bool
}

// SetCapacity makes dir a volume of so many bytes, or changes its size; 0 means no limit. Writes and creations beyond
// it fail with ENOSPC; of a write, what fits is written. Removing, renaming and shortening need no room. A file that
// was removed takes none, open or not.
func (m *Mem) SetCapacity(dir string, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.volume(dir).capacity = bytes
}

// SetReadOnly makes dir a volume that was mounted read-only, or writable again. Every change below it fails with
// EROFS, of files that are open too.
func (m *Mem) SetReadOnly(dir string, readOnly bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.volume(dir).readOnly = readOnly
}

// Space is Spacer's; only volumes that were given a capacity have one.
func (m *Mem) Space(dir string) (Space, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.volumeOf(dir)
	if v == nil || v.capacity == 0 {
		return Space{}, fmt.Errorf("free space of %s: %w", dir, errors.ErrUnsupported)
	}
	return Space{FreeBytes: max(0, v.capacity-m.used(v)), TotalBytes: v.capacity}, nil
}

func memPath(name string) string { return filepath.ToSlash(filepath.Clean("/" + name)) }

// volume returns the volume that dir is, made if need be.
func (m *Mem) volume(dir string) *memVolume {
	dir = memPath(dir)
	for _, v := range m.volumes {
		if v.dir == dir {
			return v
		}
	}
	v := &memVolume{dir: dir}
	m.volumes = append(m.volumes, v)
	return v
}

// volumeOf returns the innermost volume that holds name, nil when there is none.
func (m *Mem) volumeOf(name string) *memVolume {
	if len(m.volumes) == 0 {
		return nil
	}
	var found *memVolume
	name = memPath(name) + "/"
	for _, v := range m.volumes {
		if strings.HasPrefix(name, strings.TrimSuffix(v.dir, "/")+"/") && (found == nil || len(v.dir) > len(found.dir)) {
			found = v
		}
	}
	return found
}

func (m *Mem) readOnly(name string) bool {
	v := m.volumeOf(name)
	return v != nil && v.readOnly
}

func (m *Mem) roomFor(name string, bytes int64) bool {
	v := m.volumeOf(name)
	return v == nil || v.capacity == 0 || v.capacity-m.used(v) >= bytes
}

// fitting says how many of n bytes can be written at off to a file of a size.
func (m *Mem) fitting(name string, size, off int64, n int) int {
	v := m.volumeOf(name)
	if v == nil || v.capacity == 0 {
		return n
	}
	end := max(0, v.capacity-m.used(v))/memBlockBytes*memBlockBytes + blocksOf(size)
	return int(min(int64(n), max(0, end-off)))
}

// used adds up what lies in a volume. Tests fill small ones: nothing is kept that could be wrong.
func (m *Mem) used(v *memVolume) int64 {
	top, err := m.lookup(memParts(v.dir))
	if err != nil {
		return 0
	}
	return top.used()
}

func (n *memNode) used() int64 {
	if !n.dir {
		return blocksOf(int64(len(n.data)))
	}
	var sum int64
	for _, entry := range n.entries {
		sum += entry.used()
	}
	return sum
}

// blocksOf rounds up to whole blocks.
func blocksOf(bytes int64) int64 { return (bytes + memBlockBytes - 1) / memBlockBytes * memBlockBytes }
