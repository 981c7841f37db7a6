package raft

import "github.com/highwater-io/highwater/pkg/ident"

// ReplicaState is one line of DescribeQuorum.
type ReplicaState struct {
	Key ReplicaKey
	// LogEndOffset is UnknownOffset before the first fetch.
	LogEndOffset ident.Offset
	// Fetched says that there was a fetch, at LastFetch; CaughtUp that it once had all, last at LastCaughtUp.
	Fetched      bool
	LastFetch    ident.Instant
	CaughtUp     bool
	LastCaughtUp ident.Instant
}

// Description is what the leader knows of the quorum.
type Description struct {
	Leader        ident.NodeID
	Epoch         ident.Epoch
	HighWatermark ident.Offset
	Voters        []ReplicaState
	// Observers fetched within ObserverTimeout.
	Observers []ReplicaState
}

// Describe returns the state of the quorum as of now; false when this node does not lead.
func (n *Node) Describe(now ident.Instant) (Description, bool) {
	d := Description{Leader: n.vote.Leader, Epoch: n.vote.Epoch, HighWatermark: n.told()}
	if n.role != Leader {
		d.Leader = n.leaderInfo().Leader
		return d, false
	}
	for _, v := range n.Voters() {
		if v.Key == n.cfg.Self {
			d.Voters = append(d.Voters, ReplicaState{Key: v.Key, LogEndOffset: n.log.EndOffset(), Fetched: true, LastFetch: now, CaughtUp: true, LastCaughtUp: now})
		} else if r := n.lead.find(v.Key); r != nil {
			d.Voters = append(d.Voters, r.state())
		}
	}
	for i := range n.lead.replicas {
		r := &n.lead.replicas[i]
		if !n.Voters().Has(r.key) && now < r.contact.Add(n.cfg.ObserverTimeout) {
			d.Observers = append(d.Observers, r.state())
		}
	}
	return d, true
}

func (r *replica) state() ReplicaState {
	return ReplicaState{
		Key: r.key, LogEndOffset: r.end,
		Fetched: r.fetched, LastFetch: r.lastFetch,
		CaughtUp: r.everCaughtUp, LastCaughtUp: r.caughtUp,
	}
}
