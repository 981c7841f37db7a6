package vfs

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

func TestMemVolumeFillsUpAndTakesWhatFits(t *testing.T) {
	m := NewMem()
	for _, dir := range []string{"/small", "/other"} {
		if err := m.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := SpaceOf(m, "/small"); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("space without a capacity: %v", err)
	}
	m.SetCapacity("/small", 3*memBlockBytes)
	f, err := m.OpenFile("/small/a", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt(make([]byte, 2*memBlockBytes+1), 0); n != 2*memBlockBytes+1 || err != nil {
		t.Fatalf("what fits: %d, %v", n, err)
	}
	if n, err := f.WriteAt(make([]byte, memBlockBytes), 2*memBlockBytes+1); n != memBlockBytes-1 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("one byte too many: %d, %v; want a short write", n, err)
	}
	if size, err := f.Size(); size != 3*memBlockBytes || err != nil {
		t.Fatalf("size %d, %v", size, err)
	}
	if n, err := f.WriteAt(make([]byte, 10), 5); n != 10 || err != nil {
		t.Fatalf("overwriting needs no room: %d, %v", n, err)
	}
	space, err := SpaceOf(Inject(m, func(string, string) error { return nil }), "/small/deeper")
	if space != (Space{0, 3 * memBlockBytes}) || err != nil {
		t.Fatalf("space %+v, %v", space, err)
	}
	if _, err := m.OpenFile("/small/b", os.O_RDWR|os.O_CREATE, 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("create on a full volume: %v", err)
	}
	if err := m.MkdirAll("/small/d", 0o755); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("mkdir on a full volume: %v", err)
	}
	write(t, m, "/other/a", "a volume of its own", true)
	if err := m.Rename("/small/a", "/small/c"); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(memBlockBytes); err != nil {
		t.Fatal(err)
	}
	write(t, m, "/small/b", "there is room again", true)
	m.SetCapacity("/small", 0)
	write(t, m, "/small/e", string(make([]byte, 10*memBlockBytes)), true)
}

func TestMemVolumeReadOnlyRefusesEveryChange(t *testing.T) {
	m := NewMem()
	if err := m.MkdirAll("/v/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, m, "/v/a", "kept", false)
	open, err := m.OpenFile("/v/a", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.SetReadOnly("/v", true)
	for name, change := range map[string]func() error{
		"write":       func() error { _, err := open.WriteAt([]byte("x"), 0); return err },
		"truncate":    func() error { return open.Truncate(0) },
		"open":        func() error { _, err := m.OpenFile("/v/a", os.O_RDWR, 0); return err },
		"create":      func() error { _, err := m.OpenFile("/v/b", os.O_RDWR|os.O_CREATE, 0o644); return err },
		"remove":      func() error { return m.Remove("/v/a") },
		"remove all":  func() error { return m.RemoveAll("/v/sub") },
		"rename":      func() error { return m.Rename("/v/a", "/v/b") },
		"mkdir":       func() error { return m.MkdirAll("/v/sub/deep", 0o755) },
		"lock":        func() error { _, err := m.Lock("/v/.lock"); return err },
		"write whole": func() error { return WriteFileAtomic(m, "/v/c", nil) },
	} {
		if err := change(); !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v, want EROFS", name, err)
		}
	}
	if err := m.MkdirAll("/v/sub", 0o755); err != nil {
		t.Errorf("a directory that is there: %v", err)
	}
	if got := content(t, m, "/v/a"); got != "kept" {
		t.Errorf("reads %q", got)
	}
	m.SetReadOnly("/v", false)
	write(t, m, "/v/b", "x", true)
}

func TestOSTellsTheSpaceOfAVolume(t *testing.T) {
	space, err := SpaceOf(OS(), t.TempDir())
	if errors.Is(err, errors.ErrUnsupported) {
		return // only Linux tells
	}
	if err != nil || space.FreeBytes <= 0 || space.TotalBytes < space.FreeBytes {
		t.Fatalf("%+v, %v", space, err)
	}
	if _, err := SpaceOf(OS(), t.TempDir()+"/not-there"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("of nothing: %v", err)
	}
}
