package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/test/nodes"
)

// What is asked here is asked of our own nodes, by franz-go.

// brokers are the registered brokers, as a data node of ours tells.
func (p *proof) brokers(ctx context.Context) (map[int32]kmsg.DescribeClusterResponseBroker, error) {
	request := kmsg.NewPtrDescribeClusterRequest()
	request.IncludeFencedBrokers = true
	resp, err := request.RequestWith(ctx, p.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	all := map[int32]kmsg.DescribeClusterResponseBroker{}
	for _, b := range resp.Brokers {
		all[b.NodeID] = b
	}
	return all, nil
}

// isFenced says whether a broker is fenced.
func (p *proof) isFenced(ctx context.Context, id int32) (bool, error) {
	all, err := p.brokers(ctx)
	if err != nil {
		return false, err
	}
	b, ok := all[id]
	if !ok {
		return false, fmt.Errorf("broker %d is not registered", id)
	}
	return b.IsFenced, nil
}

// unfenced is nil when the broker is in service.
func (p *proof) unfenced(ctx context.Context, id int32) error {
	fenced, err := p.isFenced(ctx, id)
	if err == nil && fenced {
		err = fmt.Errorf("broker %d is fenced", id)
	}
	return err
}

// quorum is what the leader of the metadata quorum says of it.
type quorum struct {
	leader, epoch     int32
	highWatermark     int64
	voters, observers map[int32]replica
	endpoints         map[int32][]string
}

type replica struct {
	directory string
	end       int64
}

// quorum asks for the state of the quorum.
func (p *proof) quorum(ctx context.Context) (*quorum, error) {
	resp, part, err := nodes.DescribeQuorum(ctx, p.client)
	if err != nil {
		return nil, err
	}
	q := &quorum{
		leader: part.LeaderID, epoch: part.LeaderEpoch, highWatermark: part.HighWatermark,
		voters: map[int32]replica{}, observers: map[int32]replica{}, endpoints: map[int32][]string{},
	}
	for _, v := range part.CurrentVoters {
		q.voters[v.ReplicaID] = replica{ident.UUID(v.ReplicaDirectoryID).String(), v.LogEndOffset}
	}
	for _, o := range part.Observers {
		q.observers[o.ReplicaID] = replica{ident.UUID(o.ReplicaDirectoryID).String(), o.LogEndOffset}
	}
	for _, n := range resp.Nodes {
		for _, l := range n.Listeners {
			q.endpoints[n.NodeID] = append(q.endpoints[n.NodeID], fmt.Sprintf("%s://%s:%d", l.Name, l.Host, l.Port))
		}
	}
	return q, nil
}

// createTopic creates a topic with the given replicas of its partitions.
func createTopic(ctx context.Context, client *kgo.Client, name string, configs map[string]string, assignment ...[]int32) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 20_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	for i, replicas := range assignment {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), replicas
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, a)
	}
	for key, value := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = key, &value
		topic.Configs = append(topic.Configs, c)
	}
	request.Topics = append(request.Topics, topic)
	resp, err := request.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// partition is what the cluster says of a partition.
func (p *proof) partition(ctx context.Context, topic string, index int32) (kadm.PartitionDetail, error) {
	details, err := kadm.NewClient(p.client).ListTopics(ctx, topic)
	if err != nil {
		return kadm.PartitionDetail{}, err
	}
	part, ok := details[topic].Partitions[index]
	if !ok {
		return part, fmt.Errorf("there is no %s-%d: %w", topic, index, details[topic].Err)
	}
	return part, nil
}

// inSync is nil when a partition has that leader, and exactly these in-sync replicas.
func (p *proof) inSync(ctx context.Context, topic string, index, leader int32, isr ...int32) error {
	part, err := p.partition(ctx, topic, index)
	if err != nil {
		return err
	}
	got := slices.Sorted(slices.Values(part.ISR))
	if part.Leader != leader || !slices.Equal(got, slices.Sorted(slices.Values(isr))) {
		return fmt.Errorf("%s-%d has leader %d and ISR %v, want %d and %v", topic, index, part.Leader, got, leader, isr)
	}
	return nil
}

// endOffset is where a partition ends.
func (p *proof) endOffset(ctx context.Context, topic string, index int32) (int64, error) {
	ends, err := kadm.NewClient(p.client).ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	end, ok := ends.Lookup(topic, index)
	if !ok {
		return 0, fmt.Errorf("no end of %s-%d", topic, index)
	}
	return end.Offset, end.Err
}
