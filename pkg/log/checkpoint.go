package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// Files of a data directory that hold one offset for each of its partitions, in Kafka's text format: "0", the
// number of entries, then "<topic> <partition> <offset>".
const (
	// HighWatermarkCheckpointFile has the high watermarks.
	HighWatermarkCheckpointFile = "replication-offset-checkpoint"
	// RecoveryPointCheckpointFile has the offsets up to which the logs were flushed.
	RecoveryPointCheckpointFile = "recovery-point-offset-checkpoint"
	// LogStartCheckpointFile has the log starts that lie within a segment.
	LogStartCheckpointFile = "log-start-offset-checkpoint"
	// CleanerCheckpointFile has the first dirty offsets of logs that were compacted.
	CleanerCheckpointFile = "cleaner-offset-checkpoint"
)

// TopicIndex names a partition as those files do.
type TopicIndex struct {
	Topic string
	Index int32
}

// ReadOffsetCheckpoint reads one of the files; a missing one is empty. An error wraps ErrCorrupt when the
// content is at fault.
func ReadOffsetCheckpoint(fsys vfs.FS, dataDir, file string) (map[TopicIndex]ident.Offset, error) {
	out := map[TopicIndex]ident.Offset{}
	data, err := vfs.ReadFile(fsys, filepath.Join(dataDir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	if err := decodeOffsetCheckpoint(data, out); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, file, err)
	}
	return out, nil
}

func decodeOffsetCheckpoint(data []byte, out map[TopicIndex]ident.Offset) error {
	return parseCheckpoint(data, func(fields []string) error {
		if len(fields) != 3 {
			return fmt.Errorf("want topic, partition and offset")
		}
		n, err := parseInts(fields[1:], 31, 63)
		if err != nil {
			return err
		}
		key := TopicIndex{fields[0], int32(n[0])}
		if _, ok := out[key]; ok {
			return fmt.Errorf("partition %s-%d is there twice", key.Topic, key.Index)
		}
		out[key] = ident.Offset(n[1])
		return nil
	})
}

// WriteOffsetCheckpoint replaces one of the files, durably.
func WriteOffsetCheckpoint(fsys vfs.FS, dataDir, file string, offsets map[TopicIndex]ident.Offset) error {
	return vfs.WriteFileAtomic(fsys, filepath.Join(dataDir, file), encodeOffsetCheckpoint(offsets))
}

func encodeOffsetCheckpoint(offsets map[TopicIndex]ident.Offset) []byte {
	keys := make([]TopicIndex, 0, len(offsets))
	for k := range offsets {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		if keys[i].Topic != keys[j].Topic {
			return keys[i].Topic < keys[j].Topic
		}
		return keys[i].Index < keys[j].Index
	})
	var b strings.Builder
	fmt.Fprintf(&b, "0\n%d\n", len(keys))
	for _, k := range keys {
		fmt.Fprintf(&b, "%s %d %d\n", k.Topic, k.Index, offsets[k])
	}
	return []byte(b.String())
}

// parseCheckpoint reads Kafka's checkpoint format, version 0, and hands out the fields of each entry.
func parseCheckpoint(data []byte, entry func(fields []string) error) error {
	lines := strings.Split(strings.TrimRight(string(data), "\r\n"), "\n")
	if len(lines) < 2 {
		return fmt.Errorf("want a version and a number of entries")
	}
	if v := strings.TrimSpace(lines[0]); v != "0" {
		return fmt.Errorf("version %q, only 0 is known", v)
	}
	count, err := strconv.ParseUint(strings.TrimSpace(lines[1]), 10, 31)
	if err != nil {
		return fmt.Errorf("number of entries: %w", err)
	}
	lines = lines[2:]
	if uint64(len(lines)) != count {
		return fmt.Errorf("%d entries announced, %d there", count, len(lines))
	}
	for i, line := range lines {
		if err := entry(strings.Fields(line)); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}

// parseInts reads numbers that are not negative, of so many bits.
func parseInts(fields []string, bits ...int) ([]int64, error) {
	if len(fields) != len(bits) {
		return nil, fmt.Errorf("%d fields, want %d", len(fields), len(bits))
	}
	out := make([]int64, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, bits[i])
		if err != nil {
			return nil, err
		}
		out[i] = int64(n)
	}
	return out, nil
}
