// Package nodefact has what a node tells over HTTP and the operator reads: facts that the metadata log does not carry.
package nodefact

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Kinds of facts. A fact is what the metadata log does not carry: why the leader proposed what was committed.
const (
	// ISRChange tells why this leader proposed to take a replica out of the ISR or into it.
	ISRChange = "ISRChange"
	// ReplicaReset tells that this follower restarted at the leader's log start.
	ReplicaReset = "ReplicaReset"
	// LogRecovered tells what the recovery of a log after an unclean stop repaired.
	LogRecovered = "LogRecovered"
)

// Fact is one entry of the node's numbered stream. A reader joins it to the commit by topic id, index and
// partition epoch.
type Fact struct {
	Seq            int64        `json:"seq"`
	Kind           string       `json:"kind"`
	Time           time.Time    `json:"time"`
	TopicID        ident.UUID   `json:"topicId"`
	Topic          string       `json:"topic,omitempty"`
	Index          int32        `json:"index"`
	LeaderEpoch    ident.Epoch  `json:"leaderEpoch"`
	PartitionEpoch int32        `json:"partitionEpoch"`
	Replica        ident.NodeID `json:"replica"`
	Reason         string       `json:"reason"`
	LagOffsets     int64        `json:"lagOffsets"`
	LagMillis      int64        `json:"lagMillis"`
	Message        string       `json:"message,omitempty"`
}

// Page is one answer of the stream. Incarnation changes with the process: a reader that holds another
// one's number begins anew.
type Page struct {
	Incarnation ident.UUID `json:"incarnation"`
	Facts       []Fact     `json:"facts"`
}
