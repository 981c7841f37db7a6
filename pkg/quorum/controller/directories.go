package controller

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// AssignReplicasToDirs (73) is how a broker says in which of its directories its replicas are (KIP-858). The reserved
// LOST directory says that a replica's records are damaged: it leaves the ISR, and another whole member leads. Alone
// in the ISR it stays and goes on leading, which Kafka does not allow; there all that is whole would be unavailable
// with what is not. Until the broker assigns a real directory again, which says that the replica is refilled, it
// can't join the ISR and leads only when nobody else can.
//
// For the whole request: NOT_CONTROLLER, STALE_BROKER_EPOCH. Per partition: UNKNOWN_TOPIC_ID,
// UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER when the broker has no replica, REQUEST_TIMED_OUT when the
// decision is full: the broker asks again. A directory that the broker has not registered is noted all the same, as
// in Kafka, and the replica is offline.
func (c *Controller) AssignReplicasToDirs(now ident.Instant, request *kmsg.AssignReplicasToDirsRequest) Decision {
	response := request.ResponseKind().(*kmsg.AssignReplicasToDirsResponse)
	if !c.active {
		response.ErrorCode = kerr.NotController.Code
		return notController(response)
	}
	c.enter(now)
	defer c.plan()
	sender := ident.NodeID(request.BrokerID)
	if code := c.checkBrokerEpoch(sender, request.BrokerEpoch); code != nil {
		response.ErrorCode = code.Code
		return c.answer(response)
	}
	t := c.begin()
	changed := 0
	for i := range request.Directories {
		dir := &request.Directories[i]
		dirAnswer := kmsg.NewAssignReplicasToDirsResponseDirectory()
		dirAnswer.ID = dir.ID
		for j := range dir.Topics {
			topic := &dir.Topics[j]
			answer := kmsg.NewAssignReplicasToDirsResponseDirectoryTopic()
			answer.TopicID = topic.TopicID
			for _, part := range topic.Partitions {
				p := kmsg.NewAssignReplicasToDirsResponseDirectoryTopicPartition()
				p.Partition = part.Partition
				before := len(t.records)
				if code := t.assign(sender, dir.ID, ident.TopicPartition{Topic: topic.TopicID, Index: part.Partition}); code != nil {
					p.ErrorCode = code.Code
				}
				if len(t.records) > before {
					changed++
				}
				answer.Partitions = append(answer.Partitions, p)
			}
			dirAnswer.Topics = append(dirAnswer.Topics, answer)
		}
		response.Directories = append(response.Directories, dirAnswer)
	}
	d := t.commit(response)
	if changed > 0 {
		d.Reason = fmt.Sprintf("broker %d names the directories of %d replicas", sender, changed)
	}
	return d
}

// assign decides one partition of an AssignReplicasToDirs request.
func (t *tx) assign(sender ident.NodeID, dir ident.UUID, tp ident.TopicPartition) *kerr.Error {
	s := t.state()
	topic, ok := s.image.TopicByID(tp.Topic)
	if !ok {
		return kerr.UnknownTopicID
	}
	p, ok := topic.Partition(tp.Index)
	switch {
	case !ok:
		return kerr.UnknownTopicOrPartition
	case !slices.Contains(p.Replicas, sender):
		return kerr.NotLeaderForPartition
	case !t.room():
		return kerr.RequestTimedOut
	}
	excluded := ident.NoNode
	offline := dir != ident.LostDirectory && !s.hasDirectory(sender, dir)
	if offline {
		excluded = sender
	}
	ch := s.change(tp, p, excluded)
	ch.election = s.automatic(topic)
	ch.setDirectory(sender, dir)
	if offline {
		ch.isr = without(p.ISR, []ident.NodeID{sender})
	}
	if r := ch.record(); r != nil {
		t.add(r)
	}
	return nil
}

// forgetDamage names the directory again that a broker had when it reported damaged replicas of which it is the last
// in-sync one. It has come back without that directory, or is going: LOST would hide that what it was in sync with is
// gone, and let an empty disk lead.
func (t *tx) forgetDamage(b *metadata.Broker) {
	if len(b.LogDirs) == 0 {
		return
	}
	s := t.state()
	for _, tp := range s.index.of(b.ID) {
		_, p := s.partition(tp)
		if !damagedIn(p, b.ID) {
			continue
		}
		if !t.room() {
			return // beyond thousands of damaged replicas that are the last of their partitions
		}
		ch := s.change(tp, p, b.ID)
		ch.setDirectory(b.ID, b.LogDirs[0])
		if r := ch.record(); r != nil {
			t.add(r)
		}
	}
}
