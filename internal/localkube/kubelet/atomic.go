package kubelet

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// payload is the content of a projected volume: relative path -> file.
type payload map[string]projected

type projected struct {
	data []byte
	mode os.FileMode
}

func (p payload) equal(other payload) bool {
	return maps.EqualFunc(p, other, func(a, b projected) bool { return a.mode == b.mode && bytes.Equal(a.data, b.data) })
}

// dataDir is the link that is swapped; a reader that resolves it once sees one state of all files.
const dataDir = "..data"

// writeAtomic makes dir hold exactly the payload, by the kubelet's scheme: files lie in a fresh directory, ..data is
// a symlink to it that is swapped by rename, and the names that users open are symlinks through ..data.
func writeAtomic(dir string, p payload) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name := range p {
		if !filepath.IsLocal(name) || strings.HasPrefix(name, "..") {
			return fmt.Errorf("volume path %q leaves the volume", name)
		}
	}
	fresh, err := os.MkdirTemp(dir, "..ts-")
	if err != nil {
		return err
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	for name, file := range p {
		path := filepath.Join(fresh, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, file.data, 0o600); err != nil {
			return err
		}
		if err := os.Chmod(path, file.mode); err != nil {
			return err
		}
	}
	before, _ := os.Readlink(filepath.Join(dir, dataDir))
	link := filepath.Join(dir, dataDir+"_tmp")
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Base(fresh), link); err != nil {
		return err
	}
	if err := os.Rename(link, filepath.Join(dir, dataDir)); err != nil {
		return err
	}
	if err := linkNames(dir, p); err != nil {
		return err
	}
	if before != "" {
		return os.RemoveAll(filepath.Join(dir, before))
	}
	return nil
}

// linkNames makes dir's visible names be those of the payload's first path elements.
func linkNames(dir string, p payload) error {
	var want []string
	for name := range p {
		first, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		if !slices.Contains(want, first) {
			want = append(want, first)
		}
	}
	for _, name := range want {
		err := os.Symlink(filepath.Join(dataDir, name), filepath.Join(dir, name))
		if err != nil && !os.IsExist(err) {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "..") && !slices.Contains(want, entry.Name()) {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
