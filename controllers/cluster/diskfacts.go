package cluster

import (
	"maps"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// disks is what nodes told of their disks. It is the part of a FactBook that its lock guards.
type disks struct {
	offline map[ident.NodeID]offlineDir
	damage  map[replicaKey]nodefact.Fact
}

// offlineDir is a LogDirOffline and the incarnation that told it: a directory never comes back within one.
type offlineDir struct {
	incarnation ident.UUID
	fact        nodefact.Fact
	// registered is the incarnation that the metadata had when the fact came: that one, or an earlier one, for a node
	// may lose its directory before it has registered. Any other is a later one. It is known once seen is true.
	registered ident.UUID
	seen       bool
}

type replicaKey struct {
	ident.TopicPartition
	node ident.NodeID
}

func newDisks() disks {
	return disks{offline: map[ident.NodeID]offlineDir{}, damage: map[replicaKey]nodefact.Fact{}}
}

func (d disks) add(node ident.NodeID, incarnation ident.UUID, f nodefact.Fact) bool {
	key := replicaKey{ident.TopicPartition{Topic: f.TopicID, Index: f.Index}, node}
	switch f.Kind {
	case nodefact.LogDirOffline:
		told := d.offline[node]
		if told.incarnation != incarnation {
			told = offlineDir{incarnation: incarnation}
		}
		told.fact = f // a full disk may turn out to be broken
		d.offline[node] = told
	case nodefact.ReplicaDamaged:
		before, known := d.damage[key]
		switch {
		case known: // further damage of the same replica
			f.From, f.To = min(f.From, before.From), max(f.To, before.To)
		case len(d.damage) == maxPartitions:
			return false // it costs the offsets in a message: what is damaged stands in the metadata
		}
		d.damage[key] = f
	case nodefact.ReplicaRefilled:
		delete(d.damage, key)
	default:
		return false
	}
	return true
}

// Began notes that a node answers in another incarnation: what an earlier one told of its directory is over, and what
// became of its damaged replicas and of its installs is for this one to tell.
func (b *FactBook) Began(node ident.NodeID, incarnation ident.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.metadata, node)
	maps.DeleteFunc(b.disks.damage, func(key replicaKey, _ nodefact.Fact) bool { return key.node == node })
	if told, has := b.disks.offline[node]; has && told.incarnation != incarnation {
		delete(b.disks.offline, node)
	}
}

// LogDirOffline returns what a node tells of its directory when that is offline. The committed metadata, where it is
// known, decides whether it still holds: a node that serves in a later incarnation has opened the directory anew. That
// was then the last word of the earlier one, also when the node is fenced again before it has answered in the new one.
func (b *FactBook) LogDirOffline(image *metadata.Image, node ident.NodeID) (nodefact.Fact, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	told, has := b.disks.offline[node]
	if !has || image == nil {
		return told.fact, has
	}
	broker, registered := image.Broker(node)
	switch {
	case !registered:
	case !told.seen:
		told.registered = broker.Incarnation
	case broker.Active() && broker.Incarnation != told.incarnation && broker.Incarnation != told.registered:
		delete(b.disks.offline, node)
		return nodefact.Fact{}, false
	}
	told.seen = true
	b.disks.offline[node] = told
	return told.fact, true
}

// Damage returns what a node told of its replica of a partition when that was damaged, the offsets being the first and
// the last of all that is.
func (b *FactBook) Damage(partition ident.TopicPartition, node ident.NodeID) (nodefact.Fact, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fact, has := b.disks.damage[replicaKey{partition, node}]
	return fact, has
}
