package exec

import (
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// FuzzQuorumState: what is read of the file is in range, and comes back as it was written.
func FuzzQuorumState(f *testing.F) {
	f.Add([]byte(`{"leaderId":1,"leaderEpoch":5,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`))
	f.Add([]byte(`{"clusterId":"c","leaderId":-1,"leaderEpoch":5,"votedId":2,"appliedOffset":0,"currentVoters":[],"data_version":0}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := decodeVote(data)
		if err != nil {
			return
		}
		if v.Epoch < 0 || v.Leader < ident.NoNode || v.Voted.ID < ident.NoNode {
			t.Fatalf("%+v", v)
		}
		back, err := decodeVote(encodeVote(v))
		if err != nil || back != v && v.Voted.ID >= 0 {
			t.Fatalf("%+v came back as %+v, %v", v, back, err)
		}
	})
}

// FuzzFetchedRecords: whatever a leader sends as records, a follower takes what is right and goes on.
func FuzzFetchedRecords(f *testing.F) {
	voters := votersRecord(raft.VoterSet{{Key: raft.ReplicaKey{ID: 1}, Endpoints: []raft.Endpoint{{Name: "C", Host: "h", Port: 1}}}})
	f.Add(batch.NewBuilder(0, 3, 0).Append(nil, []byte("a")).Build())
	f.Add(batch.NewBuilder(0, 3, 0).AppendControl(batch.VotersType, voters.Encode()).Build())
	f.Add([]byte("hello"))
	f.Fuzz(func(t *testing.T, records []byte) {
		q, _, err := OpenQuorum(QuorumConfig{FS: vfs.NewMem(), Dir: "m/__cluster_metadata-0", Raft: raft.Config{Self: raft.ReplicaKey{ID: 2}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			q.Start(0),
			q.HandleRequest(1, 1, &raft.BeginQuorumEpochRequest{Voter: raft.Nobody, Leader: 1, Epoch: 5}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		var out QuorumOutput
		q.Drain(&out)
		if len(out.Sends) != 1 {
			t.Fatalf("sends %+v", out.Sends)
		}
		resp := &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 1, Epoch: 5}, HighWatermark: 1, Records: records}
		if err := q.HandleResponse(2, 1, out.Sends[0].Correlation, resp, nil); err != nil {
			t.Fatal(err)
		}
		if err := q.Flush(3); err != nil {
			t.Fatal(err)
		}
	})
}
