package raft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// VoteState is the part of a voter's memory that must outlive it: Kafka's quorum-state file.
type VoteState struct {
	Epoch ident.Epoch
	// Leader of the epoch, NoNode when not known.
	Leader ident.NodeID
	// Voted is for whom this node voted in the epoch, Nobody when for none.
	Voted ReplicaKey
}

// NoVote is the state of a node that was never in any epoch.
func NoVote() VoteState { return VoteState{Leader: ident.NoNode, Voted: Nobody} }

// LogView is what the core sees of the log. It is read only inside Step, in the goroutine of Step.
type LogView interface {
	StartOffset() ident.Offset
	EndOffset() ident.Offset
	// LatestEpoch is the epoch of the last record, UnknownEpoch when there is none.
	LatestEpoch() ident.Epoch
	// EpochEndOffset is the largest epoch not above e and where it ends; false when that can't be told.
	EpochEndOffset(e ident.Epoch) (ident.Epoch, ident.Offset, bool)
	// OldestSnapshot and LatestSnapshot are those that are whole and on disk; false when there is none. The 0-0
	// checkpoint of a new cluster is none. A log that starts above 0 starts at the end of the oldest one, or below
	// it.
	OldestSnapshot() (SnapshotID, bool)
	LatestSnapshot() (SnapshotID, bool)
	// WholeSnapshot is the latest that can be served; false when there is none, or when the latest is known to be
	// damaged and no new one is there yet. A damaged one still counts for the two above: it tells of which epoch the
	// record before the log's start is.
	WholeSnapshot() (SnapshotID, bool)
}

// Event is something that happened.
type Event interface{ event() }

type (
	// Start is the first event of a Node.
	Start struct{}
	// Tick is time that went by. Any event serves as one; this one carries nothing else.
	Tick struct{}
	// Request is a message from another node that wants an answer. The token comes back in Effects.Replies or
	// Effects.Reads, exactly once.
	Request struct {
		Token uint64
		Msg   Message
	}
	// Response answers a Send, or tells that it failed. One that nobody waits for any more is ignored.
	Response struct {
		From        ident.NodeID
		Correlation uint64
		Msg         Message
		Err         error
	}
	// AppendDone follows each append that was asked for, and each proposal. Voters lists the voter sets among
	// the appended control records.
	AppendDone struct {
		End    ident.Offset
		Voters []VotersAt
	}
	// AppendRefused follows an append of fetched records that did not fit or did not verify: nothing was
	// appended. An append that failed for the disk's sake stops the node instead.
	AppendRefused struct{ Err error }
	// TruncateDone follows each truncation. What lies at and above To is gone.
	TruncateDone struct{ To ident.Offset }
	// ChunkStored follows each SnapshotChunk that was written into the partial file.
	ChunkStored struct {
		Snapshot SnapshotID
		// Position is the end of the chunk.
		Position int64
	}
	// SnapshotRefused follows a chunk or a whole snapshot that is not what it should be: nothing of it is left.
	// What failed for the disk's sake stops the node instead.
	SnapshotRefused struct {
		Snapshot SnapshotID
		Err      error
	}
	// SnapshotInstalled follows each install: the snapshot is in its place, and the log begins at its end, empty
	// unless it held that very position and epoch. Voters is the snapshot's voter set.
	SnapshotInstalled struct {
		Snapshot SnapshotID
		Voters   VoterSet
	}
	// FlushDone tells that the records below End are on disk.
	FlushDone struct{ End ident.Offset }
	// Unreachable is a hint: the connection to this node was reset and it refuses a new one. A follower of it
	// then does not wait out its fetch time-out.
	Unreachable struct{ Node ident.NodeID }
	// Resign asks a leader to give up, when it leads this epoch.
	Resign struct{ Epoch ident.Epoch }
)

func (Start) event()             {}
func (Tick) event()              {}
func (Request) event()           {}
func (Response) event()          {}
func (AppendDone) event()        {}
func (AppendRefused) event()     {}
func (TruncateDone) event()      {}
func (ChunkStored) event()       {}
func (SnapshotRefused) event()   {}
func (SnapshotInstalled) event() {}
func (FlushDone) event()         {}
func (Unreachable) event()       {}
func (Resign) event()            {}

// LeaderStart is the control batch that a new leader appends at the start of its epoch.
type LeaderStart struct {
	Epoch    ident.Epoch
	Leader   ident.NodeID
	Voters   []ReplicaKey
	Granting []ReplicaKey
	// Bootstrap, when not nil, is the voter set of the 0-0 checkpoint, to be written into the log together
	// with kraft.version 1: this is the first leader that the log has seen (KIP-853).
	Bootstrap VoterSet
}

// FetchedRecords are to be appended behind the log's end.
type FetchedRecords struct {
	// Offset is where they must begin.
	Offset ident.Offset
	// Epoch: a batch of a later one is not to be appended, nor what follows it.
	Epoch   ident.Epoch
	Records []byte
}

// Read is a fetch to be answered with what the log holds from Offset on.
type Read struct {
	Token uint64
	// Replica has all below Offset.
	Replica  ReplicaKey
	Offset   ident.Offset
	MaxBytes int32
	// Response lacks only the records.
	Response *FetchResponse
}

// VotersChange is a voter set that a leader appends as a control record of its epoch (KIP-853).
type VotersChange struct {
	Epoch  ident.Epoch
	Voters VoterSet
}

// SnapshotChunk is a piece of a snapshot of the leader's. One at position 0 begins the partial file anew; each other
// one continues it.
type SnapshotChunk struct {
	Snapshot SnapshotID
	Position int64
	Bytes    []byte
}

// SnapshotRead is a FetchSnapshotRequest to be answered from the snapshot's file.
type SnapshotRead struct {
	Token    uint64
	Replica  ReplicaKey
	MaxBytes int32
	// Response has Snapshot and Position as they were asked for, and lacks size and bytes, or else the code:
	// SnapshotNotFound, or PositionOutOfRange when Position is not within the file.
	Response *FetchSnapshotResponse
}

// Reply answers a Request.
type Reply struct {
	Token uint64
	Msg   Message
}

// Send is a request to another node. Its answer comes back as a Response with this correlation.
type Send struct {
	To          ident.NodeID
	Correlation uint64
	Msg         Message
	// Endpoints is where the node is reached when nobody else knows it: it is not a voter yet. Else Node.Endpoints says.
	Endpoints []Endpoint
}

// Leadership is who leads the quorum, as far as this node knows.
type Leadership struct {
	Leader    ident.NodeID
	Epoch     ident.Epoch
	Endpoints []Endpoint
}

// Effects is what a Step wants done. It belongs to the caller, who may use it again after Reset. The order of
// the fields is the order in which they have to be done; each that goes to disk has to be done, in a way that
// a crash can't undo where it says so, before the next, and before any Reply or Send leaves. An error of the
// disk stops the node.
type Effects struct {
	// SaveVote: first fsync the log, then replace the quorum-state file, both durably.
	//
	// The log must be on disk before a vote is: voters take a candidate that asks again after a restart for
	// the one they voted for and don't look at its log a second time, so it must not have become shorter.
	SaveVote *VoteState
	// Truncate cuts the log to this end, then TruncateDone. Nil: don't.
	Truncate *ident.Offset
	// LeaderStart is to be appended as leader of its epoch, then AppendDone.
	LeaderStart *LeaderStart
	// AppendVoters is to be appended as leader, then AppendDone with the set among its Voters.
	AppendVoters *VotersChange
	// Append is to be verified and appended as follower, then AppendDone or AppendRefused.
	Append *FetchedRecords
	// DropSnapshot: what there is of a partial snapshot is of no use any more.
	DropSnapshot bool
	// Chunk is to be written into the partial file, then ChunkStored or SnapshotRefused.
	Chunk *SnapshotChunk
	// Install: the partial file is all there. It is to be checked whole and then to become the state of this node,
	// durably at every step, then SnapshotInstalled or SnapshotRefused. No other event may be handed in between:
	// the log is not what this node knows of it until then.
	Install *SnapshotID
	// FlushWanted: there are records whose FlushDone somebody waits for. It need not be at once, and what is
	// appended meanwhile may go with it.
	FlushWanted bool
	// Reads are fetches to be answered from the log, SnapshotReads from a snapshot.
	Reads         []Read
	SnapshotReads []SnapshotRead
	Replies       []Reply
	Sends         []Send

	// Leadership changed.
	Leadership *Leadership
	// Leading: this node leads the epoch and its high watermark is beyond the start of it. The state machine
	// may be told once it has applied everything below the high watermark of this moment (KAFKA-17333).
	Leading *EpochStart
	// HighWatermark moved to here. Nil: it did not move.
	HighWatermark *ident.Offset
	// Fatal: an invariant is broken; nothing else of these effects may be done and the node must stop.
	Fatal error
}

// EpochStart is where a leader's epoch starts.
type EpochStart struct {
	Epoch ident.Epoch
	Start ident.Offset
}

// Clone returns a copy that a Reset of e leaves alone.
func (e *Effects) Clone() *Effects {
	c := *e
	c.Reads, c.SnapshotReads = slices.Clone(e.Reads), slices.Clone(e.SnapshotReads)
	c.Replies, c.Sends = slices.Clone(e.Replies), slices.Clone(e.Sends)
	return &c
}

// Reset empties e and keeps its memory.
func (e *Effects) Reset() {
	*e = Effects{Reads: e.Reads[:0], SnapshotReads: e.SnapshotReads[:0], Replies: e.Replies[:0], Sends: e.Sends[:0]}
}

// ErrUnsupportedVersion is the error of a Response when the peer does not know the message or this version of it.
var ErrUnsupportedVersion = errors.New("the peer does not support this version")

// ErrNotLeader is why a proposal is refused by a node that does not lead the epoch it names.
var ErrNotLeader = errors.New("not the leader of this epoch")

// ErrTooLarge is why a proposal above ProposeMaxBytes is refused.
var ErrTooLarge = errors.New("too large to be appended in one piece")

// InvariantError says which rule of the quorum was found broken, with the numbers.
type InvariantError struct{ Text string }

func (e *InvariantError) Error() string { return "raft: invariant broken: " + e.Text }

func (n *Node) fatal(format string, args ...any) {
	if n.out.Fatal == nil {
		n.out.Fatal = &InvariantError{fmt.Sprintf("node %s, epoch %d, %s: ", n.cfg.Self, n.vote.Epoch, n.role) + fmt.Sprintf(format, args...)}
	}
}
