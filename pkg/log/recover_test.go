package log

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func patch(t *testing.T, fsys vfs.FS, name string, change func(f vfs.File, size int64) error) {
	t.Helper()
	f, err := fsys.OpenFile("/data/t-0/"+name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err == nil {
		err = change(f, size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flipAt(pos int64) func(f vfs.File, size int64) error {
	return func(f vfs.File, size int64) error {
		if pos < 0 {
			pos += size
		}
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, pos); err != nil {
			return err
		}
		b[0] ^= 0x10
		_, err := f.WriteAt(b, pos)
		return err
	}
}

// filled returns a file system with an unclosed log of 20 batches of two records in several segments, flushed.
func filled(t *testing.T) (*vfs.Mem, []ident.Offset) {
	t.Helper()
	l, m := newLog(t, small)
	for i := range 20 {
		mustAppend(t, l, ident.Epoch(i/5), 2, 50)
	}
	mustFlush(t, l)
	return m, l.Segments()
}

func TestKilledProcessLosesNothing(t *testing.T) {
	m, segments := filled(t)
	l, rec := mustOpen(t, m, small)
	if rec.Repaired() || rec.Scanned == 0 || l.EndOffset() != 40 || l.FlushedOffset() != 40 || len(check(t, l)) != 40 {
		t.Fatalf("%+v, end %d, flushed %d", rec, l.EndOffset(), l.FlushedOffset())
	}
	if diff := cmp.Diff(segments, l.Segments()); diff != "" {
		t.Fatal(diff)
	}
	mustAppend(t, l, 4, 1, 10)
	check(t, l)
}

func TestTornTailIsCutAtEveryByteAlsoOfTheMetadataLog(t *testing.T) {
	for _, stop := range []bool{false, true} {
		whole, segments := filled(t)
		last := fileName(segments[len(segments)-1], logSuffix)
		var size int64
		patch(t, whole, last, func(f vfs.File, s int64) error { size = s; return nil })
		for cut := size - 1; cut > 0; cut-- {
			m := whole.CrashClone(nil, 100)
			patch(t, m, last, func(f vfs.File, s int64) error { return f.Truncate(cut) })
			cfg := small
			cfg.StopOnCorruption = stop
			l, rec := mustOpen(t, m, cfg)
			if end := l.EndOffset(); end >= 40 || int64(end) < int64(segments[len(segments)-1]) {
				t.Fatalf("cut at %d: end %d", cut, end)
			}
			if l.Damaged() || rec.CutBytes != 0 && (rec.CutAt != l.EndOffset() || !rec.Repaired()) {
				t.Fatalf("cut at %d: %+v", cut, rec)
			}
			check(t, l)
		}
	}
}

func TestZeroedTailSectorIsTornButAFlippedBitIsCorruption(t *testing.T) {
	build := func() *vfs.Mem {
		l, m := newLog(t, Config{})
		for range 10 {
			mustAppend(t, l, 0, 2, 400)
		}
		mustFlush(t, l)
		return m
	}
	name := fileName(0, logSuffix)
	metadata := Config{StopOnCorruption: true}

	m := build()
	patch(t, m, name, func(f vfs.File, size int64) error {
		_, err := f.WriteAt(make([]byte, 512), 9*512)
		return err
	})
	l, rec := mustOpen(t, m, metadata)
	if l.Damaged() || l.EndOffset() >= 12 || l.EndOffset() < 6 {
		t.Fatalf("a sector that was never written: %+v, end %d", rec, l.EndOffset())
	}
	for _, pos := range []int64{16, 70, 2000, 4000, -1, -300} {
		m := build()
		patch(t, m, name, flipAt(pos))
		if _, _, err := Open(m, "/data/t-0", metadata); !errors.Is(err, ErrCorrupt) {
			t.Errorf("metadata log with a bit flipped at %d: %v", pos, err)
		}
		before := m.CrashClone(nil, 100)
		l, rec := mustOpen(t, m, Config{})
		if len(l.Damage()) != 1 || l.EndOffset() != 20 || rec.CutBytes != 0 || !rec.Repaired() {
			t.Errorf("partition with a bit flipped at %d: %+v, %v, end %d", pos, rec, l.Damage(), l.EndOffset())
		}
		if _, _, err := Open(before, "/data/t-0", metadata); !errors.Is(err, ErrCorrupt) {
			t.Errorf("the refused log was changed: %v", err)
		}
	}
}

func TestFlippedLengthInTheMiddleOfTheMetadataLogIsCorruption(t *testing.T) {
	m, segments := filled(t)
	patch(t, m, fileName(segments[len(segments)-1], logSuffix), flipAt(9)) // length field: beyond the file
	cfg := small
	cfg.StopOnCorruption = true
	if _, _, err := Open(m, "/data/t-0", cfg); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

func TestDamageBelowTheRecoveryPointIsCorruptionWhateverItLooksLike(t *testing.T) {
	m, segments := filled(t)
	last := segments[len(segments)-1]
	patch(t, m, fileName(last, logSuffix), func(f vfs.File, size int64) error { return f.Truncate(size - 1) })
	cfg := small
	cfg.StopOnCorruption, cfg.RecoveryPoint = true, 40
	if _, _, err := Open(m, "/data/t-0", cfg); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

func TestTornWriteInAnEarlierSegmentRemovesTheLaterOnes(t *testing.T) {
	m, segments := filled(t)
	patch(t, m, fileName(segments[2], logSuffix), func(f vfs.File, size int64) error { return f.Truncate(size - 1) })
	l, rec := mustOpen(t, m, small)
	if diff := cmp.Diff(segments[3:], rec.RemovedSegments); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(segments[:3], l.Segments()); diff != "" {
		t.Fatal(diff)
	}
	check(t, l)
	entries, err := m.ReadDir("/data/t-0")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), fileName(segments[3], "")) {
			t.Errorf("%s is still there", e.Name())
		}
	}
}

func TestRecoveryPointBoundsWhatIsScanned(t *testing.T) {
	m, segments := filled(t)
	cfg := small
	cfg.RecoveryPoint = 40
	l, rec := mustOpen(t, m, cfg)
	if rec.Scanned == 0 || rec.Scanned > small.SegmentBytes || len(check(t, l)) != 40 {
		t.Fatalf("scanned %d bytes with the recovery point at the end", rec.Scanned)
	}
	if len(segments) != len(l.Segments()) || len(l.Epochs()) != 4 {
		t.Fatalf("%v, %v", l.Segments(), l.Epochs())
	}
}

func TestRecoveryTellsOfItsProgressAndCanBeGivenUp(t *testing.T) {
	m, _ := filled(t)
	for _, point := range []ident.Offset{0, 17, 40} {
		expected, err := RecoveryBytes(m, "/data/t-0", point)
		if err != nil {
			t.Fatal(err)
		}
		cfg, told := small, int64(0)
		cfg.RecoveryPoint = point
		cfg.Progress = func(bytes int64) error { told += bytes; return nil }
		l, rec := mustOpen(t, m, cfg)
		if told != rec.Scanned || told != expected || told == 0 {
			t.Errorf("recovery point %d: told of %d bytes, scanned %d, expected %d", point, told, rec.Scanned, expected)
		}
		l.Abandon()
	}
	cfg, enough := small, errors.New("enough")
	cfg.Progress = func(int64) error { return enough }
	if _, _, err := Open(m, "/data/t-0", cfg); !errors.Is(err, enough) {
		t.Fatalf("got %v", err)
	}
	if l, rec := mustOpen(t, m, small); rec.CutBytes != 0 || len(check(t, l)) != 40 {
		t.Fatalf("%+v after a recovery that was given up", rec)
	}
	if n, err := RecoveryBytes(m, "/data/none", 0); n != 0 || err != nil {
		t.Fatalf("%d, %v of a log that is not there", n, err)
	}
}

func TestAbandonedLogWritesNothingMore(t *testing.T) {
	l, m := newLog(t, small)
	mustAppend(t, l, 3, 2, 50)
	f, err := l.BeginFlush()
	if err != nil {
		t.Fatal(err)
	}
	l.Abandon()
	// Another log has the directory's name by now.
	if err := f.Sync(); !errors.Is(err, ErrClosed) {
		t.Fatalf("a flush of an abandoned log: %v", err)
	}
	if _, err := l.EndFlush(f, ErrClosed); err == nil {
		t.Fatal("it was called flushed")
	}
	if _, err := m.Stat("/data/t-0/" + EpochCheckpointFile); err == nil {
		t.Fatal("the leader epochs were written")
	}
}

func TestIndexesAreMadeAgainWhenMissingOrWrong(t *testing.T) {
	remove := func(m *vfs.Mem, name string) {
		if err := m.Remove("/data/t-0/" + name); err != nil {
			t.Fatal(err)
		}
	}
	for name, damage := range map[string]func(m *vfs.Mem, segment ident.Offset){
		"missing": func(m *vfs.Mem, s ident.Offset) { remove(m, fileName(s, indexSuffix)) },
		"time index missing": func(m *vfs.Mem, s ident.Offset) {
			remove(m, fileName(s, timeIndexSuffix))
		},
		"wrong": func(m *vfs.Mem, s ident.Offset) { patch(t, m, fileName(s, indexSuffix), flipAt(6)) },
		"zero": func(m *vfs.Mem, s ident.Offset) {
			patch(t, m, fileName(s, indexSuffix), func(f vfs.File, size int64) error {
				_, err := f.WriteAt(make([]byte, size), 0)
				return err
			})
		},
		"half": func(m *vfs.Mem, s ident.Offset) {
			patch(t, m, fileName(s, indexSuffix), func(f vfs.File, size int64) error { return f.Truncate(size - 3) })
		},
	} {
		m, segments := filled(t)
		want, err := vfs.ReadFile(m, "/data/t-0/"+fileName(segments[1], indexSuffix))
		if err != nil || len(want) == 0 {
			t.Fatalf("index of %d bytes, %v", len(want), err)
		}
		damage(m, segments[1])
		l, rec := mustOpen(t, m, small)
		if !slices.Equal(rec.RebuiltIndexes, segments[1:2]) {
			t.Errorf("%s: rebuilt %v", name, rec.RebuiltIndexes)
		}
		check(t, l)
		if got, err := vfs.ReadFile(m, "/data/t-0/"+fileName(segments[1], indexSuffix)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: index differs from the one of the append, %v", name, err)
		}
		damage(m, segments[0])
		cfg := small
		cfg.RecoveryPoint = 40 // the first segment is not scanned, and its index needed
		l, _ = mustOpen(t, m, cfg)
		check(t, l)
	}
}

func TestMissingIndexAfterCleanShutdownIsMadeAgain(t *testing.T) {
	m, segments := filled(t)
	l, _ := mustOpen(t, m, small)
	mustClose(t, l)
	last := segments[len(segments)-1]
	if err := m.Remove("/data/t-0/" + fileName(last, indexSuffix)); err != nil {
		t.Fatal(err)
	}
	cfg := small
	cfg.CleanShutdown = true
	l, rec := mustOpen(t, m, cfg)
	if !slices.Equal(rec.RebuiltIndexes, []ident.Offset{last}) || l.EndOffset() != 40 {
		t.Fatalf("%+v, end %d", rec, l.EndOffset())
	}
	check(t, l)
}

func TestDamageAfterCleanShutdownIsFoundInTheLastSegment(t *testing.T) {
	m, segments := filled(t)
	l, _ := mustOpen(t, m, small)
	mustClose(t, l)
	patch(t, m, fileName(segments[len(segments)-1], logSuffix), func(f vfs.File, size int64) error { return f.Truncate(size - 1) })
	cfg := small
	cfg.CleanShutdown = true
	l, rec := mustOpen(t, m, cfg)
	if rec.CutBytes == 0 || l.EndOffset() != 38 { // without a recovery point that says that more was flushed
		t.Fatalf("%+v, end %d", rec, l.EndOffset())
	}
	if l.Damaged() {
		t.Fatal(l.Damage())
	}
}

func TestEpochsAreRebuiltFromTheBatchesEpochZeroIncluded(t *testing.T) {
	want := []epoch.Entry{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 10}, {Epoch: 2, Start: 20}, {Epoch: 3, Start: 30}}
	for name, content := range map[string]string{"missing": "", "garbage": "0\n7\n", "stale": "0\n1\n9 90\n"} {
		for _, point := range []ident.Offset{0, 40} {
			m, _ := filled(t)
			file := "/data/t-0/" + EpochCheckpointFile
			if content == "" {
				if err := m.Remove(file); err != nil {
					t.Fatal(err)
				}
			} else if err := vfs.WriteFileAtomic(m, file, []byte(content)); err != nil {
				t.Fatal(err)
			}
			if content != "" && name == "stale" && point > 0 {
				continue // below the recovery point the file is what is trusted
			}
			cfg := small
			cfg.RecoveryPoint = point
			l, _ := mustOpen(t, m, cfg)
			if diff := cmp.Diff(want, l.Epochs()); diff != "" {
				t.Errorf("%s, recovery point %d: %s", name, point, diff)
			}
		}
	}
}

func TestLeftoversAreRemoved(t *testing.T) {
	m, _ := filled(t)
	for _, name := range []string{fileName(0, logSuffix) + deletedSuffix, fileName(7, indexSuffix), fileName(0, logSuffix) + cleanedSuffix, nextSegmentFile} {
		if err := vfs.WriteFile(m, "/data/t-0/"+name, []byte("x"), true); err != nil {
			t.Fatal(err)
		}
	}
	l, rec := mustOpen(t, m, small)
	if len(rec.Repairs) != 2 { // what chores leave after any crash is not worth a word
		t.Fatalf("repairs: %q", rec.Repairs)
	}
	for _, name := range names(t, m) {
		if isLeftover(name) || strings.HasSuffix(name, indexSuffix) && !slices.ContainsFunc(l.segments, func(s *segment) bool { return strings.HasSuffix(s.path(indexSuffix), name) }) {
			t.Errorf("%s is left", name)
		}
	}
}

// The names and the order are Kafka's, so this is also what its cleaner leaves.
func TestSwapFileTakesThePlaceOfWhatItReplaces(t *testing.T) {
	replaced := batchOf(2, 4, 1)
	write := func(m *vfs.Mem, name string, data []byte) {
		t.Helper()
		if err := vfs.WriteFile(m, "/data/t-0/"+name, data, true); err != nil {
			t.Fatal(err)
		}
	}
	damaged := slices.Clone(replaced)
	damaged[len(damaged)-1] ^= 1
	for name, c := range map[string]struct {
		swap    []byte
		cleaned bool
		gone    []ident.Offset // old segments that are removed already
		first   ident.Offset
		lost    ident.Offset // offsets from 0 that are damaged
	}{
		"nothing removed yet":      {swap: replaced, first: 2},
		"the first removed":        {swap: replaced, gone: []ident.Offset{0}, first: 2},
		"all removed":              {swap: replaced, gone: []ident.Offset{0, 3}, first: 2},
		"another is still cleaned": {swap: replaced, cleaned: true, first: 0},
		"damaged":                  {swap: damaged, first: 0},
		"damaged, all removed":     {swap: damaged, gone: []ident.Offset{0, 3}, lost: 6},
	} {
		m := vfs.NewMem()
		if err := m.MkdirAll("/data/t-0", 0o755); err != nil {
			t.Fatal(err)
		}
		for base, data := range map[ident.Offset][]byte{0: batchOf(0, 3, 1), 3: batchOf(3, 3, 1), 6: batchOf(6, 2, 1)} {
			if !slices.Contains(c.gone, base) {
				write(m, fileName(base, logSuffix), data)
			}
			write(m, fileName(base, indexSuffix), []byte{0, 0, 0, 0, 0, 0, 0, 0}) // of the old content
		}
		write(m, fileName(0, logSuffix)+swapSuffix, c.swap)
		write(m, fileName(0, timeIndexSuffix)+swapSuffix, nil)
		if c.cleaned {
			write(m, fileName(0, logSuffix)+cleanedSuffix, replaced)
		}
		if c.lost > 0 {
			for _, clean := range []bool{true, false} {
				l, rec := mustOpen(t, m.CrashClone(nil, 100), Config{CleanShutdown: clean})
				if d := l.Damage(); len(d) != 1 || d[0].From != 0 || d[0].To != c.lost || l.EndOffset() != 8 {
					t.Errorf("%s: damaged %v, ends at %d; %v", name, d, l.EndOffset(), rec.Repairs)
				}
			}
			continue
		}
		l, rec, err := Open(m, "/data/t-0", Config{CleanShutdown: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := checkBatches(t, l, true)
		if _, ok := got[c.first]; !ok || len(got) != int(8-c.first) || !rec.Repaired() {
			t.Fatalf("%s: %v; %v", name, slices.Sorted(maps.Keys(got)), rec.Repairs)
		}
		if _, rec := mustOpen(t, m, Config{}); rec.CutBytes != 0 {
			t.Fatalf("%s: then %v", name, rec.Repairs)
		}
		if entries, _ := m.ReadDir("/data/t-0"); slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return isLeftover(e.Name()) }) {
			t.Fatalf("%s: left are %v", name, entries)
		}
	}
}

func TestMetadataLogThatEndsBelowItsStartIsEmptied(t *testing.T) {
	m, _ := filled(t)
	cfg := small
	cfg.StartOffset, cfg.StopOnCorruption = 77, true
	l, rec := mustOpen(t, m, cfg)
	if l.StartOffset() != 77 || l.EndOffset() != 77 || !rec.Repaired() {
		t.Fatalf("%d to %d, %+v", l.StartOffset(), l.EndOffset(), rec)
	}
}

func TestIndexOfAnEarlierLifeIsNotTrustedAtTheRecoveryPoint(t *testing.T) {
	cfg := Config{Settings: Settings{IndexIntervalBytes: 100}}
	l, m := newLog(t, cfg)
	for range 6 {
		mustAppend(t, l, 0, 1, 150)
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	mustFlush(t, l) // the index is on the disk
	mustTruncate(t, l, 1)
	m = m.CrashClone(nil, 100)
	l, _ = mustOpen(t, m, cfg)
	for range 7 {
		mustAppend(t, l, 1, 1, 130) // other positions
	}
	mustFlush(t, l)
	cfg.RecoveryPoint = l.FlushedOffset()
	if err := l.Roll(); err != nil { // the new index is not, though the next segment is
		t.Fatal(err)
	}
	if err := m.SyncDir("/data/t-0"); err != nil {
		t.Fatal(err)
	}
	l, _ = mustOpen(t, m.CrashClone(nil, 0), cfg)
	if l.EndOffset() != 8 || len(l.Segments()) != 2 {
		t.Fatalf("end %d, segments %v", l.EndOffset(), l.Segments())
	}
	for o := range l.EndOffset() {
		c, err := l.Read(o, 1, l.EndOffset(), true)
		if err != nil || c.First != o {
			t.Fatalf("read at %d: from %d, %v", o, c.First, err)
		}
		c.Release()
	}
}

func TestEmptiedIndexIsMadeAgain(t *testing.T) {
	m, segments := filled(t)
	l, _ := mustOpen(t, m, small)
	mustClose(t, l)
	patch(t, m, fileName(segments[1], indexSuffix), func(f vfs.File, _ int64) error { return f.Truncate(0) })
	cfg := small
	cfg.CleanShutdown = true
	l, _ = mustOpen(t, m, cfg)
	x, err := l.segments[1].index(l.segments[1].size)
	if err != nil || len(*x.offsets.Load()) == 0 {
		t.Fatal(err)
	}
}
