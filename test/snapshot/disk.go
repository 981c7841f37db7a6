package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const metadataDir = "__cluster_metadata-0"

// findMetadata is the directory of the metadata log on a node's volume.
func findMetadata(volume string) (string, error) {
	var found string
	err := filepath.WalkDir(volume, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == metadataDir {
			found = path
			return fs.SkipAll
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("%s has no %s", volume, metadataDir)
	}
	return found, err
}

// rawBatch is a record batch as it lies on the disk.
type rawBatch struct {
	base, next int64
	raw        []byte
}

// readBatches reads the batches of a metadata log whose records are at or behind an offset. The log may grow meanwhile
// or lose its beginning; what is not whole yet is left out.
func readBatches(dir string, from int64) ([]rawBatch, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out []rawBatch
	for _, name := range names {
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for len(data) > 0 {
			b, rest, ok := nextBatch(data)
			if !ok {
				break
			}
			data = rest
			if len(out) > 0 && b.base != out[len(out)-1].next {
				return nil, fmt.Errorf("%s: a batch begins at offset %d, the one before ends at %d", name, b.base, out[len(out)-1].next)
			}
			if b.next > from {
				out = append(out, b)
			}
		}
	}
	return out, nil
}

// nextBatch takes a batch by its header (magic 2), and false when there is no whole one.
func nextBatch(data []byte) (b rawBatch, rest []byte, ok bool) {
	const headerBytes, upToLength, lastDelta = 61, 12, 23
	if len(data) < headerBytes {
		return b, data, false
	}
	size := upToLength + int(int32(binary.BigEndian.Uint32(data[8:])))
	if size < headerBytes || size > len(data) {
		return b, data, false
	}
	b.base = int64(binary.BigEndian.Uint64(data))
	b.next = b.base + int64(int32(binary.BigEndian.Uint32(data[lastDelta:]))) + 1
	b.raw = data[:size]
	return b, data[size:], true
}

// snapshotFiles lists the snapshots in a directory by name, oldest first, without the one that it was formatted with.
func snapshotFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".checkpoint"); ok && name != snapshotName(0, 0) {
			names = append(names, name)
		}
	}
	return names, nil
}

// partials lists what there is of fetched snapshots that are not whole.
func partials(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "*-fetched*.part"))
}

func readSnapshot(dir, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(dir, name+".checkpoint"))
}

// endOf is the end offset in a snapshot's name.
func endOf(name string) (end int64, epoch int32, err error) {
	_, err = fmt.Sscanf(name, "%020d-%010d", &end, &epoch)
	return end, epoch, err
}

// sameBatches compares two logs where both have something, and returns how many batches and bytes that was.
func sameBatches(a, b []rawBatch) (n int, size int64, err error) {
	if len(a) == 0 || len(b) == 0 {
		return 0, 0, errors.New("one of the logs has nothing to compare")
	}
	from := max(a[0].base, b[0].base)
	later := func(l []rawBatch) []rawBatch {
		return slices.DeleteFunc(slices.Clone(l), func(x rawBatch) bool { return x.base < from })
	}
	a, b = later(a), later(b)
	for ; n < min(len(a), len(b)); n++ {
		if !bytes.Equal(a[n].raw, b[n].raw) {
			return n, size, fmt.Errorf("the batches at offset %d differ: %d bytes and %d", a[n].base, len(a[n].raw), len(b[n].raw))
		}
		size += int64(len(a[n].raw))
	}
	return n, size, nil
}
