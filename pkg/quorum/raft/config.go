package raft

import (
	"fmt"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Config is what a Node is made with. Durations and sizes that are zero take the defaults below.
type Config struct {
	// Self is this node's id and the id of the directory that holds its log and vote (KIP-853).
	Self ReplicaKey
	// ClusterID is compared with what requests name; a request that names none is let through.
	ClusterID string
	// Endpoints are where the other nodes reach this one; a leader tells them (BeginQuorumEpoch v1).
	Endpoints []Endpoint
	// Bootstrap is where to look for the leader besides the voters that the log names: these may have moved, or be
	// others by now, since this node last heard of them. Only ids and endpoints count.
	Bootstrap VoterSet

	// ElectionTimeout bounds one round of an election: each is drawn from [T, 2T), so that two candidates
	// seldom meet twice. It is also the longest wait after EndQuorumEpoch. Elections in a row that bring no leader
	// last longer, up to eight times.
	ElectionTimeout time.Duration
	// FetchTimeout is how long a voter goes on without an answer of its leader before it asks whether it
	// should stand: drawn from [T, 1.5T).
	FetchTimeout time.Duration
	// CheckQuorumTimeout is how long a leader goes on without a fetch from a majority before it resigns
	// (KAFKA-15489). A sole voter never does (KAFKA-16144).
	CheckQuorumTimeout time.Duration
	// RequestTimeout is when a request without an answer is sent anew.
	RequestTimeout time.Duration
	// RetryBackoff is the pause after a failed request, drawn from [T, 2T).
	RetryBackoff time.Duration
	// FetchMaxWait is how long this node lets its leader wait for news before an empty answer.
	FetchMaxWait time.Duration
	// ParkMax is the longest that this node, as leader, lets a fetch wait, whatever it asks for.
	ParkMax time.Duration
	// ObserverTimeout is when a leader forgets an observer that no longer fetches.
	ObserverTimeout time.Duration
	// FetchMaxBytes limits a fetch, asked or answered; the first batch goes out whole all the same. While answers don't
	// come in time it is halved, so that a slow link can be used too, and doubled while they come fast.
	FetchMaxBytes int32
	// ProposeMaxBytes limits what is appended in one piece.
	ProposeMaxBytes int32
	// SnapshotChunkBytes is how much of a snapshot is asked for at a time, at most; on a slow link it is less, as above.
	SnapshotChunkBytes int32
	// VoterLagMax is how long ago a replica that is to become a voter may have been caught up with the leader.
	VoterLagMax time.Duration
	// ChangeVotersTimeout bounds the wait for a change of the voters, unless its request names a shorter one.
	ChangeVotersTimeout time.Duration

	// Seed starts the jitter. Nodes of one quorum should have different ones.
	Seed uint64

	// Mutant breaks one rule on purpose. Only the simulator's mutation check sets it.
	Mutant Mutant
}

// Defaults. From the death of a leader to writable metadata they give about 0.8 s in the middle: a follower
// notices after 0.6–0.9 s, or 0.1–0.2 s when its connection was reset and a new one refused (Unreachable),
// and an election takes two round trips and two fsyncs. A follower that merely was slow disturbs nobody: its
// pre-vote is refused (KIP-996).
const (
	DefaultElectionTimeout    = 250 * time.Millisecond
	DefaultFetchTimeout       = 600 * time.Millisecond
	DefaultCheckQuorumTimeout = 1200 * time.Millisecond
	DefaultRequestTimeout     = 500 * time.Millisecond
	DefaultRetryBackoff       = 20 * time.Millisecond
	DefaultFetchMaxWait       = 200 * time.Millisecond
	DefaultParkMax            = 5 * time.Second
	DefaultObserverTimeout    = 5 * time.Minute
	DefaultFetchMaxBytes      = 8 << 20
	DefaultProposeMaxBytes    = 8 << 20
	DefaultSnapshotChunkBytes = 1 << 20
	DefaultVoterLagMax        = 5 * time.Second
	DefaultChangeVoters       = 30 * time.Second
)

func (c *Config) setDefaults() {
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{
		{&c.ElectionTimeout, DefaultElectionTimeout},
		{&c.FetchTimeout, DefaultFetchTimeout},
		{&c.CheckQuorumTimeout, DefaultCheckQuorumTimeout},
		{&c.RequestTimeout, DefaultRequestTimeout},
		{&c.RetryBackoff, DefaultRetryBackoff},
		{&c.FetchMaxWait, DefaultFetchMaxWait},
		{&c.ParkMax, DefaultParkMax},
		{&c.ObserverTimeout, DefaultObserverTimeout},
		{&c.VoterLagMax, DefaultVoterLagMax},
		{&c.ChangeVotersTimeout, DefaultChangeVoters},
	} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	if c.FetchMaxBytes == 0 {
		c.FetchMaxBytes = DefaultFetchMaxBytes
	}
	if c.ProposeMaxBytes == 0 {
		c.ProposeMaxBytes = DefaultProposeMaxBytes
	}
	if c.SnapshotChunkBytes == 0 {
		c.SnapshotChunkBytes = DefaultSnapshotChunkBytes
	}
}

func (c *Config) validate() error {
	switch {
	case c.Self.ID < 0:
		return fmt.Errorf("raft: node id %d: must not be negative", c.Self.ID)
	case c.ElectionTimeout < 0 || c.FetchTimeout < 0 || c.CheckQuorumTimeout < 0 || c.RequestTimeout < 0 ||
		c.RetryBackoff < 0 || c.FetchMaxWait < 0 || c.ParkMax < 0 || c.ObserverTimeout < 0 || c.VoterLagMax < 0 ||
		c.ChangeVotersTimeout < 0:
		return fmt.Errorf("raft: node %d: a time-out is negative", c.Self.ID)
	case c.FetchMaxWait >= c.FetchTimeout:
		return fmt.Errorf("raft: node %d: FetchMaxWait %v must be below FetchTimeout %v, or an idle leader looks dead",
			c.Self.ID, c.FetchMaxWait, c.FetchTimeout)
	case c.CheckQuorumTimeout <= c.FetchMaxWait:
		return fmt.Errorf("raft: node %d: CheckQuorumTimeout %v must be above FetchMaxWait %v, or an idle leader resigns",
			c.Self.ID, c.CheckQuorumTimeout, c.FetchMaxWait)
	case c.FetchMaxBytes < 0 || c.ProposeMaxBytes < 0 || c.SnapshotChunkBytes < 0:
		return fmt.Errorf("raft: node %d: a size limit is negative", c.Self.ID)
	}
	return nil
}

// Mutant names a rule that is broken on purpose, to see that the simulator notices.
type Mutant string

// The rules that can be broken inside the core. Those about the disk (a vote or a log that is not fsynced)
// are broken by the simulator's disk instead.
const (
	// MutateCommitOldEpoch commits entries of earlier epochs by counting replicas (figure 8 of the Raft paper).
	MutateCommitOldEpoch Mutant = "commit-old-epoch"
	// MutateCountUnflushed counts the leader's own appended records before they are fsynced (KAFKA-10533).
	MutateCountUnflushed Mutant = "count-unflushed"
	// MutateFetchUnflushed acknowledges, as a follower, what is appended and not yet fsynced.
	MutateFetchUnflushed Mutant = "fetch-unflushed"
	// MutateVoteAnyLog votes for candidates whose log is behind.
	MutateVoteAnyLog Mutant = "vote-any-log"
	// MutateVoteTwice forgets for whom it voted in this epoch.
	MutateVoteTwice Mutant = "vote-twice"
	// MutateLeadAgain goes on as leader of the same epoch after a restart (KAFKA-10661).
	MutateLeadAgain Mutant = "lead-again"
	// MutateIgnoreDivergence takes a diverging answer for an empty one, and leaders don't look for divergence.
	MutateIgnoreDivergence Mutant = "ignore-divergence"
	// MutateMinorityCommit commits with half of the voters.
	MutateMinorityCommit Mutant = "minority-commit"
	// MutateSkipPreVote stands without having asked whether it would be elected (KIP-996).
	MutateSkipPreVote Mutant = "skip-pre-vote"
	// MutateNoCheckQuorum never resigns, even when nobody fetches any more (KAFKA-15489).
	MutateNoCheckQuorum Mutant = "no-check-quorum"
	// MutateInstallKeepsLog leaves the log as it was when a snapshot is installed. (It is the executor's to break.)
	MutateInstallKeepsLog Mutant = "install-keeps-log"
	// MutateCountObservers counts observers towards a majority of the voters.
	MutateCountObservers Mutant = "count-observers"
	// MutateCountRemovedLeader has a leader that is no voter any more count itself.
	MutateCountRemovedLeader Mutant = "count-removed-leader"
	// MutateHighWatermarkBack takes any high watermark that it is told for the present one.
	MutateHighWatermarkBack Mutant = "high-watermark-back"
	// MutateResignedLeads has a leader that resigned lead on in the same epoch (KAFKA-16164).
	MutateResignedLeads Mutant = "resigned-leads"
	// MutateStaleSnapshot takes an offer of a snapshot whenever it comes, and whatever the node holds already.
	MutateStaleSnapshot Mutant = "stale-snapshot"
	// MutateResumeElsewhere goes on with a download at another leader than the one that began it.
	MutateResumeElsewhere Mutant = "resume-elsewhere"
	// MutateAddUncaught makes a voter of a replica that is not caught up.
	MutateAddUncaught Mutant = "add-uncaught"
	// MutateForgetVote starts without knowing for whom it voted. (This one and the next two are the executor's.)
	MutateForgetVote Mutant = "forget-vote"
	// MutateServeRotten serves pieces of a snapshot as they are on the disk, right or not.
	MutateServeRotten Mutant = "serve-rotten"
	// MutateTrimAhead trims the log beyond its snapshots.
	MutateTrimAhead Mutant = "trim-ahead"
	// MutateTwoChanges takes a change of the voters while another is not committed yet.
	MutateTwoChanges Mutant = "two-changes"
)

// ReplicaKey is a replica's identity: its node id and the id of its metadata directory, so that a node whose
// disk was wiped is not taken for the voter it was (KIP-853). A zero directory id is one that is not known.
type ReplicaKey struct {
	ID          ident.NodeID
	DirectoryID ident.UUID
}

// Nobody is the key of no replica: no vote given.
var Nobody = ReplicaKey{ID: ident.NoNode}

// String is for logs.
func (k ReplicaKey) String() string {
	if k.DirectoryID.IsZero() {
		return fmt.Sprintf("%d", k.ID)
	}
	return fmt.Sprintf("%d@%s", k.ID, k.DirectoryID)
}

// Compare orders keys by id, then directory id.
func (k ReplicaKey) Compare(o ReplicaKey) int {
	if k.ID != o.ID {
		return int(k.ID) - int(o.ID)
	}
	return k.DirectoryID.Compare(o.DirectoryID)
}

// Endpoint is where a node listens.
type Endpoint struct {
	// Name is the listener's name; empty where Kafka's message has none.
	Name string
	Host string
	Port uint16
}
