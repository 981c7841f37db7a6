package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestReadersOfAProjectedVolumeSeeOneStateOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := writeAtomic(dir, payload{"a": {[]byte(text), 0o644}, "deep/b": {[]byte(text), 0o644}}); err != nil {
			t.Fatal(err)
		}
	}
	write("0")
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			state, err := os.Readlink(filepath.Join(dir, dataDir))
			if err != nil {
				t.Errorf("..data was missing: %v", err)
				return
			}
			a, errA := os.ReadFile(filepath.Join(dir, state, "a"))
			b, errB := os.ReadFile(filepath.Join(dir, state, "deep", "b"))
			// A state that was replaced since may be gone; a mixture may not be.
			if errA == nil && errB == nil && string(a) != string(b) {
				t.Errorf("one state holds %q and %q", a, b)
			}
		}
	})
	for range 200 {
		write("1")
		write("22")
	}
	close(stop)
	reader.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(entries) != 4 { // ..data, its directory, a, deep
		t.Errorf("left in the volume: %v", names)
	}
}

func TestProjectedVolumeKeepsToItself(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	for _, name := range []string{"../x", "/etc/x", "..data", "a/../../x", ""} {
		if err := writeAtomic(dir, payload{name: {nil, 0o644}}); err == nil || !strings.Contains(err.Error(), "leaves the volume") {
			t.Errorf("path %q: %v, want refused", name, err)
		}
	}
	if err := writeAtomic(dir, payload{"a": {[]byte("x"), 0o400}}); err != nil {
		t.Fatal(err)
	}
	if err := writeAtomic(dir, payload{"b": {[]byte("y"), 0o644}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); !os.IsNotExist(err) {
		t.Errorf("a removed key is still there: %v", err)
	}
}
