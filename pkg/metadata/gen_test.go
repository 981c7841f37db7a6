package metadata

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/ident"
)

// drawFitting draws a record that fits the image: a next step in the life of a small cluster.
func drawFitting(t *rapid.T, im *Image) Record {
	for {
		if r := tryDraw(t, im, rapid.IntRange(0, 21).Draw(t, "kind")); r != nil {
			return r
		}
	}
}

func drawUUID(t *rapid.T) ident.UUID {
	return ident.UUID{0: 1, 15: rapid.Byte().Draw(t, "uuid")}
}

func drawNodes(t *rapid.T, least int, what string) []ident.NodeID {
	return rapid.SliceOfNDistinct(rapid.Map(rapid.Int32Range(0, 5), func(i int32) ident.NodeID { return ident.NodeID(i) }),
		least, 4, rapid.ID[ident.NodeID]).Draw(t, what)
}

func drawFrom[T any](t *rapid.T, all []T, what string) (T, bool) {
	if len(all) == 0 {
		var none T
		return none, false
	}
	return rapid.SampledFrom(all).Draw(t, what), true
}

func tryDraw(t *rapid.T, im *Image, kind int) Record {
	name := fmt.Sprintf("n%d", rapid.IntRange(0, 3).Draw(t, "name"))
	broker, hasBroker := drawFrom(t, slices.Collect(im.Brokers()), "broker")
	topic, hasTopic := drawFrom(t, slices.Collect(im.Topics()), "topic")
	switch kind {
	case 0:
		return &RegisterBrokerRecord{Version: 3, BrokerID: ident.NodeID(rapid.Int32Range(0, 5).Draw(t, "id")), IncarnationID: drawUUID(t),
			BrokerEpoch: rapid.Int64Range(0, 1000).Draw(t, "epoch"), EndPoints: []Endpoint{{Name: "B", Host: name, Port: 1}, {Name: "A", Host: "h"}},
			Features: []SupportedFeature{{Name: "y", MaxSupportedVersion: 1}, {Name: "x"}}, Fenced: true, LogDirs: []ident.UUID{drawUUID(t)}}
	case 1:
		if hasBroker {
			return &UnregisterBrokerRecord{BrokerID: broker.ID, BrokerEpoch: broker.Epoch}
		}
	case 2:
		if hasBroker {
			return &BrokerRegistrationChangeRecord{Version: 2, BrokerID: broker.ID, BrokerEpoch: broker.Epoch,
				Fenced: rapid.Int8Range(-1, 1).Draw(t, "fenced"), InControlledShutdown: rapid.Int8Range(0, 1).Draw(t, "shutdown")}
		}
	case 3:
		if hasBroker {
			return &FenceBrokerRecord{ID: broker.ID, Epoch: broker.Epoch}
		}
	case 4:
		if hasBroker {
			return &UnfenceBrokerRecord{ID: broker.ID, Epoch: broker.Epoch}
		}
	case 5:
		id := drawUUID(t)
		_, nameTaken := im.Topic(name)
		if _, idTaken := im.TopicByID(id); !nameTaken && !idTaken {
			return &TopicRecord{Name: name, TopicID: id}
		}
	case 6, 7:
		if hasTopic {
			replicas := drawNodes(t, 1, "replicas")
			return &PartitionRecord{Version: 2, PartitionID: int32(topic.NumPartitions()), TopicID: topic.ID, Replicas: replicas, ISR: replicas,
				Leader: replicas[0], Directories: slices.Repeat([]ident.UUID{drawUUID(t)}, len(replicas))}
		}
	case 8, 9, 10, 11:
		if hasTopic && topic.NumPartitions() > 0 {
			return drawChange(t, topic)
		}
	case 12:
		if hasTopic {
			return &RemoveTopicRecord{TopicID: topic.ID}
		}
	case 13:
		if hasTopic {
			return &ClearELRRecord{TopicName: rapid.SampledFrom([]string{"", topic.Name}).Draw(t, "cleared")}
		}
	case 14, 15:
		r := &ConfigRecord{ResourceType: rapid.SampledFrom([]int8{ResourceTopic, ResourceBroker}).Draw(t, "type"), ResourceName: name,
			Name: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")}
		if rapid.Bool().Draw(t, "set") {
			r.Value = &name
		}
		return r
	case 16:
		return &FeatureLevelRecord{Name: "group.version", FeatureLevel: rapid.Int16Range(0, 1).Draw(t, "level")}
	case 17:
		return &ProducerIDsRecord{BrokerID: 1, BrokerEpoch: 5, NextProducerID: max(0, im.NextProducerID()) + 1000}
	case 18:
		return &ClientQuotaRecord{Entity: []QuotaEntity{{EntityType: "user", EntityName: &name}, {EntityType: "client-id"}},
			Key: "consumer_byte_rate", Value: 1.5, Remove: rapid.Bool().Draw(t, "remove")}
	case 19:
		if acl, ok := drawFrom(t, slices.Collect(im.ACLs()), "acl"); ok && rapid.Bool().Draw(t, "remove") {
			return &RemoveAccessControlEntryRecord{ID: acl.ID}
		}
		return &AccessControlEntryRecord{ID: drawUUID(t), ResourceName: name}
	case 20:
		if rapid.Bool().Draw(t, "remove") {
			return &RemoveUserScramCredentialRecord{Name: name, Mechanism: 1}
		}
		return &UserScramCredentialRecord{Name: name, Mechanism: 1, Salt: []byte{1}}
	case 21:
		if rapid.Bool().Draw(t, "remove") {
			return &RemoveDelegationTokenRecord{TokenID: name}
		}
		return &DelegationTokenRecord{TokenID: name, Renewers: []string{"a"}}
	}
	return nil
}

func drawChange(t *rapid.T, topic *Topic) Record {
	r := NewPartitionChange(2)
	r.TopicID, r.PartitionID = topic.ID, rapid.Int32Range(0, int32(topic.NumPartitions())-1).Draw(t, "index")
	if rapid.Bool().Draw(t, "replicas?") {
		r.Replicas = drawNodes(t, 1, "replicas")
	}
	for _, list := range []*[]ident.NodeID{&r.ISR, &r.AddingReplicas, &r.RemovingReplicas, &r.EligibleLeaderReplicas, &r.LastKnownELR} {
		if rapid.Bool().Draw(t, "list?") {
			*list = append([]ident.NodeID{}, drawNodes(t, 0, "list")...)
		}
	}
	r.Leader = ident.NodeID(rapid.Int32Range(-2, 5).Draw(t, "leader"))
	r.LeaderRecoveryState = rapid.Int8Range(-1, 1).Draw(t, "recovery")
	return r
}

// drawLog draws n records that fit one after the other, beginning with the metadata.version, and the image after
// each of them.
func drawLog(t *rapid.T, n int) (records []Record, images []*Image) {
	im := Empty()
	for i := range n {
		var r Record = &FeatureLevelRecord{Name: FeatureMetadataVersion, FeatureLevel: LatestMetadataVersion}
		if i > 0 {
			r = drawFitting(t, im)
		}
		d := NewDelta(im)
		if err := d.Replay(r); err != nil {
			t.Fatalf("record %d, %+v: %v", i, r, err)
		}
		im = d.Image(ident.Offset(i), 1)
		records, images = append(records, r), append(images, im)
	}
	return records, images
}
