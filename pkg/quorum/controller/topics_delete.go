package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// DeleteTopics (20) deletes topics by name or, from version 6 on, by id, with their partitions and configs
// (KIP-516). Per topic: INVALID_REQUEST when it is named by both or neither or twice,
// UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.
func (c *Controller) DeleteTopics(now ident.Instant, request *kmsg.DeleteTopicsRequest) Decision {
	response := request.ResponseKind().(*kmsg.DeleteTopicsResponse)
	wanted := request.Topics
	if request.Version < 6 {
		wanted = nil
		for _, name := range request.TopicNames {
			topic := kmsg.NewDeleteTopicsRequestTopic()
			topic.Topic = &name
			wanted = append(wanted, topic)
		}
	}
	all := func(why *refusal) *kmsg.DeleteTopicsResponse {
		response.Topics = nil
		for i := range wanted {
			response.Topics = append(response.Topics, deletedTopic(wanted[i].Topic, wanted[i].TopicID, why))
		}
		return response
	}
	if !c.active {
		return notController(all(refuse(kerr.NotController, "")))
	}
	c.enter(now)
	defer c.plan()
	named := map[ident.UUID]int{}
	for i := range wanted {
		if topic, why := c.topicToDelete(&wanted[i]); why == nil {
			named[topic.ID]++
		}
	}
	t := c.begin()
	for i := range wanted {
		topic, why := c.topicToDelete(&wanted[i])
		if why == nil && named[topic.ID] > 1 {
			why = refuse(kerr.InvalidRequest, *text("Topic %s is named more than once.", topic.Name))
		}
		if why != nil {
			response.Topics = append(response.Topics, deletedTopic(wanted[i].Topic, wanted[i].TopicID, why))
			continue
		}
		t.add(&metadata.RemoveTopicRecord{TopicID: topic.ID})
		response.Topics = append(response.Topics, deletedTopic(&topic.Name, topic.ID, nil))
	}
	if code, why := t.refused(); code != nil {
		return c.answer(all(refuse(code, why)))
	}
	return t.commit(response)
}

func deletedTopic(name *string, id [16]byte, why *refusal) kmsg.DeleteTopicsResponseTopic {
	answer := kmsg.NewDeleteTopicsResponseTopic()
	answer.Topic, answer.TopicID = name, id
	why.put(&answer.ErrorCode, &answer.ErrorMessage)
	return answer
}

func (c *Controller) topicToDelete(request *kmsg.DeleteTopicsRequestTopic) (*metadata.Topic, *refusal) {
	id := ident.UUID(request.TopicID)
	switch {
	case request.Topic != nil && !id.IsZero():
		return nil, refuse(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
	case request.Topic == nil && id.IsZero():
		return nil, refuse(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	case request.Topic != nil:
		topic, ok := c.appended.image.Topic(*request.Topic)
		if !ok {
			return nil, refuse(kerr.UnknownTopicOrPartition, "")
		}
		return topic, nil
	}
	topic, ok := c.appended.image.TopicByID(id)
	if !ok {
		return nil, refuse(kerr.UnknownTopicID, "")
	}
	return topic, nil
}
