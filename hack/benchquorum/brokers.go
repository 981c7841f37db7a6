package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/bigcluster"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/test/nodes"
)

// brokers are a shape's brokers as far as the controller sees them: they register and send heartbeats. There is nothing
// behind them, so that the partitions cost metadata and nothing else.
type brokers struct {
	cluster *nodes.Cluster
	epochs  map[int32]int64

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// heartbeatInterval is a node's own.
const heartbeatInterval = 500 * time.Millisecond

// register registers a shape's brokers and keeps them alive until stop.
func register(ctx context.Context, c *nodes.Cluster, shape bigcluster.Shape) (*brokers, error) {
	b := &brokers{cluster: c, epochs: map[int32]int64{}}
	q, err := c.Quorum(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := nodes.Connect(q.Leader.Controller)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for r := range shape.Records() {
		broker, ok := r.(*metadata.RegisterBrokerRecord)
		if !ok {
			continue
		}
		// A leader has to apply the log before it is the active controller.
		if err := nodes.Eventually(ctx, fmt.Sprintf("broker %d registers", broker.BrokerID), 30*time.Second, func(ctx context.Context) error {
			answer, err := conn.Request(ctx, registration(broker))
			if err != nil {
				return err
			}
			resp := answer.(*kmsg.BrokerRegistrationResponse)
			b.epochs[int32(broker.BrokerID)] = resp.BrokerEpoch
			return kerr.ErrorForCode(resp.ErrorCode)
		}); err != nil {
			return nil, err
		}
	}
	if err := nodes.Eventually(ctx, "the brokers are unfenced", 30*time.Second, func(ctx context.Context) error {
		fenced, err := b.heartbeats(ctx, conn)
		if err == nil && fenced > 0 {
			err = fmt.Errorf("%d are fenced", fenced)
		}
		return err
	}); err != nil {
		return nil, err
	}
	ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	b.running.Go(func() { b.live(ctx) })
	return b, nil
}

func registration(r *metadata.RegisterBrokerRecord) kmsg.Request {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID, req.Rack = int32(r.BrokerID), nodes.ClusterID.String(), r.IncarnationID, r.Rack
	req.PreviousBrokerEpoch = -1
	for _, dir := range r.LogDirs {
		req.LogDirs = append(req.LogDirs, dir)
	}
	for _, e := range r.EndPoints {
		listener := kmsg.NewBrokerRegistrationRequestListener()
		listener.Name, listener.Host, listener.Port = e.Name, e.Host, e.Port
		req.Listeners = append(req.Listeners, listener)
	}
	for _, f := range r.Features {
		feature := kmsg.NewBrokerRegistrationRequestFeature()
		feature.Name, feature.MinSupportedVersion, feature.MaxSupportedVersion = f.Name, f.MinSupportedVersion, f.MaxSupportedVersion
		req.Features = append(req.Features, feature)
	}
	return req
}

// heartbeats sends one for each broker and counts those that are fenced.
func (b *brokers) heartbeats(ctx context.Context, conn *nodes.Conn) (fenced int, err error) {
	for id, epoch := range b.epochs {
		req := kmsg.NewPtrBrokerHeartbeatRequest()
		req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = id, epoch, 1<<60
		answer, err := conn.Request(ctx, req)
		if err != nil {
			return 0, err
		}
		resp := answer.(*kmsg.BrokerHeartbeatResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return 0, err
		}
		if resp.IsFenced {
			fenced++
		}
	}
	return fenced, nil
}

// live sends heartbeats to whoever leads.
func (b *brokers) live(ctx context.Context) {
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	var conn *nodes.Conn
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	for {
		if conn == nil {
			if q, err := b.cluster.Quorum(ctx); err == nil {
				conn, _ = nodes.Connect(q.Leader.Controller)
			}
		}
		if conn != nil {
			if _, err := b.heartbeats(ctx, conn); err != nil {
				conn.Close()
				conn = nil
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// stop ends the heartbeats.
func (b *brokers) stop() {
	b.cancel()
	b.running.Wait()
}

// perRequest is how many partitions are asked for at a time.
const perRequest = 1000

// create makes a shape's topics, as an administrator would, and says how long it took.
func create(ctx context.Context, leader *nodes.Node, shape bigcluster.Shape) (time.Duration, error) {
	conn, err := nodes.Connect(leader.Controller)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	began := time.Now()
	var req *kmsg.CreateTopicsRequest
	partitions := 0
	send := func() error {
		answer, err := conn.Request(ctx, req)
		if err != nil {
			return fmt.Errorf("create %d topics: %w", len(req.Topics), err)
		}
		for _, t := range answer.(*kmsg.CreateTopicsResponse).Topics {
			if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
				return fmt.Errorf("create topic %s: %w", t.Topic, err)
			}
		}
		req, partitions = nil, 0
		return nil
	}
	names := map[ident.UUID]int{}
	for r := range shape.Records() {
		switch r := r.(type) {
		case *metadata.TopicRecord:
			if req != nil && partitions+shape.Partitions > perRequest {
				if err := send(); err != nil {
					return 0, err
				}
				clear(names)
			}
			if req == nil {
				req = kmsg.NewPtrCreateTopicsRequest()
				req.TimeoutMillis = 30_000
			}
			t := kmsg.NewCreateTopicsRequestTopic()
			t.Topic, t.NumPartitions, t.ReplicationFactor = r.Name, -1, -1
			names[r.TopicID] = len(req.Topics)
			req.Topics = append(req.Topics, t)
		case *metadata.PartitionRecord:
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition = r.PartitionID
			for _, id := range r.Replicas {
				a.Replicas = append(a.Replicas, int32(id))
			}
			t := &req.Topics[names[r.TopicID]]
			t.ReplicaAssignment = append(t.ReplicaAssignment, a)
			partitions++
		case *metadata.ConfigRecord:
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = r.Name, r.Value
			t := &req.Topics[len(req.Topics)-1]
			t.Configs = append(t.Configs, c)
		}
	}
	if err := send(); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}
