package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/wire"
)

// Limits of a replica fetch, Kafka's defaults (replica.fetch.max.bytes, replica.fetch.response.max.bytes).
const (
	replicaFetchMaxBytes         = 1 << 20
	replicaFetchResponseMaxBytes = 10 << 20
)

// fetchers follows the leaders of all partitions that this node follows: one loop for each leading node, with one
// fetch under way, so that a slow leader holds back nobody else's partitions.
type fetchers struct {
	broker *broker
	pool   *wire.Pool

	mu      sync.Mutex
	ctx     context.Context
	running *sync.WaitGroup
	loops   map[ident.NodeID]*fetchLoop
	of      map[*replica]*fetchLoop
}

// fetchLoop fetches from one leading node.
type fetchLoop struct {
	owner  *fetchers
	leader ident.NodeID
	kick   chan struct{}

	// following is guarded by the owner's mutex.
	following map[*replica]bool
}

func newFetchers(b *broker, dialer *wire.Dialer) *fetchers {
	return &fetchers{
		broker: b, pool: &wire.Pool{Dialer: dialer},
		loops: map[ident.NodeID]*fetchLoop{}, of: map[*replica]*fetchLoop{},
	}
}

// start lets loops run until ctx ends; those that were asked for before begin now.
func (f *fetchers) start(ctx context.Context, running *sync.WaitGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ctx, f.running = ctx, running
	for _, loop := range f.loops {
		f.launch(loop)
	}
}

func (f *fetchers) launch(loop *fetchLoop) {
	f.running.Go(func() { loop.run(f.ctx) })
}

// follow moves a replica to the loop of its leader; ident.NoNode takes it out. The replica's mutex is held, so that
// the newest word is the last.
func (f *fetchers) follow(r *replica, leader ident.NodeID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.of[r]; old != nil && old.leader != leader {
		delete(old.following, r)
		delete(f.of, r)
	}
	if leader == ident.NoNode {
		return
	}
	loop := f.loops[leader]
	if loop == nil {
		loop = &fetchLoop{owner: f, leader: leader, kick: make(chan struct{}, 1), following: map[*replica]bool{}}
		f.loops[leader] = loop
		if f.ctx != nil && f.ctx.Err() == nil {
			f.launch(loop)
		}
	}
	f.of[r] = loop
	loop.following[r] = true
	wakeUp(loop.kick)
}

func (l *fetchLoop) replicas() []*replica {
	l.owner.mu.Lock()
	defer l.owner.mu.Unlock()
	list := make([]*replica, 0, len(l.following))
	for r := range l.following {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *replica) int { return a.id.Compare(b.id) })
	return list
}

// question is one partition of a fetch under way.
type question struct {
	replica *replica
	asked   replication.FetchPosition
}

// questions asks every replica what it wants to know from this leader.
func (l *fetchLoop) questions() []question {
	var list []question
	for _, r := range l.replicas() {
		r.mu.Lock()
		if !r.closed {
			if position, ok := r.partition.NextFetch(); ok && position.Leader == l.leader {
				list = append(list, question{r, position})
			}
		}
		r.mu.Unlock()
	}
	return list
}

func (l *fetchLoop) run(ctx context.Context) {
	start, trouble := 0, ""
	for ctx.Err() == nil {
		questions := l.questions()
		if len(questions) == 0 {
			select {
			case <-ctx.Done():
			case <-l.kick:
			}
			continue
		}
		// The first partition of a response gets its records whatever the limits; each is first in its turn.
		start = (start + 1) % len(questions)
		questions = slices.Concat(questions[start:], questions[:start])
		err := l.fetch(ctx, questions)
		if err == nil {
			if trouble != "" {
				l.owner.broker.logger.Info("fetching from the leader again", "leader", l.leader)
				trouble = ""
			}
			continue
		}
		if ctx.Err() == nil {
			if err.Error() != trouble {
				trouble = err.Error()
				l.owner.broker.logger.Info("fetch from the leader failed, trying on", "leader", l.leader, "error", err)
			}
			backoff := l.owner.broker.cfg.Timing.RetryBackoff
			select {
			case <-ctx.Done():
			case <-time.After(backoff + rand.N(backoff)):
			}
		}
	}
}

func (l *fetchLoop) fetch(ctx context.Context, questions []question) error {
	b := l.owner.broker
	registered, ok := b.image().Broker(l.leader)
	if !ok {
		return errors.New("the leading node is not registered")
	}
	e, ok := registered.Endpoint(string(wire.Internal))
	if !ok {
		return errors.New("the leading node has no INTERNAL listener")
	}
	timing := b.cfg.Timing
	ctx, cancel := context.WithTimeout(ctx, timing.FetchMaxWait+timing.RequestTimeout)
	defer cancel()
	address := net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
	answer, release, err := l.owner.pool.Peer(address, wire.LaneFetch).RequestPooled(ctx, l.request(questions))
	if err != nil {
		return err
	}
	defer release() // appended by then
	resp, ok := answer.(*kmsg.FetchResponse)
	if !ok {
		return errors.New("the leader answered Fetch with something else")
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	answers := map[ident.TopicPartition]*kmsg.FetchResponseTopicPartition{}
	for t := range resp.Topics {
		for p := range resp.Topics[t].Partitions {
			part := &resp.Topics[t].Partitions[p]
			answers[ident.TopicPartition{Topic: resp.Topics[t].TopicID, Index: part.Partition}] = part
		}
	}
	for _, q := range questions {
		if part := answers[q.replica.id]; part != nil {
			l.handle(q, part)
		}
	}
	return nil
}

func (l *fetchLoop) request(questions []question) *kmsg.FetchRequest {
	b := l.owner.broker
	req := kmsg.NewPtrFetchRequest()
	cluster := b.cfg.Shared.ClusterID.String()
	req.ClusterID = &cluster
	wire.SetFetchReplica(req, int32(b.cfg.NodeID), b.epoch())
	req.MaxWaitMillis = int32(b.cfg.Timing.FetchMaxWait.Milliseconds())
	req.MinBytes, req.MaxBytes = 1, replicaFetchResponseMaxBytes
	req.SessionID, req.SessionEpoch = 0, -1
	for _, q := range questions {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != q.replica.id.Topic {
			topic := kmsg.NewFetchRequestTopic()
			topic.Topic, topic.TopicID = q.replica.topic, q.replica.id.Topic
			req.Topics = append(req.Topics, topic)
		}
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition = q.replica.id.Index
		part.CurrentLeaderEpoch = int32(q.asked.LeaderEpoch)
		part.FetchOffset = int64(q.asked.Offset)
		part.LastFetchedEpoch = int32(q.asked.LastFetchedEpoch)
		part.LogStartOffset = int64(q.asked.LogStart)
		part.PartitionMaxBytes = replicaFetchMaxBytes
		topic := &req.Topics[len(req.Topics)-1]
		topic.Partitions = append(topic.Partitions, part)
	}
	return req
}

func (l *fetchLoop) handle(q question, part *kmsg.FetchResponseTopicPartition) {
	diverging := replication.NoEpochEnd
	if part.DivergingEpoch.Epoch != -1 || part.DivergingEpoch.EndOffset != -1 {
		diverging = replication.EpochEnd{Epoch: ident.Epoch(part.DivergingEpoch.Epoch), End: ident.Offset(part.DivergingEpoch.EndOffset)}
	}
	q.replica.do(func(now ident.Instant, p *exec.Partition) {
		p.HandleFetchResponse(now, exec.FetchResponse{
			Asked: q.asked, Code: replication.Code(part.ErrorCode),
			HighWatermark: ident.Offset(part.HighWatermark), LeaderLogStart: ident.Offset(part.LogStartOffset),
			Diverging: diverging, Records: part.RecordBatches,
		})
	})
}
