package node

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"sync"
	"syscall"

	"github.com/highwater-io/highwater/pkg/vfs"
)

var errPowerOff = errors.New("the machine has no power")

// machine is a disk in memory whose power can be cut: from that instant on nothing is written or synced any more,
// whatever the process believes that still runs on it.
type machine struct {
	vfs.FS
	mem *vfs.Mem

	mu  sync.RWMutex
	off bool
	// syncsFail has every sync of a file fail.
	syncsFail bool
}

func newMachine(mem *vfs.Mem) *machine { return &machine{FS: mem, mem: mem} }

// cutPower returns the disk as the next start finds it.
func (m *machine) cutPower(rng *rand.Rand, keepUnsyncedPercent int) *vfs.Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off = true
	return m.mem.CrashClone(rng, keepUnsyncedPercent)
}

// powered runs an operation wholly before the power is cut, or not at all.
func (m *machine) powered(op func() error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.off {
		return errPowerOff
	}
	return op()
}

func (m *machine) OpenFile(name string, flag int, perm fs.FileMode) (f vfs.File, err error) {
	err = m.powered(func() error { f, err = m.FS.OpenFile(name, flag, perm); return err })
	if err != nil {
		return nil, err
	}
	return machineFile{f, m}, nil
}

func (m *machine) Remove(name string) error {
	return m.powered(func() error { return m.FS.Remove(name) })
}

func (m *machine) RemoveAll(name string) error {
	return m.powered(func() error { return m.FS.RemoveAll(name) })
}

func (m *machine) Rename(from, to string) error {
	return m.powered(func() error { return m.FS.Rename(from, to) })
}

func (m *machine) MkdirAll(name string, perm fs.FileMode) error {
	return m.powered(func() error { return m.FS.MkdirAll(name, perm) })
}

func (m *machine) SyncDir(name string) error {
	return m.powered(func() error { return m.FS.SyncDir(name) })
}

type machineFile struct {
	vfs.File
	m *machine
}

func (f machineFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.m.powered(func() error { n, err = f.File.WriteAt(b, at); return err })
	return n, err
}

func (f machineFile) Truncate(size int64) error {
	return f.m.powered(func() error { return f.File.Truncate(size) })
}

func (f machineFile) Sync() error {
	return f.m.powered(func() error {
		if f.m.syncsFail {
			return syscall.EIO
		}
		return f.File.Sync()
	})
}

func (m *machine) failSyncs() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.syncsFail = true
}
