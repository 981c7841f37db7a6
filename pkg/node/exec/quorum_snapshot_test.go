package exec_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// follow reads what is committed and new into a loader.
func follow(t *testing.T, q *exec.Quorum, loader *metadata.Loader) *metadata.Loader {
	t.Helper()
	if s, ok := q.TakeState(); ok {
		loader = metadata.NewLoader(s.Image, s.TimestampMs)
	}
	for loader.NextOffset() < q.HighWatermark() {
		raw, _, err := q.ReadCommitted(nil, loader.NextOffset(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range metadata.ReadBatches(raw) {
			if err == nil {
				err = loader.Load(b)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	loader.Publish()
	return loader
}

func emptyLoader() *metadata.Loader { return metadata.NewLoader(metadata.Empty(), -1) }

func topicBatch(n int) []byte {
	return metadata.EncodeBatch(0, 0, 5000, &metadata.TopicRecord{Name: fmt.Sprint("t", n), TopicID: ident.UUID{7, byte(n >> 8), byte(n)}})
}

// grow appends topics as the sole voter 7 and follows them.
func grow(t *testing.T, q *exec.Quorum, loader *metadata.Loader, from, to int) *metadata.Loader {
	t.Helper()
	for n := from; n < to; n++ {
		if _, err := q.Propose(1, q.Core().Epoch(), topicBatch(n)); err != nil {
			t.Fatal(err)
		}
		if err := q.Flush(1); err != nil {
			t.Fatal(err)
		}
	}
	return follow(t, q, loader)
}

func take(t *testing.T, q *exec.Quorum, loader *metadata.Loader, limits exec.SnapshotLimits) metadata.SnapshotID {
	t.Helper()
	p := q.BeginSnapshot(exec.State{Image: loader.Image(), TimestampMs: loader.Timestamp()})
	if p == nil {
		t.Fatal("no snapshot")
	}
	if err := q.EndSnapshot(1, p, p.Write(), limits); err != nil {
		t.Fatal(err)
	}
	return p.ID()
}

var keepTwo = exec.SnapshotLimits{Bytes: 0}

func snapshotNames(t *testing.T, fsys vfs.FS) (names []string) {
	t.Helper()
	entries, err := fsys.ReadDir(metadataDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), ".checkpoint") && e.Name() != metadata.BootstrapID.FileName() {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestSnapshotsAreTakenTwoAreKeptAndAStartNeedsOnlyTheLast(t *testing.T) {
	fsys := formatted(t, 7)
	q := openQuorum(t, fsys, 7)
	loader := grow(t, q, emptyLoader(), 0, 10)
	first := take(t, q, loader, keepTwo)
	if first.EndOffset != 13 || first.Epoch != 1 || q.Log().StartOffset() != 0 {
		t.Fatalf("snapshot %s, log from %d: a replica that is a little behind would need it at once", first, q.Log().StartOffset())
	}
	if p := q.BeginSnapshot(exec.State{Image: loader.Image()}); p != nil {
		t.Fatalf("snapshot %s has nothing new", p.ID())
	}
	loader = grow(t, q, loader, 10, 20)
	second := take(t, q, loader, keepTwo)
	if q.Log().StartOffset() != first.EndOffset {
		t.Fatalf("log from %d, want %d", q.Log().StartOffset(), first.EndOffset)
	}
	loader = grow(t, q, loader, 20, 30)
	third := take(t, q, loader, keepTwo)
	if got := snapshotNames(t, fsys); len(got) != 2 || got[0] != second.FileName() || got[1] != third.FileName() || q.Log().StartOffset() != second.EndOffset {
		t.Fatalf("kept %v, log from %d", got, q.Log().StartOffset())
	}
	loader = grow(t, q, loader, 30, 35)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	again := openQuorum(t, fsys, 7)
	if s, ok := again.TakeState(); !ok || s.Image.SnapshotID() != third || s.TimestampMs != 5000 {
		t.Fatalf("state %+v, %v", s, ok)
	}
	again = openQuorum(t, crashed(fsys), 7)
	if err := again.Flush(1); err != nil {
		t.Fatal(err)
	}
	got := follow(t, again, emptyLoader())
	want := loader.Image()
	if a, b := metadata.AppendSnapshot(nil, got.Image(), metadata.SnapshotHeader{}), metadata.AppendSnapshot(nil, want, metadata.SnapshotHeader{}); len(a) != len(b) || got.Image().SnapshotID().EndOffset < want.SnapshotID().EndOffset {
		t.Fatalf("state up to %s after a restart, want %s", got.Image().SnapshotID(), want.SnapshotID())
	}
	if v := again.Core().Voters(); len(v) != 1 || again.Core().VotersBelow(100).Offset == raft.BootstrapOffset {
		t.Fatalf("voters %v: they come from the snapshot", v.Keys())
	}
}

func TestMoreSnapshotsAreKeptWithinTheLimits(t *testing.T) {
	fsys := formatted(t, 7)
	q := openQuorum(t, fsys, 7)
	loader := emptyLoader()
	for i := range 4 {
		loader = grow(t, q, loader, 3*i, 3*i+3)
		take(t, q, loader, exec.SnapshotLimits{Bytes: 1 << 20, OldestMs: 5000})
	}
	if got := snapshotNames(t, fsys); len(got) != 4 {
		t.Fatalf("kept %v", got)
	}
	loader = grow(t, q, loader, 20, 21)
	take(t, q, loader, exec.SnapshotLimits{Bytes: 1 << 20, OldestMs: 5001})
	if got := snapshotNames(t, fsys); len(got) != 2 {
		t.Fatalf("of an age beyond the limit are kept %v", got)
	}
}

// A snapshot that is being fetched stays, and the log behind it (consul#9609).
func TestSnapshotThatIsBeingFetchedIsKept(t *testing.T) {
	fsys := formatted(t, 7)
	q := openQuorum(t, fsys, 7)
	loader := grow(t, q, emptyLoader(), 0, 3)
	first := take(t, q, loader, keepTwo)
	ask := func(now ident.Instant, position int64) *raft.FetchSnapshotResponse {
		t.Helper()
		err := q.HandleRequest(now, 9, &raft.FetchSnapshotRequest{
			ClusterID: "c", Replica: raft.Nobody, Epoch: q.Core().Epoch(), Snapshot: raft.SnapshotID{End: first.EndOffset, Epoch: first.Epoch}, Position: position, MaxBytes: 50,
		})
		if err != nil {
			t.Fatal(err)
		}
		var out exec.QuorumOutput
		q.Drain(&out)
		return out.Replies[len(out.Replies)-1].Msg.(*raft.FetchSnapshotResponse)
	}
	var whole []byte
	for r := ask(2, 0); ; r = ask(2, int64(len(whole))) {
		if whole = append(whole, r.Bytes...); r.Code != raft.None || int64(len(whole)) == r.Size {
			break
		}
	}
	if im, h, err := metadata.ReadSnapshot(whole, first); err != nil || !im.Equal(loader.Image()) || h.KRaftVersion != 1 || len(h.Voters.Voters) != 1 {
		t.Fatalf("served %d bytes: %v", len(whole), err)
	}
	if r := ask(2, int64(len(whole))); r.Code != raft.PositionOutOfRange {
		t.Fatalf("beyond the end: %+v", r)
	}
	for i := range 3 {
		loader = grow(t, q, loader, 10+i, 11+i)
		take(t, q, loader, keepTwo)
	}
	if got := snapshotNames(t, fsys); len(got) != 4 || q.Log().StartOffset() != first.EndOffset {
		t.Fatalf("kept %v, log from %d", got, q.Log().StartOffset())
	}
	p := q.BeginSnapshot(exec.State{Image: grow(t, q, loader, 20, 21).Image()})
	if err := q.EndSnapshot(2+61e9, p, p.Write(), keepTwo); err != nil {
		t.Fatal(err)
	}
	if got := snapshotNames(t, fsys); len(got) != 2 {
		t.Fatalf("a minute later %v", got)
	}
	if r := ask(62e9, 0); r.Code != raft.SnapshotNotFound {
		t.Fatalf("%+v", r)
	}
}

// Whoever fetched it and now fetches the log behind it needs it no longer; somebody else may.
func TestSnapshotIsKeptUntilItsReadersAreBehindIt(t *testing.T) {
	fsys := formatted(t, 7)
	q := openQuorum(t, fsys, 7)
	loader := grow(t, q, emptyLoader(), 0, 3)
	first := take(t, q, loader, keepTwo)
	ask := func(m raft.Message) {
		t.Helper()
		if err := q.HandleRequest(2, 9, m); err != nil {
			t.Fatal(err)
		}
	}
	read := func(replica ident.NodeID) {
		t.Helper()
		ask(&raft.FetchSnapshotRequest{
			ClusterID: "c", Replica: raft.ReplicaKey{ID: replica}, Epoch: q.Core().Epoch(),
			Snapshot: raft.SnapshotID{End: first.EndOffset, Epoch: first.Epoch}, MaxBytes: 50,
		})
	}
	goOn := func(replica ident.NodeID, offset ident.Offset) {
		t.Helper()
		ask(&raft.FetchRequest{ClusterID: "c", Replica: raft.ReplicaKey{ID: replica}, Epoch: q.Core().Epoch(), Offset: offset, LastEpoch: first.Epoch, MaxBytes: 50})
	}
	read(8)
	read(9)
	read(8)
	for i := range 3 {
		loader = grow(t, q, loader, 10+i, 11+i)
		take(t, q, loader, keepTwo)
	}
	goOn(8, first.EndOffset)
	loader = grow(t, q, loader, 20, 21)
	take(t, q, loader, keepTwo)
	if start := q.Log().StartOffset(); start != first.EndOffset {
		t.Fatalf("the log starts at %d although replica 9 fetches the snapshot that ends at %d", start, first.EndOffset)
	}
	goOn(9, first.EndOffset+1)
	loader = grow(t, q, loader, 30, 31)
	take(t, q, loader, keepTwo)
	if names := snapshotNames(t, fsys); len(names) != 2 || q.Log().StartOffset() <= first.EndOffset {
		t.Fatalf("nobody fetches it any more, and %v are there, the log from %d", names, q.Log().StartOffset())
	}
}

// leaderSnapshot is one that a leader could have: topics up to an offset, voters 1, 2, 3 and the last record of epoch 4.
func leaderSnapshot(t *testing.T, end ident.Offset) (raft.SnapshotID, []byte, *metadata.Image) {
	t.Helper()
	d := metadata.NewDelta(metadata.Empty())
	for n := range int(end) {
		if err := d.Replay(&metadata.TopicRecord{Name: fmt.Sprint("s", n), TopicID: ident.UUID{9, byte(n)}}); err != nil {
			t.Fatal(err)
		}
	}
	image := d.Image(end-1, 4)
	voters := batch.Voters{}
	for _, v := range quorumVoters(t, 1, 2, 3) {
		voters.Voters = append(voters.Voters, batch.Voter{ID: v.Key.ID, DirectoryID: v.Key.DirectoryID, MaxKRaftVersion: 1,
			Endpoints: []batch.VoterEndpoint{{Name: "CONTROLLER", Host: "h", Port: 9093}}})
	}
	return raft.SnapshotID{End: end, Epoch: 4}, metadata.AppendSnapshot(nil, image, metadata.SnapshotHeader{LastContainedLogTimestamp: 4000, KRaftVersion: 1, Voters: &voters}), image
}

// installer follows leader 1 of epoch 5, which answers fetches by an offer, and serves the snapshot.
type installer struct {
	id    raft.SnapshotID
	bytes []byte
	chunk int
	sent  int // bytes, to spoil one of them
	spoil int
	// withheld is how much is kept back of the end of the first download, as if that were all.
	withheld int
}

// drive lets q and the leader talk until q has installed the snapshot and fetches behind it.
func (l *installer) drive(q *exec.Quorum) error {
	current := raft.LeaderInfo{Leader: 1, Epoch: 5}
	if err := q.HandleRequest(1, 1, &raft.BeginQuorumEpochRequest{Voter: raft.Nobody, Leader: 1, Epoch: 5}); err != nil {
		return err
	}
	var out exec.QuorumOutput
	for now := ident.Instant(2); now < 2000; now++ {
		if err := q.Flush(now); err != nil {
			return err
		}
		q.Drain(&out)
		sends := out.Sends
		if len(sends) == 0 {
			if err := q.Tick(max(now, q.NextDeadline())); err != nil {
				return err
			}
			continue
		}
		for _, s := range sends {
			var answer raft.Message
			switch m := s.Msg.(type) {
			case *raft.FetchRequest:
				if m.Offset >= l.id.End && m.LastEpoch == l.id.Epoch {
					return nil
				}
				answer = &raft.FetchResponse{Current: current, HighWatermark: l.id.End, LogStartOffset: l.id.End, Snapshot: &l.id}
			case *raft.FetchSnapshotRequest:
				all := l.bytes[:len(l.bytes)-l.withheld]
				piece := append([]byte(nil), all[m.Position:min(int(m.Position)+l.chunk, len(all))]...)
				if int(m.Position)+len(piece) == len(all) {
					l.withheld = 0
				}
				if l.sent += len(piece); l.spoil > 0 && l.sent > l.spoil {
					piece[0] ^= 0x40
					l.spoil = 0
				}
				answer = &raft.FetchSnapshotResponse{Current: current, Snapshot: m.Snapshot, Size: int64(len(all)), Position: m.Position, Bytes: piece}
			default:
				continue
			}
			if err := q.HandleResponse(now, s.To, s.Correlation, answer, nil); err != nil {
				return err
			}
		}
	}
	return errors.New("never done")
}

// withLog is voter 2's disk with a log [0..8) of epoch 3 that the leader does not have.
func withLog(t *testing.T) *vfs.Mem {
	t.Helper()
	fsys := formatted(t, 1, 2, 3)
	q := following(t, fsys)
	if out := serve(t, q, 2, &raft.FetchResponse{HighWatermark: 0, Records: append(batchAt(0, 3, "a", "b", "c", "d"), batchAt(4, 3, "e", "f", "g", "h")...)}); len(out.Sends) > 0 {
		t.Fatal("fetches before a flush")
	}
	if err := q.Flush(3); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func TestInstalledSnapshotReplacesLogAndState(t *testing.T) {
	for _, end := range []ident.Offset{5, 8, 20} { // within, at the end of, and beyond the log that goes
		fsys := withLog(t)
		id, raw, image := leaderSnapshot(t, end)
		l := &installer{id: id, bytes: raw, chunk: 100, spoil: 150}
		q := openQuorum(t, fsys, 2)
		if err := l.drive(q); err != nil {
			t.Fatal(err)
		}
		s, ok := q.TakeState()
		if !ok || !s.Image.Equal(image) || s.TimestampMs != 4000 {
			t.Fatalf("end %d: state %+v", end, s)
		}
		if i := q.Core().Install(); q.Log().StartOffset() != end || q.EndOffset() != end || i.Active || i.Downloads != 2 || q.HighWatermark() != end {
			t.Fatalf("end %d: log %d to %d, high watermark %d, %+v", end, q.Log().StartOffset(), q.EndOffset(), q.HighWatermark(), i)
		}
		q = openQuorum(t, crashed(fsys), 2)
		if s, ok := q.TakeState(); !ok || !s.Image.Equal(image) || q.Log().StartOffset() != end || q.EndOffset() != end || len(q.Core().Voters()) != 3 {
			t.Fatalf("end %d after a crash: state %v, log %d to %d", end, ok, q.Log().StartOffset(), q.EndOffset())
		}
	}
}

// A power cut at every operation of an install: the next start finds the old log or the snapshot, whole, nothing
// partial, and installs it from there.
func TestInstallSurvivesAPowerCutAtEveryStep(t *testing.T) {
	id, raw, image := leaderSnapshot(t, 6)
	rng := rand.New(rand.NewPCG(8, 8))
	for cut := 0; ; cut++ {
		for _, keep := range []int{0, 50, 100} {
			fsys := withLog(t)
			ops, dead := 0, false
			q, _, err := exec.OpenQuorum(quorumConfig(vfs.Inject(fsys, func(op, _ string) error {
				if op == vfs.OpRead || op == vfs.OpStat || op == vfs.OpReadDir || op == vfs.OpOpen {
					return nil
				}
				if dead = dead || ops == cut; dead {
					return errPowerCut
				}
				ops++
				return nil
			}), 2))
			if err == nil {
				err = q.Start(0)
			}
			if err == nil {
				err = (&installer{id: id, bytes: raw, chunk: 200}).drive(q)
			}
			if dead != errors.Is(err, errPowerCut) || err != nil && !dead {
				t.Fatalf("cut at %d: error %v", cut, err)
			}
			where := fmt.Sprintf("cut at operation %d, %d%% of the unsynced kept", cut, keep)
			disk := fsys.CrashClone(rng, keep)
			q, _, err = exec.OpenQuorum(quorumConfig(disk, 2))
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			for _, name := range snapshotNames(t, disk) {
				if name != (metadata.SnapshotID{EndOffset: id.End, Epoch: id.Epoch}).FileName() {
					t.Fatalf("%s: %s is left", where, name)
				}
			}
			s, installed := q.TakeState()
			switch {
			case installed && (!s.Image.Equal(image) || q.Log().StartOffset() != 6 || q.EndOffset() != 6):
				t.Fatalf("%s: log %d to %d", where, q.Log().StartOffset(), q.EndOffset())
			case !installed && (q.Log().StartOffset() != 0 || q.EndOffset() != 8 || !dead):
				t.Fatalf("%s: no snapshot, log %d to %d", where, q.Log().StartOffset(), q.EndOffset())
			}
			if err := q.Start(0); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			if err := (&installer{id: id, bytes: raw, chunk: 300}).drive(q); err != nil {
				t.Fatalf("%s: then %v", where, err)
			}
			if !dead && keep == 100 {
				if ops < 15 {
					t.Fatalf("only %d operations", ops)
				}
				t.Logf("%d operations", ops)
				return
			}
		}
	}
}

// The same for a snapshot that a node takes of its own state, with the trimming of its log.
func TestTakingASnapshotSurvivesAPowerCutAtEveryStep(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for cut := 0; ; cut++ {
		for _, keep := range []int{0, 50, 100} {
			fsys := formatted(t, 7)
			q := openQuorum(t, fsys, 7)
			loader := grow(t, q, emptyLoader(), 0, 4)
			take(t, q, loader, keepTwo)
			loader = grow(t, q, loader, 4, 8)
			take(t, q, loader, keepTwo)
			grow(t, q, loader, 8, 12)
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			ops, dead, armed := 0, false, false
			q = openQuorum(t, vfs.Inject(fsys, func(op, _ string) error {
				if !armed || op == vfs.OpRead || op == vfs.OpStat || op == vfs.OpReadDir || op == vfs.OpOpen {
					return nil
				}
				if dead = dead || ops == cut; dead {
					return errPowerCut
				}
				ops++
				return nil
			}), 7)
			if err := q.Flush(1); err != nil {
				t.Fatal(err)
			}
			loader = follow(t, q, emptyLoader())
			armed = true
			p := q.BeginSnapshot(exec.State{Image: loader.Image(), TimestampMs: loader.Timestamp()})
			err := q.EndSnapshot(1, p, p.Write(), keepTwo)
			if dead != errors.Is(err, errPowerCut) || err != nil && !dead {
				t.Fatalf("cut at %d: error %v", cut, err)
			}
			where := fmt.Sprintf("cut at operation %d, %d%% of the unsynced kept", cut, keep)
			again := openQuorum(t, fsys.CrashClone(rng, keep), 7)
			if err := again.Flush(1); err != nil {
				t.Fatal(err)
			}
			got := follow(t, again, emptyLoader()).Image()
			for n := range 12 {
				if _, ok := got.Topic(fmt.Sprint("t", n)); !ok {
					t.Fatalf("%s: topic %d is lost", where, n)
				}
			}
			if !dead && keep == 100 {
				t.Logf("%d operations", ops)
				return
			}
		}
	}
}

func TestStartsThatWouldMissSomethingAreRefused(t *testing.T) {
	build := func(t *testing.T) (*vfs.Mem, metadata.SnapshotID, metadata.SnapshotID) {
		fsys := formatted(t, 7)
		q := openQuorum(t, fsys, 7)
		loader := grow(t, q, emptyLoader(), 0, 4)
		first := take(t, q, loader, keepTwo)
		if err := q.Log().Roll(); err != nil {
			t.Fatal(err)
		}
		loader = grow(t, q, loader, 4, 8)
		second := take(t, q, loader, keepTwo)
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		return fsys, first, second
	}
	remove := func(t *testing.T, fsys vfs.FS, id metadata.SnapshotID) {
		if err := fsys.Remove(filepath.Join(metadataDir, id.FileName())); err != nil {
			t.Fatal(err)
		}
	}
	spoil := func(t *testing.T, fsys vfs.FS, id metadata.SnapshotID) {
		name := filepath.Join(metadataDir, id.FileName())
		raw, err := vfs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)/2] ^= 1
		if err := vfs.WriteFile(fsys, name, raw, true); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, fsys vfs.FS, first, second metadata.SnapshotID)
		want string // of the error; empty: it starts
	}{
		"no snapshot left": {func(t *testing.T, fsys vfs.FS, a, b metadata.SnapshotID) {
			remove(t, fsys, a)
			remove(t, fsys, b)
		}, "starts at offset 7 and there is no snapshot"},
		"the older one removed": {func(t *testing.T, fsys vfs.FS, a, _ metadata.SnapshotID) { remove(t, fsys, a) }, ""},
		"the newer one removed": {func(t *testing.T, fsys vfs.FS, _, b metadata.SnapshotID) { remove(t, fsys, b) }, ""},
		"the newer one rotten":  {func(t *testing.T, fsys vfs.FS, _, b metadata.SnapshotID) { spoil(t, fsys, b) }, ""},
		"both rotten": {func(t *testing.T, fsys vfs.FS, a, b metadata.SnapshotID) {
			spoil(t, fsys, a)
			spoil(t, fsys, b)
		}, "nothing else holds what is before"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, first, second := build(t)
			c.do(t, fsys, first, second)
			q, recovery, err := exec.OpenQuorum(quorumConfig(fsys, 7))
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("error %v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(q.Start(0), q.Flush(1)); err != nil {
				t.Fatal(err)
			}
			if got := follow(t, q, emptyLoader()).Image(); got.NumTopics() != 8 {
				t.Fatalf("%d topics; %v", got.NumTopics(), recovery.Repairs)
			}
		})
	}
}
