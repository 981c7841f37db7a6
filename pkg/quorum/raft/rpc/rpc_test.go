package rpc_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/quorum/raft/rpc"
)

var (
	nodeIDs = rapid.Map(rapid.Int32Range(0, 1<<30), func(v int32) ident.NodeID { return ident.NodeID(v) })
	epochs  = rapid.Map(rapid.Int32Range(0, 1<<30), func(v int32) ident.Epoch { return ident.Epoch(v) })
	offsets = rapid.Map(rapid.Int64Range(0, 1<<60), func(v int64) ident.Offset { return ident.Offset(v) })
	uuids   = rapid.Custom(func(t *rapid.T) ident.UUID {
		return ident.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
	})
	keys = rapid.Custom(func(t *rapid.T) raft.ReplicaKey {
		return raft.ReplicaKey{ID: nodeIDs.Draw(t, "id"), DirectoryID: uuids.Draw(t, "directory")}
	})
	maybeKeys = rapid.OneOf(keys, rapid.Just(raft.Nobody))
	named     = rapid.Custom(func(t *rapid.T) raft.Endpoint {
		return raft.Endpoint{Name: rapid.String().Draw(t, "name"), Host: rapid.String().Draw(t, "host"), Port: rapid.Uint16Min(1).Draw(t, "port")}
	})
	infos = rapid.Custom(func(t *rapid.T) raft.LeaderInfo {
		l := raft.LeaderInfo{Leader: rapid.OneOf(nodeIDs, rapid.Just(ident.NoNode)).Draw(t, "leader"), Epoch: epochs.Draw(t, "epoch")}
		if l.Leader >= 0 && rapid.Bool().Draw(t, "known") {
			e := named.Draw(t, "endpoint")
			e.Name = "" // node endpoints of responses have none
			l.Endpoints = []raft.Endpoint{e}
		}
		return l
	})
)

// overTheWire encodes a request in its latest version and reads it back.
func overTheWire(t *rapid.T, m raft.Message) (kmsg.Request, raft.Message) {
	req := rpc.ToRequest(m)
	req.SetVersion(rpc.Versions[req.Key()][1])
	if req.GetVersion() > req.MaxVersion() || rpc.MinVersion(m) > req.GetVersion() {
		t.Fatalf("%T: version %d", m, req.GetVersion())
	}
	copied := kmsg.RequestForKey(req.Key())
	copied.SetVersion(req.GetVersion())
	if err := copied.ReadFrom(req.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	back, refusal := rpc.FromRequest(copied)
	if refusal != nil {
		t.Fatalf("%T refused: %+v", m, refusal)
	}
	return copied, back
}

var (
	snapshots = rapid.Custom(func(t *rapid.T) *raft.SnapshotID {
		return &raft.SnapshotID{Epoch: epochs.Draw(t, "epoch"), End: offsets.Draw(t, "end")}
	})
	voters = rapid.Custom(func(t *rapid.T) raft.Voter {
		return raft.Voter{Key: keys.Draw(t, "key"), Endpoints: rapid.SliceOfN(named, 1, 3).Draw(t, "endpoints")}
	})
)

func TestRequestsComeBackAsTheyWere(t *testing.T) {
	requests := rapid.OneOf(
		rapid.Custom(func(t *rapid.T) raft.Message {
			m := &raft.VoteRequest{
				ClusterID: rapid.String().Draw(t, "cluster"), Voter: maybeKeys.Draw(t, "voter"), Candidate: keys.Draw(t, "candidate"),
				Epoch: epochs.Draw(t, "epoch"), LastEpoch: epochs.Draw(t, "last"), EndOffset: offsets.Draw(t, "end"), PreVote: rapid.Bool().Draw(t, "pre"),
			}
			return m
		}),
		rapid.Custom(func(t *rapid.T) raft.Message {
			return &raft.BeginQuorumEpochRequest{
				ClusterID: rapid.String().Draw(t, "cluster"), Voter: maybeKeys.Draw(t, "voter"), Leader: nodeIDs.Draw(t, "leader"),
				Epoch: epochs.Draw(t, "epoch"), Endpoints: rapid.SliceOfN(named, 1, 3).Draw(t, "endpoints"),
			}
		}),
		rapid.Custom(func(t *rapid.T) raft.Message {
			return &raft.EndQuorumEpochRequest{
				ClusterID: rapid.String().Draw(t, "cluster"), Leader: nodeIDs.Draw(t, "leader"), Epoch: epochs.Draw(t, "epoch"),
				Successors: rapid.SliceOfN(keys, 1, 5).Draw(t, "successors"),
			}
		}),
		rapid.Custom(func(t *rapid.T) raft.Message {
			m := &raft.FetchRequest{
				ClusterID: rapid.String().Draw(t, "cluster"), Replica: maybeKeys.Draw(t, "replica"), Epoch: epochs.Draw(t, "epoch"),
				Offset: offsets.Draw(t, "offset"), LastEpoch: epochs.Draw(t, "last"),
				HighWatermark: rapid.OneOf(offsets, rapid.Just(ident.UnknownOffset), rapid.Just(raft.HighWatermarkNotNamed)).Draw(t, "hw"),
				MaxBytes:      rapid.Int32Min(0).Draw(t, "bytes"), MaxWait: time.Duration(rapid.Int32Range(0, 100000).Draw(t, "wait")) * time.Millisecond,
			}
			return m
		}),
		rapid.Custom(func(t *rapid.T) raft.Message {
			return &raft.FetchSnapshotRequest{
				ClusterID: rapid.String().Draw(t, "cluster"), Replica: maybeKeys.Draw(t, "replica"), Epoch: epochs.Draw(t, "epoch"),
				Snapshot: *snapshots.Draw(t, "snapshot"), Position: rapid.Int64().Draw(t, "position"), MaxBytes: rapid.Int32().Draw(t, "bytes"),
			}
		}),
		rapid.Custom(func(t *rapid.T) raft.Message {
			return &raft.AddVoterRequest{
				ClusterID: rapid.String().Draw(t, "cluster"), Voter: voters.Draw(t, "voter"), AckAppended: rapid.Bool().Draw(t, "appended"),
				Timeout: time.Duration(rapid.Int32Range(0, 100000).Draw(t, "timeout")) * time.Millisecond,
			}
		}),
		rapid.Custom(func(t *rapid.T) raft.Message {
			return &raft.RemoveVoterRequest{ClusterID: rapid.String().Draw(t, "cluster"), Voter: keys.Draw(t, "voter")}
		}),
		rapid.Custom(func(t *rapid.T) raft.Message {
			return &raft.UpdateVoterRequest{ClusterID: rapid.String().Draw(t, "cluster"), Epoch: epochs.Draw(t, "epoch"), Voter: voters.Draw(t, "voter")}
		}),
		rapid.Just[raft.Message](&raft.KRaftVersionsRequest{}),
	)
	rapid.Check(t, func(t *rapid.T) {
		m := requests.Draw(t, "request")
		if _, back := overTheWire(t, m); !cmp.Equal(m, back) {
			t.Fatal(cmp.Diff(m, back))
		}
	})
}

func TestResponsesComeBackAsTheyWere(t *testing.T) {
	codes := rapid.SampledFrom([]raft.Code{raft.None, raft.NotLeaderOrFollower, raft.FencedLeaderEpoch, raft.UnknownLeaderEpoch, raft.OffsetOutOfRange, raft.InvalidVoterKey, raft.InvalidRequest})
	ends := rapid.Custom(func(t *rapid.T) *raft.EpochEnd {
		return &raft.EpochEnd{Epoch: epochs.Draw(t, "epoch"), End: offsets.Draw(t, "end")}
	})
	rapid.Check(t, func(t *rapid.T) {
		info, code := infos.Draw(t, "leader"), codes.Draw(t, "code")
		var asked, m raft.Message
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 0:
			asked, m = &raft.VoteRequest{Voter: raft.Nobody}, &raft.VoteResponse{Code: code, Granted: rapid.Bool().Draw(t, "granted"), Current: info}
		case 1:
			asked, m = &raft.BeginQuorumEpochRequest{Voter: raft.Nobody}, &raft.BeginQuorumEpochResponse{Code: code, Current: info}
		case 2:
			asked, m = &raft.EndQuorumEpochRequest{}, &raft.EndQuorumEpochResponse{Code: code, Current: info}
		case 3:
			asked, m = &raft.FetchSnapshotRequest{Replica: raft.Nobody}, &raft.FetchSnapshotResponse{
				Code: code, Current: info, Snapshot: *snapshots.Draw(t, "snapshot"), Size: rapid.Int64().Draw(t, "size"),
				Position: rapid.Int64().Draw(t, "position"), Bytes: rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "bytes"),
			}
		case 4, 5:
			change := &raft.ChangeVotersResponse{Code: code, Message: rapid.String().Draw(t, "message"), Current: raft.LeaderInfo{Leader: ident.NoNode, Epoch: ident.UnknownEpoch}}
			asked, m = &raft.AddVoterRequest{}, change
			if rapid.Bool().Draw(t, "remove") {
				asked = &raft.RemoveVoterRequest{}
			}
		case 7:
			asked, m = &raft.KRaftVersionsRequest{}, &raft.KRaftVersionsResponse{Code: code, Min: rapid.Int16().Draw(t, "min"), Max: rapid.Int16().Draw(t, "max")}
		case 6:
			asked, m = &raft.UpdateVoterRequest{}, &raft.ChangeVotersResponse{Code: code, Current: info}
		default:
			f := &raft.FetchResponse{Code: code, Current: info, HighWatermark: offsets.Draw(t, "hw"), LogStartOffset: offsets.Draw(t, "start")}
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				f.Diverging = ends.Draw(t, "diverging")
			case 1:
				f.Snapshot = snapshots.Draw(t, "snapshot")
			default:
				f.Records = rapid.SliceOf(rapid.Byte()).Draw(t, "records")
			}
			asked, m = &raft.FetchRequest{Replica: raft.Nobody}, f
		}
		req, _ := overTheWire(t, asked)
		resp, err := rpc.ToResponse(req, m)
		if err != nil {
			t.Fatal(err)
		}
		copied := kmsg.ResponseForKey(resp.Key())
		copied.SetVersion(resp.GetVersion())
		if err := copied.ReadFrom(resp.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		back, err := rpc.FromResponse(copied)
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := back.(*raft.FetchResponse); ok && len(f.Records) == 0 {
			f.Records = nil
		}
		if f, ok := m.(*raft.FetchResponse); ok && len(f.Records) == 0 {
			f.Records = nil
		}
		if !cmp.Equal(m, back) {
			t.Fatal(cmp.Diff(m, back))
		}
	})
}

func TestRequestForAnotherPartitionIsRefused(t *testing.T) {
	for name, change := range map[string]func(*kmsg.VoteRequest){
		"another topic":     func(r *kmsg.VoteRequest) { r.Topics[0].Topic = "t" },
		"another partition": func(r *kmsg.VoteRequest) { r.Topics[0].Partitions[0].Partition = 1 },
		"no partition":      func(r *kmsg.VoteRequest) { r.Topics[0].Partitions = nil },
		"no topic":          func(r *kmsg.VoteRequest) { r.Topics = nil },
		"two topics":        func(r *kmsg.VoteRequest) { r.Topics = append(r.Topics, r.Topics[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			req := rpc.ToRequest(&raft.VoteRequest{Voter: raft.Nobody}).(*kmsg.VoteRequest)
			req.Version = 2
			change(req)
			m, resp := rpc.FromRequest(req)
			if m != nil || resp.(*kmsg.VoteResponse).ErrorCode != int16(raft.InvalidRequest) || resp.GetVersion() != 2 {
				t.Fatalf("%+v, %+v", m, resp)
			}
		})
	}
	fetch := rpc.ToRequest(&raft.FetchRequest{Replica: raft.Nobody}).(*kmsg.FetchRequest)
	fetch.Version = 17
	fetch.Topics[0].TopicID = [16]byte{9}
	if m, resp := rpc.FromRequest(fetch); m != nil || resp.(*kmsg.FetchResponse).ErrorCode != int16(raft.InvalidRequest) {
		t.Fatalf("%+v, %+v", m, resp)
	}
}

func TestUpdateOfAVoterThatDoesNotKnowVotersInTheLogIsRefused(t *testing.T) {
	req := rpc.ToRequest(&raft.UpdateVoterRequest{Voter: raft.Voter{Key: raft.ReplicaKey{ID: 1}}}).(*kmsg.UpdateRaftVoterRequest)
	if m, _ := rpc.FromRequest(req); m == nil {
		t.Fatal("refused")
	}
	req.KRaftVersionFeature.MaxSupportedVersion = 0
	if m, resp := rpc.FromRequest(req); m != nil || resp.(*kmsg.UpdateRaftVoterResponse).ErrorCode != int16(raft.InvalidRequest) {
		t.Fatalf("%+v, %+v", m, resp)
	}
}

// In version 0 nobody can ask for an answer before the commit.
func TestOldAddRaftVoterWaitsForTheCommit(t *testing.T) {
	req := kmsg.NewPtrAddRaftVoterRequest()
	for version, want := range map[int16]bool{0: false, 1: true} {
		req.Version, req.AckWhenCommitted = version, false
		if m, _ := rpc.FromRequest(req); m.(*raft.AddVoterRequest).AckAppended != want {
			t.Fatalf("version %d: %+v", version, m)
		}
	}
}

func TestTopLevelErrorsAreSeen(t *testing.T) {
	for _, resp := range []kmsg.Response{kmsg.NewPtrVoteResponse(), kmsg.NewPtrBeginQuorumEpochResponse(), kmsg.NewPtrEndQuorumEpochResponse(), kmsg.NewPtrFetchResponse()} {
		if _, err := rpc.FromResponse(resp); err == nil {
			t.Fatalf("%T without the partition is taken for an answer", resp)
		}
		set := func(code int16) {
			switch r := resp.(type) {
			case *kmsg.VoteResponse:
				r.ErrorCode = code
			case *kmsg.BeginQuorumEpochResponse:
				r.ErrorCode = code
			case *kmsg.EndQuorumEpochResponse:
				r.ErrorCode = code
			case *kmsg.FetchResponse:
				r.ErrorCode = code
			}
		}
		set(int16(raft.UnsupportedVersion))
		if _, err := rpc.FromResponse(resp); !errors.Is(err, raft.ErrUnsupportedVersion) {
			t.Fatalf("%T: %v", resp, err)
		}
		set(int16(raft.InconsistentClusterID))
		if m, err := rpc.FromResponse(resp); err != nil || m == nil {
			t.Fatalf("%T: %v, %v", resp, m, err)
		}
	}
}

func TestPreVoteNeedsAVersionThatHasIt(t *testing.T) {
	if rpc.MinVersion(&raft.VoteRequest{PreVote: true}) != 2 || rpc.MinVersion(&raft.VoteRequest{}) != 0 {
		t.Fatal("a pre-vote to a peer without KIP-996 would be a vote")
	}
}

func TestDescribeQuorumTellsWallTime(t *testing.T) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Version = 2
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = ident.MetadataTopic
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	voters, err := raft.NewVoterSet(raft.Voter{Key: raft.ReplicaKey{ID: 1}, Endpoints: []raft.Endpoint{{Name: "C", Host: "h", Port: 9}}})
	if err != nil {
		t.Fatal(err)
	}
	d := raft.Description{Leader: 1, Epoch: 3, HighWatermark: 7, Voters: []raft.ReplicaState{
		{Key: raft.ReplicaKey{ID: 1}, LogEndOffset: 8, Fetched: true, LastFetch: 1000_000_000, CaughtUp: true, LastCaughtUp: 1000_000_000},
		{Key: raft.ReplicaKey{ID: 2}, LogEndOffset: 5, Fetched: true, LastFetch: 400_000_000},
	}}
	resp := rpc.DescribeQuorum(req, d, true, voters, 1000_000_000, time.UnixMilli(50_000))
	p := resp.Topics[0].Partitions[0]
	if p.LeaderID != 1 || p.HighWatermark != 7 || p.CurrentVoters[1].LastFetchTimestamp != 49_400 || p.CurrentVoters[1].LastCaughtUpTimestamp != -1 ||
		p.CurrentVoters[0].LastFetchTimestamp != 50_000 || resp.Nodes[0].Listeners[0].Port != 9 {
		t.Fatalf("%+v", resp)
	}
	if resp := rpc.DescribeQuorum(req, d, false, voters, 0, time.UnixMilli(0)); resp.Topics[0].Partitions[0].ErrorCode != int16(raft.NotLeaderOrFollower) {
		t.Fatalf("%+v", resp)
	}
	req.Topics = nil
	if resp := rpc.DescribeQuorum(req, d, true, voters, 0, time.UnixMilli(0)); resp.ErrorCode != int16(raft.InvalidRequest) {
		t.Fatalf("%+v", resp)
	}
}

// FuzzRequests: whatever bytes come as a request of the quorum, they are read or refused.
func FuzzRequests(f *testing.F) {
	for i, m := range []raft.Message{
		&raft.VoteRequest{ClusterID: "c", Voter: raft.Nobody, Epoch: 3, PreVote: true},
		&raft.BeginQuorumEpochRequest{Leader: 1, Epoch: 2, Endpoints: []raft.Endpoint{{Name: "n", Host: "h", Port: 1}}},
		&raft.EndQuorumEpochRequest{Leader: 1, Successors: []raft.ReplicaKey{{ID: 2}}},
		&raft.FetchRequest{Replica: raft.Nobody, Offset: 9},
	} {
		req := rpc.ToRequest(m)
		req.SetVersion(rpc.Versions[req.Key()][1])
		f.Add(uint8(i), uint8(req.GetVersion()), req.AppendTo(nil))
	}
	apis := []int16{int16(kmsg.Vote), int16(kmsg.BeginQuorumEpoch), int16(kmsg.EndQuorumEpoch), int16(kmsg.Fetch)}
	f.Fuzz(func(t *testing.T, which, version uint8, body []byte) {
		api := apis[int(which)%len(apis)]
		v := rpc.Versions[api]
		req := kmsg.RequestForKey(api)
		req.SetVersion(v[0] + int16(version)%(v[1]-v[0]+1))
		if req.ReadFrom(body) != nil {
			return
		}
		m, refusal := rpc.FromRequest(req)
		if (m == nil) == (refusal == nil) {
			t.Fatalf("message %v, refusal %v", m, refusal)
		}
	})
}
