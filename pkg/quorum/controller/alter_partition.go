package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// AlterPartition (56), versions 2 and 3, is how a leader proposes an ISR (KIP-497, KIP-841, KIP-903). The checks
// and their order are Kafka's; a refused proposal changes nothing. For the whole request: NOT_CONTROLLER,
// UNSUPPORTED_VERSION, STALE_BROKER_EPOCH. Per partition: see checkProposal, and NEW_LEADER_ELECTED when the
// proposal was taken and that moved the leader away from the sender: it completed a reassignment, or the sender's own
// records are damaged and it is no longer alone.
func (c *Controller) AlterPartition(now ident.Instant, request *kmsg.AlterPartitionRequest) Decision {
	response := request.ResponseKind().(*kmsg.AlterPartitionResponse)
	if !c.active {
		response.ErrorCode = kerr.NotController.Code
		return notController(response)
	}
	c.enter(now)
	defer c.plan()
	sender := ident.NodeID(request.BrokerID)
	if request.Version < 2 {
		response.ErrorCode = kerr.UnsupportedVersion.Code // topics go by id
		return c.answer(response)
	}
	if code := c.checkBrokerEpoch(sender, request.BrokerEpoch); code != nil {
		response.ErrorCode = code.Code
		return c.answer(response)
	}
	t := c.begin()
	for _, topic := range request.Topics {
		answer := kmsg.NewAlterPartitionResponseTopic()
		answer.TopidID = topic.TopicID
		for i := range topic.Partitions {
			answer.Partitions = append(answer.Partitions, t.alterPartition(request, topic.TopicID, &topic.Partitions[i]))
		}
		response.Topics = append(response.Topics, answer)
	}
	return t.commit(response)
}

// A member is one of a proposed ISR. Epoch is what the leader knows it by, -1 when it doesn't.
type member struct {
	id    ident.NodeID
	epoch int64
}

func (t *tx) alterPartition(request *kmsg.AlterPartitionRequest, topicID ident.UUID, proposal *kmsg.AlterPartitionRequestTopicPartition) kmsg.AlterPartitionResponseTopicPartition {
	answer := kmsg.NewAlterPartitionResponseTopicPartition()
	answer.Partition = proposal.Partition
	refused := func(code *kerr.Error) kmsg.AlterPartitionResponseTopicPartition {
		answer.ErrorCode = code.Code
		return answer
	}
	s := t.state()
	topic, ok := s.image.TopicByID(topicID)
	if !ok {
		return refused(kerr.UnknownTopicID)
	}
	p, ok := topic.Partition(proposal.Partition)
	if !ok {
		return refused(kerr.UnknownTopicOrPartition)
	}
	var members []member
	if request.Version >= 3 {
		for _, m := range proposal.NewEpochISR {
			members = append(members, member{ident.NodeID(m.BrokerID), m.BrokerEpoch})
		}
	} else {
		for _, id := range proposal.NewISR {
			members = append(members, member{ident.NodeID(id), -1})
		}
	}
	sender := ident.NodeID(request.BrokerID)
	if code := s.checkProposal(p, sender, proposal, members); code != nil {
		return refused(code)
	}
	if !t.room() {
		return refused(kerr.RequestTimedOut) // the leader asks again as it is
	}
	tp := ident.TopicPartition{Topic: topicID, Index: proposal.Partition}
	ch := s.change(tp, p, ident.NoNode)
	ch.isr = make([]ident.NodeID, len(members))
	for i, m := range members {
		ch.isr[i] = m.id
	}
	ch.recovery, ch.election = proposal.LeaderRecoveryState, s.automatic(topic)
	ch.adoptDirectories(members)
	if r := ch.record(); r != nil {
		t.add(r)
		changed, err := p.Apply(r)
		if err != nil {
			panic("controller: a change that was just decided does not apply: " + err.Error())
		}
		if p = changed; r.Leader != metadata.NoLeaderChange && r.Leader != sender {
			return refused(kerr.NewLeaderElected)
		}
	}
	answer.LeaderID, answer.LeaderEpoch = int32(p.Leader), int32(p.LeaderEpoch)
	answer.ISR, answer.PartitionEpoch, answer.LeaderRecoveryState = int32s(p.ISR), p.PartitionEpoch, p.RecoveryState
	return answer
}

// checkProposal says why a proposal is not taken.
func (s *state) checkProposal(p *metadata.Partition, sender ident.NodeID, proposal *kmsg.AlterPartitionRequestTopicPartition, members []member) *kerr.Error {
	le, pe, state := ident.Epoch(proposal.LeaderEpoch), proposal.PartitionEpoch, proposal.LeaderRecoveryState
	switch {
	case le > p.LeaderEpoch || pe > p.PartitionEpoch:
		return kerr.NotController // the leader knows what this controller does not: it is no controller any more
	case le < p.LeaderEpoch:
		return kerr.FencedLeaderEpoch
	case sender != p.Leader:
		return kerr.InvalidRequest
	case pe < p.PartitionEpoch:
		return kerr.InvalidUpdateVersion
	}
	for i, m := range members {
		if !slices.Contains(p.Replicas, m.id) || slices.ContainsFunc(members[:i], func(o member) bool { return o.id == m.id }) {
			return kerr.InvalidRequest
		}
	}
	switch {
	case !slices.ContainsFunc(members, func(m member) bool { return m.id == p.Leader }):
		return kerr.InvalidRequest
	case state != metadata.Recovered && state != metadata.Recovering:
		return kerr.InvalidRequest
	case state == metadata.Recovering && len(members) > 1:
		return kerr.InvalidRequest
	case state == metadata.Recovering && p.RecoveryState == metadata.Recovered:
		return kerr.InvalidRequest
	}
	for _, m := range members {
		if b := s.broker(m.id); b == nil || !b.Active() || m.epoch != -1 && m.epoch != b.Epoch {
			return kerr.IneligibleReplica
		}
		if damagedIn(p, m.id) && !slices.Contains(p.ISR, m.id) {
			return kerr.IneligibleReplica // until it has refilled what it had lost and says so
		}
	}
	return nil
}

// adoptDirectories notes where replicas that join the ISR are. A member was known to the leader by the epoch of its
// present registration, so what it has caught up with is in the directory of that registration; one that came back
// with a new disk could otherwise never lead.
func (ch *change) adoptDirectories(members []member) {
	for _, m := range members {
		if m.epoch == -1 || slices.Contains(ch.old.ISR, m.id) || ch.online(m.id) {
			continue
		}
		if dir := ch.dir(m.id); dir != ident.UnassignedDirectory {
			ch.setDirectory(m.id, dir)
		}
	}
}
