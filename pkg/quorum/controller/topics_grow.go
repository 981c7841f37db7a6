package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// CreatePartitions (37) gives topics more partitions, with as many replicas as partition 0 has. Per topic:
// INVALID_REQUEST for a name that stands there twice, UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS when it is no
// increase, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR; POLICY_VIOLATION for all when one batch can't
// hold it.
func (c *Controller) CreatePartitions(now ident.Instant, request *kmsg.CreatePartitionsRequest) Decision {
	response := request.ResponseKind().(*kmsg.CreatePartitionsResponse)
	answer := func(name string, why *refusal) {
		topic := kmsg.NewCreatePartitionsResponseTopic()
		topic.Topic = name
		why.put(&topic.ErrorCode, &topic.ErrorMessage)
		response.Topics = append(response.Topics, topic)
	}
	all := func(why *refusal) *kmsg.CreatePartitionsResponse {
		response.Topics = nil
		for i := range request.Topics {
			answer(request.Topics[i].Topic, why)
		}
		return response
	}
	if !c.active {
		return notController(all(refuse(kerr.NotController, "")))
	}
	c.enter(now)
	defer c.plan()
	t := c.begin()
	seen := map[string]int{}
	for i := range request.Topics {
		seen[request.Topics[i].Topic]++
	}
	for i := range request.Topics {
		topic := &request.Topics[i]
		switch n := seen[topic.Topic]; {
		case n == 0: // answered with the first entry of that name
			continue
		case n > 1:
			seen[topic.Topic] = 0
			answer(topic.Topic, refuse(kerr.InvalidRequest, "Duplicate topic name."))
			continue
		}
		answer(topic.Topic, t.growTopic(topic))
		if !t.withinLimits() {
			break
		}
	}
	if code, why := t.refused(); code != nil {
		return c.answer(all(refuse(code, why)))
	}
	if request.ValidateOnly {
		return c.answer(response)
	}
	return t.commit(response)
}

func (t *tx) growTopic(request *kmsg.CreatePartitionsRequestTopic) *refusal {
	s := t.state()
	topic, ok := s.image.Topic(request.Topic)
	if !ok {
		return refuse(kerr.UnknownTopicOrPartition, "")
	}
	have := int32(topic.NumPartitions())
	first, ok := topic.Partition(0)
	switch {
	case !ok:
		return refuse(kerr.InvalidPartitions, *text("Topic %s has no partition 0 to take the number of replicas from.", topic.Name))
	case request.Count == have:
		return refuse(kerr.InvalidPartitions, *text("Topic already has %d partition(s).", have))
	case request.Count < have:
		return refuse(kerr.InvalidPartitions, *text("The topic %s currently has %d partition(s); %d would not be an increase.", topic.Name, have, request.Count))
	}
	more, factor := int(request.Count-have), len(without(first.Replicas, first.Adding))
	if request.Assignment != nil && len(request.Assignment) != more {
		return refuse(kerr.InvalidReplicaAssignment, *text("Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", more, len(request.Assignment)))
	}
	var assignments [][]ident.NodeID
	var why *refusal
	switch {
	case request.Assignment != nil:
		for i := range request.Assignment {
			replicas, why := s.checkAssignment(request.Assignment[i].Replicas, factor)
			if why != nil {
				return why
			}
			assignments = append(assignments, replicas)
		}
	case more > t.c.cfg.MaxRecords:
		return refuse(kerr.PolicyViolation, *text("Excessively large number of partitions per request: %d, the limit is %d.", more, t.c.cfg.MaxRecords))
	default:
		if assignments, why = t.c.place(s, more, factor); why != nil {
			return why
		}
	}
	records := make([]metadata.Record, len(assignments))
	for i, replicas := range assignments {
		r := s.newPartition(ident.TopicPartition{Topic: topic.ID, Index: have + int32(i)}, replicas)
		if r == nil {
			return refuse(kerr.InvalidReplicaAssignment, *text("All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", int(have)+i))
		}
		records[i] = r
	}
	t.add(records...)
	return nil
}
