package raft

import (
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// parkedFetch waits for records or a newer high watermark.
type parkedFetch struct {
	token    uint64
	request  *FetchRequest
	deadline ident.Instant
}

// maxParked bounds how many fetches wait; one more gets an empty answer at once.
const maxParked = 4096

// told is the high watermark that this node, as leader, tells others: none until its epoch has one. What it knew as a
// follower may be less than its predecessor has told them, and Kafka's followers end when it goes back.
func (n *Node) told() ident.Offset {
	if n.role != Leader || !n.lead.begun {
		return ident.UnknownOffset
	}
	return n.highWatermark
}

func (n *Node) fetchResponse() *FetchResponse {
	return &FetchResponse{
		Current:        n.leaderInfo(),
		HighWatermark:  n.told(),
		LogStartOffset: n.log.StartOffset(),
	}
}

func (n *Node) fetchError(code Code) *FetchResponse {
	r := n.fetchResponse()
	r.Code, r.HighWatermark = code, ident.UnknownOffset // of any role
	return r
}

// onFetch is the leader's side of replication. Everybody else says who leads.
func (n *Node) onFetch(token uint64, m *FetchRequest) {
	switch {
	case n.clusterMismatch(m.ClusterID):
		n.reply(token, n.fetchError(InconsistentClusterID))
	case n.role != Leader:
		n.reply(token, n.fetchError(NotLeaderOrFollower))
	case m.Epoch < n.vote.Epoch:
		n.reply(token, n.fetchError(FencedLeaderEpoch))
	case m.Epoch > n.vote.Epoch:
		n.reply(token, n.fetchError(UnknownLeaderEpoch))
	case m.Offset < 0 || m.LastEpoch < 0 || m.LastEpoch > m.Epoch || m.MaxBytes < 0 || m.MaxWait < 0 || m.Replica.ID == n.cfg.Self.ID:
		n.reply(token, n.fetchError(InvalidRequest))
	default:
		n.serveFetch(token, m)
	}
}

func (n *Node) serveFetch(token uint64, m *FetchRequest) {
	// Whatever its position, it is in contact with its leader (KAFKA-15489; a diverged follower as well).
	r := n.heardFrom(m.Replica)
	if r != nil {
		n.dropParkedOf(m.Replica)
	}
	if n.needsSnapshot(m.Offset, m.LastEpoch) {
		id, ok := n.log.WholeSnapshot()
		if !ok { // the disk has damaged it; another one is being taken
			n.reply(token, n.fetchError(OffsetOutOfRange))
			return
		}
		resp := n.fetchResponse()
		resp.Snapshot = &id
		n.reply(token, resp)
		return
	}
	if m.Offset < n.log.StartOffset() {
		n.reply(token, n.fetchError(OffsetOutOfRange)) // no node trims its log without a snapshot
		return
	}
	if d := n.divergence(m.Offset, m.LastEpoch); d != nil {
		resp := n.fetchResponse()
		resp.Diverging = d
		n.reply(token, resp)
		return
	}
	if r != nil {
		n.fetchedUpTo(r, m.Offset)
		if n.role != Leader { // it has committed that it is no voter any more
			n.reply(token, n.fetchError(NotLeaderOrFollower))
			return
		}
	}
	if n.answerFetch(token, m) {
		return
	}
	if m.MaxWait <= 0 || len(n.parked) >= maxParked {
		n.reply(token, n.fetchResponse())
		return
	}
	n.parked = append(n.parked, parkedFetch{token, m, n.now.Add(min(m.MaxWait, n.cfg.ParkMax))})
}

// divergence compares a fetcher's position with the log and says how far the two can agree; nil when the
// fetcher's log is a prefix.
func (n *Node) divergence(offset ident.Offset, lastEpoch ident.Epoch) *EpochEnd {
	if offset == 0 && n.log.StartOffset() == 0 || n.cfg.Mutant == MutateIgnoreDivergence {
		return nil
	}
	epoch, end, ok := n.epochEnd(lastEpoch)
	if !ok {
		epoch, end = n.lastEpoch(), n.log.EndOffset()
	}
	if epoch == lastEpoch && end >= offset {
		return nil
	}
	return &EpochEnd{Epoch: epoch, End: end}
}

// answerFetch answers a fetch of a valid position if there is something to say.
func (n *Node) answerFetch(token uint64, m *FetchRequest) bool {
	switch {
	case m.Offset < n.log.EndOffset():
		n.out.Reads = append(n.out.Reads, Read{
			Token:    token,
			Replica:  m.Replica,
			Offset:   m.Offset,
			MaxBytes: min(m.MaxBytes, n.cfg.FetchMaxBytes),
			Response: n.fetchResponse(),
		})
	case m.HighWatermark < n.told():
		n.reply(token, n.fetchResponse())
	default:
		return false
	}
	return true
}

// wakeParked answers those for whom there is news (KIP-1166: also when only the high watermark moved). Their
// positions stay valid while this node leads: its log only grows.
func (n *Node) wakeParked() {
	n.parked = slices.DeleteFunc(n.parked, func(p parkedFetch) bool { return n.answerFetch(p.token, p.request) })
}

func (n *Node) expireParked() {
	n.parked = slices.DeleteFunc(n.parked, func(p parkedFetch) bool {
		if n.now < p.deadline {
			return false
		}
		n.reply(p.token, n.fetchResponse())
		return true
	})
}

// dropParkedOf ends the wait of an earlier fetch of a replica that fetches anew: it lost the connection.
func (n *Node) dropParkedOf(k ReplicaKey) {
	n.parked = slices.DeleteFunc(n.parked, func(p parkedFetch) bool {
		if p.request.Replica != k {
			return false
		}
		n.reply(p.token, n.fetchResponse())
		return true
	})
}
