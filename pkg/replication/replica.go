package replication

import (
	"math"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// LogView is what a core reads of the replica's log. It shows the state as of the last completion event.
type LogView interface {
	StartOffset() ident.Offset
	// EndOffset is the offset of the next record, exclusive end of what is appended.
	EndOffset() ident.Offset
	// FlushedOffset is the exclusive end of what survives a machine crash.
	FlushedOffset() ident.Offset
	// LatestEpoch is the last entry of the epoch table, ident.UnknownEpoch when it is empty.
	LatestEpoch() ident.Epoch
	// EpochEndOffset is the divergence look-up of KIP-101 and KIP-279: the largest known epoch not above e, and
	// where it ends.
	EpochEndOffset(e ident.Epoch) (ident.Epoch, ident.Offset, bool)
}

// Cluster is what a core asks of the committed metadata about nodes.
type Cluster interface {
	Broker(id ident.NodeID) (Broker, bool)
}

// Broker is a registered node.
type Broker struct {
	Epoch        int64
	Fenced       bool
	ShuttingDown bool
}

// Config of a Replica. Zero durations mean the defaults.
type Config struct {
	Self ident.NodeID
	// LagTimeMax is replica.lag.time.max.ms: a follower that was not caught up for longer leaves the ISR. 30 s.
	LagTimeMax time.Duration
	// ProposalRetry is the wait before an AlterPartition with an unclear answer is sent again. 50 ms.
	ProposalRetry time.Duration
	// FetchBackoff is replica.fetch.backoff.ms, the pause after an error; shorter at first when it is the leader that has
	// not heard yet. 1 s.
	FetchBackoff time.Duration
	// FlushAlways counts only flushed records for acks, high watermark and fetch positions; see FlushPolicyChanged.
	FlushAlways bool
	// HighWatermark is the checkpointed one; it is clamped into the log (KAFKA-3978).
	HighWatermark ident.Offset
	// Mutant breaks one rule on purpose, for the tests of the tests.
	Mutant Mutant
}

// Role is what a replica is at the moment.
type Role uint8

// Roles. Idle: no metadata yet, nobody leads, or this node is not assigned. Failed: the log dir is lost.
const (
	Idle Role = iota
	Leader
	Follower
	Failed
	Gone
)

// String names the role.
func (r Role) String() string { return [...]string{"Idle", "Leader", "Follower", "Failed", "Gone"}[r] }

// longAgo is the time of what never happened: further back than any lag time.
const longAgo = ident.Instant(math.MinInt64 / 2)

// Replica is the core of one partition replica. It is not safe for concurrent use.
type Replica struct {
	cfg     Config
	log     LogView
	cluster Cluster

	role Role
	meta MetadataChanged // what metadata and accepted proposals say; LeaderEpoch -1 before the first
	hw   ident.Offset

	leader    leaderState
	fetcher   fetcherState
	produces  produceQueue
	deletions []waitingDeletion
	damage    damageState
	parked    []parkedFetch
}

// leaderState exists while role is Leader.
type leaderState struct {
	epochStart   ident.Offset
	followers    []follower // assigned or in the ISR, without self, in the order of the assignment
	pending      *pending
	nextCheck    ident.Instant // of the ISR for laggards
	refusedUntil ident.Instant // no new expansion before, after the controller refused one
}

// New makes a replica that knows no metadata yet.
func New(cfg Config, log LogView, cluster Cluster) *Replica {
	cfg.LagTimeMax = orDefault(cfg.LagTimeMax, 30*time.Second)
	cfg.ProposalRetry = orDefault(cfg.ProposalRetry, 50*time.Millisecond)
	cfg.FetchBackoff = orDefault(cfg.FetchBackoff, time.Second)
	return &Replica{
		cfg: cfg, log: log, cluster: cluster,
		meta: MetadataChanged{Leader: ident.NoNode, LeaderEpoch: ident.UnknownEpoch, PartitionEpoch: -1},
		hw:   clamp(cfg.HighWatermark, log.StartOffset(), log.EndOffset()),
	}
}

func orDefault(d, standard time.Duration) time.Duration {
	if d == 0 {
		return standard
	}
	return d
}

func clamp(o, low, high ident.Offset) ident.Offset { return max(low, min(o, high)) }

// Step handles one event at now, which never goes back, and then whatever is due by the time. It only adds to out.
func (r *Replica) Step(now ident.Instant, ev Event, out *Effects) {
	switch ev := ev.(type) {
	case Tick:
	case MetadataChanged:
		r.metadataChanged(now, ev, out)
	case BrokersChanged:
		r.brokersChanged(now, out)
	case Produce:
		r.produce(now, ev, out)
	case AppendDone:
		r.appendDone(now, ev, out)
	case AppendFailed:
		r.appendFailed(ev, out)
	case DeleteRecords:
		r.deleteRecords(now, ev, out)
	case LogStartRaised:
		r.logStartRaised(now, out)
	case FlushDone:
		r.flushDone(now, out)
	case FlushPolicyChanged:
		r.flushPolicyChanged(now, ev.Always, out)
	case Fetch:
		r.serveFetch(now, ev, out)
	case ParkFetch:
		r.parkFetch(ev, out)
	case UnparkFetch:
		r.unparkFetch(ev.Token)
	case AlterPartitionDone:
		r.alterPartitionDone(now, ev, out)
	case FetchResponse:
		r.fetchResponse(now, ev, out)
	case FetchedAppended:
		r.fetchedAppended(out)
	case FetchedRefused:
		r.fetchedRefused(now, out)
	case TruncateDone:
		r.truncateDone(out)
	case DamageChanged:
		r.damageChanged(ev)
	case QuarantineDone:
		r.quarantineDone(out)
	case DirFailed:
		r.stop(Failed, KafkaStorageError, out)
	case Removed:
		r.stop(Gone, NotLeaderOrFollower, out)
	}
	r.timers(now, out)
}

// timers does what is due. It runs after the event: after a pause of the whole process the fetches that waited in
// the sockets are heard before anybody is called a laggard.
func (r *Replica) timers(now ident.Instant, out *Effects) {
	r.produces.expire(now, r.log.StartOffset(), out)
	r.completeDeletions(now, out)
	r.wakeExpired(now, out)
	r.retryProposal(now, out)
	r.checkLaggards(now, out)
	r.fetcherTimer(now, out)
	r.repair(out)
}

// NextDeadline is when a Tick is wanted at the latest if no other event comes.
func (r *Replica) NextDeadline() ident.Instant {
	next := min(r.produces.next(), r.nextDeletion(), r.nextParked(), r.fetcher.retryAt())
	if r.role == Leader {
		if p := r.leader.pending; p != nil {
			next = min(next, p.retryAt)
		}
		if len(r.leader.followers) > 0 {
			next = min(next, r.leader.nextCheck)
		}
	}
	return next
}

// stop ends all service with one code.
func (r *Replica) stop(role Role, code Code, out *Effects) {
	if r.role == Gone {
		return
	}
	r.role = role
	r.produces.failAll(code, r.log.StartOffset(), out)
	r.failDeletions(code, out)
	r.wakeAll(out)
	r.leader = leaderState{}
	r.fetcher = fetcherState{}
	out.Fetcher = true
}
