package log

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// openCounter counts the open segment files of a file system.
type openCounter struct {
	mu     sync.Mutex
	open   int
	opened []string
}

func (c *openCounter) hook(op, path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !strings.HasSuffix(path, logSuffix) {
		return nil
	}
	switch op {
	case vfs.OpOpen, vfs.OpCreate:
		c.open++
		c.opened = append(c.opened, path)
	case vfs.OpClose:
		c.open--
	}
	return nil
}

// readAt reads one batch at offset o and leaves the chunk to the caller.
func readAt(t *testing.T, l *Log, o ident.Offset) Chunk {
	t.Helper()
	c, err := l.Read(o, 1, l.EndOffset(), true)
	if err != nil || c.Bytes == 0 {
		t.Fatalf("read %d: %+v, %v", o, c, err)
	}
	return c
}

func TestSealedSegmentsAreClosedUntilTheyAreRead(t *testing.T) {
	var count openCounter
	files := NewFiles(3, 1<<20)
	l, _ := mustOpen(t, vfs.Inject(vfs.NewMem(), count.hook), Config{Settings: Settings{SegmentBytes: 500}, Files: files})
	for range 10 {
		mustAppend(t, l, 1, 1, 300)
	}
	if n := len(l.Segments()); n != 10 || count.open != 10 {
		t.Fatalf("%d files of %d segments are open; until they are flushed all must be", count.open, n)
	}
	mustFlush(t, l)
	expect := func(want int, when string) {
		t.Helper()
		if got := files.Stats().SegmentFiles; count.open != want || got != int64(want) {
			t.Fatalf("%s: %d files are open, Stats says %d, want %d", when, count.open, got, want)
		}
	}
	expect(4, "flushed: the active segment and those that are kept")
	readAll(t, l, 1000)
	expect(4, "read through")
	var held []Chunk
	for o := range ident.Offset(8) {
		held = append(held, readAt(t, l, o))
	}
	expect(9, "eight are being read")
	// The files of the first ones have left the cache; they stay open for their readers, also when their segments go.
	if err := l.SetStartOffset(5); err != nil {
		t.Fatal(err)
	}
	for o, c := range held {
		raw, err := c.AppendTo(nil)
		if err == nil {
			err = batch.Verify(raw)
		}
		if err != nil {
			t.Fatalf("chunk at %d: %v", o, err)
		}
		c.Release()
	}
	expect(4, "released")
	// The least recently used one goes first: 6 is used again before 8 needs room.
	for _, o := range []ident.Offset{5, 6, 7, 6, 8} {
		c := readAt(t, l, o)
		c.Release()
	}
	count.opened = nil
	for _, o := range []ident.Offset{6, 7, 8} {
		c := readAt(t, l, o)
		c.Release()
	}
	if len(count.opened) != 0 {
		t.Fatalf("opened again: %v", count.opened)
	}
	mustClose(t, l)
	expect(0, "closed")
	if _, err := l.Read(8, 1, 10, true); !errors.Is(err, ErrClosed) {
		t.Fatalf("a read of a closed log: %v", err)
	}
}

func TestOpenAfterACleanShutdownOpensOneSegment(t *testing.T) {
	const segments = 2000
	mem := vfs.NewMem()
	cfg := Config{Settings: Settings{SegmentBytes: 100}}
	l, _ := mustOpen(t, mem, cfg)
	for range segments {
		mustAppend(t, l, 1, 1, 10)
		mustFlush(t, l)
	}
	mustClose(t, l)
	var count openCounter
	read := map[string]int{}
	fsys := vfs.Inject(mem, func(op, path string) error {
		if op == vfs.OpRead || op == vfs.OpOpen {
			read[path]++
		}
		return count.hook(op, path)
	})
	cfg.CleanShutdown = true
	l, rec := mustOpen(t, fsys, cfg)
	if rec.Repaired() || len(l.Segments()) != segments {
		t.Fatalf("%d segments, %v", len(l.Segments()), rec.Repairs)
	}
	if len(count.opened) != 1 || len(read) > 8 {
		t.Fatalf("opened %d segments; %d files were opened or read", len(count.opened), len(read))
	}
	if check(t, l)[segments-1] == "" {
		t.Fatal("the last record is not there")
	}
}

func TestIndexesInMemoryAreBoundedAndLoadedAgain(t *testing.T) {
	files := NewFiles(100, 2000)
	cfg := Config{Settings: Settings{SegmentBytes: 4000, IndexIntervalBytes: 1}, Files: files}
	l, _ := mustOpen(t, vfs.NewMem(), cfg)
	for range 400 {
		mustAppend(t, l, 1, 1, 50)
	}
	mustFlush(t, l)
	for o := ident.Offset(0); o < 400; o += 7 {
		c := readAt(t, l, o)
		if c.First != o {
			t.Fatalf("read %d: begins at %d", o, c.First)
		}
		c.Release()
		if used := files.Stats().IndexBytes; used > 2000 || used == 0 {
			t.Fatalf("%d bytes of indexes are in memory", used)
		}
	}
	loaded := 0
	for _, s := range l.segments[:len(l.segments)-1] {
		if s.loaded.Load() != nil {
			loaded++
		}
	}
	if loaded == 0 || loaded > 3 {
		t.Fatalf("%d indexes are in memory", loaded)
	}
	// A segment that is written again keeps its index, whoever else needs room.
	mustTruncate(t, l, 30)
	for range 100 {
		mustAppend(t, l, 2, 1, 50)
		for o := ident.Offset(0); o < 30; o += 9 {
			c := readAt(t, l, o)
			c.Release()
		}
	}
	check(t, l)
	mustClose(t, l)
	if s := files.Stats(); s != (FilesStats{}) {
		t.Fatalf("after Close: %+v", s)
	}
}

func TestOneFilesServesManyLogs(t *testing.T) {
	files, mem := NewFiles(4, 1000), vfs.NewMem()
	var logs []*Log
	for i := range 8 {
		l, _, err := Open(mem, fmt.Sprintf("/data/t-%d", i), Config{Settings: Settings{SegmentBytes: 300}, Files: files})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			mustAppend(t, l, 1, 1, 200)
		}
		mustFlush(t, l)
		logs = append(logs, l)
	}
	for range 3 {
		for _, l := range logs {
			check(t, l)
		}
	}
	if got := files.Stats().SegmentFiles; got != 8+4 {
		t.Fatalf("%d files are open, want those of 8 active segments and 4", got)
	}
	for _, l := range logs {
		mustClose(t, l)
	}
	if got := files.Stats(); got != (FilesStats{}) {
		t.Fatalf("after all are closed: %+v", got)
	}
}

func TestFilesMakesRoomWhenTheProcessMayOpenNoMore(t *testing.T) {
	var count openCounter
	limit := 1 << 20
	fsys := vfs.Inject(vfs.NewMem(), func(op, path string) error {
		if (op == vfs.OpOpen || op == vfs.OpCreate) && strings.HasSuffix(path, logSuffix) && count.open >= limit {
			return syscall.EMFILE
		}
		return count.hook(op, path)
	})
	l, _ := mustOpen(t, fsys, Config{Settings: Settings{SegmentBytes: 300}, Files: NewFiles(100, 1000)})
	for range 20 {
		mustAppend(t, l, 1, 1, 200)
	}
	mustFlush(t, l)
	limit = count.open
	if err := l.SetStartOffset(1); err != nil {
		t.Fatal(err)
	}
	limit = count.open
	for range 5 {
		mustAppend(t, l, 1, 1, 200) // each rolls, and needs a file
		mustFlush(t, l)
	}
	if l.EndOffset() != 25 || count.open > limit {
		t.Fatalf("ends at %d with %d files open of %d", l.EndOffset(), count.open, limit)
	}
}

func TestAMissingSegmentFileIsCorruption(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, mem, Config{Settings: Settings{SegmentBytes: 300}, Files: NewFiles(1, 1000)})
	for range 5 {
		mustAppend(t, l, 1, 1, 200)
	}
	mustFlush(t, l)
	if err := mem.Remove(l.segments[1].path(logSuffix)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Read(1, 100, 5, true); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
}
