package exec_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

var errBadDisk = errors.New("simulated: no space, or a bad sector")

// failing is a disk of which one operation that changes it, counted from 0, fails; forGood: all that follow, too.
type failing struct {
	at, ops int
	forGood bool
	what    string // the operation that failed first
}

func (f *failing) over(fsys vfs.FS) vfs.FS {
	return vfs.Inject(fsys, func(op, path string) error {
		switch op {
		case vfs.OpWrite, vfs.OpBack, vfs.OpSync, vfs.OpSyncDir, vfs.OpCreate, vfs.OpTruncate, vfs.OpRename, vfs.OpRemove, vfs.OpMkdir:
		default:
			return nil
		}
		f.ops++
		switch {
		case f.ops-1 == f.at:
			f.what = op + " " + path
			return errBadDisk
		case f.what != "" && f.forGood:
			return errBadDisk
		}
		return nil
	})
}

// ended says whether there was no operation left to fail, in which case what was done must have succeeded and have made
// some operations. Otherwise it checks that what was done failed by the disk's error, and says where that was.
func (f *failing) ended(t *testing.T, least int, err error) (ended bool, where string) {
	t.Helper()
	if f.what == "" {
		if err != nil || f.at < least {
			t.Fatalf("%d operations, then %v", f.at, err)
		}
		t.Logf("%d operations", f.at)
		return true, ""
	}
	where = fmt.Sprintf("operation %d, %s", f.at, f.what)
	if !errors.Is(err, errBadDisk) {
		t.Fatalf("%s: goes on; error %v", where, err)
	}
	return false, where
}

// wantStopped checks that a voter whose disk has failed says nothing more and does nothing more.
func wantStopped(t *testing.T, q *exec.Quorum, where string) {
	t.Helper()
	if !errors.Is(q.Err(), errBadDisk) {
		t.Fatalf("%s: goes on, error %v", where, q.Err())
	}
	err := q.HandleRequest(ident.Instant(6e9), 77, &raft.VoteRequest{Voter: raft.Nobody, Candidate: quorumKey(3), Epoch: 99, LastEpoch: 98, EndOffset: 99})
	var out exec.QuorumOutput
	q.Drain(&out)
	if !errors.Is(err, errBadDisk) || len(out.Sends) > 0 || len(out.Replies) > 0 || q.FlushWanted() || q.NextDeadline() != ident.Never {
		t.Fatalf("%s: says %+v after its disk failed (%v)", where, out, err)
	}
	if _, err := q.BeginFlush(); !errors.Is(err, errBadDisk) {
		t.Fatalf("%s: flushes on: %v", where, err)
	}
	if err := q.CheckPropose(q.Core().Epoch(), 1); !errors.Is(err, errBadDisk) {
		t.Fatalf("%s: would append: %v", where, err)
	}
}

// Each write, sync, rename and so on of a voter's life fails once, in turn: the voter stops, and says nothing that the
// disk may not hold. The next start remembers what was said.
func TestAnyDiskErrorStopsTheVoter(t *testing.T) {
	for at := 0; ; at++ {
		fsys := formatted(t, 1, 2, 3)
		m := &told{votes: map[ident.Epoch]raft.ReplicaKey{}}
		disk := &failing{at: at}
		q, err := voterLife(disk.over(fsys), m)
		ended, where := disk.ended(t, 20, err)
		if ended {
			return
		}
		if q != nil {
			wantStopped(t, q, where)
		}
		// What is in the page cache may be there or not: a failed fsync says nothing.
		for _, disk := range []*vfs.Mem{fsys, crashed(fsys)} {
			again, _, err := exec.OpenQuorum(quorumConfig(disk, 2))
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			v := again.Core().Vote()
			if voted, ok := m.votes[v.Epoch]; v.Epoch < m.epoch || ok && v.Voted != voted || again.EndOffset() < min(m.fetchedTo, 2) {
				t.Fatalf("%s: remembers %+v, log to %d; said %+v", where, v, again.EndOffset(), m)
			}
		}
	}
}

// footerBytes is the size of a snapshot's last batch, without which it is none.
func footerBytes(t *testing.T, raw []byte) (size int) {
	t.Helper()
	for rest := raw; len(rest) > 0; {
		one, after, _, err := batch.Next(rest)
		if err != nil {
			t.Fatal(err)
		}
		size, rest = len(one), after
	}
	return size
}

// The same for an install.
func TestAnyDiskErrorStopsAnInstall(t *testing.T) {
	id, raw, image := leaderSnapshot(t, 6)
	for name, l := range map[string]installer{
		"a spoilt piece first":  {id: id, bytes: raw, chunk: 200, spoil: 250},
		"one without end first": {id: id, bytes: raw, chunk: 200, withheld: footerBytes(t, raw)},
	} {
		t.Run(name, func(t *testing.T) { failInstall(t, l, image) })
	}
}

func failInstall(t *testing.T, l installer, image *metadata.Image) {
	id, raw := l.id, l.bytes
	for at := 0; ; at++ {
		fsys := withLog(t)
		disk := &failing{at: at}
		q, _, err := exec.OpenQuorum(quorumConfig(disk.over(fsys), 2))
		if err == nil {
			err = q.Start(0)
		}
		if err == nil {
			one := l
			err = one.drive(q)
		}
		ended, where := disk.ended(t, 10, err)
		if ended {
			return
		}
		if q != nil {
			wantStopped(t, q, where)
		}
		again := openQuorum(t, fsys, 2)
		if err := (&installer{id: id, bytes: raw, chunk: 300}).drive(again); err != nil {
			t.Fatalf("%s: after a restart %v", where, err)
		}
		if again.Log().StartOffset() != 6 {
			t.Fatalf("%s: after a restart the log starts at %d", where, again.Log().StartOffset())
		}
		if s, ok := again.TakeState(); ok && !s.Image.Equal(image) {
			t.Fatalf("%s: after a restart another state", where)
		}
	}
}

// What an install leaves to the sync at its end is one piece, however large the snapshot.
func TestPiecesOfASnapshotAreWrittenBackAsTheyCome(t *testing.T) {
	id, raw, _ := leaderSnapshot(t, 6)
	var pieces, back, backAtSync int
	q, _, err := exec.OpenQuorum(quorumConfig(vfs.Inject(withLog(t), func(op, path string) error {
		if strings.HasSuffix(path, metadata.PartialSnapshotSuffix) {
			switch op {
			case vfs.OpWrite:
				pieces++
			case vfs.OpBack:
				back++
			case vfs.OpSync:
				backAtSync = back
			}
		}
		return nil
	}), 2))
	if err == nil {
		err = q.Start(0)
	}
	if err == nil {
		err = (&installer{id: id, bytes: raw, chunk: 100}).drive(q)
	}
	if err != nil {
		t.Fatal(err)
	}
	if pieces < 3 || backAtSync != pieces {
		t.Errorf("%d pieces, %d of them written back before the sync", pieces, backAtSync)
	}
}

// And for a snapshot of the node's own, with the trimming of the log.
func TestAnyDiskErrorStopsASnapshot(t *testing.T) {
	for at := 0; ; at++ {
		fsys := formatted(t, 7)
		disk := &failing{at: -1}
		q := openQuorum(t, disk.over(fsys), 7)
		loader := grow(t, q, emptyLoader(), 0, 4)
		take(t, q, loader, keepTwo)
		loader = grow(t, q, loader, 4, 8)
		take(t, q, loader, keepTwo)
		loader = grow(t, q, loader, 8, 12)
		disk.at, disk.ops = at, 0
		p := q.BeginSnapshot(exec.State{Image: loader.Image(), TimestampMs: loader.Timestamp()})
		err := q.EndSnapshot(1, p, p.Write(), keepTwo)
		ended, where := disk.ended(t, 5, err)
		if ended {
			return
		}
		wantStopped(t, q, where)
		again := openQuorum(t, fsys, 7)
		if err := again.Flush(1); err != nil {
			t.Fatal(err)
		}
		if got := follow(t, again, emptyLoader()).Image(); got.NumTopics() != 12 {
			t.Fatalf("%s: %d topics after a restart", where, got.NumTopics())
		}
	}
}

// A write that a power cut has torn is cut off at the next start; damage before that stops the node and says what to
// do: cutting there could lose what this voter has acknowledged.
func TestTornTailIsCutAndACorruptMiddleStopsTheNode(t *testing.T) {
	build := func(t *testing.T) (*vfs.Mem, string, []byte) {
		t.Helper()
		fsys := formatted(t, 7)
		q := openQuorum(t, fsys, 7)
		grow(t, q, emptyLoader(), 0, 6)
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		name := metadataDir + "/00000000000000000000.log"
		raw, err := vfs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		return fsys, name, raw
	}
	fsys, name, raw := build(t)
	torn := topicBatch(6)
	batch.SetBaseOffset(torn, 9)
	if err := vfs.WriteFile(fsys, name, append(raw[:len(raw):len(raw)], torn[:len(torn)-5]...), true); err != nil {
		t.Fatal(err)
	}
	q, recovery, err := exec.OpenQuorum(quorumConfig(fsys, 7))
	if err != nil {
		t.Fatal(err)
	}
	if q.EndOffset() != 9 || recovery.CutBytes != int64(len(torn)-5) || !strings.Contains(strings.Join(recovery.Repairs, " "), "torn by a crash") {
		t.Fatalf("log to %d, %+v", q.EndOffset(), recovery)
	}

	for _, where := range []int{len(raw) / 3, len(raw) - 1} { // the last byte of the last batch was acknowledged as well
		fsys, name, raw := build(t)
		raw[where] ^= 0x10
		if err := vfs.WriteFile(fsys, name, raw, true); err != nil {
			t.Fatal(err)
		}
		_, _, err := exec.OpenQuorum(quorumConfig(fsys, 7))
		if !errors.Is(err, log.ErrCorrupt) || !strings.Contains(err.Error(), "could lose committed records: restore the disk or replace this replica") {
			t.Fatalf("a bit flipped at %d of %d: %v", where, len(raw), err)
		}
		if now, err := vfs.ReadFile(fsys, name); err != nil || string(now) != string(raw) {
			t.Fatalf("the log was changed: %d bytes, %v", len(now), err)
		}
	}
}

// KAFKA-14238: whatever the age and size of the log's segments, it is only trimmed to a snapshot's end.
func TestMetadataLogIsTrimmedByNothingButSnapshots(t *testing.T) {
	fsys := formatted(t, 7)
	cfg := quorumConfig(fsys, 7)
	cfg.Log.Settings = log.Settings{SegmentBytes: 300}
	open := func() *exec.Quorum {
		t.Helper()
		q, _, err := exec.OpenQuorum(cfg)
		if err == nil {
			err = errors.Join(q.Start(0), q.Flush(0))
		}
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	q := open()
	grow(t, q, emptyLoader(), 0, 40)
	if n := len(q.Log().Segments()); n < 8 || q.Log().StartOffset() != 0 {
		t.Fatalf("%d segments, log from %d", n, q.Log().StartOffset())
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = open()
	if q.Log().StartOffset() != 0 {
		t.Fatalf("after a restart the log starts at %d", q.Log().StartOffset())
	}
	loader := follow(t, q, emptyLoader())
	first := take(t, q, loader, keepTwo)
	loader = grow(t, q, loader, 40, 60)
	take(t, q, loader, keepTwo)
	if q.Log().StartOffset() != first.EndOffset {
		t.Fatalf("log from %d, the older snapshot ends at %d", q.Log().StartOffset(), first.EndOffset)
	}
}

// A thousand snapshots later the disk holds two, and the log behind the older (KAFKA-12205). A follower that is less
// than a snapshot behind is always sent records (braft#528), and each snapshot that is kept has the log behind it
// (camunda#3573).
func TestDiskStaysBoundedOverAThousandSnapshots(t *testing.T) {
	fsys := formatted(t, 7)
	cfg := quorumConfig(fsys, 7)
	cfg.Log.Settings = log.Settings{SegmentBytes: 1000}
	q, _, err := exec.OpenQuorum(cfg)
	if err == nil {
		err = errors.Join(q.Start(0), q.Flush(0))
	}
	if err != nil {
		t.Fatal(err)
	}
	loader := follow(t, q, emptyLoader())
	var last metadata.SnapshotID
	for i := range 1000 {
		for range 3 {
			if _, err := q.Propose(1, q.Core().Epoch(), metadata.EncodeBatch(0, 0, 5000, &metadata.NoOpRecord{})); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Flush(1); err != nil {
			t.Fatal(err)
		}
		loader = follow(t, q, loader)
		before := last
		last = take(t, q, loader, keepTwo)
		start, names := q.Log().StartOffset(), snapshotNames(t, fsys)
		if i == 0 {
			continue
		}
		if len(names) != 2 || names[0] != before.FileName() || names[1] != last.FileName() || start != before.EndOffset {
			t.Fatalf("%d: kept %v, log from %d", i, names, start)
		}
		behind := &raft.FetchRequest{ClusterID: "c", Replica: quorumKey(9), Epoch: q.Core().Epoch(), Offset: before.EndOffset + 1, LastEpoch: 1, MaxBytes: 1 << 20}
		if err := q.HandleRequest(1, uint64(i), behind); err != nil {
			t.Fatal(err)
		}
		var out exec.QuorumOutput
		q.Drain(&out)
		if r := out.Replies[len(out.Replies)-1].Msg.(*raft.FetchResponse); r.Code != raft.None || r.Snapshot != nil || len(r.Records) == 0 {
			t.Fatalf("%d: one who is a little behind is answered %+v", i, r)
		}
	}
	entries, err := fsys.ReadDir(metadataDir)
	if err != nil || len(entries) > 16 || q.Log().Size() > 5000 {
		t.Fatalf("%d files, log of %d bytes; %v", len(entries), q.Log().Size(), err)
	}
}

// KAFKA-13098: a snapshot that goes between the listing and the reading is no reason not to start.
func TestSnapshotThatVanishesWhileTheNodeStartsIsNone(t *testing.T) {
	for name, when := range map[string]string{"before its size is asked": vfs.OpStat, "before it is opened": vfs.OpOpen} {
		t.Run(name, func(t *testing.T) {
			for nth := 1; nth <= 2; nth++ {
				fsys := formatted(t, 7)
				q := openQuorum(t, fsys, 7)
				loader := grow(t, q, emptyLoader(), 0, 4)
				id := take(t, q, loader, keepTwo)
				if err := q.Close(); err != nil {
					t.Fatal(err)
				}
				seen := 0
				q, _, err := exec.OpenQuorum(quorumConfig(vfs.Inject(fsys, func(op, path string) error {
					if op == when && strings.HasSuffix(path, id.FileName()) {
						if seen++; seen == nth {
							return fsys.Remove(path)
						}
					}
					return nil
				}), 7))
				if err != nil {
					t.Fatalf("the %d. time: %v", nth, err)
				}
				if err := errors.Join(q.Start(0), q.Flush(1)); err != nil {
					t.Fatal(err)
				}
				if got := follow(t, q, emptyLoader()).Image(); got.NumTopics() != 4 {
					t.Fatalf("%d topics", got.NumTopics())
				}
				if seen < nth && when == vfs.OpOpen {
					t.Fatalf("opened %d times only", seen)
				}
			}
		})
	}
}

// curvine#1551: all that a start needs is derived from the snapshot and the log, whichever start it is.
func TestInstalledNodeStartsAgainAndAgain(t *testing.T) {
	fsys := formatted(t, 1, 2, 3)
	id, raw, image := leaderSnapshot(t, 6)
	if err := (&installer{id: id, bytes: raw, chunk: 300}).drive(openQuorum(t, fsys, 2)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		fsys = crashed(fsys)
		q := openQuorum(t, fsys, 2)
		if s, ok := q.TakeState(); !ok || !s.Image.Equal(image) || q.Log().StartOffset() != 6 || q.EndOffset() != 6 || q.HighWatermark() != 6 || len(q.Core().Voters()) != 3 {
			t.Fatalf("state %v, log %d to %d, high watermark %d", ok, q.Log().StartOffset(), q.EndOffset(), q.HighWatermark())
		}
	}
}

// A node that stops in the middle of a download, or whose disk fails at the end of one, leaves no file open: it may come
// back in the same process.
func TestStoppedInstallLeavesNoFileOpen(t *testing.T) {
	id, raw, _ := leaderSnapshot(t, 6)
	for name, fails := range map[string]string{"stopped": "", "sync": vfs.OpSync, "rename": vfs.OpRename} {
		t.Run(name, func(t *testing.T) {
			opened := 0
			q := openQuorum(t, vfs.Inject(withLog(t), func(op, path string) error {
				if !strings.Contains(path, "-fetched") {
					return nil
				}
				switch op {
				case fails:
					return errBadDisk
				case vfs.OpOpen, vfs.OpCreate:
					opened++
				case vfs.OpClose:
					opened--
				case vfs.OpWrite:
					if fails == "" {
						return errBadDisk
					}
				}
				return nil
			}), 2)
			if err := (&installer{id: id, bytes: raw, chunk: 300}).drive(q); !errors.Is(err, errBadDisk) {
				t.Fatal(err)
			}
			_ = q.Close() // of a node whose disk has failed
			if opened != 0 {
				t.Fatalf("%d files are open", opened)
			}
		})
	}
}
