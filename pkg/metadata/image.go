package metadata

import (
	"iter"

	"github.com/highwater-io/highwater/pkg/ident"
)

// An Image is the state of the cluster after all records of the metadata log up to a position. It never changes;
// a Delta makes the next one, which shares what did not change. So what its accessors hand out must not be
// written to.
type Image struct {
	offset ident.Offset
	epoch  ident.Epoch

	features    sorted[string, int16]
	brokers     sorted[ident.NodeID, *Broker]
	controllers sorted[ident.NodeID, *Controller]
	topics      sorted[ident.UUID, *Topic]
	topicIDs    sorted[string, ident.UUID]
	configs     sorted[ConfigResource, Config]
	quotas      sorted[string, quota]
	acls        sorted[ident.UUID, *AccessControlEntryRecord]
	scram       sorted[scramKey, *UserScramCredentialRecord]
	tokens      sorted[string, *DelegationTokenRecord]

	nextProducerID int64
}

var empty = &Image{
	offset:         ident.UnknownOffset,
	epoch:          ident.UnknownEpoch,
	features:       ordered[string, int16](),
	brokers:        ordered[ident.NodeID, *Broker](),
	controllers:    ordered[ident.NodeID, *Controller](),
	topics:         newSorted[ident.UUID, *Topic](ident.UUID.Compare),
	topicIDs:       ordered[string, ident.UUID](),
	configs:        newSorted[ConfigResource, Config](ConfigResource.Compare),
	quotas:         ordered[string, quota](),
	acls:           newSorted[ident.UUID, *AccessControlEntryRecord](ident.UUID.Compare),
	scram:          newSorted[scramKey, *UserScramCredentialRecord](scramKey.compare),
	tokens:         ordered[string, *DelegationTokenRecord](),
	nextProducerID: -1,
}

// Empty returns the image of a log without records. Its position is (-1, -1).
func Empty() *Image { return empty }

// Position returns the offset and epoch of the last record that the image contains.
func (im *Image) Position() (ident.Offset, ident.Epoch) { return im.offset, im.epoch }

// Level returns the image's metadata.version, or Pinned when the log has not set one.
func (im *Image) Level() Level {
	if v, ok := im.features.get(FeatureMetadataVersion); ok {
		return Level(v)
	}
	return Pinned
}

// Feature returns the finalized level of a feature; 0 is off, as is a feature that nobody set. kraft.version is
// not among them: it is kept with the voters.
func (im *Image) Feature(name string) int16 {
	level, _ := im.features.get(name)
	return level
}

// Features goes through the finalized features by name.
func (im *Image) Features() iter.Seq2[string, int16] { return im.features.all() }

// Broker returns a registered broker, fenced or not.
func (im *Image) Broker(id ident.NodeID) (*Broker, bool) { return im.brokers.get(id) }

// Brokers goes through the registered brokers in the order of their ids.
func (im *Image) Brokers() iter.Seq[*Broker] { return im.brokers.values() }

// NumBrokers returns how many brokers are registered.
func (im *Image) NumBrokers() int { return im.brokers.len() }

// Controller returns a registered controller.
func (im *Image) Controller(id ident.NodeID) (*Controller, bool) { return im.controllers.get(id) }

// Controllers goes through the registered controllers in the order of their ids.
func (im *Image) Controllers() iter.Seq[*Controller] { return im.controllers.values() }

// Topic returns the topic of that name.
func (im *Image) Topic(name string) (*Topic, bool) {
	id, ok := im.topicIDs.get(name)
	if !ok {
		return nil, false
	}
	return im.topics.get(id)
}

// TopicByID returns the topic of that id.
func (im *Image) TopicByID(id ident.UUID) (*Topic, bool) { return im.topics.get(id) }

// Topics goes through the topics in the order of their names.
func (im *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, id := range im.topicIDs.all() {
			if t, _ := im.topics.get(id); !yield(t) {
				return
			}
		}
	}
}

// NumTopics returns how many topics there are.
func (im *Image) NumTopics() int { return im.topics.len() }

// Partition returns a partition by topic id and index.
func (im *Image) Partition(p ident.TopicPartition) (*Partition, bool) {
	t, ok := im.topics.get(p.Topic)
	if !ok {
		return nil, false
	}
	return t.Partition(p.Index)
}

// Config returns what is set for a resource; of a resource for which nothing is set, an empty Config.
func (im *Image) Config(resourceType int8, name string) Config {
	c, _ := im.configs.get(ConfigResource{resourceType, name})
	return c
}

// Configs goes through all resources for which something is set, by type, then name.
func (im *Image) Configs() iter.Seq2[ConfigResource, Config] { return im.configs.all() }

// NextProducerID returns the first producer id that was not given out yet, or -1 when none was ever given out.
func (im *Image) NextProducerID() int64 { return im.nextProducerID }

// ACLs goes through the access control entries by id.
func (im *Image) ACLs() iter.Seq[*AccessControlEntryRecord] { return im.acls.values() }

// ScramCredential returns what the user authenticates against.
func (im *Image) ScramCredential(mechanism int8, user string) (*UserScramCredentialRecord, bool) {
	return im.scram.get(scramKey{mechanism, user})
}

// ScramCredentials goes through the credentials by mechanism, then name.
func (im *Image) ScramCredentials() iter.Seq[*UserScramCredentialRecord] { return im.scram.values() }

// DelegationTokens goes through the delegation tokens by id.
func (im *Image) DelegationTokens() iter.Seq[*DelegationTokenRecord] { return im.tokens.values() }

// Quotas goes through the client quotas: what they are for, the quota's name and its value.
func (im *Image) Quotas() iter.Seq2[[]QuotaEntity, QuotaValue] {
	return func(yield func([]QuotaEntity, QuotaValue) bool) {
		for q := range im.quotas.values() {
			for key, value := range q.values.all() {
				if !yield(q.entity, QuotaValue{key, value}) {
					return
				}
			}
		}
	}
}

// Equal says whether both images stand at the same position and say the same.
func (im *Image) Equal(other *Image) bool {
	return im.offset == other.offset && im.epoch == other.epoch && im.SameState(other)
}

// SameState says whether both images say the same, whatever their positions.
func (im *Image) SameState(other *Image) bool {
	return im == other || sameRecords(im.Records(), other.Records())
}
