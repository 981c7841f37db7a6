package raft

import (
	"fmt"
	"math"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Code is a Kafka error code as it goes over the wire.
type Code int16

// The codes of Kafka that the quorum speaks.
const (
	None                       Code = 0
	OffsetOutOfRange           Code = 1
	UnknownTopic               Code = 3
	NotLeaderOrFollower        Code = 6
	RequestTimedOut            Code = 7
	BrokerNotAvailable         Code = 8
	UnsupportedVersion         Code = 35
	InvalidRequest             Code = 42
	FencedLeaderEpoch          Code = 74
	UnknownLeaderEpoch         Code = 75
	SnapshotNotFound           Code = 98
	PositionOutOfRange         Code = 99
	InconsistentClusterID      Code = 104
	InvalidVoterKey            Code = 125
	DuplicateVoter             Code = 126
	VoterNotFound              Code = 127
	ClusterAuthorizationFailed Code = 31
)

// Message is a request or a response of the quorum, stripped to what the core looks at. pkg/quorum/raft/rpc
// turns it into Kafka's message and back.
type Message interface{ message() }

// LeaderInfo is in every response: what the sender knows about the leadership. The receiver takes a newer
// epoch from it.
type LeaderInfo struct {
	Leader ident.NodeID
	Epoch  ident.Epoch
	// Endpoints are the leader's; empty when not known.
	Endpoints []Endpoint
}

// VoteRequest asks for a vote, or, with PreVote, whether one would be given (KIP-996).
type VoteRequest struct {
	ClusterID string
	// Voter is whom the request is meant for; Nobody when the sender could not say (v0).
	Voter     ReplicaKey
	Candidate ReplicaKey
	// Epoch is the candidate's: with PreVote the one it is in, else the one it wants to lead.
	Epoch ident.Epoch
	// LastEpoch and EndOffset say how far the candidate's log goes.
	LastEpoch ident.Epoch
	EndOffset ident.Offset
	PreVote   bool
}

// VoteResponse answers a VoteRequest. That it answers a pre-vote only the asker knows.
type VoteResponse struct {
	Code    Code
	Granted bool
	Current LeaderInfo
}

// BeginQuorumEpochRequest is a leader telling a voter that it leads.
type BeginQuorumEpochRequest struct {
	ClusterID string
	Voter     ReplicaKey
	Leader    ident.NodeID
	Epoch     ident.Epoch
	Endpoints []Endpoint
}

// BeginQuorumEpochResponse answers it.
type BeginQuorumEpochResponse struct {
	Code    Code
	Current LeaderInfo
}

// EndQuorumEpochRequest is a leader telling that it no longer leads, and who should follow it, best first.
type EndQuorumEpochRequest struct {
	ClusterID  string
	Leader     ident.NodeID
	Epoch      ident.Epoch
	Successors []ReplicaKey
}

// EndQuorumEpochResponse answers it.
type EndQuorumEpochResponse struct {
	Code    Code
	Current LeaderInfo
}

// HighWatermarkNotNamed stands in a FetchRequest of a peer that does not say what high watermark it knows
// (before v18): such a fetch is not answered early because of one.
const HighWatermarkNotNamed ident.Offset = math.MaxInt64

// FetchRequest asks the leader for records from an offset on. For a voter it is the acknowledgement of all
// records below: they are on its disk.
type FetchRequest struct {
	ClusterID string
	// Replica is Nobody for an observer without a log.
	Replica ReplicaKey
	// Epoch is the leader epoch the fetcher is in.
	Epoch ident.Epoch
	// Offset is where it goes on, LastEpoch the epoch of its record before that, 0 for an empty log.
	Offset    ident.Offset
	LastEpoch ident.Epoch
	// HighWatermark is what the fetcher knows already (v18, KIP-1166).
	HighWatermark ident.Offset
	MaxBytes      int32
	MaxWait       time.Duration
}

// EpochEnd says where an epoch ends in the leader's log.
type EpochEnd struct {
	Epoch ident.Epoch
	End   ident.Offset
}

// FetchResponse answers a FetchRequest. At most one of Diverging, Snapshot and Records is set.
type FetchResponse struct {
	Code           Code
	Current        LeaderInfo
	HighWatermark  ident.Offset
	LogStartOffset ident.Offset
	// Diverging: the fetcher's log is not a prefix of the leader's; it shares at most what is below.
	Diverging *EpochEnd
	// Snapshot: the leader's log can't serve the offset; it offers this snapshot.
	Snapshot *SnapshotID
	// Records are whole batches. The core looks only at whether there are any.
	Records []byte
}

// SnapshotID names a snapshot by what it holds: all records below End, the last of them of Epoch (KIP-630).
type SnapshotID struct {
	End   ident.Offset
	Epoch ident.Epoch
}

// String is the stem of the snapshot's file name without the leading zeros.
func (s SnapshotID) String() string { return fmt.Sprintf("%d-%d", s.End, s.Epoch) }

// FetchSnapshotRequest asks the leader for a piece of a snapshot that it offered.
type FetchSnapshotRequest struct {
	ClusterID string
	// Replica is Nobody for an observer without a log.
	Replica  ReplicaKey
	Epoch    ident.Epoch
	Snapshot SnapshotID
	// Position is the byte of the snapshot's file where the piece begins.
	Position int64
	MaxBytes int32
}

// FetchSnapshotResponse answers it. A piece may end at any byte.
type FetchSnapshotResponse struct {
	Code     Code
	Current  LeaderInfo
	Snapshot SnapshotID
	// Size is that of the whole file in bytes.
	Size     int64
	Position int64
	Bytes    []byte
}

// AddVoterRequest asks the leader to make a replica a voter, one that follows the log already (KIP-853).
type AddVoterRequest struct {
	ClusterID string
	Voter     Voter
	// AckAppended: answer when the change is appended; else when it is committed.
	AckAppended bool
	Timeout     time.Duration
}

// RemoveVoterRequest asks the leader to take a replica out of the voter set (KIP-853).
type RemoveVoterRequest struct {
	ClusterID string
	Voter     ReplicaKey
}

// UpdateVoterRequest is a voter telling its leader that it is reached elsewhere than the voter set says (KIP-853).
type UpdateVoterRequest struct {
	ClusterID string
	// Epoch is the leader epoch that the voter is in.
	Epoch ident.Epoch
	Voter Voter
}

// KRaftVersionsRequest asks a node that is to become a voter which versions of the quorum's protocol it knows (KIP-853).
// Between real nodes it is an ApiVersions request, which the listener answers.
type KRaftVersionsRequest struct{}

// KRaftVersionsResponse answers it with the supported range of the feature kraft.version. One that does not know the
// feature supports 0 to 0.
type KRaftVersionsResponse struct {
	Code     Code
	Min, Max int16
}

// ChangeVotersResponse answers a request to add, remove or update a voter.
type ChangeVotersResponse struct {
	Code Code
	// Message says in words why not; empty with None.
	Message string
	Current LeaderInfo
}

func (*VoteRequest) message()              {}
func (*VoteResponse) message()             {}
func (*BeginQuorumEpochRequest) message()  {}
func (*BeginQuorumEpochResponse) message() {}
func (*EndQuorumEpochRequest) message()    {}
func (*EndQuorumEpochResponse) message()   {}
func (*FetchRequest) message()             {}
func (*FetchResponse) message()            {}
func (*FetchSnapshotRequest) message()     {}
func (*FetchSnapshotResponse) message()    {}
func (*AddVoterRequest) message()          {}
func (*RemoveVoterRequest) message()       {}
func (*UpdateVoterRequest) message()       {}
func (*KRaftVersionsRequest) message()     {}
func (*KRaftVersionsResponse) message()    {}
func (*ChangeVotersResponse) message()     {}
