package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that knows what has been synced, so that CrashClone can lose the rest.
// Paths are cleaned and taken as absolute; "/" exists from the start.
type Mem struct {
	mu      sync.Mutex
	root    *memNode
	locks   map[string]bool
	volumes []*memVolume
}

// memNode is a file or a directory. What is durable is kept beside what is seen, with the operations that
// lie between them.
type memNode struct {
	dir bool

	data     []byte   // file: what readers see
	durable  []byte   // file: what survives any crash
	unsynced []fileOp // file: durable + unsynced = data

	entries        map[string]*memNode // directory: what readers see
	durableEntries map[string]*memNode // directory: what survives any crash
	unsyncedDirOps []dirOp
}

// fileOp is a write at off, or a truncation to size off.
type fileOp struct {
	truncate bool
	off      int64
	data     []byte
}

// dirOp sets and removes names as one atomic step; a rename does both.
type dirOp struct {
	remove string
	set    string
	node   *memNode
}

// NewMem returns an empty file system.
func NewMem() *Mem { return &Mem{root: newMemDir(), locks: map[string]bool{}} }

func newMemDir() *memNode {
	return &memNode{dir: true, entries: map[string]*memNode{}, durableEntries: map[string]*memNode{}}
}

func memParts(name string) []string {
	name = strings.Trim(filepath.ToSlash(filepath.Clean("/"+name)), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

func (m *Mem) lookup(parts []string) (*memNode, error) {
	n := m.root
	for _, p := range parts {
		if !n.dir {
			return nil, fmt.Errorf("%s is not below a directory", p)
		}
		next, ok := n.entries[p]
		if !ok {
			return nil, fs.ErrNotExist
		}
		n = next
	}
	return n, nil
}

// parent returns the directory that holds name and the last element of it.
func (m *Mem) parent(op, name string) (*memNode, string, error) {
	parts := memParts(name)
	if len(parts) == 0 {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	d, err := m.lookup(parts[:len(parts)-1])
	if err == nil && !d.dir {
		err = fmt.Errorf("parent is not a directory: %w", fs.ErrInvalid)
	}
	if err != nil {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: err}
	}
	return d, parts[len(parts)-1], nil
}

func (n *memNode) apply(op dirOp) {
	op.applyTo(n.entries)
	n.unsyncedDirOps = append(n.unsyncedDirOps, op)
}

// OpenFile opens or creates a file.
func (m *Mem) OpenFile(name string, flag int, _ fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if flag&os.O_APPEND != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("O_APPEND: %w", fs.ErrInvalid)}
	}
	d, base, err := m.parent("open", name)
	if err != nil {
		return nil, err
	}
	n, ok := d.entries[base]
	switch {
	case !ok && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case ok && flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case ok && n.dir:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("is a directory: %w", fs.ErrInvalid)}
	case flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC) != 0 && m.readOnly(name):
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EROFS}
	case !ok && !m.roomFor(name, memBlockBytes):
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	case !ok:
		n = &memNode{}
		d.apply(dirOp{set: base, node: n})
	}
	f := &memFile{m: m, node: n, name: name, writable: flag&(os.O_WRONLY|os.O_RDWR) != 0}
	if flag&os.O_TRUNC != 0 && len(n.data) > 0 {
		n.truncate(0)
	}
	return f, nil
}

// Remove removes a file or an empty directory; open files go on working.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	n, ok := d.entries[base]
	if !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if m.readOnly(name) {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.EROFS}
	}
	if n.dir && len(n.entries) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: fmt.Errorf("directory not empty: %w", fs.ErrExist)}
	}
	d.apply(dirOp{remove: base})
	return nil
}

// RemoveAll removes a tree; it is no error when there is none.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent("removeall", name)
	if err != nil {
		if _, statErr := m.lookup(memParts(name)); errors.Is(statErr, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	n, ok := d.entries[base]
	if !ok {
		return nil
	}
	if m.readOnly(name) {
		return &fs.PathError{Op: "removeall", Path: name, Err: syscall.EROFS}
	}
	n.removeTree()
	d.apply(dirOp{remove: base})
	return nil
}

func (n *memNode) removeTree() {
	for _, name := range sortedNames(n.entries) {
		n.entries[name].removeTree()
		n.apply(dirOp{remove: name})
	}
}

// Rename replaces newName atomically.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := sameDirectory(oldName, newName); err != nil {
		return err
	}
	d, from, err := m.parent("rename", oldName)
	if err != nil {
		return err
	}
	n, ok := d.entries[from]
	if !ok {
		return &fs.PathError{Op: "rename", Path: oldName, Err: fs.ErrNotExist}
	}
	if m.readOnly(oldName) {
		return &fs.PathError{Op: "rename", Path: oldName, Err: syscall.EROFS}
	}
	to := filepath.Base(filepath.Clean(newName))
	if old, ok := d.entries[to]; ok && (old.dir != n.dir || old.dir && len(old.entries) > 0) {
		return &fs.PathError{Op: "rename", Path: newName, Err: fs.ErrExist}
	}
	if from != to {
		d.apply(dirOp{remove: from, set: to, node: n})
	}
	return nil
}

// MkdirAll makes a directory and those above it.
func (m *Mem) MkdirAll(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, p := range memParts(name) {
		next, ok := n.entries[p]
		switch {
		case !ok && m.readOnly(name):
			return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.EROFS}
		case !ok && !m.roomFor(name, memBlockBytes):
			return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOSPC}
		case !ok:
			next = newMemDir()
			n.apply(dirOp{set: p, node: next})
		}
		if !next.dir {
			return &fs.PathError{Op: "mkdir", Path: name, Err: fmt.Errorf("%s is a file: %w", p, fs.ErrExist)}
		}
		n = next
	}
	return nil
}

// ReadDir returns the entries in name order.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup(memParts(name))
	if err == nil && !n.dir {
		err = fmt.Errorf("not a directory: %w", fs.ErrInvalid)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	var out []fs.DirEntry
	for _, base := range sortedNames(n.entries) {
		out = append(out, fs.FileInfoToDirEntry(n.entries[base].info(base)))
	}
	return out, nil
}

// Stat describes a file; its modification time is zero, as there is no clock here.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup(memParts(name))
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return n.info(filepath.Base(name)), nil
}

// SyncDir makes the directory's entries durable.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup(memParts(name))
	if err == nil && !n.dir {
		err = fmt.Errorf("not a directory: %w", fs.ErrInvalid)
	}
	if err != nil {
		return &fs.PathError{Op: "syncdir", Path: name, Err: err}
	}
	for _, op := range n.unsyncedDirOps {
		op.applyTo(n.durableEntries)
	}
	n.unsyncedDirOps = nil
	return nil
}

func (op dirOp) applyTo(entries map[string]*memNode) {
	if op.remove != "" {
		delete(entries, op.remove)
	}
	if op.set != "" {
		entries[op.set] = op.node
	}
}

// Lock takes a lock that a crash releases.
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	f.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.Join(memParts(name), "/")
	if m.locks[key] {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: fmt.Errorf("held by another owner")}
	}
	m.locks[key] = true
	return memLock{m, key}, nil
}

type memLock struct {
	m   *Mem
	key string
}

func (l memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.key)
	return nil
}

func sortedNames(entries map[string]*memNode) []string {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

type memInfo struct {
	name string
	size int64
	dir  bool
}

func (n *memNode) info(name string) memInfo {
	return memInfo{name: name, size: int64(len(n.data)), dir: n.dir}
}

func (i memInfo) Name() string { return i.name }
func (i memInfo) Size() int64  { return i.size }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
