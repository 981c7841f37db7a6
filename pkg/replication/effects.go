package replication

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Effects is what Step wants done, owned and reused by the caller. Reset empties it; Step only adds.
type Effects struct {
	// AssignEpoch: note in the log's epoch table that this epoch starts at the log's end, before anything else is
	// done. Set on becoming leader, also when no record of that epoch follows (KAFKA-7415).
	AssignEpoch *ident.Epoch
	// Append: the produces whose records are to be appended, in this order. Answer each by AppendDone or
	// AppendFailed.
	Append []Token
	// AppendFetched: append this many of the leading batches of the FetchResponse, then FetchedAppended.
	AppendFetched int
	// Truncate the log, then TruncateDone. No fetch position is given out meanwhile.
	Truncate *Truncation
	// RaiseLogStart: the log is to start here, because the leader's does or because records were deleted; then
	// LogStartRaised.
	RaiseLogStart *ident.Offset
	// Quarantine: end the log before its first damaged record, then DamageChanged and QuarantineDone. No fetch position
	// is given out meanwhile.
	Quarantine bool
	// Refilled: what was quarantined is not needed any more, then DamageChanged.
	Refilled bool
	// Directory: what DirectoryWish says has changed.
	Directory bool
	// Flush: the log is to be flushed soon, then FlushDone.
	Flush bool
	// Completed: produces that are to be answered.
	Completed []Completion
	// Deleted: DeleteRecords that are to be answered.
	Deleted []Deletion
	// Answers: one for each Fetch event.
	Answers []FetchAnswer
	// Wake: parked fetches to be evaluated again (Fetch with Again) and answered or parked anew.
	Wake []Token
	// Proposal: an AlterPartition to send; answer by AlterPartitionDone, also when the sending failed.
	Proposal *Proposal
	// HighWatermark has moved (down only on a follower that truncates).
	HighWatermark bool
	// Fetcher: what NextFetch says has changed.
	Fetcher bool
	// Facts that metadata does not carry.
	Facts []Fact
}

// Truncation cuts the log's end off at To; with Full the log is emptied and starts and ends at To.
type Truncation struct {
	To   ident.Offset
	Full bool
}

// Completion answers a produce. Base is the offset of its first record and LogStart the log's start, both -1 on
// an error that left nothing in the log.
type Completion struct {
	Token    Token
	Code     Code
	Base     ident.Offset
	LogStart ident.Offset
}

// Deletion answers a DeleteRecords. LowWatermark is the smallest log start of the live replicas, -1 when unknown.
type Deletion struct {
	Token        Token
	Code         Code
	LowWatermark ident.Offset
}

// FetchAnswer answers a Fetch: an error, a divergence, or the records to be read from From below Below (none when
// they are equal).
type FetchAnswer struct {
	Token         Token
	Code          Code
	From, Below   ident.Offset
	HighWatermark ident.Offset
	LogStart      ident.Offset
	Diverging     EpochEnd // see FetchResponse.Diverging
}

// Proposal is one AlterPartition of this partition: the in-sync replicas that the leader wants. The recovery state
// to send with it is always RECOVERED, as Kafka's leader does.
type Proposal struct {
	LeaderEpoch    ident.Epoch
	PartitionEpoch int32
	ISR            []Member
}

// Member is a replica by its broker epoch; -1 when the leader does not know it.
type Member struct {
	ID          ident.NodeID
	BrokerEpoch int64
}

// FactKind says what a Fact is about.
type FactKind uint8

// Kinds of facts.
const (
	ISRShrunk        FactKind = iota + 1 // committed: Replica left
	ISRExpanded                          // committed: Replica joined
	ReplicaReset                         // this follower restarted at the leader's log start: From -> To
	TruncatedBelowHW                     // this follower cut off records below its high watermark: From -> To
	ISRChangeRefused                     // the controller said Code to a proposal
)

// String names the kind.
func (k FactKind) String() string {
	return [...]string{"", "ISRShrunk", "ISRExpanded", "ReplicaReset", "TruncatedBelowHW", "ISRChangeRefused"}[k]
}

// Reason says why the leader changed the in-sync replicas. Fencing is the controller's reason, not one of these.
type Reason string

// Reasons of an ISR change that the leader proposed.
const (
	LagTimeExceeded Reason = "LagTimeExceeded"
	CaughtUp        Reason = "CaughtUp"
)

// Fact is what happened here and stands in no metadata record. An ISR fact is keyed by the partition epoch that the
// change was committed with.
type Fact struct {
	Kind           FactKind
	Replica        ident.NodeID
	Reason         Reason
	LeaderEpoch    ident.Epoch
	PartitionEpoch int32
	LagOffsets     int64         // behind the leader's log end when the change was proposed
	LagTime        time.Duration // since it last was caught up, -1 when it never was in this leadership
	From, To       ident.Offset
	Code           Code
}

// Reset empties e and keeps its memory.
func (e *Effects) Reset() {
	*e = Effects{
		Append: e.Append[:0], Completed: e.Completed[:0], Deleted: e.Deleted[:0], Answers: e.Answers[:0], Wake: e.Wake[:0], Facts: e.Facts[:0],
	}
}
