package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// AlterPartitionReassignments (45) gives partitions other replicas, or with null replicas takes that back (KIP-455).
// The new ones are added first; the old ones leave, in one record, when all of the new are in the ISR: see
// completeReassignment. A new target in place of one under way drops at once what the old one was adding and the new
// one does not name.
//
// Per partition: UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT, and
// INVALID_REPLICATION_FACTOR when the request forbids changing it (KIP-860).
func (c *Controller) AlterPartitionReassignments(now ident.Instant, request *kmsg.AlterPartitionAssignmentsRequest) Decision {
	response := request.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	response.AllowReplicationFactorChange = request.AllowReplicationFactorChange
	if !c.active {
		response.ErrorCode = kerr.NotController.Code
		return notController(response)
	}
	c.enter(now)
	defer c.plan()
	t := c.begin()
	for i := range request.Topics {
		topic := &request.Topics[i]
		answer := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		answer.Topic = topic.Topic
		for j := range topic.Partitions {
			partition := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			partition.Partition = topic.Partitions[j].Partition
			t.reassign(request, topic.Topic, &topic.Partitions[j]).put(&partition.ErrorCode, &partition.ErrorMessage)
			answer.Partitions = append(answer.Partitions, partition)
		}
		response.Topics = append(response.Topics, answer)
	}
	if code, why := t.refused(); code != nil {
		response.Topics = nil
		refuse(code, why).put(&response.ErrorCode, &response.ErrorMessage)
		return c.answer(response)
	}
	return t.commit(response)
}

func (t *tx) reassign(request *kmsg.AlterPartitionAssignmentsRequest, name string, wanted *kmsg.AlterPartitionAssignmentsRequestTopicPartition) *refusal {
	if !t.withinLimits() {
		return nil // the request is refused as a whole
	}
	s := t.state()
	topic, ok := s.image.Topic(name)
	if !ok {
		return refuse(kerr.UnknownTopicOrPartition, *text("Unable to find a topic named %s.", name))
	}
	p, ok := topic.Partition(wanted.Partition)
	if !ok {
		return refuse(kerr.UnknownTopicOrPartition, *text("Unable to find partition %s:%d.", name, wanted.Partition))
	}
	original := without(p.Replicas, p.Adding)
	target := original
	if wanted.Replicas == nil {
		if !p.Reassigning() {
			return refuse(kerr.NoReassignmentInProgress, "")
		}
	} else {
		var why *refusal
		if target, why = s.checkAssignment(wanted.Replicas, 0); why != nil {
			return why
		}
		if request.Version >= 1 && !request.AllowReplicationFactorChange && len(target) != len(original) {
			return refuse(kerr.InvalidReplicationFactor, *text("The replication factor is changed from %d to %d", len(original), len(target)))
		}
	}
	ch := s.change(ident.TopicPartition{Topic: topic.ID, Index: wanted.Partition}, p, ident.NoNode)
	ch.election = s.automatic(topic)
	ch.adding, ch.removing = without(target, original), without(original, target)
	ch.setReplicas(append(slices.Clone(target), ch.removing...))
	// What was being added and is not wanted any more leaves with this record.
	ch.isr = slices.DeleteFunc(slices.Clone(p.ISR), func(id ident.NodeID) bool { return !slices.Contains(ch.replicas, id) })
	if len(ch.isr) == 0 {
		if leader, _ := ch.elect(); leader == ident.NoNode {
			return refuse(kerr.InvalidReplicaAssignment, *text("Unable to change the assignment of %s:%d because no replica that stays is in sync; it would require an unclean leader election.", name, wanted.Partition))
		}
	}
	if r := ch.record(); r != nil {
		t.add(r)
	}
	return nil
}

// ListPartitionReassignments (46) lists the reassignments under way, of all topics when the request names none.
func (c *Controller) ListPartitionReassignments(now ident.Instant, request *kmsg.ListPartitionReassignmentsRequest) Decision {
	response := request.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	if !c.active {
		response.ErrorCode = kerr.NotController.Code
		return notController(response)
	}
	c.enter(now)
	defer c.plan()
	list := func(topic *metadata.Topic, wanted func(int32) bool) {
		answer := kmsg.NewListPartitionReassignmentsResponseTopic()
		answer.Topic = topic.Name
		for index, p := range topic.Partitions() {
			if !p.Reassigning() || !wanted(index) {
				continue
			}
			partition := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			partition.Partition, partition.Replicas = index, int32s(p.Replicas)
			partition.AddingReplicas, partition.RemovingReplicas = int32s(p.Adding), int32s(p.Removing)
			answer.Partitions = append(answer.Partitions, partition)
		}
		if len(answer.Partitions) > 0 {
			response.Topics = append(response.Topics, answer)
		}
	}
	if request.Topics == nil {
		for topic := range c.appended.image.Topics() {
			list(topic, func(int32) bool { return true })
		}
	}
	for i := range request.Topics {
		if topic, ok := c.appended.image.Topic(request.Topics[i].Topic); ok {
			list(topic, func(index int32) bool { return slices.Contains(request.Topics[i].Partitions, index) })
		}
	}
	return c.answer(response)
}
