package raft

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Node is one member of the quorum, voter or observer. It is not safe for use by several goroutines.
type Node struct {
	cfg    Config
	log    LogView
	rng    *rand.Rand
	vote   VoteState
	voters voterHistory

	role            Role
	leaderEndpoints []Endpoint
	// flushed is the end of what is known to be on disk; it follows FlushDone, not the log, since a flush
	// may be under way elsewhere.
	flushed       ident.Offset
	highWatermark ident.Offset

	// electionDeadline is for Unattached, Prospective, Candidate and Resigned.
	electionDeadline ident.Instant
	// leaderless is how many epochs came since this node last had a leader that it could fetch from, or led.
	leaderless int
	calls      []call
	successors []ReplicaKey

	// For Follower.
	fetchDeadline     ident.Instant
	fetchedFromLeader bool
	// leaderHighWatermark is what the leader's last answer said.
	leaderHighWatermark ident.Offset
	leaderResigned      bool
	fetch               fetcher
	download            *download
	install             Install
	installed           bool // in the step before
	update              call // tells the leader where this voter is reached
	trouble             error

	// For Leader.
	lead   *leadership
	parked []parkedFetch

	correlation uint64
	reported    Leadership
	started     bool // before, its role is not the one that the saved vote asks for, and no time is due
	wasVoter    bool

	// Only inside Step.
	now ident.Instant
	out *Effects
}

// New makes a node from what its disk holds: the log, whose content counts as flushed, the vote, and the
// voter sets in the log by offset, the one of the bootstrap checkpoint (or, for an observer, of the
// configuration) first at BootstrapOffset. The first Step has to be Start.
func New(cfg Config, log LogView, vote VoteState, voters []VotersAt) (*Node, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg:           cfg,
		log:           log,
		rng:           rand.New(rand.NewPCG(scramble(cfg.Seed), scramble(uint64(cfg.Self.ID)))),
		vote:          vote,
		voters:        slices.Clone(voters),
		flushed:       log.EndOffset(),
		highWatermark: ident.UnknownOffset,
		reported:      Leadership{Leader: ident.NoNode},
	}
	n.wasVoter = n.IsVoter()
	return n, nil
}

// scramble spreads neighbouring numbers far apart (splitmix64): the first draws of generators with neighbouring
// seeds are alike, and nodes that draw alike stand at the same time.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Step handles one event at the instant now, which never goes back, and says in out what is to be done.
func (n *Node) Step(now ident.Instant, ev Event, out *Effects) {
	n.now, n.out = max(now, n.now), out
	if n.installed {
		// An install takes this node's time, which says nothing about its leader.
		n.installed = false
		n.fetchDeadline = max(n.fetchDeadline, n.now.Add(n.fetchTimeout()))
	}
	switch ev := ev.(type) {
	case Start:
		n.start()
	case Tick:
	case Request:
		n.onRequest(ev)
	case Response:
		n.onResponse(ev)
	case AppendDone:
		n.onAppendDone(ev)
	case AppendRefused:
		n.fetch.appending = false
		n.fetchFailed(ev.Err)
	case TruncateDone:
		n.fetch.truncating = false
		n.flushed = min(n.flushed, ev.To)
		n.setVoters(n.voters.truncate(ev.To))
	case ChunkStored:
		n.onChunkStored(ev)
	case SnapshotRefused:
		n.onSnapshotRefused(ev)
	case SnapshotInstalled:
		n.onSnapshotInstalled(ev)
	case FlushDone:
		n.flushed = max(n.flushed, min(ev.End, n.log.EndOffset()))
		n.advanceHighWatermark()
	case Unreachable:
		n.onUnreachable(ev.Node)
	case Resign:
		if n.role == Leader && ev.Epoch == n.vote.Epoch {
			n.becomeResigned(n.vote.Epoch, n.preferredSuccessors())
		}
	}
	for out.Fatal == nil && n.started && n.poll() {
	}
	out.FlushWanted = n.log.EndOffset() > n.flushed
	n.reportLeadership()
	n.out = nil
}

// start enters the role that the saved vote asks for (KIP-595, "Leader election and voter states").
func (n *Node) start() {
	n.started = true
	n.electionDeadline = n.now.Add(n.electionTimeout())
	if s, ok := n.log.LatestSnapshot(); ok {
		n.raiseHighWatermark(s.End) // only what is committed comes into a snapshot
	}
	if last := n.lastEpoch(); last > n.vote.Epoch {
		n.transition(Unattached, VoteState{Epoch: last, Leader: ident.NoNode, Voted: Nobody})
	}
	self := n.cfg.Self
	switch v := n.vote; {
	case v.Leader == self.ID && n.cfg.Mutant == MutateLeadAgain:
		n.startLeading([]ReplicaKey{self})
	case v.Leader == self.ID:
		n.becomeResigned(v.Epoch, nil)
	case v.Voted == self && v.Leader < 0 && n.IsVoter():
		n.becomeCandidate(v.Epoch)
	case v.Leader >= 0:
		if _, ok := n.Voters().Find(v.Leader); ok {
			n.becomeFollower(v.Epoch, v.Leader, nil)
		}
	}
	if n.soleVoter() && n.role != Leader && n.role != Candidate {
		n.becomeProspective()
	}
}

// poll does what is due now, and says whether it went to another role, so that it has to look again.
func (n *Node) poll() bool {
	n.checkDownload()
	switch n.role {
	case Unattached:
		if n.IsVoter() && n.now >= n.electionDeadline {
			n.becomeProspective()
			return true
		}
		n.maybeFetch()
	case Follower:
		if n.now >= n.fetchDeadline {
			if n.IsVoter() {
				n.becomeProspective()
				return true
			}
			// Its log may be behind the record that makes it a voter, and its vote be the one that is needed: it may not hold
			// on to a leader that is gone.
			n.fetchedFromLeader = false
			n.fetchDeadline = n.now.Add(n.fetchTimeout())
		}
		n.maybeFetch()
		n.maybeUpdate()
	case Prospective:
		if n.now >= n.electionDeadline {
			n.preVoteLost()
			return true
		}
		n.sendCalls(n.voteRequest)
	case Candidate:
		if n.now >= n.electionDeadline {
			n.becomeProspective()
			return true
		}
		n.sendCalls(n.voteRequest)
	case Resigned:
		if n.now >= n.electionDeadline && n.cfg.Mutant == MutateResignedLeads {
			n.startLeading([]ReplicaKey{n.cfg.Self})
			return true
		}
		if n.now >= n.electionDeadline {
			// A new epoch: in this one the node may neither vote nor stand (KAFKA-16164).
			n.becomeUnattached(n.vote.Epoch + 1)
			n.electionDeadline = n.now.Add(n.electionTimeout())
			return true
		}
		n.sendCalls(n.endQuorumEpochRequest)
	case Leader:
		if n.now >= n.checkQuorumDeadline() {
			n.becomeResigned(n.vote.Epoch, n.preferredSuccessors())
			return true
		}
		n.expireParked()
		n.expireChange()
		n.maybeUpdateSelf()
		n.sendCalls(n.beginQuorumEpochRequest)
	}
	return false
}

// NextDeadline is when the next Tick is due if nothing else happens; it is later than the last Step. Nothing is due
// before Start.
func (n *Node) NextDeadline() ident.Instant {
	if !n.started {
		return ident.Never
	}
	next := ident.Never
	switch n.role {
	case Unattached:
		if n.IsVoter() {
			next = n.electionDeadline
		}
		next = min(next, n.fetchDue())
	case Follower:
		next = min(n.fetchDeadline, n.fetchDue(), n.updateDue())
	case Leader:
		next = n.checkQuorumDeadline()
		for _, p := range n.parked {
			next = min(next, p.deadline)
		}
		next = min(next, n.callsDue(), n.changeDue())
	default:
		next = min(n.electionDeadline, n.callsDue())
	}
	return next
}

func (n *Node) onRequest(r Request) {
	switch m := r.Msg.(type) {
	case *VoteRequest:
		n.reply(r.Token, n.onVote(m))
	case *BeginQuorumEpochRequest:
		n.reply(r.Token, n.onBeginQuorumEpoch(m))
	case *EndQuorumEpochRequest:
		n.reply(r.Token, n.onEndQuorumEpoch(m))
	case *FetchRequest:
		n.onFetch(r.Token, m)
	case *FetchSnapshotRequest:
		n.onFetchSnapshot(r.Token, m)
	case *AddVoterRequest:
		n.onAddVoter(r.Token, m)
	case *RemoveVoterRequest:
		n.onRemoveVoter(r.Token, m)
	case *UpdateVoterRequest:
		n.onUpdateVoter(r.Token, m)
	case *KRaftVersionsRequest:
		n.reply(r.Token, &KRaftVersionsResponse{Max: KRaftVersion})
	default:
		n.fatal("a %T came as a request", r.Msg)
	}
}

func (n *Node) onResponse(r Response) {
	if r.Correlation == 0 {
		return
	}
	if late, ok := r.Msg.(*FetchResponse); ok && late.Snapshot != nil && n.cfg.Mutant == MutateStaleSnapshot {
		r.Correlation = n.fetch.correlation
	}
	if r.Correlation == n.fetch.correlation {
		n.onFetchResponse(r)
		return
	}
	if r.Correlation == n.update.correlation {
		n.onUpdateAnswered(r)
		return
	}
	if n.lead != nil && n.lead.change != nil && n.lead.change.correlation == r.Correlation {
		n.onVoterProbed(r)
		return
	}
	for i := range n.calls {
		if n.calls[i].correlation == r.Correlation {
			n.onCallAnswered(&n.calls[i], r)
			return
		}
	}
}

func (n *Node) onAppendDone(ev AppendDone) {
	for _, v := range ev.Voters {
		n.setVoters(n.voters.add(v))
	}
	if n.role == Leader {
		n.changeAppended(ev.Voters)
		n.advanceHighWatermark()
		n.wakeParked()
		return
	}
	if n.fetch.appending {
		n.fetch.appending = false
		n.raiseHighWatermark(min(n.fetch.highWatermark, n.log.EndOffset()))
	}
}

// setVoters takes a voter set into use, committed or not. A node that thereby becomes a voter starts its clock.
func (n *Node) setVoters(h voterHistory) {
	n.voters = h
	if is := n.IsVoter(); is != n.wasVoter {
		n.wasVoter = is
		n.electionDeadline = n.now.Add(n.electionTimeout())
		n.fetchDeadline = n.now.Add(n.fetchTimeout())
	}
	if n.role == Leader {
		n.syncReplicas()
		n.syncCalls()
	}
}

func (n *Node) raiseHighWatermark(to ident.Offset) {
	if to > n.highWatermark || n.cfg.Mutant == MutateHighWatermarkBack && to != n.highWatermark {
		n.highWatermark = to
		n.out.HighWatermark = &to
	}
	n.maybeInstalled()
}

func (n *Node) reply(token uint64, m Message) {
	n.out.Replies = append(n.out.Replies, Reply{Token: token, Msg: m})
}

func (n *Node) send(to ident.NodeID, m Message) (correlation uint64) { return n.sendTo(nil, to, m) }

// sendTo sends to a node that may not be known yet.
func (n *Node) sendTo(endpoints []Endpoint, to ident.NodeID, m Message) (correlation uint64) {
	n.correlation++
	n.out.Sends = append(n.out.Sends, Send{To: to, Correlation: n.correlation, Msg: m, Endpoints: endpoints})
	return n.correlation
}

func (n *Node) reportLeadership() {
	l := n.Leadership()
	if l.Leader != n.reported.Leader || l.Epoch != n.reported.Epoch || !slices.Equal(l.Endpoints, n.reported.Endpoints) {
		n.reported = l
		n.out.Leadership = &l
	}
}

func (n *Node) jitter(base, spread time.Duration) time.Duration {
	return base + time.Duration(n.rng.Int64N(int64(spread)+1))
}

// electionTimeout doubles with each election in a row that brought no leader, after the first two: voters, candidate and
// leader save their votes within it, one after the other, and where that takes longer than a round may last nobody would
// ever lead.
func (n *Node) electionTimeout() time.Duration {
	return n.jitter(n.cfg.ElectionTimeout, n.cfg.ElectionTimeout) << min(max(0, n.leaderless-2), maxElectionDoublings)
}

// maxElectionDoublings bounds the time that it takes to stand again when the reason has gone.
const maxElectionDoublings = 3

func (n *Node) fetchTimeout() time.Duration {
	return n.jitter(n.cfg.FetchTimeout, n.cfg.FetchTimeout/2)
}

func (n *Node) retryAt() ident.Instant {
	return n.now.Add(n.jitter(n.cfg.RetryBackoff, n.cfg.RetryBackoff))
}

func (n *Node) soleVoter() bool { return n.IsVoter() && len(n.Voters()) == 1 }

// lastEpoch is the epoch of the last record, which for an empty log is the last one of the snapshot that it begins
// behind, and 0 when there was never any, as Kafka has it.
func (n *Node) lastEpoch() ident.Epoch {
	if e := n.log.LatestEpoch(); e >= 0 {
		return e
	}
	if s, ok := n.log.LatestSnapshot(); ok && s.End == n.log.EndOffset() {
		return s.Epoch
	}
	return 0
}

// epochEnd is the largest epoch not above e and where it ends, the record before the log's start counted: a snapshot
// tells of which epoch it is.
func (n *Node) epochEnd(e ident.Epoch) (ident.Epoch, ident.Offset, bool) {
	s, ok := n.log.OldestSnapshot()
	start := n.log.StartOffset()
	before := ok && s.End == start && e >= s.Epoch
	epoch, end, known := n.log.EpochEndOffset(e)
	if before && (!known && n.log.EndOffset() == start || known && end == start) {
		return s.Epoch, start, true
	}
	return epoch, end, known
}

// Role returns the present role.
func (n *Node) Role() Role { return n.role }

// Epoch returns the present epoch.
func (n *Node) Epoch() ident.Epoch { return n.vote.Epoch }

// Vote returns the vote state as it was last asked to be saved.
func (n *Node) Vote() VoteState { return n.vote }

// HighWatermark is the end of what this node knows to be committed, UnknownOffset when nothing. Whatever lies
// below is on a majority of the voters' disks for good.
func (n *Node) HighWatermark() ident.Offset { return n.highWatermark }

// Voters returns the voter set in use.
func (n *Node) Voters() VoterSet { return n.voters.latest().Voters }

// VotersBelow returns the voter set that counts for what lies below an offset, as a snapshot that ends there keeps it.
func (n *Node) VotersBelow(end ident.Offset) VotersAt { return n.voters.upTo(end) }

// IsVoter says whether this replica is in the voter set.
func (n *Node) IsVoter() bool { return n.Voters().Has(n.cfg.Self) }

// Leadership says whom this node takes for the leader: itself, whom it follows, or nobody.
func (n *Node) Leadership() Leadership {
	l := Leadership{Leader: ident.NoNode, Epoch: n.vote.Epoch}
	if n.role == Leader || n.role == Follower {
		l.Leader = n.vote.Leader
		l.Endpoints = n.Endpoints(l.Leader)
	}
	return l
}

// Follows says whether this node leads, or follows its leader and knows as committed all that the leader last said is.
func (n *Node) Follows() bool {
	return n.role == Leader || n.role == Follower && n.fetchedFromLeader && n.trouble == nil &&
		n.leaderHighWatermark >= 0 && n.highWatermark >= n.leaderHighWatermark
}

// Trouble is why this node can't follow its leader just now, nil when it can or there is none.
func (n *Node) Trouble() error { return n.trouble }

// leaderInfo is what responses tell. A resigned leader names nobody: it is of no use to follow it.
func (n *Node) leaderInfo() LeaderInfo {
	l := LeaderInfo{Leader: n.vote.Leader, Epoch: n.vote.Epoch}
	if n.role == Resigned {
		l.Leader = ident.NoNode
	}
	if l.Leader >= 0 {
		l.Endpoints = n.endpointsOf(l.Leader)
	}
	return l
}
