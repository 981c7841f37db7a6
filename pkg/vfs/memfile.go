package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"syscall"
)

// memFile is a handle; it stays usable after the name is removed, as on Unix.
type memFile struct {
	m        *Mem
	node     *memNode
	name     string
	writable bool
	closed   bool
}

func (f *memFile) check(op string, write bool) error {
	switch {
	case f.closed:
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	case write && !f.writable:
		return &fs.PathError{Op: op, Path: f.name, Err: fmt.Errorf("opened read-only: %w", fs.ErrPermission)}
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrInvalid}
	}
	if len(p) == 0 {
		return 0, nil
	}
	if f.m.readOnly(f.name) {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.EROFS}
	}
	n := f.m.fitting(f.name, int64(len(f.node.data)), off, len(p))
	if n < len(p) {
		// As the kernel does: what fits is written, and the caller learns that the rest is not.
		if n > 0 {
			f.node.write(fileOp{off: off, data: append([]byte(nil), p[:n]...)})
		}
		return n, &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	f.node.write(fileOp{off: off, data: append([]byte(nil), p...)})
	return len(p), nil
}

func (n *memNode) write(op fileOp) {
	n.data = op.applyTo(n.data)
	n.unsynced = append(n.unsynced, op)
}

func (op fileOp) applyTo(data []byte) []byte {
	end := op.off
	if !op.truncate {
		end += int64(len(op.data))
	}
	if end > int64(len(data)) {
		data = append(data, make([]byte, end-int64(len(data)))...)
	}
	if op.truncate {
		return data[:op.off]
	}
	copy(data[op.off:], op.data)
	return data
}

func (n *memNode) truncate(size int64) {
	n.write(fileOp{truncate: true, off: size})
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("stat", false); err != nil {
		return 0, err
	}
	return int64(len(f.node.data)), nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return &fs.PathError{Op: "truncate", Path: f.name, Err: fs.ErrInvalid}
	}
	if f.m.readOnly(f.name) {
		return &fs.PathError{Op: "truncate", Path: f.name, Err: syscall.EROFS}
	}
	f.node.truncate(size)
	return nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("sync", false); err != nil {
		return err
	}
	for _, op := range f.node.unsynced {
		f.node.durable = op.applyTo(f.node.durable)
	}
	f.node.unsynced = nil
	return nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("close", false); err != nil {
		return err
	}
	f.closed = true
	return nil
}

// WriteBack is File's; when memory is written to a disk, CrashClone decides.
func (f *memFile) WriteBack(_, _ int64) error { return nil }

func (f *memFile) Name() string { return f.name }
