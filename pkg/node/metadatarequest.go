package node

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/wire"
)

// metadataRequest answers Metadata from the committed image. It names a live node as controller, any of them: data
// nodes forward admin requests (KIP-590), and voters are not for clients.
func (b *broker) metadataRequest(req *wire.Request) {
	body := req.Body.(*kmsg.MetadataRequest)
	image := b.image()
	resp := kmsg.NewPtrMetadataResponse()
	cluster := b.cfg.Shared.ClusterID.String()
	resp.ClusterID = &cluster
	resp.ControllerID = -1
	for _, e := range endpointsOf(image, req.Listener, nil) {
		broker := kmsg.NewMetadataResponseBroker()
		broker.NodeID, broker.Host, broker.Port, broker.Rack = int32(e.id), e.host, e.port, e.rack
		resp.Brokers = append(resp.Brokers, broker)
		if resp.ControllerID < 0 || e.id == b.cfg.NodeID {
			resp.ControllerID = broker.NodeID
		}
	}
	// From version 1 on null asks for all topics and an empty list for none; version 0 has only the list.
	all := body.Topics == nil || body.Version == 0 && len(body.Topics) == 0
	if all {
		for topic := range image.Topics() {
			if req.Authorize(wire.OpDescribe, wire.Resource{Type: wire.ResourceTopic, Name: topic.Name}) {
				resp.Topics = append(resp.Topics, b.describeTopic(image, topic))
			}
		}
	}
	for i := range body.Topics {
		resp.Topics = append(resp.Topics, b.describeAsked(req, image, &body.Topics[i]))
	}
	req.Reply(resp)
}

func (b *broker) describeAsked(req *wire.Request, image *metadata.Image, asked *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	failed := func(code *kerr.Error) kmsg.MetadataResponseTopic {
		t := kmsg.NewMetadataResponseTopic()
		t.ErrorCode, t.Topic, t.TopicID = code.Code, asked.Topic, asked.TopicID
		return t
	}
	name := ""
	if asked.Topic != nil {
		name = *asked.Topic
	}
	byID := asked.TopicID != [16]byte{}
	if byID && asked.Topic != nil {
		return failed(kerr.InvalidRequest)
	}
	topic, code := b.topicFor(req, wire.OpDescribe, image, byID, name, asked.TopicID)
	if code != nil {
		return failed(code)
	}
	return b.describeTopic(image, topic)
}

func (b *broker) describeTopic(image *metadata.Image, topic *metadata.Topic) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.TopicID = kmsg.StringPtr(topic.Name), topic.ID
	for index, p := range topic.Partitions() {
		part := kmsg.NewMetadataResponseTopicPartition()
		part.Partition, part.Leader, part.LeaderEpoch = index, int32(p.Leader), int32(p.LeaderEpoch)
		part.Replicas, part.ISR = ints(p.Replicas), ints(p.ISR)
		for _, id := range p.Replicas {
			if registered, ok := image.Broker(id); !ok || registered.Fenced {
				part.OfflineReplicas = append(part.OfflineReplicas, int32(id))
			}
		}
		if p.Leader == ident.NoNode {
			part.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		t.Partitions = append(t.Partitions, part)
	}
	return t
}

func ints(ids []ident.NodeID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// describeCluster answers DescribeCluster (KIP-700) about brokers. Controllers are asked at the controllers.
func (b *broker) describeCluster(req *wire.Request) {
	body := req.Body.(*kmsg.DescribeClusterRequest)
	resp := describeBrokers(b.image(), b.cfg.Shared.ClusterID, req.Listener, body)
	resp.ControllerID = int32(b.cfg.NodeID)
	req.Reply(resp)
}

// describeBrokers lists the registered brokers, with their endpoints of one listener.
func describeBrokers(image *metadata.Image, cluster ident.UUID, listener wire.Listener, body *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ClusterID = cluster.String()
	resp.ControllerID = -1
	resp.EndpointType = 1
	if body.Version >= 1 && body.EndpointType == 2 {
		resp.ErrorCode = kerr.MismatchedEndpointType.Code
		resp.ErrorMessage = kmsg.StringPtr("this listener belongs to a broker; ask a controller's listener for controllers")
		return resp
	}
	for registered := range image.Brokers() {
		if registered.Fenced && !body.IncludeFencedBrokers {
			continue
		}
		if e, ok := registered.Endpoint(string(listener)); ok {
			broker := kmsg.NewDescribeClusterResponseBroker()
			broker.NodeID, broker.Host, broker.Port, broker.Rack = int32(registered.ID), e.Host, int32(e.Port), registered.Rack
			broker.IsFenced = registered.Fenced
			resp.Brokers = append(resp.Brokers, broker)
		}
	}
	return resp
}

// describeConfigs answers DescribeConfigs for topics, from the same table that the controller validates by.
func (b *broker) describeConfigs(req *wire.Request) {
	body := req.Body.(*kmsg.DescribeConfigsRequest)
	image := b.image()
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for _, asked := range body.Resources {
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
		refuse := func(code *kerr.Error, why string) {
			r.ErrorCode, r.ErrorMessage = code.Code, kmsg.StringPtr(why)
		}
		switch asked.ResourceType {
		case kmsg.ConfigResourceTypeTopic:
			topic, ok := image.Topic(asked.ResourceName)
			switch {
			case !req.Authorize(wire.OpDescribeConfigs, wire.Resource{Type: wire.ResourceTopic, Name: asked.ResourceName}):
				refuse(kerr.TopicAuthorizationFailed, "not authorized to describe the topic's configuration")
			case !ok:
				refuse(kerr.UnknownTopicOrPartition, "the topic does not exist")
			default:
				set := image.Config(metadata.ResourceTopic, topic.Name)
				r.Configs = b.defaults.Describe(set.Get, asked.ConfigNames, body.IncludeSynonyms, body.IncludeDocumentation)
			}
		case kmsg.ConfigResourceTypeBroker:
			// What a node is configured with comes from its ReplicaSet and can't be changed over this protocol.
			refuse(kerr.InvalidRequest, "broker configurations are not served: a node's settings come from its ReplicaSet")
		default:
			refuse(kerr.InvalidRequest, "only topics have configurations here")
		}
		resp.Resources = append(resp.Resources, r)
	}
	req.Reply(resp)
}

// offsetForLeaderEpoch answers where an epoch ends in this leader's log (KIP-320).
func (b *broker) offsetForLeaderEpoch(req *wire.Request) {
	body := req.Body.(*kmsg.OffsetForLeaderEpochRequest)
	image := b.image()
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for _, askedTopic := range body.Topics {
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = askedTopic.Topic
		found, code := b.topicFor(req, wire.OpDescribe, image, false, askedTopic.Topic, [16]byte{})
		for _, asked := range askedTopic.Partitions {
			part := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			part.Partition, part.EndOffset, part.LeaderEpoch = asked.Partition, -1, -1
			if code != nil {
				part.ErrorCode = code.Code
			} else {
				b.epochEnd(found, asked, &part)
			}
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	req.Reply(resp)
}

func (b *broker) epochEnd(topic *metadata.Topic, asked kmsg.OffsetForLeaderEpochRequestTopicPartition, part *kmsg.OffsetForLeaderEpochResponseTopicPartition) {
	r, code := b.hosted(topic, asked.Partition)
	if code != nil {
		part.ErrorCode = code.Code
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		part.ErrorCode = kerr.NotLeaderForPartition.Code
		return
	}
	end, failure := r.partition.EpochEnd(ident.Epoch(asked.CurrentLeaderEpoch), ident.Epoch(asked.LeaderEpoch))
	part.ErrorCode = int16(failure)
	if failure == 0 {
		part.LeaderEpoch, part.EndOffset = int32(end.Epoch), int64(end.End)
	}
}
