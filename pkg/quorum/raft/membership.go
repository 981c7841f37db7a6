package raft

import (
	"fmt"
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// KRaftVersion is the version of the quorum's protocol in use: the voters stand in the log (KIP-853).
const KRaftVersion = 1

// voterChange is a change of the voters that is under way: appended and not committed, or, before that, the question to
// a new voter whether it knows the protocol. There is one at a time (KIP-853): the majorities of two sets that differ by
// one voter meet, those of sets that differ by two need not.
type voterChange struct {
	token    uint64
	answered bool
	atAppend bool // answer when it is appended
	offset   ident.Offset
	deadline ident.Instant

	// While the new voter is asked: what it is asked for, by which request, and until when an answer is waited for. No
	// other change can begin meanwhile, so a question that was lost must not last as long as a change may.
	probing     *AddVoterRequest
	correlation uint64
	probeUntil  ident.Instant
}

func (n *Node) refuseChange(token uint64, code Code, format string, args ...any) {
	n.reply(token, &ChangeVotersResponse{Code: code, Message: fmt.Sprintf(format, args...), Current: n.leaderInfo()})
}

// mayChange refuses what no change of the voters may be asked of, and says whether it did not.
func (n *Node) mayChange(token uint64, clusterID string) bool {
	switch {
	case n.clusterMismatch(clusterID):
		n.refuseChange(token, InconsistentClusterID, "this is not cluster %s", clusterID)
	case n.role != Leader:
		n.refuseChange(token, NotLeaderOrFollower, "this node does not lead the quorum")
	case !n.lead.begun:
		// Until then a change of an earlier leader may still be undone or come true.
		n.refuseChange(token, RequestTimedOut, "the leader of epoch %d has not committed anything yet; try again", n.vote.Epoch)
	case n.voters.latest().Offset == BootstrapOffset:
		n.refuseChange(token, UnsupportedVersion, "the voters are not in the log (kraft.version 0)")
	case n.cfg.Mutant == MutateTwoChanges:
		return true
	case n.lead.change != nil || n.voters.latest().Offset >= n.highWatermark:
		n.refuseChange(token, RequestTimedOut, "another change of the voters is not committed yet; try again")
	default:
		return true
	}
	return false
}

// onAddVoter makes a replica a voter that fetches already and is caught up: else the next commit may have to wait
// until it is.
func (n *Node) onAddVoter(token uint64, m *AddVoterRequest) {
	if !n.mayChange(token, m.ClusterID) {
		return
	}
	k := m.Voter.Key
	switch v, there := n.Voters().Find(k.ID); {
	case k.ID < 0 || k.DirectoryID.IsZero() || len(m.Voter.Endpoints) == 0:
		n.refuseChange(token, InvalidRequest, "a new voter needs an id, a directory id and endpoints")
		return
	case there:
		n.refuseChange(token, DuplicateVoter, "node %d is a voter already, as %s", k.ID, v.Key)
		return
	}
	if !n.caughtUp(k) {
		n.refuseChange(token, RequestTimedOut, "%s", n.lags(k))
		return
	}
	// A voter that does not know the protocol could not follow once it counts.
	c := n.beginChange(token, m.AckAppended, m.Timeout)
	c.probing, c.probeUntil = m, n.now.Add(n.cfg.RequestTimeout)
	c.correlation = n.sendTo(m.Voter.Endpoints, k.ID, &KRaftVersionsRequest{})
}

func (n *Node) caughtUp(k ReplicaKey) bool {
	r := n.lead.find(k)
	if n.cfg.Mutant == MutateAddUncaught {
		return true
	}
	return r != nil && r.everCaughtUp && n.now <= r.caughtUp.Add(n.cfg.VoterLagMax)
}

func (n *Node) lags(k ReplicaKey) string {
	return fmt.Sprintf("replica %s has not been caught up with the metadata log within the last %v; try again when it is", k, n.cfg.VoterLagMax)
}

// onVoterProbed goes on with an addition when the new voter has said what it knows.
func (n *Node) onVoterProbed(r Response) {
	c := n.lead.change
	m := c.probing
	c.probing, c.correlation = nil, 0
	versions, ok := r.Msg.(*KRaftVersionsResponse)
	switch {
	case r.Err != nil:
		n.endChange(RequestTimedOut, fmt.Sprintf("the new voter %s does not answer: %v; try again when it does", m.Voter.Key, r.Err))
	case !ok:
		n.fatal("a %T came as the answer to a new voter's probe", r.Msg)
	case versions.Code != None:
		n.endChange(RequestTimedOut, fmt.Sprintf("the new voter %s answers ApiVersions with error %d", m.Voter.Key, versions.Code))
	case versions.Min > KRaftVersion || versions.Max < KRaftVersion:
		n.endChange(InvalidRequest, fmt.Sprintf("the new voter %s supports kraft.version %d to %d, in use is %d", m.Voter.Key, versions.Min, versions.Max, KRaftVersion))
	case !n.caughtUp(m.Voter.Key):
		n.endChange(RequestTimedOut, n.lags(m.Voter.Key))
	default:
		set, err := NewVoterSet(append(slices.Clone(n.Voters()), m.Voter)...)
		if err != nil {
			n.endChange(InvalidRequest, err.Error())
			return
		}
		n.out.AppendVoters = &VotersChange{Epoch: n.vote.Epoch, Voters: set}
	}
}

// onRemoveVoter takes a voter out. A leader that removes itself leads until that is committed, without counting
// itself, and then resigns.
func (n *Node) onRemoveVoter(token uint64, m *RemoveVoterRequest) {
	if !n.mayChange(token, m.ClusterID) {
		return
	}
	switch {
	case !n.Voters().Has(m.Voter):
		n.refuseChange(token, VoterNotFound, "%s is not a voter", m.Voter)
		return
	case len(n.Voters()) == 1:
		n.refuseChange(token, InvalidRequest, "%s is the last voter", m.Voter)
		return
	}
	left := slices.DeleteFunc(slices.Clone(n.Voters()), func(v Voter) bool { return v.Key == m.Voter })
	n.changeVoters(token, left)
}

// onUpdateVoter notes where a voter is reached now.
func (n *Node) onUpdateVoter(token uint64, m *UpdateVoterRequest) {
	switch {
	case n.role == Leader && m.Epoch < n.vote.Epoch:
		n.refuseChange(token, FencedLeaderEpoch, "the epoch is %d", n.vote.Epoch)
		return
	case n.role == Leader && m.Epoch > n.vote.Epoch:
		n.refuseChange(token, UnknownLeaderEpoch, "the epoch is %d", n.vote.Epoch)
		return
	case !n.mayChange(token, m.ClusterID):
		return
	}
	v, there := n.Voters().Find(m.Voter.Key.ID)
	switch {
	case !there || v.Key != m.Voter.Key:
		n.refuseChange(token, VoterNotFound, "%s is not a voter", m.Voter.Key)
		return
	case len(m.Voter.Endpoints) == 0:
		n.refuseChange(token, InvalidRequest, "a voter needs endpoints")
		return
	case slices.Equal(v.Endpoints, m.Voter.Endpoints):
		n.reply(token, &ChangeVotersResponse{Current: n.leaderInfo()})
		return
	}
	voters := slices.Clone(n.Voters())
	voters[slices.IndexFunc(voters, func(v Voter) bool { return v.Key == m.Voter.Key })] = m.Voter
	n.changeVoters(token, voters)
}

// changeVoters appends a voter set, which counts from the moment that it is in the log.
func (n *Node) changeVoters(token uint64, voters VoterSet) {
	set, err := NewVoterSet(voters...)
	if err != nil {
		n.refuseChange(token, InvalidRequest, "%v", err)
		return
	}
	n.beginChange(token, false, 0)
	n.out.AppendVoters = &VotersChange{Epoch: n.vote.Epoch, Voters: set}
}

func (n *Node) beginChange(token uint64, atAppend bool, timeout time.Duration) *voterChange {
	if timeout <= 0 || timeout > n.cfg.ChangeVotersTimeout {
		timeout = n.cfg.ChangeVotersTimeout
	}
	n.endChange(RequestTimedOut, "another change of the voters came after it")
	n.lead.change = &voterChange{token: token, atAppend: atAppend, offset: ident.UnknownOffset, deadline: n.now.Add(timeout)}
	return n.lead.change
}

// changeAppended notes where the change is.
func (n *Node) changeAppended(voters []VotersAt) {
	c := n.lead.change
	if c == nil || c.offset >= 0 || len(voters) == 0 {
		return
	}
	c.offset = voters[len(voters)-1].Offset
	if c.atAppend {
		n.answerChange(None, "")
	}
}

// changeCommitted ends the change that is below the high watermark now.
func (n *Node) changeCommitted() {
	c := n.lead.change
	if c != nil && c.offset >= 0 && c.offset < n.highWatermark {
		n.answerChange(None, "")
		n.lead.change = nil
	}
	if n.lead.begun && !n.IsVoter() && n.voters.latest().Offset < n.highWatermark {
		n.becomeResigned(n.vote.Epoch, n.preferredSuccessors())
	}
}

func (n *Node) answerChange(code Code, message string) {
	if c := n.lead.change; !c.answered {
		c.answered = true
		n.reply(c.token, &ChangeVotersResponse{Code: code, Message: message, Current: n.leaderInfo()})
	}
}

// endChange gives up waiting for a change.
func (n *Node) endChange(code Code, message string) {
	if n.lead != nil && n.lead.change != nil {
		n.answerChange(code, message)
		n.lead.change = nil
	}
}

func (n *Node) changeDue() ident.Instant {
	switch c := n.lead.change; {
	case c == nil || c.answered:
	case c.probing != nil:
		return min(c.deadline, c.probeUntil)
	default:
		return c.deadline
	}
	return ident.Never
}

// expireChange answers whoever waited long enough. A change that is appended goes on, a question that nobody answers
// is over.
func (n *Node) expireChange() {
	switch {
	case n.now < n.changeDue():
	case n.lead.change.probing != nil:
		n.endChange(RequestTimedOut, fmt.Sprintf("the new voter %s has not answered in time; try again when it does", n.lead.change.probing.Voter.Key))
	default:
		n.answerChange(RequestTimedOut, "the change of the voters is appended, but not committed in time")
	}
}

// syncCalls opens a call to each voter that came and drops those of voters that went.
func (n *Node) syncCalls() {
	n.calls = slices.DeleteFunc(n.calls, func(c call) bool { return !n.Voters().Has(c.voter) })
	for _, v := range n.Voters() {
		known := slices.ContainsFunc(n.calls, func(c call) bool { return c.voter == v.Key })
		if !known && v.Key != n.cfg.Self {
			n.calls = append(n.calls, call{voter: v.Key})
		}
	}
}

// moved: the voter set says that this node is reached elsewhere than it is.
func (n *Node) moved() bool {
	v, ok := n.Voters().Find(n.cfg.Self.ID)
	return ok && v.Key == n.cfg.Self && len(n.cfg.Endpoints) > 0 && !slices.Equal(v.Endpoints, n.cfg.Endpoints)
}

// maybeUpdateSelf has a leader that has moved write that down itself, as soon as no other change is under way. Nobody
// else would: those who know the voters only from the log would not find a sole voter any more.
func (n *Node) maybeUpdateSelf() {
	latest := n.voters.latest()
	if !n.lead.begun || n.lead.change != nil || latest.Offset == BootstrapOffset || latest.Offset >= n.highWatermark || !n.moved() {
		return
	}
	voters := slices.Clone(latest.Voters)
	voters[slices.IndexFunc(voters, func(v Voter) bool { return v.Key == n.cfg.Self })].Endpoints = n.cfg.Endpoints
	n.lead.change = &voterChange{answered: true, offset: ident.UnknownOffset, deadline: ident.Never} // nobody waits for it
	n.out.AppendVoters = &VotersChange{Epoch: n.vote.Epoch, Voters: voters}
}

func (n *Node) updateDue() ident.Instant {
	switch {
	case n.role != Follower || !n.moved():
		return ident.Never
	case n.update.correlation != 0:
		return n.update.deadline
	}
	return n.update.retryAt
}

// maybeUpdate tells the leader where this voter is reached, once it follows well enough to know the voters.
func (n *Node) maybeUpdate() {
	if n.now < n.updateDue() {
		return
	}
	u := &n.update
	u.retryAt = n.now.Add(3 * n.cfg.FetchTimeout)
	if u.correlation != 0 || !n.fetchedFromLeader {
		u.correlation = 0
		return
	}
	u.deadline = n.now.Add(n.cfg.RequestTimeout)
	u.correlation = n.send(n.vote.Leader, &UpdateVoterRequest{
		ClusterID: n.cfg.ClusterID, Epoch: n.vote.Epoch, Voter: Voter{Key: n.cfg.Self, Endpoints: n.cfg.Endpoints},
	})
}

// onUpdateAnswered: whether it was taken shows in the voter set; if not, it is tried again.
func (n *Node) onUpdateAnswered(r Response) {
	n.update.correlation = 0
	if m, ok := r.Msg.(*ChangeVotersResponse); ok && r.Err == nil {
		n.learn(m.Current)
	}
}
