package partition

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// isDamaged says what is committed: a node names the reserved LOST directory for a replica whose log is damaged.
func isDamaged(partition *metadata.Partition, id ident.NodeID) bool {
	directory, known := partition.Directory(id)
	return known && directory == ident.LostDirectory
}

// damageOf returns what is known of a damaged replica, nil when it is not damaged. What its node told stays when the
// node can't be asked any more.
func damageOf(f facts, partition *metadata.Partition, id ident.NodeID, before *hwv1alpha1.ReplicaStatus) *hwv1alpha1.ReplicaDamage {
	if !isDamaged(partition, id) {
		return nil
	}
	damage := &hwv1alpha1.ReplicaDamage{Since: f.now}
	if before != nil && before.Damage != nil {
		damage = before.Damage.DeepCopy()
	}
	if fact, told := f.told.Damage(ident.TopicPartition{Topic: f.family.made.ID, Index: f.p.Spec.Index}, id); told && fact.To > fact.From {
		from, to := int64(fact.From), int64(fact.To)
		damage.FromOffset, damage.ToOffset = &from, &to
	}
	return damage
}

// setIntact derives Intact from what is mirrored.
func setIntact(c *report.Conditions, replicas []hwv1alpha1.ReplicaStatus, leader int32) {
	var texts []string
	for i := range replicas {
		if replicas[i].Damage != nil {
			texts = append(texts, damageText(&replicas[i], leader))
		}
	}
	if len(texts) == 0 {
		c.Set(hwv1alpha1.PartitionIntact, metav1.ConditionTrue, hwv1alpha1.ReasonAllReplicasIntact, "no replica is known to be damaged")
		return
	}
	c.Set(hwv1alpha1.PartitionIntact, metav1.ConditionFalse, hwv1alpha1.ReasonReplicaDamaged, strings.Join(texts, "; "))
}

// damageText says what is damaged and what goes on.
func damageText(replica *hwv1alpha1.ReplicaStatus, leader int32) string {
	text := fmt.Sprintf("the replica on node %d is damaged", replica.ID)
	if d := replica.Damage; d.FromOffset != nil && d.ToOffset != nil {
		text += fmt.Sprintf(" (offsets %d to %d)", *d.FromOffset, *d.ToOffset-1)
	}
	switch {
	case leader == replica.ID:
		// The controller leaves it in the ISR only while no whole replica is in it.
		return text + ": no whole replica is in sync, so it leads on and serves all but that; bring nodes back that have a replica, and it is refilled from one of them"
	case leader < 0:
		return text + ": it waits for a leader to be refilled from"
	default:
		return text + fmt.Sprintf(": it is refilled from node %d, which leads", leader)
	}
}

// damageEvents tell of replicas that were found damaged, and of those that are whole again.
func damageEvents(before, after *hwv1alpha1.PartitionStatus, refilled func(id int32) bool, add func(string, bool, string, string, ...any)) {
	for i := range after.Replicas {
		is := &after.Replicas[i]
		var was *hwv1alpha1.ReplicaDamage
		if j := slices.IndexFunc(before.Replicas, func(r hwv1alpha1.ReplicaStatus) bool { return r.ID == is.ID }); j >= 0 {
			was = before.Replicas[j].Damage
		}
		key := fmt.Sprintf("%d/%d", *after.PartitionEpoch, is.ID)
		switch {
		case is.Damage != nil && was == nil:
			add(hwv1alpha1.EventReplicaDamaged, true, key, "%s", damageText(is, *after.Leader))
		case is.Damage == nil && was != nil && refilled(is.ID):
			add(hwv1alpha1.EventReplicaRefilled, false, key, "the replica on node %d is whole again: what was damaged was refilled", is.ID)
		}
	}
}

// refilled says whether a replica that is no longer damaged is in a directory of its node. One that came back without
// the directory, or went, is not: its node only no longer says LOST.
func (f *facts) refilled(id int32) bool {
	partition := f.committed()
	if partition == nil {
		return false
	}
	directory, known := partition.Directory(ident.NodeID(id))
	broker, registered := f.state.Image.Broker(ident.NodeID(id))
	return known && registered && slices.Contains(broker.LogDirs, directory)
}
