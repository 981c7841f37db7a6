package metadata

import (
	"iter"
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Records goes through the records that make this image out of an empty one, in an order that depends on what the
// image says alone: metadata.version first, so that a reader knows the level before anything else, and then as
// Kafka's snapshots have it.
func (im *Image) Records() iter.Seq[Record] { return im.records(false) }

// records is Records. passing says that whoever takes a record is done with it before the next: those that there are
// by the hundred thousand are then the same struct again and again.
func (im *Image) records(passing bool) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, part := range []iter.Seq[Record]{
			im.featureRecords(), im.brokerRecords(), im.topicRecords(passing), im.configRecords(passing), im.quotaRecords(), im.securityRecords(),
		} {
			for r := range part {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func (im *Image) featureRecords() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		if v, ok := im.features.get(FeatureMetadataVersion); ok && !yield(&FeatureLevelRecord{Name: FeatureMetadataVersion, FeatureLevel: v}) {
			return
		}
		for name, level := range im.features.all() {
			if name != FeatureMetadataVersion && !yield(&FeatureLevelRecord{Name: name, FeatureLevel: level}) {
				return
			}
		}
	}
}

func (im *Image) brokerRecords() iter.Seq[Record] {
	level := im.Level()
	return func(yield func(Record) bool) {
		for b := range im.brokers.values() {
			if !yield(b.record(level)) {
				return
			}
		}
		for c := range im.controllers.values() {
			if !yield(c.record()) {
				return
			}
		}
	}
}

// record returns the registration in the version of the level, or the one that holds all that is known.
func (b *Broker) record(level Level) *RegisterBrokerRecord {
	r := &RegisterBrokerRecord{Version: level.VersionOf(TypeRegisterBroker), BrokerID: b.ID, IsMigratingZkBroker: b.IsMigratingZkBroker,
		IncarnationID: b.Incarnation, BrokerEpoch: b.Epoch, EndPoints: b.Endpoints, Features: b.Features, Rack: b.Rack,
		Fenced: b.Fenced, InControlledShutdown: b.InControlledShutdown, LogDirs: b.LogDirs}
	if b.IsMigratingZkBroker {
		r.Version = max(r.Version, 2)
	}
	if len(b.LogDirs) > 0 {
		r.Version = max(r.Version, 3)
	}
	return r
}

func (c *Controller) record() *RegisterControllerRecord {
	return &RegisterControllerRecord{ControllerID: c.ID, IncarnationID: c.Incarnation, ZkMigrationReady: c.ZkMigrationReady,
		EndPoints: c.Endpoints, Features: c.Features}
}

func (im *Image) topicRecords(passing bool) iter.Seq[Record] {
	level := im.Level()
	return func(yield func(Record) bool) {
		topic, partition := new(TopicRecord), new(PartitionRecord)
		for t := range im.Topics() {
			if !passing {
				topic = new(TopicRecord)
			}
			*topic = TopicRecord{Name: t.Name, TopicID: t.ID}
			if !yield(topic) {
				return
			}
			for index, p := range t.partitions.all() {
				if !passing {
					partition = new(PartitionRecord)
				}
				*partition = p.record(ident.TopicPartition{Topic: t.ID, Index: index}, level)
				if !yield(partition) {
					return
				}
			}
		}
	}
}

func (p *Partition) record(id ident.TopicPartition, level Level) PartitionRecord {
	r := PartitionRecord{Version: level.VersionOf(TypePartition), PartitionID: id.Index, TopicID: id.Topic, Replicas: p.Replicas,
		ISR: p.ISR, RemovingReplicas: p.Removing, AddingReplicas: p.Adding, Leader: p.Leader, LeaderRecoveryState: p.RecoveryState,
		LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Directories: p.Directories,
		EligibleLeaderReplicas: p.ELR, LastKnownELR: p.LastKnownELR}
	if r.Version == 0 && !slices.ContainsFunc(p.Directories, func(d ident.UUID) bool { return !d.IsZero() }) {
		r.Directories = nil // a reader puts them in again
	}
	if len(r.Directories) > 0 {
		r.Version = max(r.Version, 1)
	}
	if p.ELR != nil || p.LastKnownELR != nil {
		r.Version = max(r.Version, 2)
	}
	return r
}

func (im *Image) configRecords(passing bool) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		r, v := new(ConfigRecord), new(string)
		for resource, config := range im.configs.all() {
			for key, value := range config.All() {
				if !passing {
					r, v = new(ConfigRecord), new(string)
				}
				*v = value
				*r = ConfigRecord{ResourceType: resource.Type, ResourceName: resource.Name, Name: key, Value: v}
				if !yield(r) {
					return
				}
			}
		}
	}
}

func (im *Image) quotaRecords() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for entity, q := range im.Quotas() {
			if !yield(&ClientQuotaRecord{Entity: entity, Key: q.Key, Value: q.Value}) {
				return
			}
		}
		if im.nextProducerID >= 0 {
			yield(&ProducerIDsRecord{BrokerID: ident.NoNode, BrokerEpoch: -1, NextProducerID: im.nextProducerID})
		}
	}
}

func (im *Image) securityRecords() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for r := range im.acls.values() {
			if !yield(r) {
				return
			}
		}
		for r := range im.scram.values() {
			if !yield(r) {
				return
			}
		}
		for r := range im.tokens.values() {
			if !yield(r) {
				return
			}
		}
	}
}
