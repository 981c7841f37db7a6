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

	// SnapshotInstallStarted tells that this node's metadata log ends where its leader's no longer begins, so that it
	// was given a snapshot to fetch and install (KIP-630). From there until it has applied what was committed then is
	// one install, with one id (Install), however often the node restarts or is given a newer snapshot on the way.
	// Its start and its end are told again after a restart of the node, until they were acknowledged.
	SnapshotInstallStarted = "SnapshotInstallStarted"
	// SnapshotInstallProgress tells how far an install is: Bytes of TotalBytes, at BytesPerSecond. It comes at most
	// every two seconds, and only the newest of an install is kept.
	SnapshotInstallProgress = "SnapshotInstallProgress"
	// SnapshotInstallFailed tells that what there was of a snapshot had to be given up; Reason is one of the constants
	// below, Message the error. The install goes on: the node begins another download. A reason that repeats within
	// one install is told seldom.
	SnapshotInstallFailed = "SnapshotInstallFailed"
	// SnapshotInstalled tells that an install is over: the node has applied what was committed when it began. Bytes is
	// the size of the snapshot; 0 when in the end the node came there without one.
	SnapshotInstalled = "SnapshotInstalled"

	// MetadataCurrent tells that this node follows the metadata log, and has applied what it knows to be committed.
	MetadataCurrent = "MetadataCurrent"
	// MetadataBehind tells that it does not: it installs a snapshot, knows no leader, or can't follow it.
	MetadataBehind = "MetadataBehind"
)

// Reasons of a SnapshotInstallFailed.
const (
	// InstallLeaderLost: the leader that sent the snapshot is gone, or leads another epoch. Another one's bytes can't
	// continue what is here.
	InstallLeaderLost = "LeaderLost"
	// InstallSnapshotGone: the leader has a newer snapshot by now and no longer serves this one.
	InstallSnapshotGone = "SnapshotGone"
	// InstallWrongSize: the pieces do not make up the size that the leader told.
	InstallWrongSize = "WrongSize"
	// InstallWrongID: the leader sent something else than what it was asked for.
	InstallWrongID = "WrongID"
	// InstallWrongCRC: a batch does not have the checksum that it should.
	InstallWrongCRC = "WrongCRC"
	// InstallWrongHeader and InstallWrongFooter: the snapshot does not begin or end as one does.
	InstallWrongHeader = "WrongHeader"
	InstallWrongFooter = "WrongFooter"
	// InstallWrongContent: anything else in it that is not what a snapshot holds.
	InstallWrongContent = "WrongContent"
	// InstallDisk: this node could not write it. The node stops or waits for its disk.
	InstallDisk = "Disk"
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

	// Install is the id of a snapshot's install, drawn once for each; SnapshotID the snapshot that was offered last, as
	// its file is called: <end offset, 20 digits>-<epoch, 10 digits>.
	Install    ident.UUID `json:"install,omitzero"`
	SnapshotID string     `json:"snapshotId,omitempty"`
	// Bytes of TotalBytes of the snapshot are here; TotalBytes is 0 until the leader has told it.
	Bytes          int64 `json:"bytes,omitempty"`
	TotalBytes     int64 `json:"totalBytes,omitempty"`
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// DurationMillis is how long an install has taken since it was begun, restarts of the node included.
	DurationMillis int64 `json:"durationMillis,omitempty"`
}

// Page is one answer of the stream. Incarnation changes with the process: a reader that holds another
// one's number begins anew.
type Page struct {
	Incarnation ident.UUID `json:"incarnation"`
	// DirectoryID is that of the volume which the node has formatted or opened; zero before that.
	DirectoryID ident.UUID `json:"directoryId"`
	Facts       []Fact     `json:"facts"`
}
