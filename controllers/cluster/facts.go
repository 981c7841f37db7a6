package cluster

import (
	"sync"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// ReasonLagTimeExceeded is the reason of a fact about a replica that its leader took out of the ISR.
const ReasonLagTimeExceeded = "LagTimeExceeded"

// keptFacts is how many facts of one partition are kept: enough for the changes that an operator may see as one.
const keptFacts = 16

// maxPartitions bounds the book: when there are more, the oldest partition's facts go, which costs an event its
// reason and nothing else.
const maxPartitions = 10_000

// FactBook keeps the newest facts about ISR changes by partition, and what nodes told of their disks and of how they
// follow the metadata. It is safe for concurrent use.
type FactBook struct {
	mu    sync.Mutex
	facts map[ident.TopicPartition][]nodefact.Fact
	order []ident.TopicPartition
	disks disks

	metadata    map[ident.NodeID]*NodeMetadata
	acknowledge func(node ident.NodeID, incarnation ident.UUID, upTo int64)
	// opened are the directories that nodes last told to have.
	opened map[ident.NodeID]ident.UUID
}

// NewFactBook returns an empty book.
func NewFactBook() *FactBook {
	return &FactBook{facts: map[ident.TopicPartition][]nodefact.Fact{}, disks: newDisks(), metadata: map[ident.NodeID]*NodeMetadata{}, opened: map[ident.NodeID]ident.UUID{}}
}

// Add keeps a fact that a node told in one of its incarnations, and says whether it is one that somebody may wait for.
func (b *FactBook) Add(node ident.NodeID, incarnation ident.UUID, f nodefact.Fact) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch f.Kind {
	case nodefact.ISRChange:
		b.addISRChange(f)
		return true
	case nodefact.SnapshotInstallStarted, nodefact.SnapshotInstallProgress, nodefact.SnapshotInstallFailed, nodefact.SnapshotInstalled,
		nodefact.MetadataCurrent, nodefact.MetadataBehind:
		return b.addMetadata(node, incarnation, f)
	}
	return b.disks.add(node, incarnation, f)
}

// Opened notes the directory that a node tells to have, formatted or opened, and says whether that is news.
func (b *FactBook) Opened(node ident.NodeID, directory ident.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if directory.IsZero() || b.opened[node] == directory {
		return false
	}
	b.opened[node] = directory
	return true
}

// HasOpened says whether a node has told that it has this directory.
func (b *FactBook) HasOpened(node ident.NodeID, directory ident.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened[node] == directory
}

func (b *FactBook) addISRChange(f nodefact.Fact) {
	key := ident.TopicPartition{Topic: f.TopicID, Index: f.Index}
	of, known := b.facts[key]
	if !known {
		if len(b.order) == maxPartitions {
			delete(b.facts, b.order[0])
			b.order = b.order[1:]
		}
		b.order = append(b.order, key)
	}
	if len(of) == keptFacts {
		of = of[1:]
	}
	b.facts[key] = append(of[:len(of):len(of)], f)
}

// Shrink returns the fact that tells why the leader took a replica out of the ISR with a change that was committed at
// a partition epoch above after and not above until. The newest one counts; when that one tells that the replica came
// back, none is returned.
func (b *FactBook) Shrink(partition ident.TopicPartition, replica ident.NodeID, after, until int32) (nodefact.Fact, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var newest nodefact.Fact
	found := false
	for _, f := range b.facts[partition] {
		if f.Replica != replica || f.PartitionEpoch <= after || f.PartitionEpoch > until {
			continue
		}
		if !found || f.PartitionEpoch >= newest.PartitionEpoch {
			newest, found = f, true
		}
	}
	return newest, found && newest.Reason == ReasonLagTimeExceeded
}
