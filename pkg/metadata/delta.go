package metadata

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// A Delta takes records and makes of an image the next one. It also says what changed. Not for concurrent use.
type Delta struct {
	base *Image
	next Image // its maps are replaced, never written into

	topics       map[ident.UUID]struct{}
	partitions   map[ident.TopicPartition]struct{}
	deleted      map[ident.UUID]*Topic // topics of base that are gone
	brokers      map[ident.NodeID]struct{}
	controllers  map[ident.NodeID]struct{}
	configs      map[ConfigResource]struct{}
	features     map[string]struct{}
	otherChanges bool

	// filling: the delta loads a snapshot, and says nothing of what changed; see loading.
	filling bool
}

// NewDelta begins a delta on top of base.
func NewDelta(base *Image) *Delta {
	return &Delta{
		base: base, next: *base,
		topics:      map[ident.UUID]struct{}{},
		partitions:  map[ident.TopicPartition]struct{}{},
		deleted:     map[ident.UUID]*Topic{},
		brokers:     map[ident.NodeID]struct{}{},
		controllers: map[ident.NodeID]struct{}{},
		configs:     map[ConfigResource]struct{}{},
		features:    map[string]struct{}{},
	}
}

// loading begins a delta that takes the records of a snapshot. What comes by the hundred thousand is written in place
// until Image is called, the records' lists become the image's, and no list of changes is kept: a load takes little more
// memory than the image that comes of it.
func loading() *Delta {
	d := NewDelta(empty)
	d.filling = true
	d.next.topics = toFill[ident.UUID, *Topic](ident.UUID.Compare)
	d.next.topicIDs = toFill[string, ident.UUID](cmp.Compare[string])
	d.next.configs = toFill[ConfigResource, Config](ConfigResource.Compare)
	return d
}

// freeze ends the filling.
func (d *Delta) freeze() {
	if !d.filling {
		return
	}
	d.filling = false
	for t := range d.next.topics.values() {
		t.partitions = t.partitions.frozen()
	}
	d.next.topics, d.next.topicIDs, d.next.configs = d.next.topics.frozen(), d.next.topicIDs.frozen(), d.next.configs.frozen()
}

// ErrReplay is wrapped by Replay's errors: the record doesn't fit the image, so either the log or the code that
// wrote it is wrong. A node must not go on with it (KIP-631).
var ErrReplay = errors.New("metadata record does not fit the image")

func misfit(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrReplay, fmt.Errorf(format, args...))
}

// Base returns the image that the delta began with.
func (d *Delta) Base() *Image { return d.base }

// Image returns the image with all replayed records, as of the given position. The delta may go on after it.
func (d *Delta) Image(lastOffset ident.Offset, lastEpoch ident.Epoch) *Image {
	d.freeze()
	next := d.next
	next.offset, next.epoch = lastOffset, lastEpoch
	return &next
}

// Replay applies a record. After an error the delta is as it was before. Transaction markers are the Loader's and
// are refused here.
func (d *Delta) Replay(record Record) error {
	switch r := record.(type) {
	case *RegisterBrokerRecord:
		d.registerBroker(r)
	case *UnregisterBrokerRecord:
		d.unregisterBroker(r)
	case *FenceBrokerRecord:
		return d.changeBroker(r.ID, r.Epoch, func(b *Broker) error { b.Fenced = true; return nil })
	case *UnfenceBrokerRecord:
		return d.changeBroker(r.ID, r.Epoch, func(b *Broker) error { b.Fenced = false; return nil })
	case *BrokerRegistrationChangeRecord:
		return d.changeBroker(r.BrokerID, r.BrokerEpoch, r.apply)
	case *RegisterControllerRecord:
		d.registerController(r)
	case *TopicRecord:
		return d.createTopic(r)
	case *PartitionRecord:
		return d.setPartition(r)
	case *PartitionChangeRecord:
		return d.changePartition(r)
	case *RemoveTopicRecord:
		return d.removeTopic(r)
	case *ClearELRRecord:
		return d.clearELR(r)
	case *ConfigRecord:
		d.setConfig(ConfigResource{r.ResourceType, r.ResourceName}, r.Name, r.Value)
	case *FeatureLevelRecord:
		return d.setFeature(r)
	case *ProducerIDsRecord:
		d.otherChanges = true
		d.next.nextProducerID = r.NextProducerID
	case *ClientQuotaRecord:
		d.setQuota(r)
	case *AccessControlEntryRecord:
		d.otherChanges = true
		d.next.acls = d.next.acls.set(r.ID, r)
	case *RemoveAccessControlEntryRecord:
		if _, ok := d.next.acls.get(r.ID); !ok {
			return misfit("remove ACL %s: there is none", r.ID)
		}
		d.otherChanges = true
		d.next.acls = d.next.acls.delete(r.ID)
	case *UserScramCredentialRecord:
		d.otherChanges = true
		d.next.scram = d.next.scram.set(scramKey{r.Mechanism, r.Name}, r)
	case *RemoveUserScramCredentialRecord:
		d.otherChanges = true
		d.next.scram = d.next.scram.delete(scramKey{r.Mechanism, r.Name})
	case *DelegationTokenRecord:
		d.otherChanges = true
		d.next.tokens = d.next.tokens.set(r.TokenID, r)
	case *RemoveDelegationTokenRecord:
		d.otherChanges = true
		d.next.tokens = d.next.tokens.delete(r.TokenID)
	case *NoOpRecord, *ZkMigrationStateRecord:
		// Kafka 4 keeps neither in its image.
	default:
		return misfit("%s has no place outside of a loader", schemas[record.RecordType()].name)
	}
	return nil
}

func (d *Delta) setConfig(resource ConfigResource, key string, value *string) {
	if !d.filling {
		d.configs[resource] = struct{}{}
	}
	config, _ := d.next.configs.get(resource)
	if config = config.with(key, value); config.Len() == 0 {
		d.next.configs = d.next.configs.delete(resource)
	} else {
		d.next.configs = d.next.configs.set(resource, config)
	}
}

func (d *Delta) setFeature(r *FeatureLevelRecord) error {
	if r.Name == FeatureMetadataVersion && (r.FeatureLevel < MinMetadataVersion || r.FeatureLevel > LatestMetadataVersion) {
		return misfit("metadata.version %d: this build reads %d to %d", r.FeatureLevel, MinMetadataVersion, LatestMetadataVersion)
	}
	d.features[r.Name] = struct{}{}
	if r.FeatureLevel == 0 {
		d.next.features = d.next.features.delete(r.Name)
	} else {
		d.next.features = d.next.features.set(r.Name, r.FeatureLevel)
	}
	return nil
}

func (d *Delta) setQuota(r *ClientQuotaRecord) {
	d.otherChanges = true
	entity, key := quotaKey(r.Entity)
	q, ok := d.next.quotas.get(key)
	if !ok {
		q = quota{entity: entity, values: ordered[string, float64]()}
	}
	if r.Remove {
		q.values = q.values.delete(r.Key)
	} else {
		q.values = q.values.set(r.Key, r.Value)
	}
	if q.values.len() == 0 {
		d.next.quotas = d.next.quotas.delete(key)
	} else {
		d.next.quotas = d.next.quotas.set(key, q)
	}
}

// Changed says whether any record was replayed that can have changed the image.
func (d *Delta) Changed() bool {
	return d.otherChanges || len(d.topics)+len(d.partitions)+len(d.deleted)+len(d.brokers)+len(d.controllers)+
		len(d.configs)+len(d.features) > 0
}

// ChangedTopics returns the ids of the topics that were created or whose partitions changed, and that are still
// there, in order.
func (d *Delta) ChangedTopics() []ident.UUID { return sortedKeys(d.topics, ident.UUID.Compare) }

// DeletedTopics returns the topics of the base image that are gone, as they were, in the order of their ids. One
// that was deleted and made again under the same name is among them, since its id is another.
func (d *Delta) DeletedTopics() []*Topic {
	out := make([]*Topic, 0, len(d.deleted))
	for _, t := range d.deleted {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *Topic) int { return a.ID.Compare(b.ID) })
	return out
}

// ChangedPartitions returns the partitions that were created or changed and are still there, in order. Those of
// DeletedTopics are not among them.
func (d *Delta) ChangedPartitions() []ident.TopicPartition {
	return sortedKeys(d.partitions, ident.TopicPartition.Compare)
}

// ChangedBrokers returns the brokers that were registered, changed or unregistered, in order.
func (d *Delta) ChangedBrokers() []ident.NodeID { return sortedKeys(d.brokers, cmp.Compare) }

// ChangedControllers returns the controllers that registered, in order.
func (d *Delta) ChangedControllers() []ident.NodeID { return sortedKeys(d.controllers, cmp.Compare) }

// ChangedConfigs returns the resources of which a config was set or removed, in order.
func (d *Delta) ChangedConfigs() []ConfigResource {
	return sortedKeys(d.configs, ConfigResource.Compare)
}

// ChangedFeatures returns the features whose level was set or removed, in order.
func (d *Delta) ChangedFeatures() []string { return sortedKeys(d.features, cmp.Compare) }
