package raft

import (
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// clusterMismatch: a request that names a cluster must name ours.
func (n *Node) clusterMismatch(id string) bool { return id != "" && id != n.cfg.ClusterID }

// notForUs: a request that names the voter it is meant for must name us (KIP-853).
func (n *Node) notForUs(k ReplicaKey) bool {
	return k.ID >= 0 && (k.ID != n.cfg.Self.ID || (!k.DirectoryID.IsZero() && k.DirectoryID != n.cfg.Self.DirectoryID))
}

// onVote answers a vote or pre-vote. A vote that is given is in Effects.SaveVote, and so on disk before the
// answer leaves.
func (n *Node) onVote(m *VoteRequest) Message {
	code, yes := n.considerVote(m)
	return &VoteResponse{Code: code, Granted: yes, Current: n.leaderInfo()}
}

func (n *Node) considerVote(m *VoteRequest) (Code, bool) {
	switch {
	case n.clusterMismatch(m.ClusterID):
		return InconsistentClusterID, false
	case m.Candidate.ID < 0 || m.Candidate.ID == n.cfg.Self.ID || m.EndOffset < 0 || m.LastEpoch < 0:
		return InvalidRequest, false
	case m.PreVote && m.LastEpoch > m.Epoch, !m.PreVote && m.LastEpoch >= m.Epoch:
		return InvalidRequest, false
	case m.Epoch < n.vote.Epoch:
		return FencedLeaderEpoch, false
	}
	if m.Epoch > n.vote.Epoch {
		n.becomeUnattached(m.Epoch)
	}
	if n.notForUs(m.Voter) {
		return InvalidVoterKey, false
	}
	if m.PreVote {
		return None, n.wouldVote(m)
	}
	return None, n.grantVote(m)
}

// wouldVote is the answer to a pre-vote; it changes nothing.
func (n *Node) wouldVote(m *VoteRequest) bool {
	switch n.role {
	case Leader:
		return false
	case Follower:
		// One that hears its leader keeps it.
		if n.fetchedFromLeader && !n.leaderResigned {
			return false
		}
	}
	return n.upToDate(m)
}

// grantVote gives the vote of this epoch, once.
func (n *Node) grantVote(m *VoteRequest) bool {
	if n.role != Unattached && n.role != Prospective {
		return false
	}
	switch {
	case n.vote.Voted == m.Candidate:
		return true
	case n.vote.Voted != Nobody && n.cfg.Mutant != MutateVoteTwice:
		return false
	case n.vote.Leader >= 0:
		return false
	case !n.upToDate(m):
		return false
	}
	n.transition(Unattached, VoteState{Epoch: m.Epoch, Leader: ident.NoNode, Voted: m.Candidate})
	n.electionDeadline = n.now.Add(n.electionTimeout())
	return true
}

// upToDate: the candidate's log goes at least as far as ours, so that it holds all that is committed.
func (n *Node) upToDate(m *VoteRequest) bool {
	if n.cfg.Mutant == MutateVoteAnyLog {
		return true
	}
	if last := n.lastEpoch(); m.LastEpoch != last {
		return m.LastEpoch > last
	}
	return m.EndOffset >= n.log.EndOffset()
}

func (n *Node) voteRequest(voter ReplicaKey) Message {
	return &VoteRequest{
		ClusterID: n.cfg.ClusterID,
		Voter:     voter,
		Candidate: n.cfg.Self,
		Epoch:     n.vote.Epoch,
		LastEpoch: n.lastEpoch(),
		EndOffset: n.log.EndOffset(),
		PreVote:   n.role == Prospective,
	}
}

func (n *Node) onVoteResponse(c *call, m *VoteResponse) {
	role, epoch := n.role, n.vote.Epoch
	n.learn(m.Current)
	if n.role != role || n.vote.Epoch != epoch || m.Code != None {
		return
	}
	if m.Granted {
		c.result = granted
	} else {
		c.result = refused
	}
	n.tally()
}

// tally counts the votes. A candidate that lost waits its time-out out (KAFKA-18345), one that lost a
// pre-vote, as soon as those who are left can't make it a majority, goes back to where it came from at once.
func (n *Node) tally() {
	yes, no := 1, 0
	for _, c := range n.calls {
		switch c.result {
		case granted:
			yes++
		case refused:
			no++
		}
	}
	majority := n.Voters().Majority()
	switch {
	case n.role == Prospective && yes >= majority:
		n.becomeCandidate(n.vote.Epoch + 1)
	case n.role == Prospective && no > len(n.Voters())-majority:
		n.preVoteLost()
	case n.role == Candidate && yes >= majority:
		n.becomeLeader()
	}
}

func (n *Node) preVoteLost() {
	if n.vote.Leader >= 0 && n.vote.Leader != n.cfg.Self.ID {
		n.becomeFollower(n.vote.Epoch, n.vote.Leader, n.leaderEndpoints)
		return
	}
	n.transition(Unattached, n.vote)
	n.electionDeadline = n.now.Add(n.electionTimeout())
}

func (n *Node) beginQuorumEpochRequest(voter ReplicaKey) Message {
	return &BeginQuorumEpochRequest{
		ClusterID: n.cfg.ClusterID,
		Voter:     voter,
		Leader:    n.cfg.Self.ID,
		Epoch:     n.vote.Epoch,
		Endpoints: n.cfg.Endpoints,
	}
}

// onBeginQuorumEpoch hears from a leader. It is contact with it, as much as an answered fetch.
func (n *Node) onBeginQuorumEpoch(m *BeginQuorumEpochRequest) Message {
	return &BeginQuorumEpochResponse{Code: n.considerLeader(m), Current: n.leaderInfo()}
}

func (n *Node) considerLeader(m *BeginQuorumEpochRequest) Code {
	switch {
	case n.clusterMismatch(m.ClusterID):
		return InconsistentClusterID
	case m.Leader < 0 || m.Leader == n.cfg.Self.ID:
		return InvalidRequest
	case m.Epoch < n.vote.Epoch:
		return FencedLeaderEpoch
	case m.Epoch == n.vote.Epoch && n.vote.Leader >= 0 && n.vote.Leader != m.Leader:
		// Two leaders of one epoch: not from nodes that keep the rules.
		return InvalidRequest
	case n.notForUs(m.Voter):
		return InvalidVoterKey
	}
	if n.role == Prospective && m.Epoch == n.vote.Epoch {
		n.becomeFollower(m.Epoch, m.Leader, m.Endpoints)
		return None
	}
	n.learn(LeaderInfo{Leader: m.Leader, Epoch: m.Epoch, Endpoints: m.Endpoints})
	if n.role == Follower && !n.leaderResigned {
		n.fetchDeadline = n.now.Add(n.fetchTimeout())
	}
	return None
}

func (n *Node) endQuorumEpochRequest(ReplicaKey) Message {
	return &EndQuorumEpochRequest{
		ClusterID:  n.cfg.ClusterID,
		Leader:     n.cfg.Self.ID,
		Epoch:      n.vote.Epoch,
		Successors: n.successors,
	}
}

func (n *Node) onEndQuorumEpoch(m *EndQuorumEpochRequest) Message {
	code := None
	switch {
	case n.clusterMismatch(m.ClusterID):
		code = InconsistentClusterID
	case m.Leader < 0 || m.Leader == n.cfg.Self.ID:
		code = InvalidRequest
	case m.Epoch < n.vote.Epoch:
		code = FencedLeaderEpoch
	case m.Epoch == n.vote.Epoch && n.vote.Leader >= 0 && n.vote.Leader != m.Leader:
		code = InvalidRequest
	default:
		n.learn(LeaderInfo{Leader: m.Leader, Epoch: m.Epoch})
		if n.role == Follower && !n.leaderResigned {
			n.leaderResigned = true
			n.fetchDeadline = n.now.Add(n.successionWait(m.Successors))
		}
	}
	return &EndQuorumEpochResponse{Code: code, Current: n.leaderInfo()}
}

// successionWait staggers the successors so that the best stands alone at first (KIP-595): the first at once,
// the k-th of n after a share of the election time-out that doubles with k, one not named after all of it.
func (n *Node) successionWait(successors []ReplicaKey) time.Duration {
	longest := n.cfg.ElectionTimeout
	k := slices.IndexFunc(successors, func(s ReplicaKey) bool {
		return s.ID == n.cfg.Self.ID && (s.DirectoryID.IsZero() || s.DirectoryID == n.cfg.Self.DirectoryID)
	})
	switch {
	case n.install.Active:
		return n.jitter(longest, longest) // its log is too short to lead with
	case k == 0:
		return 0
	case k < 0 || len(successors) > 16:
		return n.jitter(longest, longest)
	}
	return min(longest, (longest>>(len(successors)-1))<<(k-1))
}

// onUnreachable shortens the wait for a leader whose connection was reset and that refuses a new one.
func (n *Node) onUnreachable(id ident.NodeID) {
	if n.role == Follower && n.vote.Leader == id && n.IsVoter() {
		n.leaderResigned = true
		n.fetchDeadline = min(n.fetchDeadline, n.now.Add(n.jitter(unreachableWait, unreachableWait)))
	}
}

// unreachableWait spreads the followers of a leader that died.
const unreachableWait = 50 * time.Millisecond
