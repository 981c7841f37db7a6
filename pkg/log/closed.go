package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/highwater-io/highwater/pkg/vfs"
)

// SegmentCheckpointFile says which sealed segments a log had at its last clean shutdown, and how long they were, in the
// format of Kafka's checkpoints: "0", the number of entries, then "<base offset> <bytes>". Where the directory has the
// same, no file is missing or has lost its end, and none need be opened to see that. Apache Kafka ignores it.
const SegmentCheckpointFile = "segment-checkpoint"

// writeSegments notes the sealed segments for the next start, durably.
func (l *Log) writeSegments() error {
	sealed := l.segments[:len(l.segments)-1]
	if len(sealed) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "0\n%d\n", len(sealed))
	for _, s := range sealed {
		fmt.Fprintf(&b, "%d %d\n", s.base, s.size)
	}
	return vfs.WriteFileAtomic(l.fsys, filepath.Join(l.dir, SegmentCheckpointFile), []byte(b.String()))
}

// segmentsAsClosed says whether the sealed segments are those that were noted. One that can't be read says nothing.
func (l *Log) segmentsAsClosed() (bool, error) {
	data, err := vfs.ReadFile(l.fsys, filepath.Join(l.dir, SegmentCheckpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sealed := l.segments[:len(l.segments)-1]
	same, i := true, 0
	err = parseCheckpoint(data, func(fields []string) error {
		n, err := parseInts(fields, 63, 63)
		if err != nil {
			return err
		}
		same = same && i < len(sealed) && int64(sealed[i].base) == n[0] && sealed[i].size == n[1]
		i++
		return nil
	})
	return err == nil && same && i == len(sealed), nil
}
