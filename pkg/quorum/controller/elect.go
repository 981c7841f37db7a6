package controller

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// The election types of ElectLeaders (KIP-460).
const (
	preferredElection int8 = 0
	uncleanElection   int8 = 1
)

// ElectLeaders (43) elects preferred leaders, which never loses records, or, for partitions without a leader, any
// live replica, which may. Per partition: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED,
// PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE. With null topics all partitions are asked for and
// those that need no election are left out of the answer.
func (c *Controller) ElectLeaders(now ident.Instant, request *kmsg.ElectLeadersRequest) Decision {
	response := request.ResponseKind().(*kmsg.ElectLeadersResponse)
	if !c.active {
		response.ErrorCode = kerr.NotController.Code
		return notController(response)
	}
	c.enter(now)
	defer c.plan()
	kind := request.ElectionType
	if request.Version < 1 {
		kind = preferredElection
	}
	if kind != preferredElection && kind != uncleanElection {
		response.ErrorCode = kerr.InvalidRequest.Code
		return c.answer(response)
	}
	t := c.begin()
	if request.Topics == nil {
		for topic := range c.appended.image.Topics() {
			answer := kmsg.NewElectLeadersResponseTopic()
			answer.Topic = topic.Name
			for index := range topic.Partitions() {
				if p := t.elect(topic.Name, index, kind); p.ErrorCode != kerr.ElectionNotNeeded.Code {
					answer.Partitions = append(answer.Partitions, p)
				}
			}
			if len(answer.Partitions) > 0 {
				response.Topics = append(response.Topics, answer)
			}
		}
	}
	for _, topic := range request.Topics {
		answer := kmsg.NewElectLeadersResponseTopic()
		answer.Topic = topic.Topic
		for _, index := range topic.Partitions {
			answer.Partitions = append(answer.Partitions, t.elect(topic.Topic, index, kind))
		}
		response.Topics = append(response.Topics, answer)
	}
	return t.commit(response)
}

// elect decides one partition of an ElectLeaders request.
func (t *tx) elect(name string, index int32, kind int8) kmsg.ElectLeadersResponseTopicPartition {
	answer := kmsg.NewElectLeadersResponseTopicPartition()
	answer.Partition = index
	refuse := func(code *kerr.Error, message *string) kmsg.ElectLeadersResponseTopicPartition {
		answer.ErrorCode, answer.ErrorMessage = code.Code, message
		return answer
	}
	s := t.state()
	topic, ok := s.image.Topic(name)
	if !ok {
		return refuse(kerr.UnknownTopicOrPartition, text("No such topic as %s", name))
	}
	p, ok := topic.Partition(index)
	if !ok {
		return refuse(kerr.UnknownTopicOrPartition, text("No such partition as %s-%d", name, index))
	}
	ch := s.change(ident.TopicPartition{Topic: topic.ID, Index: index}, p, ident.NoNode)
	switch {
	case kind == preferredElection && p.Leader == preferred(p), kind == uncleanElection && p.Leader != ident.NoNode:
		return refuse(kerr.ElectionNotNeeded, nil)
	case !t.room():
		return refuse(kerr.PolicyViolation, text("Too many elections in one request; ask for this partition again"))
	case kind == preferredElection:
		ch.election = electPreferred
	default:
		ch.election = electUnclean
	}
	r := ch.record()
	switch {
	case r != nil:
		t.add(r)
		return answer
	case kind == preferredElection:
		return refuse(kerr.PreferredLeaderNotAvailable, nil)
	}
	return refuse(kerr.EligibleLeadersNotAvailable, nil)
}

// preferred is the replica that should lead; ident.NoNode in a partition without replicas, which only a foreign
// log can have.
func preferred(p *metadata.Partition) ident.NodeID {
	if len(p.Replicas) == 0 {
		return ident.NoNode
	}
	return p.Replicas[0]
}

// maxBalance is how many leaders move in one round, as in Kafka.
const maxBalance = 1000

// balance moves leadership back to preferred replicas that are in sync, and elects for partitions that have no
// leader though their topic came to allow an unclean election meanwhile.
func (c *Controller) balance() []Decision {
	if c.now < c.nextBalance {
		return nil
	}
	c.nextBalance = c.now.Add(c.cfg.BalanceInterval)
	c.unsettled = true
	decisions := c.settle()
	t := c.begin()
	s := t.state()
	for topic := range s.image.Topics() {
		for index, p := range topic.Partitions() {
			// One that can't lead is no reason to try (KAFKA-9866).
			ch := s.change(ident.TopicPartition{Topic: topic.ID, Index: index}, p, ident.NoNode)
			if first := preferred(p); p.Leader == ident.NoNode || p.Leader == first || !slices.Contains(p.ISR, first) || !ch.lead(first) {
				continue
			}
			if len(t.records) == maxBalance || !t.room() {
				c.nextBalance = c.now.Add(c.cfg.MaxIdleInterval)
				break
			}
			ch.election = electPreferred
			if r := ch.record(); r != nil {
				t.add(r)
			}
		}
	}
	if len(t.records) > 0 {
		d := t.commit(nil)
		d.Reason = fmt.Sprintf("leadership of %d partitions goes back to the preferred replica", len(d.Records))
		decisions = append(decisions, d)
	}
	return decisions
}
