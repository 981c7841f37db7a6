package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRunningNodeTakesChangedSnapshotLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := newSnapshotLimits(&Config{SharedFile: file, Shared: SharedConfig{Snapshots: Snapshots{MaxNewBytes: 5}}}, slog.New(slog.DiscardHandler))
	want := func(when string, bytes int64, interval time.Duration) {
		t.Helper()
		l.look()
		if now := *l.now.Load(); now.MaxNewBytes != bytes || time.Duration(now.MaxInterval) != interval || now.RetentionBytes != 100<<20 {
			t.Fatalf("%s: %+v", when, now)
		}
	}
	want("no file", 5, time.Hour)
	write("snapshots: {maxNewBytes: 7, maxInterval: 10m}\n")
	want("changed", 7, 10*time.Minute)
	write("snapshots: {maxNewBytes: 8,")
	want("half", 7, 10*time.Minute)
	write("snapshots: {maxNewBytes: -8}")
	want("negative", 7, 10*time.Minute)
	write("snapshots: {maxBytes: 8}")
	want("unknown", 7, 10*time.Minute)
	write("defaults: {minInSyncReplicas: 2}\n")
	want("back to the defaults", 20<<20, time.Hour)
}

// The limits in use are those of the last look, not those of the start.
func TestSnapshotIsDueByTheLimitsInUse(t *testing.T) {
	n := &Node{quorum: &quorum{}, logger: slog.New(slog.DiscardHandler)}
	s := newSnapshotter(n)
	s.applied(100)
	if s.due() {
		t.Fatal("due after 100 bytes of 20 MiB")
	}
	s.limits.now.Store(&Snapshots{MaxNewBytes: 100, MaxInterval: Duration(time.Hour)})
	if !s.due() {
		t.Fatal("not due by the new limit")
	}
	s.restarted()
	s.applied(1)
	s.limits.now.Store(&Snapshots{MaxNewBytes: 100, MaxInterval: 1})
	if !s.due() {
		t.Fatal("not due by the new interval")
	}
	s.restarted()
	if s.due() {
		t.Fatal("due with nothing new")
	}
}
