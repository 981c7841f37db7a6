package wire

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FetchReplica returns who fetches: the replica id and broker epoch, -1 for a consumer or for unknown. Version
// 15 moved the id into a tagged field (KIP-903).
func FetchReplica(req *kmsg.FetchRequest) (id int32, epoch int64) {
	if req.Version >= 15 {
		return req.ReplicaState.ID, req.ReplicaState.Epoch
	}
	return req.ReplicaID, -1
}

// SetFetchReplica sets who fetches in the form of every version.
func SetFetchReplica(req *kmsg.FetchRequest, id int32, epoch int64) {
	req.ReplicaID = id
	req.ReplicaState.ID, req.ReplicaState.Epoch = id, epoch
}

// refuseReplicaFetch answers a replica's fetch on a listener for clients as Kafka does when the principal
// lacks ClusterAction: each partition gets TOPIC_AUTHORIZATION_FAILED.
func refuseReplicaFetch(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	for _, t := range req.Topics {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			part := kmsg.NewFetchResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
			part.HighWatermark, part.RecordBatches = -1, []byte{}
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
