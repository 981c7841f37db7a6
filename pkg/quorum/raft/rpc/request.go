package rpc

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// Versions that this package writes and reads, by key: smallest and largest. A listener that serves the quorum
// announces these.
var Versions = map[int16][2]int16{
	int16(kmsg.Fetch):            {12, 18},
	int16(kmsg.Vote):             {0, 2},
	int16(kmsg.BeginQuorumEpoch): {0, 1},
	int16(kmsg.EndQuorumEpoch):   {0, 1},
	int16(kmsg.DescribeQuorum):   {0, 2},
	int16(kmsg.FetchSnapshot):    {0, 1},
	int16(kmsg.AddRaftVoter):     {0, 1},
	int16(kmsg.RemoveRaftVoter):  {0, 0},
	int16(kmsg.UpdateRaftVoter):  {0, 0},
	// Version 4 is the first to tell of a feature whose smallest version is 0 (KAFKA-17011).
	int16(kmsg.ApiVersions): {3, 4},
}

// MinVersion is the smallest version of a request that still says what the message means. A peer that knows
// only older ones has to be taken for one that answers raft.ErrUnsupportedVersion.
func MinVersion(m raft.Message) int16 {
	switch m := m.(type) {
	case *raft.VoteRequest:
		if m.PreVote {
			return 2 // KIP-996
		}
	case *raft.FetchRequest:
		return 12 // lastFetchedEpoch, KIP-595
	case *raft.KRaftVersionsRequest:
		return 3 // features, KIP-584
	}
	return 0
}

// ToRequest makes Kafka's request from a request of the core, with the fields of all versions. It panics for a
// message that is none: that is an error in the program.
func ToRequest(m raft.Message) kmsg.Request {
	switch m := m.(type) {
	case *raft.VoteRequest:
		return voteRequest(m)
	case *raft.BeginQuorumEpochRequest:
		return beginQuorumEpochRequest(m)
	case *raft.EndQuorumEpochRequest:
		return endQuorumEpochRequest(m)
	case *raft.FetchRequest:
		return fetchRequest(m)
	case *raft.FetchSnapshotRequest:
		return fetchSnapshotRequest(m)
	case *raft.AddVoterRequest:
		return addVoterRequest(m)
	case *raft.RemoveVoterRequest:
		return removeVoterRequest(m)
	case *raft.UpdateVoterRequest:
		return updateVoterRequest(m)
	case *raft.KRaftVersionsRequest:
		return apiVersionsRequest()
	}
	panic("rpc: not a request of the quorum")
}

func clusterID(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

func voteRequest(m *raft.VoteRequest) *kmsg.VoteRequest {
	p := kmsg.NewVoteRequestTopicPartition()
	p.CandidateEpoch = int32(m.Epoch)
	p.CandidateID = int32(m.Candidate.ID)
	p.CandidateDirectoryID = m.Candidate.DirectoryID
	p.VoterDirectoryID = m.Voter.DirectoryID
	p.LastOffsetEpoch = int32(m.LastEpoch)
	p.LastOffset = int64(m.EndOffset)
	p.PreVote = m.PreVote
	t := kmsg.NewVoteRequestTopic()
	t.Topic = ident.MetadataTopic
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrVoteRequest()
	req.ClusterID = clusterID(m.ClusterID)
	req.VoterID = int32(m.Voter.ID)
	req.Topics = append(req.Topics, t)
	return req
}

func beginQuorumEpochRequest(m *raft.BeginQuorumEpochRequest) *kmsg.BeginQuorumEpochRequest {
	p := kmsg.NewBeginQuorumEpochRequestTopicPartition()
	p.VoterDirectoryID = m.Voter.DirectoryID
	p.LeaderID = int32(m.Leader)
	p.LeaderEpoch = int32(m.Epoch)
	t := kmsg.NewBeginQuorumEpochRequestTopic()
	t.Topic = ident.MetadataTopic
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrBeginQuorumEpochRequest()
	req.ClusterID = clusterID(m.ClusterID)
	req.VoterID = int32(m.Voter.ID)
	req.Topics = append(req.Topics, t)
	for _, e := range m.Endpoints {
		le := kmsg.NewBeginQuorumEpochRequestLeaderEndpoint()
		le.Name, le.Host, le.Port = e.Name, e.Host, e.Port
		req.LeaderEndpoints = append(req.LeaderEndpoints, le)
	}
	return req
}

func endQuorumEpochRequest(m *raft.EndQuorumEpochRequest) *kmsg.EndQuorumEpochRequest {
	p := kmsg.NewEndQuorumEpochRequestTopicPartition()
	p.LeaderID = int32(m.Leader)
	p.LeaderEpoch = int32(m.Epoch)
	for _, s := range m.Successors {
		p.PreferredSuccessors = append(p.PreferredSuccessors, int32(s.ID))
		c := kmsg.NewEndQuorumEpochRequestTopicPartitionPreferredCandidate()
		c.CandidateID, c.CandidateDirectoryID = int32(s.ID), s.DirectoryID
		p.PreferredCandidates = append(p.PreferredCandidates, c)
	}
	t := kmsg.NewEndQuorumEpochRequestTopic()
	t.Topic = ident.MetadataTopic
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrEndQuorumEpochRequest()
	req.ClusterID = clusterID(m.ClusterID)
	req.Topics = append(req.Topics, t)
	return req
}

func fetchRequest(m *raft.FetchRequest) *kmsg.FetchRequest {
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch = int32(m.Epoch)
	p.FetchOffset = int64(m.Offset)
	p.LastFetchedEpoch = int32(m.LastEpoch)
	p.PartitionMaxBytes = m.MaxBytes
	p.ReplicaDirectoryID = m.Replica.DirectoryID
	p.HighWatermark = int64(m.HighWatermark)
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = ident.MetadataTopic, ident.MetadataTopicID
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.ClusterID = clusterID(m.ClusterID)
	req.ReplicaID, req.ReplicaState.ID = int32(m.Replica.ID), int32(m.Replica.ID)
	req.MaxBytes = m.MaxBytes
	req.MaxWaitMillis = int32(m.MaxWait.Milliseconds())
	req.Topics = append(req.Topics, t)
	return req
}

// FromRequest takes Kafka's request apart. When it can't mean our quorum, or is none of its requests, the
// message is nil and the response says why.
func FromRequest(req kmsg.Request) (raft.Message, kmsg.Response) {
	var m raft.Message
	switch req := req.(type) {
	case *kmsg.VoteRequest:
		m = fromVote(req)
	case *kmsg.BeginQuorumEpochRequest:
		m = fromBegin(req)
	case *kmsg.EndQuorumEpochRequest:
		m = fromEnd(req)
	case *kmsg.FetchRequest:
		m = fromFetch(req)
	case *kmsg.FetchSnapshotRequest:
		m = fromFetchSnapshot(req)
	case *kmsg.AddRaftVoterRequest:
		m = fromAddVoter(req)
	case *kmsg.RemoveRaftVoterRequest:
		m = fromRemoveVoter(req)
	case *kmsg.UpdateRaftVoterRequest:
		m = fromUpdateVoter(req)
	case *kmsg.ApiVersionsRequest:
		m = &raft.KRaftVersionsRequest{}
	default:
		return nil, Refuse(req, raft.UnsupportedVersion)
	}
	if m == nil {
		return nil, Refuse(req, raft.InvalidRequest)
	}
	return m, nil
}

func stringOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func key(id int32, directory [16]byte) raft.ReplicaKey {
	if id < 0 {
		return raft.Nobody
	}
	return raft.ReplicaKey{ID: ident.NodeID(id), DirectoryID: directory}
}

func fromVote(req *kmsg.VoteRequest) raft.Message {
	if len(req.Topics) != 1 || req.Topics[0].Topic != ident.MetadataTopic || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	p := &req.Topics[0].Partitions[0]
	return &raft.VoteRequest{
		ClusterID: stringOf(req.ClusterID),
		Voter:     key(req.VoterID, p.VoterDirectoryID),
		Candidate: raft.ReplicaKey{ID: ident.NodeID(p.CandidateID), DirectoryID: p.CandidateDirectoryID},
		Epoch:     ident.Epoch(p.CandidateEpoch),
		LastEpoch: ident.Epoch(p.LastOffsetEpoch),
		EndOffset: ident.Offset(p.LastOffset),
		PreVote:   p.PreVote,
	}
}

func fromBegin(req *kmsg.BeginQuorumEpochRequest) raft.Message {
	if len(req.Topics) != 1 || req.Topics[0].Topic != ident.MetadataTopic || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	p := &req.Topics[0].Partitions[0]
	m := &raft.BeginQuorumEpochRequest{
		ClusterID: stringOf(req.ClusterID),
		Voter:     key(req.VoterID, p.VoterDirectoryID),
		Leader:    ident.NodeID(p.LeaderID),
		Epoch:     ident.Epoch(p.LeaderEpoch),
	}
	for _, e := range req.LeaderEndpoints {
		m.Endpoints = append(m.Endpoints, raft.Endpoint{Name: e.Name, Host: e.Host, Port: e.Port})
	}
	return m
}

func fromEnd(req *kmsg.EndQuorumEpochRequest) raft.Message {
	if len(req.Topics) != 1 || req.Topics[0].Topic != ident.MetadataTopic || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	p := &req.Topics[0].Partitions[0]
	m := &raft.EndQuorumEpochRequest{
		ClusterID: stringOf(req.ClusterID),
		Leader:    ident.NodeID(p.LeaderID),
		Epoch:     ident.Epoch(p.LeaderEpoch),
	}
	for _, c := range p.PreferredCandidates {
		m.Successors = append(m.Successors, key(c.CandidateID, c.CandidateDirectoryID))
	}
	if req.Version == 0 {
		for _, id := range p.PreferredSuccessors {
			m.Successors = append(m.Successors, key(id, ident.ZeroUUID))
		}
	}
	return m
}

func fromFetch(req *kmsg.FetchRequest) raft.Message {
	if len(req.Topics) != 1 || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	t := &req.Topics[0]
	if req.Version >= 13 && t.TopicID != ident.MetadataTopicID || req.Version < 13 && t.Topic != ident.MetadataTopic {
		return nil
	}
	p := &t.Partitions[0]
	replica := req.ReplicaID
	if req.Version >= 15 {
		replica = req.ReplicaState.ID
	}
	m := &raft.FetchRequest{
		ClusterID:     stringOf(req.ClusterID),
		Replica:       key(replica, p.ReplicaDirectoryID),
		Epoch:         ident.Epoch(p.CurrentLeaderEpoch),
		Offset:        ident.Offset(p.FetchOffset),
		LastEpoch:     ident.Epoch(p.LastFetchedEpoch),
		HighWatermark: ident.Offset(p.HighWatermark),
		MaxBytes:      req.MaxBytes,
		MaxWait:       time.Duration(req.MaxWaitMillis) * time.Millisecond,
	}
	if p.PartitionMaxBytes > 0 {
		// Kafka's own raft client leaves it at 0.
		m.MaxBytes = min(m.MaxBytes, p.PartitionMaxBytes)
	}
	return m
}
