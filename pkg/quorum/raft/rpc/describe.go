package rpc

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// DescribeQuorum answers a DescribeQuorum request (KIP-595, KIP-853). The description is that of a leader,
// made at the instant now, which is the wall time wall; leads is false for a node that only says who leads.
func DescribeQuorum(req *kmsg.DescribeQuorumRequest, d raft.Description, leads bool, voters raft.VoterSet, now ident.Instant, wall time.Time) *kmsg.DescribeQuorumResponse {
	resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	if len(req.Topics) != 1 || req.Topics[0].Topic != ident.MetadataTopic || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 0 {
		resp.ErrorCode = int16(raft.InvalidRequest)
		return resp
	}
	p := kmsg.NewDescribeQuorumResponseTopicPartition()
	p.LeaderID, p.LeaderEpoch = int32(d.Leader), int32(d.Epoch)
	p.HighWatermark = int64(d.HighWatermark)
	if !leads {
		p.ErrorCode = int16(raft.NotLeaderOrFollower)
	}
	at := func(known bool, t ident.Instant) int64 {
		if !known {
			return -1
		}
		return wall.Add(t.Sub(now)).UnixMilli()
	}
	states := func(rs []raft.ReplicaState) []kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
		out := make([]kmsg.DescribeQuorumResponseTopicPartitionReplicaState, 0, len(rs))
		for _, r := range rs {
			s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
			s.ReplicaID, s.ReplicaDirectoryID = int32(r.Key.ID), r.Key.DirectoryID
			s.LogEndOffset = int64(r.LogEndOffset)
			s.LastFetchTimestamp = at(r.Fetched, r.LastFetch)
			s.LastCaughtUpTimestamp = at(r.CaughtUp, r.LastCaughtUp)
			out = append(out, s)
		}
		return out
	}
	p.CurrentVoters, p.Observers = states(d.Voters), states(d.Observers)
	t := kmsg.NewDescribeQuorumResponseTopic()
	t.Topic = ident.MetadataTopic
	t.Partitions = append(t.Partitions, p)
	resp.Topics = append(resp.Topics, t)
	if leads {
		for _, v := range voters {
			n := kmsg.NewDescribeQuorumResponseNode()
			n.NodeID = int32(v.Key.ID)
			for _, e := range v.Endpoints {
				l := kmsg.NewDescribeQuorumResponseNodeListener()
				l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
				n.Listeners = append(n.Listeners, l)
			}
			resp.Nodes = append(resp.Nodes, n)
		}
	}
	return resp
}
