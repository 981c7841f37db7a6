package raft

import (
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// target is whom to fetch from and where it is reached.
type target struct {
	id        ident.NodeID
	endpoints []Endpoint
	// other: this is not the leader where it is known to be.
	other bool
}

// fetchTarget is the leader, or, while none is known or it can't be reached, each of the other targets in turn.
func (n *Node) fetchTarget() (target, bool) {
	leader := target{id: n.vote.Leader}
	if n.role == Follower {
		leader.endpoints = n.Endpoints(leader.id)
		if !n.fetch.askOther {
			return leader, true
		}
	}
	others := n.otherTargets(leader)
	if len(others) == 0 {
		return leader, n.role == Follower
	}
	return others[n.fetch.rotation%len(others)], true
}

// otherTargets are the voters at the addresses that the log has of them, and those that the configuration names at
// theirs. The leader is among them where that is another address than the one where it is not reached: what it says
// of itself may not be true from here, and what the log says may be old (KAFKA-17030, KAFKA-19354, KAFKA-20514). A
// voter that follows asks nobody but its leader: it has elections to find another one.
func (n *Node) otherTargets(leader target) []target {
	var others []target
	for _, known := range []VoterSet{n.Voters(), n.cfg.Bootstrap} {
		for _, v := range known {
			same := func(t target) bool { return t.id == v.Key.ID && slices.Equal(t.endpoints, v.Endpoints) }
			switch {
			case v.Key.ID == n.cfg.Self.ID || len(v.Endpoints) == 0 || slices.ContainsFunc(others, same):
			case n.role == Follower && (same(leader) || n.IsVoter() && v.Key.ID != leader.id):
			default:
				others = append(others, target{v.Key.ID, v.Endpoints, true})
			}
		}
	}
	return others
}

// Endpoints is where to reach a node: the leader where it was reached or else at what it last said, a voter at what
// the voter set says.
func (n *Node) Endpoints(id ident.NodeID) []Endpoint {
	if n.role == Follower && id == n.vote.Leader && len(n.fetch.detour) > 0 {
		return n.fetch.detour
	}
	return n.endpointsOf(id)
}

// endpointsOf returns what the leader said of itself, else what the voter set says: it is what others are told.
func (n *Node) endpointsOf(id ident.NodeID) []Endpoint {
	if id == n.vote.Leader && len(n.leaderEndpoints) > 0 {
		return n.leaderEndpoints
	}
	v, _ := n.Voters().Find(id)
	return v.Endpoints
}
