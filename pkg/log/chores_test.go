package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// apart is small, with chores that the owner runs.
func apart() Config {
	cfg := small
	cfg.ChoresApart = true
	return cfg
}

// recorder notes the operations on a file system that change something, or fails one of them.
type recorder struct {
	ops  []string
	fail func(op, path string) error
}

func (r *recorder) hook(op, path string) error {
	if r.fail != nil {
		if err := r.fail(op, path); err != nil {
			return err
		}
	}
	switch op {
	case vfs.OpRead, vfs.OpOpen, vfs.OpStat, vfs.OpReadDir, vfs.OpClose:
		return nil
	}
	r.ops = append(r.ops, op+" "+filepath.Base(path))
	return nil
}

func names(t *testing.T, fsys vfs.FS) []string {
	t.Helper()
	entries, err := fsys.ReadDir("/data/t-0")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func runChores(t tb, l *Log) {
	t.Helper()
	if err := l.RunChores(); err != nil {
		t.Fatal(err)
	}
}

func TestARollWithPreparedFileOnlyRenames(t *testing.T) {
	var rec recorder
	l, _ := mustOpen(t, vfs.Inject(vfs.NewMem(), rec.hook), apart())
	mustAppend(t, l, 1, 1, 600) // more than half of a segment
	if !l.ChoresWanted() {
		t.Fatal("the next segment's file is not to be made")
	}
	runChores(t, l)
	if l.ChoresWanted() {
		t.Fatal("there is still something to do")
	}
	rec.ops = nil
	mustAppend(t, l, 1, 1, 600)
	want := []string{"rename " + nextSegmentFile, "write 00000000000000000001.log"}
	if !slices.Equal(rec.ops, want) {
		t.Fatalf("the roll did %v, want %v", rec.ops, want)
	}
	rec.ops = nil
	runChores(t, l)
	for _, name := range []string{"create 00000000000000000000.index", "create 00000000000000000000.timeindex",
		"create 00000000000000000001.snapshot", "create " + nextSegmentFile} {
		if !slices.Contains(rec.ops, name) {
			t.Errorf("the chores did not %s, but %v", name, rec.ops)
		}
	}
	check(t, l)
	mustClose(t, l)
}

func TestRetentionOnlyRenamesAndAChoreUnlinks(t *testing.T) {
	var rec recorder
	mem := vfs.NewMem()
	l, _ := mustOpen(t, vfs.Inject(mem, rec.hook), apart())
	for range 8 {
		mustAppend(t, l, 1, 1, 600)
		runChores(t, l)
	}
	mustFlush(t, l)
	rec.ops = nil
	if n, _, err := l.DeleteOldSegments(0, Limits{Ms: -1, Bytes: 2000}, l.EndOffset()); err != nil || n != 5 {
		t.Fatalf("%d segments, %v", n, err)
	}
	for _, op := range rec.ops {
		if !strings.HasPrefix(op, "rename ") && !strings.HasSuffix(op, ".snapshot") {
			t.Errorf("retention did %s", op)
		}
	}
	if want := "rename 00000000000000000000.log"; rec.ops[0] != want {
		t.Errorf("the first was %s, want %s", rec.ops[0], want)
	}
	deleted := func() (n int) {
		for _, name := range names(t, mem) {
			if strings.HasSuffix(name, deletedSuffix) {
				n++
			}
		}
		return n
	}
	if n := deleted(); n != 15 {
		t.Errorf("%d files wait to be unlinked, want 15", n)
	}
	runChores(t, l)
	if n := deleted(); n != 0 {
		t.Errorf("%d files are left", n)
	}
	check(t, l)
	mustClose(t, l)
}

func TestADroppedSegmentIsUnlinkedOnceNobodyReadsIt(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, mem, apart())
	for range 4 {
		mustAppend(t, l, 1, 1, 600)
	}
	mustFlush(t, l)
	runChores(t, l)
	held := readAt(t, l, 0)
	again := readAt(t, l, 1)
	if err := l.SetStartOffset(2); err != nil {
		t.Fatal(err)
	}
	runChores(t, l)
	for _, c := range []*Chunk{&held, &again} {
		raw, err := c.AppendTo(nil)
		if err != nil || len(raw) < 600 {
			t.Fatalf("%d bytes, %v", len(raw), err)
		}
	}
	again.Release()
	runChores(t, l)
	left := slices.DeleteFunc(names(t, mem), func(name string) bool { return !strings.HasSuffix(name, logSuffix+deletedSuffix) })
	if want := []string{"00000000000000000000.log.deleted"}; !slices.Equal(left, want) {
		t.Fatalf("left is %v, want %v", left, want)
	}
	if l.ChoresWanted() {
		t.Fatal("there is something to do while the segment is read")
	}
	held.Release()
	if !l.ChoresWanted() {
		t.Fatal("there is nothing to do though nobody reads any more")
	}
	runChores(t, l)
	if slices.Contains(names(t, mem), left[0]) {
		t.Fatal("it is still there")
	}
}

// A segment that is dropped twice, by truncations, waits under two names.
func TestSegmentsOfOneNameWaitToBeUnlinkedTogether(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, mem, apart())
	for range 3 {
		for l.EndOffset() < 4 {
			mustAppend(t, l, 1, 1, 600)
		}
		mustTruncate(t, l, 2)
	}
	n := 0
	for _, name := range names(t, mem) {
		if strings.HasPrefix(name, "00000000000000000003.log") && strings.HasSuffix(name, deletedSuffix) {
			n++
		}
	}
	if n != 3 {
		t.Fatalf("%v: want three of segment 3", names(t, mem))
	}
	runChores(t, l)
	for _, name := range names(t, mem) {
		if strings.HasSuffix(name, deletedSuffix) {
			t.Errorf("%s is left", name)
		}
	}
	check(t, l)
}

func TestALargeSegmentIsUnlinkedInSteps(t *testing.T) {
	var rec recorder
	mem := vfs.NewMem()
	fsys := vfs.Inject(mem, rec.hook)
	if err := mem.MkdirAll("/data/t-0", 0o755); err != nil {
		t.Fatal(err)
	}
	name := "/data/t-0/00000000000000000000.log.deleted"
	if err := vfs.WriteFile(mem, name, nil, false); err != nil {
		t.Fatal(err)
	}
	d := &doomed{bytes: 3*unlinkStepBytes + 5, files: []string{name}}
	if err := d.unlink(fsys, true, func() bool { return false }); err != nil {
		t.Fatal(err)
	}
	want := []string{"truncate", "truncate", "truncate", "remove"}
	var got []string
	for _, op := range rec.ops {
		got = append(got, strings.Fields(op)[0])
	}
	if !slices.Equal(got, want) || !d.gone.Load() {
		t.Fatalf("did %v, want %v", rec.ops, want)
	}
	if _, err := mem.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestWriteBackFollowsWhatIsAppended(t *testing.T) {
	var rec recorder
	cfg := Config{ChoresApart: true}
	l, _ := mustOpen(t, vfs.Inject(vfs.NewMem(), rec.hook), cfg)
	batch := func() { mustAppend(t, l, 1, 1, writeBackBytes/2+1) }
	batch()
	if l.ChoresWanted() {
		t.Fatal("too early")
	}
	batch()
	rec.ops = nil
	runChores(t, l)
	if want := []string{"writeback 00000000000000000000.log"}; !slices.Equal(rec.ops, want) {
		t.Fatalf("did %v, want %v", rec.ops, want)
	}
	if l.ChoresWanted() {
		t.Fatal("again")
	}
	batch()
	mustFlush(t, l) // writes it all
	batch()
	if l.ChoresWanted() {
		t.Fatal("what was flushed counts still")
	}
}

func TestChoresOfALogThatEndsMeanwhile(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(*testing.T, *Log)
	}{
		{"Close", func(t *testing.T, l *Log) { mustClose(t, l) }},
		{"Abandon", func(_ *testing.T, l *Log) { l.Abandon() }},
	} {
		for _, ran := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ran before: %v", end.name, ran), func(t *testing.T) {
				var rec recorder
				mem, files := vfs.NewMem(), NewFiles(10, 1000)
				cfg := apart()
				cfg.Files = files
				l, _ := mustOpen(t, vfs.Inject(mem, rec.hook), cfg)
				for range 4 {
					mustAppend(t, l, 1, 1, 600)
				}
				if err := l.SetStartOffset(2); err != nil {
					t.Fatal(err)
				}
				c := l.BeginChores()
				if c == nil {
					t.Fatal("nothing to do")
				}
				if ran {
					if err := c.Run(); err != nil {
						t.Fatal(err)
					}
				}
				end.do(t, l)
				rec.ops = nil
				err := c.Run()
				if err == nil {
					err = l.EndChores(c, nil)
				}
				if !errors.Is(err, ErrClosed) || len(rec.ops) > 0 {
					t.Fatalf("a log that has ended was written: %v, %v", rec.ops, err)
				}
				if s := files.Stats(); s != (FilesStats{}) {
					t.Fatalf("left open: %+v", s)
				}
				if end.name == "Abandon" {
					return
				}
				for _, name := range names(t, mem) {
					if isLeftover(name) {
						t.Errorf("%s is left", name)
					}
				}
				cfg.CleanShutdown, cfg.StartOffset = true, 2
				l, recovery := mustOpen(t, mem, cfg)
				if recovery.Repaired() {
					t.Fatal(recovery.Repairs)
				}
				check(t, l)
			})
		}
	}
}

func TestAFailedChorePoisonsTheLog(t *testing.T) {
	disk := errors.New("input/output error")
	rec := recorder{}
	l, _ := mustOpen(t, vfs.Inject(vfs.NewMem(), rec.hook), apart())
	mustAppend(t, l, 1, 1, 600)
	mustAppend(t, l, 1, 1, 600)
	rec.fail = func(op, path string) error {
		if op == vfs.OpCreate && strings.HasSuffix(path, indexSuffix) {
			return disk
		}
		return nil
	}
	c := l.BeginChores()
	err := c.Run()
	rec.fail = nil
	if err := l.EndChores(c, err); !errors.Is(err, disk) {
		t.Fatal(err)
	}
	if _, err := l.Flush(); !errors.Is(err, disk) {
		t.Fatalf("a flush after it says %v", err)
	}
	if l.ChoresWanted() || l.BeginChores() != nil {
		t.Fatal("a poisoned log has chores")
	}
}

// A flush that covers a sealed segment writes what no chore has written of it: afterwards no start scans it.
func TestAFlushCompletesWhatNoChoreHasDone(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, mem, apart())
	for range 4 {
		mustAppend(t, l, 1, 1, 600)
	}
	mustFlush(t, l)
	cfg := apart()
	cfg.RecoveryPoint = l.EndOffset()
	again, rec := mustOpen(t, mem.CrashClone(nil, 0), cfg)
	if rec.Repaired() || again.EndOffset() != 4 {
		t.Fatalf("ends at %d, %v", again.EndOffset(), rec.Repairs)
	}
	if want := []ident.Offset{1, 2, 3}; !slices.Equal(l.producers.snapshots, want) || !slices.Equal(again.producers.snapshots, want) {
		t.Fatalf("snapshots %v, then %v", l.producers.snapshots, again.producers.snapshots)
	}
}

func TestUnlinkOfALargeSegmentWhoseFileIsMissingIsDone(t *testing.T) {
	m := vfs.NewMem()
	if err := m.MkdirAll("/data/t-0", 0o755); err != nil {
		t.Fatal(err)
	}
	d := &doomed{bytes: 3 * unlinkStepBytes, files: []string{"/data/t-0/00000000000000000000.log.deleted"}}
	if err := d.unlink(m, true, func() bool { return false }); err != nil || !d.gone.Load() {
		t.Fatalf("gone %v, %v", d.gone.Load(), err)
	}
}
