package replication

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Token is the caller's name for a produce or fetch that it waits for. It is unique among those waiting at one
// replica; the core only hands it back.
type Token uint64

// Event is what Step takes. Each is a plain value.
type Event interface{ event() }

// Tick says that time has passed; every other event does so as well.
type Tick struct{}

// MetadataChanged is the partition as a committed metadata record has it. The same state may come again (it
// changes nothing then but MinISR); one with a lower partition epoch than the known one is ignored.
type MetadataChanged struct {
	Leader         ident.NodeID // ident.NoNode: nobody leads
	LeaderEpoch    ident.Epoch
	PartitionEpoch int32
	Replicas       []ident.NodeID // kept, not copied: the caller must not change them afterwards
	ISR            []ident.NodeID
	Lost           []ident.NodeID // replicas whose directory is LOST: they reported damaged records
	MinISR         int            // min.insync.replicas as configured; the effective one is at most len(Replicas)
}

// BrokersChanged says that what Cluster tells of nodes has changed: who may join the ISR, and with it who holds the
// high watermark back, is not what it was.
type BrokersChanged struct{}

// Produce asks whether records may be appended. Acks is Kafka's (-1 all, 0, 1), Timeout bounds the wait for
// acks=all. A produce that may be appended comes back in Effects.Append and is to be answered by AppendDone or
// AppendFailed; any other is completed at once.
type Produce struct {
	Token   Token
	Acks    int16
	Timeout time.Duration
}

// AppendDone says that the records of an accepted produce are in the log at [Base, End). A duplicate of an
// idempotent producer is reported with the offsets it got the first time.
type AppendDone struct {
	Token     Token
	Base, End ident.Offset
}

// AppendFailed says that nothing of an accepted produce was appended; it is completed with Code.
type AppendFailed struct {
	Token Token
	Code  Code
}

// DeleteRecords asks a leader to drop the records below Before (-1: the high watermark). It is answered in
// Effects.Deleted once the replicas on live nodes have dropped them too, or after Timeout.
type DeleteRecords struct {
	Token   Token
	Before  ident.Offset
	Timeout time.Duration
}

// LogStartRaised says that Effects.RaiseLogStart has been done, or that retention has moved the log's start.
type LogStartRaised struct{}

// FlushDone says that LogView.FlushedOffset has moved.
type FlushDone struct{}

// FlushPolicyChanged changes Config.FlushAlways. Switched on, only what is flushed counts from now on; what was
// acknowledged or counted before stays so. Switched off, all that is appended counts.
type FlushPolicyChanged struct{ Always bool }

// Fetch is a read by a follower (Replica >= 0) or a consumer (Replica < 0). It is answered at once in
// Effects.Answers; a caller that would rather wait for more sends ParkFetch next. A follower's Fetch counts as
// its progress unless Again is set, which a caller does when it evaluates a parked fetch once more.
type Fetch struct {
	Token            Token
	Replica          ident.NodeID
	BrokerEpoch      int64       // -1: unknown
	LeaderEpoch      ident.Epoch // -1: not checked
	Offset           ident.Offset
	LastFetchedEpoch ident.Epoch // -1: no divergence check
	LogStart         ident.Offset
	Again            bool
}

// ParkFetch keeps a fetch until something it could read or must know has happened since its answer, whose Below is
// Seen, or until Deadline; its token then comes once in Effects.Wake. If it has happened already, that is at once.
type ParkFetch struct {
	Fetch    Fetch
	Seen     ident.Offset
	Deadline ident.Instant
}

// UnparkFetch forgets a parked fetch without waking it.
type UnparkFetch struct{ Token Token }

// AlterPartitionDone answers the proposal that was made at LeaderEpoch and PartitionEpoch. With Code None the
// Now fields are the controller's state after it.
type AlterPartitionDone struct {
	LeaderEpoch    ident.Epoch
	PartitionEpoch int32
	Code           Code

	NowLeader         ident.NodeID
	NowLeaderEpoch    ident.Epoch
	NowPartitionEpoch int32
	NowISR            []ident.NodeID
}

// FetchResponse is the leader's answer to the fetch that NextFetch asked for. LeaderEpoch, Offset and
// LastFetchedEpoch repeat the question; the answer counts only if they still are the replica's.
type FetchResponse struct {
	LeaderEpoch      ident.Epoch
	Offset           ident.Offset
	LastFetchedEpoch ident.Epoch

	Code           Code
	HighWatermark  ident.Offset
	LeaderLogStart ident.Offset
	// Diverging is set (Epoch or End not -1) when the follower's log differs; with OffsetOutOfRange it is the
	// leader's last epoch and its log end.
	Diverging EpochEnd
	Batches   []Batch
}

// Batch is what a core knows of a record batch. End is exclusive.
type Batch struct {
	Base, End ident.Offset
	Epoch     ident.Epoch
}

// EpochEnd is an epoch and the offset where it ends, exclusive; {-1, -1} when there is none.
type EpochEnd struct {
	Epoch ident.Epoch
	End   ident.Offset
}

// NoEpochEnd is the EpochEnd of nothing.
var NoEpochEnd = EpochEnd{Epoch: ident.UnknownEpoch, End: ident.UnknownOffset}

// FetchedAppended says that the batches of Effects.AppendFetched are in the log.
type FetchedAppended struct{}

// FetchedRefused says that the log refused fetched batches (corrupt, not contiguous); the log is as it was.
type FetchedRefused struct{}

// TruncateDone says that Effects.Truncate has been done.
type TruncateDone struct{}

// DamageChanged says what the log is like by now: Damaged means that records in it are not whole; Refilling, that it
// lacks what it had up to RefillTo since Effects.Quarantine.
type DamageChanged struct {
	Damaged, Refilling bool
	RefillTo           ident.Offset
}

// QuarantineDone says that Effects.Quarantine has been done. A DamageChanged has come before it.
type QuarantineDone struct{}

// DirFailed says that the log can't be trusted any more (a write or a flush failed). The replica answers
// KafkaStorageError to everybody from now on.
type DirFailed struct{}

// Removed says that the replica is going away: everything that waits is completed with NotLeaderOrFollower.
type Removed struct{}

func (Tick) event()               {}
func (MetadataChanged) event()    {}
func (BrokersChanged) event()     {}
func (Produce) event()            {}
func (AppendDone) event()         {}
func (AppendFailed) event()       {}
func (DeleteRecords) event()      {}
func (LogStartRaised) event()     {}
func (FlushDone) event()          {}
func (FlushPolicyChanged) event() {}
func (Fetch) event()              {}
func (ParkFetch) event()          {}
func (UnparkFetch) event()        {}
func (AlterPartitionDone) event() {}
func (FetchResponse) event()      {}
func (FetchedAppended) event()    {}
func (FetchedRefused) event()     {}
func (TruncateDone) event()       {}
func (DamageChanged) event()      {}
func (QuarantineDone) event()     {}
func (DirFailed) event()          {}
func (Removed) event()            {}
