package log

import (
	"bytes"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/vfs"
)

// TestTruncationIntoASegmentThatVanishedIsDamage: of this replica, which lacks then what it had, and not of the disk.
func TestTruncationIntoASegmentThatVanishedIsDamage(t *testing.T) {
	m, segments := filled(t)
	leader, _ := mustOpen(t, m.CrashClone(nil, 100), small)
	l, _ := mustOpen(t, m, flushedSmall())
	if err := m.Remove("/data/t-0/" + fileName(segments[1], logSuffix)); err != nil {
		t.Fatal(err)
	}
	to := segments[1] + 4
	mustTruncate(t, l, to)
	for _, what := range []string{"at once", "after a restart"} {
		if r, ok := l.Refilling(); !ok || r != (Refill{segments[1], to}) || l.EndOffset() != segments[1] || l.Err() != nil {
			t.Fatalf("%s: ends at %d, refilling %v %v, %v", what, l.EndOffset(), r, ok, l.Err())
		}
		mustFlush(t, l)
		l, _ = mustOpen(t, m, Config{Settings: small.Settings, RecoveryPoint: segments[1]})
	}
	refill(t, l, leader)
	if _, err := l.EndRefill(); err != nil {
		t.Fatal(err)
	}
	if got, want := readAll(t, l, 1<<20), readAll(t, leader, 1<<20); !bytes.Equal(got, want) {
		t.Fatal("refilled log differs")
	}
}

func TestScrubFindsMoreDamageInADamagedSegment(t *testing.T) {
	m, segments := filled(t)
	l, _ := mustOpen(t, m, flushedSmall())
	name := fileName(segments[1], logSuffix)
	patch(t, m, name, flipAt(100))
	scrubAll(t, l)
	wantLost(t, "first", l, segments[1], segments[1]+2)
	patch(t, m, name, flipAt(-1))
	if !scrubAll(t, l) {
		t.Fatal("not found")
	}
	if d := l.Damage(); len(d) != 2 || d[0].From != segments[1] || d[0].To != segments[1]+2 || d[1].From != segments[2]-2 || d[1].To != segments[2] {
		t.Fatal(d)
	}
	patch(t, m, name, flipAt(100)) // back: a disk that once lied is not believed
	if scrubAll(t, l) || len(l.Damage()) != 2 {
		t.Fatal(l.Damage())
	}
}

func TestDamageCheckpointThatCannotBeReadCountsAsRefilling(t *testing.T) {
	m, _ := filled(t)
	name := "/data/t-0/" + DamageCheckpointFile
	if err := vfs.WriteFileAtomic(m, name, []byte("0\n1\nrefillinh 3 90\n")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what it says from now on can be read
		l, rec := mustOpen(t, m, flushedSmall())
		if r, ok := l.Refilling(); !ok || r.To < 90 || l.Damaged() {
			t.Fatalf("refilling %v, %v; damaged %v; %v", r, ok, l.Damage(), rec.Repairs)
		}
	}
}

func TestSecondQuarantineKeepsTheFirst(t *testing.T) {
	m, segments := filled(t)
	cfg, w := flushedSmall(), lowered{40, 0}
	cfg.LowerCheckpoints = w.lower
	leader, _ := mustOpen(t, m.CrashClone(nil, 100), small)
	l, _ := mustOpen(t, m, cfg)
	want := int64(0)
	for range 3 {
		patch(t, m, fileName(segments[1], logSuffix), flipAt(100))
		scrubAll(t, l)
		q, err := l.Quarantine()
		if err != nil || q.From != segments[1] || q.To != 40 {
			t.Fatalf("%+v, %v", q, err)
		}
		want += q.Bytes
		if got, err := l.QuarantinedBytes(); err != nil || got != want {
			t.Fatalf("%d bytes are kept, %d were taken out: %v", got, want, err)
		}
		refill(t, l, leader)
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := l.EndRefill(); err != nil || got != want {
		t.Fatalf("%d bytes are gone, %v", got, err)
	}
	entries, err := m.ReadDir("/data/t-0")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), quarantineSuffix) {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// Kafka's cleaner leaves sealed segments without a record, with empty indexes. Of one that was emptied by a disk the index
// still tells.
func TestEmptySealedSegmentBelowTheCleanersOffsetIsMissed(t *testing.T) {
	for _, clean := range []bool{false, true} {
		m, segments := filled(t)
		l, _ := mustOpen(t, m, flushedSmall())
		mustClose(t, l)
		cfg := flushedSmall()
		cfg.CleanShutdown, cfg.CleanOffset = clean, segments[3]
		patch(t, m, fileName(segments[1], logSuffix), func(f vfs.File, _ int64) error { return f.Truncate(0) })
		l, _ = mustOpen(t, m, cfg)
		if d := l.Damage(); len(d) != 1 || d[0].From != segments[1] || d[0].To != segments[2] {
			t.Errorf("clean %v: %v", clean, d)
		}
	}
}
