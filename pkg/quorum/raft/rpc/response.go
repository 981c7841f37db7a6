package rpc

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// Refuse makes a response to any request that the quorum could get, with nothing in it but an error.
func Refuse(req kmsg.Request, code raft.Code) kmsg.Response {
	resp := req.ResponseKind()
	switch r := resp.(type) {
	case *kmsg.VoteResponse:
		r.ErrorCode = int16(code)
	case *kmsg.BeginQuorumEpochResponse:
		r.ErrorCode = int16(code)
	case *kmsg.EndQuorumEpochResponse:
		r.ErrorCode = int16(code)
	case *kmsg.FetchResponse:
		r.ErrorCode = int16(code)
	case *kmsg.DescribeQuorumResponse:
		r.ErrorCode = int16(code)
	case *kmsg.FetchSnapshotResponse:
		r.ErrorCode = int16(code)
	case *kmsg.AddRaftVoterResponse:
		r.ErrorCode = int16(code)
	case *kmsg.RemoveRaftVoterResponse:
		r.ErrorCode = int16(code)
	case *kmsg.UpdateRaftVoterResponse:
		r.ErrorCode = int16(code)
	}
	return resp
}

// ToResponse makes Kafka's response to a request from the answer of the core. A wrong cluster id is told at the
// top, as Kafka does, everything else with the partition.
func ToResponse(req kmsg.Request, m raft.Message) (kmsg.Response, error) {
	resp := req.ResponseKind()
	switch m := m.(type) {
	case *raft.VoteResponse:
		if r, ok := resp.(*kmsg.VoteResponse); ok {
			fillVote(r, m)
			return r, nil
		}
	case *raft.BeginQuorumEpochResponse:
		if r, ok := resp.(*kmsg.BeginQuorumEpochResponse); ok {
			fillBegin(r, m)
			return r, nil
		}
	case *raft.EndQuorumEpochResponse:
		if r, ok := resp.(*kmsg.EndQuorumEpochResponse); ok {
			fillEnd(r, m)
			return r, nil
		}
	case *raft.FetchResponse:
		if r, ok := resp.(*kmsg.FetchResponse); ok {
			fillFetch(r, m)
			return r, nil
		}
	case *raft.FetchSnapshotResponse:
		if r, ok := resp.(*kmsg.FetchSnapshotResponse); ok {
			fillFetchSnapshot(r, m)
			return r, nil
		}
	case *raft.ChangeVotersResponse:
		if fillChangeVoters(resp, m) {
			return resp, nil
		}
	case *raft.KRaftVersionsResponse:
		if r, ok := resp.(*kmsg.ApiVersionsResponse); ok {
			fillAPIVersions(r, m)
			return r, nil
		}
	}
	return nil, fmt.Errorf("a %T does not answer a %T", m, req)
}

// endpoint is the one that Kafka's node endpoints have room for.
func endpoint(l raft.LeaderInfo) (raft.Endpoint, bool) {
	if l.Leader < 0 || len(l.Endpoints) == 0 {
		return raft.Endpoint{}, false
	}
	return l.Endpoints[0], true
}

func fillVote(r *kmsg.VoteResponse, m *raft.VoteResponse) {
	if m.Code == raft.InconsistentClusterID {
		r.ErrorCode = int16(m.Code)
		return
	}
	p := kmsg.NewVoteResponseTopicPartition()
	p.ErrorCode = int16(m.Code)
	p.LeaderID, p.LeaderEpoch = int32(m.Current.Leader), int32(m.Current.Epoch)
	p.VoteGranted = m.Granted
	t := kmsg.NewVoteResponseTopic()
	t.Topic = ident.MetadataTopic
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	if e, ok := endpoint(m.Current); ok && r.Version >= 1 {
		n := kmsg.NewVoteResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port = int32(m.Current.Leader), e.Host, e.Port
		r.NodeEndpoints = append(r.NodeEndpoints, n)
	}
}

func fillBegin(r *kmsg.BeginQuorumEpochResponse, m *raft.BeginQuorumEpochResponse) {
	if m.Code == raft.InconsistentClusterID {
		r.ErrorCode = int16(m.Code)
		return
	}
	p := kmsg.NewBeginQuorumEpochResponseTopicPartition()
	p.ErrorCode = int16(m.Code)
	p.LeaderID, p.LeaderEpoch = int32(m.Current.Leader), int32(m.Current.Epoch)
	t := kmsg.NewBeginQuorumEpochResponseTopic()
	t.Topic = ident.MetadataTopic
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	if e, ok := endpoint(m.Current); ok && r.Version >= 1 {
		n := kmsg.NewBeginQuorumEpochResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port = int32(m.Current.Leader), e.Host, e.Port
		r.NodeEndpoints = append(r.NodeEndpoints, n)
	}
}

func fillEnd(r *kmsg.EndQuorumEpochResponse, m *raft.EndQuorumEpochResponse) {
	if m.Code == raft.InconsistentClusterID {
		r.ErrorCode = int16(m.Code)
		return
	}
	p := kmsg.NewEndQuorumEpochResponseTopicPartition()
	p.ErrorCode = int16(m.Code)
	p.LeaderID, p.LeaderEpoch = int32(m.Current.Leader), int32(m.Current.Epoch)
	t := kmsg.NewEndQuorumEpochResponseTopic()
	t.Topic = ident.MetadataTopic
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	if e, ok := endpoint(m.Current); ok && r.Version >= 1 {
		n := kmsg.NewEndQuorumEpochResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port = int32(m.Current.Leader), e.Host, e.Port
		r.NodeEndpoints = append(r.NodeEndpoints, n)
	}
}

func fillFetch(r *kmsg.FetchResponse, m *raft.FetchResponse) {
	if m.Code == raft.InconsistentClusterID {
		r.ErrorCode = int16(m.Code)
		return
	}
	p := kmsg.NewFetchResponseTopicPartition()
	p.ErrorCode = int16(m.Code)
	p.HighWatermark = int64(m.HighWatermark)
	p.LogStartOffset = int64(m.LogStartOffset)
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = int32(m.Current.Leader), int32(m.Current.Epoch)
	if d := m.Diverging; d != nil {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = int32(d.Epoch), int64(d.End)
	}
	if s := m.Snapshot; s != nil {
		p.SnapshotID.Epoch, p.SnapshotID.EndOffset = int32(s.Epoch), int64(s.End)
	}
	p.RecordBatches = m.Records
	if p.RecordBatches == nil {
		p.RecordBatches = []byte{}
	}
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.TopicID = ident.MetadataTopic, ident.MetadataTopicID
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	if e, ok := endpoint(m.Current); ok && r.Version >= 16 {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = int32(m.Current.Leader), e.Host, int32(e.Port)
		r.Brokers = append(r.Brokers, b)
	}
}

// FromResponse takes Kafka's response apart. An error means that it says nothing: it is for another partition,
// or the peer does not know the request (raft.ErrUnsupportedVersion).
func FromResponse(resp kmsg.Response) (raft.Message, error) {
	switch r := resp.(type) {
	case *kmsg.VoteResponse:
		m := &raft.VoteResponse{Code: raft.Code(r.ErrorCode), Current: nothing}
		if r.ErrorCode != 0 {
			return m, unsupported(r.ErrorCode)
		}
		if len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && r.Topics[0].Topic == ident.MetadataTopic {
			p := &r.Topics[0].Partitions[0]
			m.Code, m.Granted, m.Current = raft.Code(p.ErrorCode), p.VoteGranted, current(p.LeaderID, p.LeaderEpoch)
			for _, e := range r.NodeEndpoints {
				m.Current = withEndpoint(m.Current, e.NodeID, e.Host, int32(e.Port))
			}
			return m, nil
		}
	case *kmsg.BeginQuorumEpochResponse:
		m := &raft.BeginQuorumEpochResponse{Code: raft.Code(r.ErrorCode), Current: nothing}
		if r.ErrorCode != 0 {
			return m, unsupported(r.ErrorCode)
		}
		if len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && r.Topics[0].Topic == ident.MetadataTopic {
			p := &r.Topics[0].Partitions[0]
			m.Code, m.Current = raft.Code(p.ErrorCode), current(p.LeaderID, p.LeaderEpoch)
			for _, e := range r.NodeEndpoints {
				m.Current = withEndpoint(m.Current, e.NodeID, e.Host, int32(e.Port))
			}
			return m, nil
		}
	case *kmsg.EndQuorumEpochResponse:
		m := &raft.EndQuorumEpochResponse{Code: raft.Code(r.ErrorCode), Current: nothing}
		if r.ErrorCode != 0 {
			return m, unsupported(r.ErrorCode)
		}
		if len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 && r.Topics[0].Topic == ident.MetadataTopic {
			p := &r.Topics[0].Partitions[0]
			m.Code, m.Current = raft.Code(p.ErrorCode), current(p.LeaderID, p.LeaderEpoch)
			for _, e := range r.NodeEndpoints {
				m.Current = withEndpoint(m.Current, e.NodeID, e.Host, int32(e.Port))
			}
			return m, nil
		}
	case *kmsg.FetchResponse:
		return fromFetchResponse(r)
	case *kmsg.FetchSnapshotResponse:
		return fromFetchSnapshotResponse(r)
	case *kmsg.AddRaftVoterResponse, *kmsg.RemoveRaftVoterResponse, *kmsg.UpdateRaftVoterResponse:
		return fromChangeVoters(r)
	case *kmsg.ApiVersionsResponse:
		return fromAPIVersions(r), nil
	}
	return nil, fmt.Errorf("a %T does not answer for %s-0", resp, ident.MetadataTopic)
}

func fromFetchResponse(r *kmsg.FetchResponse) (raft.Message, error) {
	m := &raft.FetchResponse{Code: raft.Code(r.ErrorCode), Current: nothing, HighWatermark: ident.UnknownOffset}
	if r.ErrorCode != 0 {
		return m, unsupported(r.ErrorCode)
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("a fetch response does not answer for %s-0", ident.MetadataTopic)
	}
	p := &r.Topics[0].Partitions[0]
	m.Code = raft.Code(p.ErrorCode)
	m.Current = current(p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch)
	for _, e := range r.Brokers {
		m.Current = withEndpoint(m.Current, e.NodeID, e.Host, e.Port)
	}
	m.HighWatermark, m.LogStartOffset = ident.Offset(p.HighWatermark), ident.Offset(p.LogStartOffset)
	switch {
	case p.DivergingEpoch.Epoch >= 0:
		m.Diverging = &raft.EpochEnd{Epoch: ident.Epoch(p.DivergingEpoch.Epoch), End: ident.Offset(p.DivergingEpoch.EndOffset)}
	case p.SnapshotID.Epoch >= 0:
		m.Snapshot = &raft.SnapshotID{Epoch: ident.Epoch(p.SnapshotID.Epoch), End: ident.Offset(p.SnapshotID.EndOffset)}
	default:
		m.Records = p.RecordBatches
	}
	return m, nil
}

// nothing is what a response without partition says of the leadership.
var nothing = raft.LeaderInfo{Leader: ident.NoNode, Epoch: ident.UnknownEpoch}

func unsupported(code int16) error {
	if raft.Code(code) == raft.UnsupportedVersion {
		return raft.ErrUnsupportedVersion
	}
	return nil
}

func current(leader, epoch int32) raft.LeaderInfo {
	return raft.LeaderInfo{Leader: max(ident.NodeID(leader), ident.NoNode), Epoch: ident.Epoch(epoch)}
}

func withEndpoint(l raft.LeaderInfo, id int32, host string, port int32) raft.LeaderInfo {
	if l.Leader >= 0 && ident.NodeID(id) == l.Leader && port > 0 && port <= 65535 {
		l.Endpoints = append(l.Endpoints, raft.Endpoint{Host: host, Port: uint16(port)})
	}
	return l
}
