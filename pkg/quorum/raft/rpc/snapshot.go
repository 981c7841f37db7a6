package rpc

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

func fetchSnapshotRequest(m *raft.FetchSnapshotRequest) *kmsg.FetchSnapshotRequest {
	p := kmsg.NewFetchSnapshotRequestTopicPartition()
	p.CurrentLeaderEpoch = int32(m.Epoch)
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = int64(m.Snapshot.End), int32(m.Snapshot.Epoch)
	p.Position = m.Position
	p.ReplicaDirectoryID = m.Replica.DirectoryID
	t := kmsg.NewFetchSnapshotRequestTopic()
	t.Topic = ident.MetadataTopic
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrFetchSnapshotRequest()
	req.ClusterID = clusterID(m.ClusterID)
	req.ReplicaID = int32(m.Replica.ID)
	req.MaxBytes = m.MaxBytes
	req.Topics = append(req.Topics, t)
	return req
}

func fromFetchSnapshot(req *kmsg.FetchSnapshotRequest) raft.Message {
	if len(req.Topics) != 1 || req.Topics[0].Topic != ident.MetadataTopic || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 0 {
		return nil
	}
	p := &req.Topics[0].Partitions[0]
	return &raft.FetchSnapshotRequest{
		ClusterID: stringOf(req.ClusterID),
		Replica:   key(req.ReplicaID, p.ReplicaDirectoryID),
		Epoch:     ident.Epoch(p.CurrentLeaderEpoch),
		Snapshot:  raft.SnapshotID{End: ident.Offset(p.SnapshotID.EndOffset), Epoch: ident.Epoch(p.SnapshotID.Epoch)},
		Position:  p.Position,
		MaxBytes:  req.MaxBytes,
	}
}

func fillFetchSnapshot(r *kmsg.FetchSnapshotResponse, m *raft.FetchSnapshotResponse) {
	if m.Code == raft.InconsistentClusterID {
		r.ErrorCode = int16(m.Code)
		return
	}
	p := kmsg.NewFetchSnapshotResponseTopicPartition()
	p.ErrorCode = int16(m.Code)
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = int64(m.Snapshot.End), int32(m.Snapshot.Epoch)
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = int32(m.Current.Leader), int32(m.Current.Epoch)
	p.Size, p.Position = m.Size, m.Position
	p.Bytes = m.Bytes
	if p.Bytes == nil {
		p.Bytes = []byte{}
	}
	t := kmsg.NewFetchSnapshotResponseTopic()
	t.Topic = ident.MetadataTopic
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	if e, ok := endpoint(m.Current); ok && r.Version >= 1 {
		n := kmsg.NewFetchSnapshotResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port = int32(m.Current.Leader), e.Host, e.Port
		r.NodeEndpoints = append(r.NodeEndpoints, n)
	}
}

func fromFetchSnapshotResponse(r *kmsg.FetchSnapshotResponse) (raft.Message, error) {
	m := &raft.FetchSnapshotResponse{Code: raft.Code(r.ErrorCode), Current: nothing}
	if r.ErrorCode != 0 {
		return m, unsupported(r.ErrorCode)
	}
	if len(r.Topics) != 1 || r.Topics[0].Topic != ident.MetadataTopic || len(r.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("a snapshot response does not answer for %s-0", ident.MetadataTopic)
	}
	p := &r.Topics[0].Partitions[0]
	m.Code = raft.Code(p.ErrorCode)
	m.Current = current(p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch)
	for _, e := range r.NodeEndpoints {
		m.Current = withEndpoint(m.Current, e.NodeID, e.Host, int32(e.Port))
	}
	m.Snapshot = raft.SnapshotID{End: ident.Offset(p.SnapshotID.EndOffset), Epoch: ident.Epoch(p.SnapshotID.Epoch)}
	m.Size, m.Position, m.Bytes = p.Size, p.Position, p.Bytes
	return m, nil
}
