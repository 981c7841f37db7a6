package controller

import (
	"fmt"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/topicconfig"
)

// A state is an image and what is derived from it. It is a value: steps of a decision work on a copy.
type state struct {
	image    *metadata.Image
	index    index
	defaults topicconfig.Defaults
}

func newState(image *metadata.Image, defaults topicconfig.Defaults) state {
	return state{image: image, index: newIndex(image), defaults: defaults}
}

// with returns the state after the records, of which the last stands at the given position.
func (s state) with(records []metadata.Record, last ident.Offset, epoch ident.Epoch) state {
	delta := metadata.NewDelta(s.image)
	for _, r := range records {
		switch r.(type) {
		case *metadata.BeginTransactionRecord, *metadata.EndTransactionRecord, *metadata.AbortTransactionRecord:
			continue // a decision holds the whole of a transaction, or nothing of it that counts
		}
		if err := delta.Replay(r); err != nil {
			panic(fmt.Sprintf("controller: a record that was just decided does not apply, by offset %d: %v", last, err))
		}
	}
	image := delta.Image(last, epoch)
	return state{image: image, index: s.index.after(image, delta), defaults: s.defaults}
}

func (s *state) broker(id ident.NodeID) *metadata.Broker {
	b, ok := s.image.Broker(id)
	if !ok {
		return nil
	}
	return b
}

// active says whether the broker is registered, unfenced and not shutting down: it may lead and be in sync.
func (s *state) active(id ident.NodeID) bool {
	b := s.broker(id)
	return b != nil && b.Active()
}

// partition returns a partition that is known to exist, with its topic.
func (s *state) partition(tp ident.TopicPartition) (*metadata.Topic, *metadata.Partition) {
	topic, _ := s.image.TopicByID(tp.Topic)
	p, _ := topic.Partition(tp.Index)
	return topic, p
}

// topicConfig returns what a topic itself sets.
func (s *state) topicConfig(name string) topicconfig.Get {
	return s.image.Config(metadata.ResourceTopic, name).Get
}

// uncleanAllowed says whether a replica that is out of sync may lead the topic's partitions when no other can.
func (s *state) uncleanAllowed(topic *metadata.Topic) bool {
	key, _ := topicconfig.Lookup(topicconfig.UncleanLeaderElectionEnable)
	v, _ := s.defaults.Value(key, s.topicConfig(topic.Name))
	return topicconfig.IsTrue(v)
}

// automatic is how leaders of the topic are elected when nobody asked for an election.
func (s *state) automatic(topic *metadata.Topic) election {
	if s.uncleanAllowed(topic) {
		return electUnclean
	}
	return electOnline
}

// defaultDir is the directory that a new replica on the broker gets (KIP-858): the only one it has, or else one
// that the broker will name.
func (s *state) defaultDir(id ident.NodeID) ident.UUID {
	if b := s.broker(id); b != nil && len(b.LogDirs) == 1 {
		return b.LogDirs[0]
	}
	return ident.UnassignedDirectory
}
