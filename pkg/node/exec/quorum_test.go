package exec_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

const metadataDir = "meta/__cluster_metadata-0"

func quorumKey(id ident.NodeID) raft.ReplicaKey {
	return raft.ReplicaKey{ID: id, DirectoryID: ident.UUID{1, 15: byte(id)}}
}

func quorumVoters(t *testing.T, ids ...ident.NodeID) raft.VoterSet {
	t.Helper()
	var vs []raft.Voter
	for _, id := range ids {
		vs = append(vs, raft.Voter{Key: quorumKey(id), Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: "h", Port: 9093}}})
	}
	s, err := raft.NewVoterSet(vs...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func formatted(t *testing.T, ids ...ident.NodeID) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	if err := exec.FormatQuorum(fsys, metadataDir, quorumVoters(t, ids...), 1000); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func quorumConfig(fsys vfs.FS, id ident.NodeID) exec.QuorumConfig {
	return exec.QuorumConfig{
		FS: fsys, Dir: metadataDir,
		Raft:       raft.Config{Self: quorumKey(id), ClusterID: "c"},
		WallMillis: func() int64 { return 5000 },
	}
}

func openQuorum(t *testing.T, fsys vfs.FS, id ident.NodeID) *exec.Quorum {
	t.Helper()
	q, _, err := exec.OpenQuorum(quorumConfig(fsys, id))
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Start(0); err != nil {
		t.Fatal(err)
	}
	return q
}

func records(values ...string) []byte {
	b := batch.NewBuilder(0, 0, 5000)
	for _, v := range values {
		b.Append(nil, []byte(v))
	}
	return b.Build()
}

// crashed is the disk after a power cut that kept nothing unsynced.
func crashed(fsys *vfs.Mem) *vfs.Mem { return fsys.CrashClone(rand.New(rand.NewPCG(1, 1)), 0) }

func TestSoleVoterWritesItsVotersAndCommits(t *testing.T) {
	fsys := formatted(t, 7)
	q := openQuorum(t, fsys, 7)
	var out exec.QuorumOutput
	q.Drain(&out)
	if out.Leadership == nil || out.Leadership.Leader != 7 || out.Leading != nil {
		t.Fatalf("before the flush: leadership %+v, leading %+v", out.Leadership, out.Leading)
	}
	if err := q.Flush(1); err != nil {
		t.Fatal(err)
	}
	q.Drain(&out)
	if out.Leading == nil || *out.Leading != (raft.EpochStart{Epoch: 1, Start: 0}) || q.HighWatermark() != 3 {
		t.Fatalf("leading %+v, high watermark %d", out.Leading, q.HighWatermark())
	}
	first, err := q.Propose(2, 1, records("a", "b"))
	if err != nil || first != 3 {
		t.Fatalf("offset %d, %v", first, err)
	}
	if got, next, err := q.ReadCommitted(nil, 3, 1<<20); err != nil || len(got) != 0 || next != 3 {
		t.Fatalf("read %d bytes up to %d before the flush: %v", len(got), next, err)
	}
	if err := q.Flush(3); err != nil {
		t.Fatal(err)
	}
	got, next, err := q.ReadCommitted(nil, 3, 1<<20)
	if err != nil || next != 5 {
		t.Fatalf("next %d, %v", next, err)
	}
	var values []string
	for r, err := range batch.Records(got) {
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(r.Value))
	}
	if strings.Join(values, "") != "ab" {
		t.Fatalf("read %q", values)
	}

	// All of it, voters included, is there after a power cut, and the next leadership is a new epoch.
	q = openQuorum(t, crashed(fsys), 7)
	if q.Core().Epoch() != 2 || q.EndOffset() != 6 || !q.Core().IsVoter() {
		t.Fatalf("epoch %d, end %d", q.Core().Epoch(), q.EndOffset())
	}
	if got := q.Core().Voters()[0].Endpoints[0]; got != (raft.Endpoint{Name: "CONTROLLER", Host: "h", Port: 9093}) {
		t.Fatalf("endpoint %+v", got)
	}
}

func TestFirstBatchHasLeaderChangeVersionAndVoters(t *testing.T) {
	q := openQuorum(t, formatted(t, 7), 7)
	if err := q.Flush(1); err != nil {
		t.Fatal(err)
	}
	got, _, err := q.ReadCommitted(nil, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var types []batch.ControlType
	for r, err := range batch.Records(got) {
		if err != nil {
			t.Fatal(err)
		}
		ct, err := batch.ParseControlType(r.Key)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, ct)
		if ct == batch.LeaderChangeType {
			m, err := batch.DecodeLeaderChange(r.Value)
			if err != nil || m.LeaderID != 7 || len(m.Voters) != 1 || len(m.Granting) != 1 {
				t.Fatalf("%+v, %v", m, err)
			}
		}
	}
	if len(types) != 3 || types[0] != batch.LeaderChangeType || types[1] != batch.KRaftVersionType || types[2] != batch.VotersType {
		t.Fatalf("control records %v", types)
	}
}

func TestVoteIsOnDiskBeforeItIsAnswered(t *testing.T) {
	fsys := formatted(t, 1, 2, 3)
	q := openQuorum(t, fsys, 1)
	ask := &raft.VoteRequest{Candidate: quorumKey(2), Voter: raft.Nobody, Epoch: 4}
	if err := q.HandleRequest(1, 9, ask); err != nil {
		t.Fatal(err)
	}
	var out exec.QuorumOutput
	q.Drain(&out)
	if len(out.Replies) != 1 || out.Replies[0].Token != 9 || !out.Replies[0].Msg.(*raft.VoteResponse).Granted {
		t.Fatalf("%+v", out.Replies)
	}
	q = openQuorum(t, crashed(fsys), 1)
	if v := q.Core().Vote(); v.Epoch != 4 || v.Voted != quorumKey(2) {
		t.Fatalf("after a power cut the vote is %+v", v)
	}
	data, err := vfs.ReadFile(fsys, filepath.Join(metadataDir, exec.QuorumStateFile))
	if want := `{"leaderId":-1,"leaderEpoch":4,"votedId":2,"votedDirectoryId":"AQAAAAAAAAAAAAAAAAAAAg","data_version":1}`; err != nil || string(data) != want {
		t.Fatalf("quorum-state %s, %v; want %s", data, err, want)
	}
}

func TestVoteThatCannotBeSavedIsNotAnswered(t *testing.T) {
	fsys := formatted(t, 1, 2, 3)
	broken := false
	q := openQuorum(t, vfs.Inject(fsys, func(op, path string) error {
		if broken && op == vfs.OpSync && strings.Contains(path, exec.QuorumStateFile) {
			return errors.New("no disk")
		}
		return nil
	}), 1)
	broken = true
	err := q.HandleRequest(1, 9, &raft.VoteRequest{Candidate: quorumKey(2), Voter: raft.Nobody, Epoch: 4})
	var out exec.QuorumOutput
	q.Drain(&out)
	if err == nil || q.Err() == nil || len(out.Replies) != 0 || len(out.Sends) != 0 {
		t.Fatalf("error %v, out %+v", err, out)
	}
	if err := q.Tick(ident.Instant(time.Minute)); err == nil || q.NextDeadline() != ident.Never {
		t.Fatal("goes on after a disk error")
	}
}

func TestQuorumStateThatCannotBeReadStopsTheNode(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"empty", "", "no JSON"},
		{"cut off", `{"leaderId":1,"leader`, "no JSON"},
		{"future version", `{"leaderId":1,"leaderEpoch":5,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":99}`, "data_version is 99"},
		{"no version", `{"leaderId":1,"leaderEpoch":5,"votedId":-1}`, "data_version is missing"},
		{"no epoch", `{"leaderId":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`, "is missing"},
		{"negative epoch", `{"leaderId":1,"leaderEpoch":-5,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`, "out of range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := formatted(t, 1)
			if err := vfs.WriteFileAtomic(fsys, filepath.Join(metadataDir, exec.QuorumStateFile), []byte(c.content)); err != nil {
				t.Fatal(err)
			}
			_, _, err := exec.OpenQuorum(quorumConfig(fsys, 1))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q (KAFKA-15412)", err, c.want)
			}
		})
	}
}

func TestLogWithoutItsVoteStopsTheNode(t *testing.T) {
	fsys := formatted(t, 1)
	q := openQuorum(t, fsys, 1)
	if err := q.Flush(1); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Remove(filepath.Join(metadataDir, exec.QuorumStateFile)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := exec.OpenQuorum(quorumConfig(fsys, 1)); err == nil || !strings.Contains(err.Error(), "could vote twice") {
		t.Fatalf("error %v", err)
	}
}

func TestKafkasQuorumStateOfVersion0IsRead(t *testing.T) {
	fsys := formatted(t, 1, 2, 3)
	old := `{"clusterId":"c","leaderId":-1,"leaderEpoch":5,"votedId":2,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`
	if err := vfs.WriteFileAtomic(fsys, filepath.Join(metadataDir, exec.QuorumStateFile), []byte(old)); err != nil {
		t.Fatal(err)
	}
	q := openQuorum(t, fsys, 1)
	if v := q.Core().Vote(); v.Epoch != 5 || v.Voted != (raft.ReplicaKey{ID: 2}) {
		t.Fatalf("%+v", v)
	}
}

func TestFormatIsRepeatableAndRefusesOtherVoters(t *testing.T) {
	fsys := formatted(t, 1, 2)
	if err := exec.FormatQuorum(fsys, metadataDir, quorumVoters(t, 1, 2), 77); err != nil {
		t.Fatal(err)
	}
	if err := exec.FormatQuorum(fsys, metadataDir, quorumVoters(t, 1, 3), 77); err == nil {
		t.Fatal("formatted again with other voters")
	}
	if _, err := crashed(fsys).Stat(filepath.Join(metadataDir, "00000000000000000000-0000000000.checkpoint")); err != nil {
		t.Fatalf("after a power cut: %v", err)
	}
}

// serve has a leader of epoch 5, node 1, answer the fetch that q has sent.
func serve(t *testing.T, q *exec.Quorum, now ident.Instant, resp *raft.FetchResponse) exec.QuorumOutput {
	t.Helper()
	var out exec.QuorumOutput
	q.Drain(&out)
	resp.Current = raft.LeaderInfo{Leader: 1, Epoch: 5}
	for i := len(out.Sends) - 1; i >= 0; i-- {
		if _, ok := out.Sends[i].Msg.(*raft.FetchRequest); ok {
			if err := q.HandleResponse(now, out.Sends[i].To, out.Sends[i].Correlation, resp, nil); err != nil {
				t.Fatal(err)
			}
			out = exec.QuorumOutput{}
			q.Drain(&out)
			return out
		}
	}
	t.Fatalf("no fetch among %+v", out.Sends)
	return out
}

func following(t *testing.T, fsys vfs.FS) *exec.Quorum {
	t.Helper()
	q := openQuorum(t, fsys, 2)
	if err := q.HandleRequest(1, 1, &raft.BeginQuorumEpochRequest{Voter: raft.Nobody, Leader: 1, Epoch: 5}); err != nil {
		t.Fatal(err)
	}
	return q
}

func batchAt(offset ident.Offset, epoch ident.Epoch, values ...string) []byte {
	b := records(values...)
	batch.SetBaseOffset(b, offset)
	batch.SetLeaderEpoch(b, epoch)
	return b
}

func TestFollowerAppendsFlushesAndOnlyThenFetchesOn(t *testing.T) {
	fsys := formatted(t, 1, 2, 3)
	q := following(t, fsys)
	two := append(batchAt(0, 4, "a"), batchAt(1, 5, "b", "c")...)
	out := serve(t, q, 2, &raft.FetchResponse{HighWatermark: 1, Records: two})
	if q.EndOffset() != 3 || q.HighWatermark() != 1 || len(out.Sends) != 0 || !q.FlushWanted() {
		t.Fatalf("end %d, high watermark %d, sends %v, flush wanted %v", q.EndOffset(), q.HighWatermark(), out.Sends, q.FlushWanted())
	}
	got, next, err := q.ReadCommitted(nil, 0, 1<<20)
	if err != nil || next != 1 || !bytes.Equal(got, batchAt(0, 4, "a")) {
		t.Fatalf("committed up to %d: %v", next, err)
	}
	if err := q.Flush(3); err != nil {
		t.Fatal(err)
	}
	q.Drain(&out)
	if len(out.Sends) != 1 || out.Sends[0].Msg.(*raft.FetchRequest).Offset != 3 {
		t.Fatalf("sends %+v", out.Sends)
	}
	q = openQuorum(t, crashed(fsys), 2)
	if q.EndOffset() != 3 {
		t.Fatalf("after a power cut the log ends at %d, although it was acknowledged to 3", q.EndOffset())
	}
}

func TestFollowerRefusesDamagedAndForeignRecords(t *testing.T) {
	damaged := batchAt(0, 5, "abcdef")
	damaged[len(damaged)-2] ^= 1
	partial := append(batchAt(0, 5, "a"), batchAt(1, 5, "b")[:65]...)
	later := append(batchAt(0, 5, "a"), batchAt(1, 6, "b")...)
	for _, c := range []struct {
		name    string
		records []byte
		end     ident.Offset
	}{
		{"checksum", damaged, 0},
		{"gap", batchAt(4, 5, "a"), 0},
		{"no batch", []byte("hello"), 0},
		{"last batch not whole", partial, 1},
		{"later epoch dropped", later, 1},
		{"only a later epoch", batchAt(0, 6, "b"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := following(t, formatted(t, 1, 2, 3))
			serve(t, q, 2, &raft.FetchResponse{HighWatermark: 0, Records: c.records})
			if q.EndOffset() != c.end || q.Err() != nil {
				t.Fatalf("log ends at %d, %v", q.EndOffset(), q.Err())
			}
			if c.end == 0 && q.Core().Trouble() == nil {
				t.Fatal("no word of the trouble")
			}
			// It goes on.
			if err := q.Flush(3); err != nil {
				t.Fatal(err)
			}
			if err := q.Tick(ident.Instant(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			serve(t, q, ident.Instant(101*time.Millisecond), &raft.FetchResponse{Records: batchAt(c.end, 5, "x")})
			if q.EndOffset() != c.end+1 {
				t.Fatalf("log ends at %d after good records", q.EndOffset())
			}
		})
	}
}

func TestVoteAndTruncationWaitForTheFlushUnderWay(t *testing.T) {
	fsys := formatted(t, 1, 2, 3)
	q := following(t, fsys)
	serve(t, q, 2, &raft.FetchResponse{HighWatermark: 0, Records: batchAt(0, 5, "a", "b")})
	f, err := q.BeginFlush()
	if err != nil {
		t.Fatal(err)
	}
	if err := q.HandleRequest(3, 7, &raft.VoteRequest{Candidate: quorumKey(3), Voter: raft.Nobody, Epoch: 6, LastEpoch: 5, EndOffset: 2}); err != nil {
		t.Fatal(err)
	}
	if err := q.HandleRequest(4, 8, &raft.VoteRequest{Candidate: quorumKey(1), Voter: raft.Nobody, Epoch: 6, LastEpoch: 5, EndOffset: 2}); err != nil {
		t.Fatal(err)
	}
	var out exec.QuorumOutput
	q.Drain(&out)
	if len(out.Replies) != 0 || q.NextDeadline() != ident.Never {
		t.Fatalf("answered %+v while the vote can't be saved", out.Replies)
	}
	if err := q.EndFlush(5, f, f.Sync()); err != nil {
		t.Fatal(err)
	}
	q.Drain(&out)
	if len(out.Replies) != 2 || out.Replies[0].Token != 7 || !out.Replies[0].Msg.(*raft.VoteResponse).Granted ||
		out.Replies[1].Token != 8 || out.Replies[1].Msg.(*raft.VoteResponse).Granted {
		t.Fatalf("replies %+v", out.Replies)
	}
	after := openQuorum(t, crashed(fsys), 2)
	if after.EndOffset() != 2 || after.Core().Vote().Voted != quorumKey(3) {
		t.Fatalf("after a power cut the log ends at %d, vote %+v", after.EndOffset(), after.Core().Vote())
	}
}

func TestFlushBesideATruncationDoesNotVouchForWhatCameAfter(t *testing.T) {
	q := following(t, formatted(t, 1, 2, 3))
	serve(t, q, 2, &raft.FetchResponse{HighWatermark: 0, Records: append(batchAt(0, 4, "a"), batchAt(1, 5, "b", "c")...)})
	if err := q.Flush(2); err != nil {
		t.Fatal(err)
	}
	serve(t, q, 3, &raft.FetchResponse{Records: batchAt(3, 5, "d")})
	f, err := q.BeginFlush()
	if err != nil {
		t.Fatal(err)
	}
	// The fetch for offset 4 is not out yet, so a divergence can't come; a new leader can.
	if err := q.HandleRequest(4, 1, &raft.BeginQuorumEpochRequest{Voter: raft.Nobody, Leader: 3, Epoch: 6}); err != nil {
		t.Fatal(err)
	}
	if err := q.EndFlush(5, f, f.Sync()); err != nil {
		t.Fatal(err)
	}
	var out exec.QuorumOutput
	q.Drain(&out)
	var sent raft.Send
	for _, s := range out.Sends {
		if _, ok := s.Msg.(*raft.FetchRequest); ok {
			sent = s
		}
	}
	resp := &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 3, Epoch: 6}, Diverging: &raft.EpochEnd{Epoch: 4, End: 1}}
	if err := q.HandleResponse(6, sent.To, sent.Correlation, resp, nil); err != nil {
		t.Fatal(err)
	}
	if q.EndOffset() != 1 || q.FlushWanted() {
		t.Fatalf("log ends at %d, flush wanted %v", q.EndOffset(), q.FlushWanted())
	}
}

func TestProposalsOfAnotherEpochLeaveTheLogAlone(t *testing.T) {
	q := openQuorum(t, formatted(t, 7), 7)
	if _, err := q.Propose(1, 9, records("x")); !errors.Is(err, raft.ErrNotLeader) || q.Err() != nil {
		t.Fatalf("error %v, sticky %v", err, q.Err())
	}
	if q.EndOffset() != 3 {
		t.Fatalf("log ends at %d", q.EndOffset())
	}
}

func TestSnapshotsOfKafkaAreNotSilentlyPassedOver(t *testing.T) {
	fsys := formatted(t, 1)
	q, _, err := exec.OpenQuorum(func() exec.QuorumConfig {
		c := quorumConfig(fsys, 1)
		c.Log.StartOffset = 10
		return c
	}())
	if err == nil || !strings.Contains(err.Error(), "starts at offset 10") {
		t.Fatalf("%v, error %v", q, err)
	}
	if _, err := fsys.Stat(filepath.Join(metadataDir, exec.QuorumStateFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("quorum-state: %v", err)
	}
}

// Whatever the configuration names, a node whose log and checkpoint make it no voter is none: it gives no vote that it
// might forget, and never stands.
func TestJoinerIsNoVoterUntilTheLogSaysSo(t *testing.T) {
	fsys := vfs.NewMem()
	for range 2 {
		if err := exec.FormatJoiner(fsys, metadataDir, 77); err != nil {
			t.Fatal(err)
		}
	}
	cfg := quorumConfig(fsys, 1)
	cfg.Voters = quorumVoters(t, 1, 2, 3)
	if !cfg.Voters.Has(cfg.Raft.Self) {
		t.Fatal("the configuration does not name it")
	}
	q, _, err := exec.OpenQuorum(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if q.Core().IsVoter() {
		t.Fatalf("voters %v", q.Core().Voters().Keys())
	}
	if err := q.Start(0); err != nil {
		t.Fatal(err)
	}
	for now := ident.Instant(0); now < ident.Instant(time.Minute); now = q.NextDeadline() {
		if err := q.Tick(now); err != nil {
			t.Fatal(err)
		}
		if q.Core().Role() != raft.Unattached || q.Core().Epoch() != 0 {
			t.Fatalf("at %v it is %s in epoch %d", now, q.Core().Role(), q.Core().Epoch())
		}
	}
}
