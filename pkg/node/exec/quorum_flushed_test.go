package exec_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// metadataSegments are the names of the log's files, in order.
func metadataSegments(t *testing.T, fsys vfs.FS) (names []string) {
	t.Helper()
	entries, err := fsys.ReadDir(metadataDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".log") {
			names = append(names, filepath.Join(metadataDir, e.Name()))
		}
	}
	return names
}

func edit(t *testing.T, fsys vfs.FS, name string, change func([]byte) []byte) {
	t.Helper()
	raw, err := vfs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(fsys, name, change(raw), true); err != nil {
		t.Fatal(err)
	}
}

// What is known to have been flushed is not taken for torn by a crash, though it looks so: sectors of zeros, files that
// have lost their end, files that are gone. A voter that cut it off would have forgotten what it acknowledged.
func TestFlushedMetadataIsNeverTakenForTorn(t *testing.T) {
	pointFile := filepath.Join(metadataDir, log.RecoveryPointCheckpointFile)
	zeros := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { clear(b[at : at+512]); return b }
	}
	cut := func(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }
	for name, c := range map[string]struct {
		spoil func(t *testing.T, fsys *vfs.Mem, segments []string)
		want  string // of the error; empty: it opens
	}{
		"sector of the first segment": {func(t *testing.T, fsys *vfs.Mem, segments []string) { edit(t, fsys, segments[0], zeros(512)) }, "could lose committed records"},
		"sector of the last segment": {func(t *testing.T, fsys *vfs.Mem, segments []string) {
			edit(t, fsys, segments[len(segments)-1], zeros(512))
		}, "could lose committed records"},
		"end of the first segment": {func(t *testing.T, fsys *vfs.Mem, segments []string) { edit(t, fsys, segments[0], cut(1)) }, "could lose committed records"},
		"end of the last segment": {func(t *testing.T, fsys *vfs.Mem, segments []string) {
			edit(t, fsys, segments[len(segments)-1], cut(1))
		}, "could lose committed records"},
		"whole last batch": {func(t *testing.T, fsys *vfs.Mem, segments []string) {
			edit(t, fsys, segments[len(segments)-1], cut(len(topicBatch(59))))
		}, "it has lost its end"},
		"last segment": {func(t *testing.T, fsys *vfs.Mem, segments []string) {
			if err := fsys.Remove(segments[len(segments)-1]); err != nil {
				t.Fatal(err)
			}
		}, "it has lost its end"},
		"digit of the point itself": {func(t *testing.T, fsys *vfs.Mem, _ []string) {
			edit(t, fsys, pointFile, func(b []byte) []byte { return []byte(strings.Replace(string(b), " 0 63", " 0 93", 1)) })
		}, log.RecoveryPointCheckpointFile},
		"point that can't be read": {func(t *testing.T, fsys *vfs.Mem, _ []string) {
			edit(t, fsys, pointFile, func([]byte) []byte { return []byte("what?") })
		}, ""},
		"no point, as before there was one": {func(t *testing.T, fsys *vfs.Mem, _ []string) {
			if err := fsys.Remove(pointFile); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"nothing": {func(*testing.T, *vfs.Mem, []string) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := formatted(t, 7)
			cfg := quorumConfig(fsys, 7)
			cfg.Log.Settings = log.Settings{SegmentBytes: 3000}
			q, _, err := exec.OpenQuorum(cfg)
			if err == nil {
				err = errors.Join(q.Start(0), q.Flush(0))
			}
			if err != nil {
				t.Fatal(err)
			}
			grow(t, q, emptyLoader(), 0, 60)
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			segments := metadataSegments(t, fsys)
			if q.EndOffset() != 63 || len(segments) < 2 {
				t.Fatalf("log to %d in %v", q.EndOffset(), segments)
			}
			c.spoil(t, fsys, segments)
			q, recovery, err := exec.OpenQuorum(cfg)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("error %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || q.EndOffset() != 63 || len(recovery.Repairs) > 0 != strings.Contains(name, "can't be read") {
				t.Fatalf("%v, %v", err, recovery.Repairs)
			}
		})
	}
}

// The point follows the flushes, not more often than now and then, and goes down before the log is cut.
func TestFlushedPointFollowsTheFlushesAndGoesDownBeforeATruncation(t *testing.T) {
	fsys := formatted(t, 1, 2, 3)
	writes := 0
	q := openQuorum(t, vfs.Inject(fsys, func(op, path string) error {
		if op == vfs.OpRename && strings.Contains(path, log.RecoveryPointCheckpointFile) {
			writes++
		}
		return nil
	}), 2)
	point := func() ident.Offset {
		t.Helper()
		points, err := log.ReadOffsetCheckpoint(crashed(fsys), metadataDir, log.RecoveryPointCheckpointFile)
		if err != nil {
			t.Fatal(err)
		}
		return points[log.TopicIndex{Topic: ident.MetadataTopic}]
	}
	now := ident.Instant(1)
	if err := q.HandleRequest(now, 1, &raft.BeginQuorumEpochRequest{Voter: raft.Nobody, Leader: 1, Epoch: 5}); err != nil {
		t.Fatal(err)
	}
	step := func(at ident.Instant, resp *raft.FetchResponse) {
		t.Helper()
		serve(t, q, at, resp)
		if err := q.Flush(at); err != nil {
			t.Fatal(err)
		}
	}
	step(2, &raft.FetchResponse{Records: batchAt(0, 4, "a", "b")})
	if point() != 2 || writes != 1 {
		t.Fatalf("point %d after %d writes", point(), writes)
	}
	step(3, &raft.FetchResponse{Records: batchAt(2, 4, "c", "d")})
	if point() != 2 || writes != 1 {
		t.Fatalf("point %d after %d writes: with every flush", point(), writes)
	}
	step(31e9, &raft.FetchResponse{Records: batchAt(4, 4, "e", "f")})
	if point() != 6 || writes != 2 {
		t.Fatalf("point %d after %d writes", point(), writes)
	}
	out := serve(t, q, 31e9+1, &raft.FetchResponse{Diverging: &raft.EpochEnd{Epoch: 3, End: 0}})
	if q.EndOffset() != 0 || point() != 0 {
		t.Fatalf("log to %d, point %d", q.EndOffset(), point())
	}
	// What comes in its place counts from its own flush on.
	err := q.HandleResponse(31e9+2, 1, out.Sends[len(out.Sends)-1].Correlation,
		&raft.FetchResponse{Current: raft.LeaderInfo{Leader: 1, Epoch: 5}, Records: batchAt(0, 5, "A", "B", "C")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if point() != 0 {
		t.Fatalf("point %d before the flush", point())
	}
	if err := q.Flush(31e9 + 3); err != nil {
		t.Fatal(err)
	}
	if point() != 3 {
		t.Fatalf("point %d", point())
	}
	if again := openQuorum(t, crashed(fsys), 2); again.EndOffset() != 3 {
		t.Fatalf("log to %d", again.EndOffset())
	}
}

// The point is written and synced beside everything else, as the log is: whoever ends a flush holds up votes and
// heartbeats, and on a slow disk a leader that waits here for two more syncs is taken for dead.
func TestFlushedPointIsWrittenBesideEverythingElse(t *testing.T) {
	fsys := formatted(t, 7)
	ending, point, waits := false, 0, []string(nil)
	cfg := quorumConfig(vfs.Inject(fsys, func(op, path string) error {
		if op == vfs.OpRename && strings.Contains(path, log.RecoveryPointCheckpointFile) {
			point++
		}
		if ending {
			waits = append(waits, op+" "+path)
		}
		return nil
	}), 7)
	cfg.ChoresApart = true
	q, _, err := exec.OpenQuorum(cfg)
	if err == nil {
		err = q.Start(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	for now := ident.Instant(2); point < 3; now += 31e9 {
		if _, err := q.Propose(now, q.Core().Epoch(), topicBatch(int(now/31e9))); err != nil {
			t.Fatal(err)
		}
		f, err := q.BeginFlush()
		if err != nil {
			t.Fatal(err)
		}
		syncErr := f.Sync()
		ending = true
		if err := q.EndFlush(now, f, syncErr); err != nil {
			t.Fatal(err)
		}
		ending = false
		if len(waits) > 0 {
			t.Fatalf("the end of a flush waits for %v", waits)
		}
	}
	if points, err := log.ReadOffsetCheckpoint(crashed(fsys), metadataDir, log.RecoveryPointCheckpointFile); err != nil ||
		points[log.TopicIndex{Topic: ident.MetadataTopic}] != q.EndOffset() {
		t.Fatalf("%v, %v, want %d", points, err, q.EndOffset())
	}
}
