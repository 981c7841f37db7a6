package log

import (
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

var small = Config{Settings: Settings{SegmentBytes: 1000, IndexIntervalBytes: 200}}

func TestAppendGivesOffsetsAndEpochsAndReadsBack(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"mem": vfs.NewMem(), "os": vfs.OS()} {
		t.Run(name, func(t *testing.T) {
			dir := "/data/t-0"
			if name == "os" {
				dir = t.TempDir() + "/t-0"
			}
			l, _, err := Open(fsys, dir, small)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 30 {
				info := mustAppend(t, l, ident.Epoch(i/10), 3, 50)
				if info.First != ident.Offset(3*i) || info.Last != ident.Offset(3*i+2) || info.Batches != 1 || info.Duplicate {
					t.Fatalf("append %d: %+v", i, info)
				}
			}
			if l.EndOffset() != 90 || l.StartOffset() != 0 || l.FlushedOffset() != 0 || len(l.Segments()) < 5 {
				t.Fatalf("start %d end %d flushed %d segments %v", l.StartOffset(), l.EndOffset(), l.FlushedOffset(), l.Segments())
			}
			if got := check(t, l); len(got) != 90 {
				t.Fatalf("%d records", len(got))
			}
			mustFlush(t, l)
			mustClose(t, l)
			cfg := small
			cfg.CleanShutdown = true
			l, rec, err := Open(fsys, dir, cfg)
			if err != nil || rec.Repaired() || rec.Scanned != 0 {
				t.Fatalf("after a clean shutdown: %+v, %v", rec, err)
			}
			if got := check(t, l); len(got) != 90 || l.FlushedOffset() != 90 {
				t.Fatalf("%d records, flushed %d", len(got), l.FlushedOffset())
			}
			mustAppend(t, l, 5, 1, 10)
			mustClose(t, l)
		})
	}
}

func TestReadKeepsToItsLimits(t *testing.T) {
	l, _ := newLog(t, small)
	for range 20 {
		mustAppend(t, l, 0, 2, 50)
	}
	size := l.Size() / 20
	for _, c := range []struct {
		name        string
		from        ident.Offset
		max         int
		below       ident.Offset
		minOne      bool
		first, next ident.Offset
	}{
		{"all", 0, 1 << 20, 40, true, 0, 40},
		{"in the middle of a batch", 5, 1 << 20, 40, true, 4, 40},
		{"two batches and a half", 0, int(size*5/2) + 8, 40, true, 0, 4},
		{"high watermark", 0, 1 << 20, 10, true, 0, 10},
		{"high watermark within a batch", 0, 1 << 20, 11, true, 0, 10},
		{"at the high watermark", 10, 1 << 20, 10, true, 10, 10},
		{"too small for one, wanted", 6, 1, 40, true, 6, 8},
		{"too small for one", 6, 1, 40, false, 6, 6},
		{"at the end", 40, 1 << 20, 40, true, 40, 40},
	} {
		got, err := l.Read(c.from, c.max, c.below, c.minOne)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got.First != c.first || got.Next != c.next {
			t.Errorf("%s: %d to %d, want %d to %d", c.name, got.First, got.Next, c.first, c.next)
		}
		raw, err := got.AppendTo(nil)
		if err != nil || len(raw) != got.Bytes {
			t.Errorf("%s: %d of %d bytes, %v", c.name, len(raw), got.Bytes, err)
		}
		for rest := raw; len(rest) > 0; {
			if _, rest, _, err = batch.Next(rest); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		got.Release()
	}
	for _, o := range []ident.Offset{-1, 41} {
		if _, err := l.Read(o, 100, 40, true); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("read at %d: %v", o, err)
		}
	}
}

func TestFollowerKeepsTheLeadersBytesAndRefusesWhatDoesNotContinueThem(t *testing.T) {
	leader, _ := newLog(t, small)
	for i := range 10 {
		mustAppend(t, leader, ident.Epoch(i/4), 2, 50)
	}
	raw := readAll(t, leader, 1<<20)
	follower, _ := newLog(t, Config{})
	info, err := follower.AppendAsFollower(slices.Clone(raw))
	if err != nil || info.Batches != 10 || info.End() != 20 {
		t.Fatalf("%+v, %v", info, err)
	}
	if got := readAll(t, follower, 1<<20); !slices.Equal(got, raw) {
		t.Fatal("the bytes differ")
	}
	if diff := cmp.Diff(leader.Epochs(), follower.Epochs()); diff != "" {
		t.Fatal(diff)
	}
	before := batch.NewBuilder(19, 2, 0).Append(nil, []byte("v")).Build()
	if _, err := follower.AppendAsFollower(before); !errors.Is(err, ErrNotContiguous) {
		t.Fatalf("an offset that is taken: %v", err)
	}
	old := batch.NewBuilder(20, 1, 0).Append(nil, []byte("v")).Build()
	if _, err := follower.AppendAsFollower(old); !errors.Is(err, ErrNotContiguous) {
		t.Fatalf("a falling epoch: %v", err)
	}
	if follower.EndOffset() != 20 {
		t.Fatalf("end %d", follower.EndOffset())
	}
}

func TestOnlyTheMetadataLogRefusesGaps(t *testing.T) {
	for _, stop := range []bool{true, false} {
		l, m := newLog(t, Config{StopOnCorruption: stop})
		if _, err := l.AppendAsFollower(batchOf(0, 3, 1)); err != nil {
			t.Fatal(err)
		}
		_, err := l.AppendAsFollower(batchOf(7, 2, 1))
		if stop {
			if !errors.Is(err, ErrNotContiguous) || l.EndOffset() != 3 {
				t.Fatalf("end %d, %v", l.EndOffset(), err)
			}
			continue
		}
		if err != nil || l.EndOffset() != 9 {
			t.Fatalf("end %d, %v", l.EndOffset(), err)
		}
		for from, first := range map[ident.Offset]ident.Offset{2: 0, 3: 7, 6: 7, 8: 7} {
			c, err := l.Read(from, 1, 9, true)
			if err != nil || c.First != first {
				t.Fatalf("read at %d: begins at %d, %v", from, c.First, err)
			}
			c.Release()
		}
		compacted := Config{Settings: Settings{Compaction: Compaction{Enabled: true}}}
		again, rec := mustOpen(t, m, compacted)
		if again.EndOffset() != 9 || rec.Repaired() {
			t.Fatalf("ends at %d after a restart: %v", again.EndOffset(), rec.Repairs)
		}
		if _, _, err := Open(m, "/data/t-0", Config{StopOnCorruption: true}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("opened as the metadata log: %v", err)
		}
		// Into the gap: what is left ends where its last batch does, now and after a restart.
		mustTruncate(t, l, 5)
		again, _ = mustOpen(t, m, compacted)
		if l.EndOffset() != 3 || again.EndOffset() != 3 {
			t.Fatalf("ends at %d, after a restart at %d", l.EndOffset(), again.EndOffset())
		}
	}
}

// Kafka's cleaner may drop the end of a segment, and everything of it.
func TestSegmentsThatKafkaHasCleanedMayEndEarly(t *testing.T) {
	files := map[ident.Offset][]byte{0: batchOf(0, 3, 1), 10: nil, 20: batchOf(22, 2, 1), 30: batchOf(30, 1, 1)}
	open := func(cfg Config) (*Log, Recovery) {
		m := vfs.NewMem()
		if err := m.MkdirAll("/data/t-0", 0o755); err != nil {
			t.Fatal(err)
		}
		for base, data := range files {
			if err := vfs.WriteFile(m, "/data/t-0/"+fileName(base, logSuffix), data, true); err != nil {
				t.Fatal(err)
			}
		}
		return mustOpen(t, m, cfg)
	}
	for name, cfg := range map[string]Config{
		"clean": {CleanShutdown: true, CleanOffset: 30}, "killed": {CleanOffset: 30}, "flushed": {CleanOffset: 30, RecoveryPoint: 30},
	} {
		l, rec := open(cfg)
		if l.EndOffset() != 31 || rec.CutBytes != 0 {
			t.Fatalf("%s: ends at %d; %v", name, l.EndOffset(), rec.Repairs)
		}
		for from, first := range map[ident.Offset]ident.Offset{0: 0, 3: 22, 9: 22, 15: 22, 24: 30, 29: 30} {
			c, err := l.Read(from, 1, 31, true)
			if err != nil || c.First != first {
				t.Fatalf("%s: read at %d: begins at %d, %v", name, from, c.First, err)
			}
			c.Release()
		}
		if got := checkBatches(t, l, true); len(got) != 6 {
			t.Fatalf("%s: %v", name, got)
		}
		if n, _, err := l.DeleteOldSegments(1_000_000, Limits{Ms: 1, Bytes: -1}, 30); n != 3 || err != nil {
			t.Fatalf("%s: %d segments dropped, %v", name, n, err)
		}
	}
	// Where nothing was cleaned but it had been flushed, records are missing.
	if l, _ := open(Config{RecoveryPoint: 30}); l.EndOffset() != 31 || len(l.Damage()) != 2 || l.Damage()[0].From != 3 || l.Damage()[0].To != 20 {
		t.Fatalf("ends at %d: damaged %v", l.EndOffset(), l.Damage())
	}
	// Where nothing was cleaned or flushed, a crash has done it.
	if l, rec := open(Config{}); l.EndOffset() != 3 || rec.CutBytes == 0 {
		t.Fatalf("ends at %d: %v", l.EndOffset(), rec.Repairs)
	}
}

func TestEmptyFollowerTakesTheBatchThatHoldsItsStart(t *testing.T) {
	l, _ := newLog(t, Config{StartOffset: 57})
	if _, err := l.AppendAsFollower(batchOf(50, 11, 3)); err != nil {
		t.Fatal(err)
	}
	if l.StartOffset() != 57 || l.EndOffset() != 61 {
		t.Fatalf("%d to %d", l.StartOffset(), l.EndOffset())
	}
	c, err := l.Read(57, 1000, 61, true)
	if err != nil || c.First != 50 || c.Next != 61 {
		t.Fatalf("%+v, %v", c, err)
	}
	c.Release()
	mustTruncate(t, l, 58)
	if l.StartOffset() != 57 || l.EndOffset() != 57 {
		t.Fatalf("after truncation into that batch: %d to %d", l.StartOffset(), l.EndOffset())
	}
}

func batchOf(base ident.Offset, n int, e ident.Epoch) []byte {
	b := batch.NewBuilder(base, e, 1000)
	for i := range n {
		b.Append(nil, value(e, base+ident.Offset(i), 20))
	}
	return b.Build()
}

func TestBadBatchesAreRefusedAndLeaveTheLogAsItWas(t *testing.T) {
	l, _ := newLog(t, Config{})
	mustAppend(t, l, 0, 1, 10)
	flipped := records(1, 0, 1, 10)
	flipped[len(flipped)-1] ^= 1
	if _, err := l.AppendAsLeader(flipped, 0); !errors.Is(err, batch.ErrCorrupt) {
		t.Errorf("flipped bit: %v", err)
	}
	if _, err := l.AppendAsLeader(records(1, 0, 1, 10)[:70], 0); !errors.Is(err, batch.ErrTruncated) {
		t.Errorf("cut short: %v", err)
	}
	if _, err := l.AppendAsLeader(nil, 0); !errors.Is(err, batch.ErrTruncated) {
		t.Errorf("nothing: %v", err)
	}
	mustAppend(t, l, 3, 1, 10)
	if _, err := l.AppendAsLeader(records(2, 2, 1, 10), 2); err == nil {
		t.Error("an old epoch was appended")
	}
	if l.EndOffset() != 2 || l.Err() != nil || len(check(t, l)) != 2 {
		t.Errorf("end %d, %v", l.EndOffset(), l.Err())
	}
}

func TestTruncateAnywhere(t *testing.T) {
	for to := ident.Offset(0); to <= 41; to++ {
		l, m := newLog(t, small)
		for i := range 20 {
			mustAppend(t, l, ident.Epoch(i/3), 2, 50)
		}
		before := check(t, l)
		mustFlush(t, l)
		mustTruncate(t, l, to)
		want := min(to/2*2, 40)
		if l.EndOffset() != want || l.FlushedOffset() != want {
			t.Fatalf("truncated to %d: end %d, flushed %d", to, l.EndOffset(), l.FlushedOffset())
		}
		after := check(t, l)
		for o := range want {
			if after[o] != before[o] {
				t.Fatalf("truncated to %d: record %d changed", to, o)
			}
		}
		for _, e := range l.Epochs() {
			if e.Start >= max(want, 1) {
				t.Fatalf("truncated to %d: epoch %d at %d", to, e.Epoch, e.Start)
			}
		}
		mustAppend(t, l, 9, 5, 50)
		check(t, l)
		mustClose(t, l)
		l, rec := mustOpen(t, m, small)
		if rec.CutBytes != 0 || l.EndOffset() != want+5 {
			t.Fatalf("truncated to %d, reopened: %+v, end %d", to, rec, l.EndOffset())
		}
		check(t, l)
	}
}

func TestTruncationAtTheEndStillDropsEmptyEpochs(t *testing.T) {
	l, _ := newLog(t, Config{})
	mustAppend(t, l, 1, 4, 10)
	if err := l.AssignEpoch(5); err != nil {
		t.Fatal(err)
	}
	if l.LatestEpoch() != 5 {
		t.Fatalf("latest epoch %d", l.LatestEpoch())
	}
	mustTruncate(t, l, 4)
	if diff := cmp.Diff([]epoch.Entry{{Epoch: 1, Start: 0}}, l.Epochs()); diff != "" {
		t.Fatal(diff)
	}
	if e, end, ok := l.EpochEndOffset(1); !ok || e != 1 || end != 4 {
		t.Fatalf("epoch 1 ends at %d in %d, %v", end, e, ok)
	}
}

func TestTruncateFullyStartsAnew(t *testing.T) {
	l, m := newLog(t, small)
	for range 20 {
		mustAppend(t, l, 2, 2, 50)
	}
	if err := l.TruncateFully(100); err != nil {
		t.Fatal(err)
	}
	if l.StartOffset() != 100 || l.EndOffset() != 100 || l.FlushedOffset() != 100 || l.LatestEpoch() != ident.UnknownEpoch {
		t.Fatalf("%d to %d, flushed %d, epoch %d", l.StartOffset(), l.EndOffset(), l.FlushedOffset(), l.LatestEpoch())
	}
	mustAppend(t, l, 3, 2, 50)
	mustClose(t, l)
	l, rec := mustOpen(t, m, small)
	if rec.Repaired() || l.StartOffset() != 100 || l.EndOffset() != 102 {
		t.Fatalf("%+v, %d to %d", rec, l.StartOffset(), l.EndOffset())
	}
	mustTruncate(t, l, 50) // below the start: empty, at 50
	if l.StartOffset() != 50 || l.EndOffset() != 50 {
		t.Fatalf("%d to %d", l.StartOffset(), l.EndOffset())
	}
}

func TestStartOffsetRemovesSegmentsAndRebasesEpochs(t *testing.T) {
	l, m := newLog(t, small)
	for i := range 20 {
		mustAppend(t, l, ident.Epoch(i/5), 2, 50)
	}
	if err := l.SetStartOffset(25); err != nil {
		t.Fatal(err)
	}
	if l.StartOffset() != 25 || l.Segments()[0] > 25 || l.Segments()[1] <= 25 {
		t.Fatalf("start %d, segments %v", l.StartOffset(), l.Segments())
	}
	if diff := cmp.Diff([]epoch.Entry{{Epoch: 2, Start: 25}, {Epoch: 3, Start: 30}}, l.Epochs()); diff != "" {
		t.Fatal(diff)
	}
	if _, err := l.Read(24, 100, 40, true); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatalf("read below the start: %v", err)
	}
	if err := l.SetStartOffset(41); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatalf("start beyond the end: %v", err)
	}
	if err := l.SetStartOffset(40); err != nil || l.EndOffset() != 40 {
		t.Fatalf("start at the end: %v, end %d", err, l.EndOffset())
	}
	mustClose(t, l)
	cfg := small
	cfg.StartOffset = 40
	l, _ = mustOpen(t, m, cfg)
	if l.StartOffset() != 40 || l.EndOffset() != 40 {
		t.Fatalf("%d to %d", l.StartOffset(), l.EndOffset())
	}
}

func TestChunkOutlivesItsSegment(t *testing.T) {
	l, _ := newLog(t, small)
	for range 20 {
		mustAppend(t, l, 0, 2, 50)
	}
	c, err := l.Read(0, 400, 40, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetStartOffset(30); err != nil {
		t.Fatal(err)
	}
	raw, err := c.AppendTo(nil)
	if err != nil {
		t.Fatalf("after its segment was removed: %v", err)
	}
	if _, _, h, err := batch.Next(raw); err != nil || h.BaseOffset != 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	file := c.Ranges[0].File
	c.Release()
	if _, err := file.ReadAt(make([]byte, 1), 0); err == nil {
		t.Fatal("the file is open after the last release")
	}
	cut, err := l.Read(36, 1000, 40, true)
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Release()
	mustTruncate(t, l, 38)
	if _, err := cut.AppendTo(nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("after truncation: %v", err)
	}
}

func TestWriteAndSyncErrorsPoisonTheLog(t *testing.T) {
	disk := errors.New("input/output error")
	for _, op := range []string{vfs.OpWrite, vfs.OpSync} {
		failing := ""
		fsys := vfs.Inject(vfs.NewMem(), func(o, _ string) error {
			if o == failing {
				return disk
			}
			return nil
		})
		l, _ := mustOpen(t, fsys, Config{})
		mustAppend(t, l, 0, 1, 10)
		failing = op
		_, err := l.AppendAsLeader(records(1, 0, 1, 10), 0)
		if op == vfs.OpSync {
			if err != nil {
				t.Fatal(err)
			}
			_, err = l.Flush()
		}
		if !errors.Is(err, disk) {
			t.Fatalf("%s: %v", op, err)
		}
		failing = ""
		for name, again := range map[string]func() error{
			"append":   func() error { _, err := l.AppendAsLeader(records(1, 0, 1, 10), 0); return err },
			"flush":    func() error { _, err := l.Flush(); return err },
			"truncate": func() error { return l.Truncate(0) },
			"roll":     l.Roll,
			"start":    func() error { return l.SetStartOffset(1) },
		} {
			if err := again(); !errors.Is(err, disk) {
				t.Errorf("%s after a failed %s: %v", name, op, err)
			}
		}
		if got := check(t, l); len(got) == 0 {
			t.Errorf("after a failed %s nothing can be read", op)
		}
		if err := l.Close(); !errors.Is(err, disk) {
			t.Errorf("close after a failed %s: %v", op, err)
		}
		if _, err := l.AppendAsLeader(records(1, 0, 1, 10), 0); !errors.Is(err, ErrClosed) {
			t.Errorf("append after close: %v", err)
		}
		if l.FlushedOffset() != 0 {
			t.Errorf("flushed to %d after a failed %s", l.FlushedOffset(), op)
		}
	}
}

func TestFlushBesideAppendsCoversWhatWasThereWhenItBegan(t *testing.T) {
	l, m := newLog(t, Config{})
	mustAppend(t, l, 0, 2, 10)
	f, err := l.BeginFlush()
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, 0, 2, 10)
	if o, err := l.EndFlush(f, f.Sync()); err != nil || o != 2 {
		t.Fatalf("flushed to %d, %v", o, err)
	}
	f, _ = l.BeginFlush()
	mustTruncate(t, l, 1)
	if o, err := l.EndFlush(f, f.Sync()); err != nil || o != l.EndOffset() {
		t.Fatalf("a flush that a truncation overtook says %d of %d, %v", o, l.EndOffset(), err)
	}
	_ = m
}

func TestSettingsCanBeChangedWhileTheLogIsOpen(t *testing.T) {
	l, _ := newLog(t, Config{})
	for range 4 {
		mustAppend(t, l, 0, 1, 500)
	}
	if err := l.SetSettings(Settings{SegmentBytes: 1000, IndexIntervalBytes: 1}); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		mustAppend(t, l, 0, 1, 500)
	}
	if got := l.Segments(); !slices.Equal(got, []ident.Offset{0, 4, 5, 6, 7}) {
		t.Fatalf("segments %v", got)
	}
	if err := l.SetSettings(Settings{SegmentBytes: 1 << 40}); err == nil {
		t.Fatal("a segment beyond 2 GiB was accepted")
	}
	// With room for one index entry, two batches fill a segment: the first needs none.
	if err := l.SetSettings(Settings{IndexIntervalBytes: 1, IndexBytes: MinIndexBytes}); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		mustAppend(t, l, 0, 1, 500)
	}
	if got := l.Segments()[4:]; !slices.Equal(got, []ident.Offset{7, 9, 11}) {
		t.Fatalf("segments %v", got)
	}
	if err := l.SetSettings(Settings{IndexBytes: MinIndexBytes - 1}); err == nil {
		t.Fatal("an index without room for an entry was accepted")
	}
}

func TestFailedSyncIsNotFollowedByOneThatSucceeds(t *testing.T) {
	disk, fail := errors.New("input/output error"), false
	fsys := vfs.Inject(vfs.NewMem(), func(op, _ string) error {
		if op == vfs.OpSync && fail {
			return disk
		}
		return nil
	})
	l, _ := mustOpen(t, fsys, Config{})
	mustAppend(t, l, 0, 2, 10)
	first, err := l.BeginFlush()
	if err != nil {
		t.Fatal(err)
	}
	fail = true
	firstErr := first.Sync()
	fail = false // the kernel has said so once
	if o, err := l.Flush(); !errors.Is(err, disk) || o != 0 {
		t.Fatalf("flushed to %d, %v, beside a flush that failed", o, err)
	}
	if o, err := l.EndFlush(first, firstErr); !errors.Is(err, disk) || o != 0 {
		t.Fatalf("flushed to %d, %v", o, err)
	}
}

func TestFollowerTakesBatchesThatSpanMoreThanASegmentCan(t *testing.T) {
	l, m := newLog(t, Config{})
	far := ident.Offset(4 + math.MaxInt32)
	raw := append(batchOf(2, 3, 0), batchOf(far, 2, 0)...)
	raw = append(raw, batchOf(far+2, 1, 0)...)
	info, err := l.AppendAsFollower(raw)
	if err != nil || info.First != 2 || info.Last != far+2 || info.Batches != 3 || info.Bytes != len(raw) {
		t.Fatalf("%+v, %v", info, err)
	}
	mustFlush(t, l)
	l, rec := mustOpen(t, m, Config{})
	if rec.Repaired() || l.EndOffset() != far+3 || len(checkBatches(t, l, true)) != 6 {
		t.Fatalf("ends at %d, %+v", l.EndOffset(), rec)
	}
}
