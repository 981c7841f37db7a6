package raft

import (
	"fmt"
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Role is the state that a node is in. An observer is Unattached or a Follower; IsVoter tells it apart.
type Role int8

// The states of KRaft (KIP-595, KIP-996).
const (
	// Unattached: in an epoch whose leader is not known; may have voted in it.
	Unattached Role = iota
	// Prospective: asks whether it would be elected, and disturbs nobody by it (pre-vote).
	Prospective
	// Candidate: voted for itself in a new epoch and asks for votes.
	Candidate
	// Leader of the epoch.
	Leader
	// Follower of a known leader.
	Follower
	// Resigned: led this epoch; neither votes nor leads in it again, since what it appended may be lost
	// (KAFKA-10661).
	Resigned
)

var roleNames = [...]string{"Unattached", "Prospective", "Candidate", "Leader", "Follower", "Resigned"}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("Role(%d)", int8(r))
}

// transition goes to a role and a vote state. The state is saved when it changed; requests under way are
// forgotten; a leader that leaves tells those who wait for records who leads now.
func (n *Node) transition(role Role, v VoteState) {
	if v.Epoch < n.vote.Epoch {
		n.fatal("epoch would go back to %d", v.Epoch)
		return
	}
	if v.Leader != n.vote.Leader || v.Epoch != n.vote.Epoch {
		n.leaderEndpoints, n.fetch.detour = nil, nil
	}
	if v.Epoch > n.vote.Epoch {
		n.leaderless++
	}
	n.role = role
	if v != n.vote {
		n.vote = v
		saved := v
		n.out.SaveVote = &saved
	}
	n.calls = n.calls[:0]
	n.trouble = nil
	n.fetch.correlation = 0
	n.fetch.retryAt = 0
	n.update = call{}
	if role != Leader {
		n.out.AppendVoters, n.out.Leading = nil, nil // of this very step
		n.endChange(NotLeaderOrFollower, "the leadership was lost before the change of voters was committed")
		n.lead = nil
		parked := n.parked
		n.parked = nil
		for _, p := range parked {
			n.reply(p.token, n.fetchError(NotLeaderOrFollower))
		}
	}
}

// becomeUnattached enters an epoch whose leader is not known. The time left to wait is taken along: else a
// node that is always told of newer epochs would never stand.
func (n *Node) becomeUnattached(epoch ident.Epoch) {
	deadline := n.electionDeadline
	switch n.role {
	case Follower:
		deadline = n.fetchDeadline
	case Leader:
		deadline = n.now.Add(n.electionTimeout())
	}
	n.transition(Unattached, VoteState{Epoch: epoch, Leader: ident.NoNode, Voted: Nobody})
	n.electionDeadline = deadline
}

// becomeFollower follows a leader in an epoch, keeping a vote already given in it.
func (n *Node) becomeFollower(epoch ident.Epoch, leader ident.NodeID, endpoints []Endpoint) {
	v := VoteState{Epoch: epoch, Leader: leader, Voted: Nobody}
	if epoch == n.vote.Epoch {
		v.Voted = n.vote.Voted
	}
	n.transition(Follower, v)
	if len(endpoints) > 0 {
		n.leaderEndpoints = endpoints
	}
	n.fetchedFromLeader, n.leaderResigned = false, false
	n.fetchDeadline = n.now.Add(n.fetchTimeout())
}

// becomeProspective asks the others whether they would vote for this node. Nothing is saved.
func (n *Node) becomeProspective() {
	if n.cfg.Mutant == MutateSkipPreVote {
		n.becomeCandidate(n.vote.Epoch + 1)
		return
	}
	n.transition(Prospective, n.vote)
	n.electionDeadline = n.now.Add(n.electionTimeout())
	n.openCalls()
	n.tally()
}

// becomeCandidate stands in an epoch: a new one, or, after a restart, the one it already stood in.
func (n *Node) becomeCandidate(epoch ident.Epoch) {
	n.transition(Candidate, VoteState{Epoch: epoch, Leader: ident.NoNode, Voted: n.cfg.Self})
	n.electionDeadline = n.now.Add(n.electionTimeout())
	n.openCalls()
	n.tally()
}

// becomeLeader starts the epoch with a control batch, beyond which the high watermark has to come before
// anything counts as committed.
func (n *Node) becomeLeader() {
	granting := []ReplicaKey{n.cfg.Self}
	for _, c := range n.calls {
		if c.result == granted {
			granting = append(granting, c.voter)
		}
	}
	n.startLeading(granting)
}

func (n *Node) startLeading(granting []ReplicaKey) {
	n.transition(Leader, VoteState{Epoch: n.vote.Epoch, Leader: n.cfg.Self.ID, Voted: n.vote.Voted})
	n.leaderEndpoints = n.cfg.Endpoints
	n.lead = &leadership{epochStart: n.log.EndOffset()}
	n.syncReplicas()
	n.openCalls()
	start := &LeaderStart{
		Epoch:    n.vote.Epoch,
		Leader:   n.cfg.Self.ID,
		Voters:   n.Voters().Keys(),
		Granting: granting,
	}
	if n.voters.latest().Offset == BootstrapOffset {
		start.Bootstrap = n.Voters()
	}
	n.out.LeaderStart = start
}

// becomeResigned gives the epoch up and tells the voters, best successor first.
func (n *Node) becomeResigned(epoch ident.Epoch, successors []ReplicaKey) {
	v := VoteState{Epoch: epoch, Leader: n.cfg.Self.ID, Voted: Nobody}
	if epoch == n.vote.Epoch {
		v.Voted = n.vote.Voted
	}
	n.transition(Resigned, v)
	n.electionDeadline = n.now.Add(n.electionTimeout())
	n.successors = successors
	n.openCalls()
}

// learn takes what a message says of the leadership: a newer epoch, or the leader of this one.
func (n *Node) learn(info LeaderInfo) {
	switch {
	case info.Epoch < n.vote.Epoch:
	case info.Epoch > n.vote.Epoch && info.Leader == n.cfg.Self.ID:
		// Somebody knows us as leader of an epoch that we don't remember: our quorum-state went back in time.
		// Whatever we did in that epoch, we must not do it again.
		n.becomeResigned(info.Epoch, nil)
	case info.Epoch > n.vote.Epoch && info.Leader < 0:
		n.becomeUnattached(info.Epoch)
	case info.Epoch > n.vote.Epoch:
		n.becomeFollower(info.Epoch, info.Leader, info.Endpoints)
	case info.Leader < 0 || info.Leader == n.cfg.Self.ID:
	case n.role == Unattached || n.role == Candidate || (n.role == Prospective && n.vote.Leader < 0):
		if n.vote.Leader < 0 || n.vote.Leader == info.Leader {
			n.becomeFollower(info.Epoch, info.Leader, info.Endpoints)
		}
	case n.role == Follower && n.vote.Leader == info.Leader && len(info.Endpoints) > 0:
		if !slices.Equal(n.leaderEndpoints, info.Endpoints) {
			n.leaderEndpoints, n.fetch.detour = info.Endpoints, nil
		}
	}
}
