package exec_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// askFor sends one message and returns the answer and what else came of it.
func askFor(t *testing.T, q *exec.Quorum, m raft.Message) (raft.Message, exec.QuorumOutput) {
	t.Helper()
	if err := q.HandleRequest(2, 9, m); err != nil {
		t.Fatal(err)
	}
	var out exec.QuorumOutput
	q.Drain(&out)
	return out.Replies[len(out.Replies)-1].Msg, out
}

func fetchPiece(q *exec.Quorum, id metadata.SnapshotID, position int64, maxBytes int32) raft.Message {
	return &raft.FetchSnapshotRequest{
		ClusterID: "c", Replica: raft.ReplicaKey{ID: 8, DirectoryID: ident.UUID{8}}, Epoch: q.Core().Epoch(),
		Snapshot: raft.SnapshotID{End: id.EndOffset, Epoch: id.Epoch}, Position: position, MaxBytes: maxBytes,
	}
}

func fetchFromNothing(q *exec.Quorum) raft.Message {
	return &raft.FetchRequest{ClusterID: "c", Replica: raft.ReplicaKey{ID: 8, DirectoryID: ident.UUID{8}}, Epoch: q.Core().Epoch(), MaxBytes: 1 << 20}
}

// spoilt are the ways in which a disk damages a file.
var spoilt = map[string]func(t *testing.T, fsys vfs.FS, name string){
	"a flipped bit": func(t *testing.T, fsys vfs.FS, name string) {
		raw, err := vfs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)-1] ^= 1
		if err := vfs.WriteFile(fsys, name, raw, true); err != nil {
			t.Fatal(err)
		}
	},
	"cut off": func(t *testing.T, fsys vfs.FS, name string) {
		raw, err := vfs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(fsys, name, raw[:len(raw)-1], true); err != nil {
			t.Fatal(err)
		}
	},
	"gone": func(t *testing.T, fsys vfs.FS, name string) {
		if err := fsys.Remove(name); err != nil {
			t.Fatal(err)
		}
	},
}

// A leader's snapshots are damaged while it runs: nobody gets a byte of them that is not what was written, the leader
// says so, and a snapshot of the state that it has in memory takes their place, whether something new is in it or not.
func TestDamagedSnapshotIsNotServedAndAnotherTakesItsPlace(t *testing.T) {
	for name, spoil := range spoilt {
		for _, more := range []int{0, 2} {
			t.Run(name, func(t *testing.T) {
				fsys := formatted(t, 7)
				q := openQuorum(t, fsys, 7)
				loader := grow(t, q, emptyLoader(), 0, 3000) // more than one block
				first := take(t, q, loader, keepTwo)
				loader = grow(t, q, loader, 3000, 3003)
				second := take(t, q, loader, keepTwo)
				for _, id := range []metadata.SnapshotID{first, second} {
					spoil(t, fsys, filepath.Join(metadataDir, id.FileName()))
				}
				// The damage lies at the end. A piece of the beginning is what it was, unless the file is gone.
				m, out := askFor(t, q, fetchPiece(q, second, 100, 200))
				if r := m.(*raft.FetchSnapshotResponse); name != "gone" && (r.Code != raft.None || len(r.Bytes) != 200 || len(out.Damaged) > 0) {
					t.Fatalf("code %d, %d bytes, %v", r.Code, len(r.Bytes), out.Damaged)
				} else if name != "gone" {
					if m, out = askFor(t, q, fetchPiece(q, second, 0, 1<<20)); len(m.(*raft.FetchSnapshotResponse).Bytes) > 0 {
						t.Fatal("damaged bytes were served")
					}
				}
				if r := m.(*raft.FetchSnapshotResponse); r.Code != raft.SnapshotNotFound || len(out.Damaged) != 1 || out.Damaged[0].ID != second || !q.SnapshotWanted() {
					t.Fatalf("code %d, %v, wanted %v", r.Code, out.Damaged, q.SnapshotWanted())
				}
				if text := out.Damaged[0].Err.Error(); !strings.Contains(text, second.FileName()) || !strings.Contains(text, "damaged") {
					t.Fatalf("the message is %q", text)
				}
				// The older one is offered instead, until it is asked for.
				if m, _ = askFor(t, q, fetchFromNothing(q)); *m.(*raft.FetchResponse).Snapshot != (raft.SnapshotID{End: first.EndOffset, Epoch: first.Epoch}) {
					t.Fatalf("%+v", m)
				}
				if _, out = askFor(t, q, fetchPiece(q, first, 0, 1<<20)); len(out.Damaged) != 1 || out.Damaged[0].ID != first {
					t.Fatalf("%v", out.Damaged)
				}
				if m, out = askFor(t, q, fetchFromNothing(q)); m.(*raft.FetchResponse).Code != raft.OffsetOutOfRange || len(out.Damaged) > 0 {
					t.Fatalf("%+v", m)
				}
				loader = grow(t, q, loader, 4000, 4000+more)
				third := take(t, q, loader, keepTwo)
				if got := snapshotNames(t, fsys); len(got) != 1 || got[0] != third.FileName() || q.Log().StartOffset() != third.EndOffset || q.SnapshotWanted() {
					t.Fatalf("kept %v, log from %d, wanted %v", got, q.Log().StartOffset(), q.SnapshotWanted())
				}
				m, _ = askFor(t, q, fetchPiece(q, third, 0, 1<<20))
				image, _, err := metadata.ReadSnapshot(m.(*raft.FetchSnapshotResponse).Bytes, third)
				if err != nil || !image.Equal(loader.Image()) {
					t.Fatalf("the new one: %v", err)
				}
				again := openQuorum(t, crashed(fsys), 7)
				if s, ok := again.TakeState(); !ok || !s.Image.Equal(loader.Image()) {
					t.Fatal("a start on it has another state")
				}
			})
		}
	}
}

// Behind a damaged snapshot the log goes on as it was: who is only a little behind needs none.
func TestLogBehindADamagedSnapshotIsServed(t *testing.T) {
	fsys := formatted(t, 7)
	q := openQuorum(t, fsys, 7)
	loader := grow(t, q, emptyLoader(), 0, 4)
	first := take(t, q, loader, keepTwo)
	loader = grow(t, q, loader, 4, 8)
	second := take(t, q, loader, keepTwo)
	spoilt["a flipped bit"](t, fsys, filepath.Join(metadataDir, second.FileName()))
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	// At a start the older one, with the log behind it, still tells everything.
	q, recovery, err := exec.OpenQuorum(quorumConfig(fsys, 7))
	if err := errors.Join(err, q.Start(0), q.Flush(1)); err != nil || len(recovery.Repairs) != 1 {
		t.Fatalf("%v, %v", err, recovery.Repairs)
	}
	loader = follow(t, q, emptyLoader())
	third := take(t, q, grow(t, q, loader, 8, 9), keepTwo)
	if got := snapshotNames(t, fsys); len(got) != 2 || got[0] != first.FileName() || got[1] != third.FileName() {
		t.Fatalf("kept %v", got)
	}
	// The older one was not looked at by this process before it is asked for.
	spoilt["a flipped bit"](t, fsys, filepath.Join(metadataDir, first.FileName()))
	if m, out := askFor(t, q, fetchPiece(q, first, 0, 10)); m.(*raft.FetchSnapshotResponse).Code != raft.SnapshotNotFound || len(out.Damaged) != 1 {
		t.Fatalf("%+v, %v", m, out.Damaged)
	}
	if q.SnapshotWanted() {
		t.Fatal("the latest is whole: none is wanted")
	}
	behind := fetchFromNothing(q).(*raft.FetchRequest)
	behind.Offset, behind.LastEpoch = first.EndOffset, first.Epoch
	if m, _ := askFor(t, q, behind); len(m.(*raft.FetchResponse).Records) == 0 {
		t.Fatalf("%+v", m)
	}
}

// A snapshot that this process neither wrote nor read is served to nobody: to look at all of it first would hold up
// every vote and fetch, for hundreds of thousands of partitions longer than a leader may be silent. When the one that was
// loaded is damaged, a new one takes its place.
func TestOlderSnapshotIsNotLookedAtWhileOthersWait(t *testing.T) {
	fsys := formatted(t, 7)
	q := openQuorum(t, fsys, 7)
	loader := grow(t, q, emptyLoader(), 0, 4)
	first := take(t, q, loader, keepTwo)
	loader = grow(t, q, loader, 4, 8)
	second := take(t, q, loader, keepTwo)
	var looked []string
	fsys = crashed(fsys)
	q = openQuorum(t, vfs.Inject(fsys, func(op, path string) error {
		if strings.HasSuffix(path, first.FileName()) {
			looked = append(looked, op)
		}
		return nil
	}), 7)
	if err := q.Flush(1); err != nil || q.Core().Role() != raft.Leader {
		t.Fatalf("%v, %v", q.Core().Role(), err)
	}
	loader = grow(t, q, loader, 8, 9)
	edit(t, fsys, filepath.Join(metadataDir, second.FileName()), func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
	looked = nil
	if m, out := askFor(t, q, fetchPiece(q, second, 0, 1<<20)); m.(*raft.FetchSnapshotResponse).Code != raft.SnapshotNotFound || len(out.Damaged) != 1 {
		t.Fatalf("%+v, %v", m, out.Damaged)
	}
	if m, _ := askFor(t, q, fetchFromNothing(q)); m.(*raft.FetchResponse).Code != raft.OffsetOutOfRange {
		t.Fatalf("%+v", m)
	}
	if m, out := askFor(t, q, fetchPiece(q, first, 0, 1<<20)); m.(*raft.FetchSnapshotResponse).Code != raft.SnapshotNotFound || len(out.Damaged) > 0 || len(looked) > 0 {
		t.Fatalf("code %d, damaged %v, done with the older one: %v", m.(*raft.FetchSnapshotResponse).Code, out.Damaged, looked)
	}
	third := take(t, q, loader, keepTwo)
	if m, _ := askFor(t, q, fetchFromNothing(q)); *m.(*raft.FetchResponse).Snapshot != (raft.SnapshotID{End: third.EndOffset, Epoch: third.Epoch}) {
		t.Fatalf("%+v", m)
	}
}
