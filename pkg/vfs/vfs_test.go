package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// both runs a test on the real and the in-memory file system: they must not differ.
func both(t *testing.T, run func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { run(t, OS(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := NewMem()
		if err := m.MkdirAll("/d", 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, m, "/d")
	})
}

func write(t *testing.T, fsys FS, name, data string, sync bool) {
	t.Helper()
	if err := WriteFile(fsys, name, []byte(data), sync); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, fsys FS, name string) string {
	t.Helper()
	data, err := ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestMemBehavesAsTheRealFileSystem(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "a")
		if _, err := fsys.OpenFile(name, os.O_RDWR, 0); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("open of nothing: %v", err)
		}
		f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("xy"), 3); err != nil {
			t.Fatal(err)
		}
		if got := content(t, fsys, name); got != "\x00\x00\x00xy" {
			t.Fatalf("a write beyond the end left %q", got)
		}
		if err := f.Truncate(4); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 8)
		if n, err := f.ReadAt(buf, 3); n != 1 || !errors.Is(err, io.EOF) || buf[0] != 'x' {
			t.Fatalf("short read: %d, %v", n, err)
		}
		if err := fsys.Remove(name); err != nil {
			t.Fatal(err)
		}
		if n, err := f.ReadAt(buf[:1], 3); n != 1 || err != nil {
			t.Fatalf("an open file must outlive its name: %d, %v", n, err)
		}
		if size, err := f.Size(); size != 4 || err != nil {
			t.Fatalf("size %d, %v", size, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(buf, 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("read after close: %v", err)
		}
	})
}

func TestRenameReplacesAndStaysInItsDirectory(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		write(t, fsys, a, "new", false)
		write(t, fsys, b, "old", false)
		if err := fsys.Rename(a, b); err != nil {
			t.Fatal(err)
		}
		if got := content(t, fsys, b); got != "new" {
			t.Fatalf("b = %q", got)
		}
		if err := fsys.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := fsys.Rename(b, filepath.Join(dir, "sub", "b")); !errors.Is(err, fs.ErrInvalid) {
			t.Fatalf("rename into another directory: %v", err)
		}
		entries, err := fsys.ReadDir(dir)
		if err != nil || len(entries) != 2 || entries[0].Name() != "b" || !entries[1].IsDir() {
			t.Fatalf("ReadDir = %v, %v", entries, err)
		}
		if err := fsys.RemoveAll(filepath.Join(dir, "sub")); err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Stat(filepath.Join(dir, "sub")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("after RemoveAll: %v", err)
		}
	})
}

func TestLockIsHeldOnce(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, ".lock")
		first, err := fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Lock(name); err == nil {
			t.Fatal("locked twice")
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		again.Close()
	})
}

func TestCrashKeepsWhatWasSyncedAndNothingElseAtZeroPercent(t *testing.T) {
	m := NewMem()
	write(t, m, "/kept", "one", true)
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	f, err := m.OpenFile("/kept", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("two"), 3); err != nil {
		t.Fatal(err)
	}
	write(t, m, "/entry-not-synced", "x", true)
	lost := m.CrashClone(rand.New(rand.NewPCG(1, 1)), 0)
	if got := content(t, lost, "/kept"); got != "one" {
		t.Fatalf("kept = %q", got)
	}
	if _, err := lost.Stat("/entry-not-synced"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a file whose directory was not synced: %v", err)
	}
	killed := m.CrashClone(rand.New(rand.NewPCG(1, 1)), 100)
	if got := content(t, killed, "/kept") + content(t, killed, "/entry-not-synced"); got != "onetwox" {
		t.Fatalf("a killed process lost page cache: %q", got)
	}
	if got := content(t, m, "/kept"); got != "onetwo" {
		t.Fatalf("the clone changed the original: %q", got)
	}
}

func TestCrashTearsWritesAtSectorsAndIsReplayable(t *testing.T) {
	m := NewMem()
	write(t, m, "/f", "", true)
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	f, _ := m.OpenFile("/f", os.O_RDWR, 0)
	full := bytes.Repeat([]byte{7}, 4*sectorBytes)
	if _, err := f.WriteAt(full, 0); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for seed := range uint64(200) {
		got := content(t, m.CrashClone(rand.New(rand.NewPCG(seed, 0)), 50), "/f")
		again := content(t, m.CrashClone(rand.New(rand.NewPCG(seed, 0)), 50), "/f")
		if got != again {
			t.Fatalf("seed %d gives two answers", seed)
		}
		for s := 0; s < len(got); s += sectorBytes {
			sector := got[s : s+sectorBytes]
			if sector != string(full[:sectorBytes]) && sector != string(make([]byte, sectorBytes)) {
				t.Fatalf("seed %d: half a sector written", seed)
			}
		}
		seen[got] = true
	}
	if len(seen) < 6 || !seen[""] || !seen[string(full)] {
		t.Fatalf("only %d outcomes of a torn write", len(seen))
	}
}

func TestWriteFileAtomicIsOldOrNewAtEveryCrash(t *testing.T) {
	stop := errors.New("crash")
	for keep := 0; keep <= 100; keep += 50 {
		for at := 0; ; at++ {
			m := NewMem()
			if err := WriteFileAtomic(m, "/f", []byte("old")); err != nil {
				t.Fatal(err)
			}
			n := 0
			err := WriteFileAtomic(Inject(m, func(string, string) error {
				if n++; n > at {
					return stop
				}
				return nil
			}), "/f", []byte("new"))
			got := content(t, m.CrashClone(rand.New(rand.NewPCG(uint64(at), 0)), keep), "/f")
			if err == nil {
				if got != "new" {
					t.Fatalf("done, and %q after the crash", got)
				}
				break
			}
			if !errors.Is(err, stop) || got != "old" && got != "new" {
				t.Fatalf("step %d, keep %d: %q, %v", at, keep, got, err)
			}
		}
	}
}

func TestInjectNamesTheOperationAndThePath(t *testing.T) {
	var ops []string
	fsys := Inject(NewMem(), func(op, path string) error { ops = append(ops, op+" "+path); return nil })
	write(t, fsys, "/a", "x", true)
	want := []string{"create /a", "write /a", "sync /a", "close /a"}
	if len(ops) != len(want) {
		t.Fatalf("ops = %v", ops)
	}
	for i := range want {
		if ops[i] != want[i] {
			t.Fatalf("ops = %v, want %v", ops, want)
		}
	}
}
