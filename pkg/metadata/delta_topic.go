package metadata

import (
	"cmp"
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

func (d *Delta) createTopic(r *TopicRecord) error {
	if id, ok := d.next.topicIDs.get(r.Name); ok {
		return misfit("topic %q (%s) is created, but there is one of that name with id %s", r.Name, r.TopicID, id)
	}
	if t, ok := d.next.topics.get(r.TopicID); ok {
		return misfit("topic %q is created with id %s, which topic %q has", r.Name, r.TopicID, t.Name)
	}
	d.next.topicIDs = d.next.topicIDs.set(r.Name, r.TopicID)
	t := &Topic{Name: r.Name, ID: r.TopicID}
	if d.filling {
		t.partitions = toFill[int32, *Partition](cmp.Compare[int32])
	} else {
		t.partitions = ordered[int32, *Partition]()
	}
	d.putTopic(t)
	return nil
}

func (d *Delta) putTopic(t *Topic) {
	if !d.filling {
		d.topics[t.ID] = struct{}{}
	}
	d.next.topics = d.next.topics.set(t.ID, t)
}

func (d *Delta) putPartition(t *Topic, index int32, p *Partition) {
	if d.filling {
		t.partitions.set(index, p)
		return
	}
	d.partitions[ident.TopicPartition{Topic: t.ID, Index: index}] = struct{}{}
	d.putTopic(t.with(index, p))
}

func (d *Delta) setPartition(r *PartitionRecord) error {
	t, ok := d.next.topics.get(r.TopicID)
	if !ok {
		return misfit("partition %d of topic id %s, which does not exist", r.PartitionID, r.TopicID)
	}
	if r.PartitionID < 0 {
		return misfit("partition %d of topic %q: the index is negative", r.PartitionID, t.Name)
	}
	directories, err := directoriesFor(r.Directories, r.Replicas)
	if err != nil {
		return err
	}
	if !d.filling {
		directories = slices.Clone(directories)
	}
	if r.LeaderRecoveryState != Recovered && r.LeaderRecoveryState != Recovering {
		return misfit("partition %d of topic %q: unknown leader recovery state %d", r.PartitionID, t.Name, r.LeaderRecoveryState)
	}
	list := clone
	if d.filling {
		list = orNil
	}
	d.putPartition(t, r.PartitionID, &Partition{
		Replicas: list(r.Replicas), Directories: directories, ISR: list(r.ISR),
		Adding: list(r.AddingReplicas), Removing: list(r.RemovingReplicas),
		ELR: list(r.EligibleLeaderReplicas), LastKnownELR: list(r.LastKnownELR),
		Leader: r.Leader, LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch, RecoveryState: r.LeaderRecoveryState,
	})
	return nil
}

func (d *Delta) changePartition(r *PartitionChangeRecord) error {
	t, ok := d.next.topics.get(r.TopicID)
	if !ok {
		return misfit("change of partition %d of topic id %s, which does not exist", r.PartitionID, r.TopicID)
	}
	old, ok := t.partitions.get(r.PartitionID)
	if !ok {
		return misfit("change of partition %d of topic %q, which does not exist", r.PartitionID, t.Name)
	}
	changed, err := old.Apply(r)
	if err != nil {
		return err
	}
	d.putPartition(t, r.PartitionID, changed)
	return nil
}

// Apply returns the partition after a change record, with Kafka's arithmetic: every record raises the partition
// epoch; one that names a leader, be it the same one or none, raises the leader epoch too; replicas without a
// directory of their own keep the one they had, new ones are unassigned.
func (p *Partition) Apply(r *PartitionChangeRecord) (*Partition, error) {
	next := *p
	next.PartitionEpoch++
	if r.Leader != NoLeaderChange {
		next.Leader = r.Leader
		next.LeaderEpoch++
	}
	if r.Replicas != nil {
		next.Replicas = clone(r.Replicas)
	}
	switch {
	case len(r.Directories) > 0:
		directories, err := directoriesFor(r.Directories, next.Replicas)
		if err != nil {
			return nil, err
		}
		next.Directories = slices.Clone(directories)
	case r.Replicas != nil:
		next.Directories = carryDirectories(p, next.Replicas)
	}
	for _, list := range []struct {
		to   *[]ident.NodeID
		from []ident.NodeID
	}{
		{&next.ISR, r.ISR}, {&next.Adding, r.AddingReplicas}, {&next.Removing, r.RemovingReplicas},
		{&next.ELR, r.EligibleLeaderReplicas}, {&next.LastKnownELR, r.LastKnownELR},
	} {
		if list.from != nil {
			*list.to = clone(list.from)
		}
	}
	switch r.LeaderRecoveryState {
	case NoLeaderRecoveryChanged:
	case Recovered, Recovering:
		next.RecoveryState = r.LeaderRecoveryState
	default:
		return nil, misfit("change of partition %d of topic id %s: unknown leader recovery state %d", r.PartitionID, r.TopicID, r.LeaderRecoveryState)
	}
	return &next, nil
}

// carryDirectories gives each of the new replicas the directory that it had.
func carryDirectories(old *Partition, replicas []ident.NodeID) []ident.UUID {
	if len(replicas) == 0 {
		return nil
	}
	out := make([]ident.UUID, len(replicas))
	for i, id := range replicas {
		out[i] = ident.UnassignedDirectory
		if dir, ok := old.Directory(id); ok {
			out[i] = dir
		}
	}
	return out
}

// directoriesFor returns one directory per replica, without a copy of those that the record has; records of before KIP-858 have none, which is Kafka's
// MIGRATING, the zero uuid.
func directoriesFor(directories []ident.UUID, replicas []ident.NodeID) ([]ident.UUID, error) {
	if len(directories) == 0 {
		if len(replicas) == 0 {
			return nil, nil
		}
		return make([]ident.UUID, len(replicas)), nil
	}
	if len(directories) != len(replicas) {
		return nil, misfit("%d directories for %d replicas", len(directories), len(replicas))
	}
	return directories, nil
}

func clone(ids []ident.NodeID) []ident.NodeID { return slices.Clone(orNil(ids)) }

func orNil(ids []ident.NodeID) []ident.NodeID {
	if len(ids) == 0 {
		return nil
	}
	return ids
}

func (d *Delta) removeTopic(r *RemoveTopicRecord) error {
	t, ok := d.next.topics.get(r.TopicID)
	if !ok {
		return misfit("topic id %s is removed, but does not exist", r.TopicID)
	}
	d.next.topics = d.next.topics.delete(t.ID)
	d.next.topicIDs = d.next.topicIDs.delete(t.Name)
	delete(d.topics, t.ID)
	for index := range t.Partitions() {
		delete(d.partitions, ident.TopicPartition{Topic: t.ID, Index: index})
	}
	if old, ok := d.base.topics.get(t.ID); ok {
		d.deleted[t.ID] = old
	}
	resource := ConfigResource{ResourceTopic, t.Name}
	if _, ok := d.next.configs.get(resource); ok {
		d.configs[resource] = struct{}{}
		d.next.configs = d.next.configs.delete(resource)
	}
	return nil
}

func (d *Delta) clearELR(r *ClearELRRecord) error {
	if r.TopicName != "" {
		id, ok := d.next.topicIDs.get(r.TopicName)
		if !ok {
			return misfit("eligible leader replicas of topic %q are cleared, but it does not exist", r.TopicName)
		}
		return d.clearTopicELR(id)
	}
	for id := range d.next.topics.all() {
		if err := d.clearTopicELR(id); err != nil {
			return err
		}
	}
	return nil
}

// clearTopicELR makes the change as a partition change record would, but leaves alone what has nothing to clear.
func (d *Delta) clearTopicELR(id ident.UUID) error {
	t, _ := d.next.topics.get(id)
	for index, p := range t.Partitions() {
		if len(p.ELR) == 0 && len(p.LastKnownELR) == 0 {
			continue
		}
		change := NewPartitionChange(2)
		change.TopicID, change.PartitionID = id, index
		change.EligibleLeaderReplicas, change.LastKnownELR = []ident.NodeID{}, []ident.NodeID{}
		if err := d.changePartition(change); err != nil {
			return err
		}
	}
	return nil
}
