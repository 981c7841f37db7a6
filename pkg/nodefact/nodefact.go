// Package nodefact has what a node tells over HTTP and the operator reads: facts that the metadata log does not carry.
package nodefact

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Kinds of facts. A fact is what the metadata log does not carry: why something was proposed that was committed, and
// what a node met on its disk.
const (
	// ISRChange tells why this leader proposed to take a replica out of the ISR or into it.
	ISRChange = "ISRChange"
	// ReplicaReset tells that this follower restarted at the leader's log start.
	ReplicaReset = "ReplicaReset"
	// LogRecovered tells what the recovery of a log after an unclean stop repaired.
	LogRecovered = "LogRecovered"
	// ReplicaDeleted tells that this node's copy of a partition is gone from its disk, and by Reason why it went:
	// TopicDeleted or Reassigned; empty when the deletion was begun by an earlier process.
	ReplicaDeleted = "ReplicaDeleted"
	// LogDirOffline tells that this node can't use its data directory and serves none of its replicas. Reason is one
	// of the constants below, Message the error that was met. A node that comes back to the directory does so
	// in another incarnation.
	LogDirOffline = "LogDirOffline"
	// ReplicaDamaged tells that the log of this node's replica is damaged in the offsets from From up to, but not
	// including, To. Message is what was found, where.
	ReplicaDamaged = "ReplicaDamaged"
	// ReplicaRefilled tells that this node's replica has again what was damaged, from its leader.
	ReplicaRefilled = "ReplicaRefilled"
)

// Reasons of a LogDirOffline.
const (
	// DiskFull: no space is left on the volume.
	DiskFull = "DiskFull"
	// ReadOnly: the volume takes no writes.
	ReadOnly = "ReadOnly"
	// IOError: the volume failed to read or write.
	IOError = "IOError"
	// Unreadable: what is on the volume can't be read as a data directory.
	Unreadable = "Unreadable"
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
	// From and To bound the offsets that a ReplicaDamaged or a ReplicaRefilled speaks of; To is the first one behind.
	From    ident.Offset `json:"from,omitempty"`
	To      ident.Offset `json:"to,omitempty"`
	Message string       `json:"message,omitempty"`
}

// Page is one answer of the stream. Incarnation changes with the process: a reader that holds another
// one's number begins anew.
type Page struct {
	Incarnation ident.UUID `json:"incarnation"`
	Facts       []Fact     `json:"facts"`
}
