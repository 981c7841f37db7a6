package cluster

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// Reach says how the operator stands to the metadata quorum.
type Reach int

const (
	// Starting means that no voter has answered since the connection was made.
	Starting Reach = iota
	// Following means that the quorum has a leader and the operator reads its log.
	Following
	// NoLeader means that voters answer, and none of them knows a leader.
	NoLeader
	// Disconnected means that no voter answers.
	Disconnected
)

// String is for logs.
func (r Reach) String() string {
	return [...]string{"Starting", "Following", "NoLeader", "Disconnected"}[r]
}

// State is what is known of a cluster at one moment.
type State struct {
	// Image is the committed metadata, nil until it reached the quorum leader's high watermark once. It stays as it
	// was while the quorum can't be reached.
	Image *metadata.Image
	// Leader of the metadata quorum, ident.NoNode when none is known, and its epoch.
	Leader ident.NodeID
	Epoch  ident.Epoch
	// Voters is the committed voter set as of Image; empty while Image is nil or no set was read. It is not to be
	// changed.
	Voters []Voter
	// Reach says whether Leader and Image are the newest there are, and Since when that began.
	Reach Reach
	Since time.Time
	// Tried are the addresses that did not answer, when Reach is Disconnected.
	Tried []string
}

// Voter is a member of the voter set: a node with a certain directory (KIP-853).
type Voter struct {
	ID          ident.NodeID
	DirectoryID ident.UUID
}

// Change tells that something in a ReplicaSet's cluster changed.
type Change struct {
	ReplicaSet types.NamespacedName
	// Topics are the names of the topics that changed.
	Topics []string
	// Everything says that any Partition of the ReplicaSet may be concerned: a node was fenced, the quorum was lost
	// or found, the metadata was read anew.
	Everything bool
}

// Target is where the nodes of a ReplicaSet are.
type Target struct {
	ReplicaSet types.NamespacedName
	UID        types.UID
	ClusterID  ident.UUID
	// Voters are the addresses, host:port, of the voters' CONTROLLER listeners.
	Voters map[ident.NodeID]string
	// Facts are the addresses, host:port, of the nodes' HTTP listeners.
	Facts map[ident.NodeID]string
}
