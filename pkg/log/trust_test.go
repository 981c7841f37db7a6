package log

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// lowered keeps what a log has its owner write down.
type lowered struct{ point, start ident.Offset }

func (w *lowered) lower(point, start ident.Offset) error {
	w.point, w.start = min(w.point, point), min(w.start, start)
	return nil
}

func TestRecoveryPointWithAFlippedDigitMovesNoEnd(t *testing.T) {
	for name, c := range map[string]struct {
		clean bool
		point ident.Offset // 40 was right
		keep  int64        // bytes cut off the last file
	}{
		"beside a torn tail":      {point: 800_000_040, keep: 10},
		"after a crash":           {point: 800_000_040},
		"after a clean stop":      {clean: true, point: 48},
		"far, after a clean stop": {clean: true, point: 800_000_040},
	} {
		m, segments := filled(t)
		w := lowered{c.point, 0}
		cfg := small
		if c.clean {
			l, _ := mustOpen(t, m, cfg)
			mustClose(t, l)
		}
		if c.keep > 0 {
			patch(t, m, fileName(segments[len(segments)-1], logSuffix), func(f vfs.File, size int64) error { return f.Truncate(size - c.keep) })
		}
		cfg.RecoveryPoint, cfg.CleanShutdown, cfg.LowerCheckpoints = c.point, c.clean, w.lower
		l, rec := mustOpen(t, m, cfg)
		if !slices.ContainsFunc(rec.Repairs, func(r string) bool { return strings.Contains(r, fmt.Sprint("recovery point ", c.point)) }) {
			t.Errorf("%s: not said: %q", name, rec.Repairs)
		}
		// What can't be told from damage stays: the batch that was torn is called damaged, not cut off.
		if end := l.EndOffset(); end > 40 || w.point != end || l.Damaged() != (c.keep > 0) {
			t.Errorf("%s: ends at %d, written down %d, damaged %v", name, end, w.point, l.Damage())
		}
		readWhole(t, l)
	}
}

func TestFlushedRecordsThatAreGoneAreDamage(t *testing.T) {
	m, segments := filled(t)
	if err := m.Remove("/data/t-0/" + fileName(segments[len(segments)-1], logSuffix)); err != nil {
		t.Fatal(err)
	}
	l, _ := mustOpen(t, m, flushedSmall())
	wantLost(t, "last file", l, segments[len(segments)-1], 40)
	again, _ := mustOpen(t, m, flushedSmall())
	wantLost(t, "last file, again", again, segments[len(segments)-1], 40)
}

func TestLogOfWhichNoFileIsLeftIsDamage(t *testing.T) {
	m, segments := filled(t)
	for _, s := range segments {
		if err := m.Remove("/data/t-0/" + fileName(s, logSuffix)); err != nil {
			t.Fatal(err)
		}
	}
	l, rec := mustOpen(t, m, flushedSmall())
	wantLost(t, "all files", l, 0, 40)
	if l.EndOffset() != 40 || !rec.Repaired() {
		t.Errorf("it ends at %d, repairs %q", l.EndOffset(), rec.Repairs)
	}
	again, _ := mustOpen(t, m, flushedSmall())
	wantLost(t, "all files, again", again, 0, 40)
}

func TestLogStartWithAFlippedDigitHidesNothing(t *testing.T) {
	for _, clean := range []bool{false, true} {
		for _, moved := range []ident.Offset{0, 12} {
			for _, said := range []ident.Offset{13, 23, 92, 1 << 40} {
				m, segments := filled(t)
				l, _ := mustOpen(t, m, flushedSmall())
				if err := l.SetStartOffset(moved); err != nil {
					t.Fatal(err)
				}
				mustFlush(t, l)
				if l.DurableStartOffset() != moved {
					t.Fatalf("start %d is durable, of %d", l.DurableStartOffset(), moved)
				}
				cfg, w := flushedSmall(), lowered{40, said}
				cfg.StartOffset, cfg.CleanShutdown, cfg.LowerCheckpoints = said, clean, w.lower
				if clean {
					mustClose(t, l)
				}
				l, rec := mustOpen(t, m, cfg)
				if l.StartOffset() != moved || l.EndOffset() != 40 || !rec.Repaired() || w.start != moved {
					t.Errorf("clean %v, start %d became %d: %d to %d, written down %d; %v; %v", clean, moved, said, l.StartOffset(), l.EndOffset(), w.start, rec.Repairs, segments)
				}
				check(t, l)
			}
		}
	}
}

func TestLogStartIsWrittenDownOnceItIsFlushed(t *testing.T) {
	l, _ := newLog(t, small)
	mustAppend(t, l, 1, 10, 50)
	if err := l.SetStartOffset(5); err != nil || l.DurableStartOffset() != 0 {
		t.Fatalf("%d, %v", l.DurableStartOffset(), err)
	}
	f, err := l.BeginFlush()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetStartOffset(7); err != nil {
		t.Fatal(err)
	}
	if _, err := l.EndFlush(f, f.Sync()); err != nil || l.DurableStartOffset() != 5 {
		t.Fatalf("%d, %v", l.DurableStartOffset(), err)
	}
	if err := l.TruncateFully(3); err != nil || l.DurableStartOffset() != 3 {
		t.Fatalf("%d, %v", l.DurableStartOffset(), err)
	}
}

// The checksum covers no base offset.
func TestBaseOffsetThatRoseAtTheEndIsNoGap(t *testing.T) {
	raise := func(f vfs.File, size int64) error {
		b := make([]byte, size)
		if _, err := f.ReadAt(b, 0); err != nil {
			return err
		}
		pos := 0
		for {
			h, err := batch.ParseHeader(b[pos:])
			if err != nil {
				return err
			}
			if pos+h.Size() == len(b) {
				break
			}
			pos += h.Size()
		}
		_, err := f.WriteAt([]byte{b[pos+6] ^ 1}, int64(pos+6)) // 256 more
		return err
	}
	for _, clean := range []bool{false, true} {
		for _, compact := range []bool{false, true} {
			m, segments := filled(t)
			cfg := flushedSmall()
			if cfg.CleanShutdown = clean; clean {
				l, _ := mustOpen(t, m, small)
				mustClose(t, l)
			}
			cfg.Compaction.Enabled = compact
			patch(t, m, fileName(segments[len(segments)-1], logSuffix), raise)
			l, _ := mustOpen(t, m, cfg)
			if compact && !clean {
				if l.EndOffset() != 40+256 || l.Damaged() {
					t.Errorf("a gap in a compacted log: ends at %d, damaged %v", l.EndOffset(), l.Damage())
				}
				continue
			}
			wantLost(t, fmt.Sprintf("clean %v, compact %v", clean, compact), l, 38, 40)
		}
	}
}

func TestGapsOfACompactedLeaderAreNotDamage(t *testing.T) {
	l, m := newLog(t, small)
	for _, o := range []ident.Offset{0, 4, 6, 20, 21, 30} {
		if _, err := l.AppendAsFollower(batchOf(o, 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	mustFlush(t, l)
	cfg := flushedSmall()
	cfg.RecoveryPoint = 31
	l, rec := mustOpen(t, m, cfg)
	if l.EndOffset() != 31 || l.Damaged() || rec.Repaired() {
		t.Fatalf("ends at %d, %v, %v", l.EndOffset(), l.Damage(), rec.Repairs)
	}
}
