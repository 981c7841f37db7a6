package log

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// flushedSmall is small with everything of filled flushed, so that sealed segments are not scanned.
func flushedSmall() Config {
	cfg := small
	cfg.RecoveryPoint = 40
	return cfg
}

// scrubAll checks all of a log in small pieces.
func scrubAll(t tb, l *Log) (found bool) {
	t.Helper()
	for s := l.BeginScrub(100); s != nil; s = l.BeginScrub(100) {
		newly, err := l.EndScrub(s, s.Run())
		if err != nil {
			t.Fatal(err)
		}
		found = found || newly
	}
	return found
}

// readWhole reads everything that is not damaged, as a consumer does that is told where to go on, and checks every
// record. It returns the offsets that were read.
func readWhole(t tb, l *Log) map[ident.Offset]bool {
	t.Helper()
	seen := map[ident.Offset]bool{}
	for o := l.StartOffset(); o < l.EndOffset(); {
		c, err := l.Read(o, 300, l.EndOffset(), true)
		if errors.Is(err, ErrCorrupt) {
			if l.Suspect(err) {
				scrubAll(t, l)
				continue
			}
			i := slices.IndexFunc(l.Damage(), func(d Damage) bool { return o >= d.From && o < d.To })
			if i < 0 {
				t.Fatalf("offset %d is not read, and not damaged: %v; %v", o, err, l.Damage())
			}
			o = l.Damage()[i].To
			continue
		}
		if err != nil || c.Next <= o {
			t.Fatalf("read at %d: next %d, %v", o, c.Next, err)
		}
		raw, err := c.AppendTo(nil)
		c.Release()
		if err != nil {
			t.Fatal(err)
		}
		for len(raw) > 0 {
			one, rest, h, err := batch.Next(raw)
			if err == nil {
				err = batch.Verify(one)
			}
			if err != nil {
				return nil // sendfile looks at no record; the scrub will
			}
			for r, err := range batch.Records(one) {
				if err != nil || !bytes.HasPrefix(r.Value, value(ident.Epoch(r.Offset/10), r.Offset, 0)) {
					t.Fatalf("record at %d in epoch %d is %.20q, %v", r.Offset, h.LeaderEpoch, r.Value, err)
				}
				seen[r.Offset] = true
			}
			raw = rest
		}
		o = c.Next
	}
	return seen
}

// wantLost checks that exactly the batch with these offsets is lost.
func wantLost(t *testing.T, what string, l *Log, from, to ident.Offset) {
	t.Helper()
	d := l.Damage()
	if len(d) != 1 || d[0].From != from || d[0].To != to {
		t.Fatalf("%s: damaged %v, want %d to %d; epochs %v, segments %v", what, d, from, to-1, l.Epochs(), l.Segments())
	}
	seen := readWhole(t, l)
	for o := l.StartOffset(); o < l.EndOffset(); o++ {
		if lost := o >= from && o < to; seen[o] == lost {
			t.Fatalf("%s: offset %d read: %v; %v", what, o, seen[o], d)
		}
	}
}

func TestEveryFlippedBitOfASealedSegmentCostsItsBatchOnly(t *testing.T) {
	whole, segments := filled(t)
	name := fileName(segments[1], logSuffix)
	var size int64
	patch(t, whole, name, func(_ vfs.File, s int64) error { size = s; return nil })
	l, _ := mustOpen(t, whole, small)
	batchAt := map[int64]ident.Offset{} // position -> base offset of the batch that it is in
	s := l.segments[1]
	f, err := s.acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer f.release()
	r := headerReader{f: f.file, size: s.size, buf: make([]byte, scanBytes)}
	for pos := int64(0); pos < size; {
		h, err := r.at(pos)
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(h.Size()) {
			batchAt[pos+i] = h.BaseOffset
		}
		pos += int64(h.Size())
	}
	for pos := range size {
		from := batchAt[pos]
		for _, point := range []ident.Offset{segments[2], 40} { // scanned at the start, or not
			cfg := small
			cfg.RecoveryPoint = point
			m := whole.CrashClone(nil, 100)
			patch(t, m, name, flipAt(pos))
			what := fmt.Sprintf("bit flipped at %d, recovery point %d", pos, cfg.RecoveryPoint)
			l, _ := mustOpen(t, m, cfg)
			if point == 40 {
				readWhole(t, l)
				scrubAll(t, l)
			}
			wantLost(t, what, l, from, from+2)
			if l.EndOffset() != 40 || len(l.Segments()) != len(segments) {
				t.Fatalf("%s: end %d, segments %v", what, l.EndOffset(), l.Segments())
			}
			if pos%97 != 0 {
				continue
			}
			mustAppend(t, l, 4, 2, 50)
			wantLost(t, what, l, from, from+2)
			// A restart knows, whatever it scans.
			again, _ := mustOpen(t, m, flushedSmall())
			wantLost(t, what+", again", again, from, from+2)
			mustClose(t, again)
			clean := flushedSmall()
			clean.CleanShutdown, clean.RecoveryPoint = true, 42
			again, _ = mustOpen(t, m, clean)
			wantLost(t, what+", after a clean shutdown", again, from, from+2)
		}
	}
}

func TestZeroedBlocksAndForeignBytesAreFoundByTheScrub(t *testing.T) {
	for name, change := range map[string]func(b []byte){
		"zeroed":  func(b []byte) { clear(b) },
		"foreign": func(b []byte) { copy(b, bytes.Repeat([]byte{2}, len(b))) },
		"batches of another log": func(b []byte) {
			for n := 0; ; {
				n += copy(b[n:], records(1000, 9, 1, 20))
				if n == len(b) {
					break
				}
			}
		},
	} {
		m, segments := filled(t)
		patch(t, m, fileName(segments[1], logSuffix), func(f vfs.File, size int64) error {
			b := make([]byte, size/2)
			change(b)
			_, err := f.WriteAt(b, size/4)
			return err
		})
		l, _ := mustOpen(t, m, flushedSmall())
		if !scrubAll(t, l) {
			t.Fatalf("%s: not found", name)
		}
		d := l.Damage()
		if len(d) != 1 || d[0].From < segments[1] || d[0].To > segments[2] {
			t.Fatalf("%s: %v", name, d)
		}
		wantLost(t, name, l, d[0].From, d[0].To)
		if scrubAll(t, l) {
			t.Fatalf("%s: found twice", name)
		}
	}
}

func TestMissingAndShortFilesAreFoundAtTheStart(t *testing.T) {
	for _, clean := range []bool{false, true} {
		for name, damage := range map[string]func(m *vfs.Mem, segments []ident.Offset) (from, to ident.Offset){
			"missing": func(m *vfs.Mem, s []ident.Offset) (ident.Offset, ident.Offset) {
				if err := m.Remove("/data/t-0/" + fileName(s[1], logSuffix)); err != nil {
					t.Fatal(err)
				}
				return s[1], s[2]
			},
			"short": func(m *vfs.Mem, s []ident.Offset) (ident.Offset, ident.Offset) {
				patch(t, m, fileName(s[1], logSuffix), func(f vfs.File, size int64) error { return f.Truncate(size - 1) })
				return s[2] - 2, s[2]
			},
			"empty": func(m *vfs.Mem, s []ident.Offset) (ident.Offset, ident.Offset) {
				patch(t, m, fileName(s[1], logSuffix), func(f vfs.File, _ int64) error { return f.Truncate(0) })
				return s[1], s[2]
			},
		} {
			m, segments := filled(t)
			cfg := flushedSmall()
			if clean {
				l, _ := mustOpen(t, m, cfg)
				mustClose(t, l)
				cfg.CleanShutdown = true
			}
			from, to := damage(m, segments)
			l, rec := mustOpen(t, m, cfg)
			if !rec.Repaired() {
				t.Fatalf("%s: nothing is said of it", name)
			}
			wantLost(t, fmt.Sprintf("%s, clean %v", name, clean), l, from, to)
			again, _ := mustOpen(t, m, cfg)
			wantLost(t, name+", again", again, from, to)
		}
	}
}

func TestLastFileThatIsGoneAfterACleanShutdownIsMissed(t *testing.T) {
	m, segments := filled(t)
	l, _ := mustOpen(t, m, flushedSmall())
	mustClose(t, l)
	if err := m.Remove("/data/t-0/" + fileName(segments[len(segments)-1], logSuffix)); err != nil {
		t.Fatal(err)
	}
	cfg := flushedSmall()
	cfg.CleanShutdown = true
	l, _ = mustOpen(t, m, cfg)
	wantLost(t, "last file", l, segments[len(segments)-1], 40)
	if info := mustAppend(t, l, 4, 2, 50); info.First != 40 {
		t.Fatalf("appended at %d, where other records were", info.First)
	}
}

func TestDamagedEndIsNotWrittenOver(t *testing.T) {
	m, segments := filled(t)
	patch(t, m, fileName(segments[len(segments)-1], logSuffix), flipAt(-1))
	for _, point := range []ident.Offset{0, 40} {
		cfg := small
		cfg.RecoveryPoint = point
		clone := m.CrashClone(nil, 100)
		l, _ := mustOpen(t, clone, cfg)
		wantLost(t, "end", l, 38, 40)
		if info := mustAppend(t, l, 4, 2, 50); info.First != 40 {
			t.Fatalf("appended at %d", info.First)
		}
		wantLost(t, "end, written on", l, 38, 40)
		mustFlush(t, l)
		l, _ = mustOpen(t, clone, cfg)
		wantLost(t, "end, restarted", l, 38, 40)
		if l.EndOffset() != 42 {
			t.Fatalf("end %d", l.EndOffset())
		}
	}
}

func TestTimestampBehindDamageIsNotGuessed(t *testing.T) {
	m, segments := filled(t)
	patch(t, m, fileName(segments[1], logSuffix), flipAt(70)) // the first batch of the segment
	l, _ := mustOpen(t, m, flushedSmall())
	scrubAll(t, l)
	d := l.Damage()[0]
	if _, _, err := l.OffsetForTimestamp(1000 + int64(d.From)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a record that is damaged: %v", err)
	}
	for _, o := range []ident.Offset{d.From - 1, d.To + 1} {
		if got, ok, err := l.OffsetForTimestamp(1000 + int64(o)); err != nil || !ok || got.Offset != o {
			t.Fatalf("%d: %+v, %v, %v", o, got, ok, err)
		}
	}
}

func TestDamageGoesWithTheRecords(t *testing.T) {
	for name, remove := range map[string]func(l *Log) error{
		"log start":       func(l *Log) error { return l.SetStartOffset(l.Damage()[0].To) },
		"truncation":      func(l *Log) error { return l.Truncate(l.Damage()[0].From) },
		"within":          func(l *Log) error { return l.Truncate(l.Damage()[0].From + 1) },
		"full truncation": func(l *Log) error { return l.TruncateFully(7) },
	} {
		m, segments := filled(t)
		patch(t, m, fileName(segments[1], logSuffix), flipAt(400))
		l, _ := mustOpen(t, m, flushedSmall())
		scrubAll(t, l)
		if !l.Damaged() {
			t.Fatalf("%s: not found", name)
		}
		from := l.Damage()[0].From
		if err := remove(l); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if l.Damaged() {
			t.Errorf("%s: still %v", name, l.Damage())
		}
		_, refilling := l.Refilling()
		if _, err := m.Stat("/data/t-0/" + DamageCheckpointFile); (err == nil) != refilling || refilling != (name == "within") {
			t.Errorf("%s: the file still says so, or not that the log lacks something: %v", name, refilling)
		}
		if strings.HasPrefix(name, "trunc") || name == "within" {
			if l.EndOffset() != from {
				t.Errorf("%s: ends at %d, not %d", name, l.EndOffset(), from)
			}
		}
		readWhole(t, l)
	}
}

func TestQuarantineRefillsByteForByte(t *testing.T) {
	whole, _ := filled(t)
	leader, _ := mustOpen(t, whole, small)
	want := readAll(t, leader, 1<<20)
	m := whole.CrashClone(nil, 100)
	segments := leader.Segments()
	patch(t, m, fileName(segments[2], logSuffix), flipAt(100))
	w := lowered{40, 0}
	cfg := flushedSmall()
	cfg.LowerCheckpoints = w.lower
	l, _ := mustOpen(t, m, cfg)
	scrubAll(t, l)
	q, err := l.Quarantine()
	if w.point != q.From {
		t.Fatalf("the recovery point is %d, the log ends at %d", w.point, q.From)
	}
	cfg.RecoveryPoint = w.point
	if err != nil || q.From != segments[2] || q.To != 40 || !slices.Equal(q.Segments, segments[2:]) || l.EndOffset() != segments[2] || l.Damaged() {
		t.Fatalf("%+v, %v; ends at %d, %v", q, err, l.EndOffset(), l.Damage())
	}
	check(t, l)
	if bytes, err := l.QuarantinedBytes(); err != nil || bytes != q.Bytes || bytes == 0 {
		t.Fatalf("%d bytes aside, quarantined %d, %v", bytes, q.Bytes, err)
	}
	l, _ = mustOpen(t, m, cfg)
	if r, ok := l.Refilling(); !ok || r != q.Refill {
		t.Fatalf("a restart knows %v of the refill: %v", r, ok)
	}
	refill(t, l, leader)
	if bytes, err := l.EndRefill(); err != nil || bytes != q.Bytes {
		t.Fatalf("%d bytes deleted, %v", bytes, err)
	}
	if got := readAll(t, l, 1<<20); !bytes.Equal(got, want) {
		t.Fatal("refilled log differs")
	}
	entries, err := m.ReadDir("/data/t-0")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), quarantineSuffix) || e.Name() == DamageCheckpointFile {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func refill(t tb, l, leader *Log) {
	t.Helper()
	for l.EndOffset() < leader.EndOffset() {
		c, err := leader.Read(l.EndOffset(), 500, leader.EndOffset(), true)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.AppendTo(nil)
		c.Release()
		if err == nil {
			_, err = l.AppendAsFollower(raw)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCrashAtEachStepOfAQuarantineLeavesItKnownAndRefillable(t *testing.T) {
	whole, segments := filled(t)
	leader, _ := mustOpen(t, whole, small)
	want := readAll(t, leader, 1<<20)
	for _, keep := range []int{0, 50, 100} {
		for step := 0; ; step++ {
			m := whole.CrashClone(nil, 100)
			patch(t, m, fileName(segments[2], logSuffix), flipAt(100))
			left := -1
			power := errors.New("power lost")
			w, cfg := lowered{40, 0}, flushedSmall()
			cfg.LowerCheckpoints = w.lower
			l, _, err := Open(vfs.Inject(m, func(op, _ string) error {
				if left < 0 || op == vfs.OpRead || op == vfs.OpOpen || op == vfs.OpStat {
					return nil
				}
				if left--; left < 0 {
					left = 0
					return power
				}
				return nil
			}), "/data/t-0", cfg)
			if err != nil {
				t.Fatal(err)
			}
			scrubAll(t, l)
			left = step
			_, err = l.Quarantine()
			done := err == nil
			if !done && !errors.Is(err, power) {
				t.Fatal(err)
			}
			m = m.CrashClone(rand.New(rand.NewPCG(uint64(step), 1)), keep)
			cfg.RecoveryPoint = w.point
			for range 2 { // the second time after a crash right after the start
				l, _ = mustOpen(t, m, cfg)
				if r, ok := l.Refilling(); !l.Damaged() && (!ok || r.To != 40 || l.EndOffset() > segments[2]) {
					t.Fatalf("keep %d, step %d: refilling %v to %d, damaged %v, ends at %d", keep, step, ok, r.To, l.Damage(), l.EndOffset())
				}
				m = m.CrashClone(rand.New(rand.NewPCG(uint64(step), 2)), keep)
				cfg.RecoveryPoint = w.point
			}
			l, _ = mustOpen(t, m, cfg)
			if _, err := l.Quarantine(); err != nil {
				t.Fatal(err)
			}
			refill(t, l, leader)
			if _, err := l.EndRefill(); err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, l, 1<<20); !bytes.Equal(got, want) {
				t.Fatalf("keep %d, step %d: the refilled log differs", keep, step)
			}
			if done {
				break
			}
		}
	}
}

func TestScrubBesideTruncationFindsNothing(t *testing.T) {
	l, _ := newLog(t, small)
	for range 20 {
		mustAppend(t, l, 0, 2, 50)
	}
	s := l.BeginScrub(1 << 20)
	mustTruncate(t, l, 3)
	for range 5 {
		mustAppend(t, l, 1, 1, 70)
	}
	if found, err := l.EndScrub(s, s.Run()); found || err != nil || l.Damaged() {
		t.Fatalf("%v, %v, %v", found, err, l.Damage())
	}
	check(t, l)
}

func TestDamageCheckpointThatCannotBeReadHasAllChecked(t *testing.T) {
	m, segments := filled(t)
	patch(t, m, fileName(segments[1], logSuffix), flipAt(100))
	if err := vfs.WriteFileAtomic(m, "/data/t-0/"+DamageCheckpointFile, []byte("0\n1\nrotten\n")); err != nil {
		t.Fatal(err)
	}
	l, _ := mustOpen(t, m, flushedSmall())
	if d := l.Damage(); len(d) != 1 || d[0].From < segments[1] || d[0].To > segments[2] {
		t.Fatal(d)
	}
}

func TestDamageBeforeATornTailIsKept(t *testing.T) {
	l, m := newLog(t, Config{})
	for range 10 {
		mustAppend(t, l, 0, 2, 400)
	}
	mustFlush(t, l)
	name := fileName(0, logSuffix)
	patch(t, m, name, flipAt(1200)) // in the second batch, below the recovery point
	patch(t, m, name, func(f vfs.File, size int64) error { return f.Truncate(size - 1) })
	for _, what := range []string{"first start", "second start"} {
		l, _ = mustOpen(t, m, Config{RecoveryPoint: 10})
		if d := l.Damage(); l.EndOffset() != 18 || len(d) != 1 || d[0].From != 2 || d[0].To != 4 {
			t.Fatalf("%s: ends at %d, damaged %v", what, l.EndOffset(), d)
		}
	}
}

func TestQuarantineNeverEndsTheLogBelowItsStart(t *testing.T) {
	m, segments := filled(t)
	patch(t, m, fileName(segments[2], logSuffix), flipAt(100))
	l, _ := mustOpen(t, m, flushedSmall())
	start := segments[2] + 1 // within the segment that is damaged
	if err := l.SetStartOffset(start); err != nil {
		t.Fatal(err)
	}
	scrubAll(t, l)
	if _, err := l.Quarantine(); err != nil {
		t.Fatal(err)
	}
	if l.EndOffset() < l.StartOffset() || l.StartOffset() != start {
		t.Fatalf("%d to %d", l.StartOffset(), l.EndOffset())
	}
}

func TestFileThatLostItsEndMeanwhileIsCorruption(t *testing.T) {
	l, m := newLog(t, small)
	for i := range 20 {
		mustAppend(t, l, ident.Epoch(i/5), 2, 50)
	}
	mustFlush(t, l)
	segments := l.Segments()
	patch(t, m, fileName(segments[1], logSuffix), func(f vfs.File, size int64) error { return f.Truncate(size / 2) })
	_, err := l.Read(segments[2]-1, 300, 40, true)
	if !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatal(err)
	}
	if !l.Suspect(err) || !scrubAll(t, l) || !l.Damaged() {
		t.Fatalf("not found: %v", l.Damage())
	}
	readWhole(t, l)
	if got, ok, err := l.MaxTimestamp(40); err != nil || !ok || got.Offset != 39 {
		t.Fatalf("%+v, %v, %v", got, ok, err)
	}
	if _, _, err := l.DeleteOldSegments(1000+int64(segments[2]), Limits{Ms: 0, Bytes: -1}, 40); err != nil || l.StartOffset() != segments[2] || l.Damaged() {
		t.Fatalf("starts at %d, %v, damaged %v", l.StartOffset(), err, l.Damage())
	}
}

func TestFileThatIsGoneMeanwhileHoldsNothingUp(t *testing.T) {
	l, m := newLog(t, small)
	for i := range 20 {
		mustAppend(t, l, ident.Epoch(i/5), 2, 50)
	}
	mustFlush(t, l)
	segments := l.Segments()
	l.cfg.Files.forget(l.segments[0])
	if err := m.Remove("/data/t-0/" + fileName(0, logSuffix)); err != nil {
		t.Fatal(err)
	}
	if !scrubAll(t, l) {
		t.Fatal("not found")
	}
	wantLost(t, "gone", l, 0, segments[1])
	if got, ok, err := l.OffsetForTimestamp(1000 + int64(segments[1]) + 1); err != nil || !ok || got.Offset != segments[1]+1 {
		t.Fatalf("%+v, %v, %v", got, ok, err)
	}
	if got, ok, err := l.MaxTimestamp(40); err != nil || !ok || got.Offset != 39 {
		t.Fatalf("%+v, %v, %v", got, ok, err)
	}
	mustTruncate(t, l, 39)
	if _, _, err := l.DeleteOldSegments(1000+int64(segments[2]), Limits{Ms: 0, Bytes: -1}, 38); err != nil || l.StartOffset() != segments[2] || l.Damaged() {
		t.Fatalf("starts at %d, %v, damaged %v", l.StartOffset(), err, l.Damage())
	}
}

func TestBatchesWithoutALeaderEpochAreNotDamaged(t *testing.T) {
	l, _ := newLog(t, small)
	for range 20 {
		if _, err := l.AppendAsFollower(batchOf(l.EndOffset(), 2, ident.UnknownEpoch)); err != nil {
			t.Fatal(err)
		}
	}
	if scrubAll(t, l) || l.Damaged() {
		t.Fatal(l.Damage())
	}
}

func TestASuspectWhoseFileIsGoneIsCheckedOnce(t *testing.T) {
	l, m := newLog(t, small)
	for i := range 20 {
		mustAppend(t, l, ident.Epoch(i/5), 2, 50)
	}
	mustFlush(t, l)
	l.cfg.Files.forget(l.segments[0])
	if err := m.Remove("/data/t-0/" + fileName(0, logSuffix)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Read(0, 100, 40, true); !l.Suspect(err) {
		t.Fatal(err)
	}
	s := l.BeginScrub(100)
	if found, err := l.EndScrub(s, s.Run()); err != nil || !found || l.Suspects() {
		t.Fatalf("found %v, %v, suspects %v", found, err, l.Suspects())
	}
}

func TestTruncationBehindAFileThatLostItsEndCutsThatOff(t *testing.T) {
	l, m := newLog(t, small)
	for i := range 20 {
		mustAppend(t, l, ident.Epoch(i/5), 2, 50)
	}
	mustFlush(t, l)
	segments := l.Segments()
	patch(t, m, fileName(segments[1], logSuffix), func(f vfs.File, size int64) error { return f.Truncate(size - 20) })
	scrubAll(t, l)
	wantLost(t, "short", l, segments[2]-2, segments[2])
	mustTruncate(t, l, segments[2])
	if l.EndOffset() != segments[2]-2 || l.Damaged() {
		t.Fatalf("ends at %d, damaged %v", l.EndOffset(), l.Damage())
	}
}
