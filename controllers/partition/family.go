package partition

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/topicconfig"
)

// family is the Partitions of one topic. It is made anew in every pass and asks nobody.
type family struct {
	topic string
	// claims are, by index, the Partitions that speak for it.
	claims map[int32]*hwv1alpha1.Partition
	// outbid are the Partitions that came too late, and who was there first.
	outbid map[types.UID]*hwv1alpha1.Partition
	// made is the topic in the committed metadata, nil when there is none or it is not known.
	made *metadata.Topic
	// settings of the topic.
	settings settings
}

// verdict is what Accepted says. The zero verdict accepts.
type verdict struct {
	reason  string
	message string
}

func (v verdict) accepted() bool { return v.reason == "" }

func deny(reason, format string, args ...any) verdict {
	return verdict{reason, fmt.Sprintf(format, args...)}
}

// newFamily sorts out who speaks for which index: the older wins, and of two of the same second the name. Partitions
// under deletion claim nothing any more. image is nil when the metadata is not known.
func newFamily(topic string, all []hwv1alpha1.Partition, image *metadata.Image) family {
	f := family{topic: topic, claims: map[int32]*hwv1alpha1.Partition{}, outbid: map[types.UID]*hwv1alpha1.Partition{}}
	for i := range all {
		p := &all[i]
		if p.EffectiveTopic() != topic || !p.DeletionTimestamp.IsZero() {
			continue
		}
		if holder, taken := f.claims[p.Spec.Index]; !taken || older(p, holder) {
			f.claims[p.Spec.Index] = p
		}
	}
	for i := range all {
		p := &all[i]
		holder := f.claims[p.Spec.Index]
		if p.EffectiveTopic() == topic && p.DeletionTimestamp.IsZero() && holder.UID != p.UID {
			f.outbid[p.UID] = holder
		}
	}
	if image != nil {
		f.made, _ = image.Topic(topic)
	}
	if authority := f.claims[0]; authority != nil {
		f.settings = settingsOf(authority)
	}
	return f
}

func older(p, q *hwv1alpha1.Partition) bool {
	if !p.CreationTimestamp.Equal(&q.CreationTimestamp) {
		return p.CreationTimestamp.Before(&q.CreationTimestamp)
	}
	return p.Name < q.Name
}

// offline judges what can be judged without the cluster's metadata.
func (f family) offline(p *hwv1alpha1.Partition) verdict {
	if holder, outbid := f.outbid[p.UID]; outbid {
		return deny(hwv1alpha1.ReasonAlreadyClaimed, "Partition %s, which is older, claims index %d of topic %s", holder.Name, p.Spec.Index, f.topic)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Spec.Config)) {
		if err := topicconfig.Validate(key, string(p.Spec.Config[key])); err != nil {
			return deny(hwv1alpha1.ReasonInvalidSpec, "spec.config[%s]: %v", key, err)
		}
	}
	if err := (topicconfig.Defaults{}).ValidateTogether(func(name string) (string, bool) {
		value, ok := p.Spec.Config[name]
		return string(value), ok
	}); err != nil {
		return deny(hwv1alpha1.ReasonInvalidSpec, "spec.config: %v", err)
	}
	if authority := f.claims[0]; authority != nil && p.Spec.Index > 0 {
		if field, differs := f.settings.disagreement(p); differs {
			return deny(hwv1alpha1.ReasonConflictingConfig,
				"%s differs from Partition %s, whose index 0 decides for topic %s: say the same or leave it unset", field, authority.Name, f.topic)
		}
	}
	return verdict{}
}

// judge says whether p speaks for its partition and the partition is, or can be made, as p says.
func (f family) judge(p *hwv1alpha1.Partition, image *metadata.Image) verdict {
	if v := f.offline(p); !v.accepted() {
		return v
	}
	if f.vanished(p, image) {
		return deny(hwv1alpha1.ReasonTopicDeletedElsewhere,
			"topic %s with id %s was deleted by somebody else and is not made again: delete this Partition, and make it anew to have a new topic",
			f.topic, p.Status.TopicID)
	}
	partition := f.partition(p.Spec.Index)
	if partition == nil {
		return f.judgeMissing(p, image)
	}
	if wanted := p.Spec.Assignment; len(wanted) > 0 && !slices.Equal(wanted, toInts(partition.Replicas)) {
		return deny(hwv1alpha1.ReasonAssignmentDiffers,
			"the partition is on nodes %s and spec.assignment says %s: moving replicas is not supported by this version", list(partition.Replicas), list(wanted))
	}
	if wanted := p.Spec.ReplicationFactor; wanted != nil && int(*wanted) != len(partition.Replicas) {
		return deny(hwv1alpha1.ReasonAssignmentDiffers,
			"the partition has %d replicas and spec.replicationFactor says %d: changing it is not supported by this version", len(partition.Replicas), *wanted)
	}
	return verdict{}
}

// judgeMissing is for a partition that does not exist: it can be made when all lower ones exist or can be made.
func (f family) judgeMissing(p *hwv1alpha1.Partition, image *metadata.Image) verdict {
	for index := f.count(); index < p.Spec.Index; index++ {
		claim := f.claims[index]
		if claim == nil {
			return deny(hwv1alpha1.ReasonWaitingForLowerIndex, "topic %s has no Partition for index %d: indexes have no gaps", f.topic, index)
		}
		if v := f.offline(claim); !v.accepted() || f.vanished(claim, image) {
			return deny(hwv1alpha1.ReasonWaitingForLowerIndex, "index %d of topic %s, Partition %s, is not accepted: indexes have no gaps", index, f.topic, claim.Name)
		}
	}
	return verdict{}
}

// vanished says whether the topic that p once had is no more. One of the same name with another id is another topic.
func (f family) vanished(p *hwv1alpha1.Partition, image *metadata.Image) bool {
	if p.Status.TopicID == "" || image == nil {
		return false
	}
	return f.made == nil || f.made.ID.String() != p.Status.TopicID
}

// partition returns a partition that exists, or nil.
func (f family) partition(index int32) *metadata.Partition {
	if f.made == nil {
		return nil
	}
	partition, found := f.made.Partition(index)
	if !found {
		return nil
	}
	return partition
}

// count is the number of partitions that exist.
func (f family) count() int32 {
	if f.made == nil {
		return 0
	}
	return int32(f.made.NumPartitions()) //nolint:gosec // Kafka counts partitions in 32 bits
}
