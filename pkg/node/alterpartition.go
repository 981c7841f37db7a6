package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
)

// alterer sends the leaders' ISR proposals to the active controller: all that wait in one request, one request
// at a time, as Kafka's AlterPartitionManager does.
type alterer struct {
	broker *broker

	mu      sync.Mutex
	waiting map[*replica]replication.Proposal
	kick    chan struct{}

	trouble string // that the log has already; the loop's
}

func newAlterer(b *broker) *alterer {
	return &alterer{broker: b, waiting: map[*replica]replication.Proposal{}, kick: make(chan struct{}, 1)}
}

// propose queues a proposal; a newer one of the same replica takes the place of one that was not sent yet.
func (a *alterer) propose(r *replica, p replication.Proposal) {
	a.mu.Lock()
	a.waiting[r] = p
	a.mu.Unlock()
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

func (a *alterer) take() map[*replica]replication.Proposal {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.waiting
	a.waiting = map[*replica]replication.Proposal{}
	return taken
}

func (a *alterer) run(ctx context.Context) {
	for kicked(ctx, a.kick) {
		if batch := a.take(); len(batch) > 0 {
			a.send(ctx, batch)
		}
	}
}

// send tells each replica what became of its proposal. One whose answer is not known is proposed again by the
// core, unchanged, after a pause.
func (a *alterer) send(ctx context.Context, batch map[*replica]replication.Proposal) {
	started := time.Now()
	resp, err := a.request(ctx, batch)
	a.broker.metrics.alterPartition(time.Since(started), err)
	results := map[ident.TopicPartition]kmsg.AlterPartitionResponseTopicPartition{}
	code := replication.None
	switch {
	case err != nil:
		code = replication.NetworkException
		if err.Error() != a.trouble { // it is tried again many times a second
			a.trouble = err.Error()
			a.broker.logger.Info("AlterPartition failed, it is tried again", "error", err)
		}
	case resp.ErrorCode != 0:
		code = replication.Code(resp.ErrorCode)
		if resp.ErrorCode == kerr.StaleBrokerEpoch.Code && a.broker.epoch() >= 0 {
			// A heartbeat finds out now, and the life cycle registers anew.
			a.broker.lifecycle.wake()
		}
	default:
		a.trouble = ""
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				results[ident.TopicPartition{Topic: topic.TopidID, Index: p.Partition}] = p
			}
		}
	}
	for r, proposal := range batch {
		done := replication.AlterPartitionDone{
			LeaderEpoch: proposal.LeaderEpoch, PartitionEpoch: proposal.PartitionEpoch, Code: code,
		}
		if code == replication.None {
			if result, ok := results[r.id]; !ok {
				done.Code = replication.UnknownServerError
			} else {
				done.Code = replication.Code(result.ErrorCode)
				done.NowLeader, done.NowLeaderEpoch = ident.NodeID(result.LeaderID), ident.Epoch(result.LeaderEpoch)
				done.NowPartitionEpoch = result.PartitionEpoch
				for _, id := range result.ISR {
					done.NowISR = append(done.NowISR, ident.NodeID(id))
				}
			}
		}
		r.do(func(now ident.Instant, p *exec.Partition) { p.AlterPartitionDone(now, done) })
	}
}

func (a *alterer) request(ctx context.Context, batch map[*replica]replication.Proposal) (*kmsg.AlterPartitionResponse, error) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID, req.BrokerEpoch = int32(a.broker.cfg.NodeID), a.broker.epoch()
	replicas := make([]*replica, 0, len(batch))
	for r := range batch {
		replicas = append(replicas, r)
	}
	slices.SortFunc(replicas, func(x, y *replica) int { return x.id.Compare(y.id) })
	for _, r := range replicas {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != r.id.Topic {
			topic := kmsg.NewAlterPartitionRequestTopic()
			topic.TopicID = r.id.Topic
			req.Topics = append(req.Topics, topic)
		}
		proposal := batch[r]
		part := kmsg.NewAlterPartitionRequestTopicPartition()
		part.Partition = r.id.Index
		part.LeaderEpoch, part.PartitionEpoch = int32(proposal.LeaderEpoch), proposal.PartitionEpoch
		for _, m := range proposal.ISR {
			member := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			member.BrokerID, member.BrokerEpoch = int32(m.ID), m.BrokerEpoch
			part.NewEpochISR = append(part.NewEpochISR, member)
		}
		topic := &req.Topics[len(req.Topics)-1]
		topic.Partitions = append(topic.Partitions, part)
	}
	answer, err := a.broker.controllers.request(ctx, laneAlter, req)
	if err != nil {
		return nil, err
	}
	resp, ok := answer.(*kmsg.AlterPartitionResponse)
	if !ok {
		return nil, errors.New("the controller answered AlterPartition with something else")
	}
	return resp, nil
}
