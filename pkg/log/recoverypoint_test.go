package log

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/highwater-io/highwater/pkg/vfs"
)

// readCounter counts the bytes that are read from segment files.
type readCounter struct {
	vfs.FS
	bytes atomic.Int64
}

type countedFile struct {
	vfs.File
	count *readCounter
}

func (c *readCounter) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(filepath.Base(name), logSuffix) {
		return f, err
	}
	return countedFile{f, c}, nil
}

func (f countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.count.bytes.Add(int64(n))
	return n, err
}

// What a start after a crash reads is bounded by what lies behind the recovery point, however long the log is. Of each
// segment before, only the end is looked at, to which its index leads.
func TestRecoveryReadsWhatLiesBehindTheRecoveryPoint(t *testing.T) {
	const segments, segmentBytes = 200, 64 << 10
	mem := vfs.NewMem()
	cfg := Config{Settings: Settings{SegmentBytes: segmentBytes}}
	l, _ := mustOpen(t, mem, cfg)
	for len(l.Segments()) < segments {
		mustAppend(t, l, 1, 1, 2000)
	}
	mustFlush(t, l)
	cfg.RecoveryPoint = l.FlushedOffset()
	for len(l.Segments()) < segments+3 { // written since, and not flushed
		mustAppend(t, l, 1, 1, 2000)
	}
	behind := int64(0)
	for _, s := range l.segments {
		if s.next >= cfg.RecoveryPoint {
			behind += s.size
		}
	}
	count := &readCounter{FS: mem.CrashClone(rand.New(rand.NewPCG(1, 1)), 100)}
	again, rec := mustOpen(t, count, cfg)
	if rec.Scanned != behind || again.EndOffset() != l.EndOffset() {
		t.Fatalf("scanned %d of %d bytes, ends at %d of %d: %v", rec.Scanned, behind, again.EndOffset(), l.EndOffset(), rec.Repairs)
	}
	// Twice what is behind (checked, then replayed for the producers), and an index interval for each segment before.
	const perSegment = 3 * 4096
	if read, limit := count.bytes.Load(), 2*behind+segments*perSegment; read > limit || limit > l.Size()/2 {
		t.Errorf("%d bytes were read, want at most %d of %d", read, limit, l.Size())
	}
	// Without a recovery point all of it is read.
	cfg.RecoveryPoint = 0
	if _, rec := mustOpen(t, mem.CrashClone(rand.New(rand.NewPCG(1, 1)), 100), cfg); rec.Scanned != l.Size() {
		t.Errorf("scanned %d of %d bytes", rec.Scanned, l.Size())
	}
}
