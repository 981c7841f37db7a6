package node

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/wire"
)

// fetchMaxBytesDefault is the limit of a fetch whose version has none (up to version 2, which nobody sends).
const fetchMaxBytesDefault = 50 << 20

// fetchOp is one Fetch request of a follower or a consumer. It is evaluated, parked at every replica that it reads,
// and evaluated again when one of them has news or its time is over. At most one evaluation runs at a time.
type fetchOp struct {
	broker   *broker
	req      *wire.Request
	consumer bool
	minBytes int
	maxBytes int
	deadline ident.Instant
	resp     wire.FetchResult
	parts    []fetchPart
	stopGone func() bool

	mu         sync.Mutex
	evaluating bool
	again      bool // woken while evaluating
	answered   bool
}

// fetchPart is one partition of a fetch.
type fetchPart struct {
	topic   int
	id      ident.TopicPartition
	replica *replica
	ask     exec.Fetch
	answer  wire.FetchPartition
	code    int16        // why it isn't read at all
	seen    ident.Offset // up to where the last answer could read
	parked  bool
}

// fetch starts a Fetch request. Sessions (KIP-227) are declined by answering session id 0.
func (b *broker) fetch(req *wire.Request) {
	body := req.Body.(*kmsg.FetchRequest)
	if body.SessionID != 0 {
		req.ReplyRaw(wire.EncodeFetch(req.Version, &wire.FetchResult{ErrorCode: kerr.FetchSessionIDNotFound.Code}))
		return
	}
	replicaID, brokerEpoch := wire.FetchReplica(body)
	op := &fetchOp{
		broker: b, req: req, consumer: replicaID < 0,
		minBytes: int(body.MinBytes), maxBytes: int(body.MaxBytes),
		deadline: b.clock.now().Add(time.Duration(body.MaxWaitMillis) * time.Millisecond),
	}
	if op.maxBytes <= 0 {
		op.maxBytes = fetchMaxBytesDefault
	}
	image := b.image()
	for t := range body.Topics {
		asked := &body.Topics[t]
		op.resp.Topics = append(op.resp.Topics, wire.FetchTopic{Topic: asked.Topic, TopicID: asked.TopicID})
		topic, code := b.resolveTopic(image, body.Version >= 13, asked.Topic, asked.TopicID)
		if code == nil && op.consumer && !req.Authorize(wire.OpRead, wire.Resource{Type: wire.ResourceTopic, Name: topic.Name}) {
			code = kerr.TopicAuthorizationFailed
		}
		for i := range asked.Partitions {
			op.add(t, topic, code, &asked.Partitions[i], ident.NodeID(replicaID), brokerEpoch)
		}
	}
	// Kafka's bound, too: more than may be sent is never there.
	op.minBytes = min(op.minBytes, op.maxBytes)
	op.mu.Lock()
	op.evaluating = true // so that a connection that is gone already finds stopGone set
	op.stopGone = context.AfterFunc(req.Context(), op.wake)
	op.mu.Unlock()
	go op.evaluate()
}

func (op *fetchOp) add(t int, topic *metadata.Topic, code *kerr.Error, asked *kmsg.FetchRequestTopicPartition, replicaID ident.NodeID, brokerEpoch int64) {
	part := fetchPart{topic: t, answer: wire.NewFetchPartition(asked.Partition)}
	if code == nil {
		part.id = ident.TopicPartition{Topic: topic.ID, Index: asked.Partition}
		part.replica, code = op.broker.hosted(topic, asked.Partition)
	}
	if code != nil {
		part.code = code.Code
		op.parts = append(op.parts, part)
		return
	}
	part.ask = exec.Fetch{
		Fetch: replication.Fetch{
			Replica: replicaID, BrokerEpoch: brokerEpoch,
			LeaderEpoch: ident.Epoch(asked.CurrentLeaderEpoch), Offset: ident.Offset(asked.FetchOffset),
			LastFetchedEpoch: ident.Epoch(asked.LastFetchedEpoch), LogStart: ident.Offset(asked.LogStartOffset),
		},
		MaxBytes: int(asked.PartitionMaxBytes),
	}
	op.parts = append(op.parts, part)
}

// wake has the fetch evaluated again, in a goroutine of its own: whoever wakes it is in the middle of a produce.
func (op *fetchOp) wake() {
	op.mu.Lock()
	defer op.mu.Unlock()
	switch {
	case op.answered:
	case op.evaluating:
		op.again = true
	default:
		op.evaluating = true
		go op.evaluate()
	}
}

func (op *fetchOp) evaluate() {
	for {
		op.unpark()
		enough := op.read()
		if !enough && op.broker.clock.now() < op.deadline && op.req.Context().Err() == nil {
			op.release()
			op.park()
			op.mu.Lock()
			if !op.again {
				op.evaluating = false
				op.mu.Unlock()
				return
			}
			op.again = false
			op.mu.Unlock()
			continue
		}
		op.mu.Lock()
		op.answered = true
		op.mu.Unlock()
		op.reply()
		return
	}
}

// read asks every replica in the order of the request and says whether there is enough to answer: records, an
// error, or a divergence.
func (op *fetchOp) read() bool {
	// A fetch of nothing waits for nothing: no partition could ever wake it.
	total, enough := 0, len(op.parts) == 0
	for i := range op.parts {
		part := &op.parts[i]
		part.answer = wire.NewFetchPartition(part.answer.Partition)
		if part.replica == nil {
			part.answer.ErrorCode, enough = part.code, true
			continue
		}
		ask := part.ask
		ask.MaxBytes = min(ask.MaxBytes, op.maxBytes-total)
		ask.MinOne = total == 0
		if total > 0 && ask.MaxBytes < 0 {
			ask.MaxBytes = 0
		}
		var result exec.FetchResult
		if !part.replica.do(func(now ident.Instant, p *exec.Partition) { result = p.Fetch(now, ask) }) {
			part.answer.ErrorCode, enough = kerr.NotLeaderForPartition.Code, true
			continue
		}
		// From now on it is a question asked before: a parked fetch is no new progress of a follower.
		part.ask.Again = true
		if result.Code != replication.None || result.Diverging != replication.NoEpochEnd || result.TellsLogStart(ask.Fetch) {
			enough = true
		}
		op.fill(part, result)
		total += result.Records.Bytes
	}
	return enough || total >= op.minBytes
}

func (op *fetchOp) fill(part *fetchPart, result exec.FetchResult) {
	a := &part.answer
	a.ErrorCode = int16(result.Code)
	a.HighWatermark, a.LogStartOffset = int64(result.HighWatermark), int64(result.LogStart)
	// Without transactions every committed record is stable.
	a.LastStableOffset = a.HighWatermark
	if result.Diverging != replication.NoEpochEnd {
		a.DivergingEpoch.Epoch, a.DivergingEpoch.EndOffset = int32(result.Diverging.Epoch), int64(result.Diverging.End)
	}
	part.seen = result.Below
	a.Records = segmentsOf(result.Records)
	if len(result.Records.Ranges) > 0 {
		chunk := result.Records
		a.Release = chunk.Release
	}
}

// segmentsOf makes a log's file ranges parts of a response.
func segmentsOf(chunk log.Chunk) []wire.Segment {
	segments := make([]wire.Segment, 0, len(chunk.Ranges))
	for _, r := range chunk.Ranges {
		segments = append(segments, wire.Segment{File: r.File, Offset: r.Pos, Length: int64(r.Len)})
	}
	return segments
}

func (op *fetchOp) release() {
	for i := range op.parts {
		if a := &op.parts[i].answer; a.Release != nil {
			a.Release()
			a.Release = nil
		}
	}
}

func (op *fetchOp) park() {
	for i := range op.parts {
		part := &op.parts[i]
		if part.replica == nil {
			continue
		}
		ok := part.replica.do(func(now ident.Instant, p *exec.Partition) {
			part.ask.Token = part.replica.token()
			part.replica.fetches[part.ask.Token] = op
			p.Park(now, part.ask, part.seen, op.deadline)
		})
		part.parked = ok
		if !ok {
			op.wake()
		}
	}
}

func (op *fetchOp) unpark() {
	for i := range op.parts {
		part := &op.parts[i]
		if !part.parked {
			continue
		}
		part.parked = false
		part.replica.do(func(now ident.Instant, p *exec.Partition) {
			if _, ok := part.replica.fetches[part.ask.Token]; ok {
				delete(part.replica.fetches, part.ask.Token)
				p.Unpark(now, part.ask.Token)
			}
		})
	}
}

func (op *fetchOp) reply() {
	op.stopGone()
	image := op.broker.image()
	hinted := map[ident.NodeID]bool{}
	for i := range op.parts {
		part := &op.parts[i]
		a := &part.answer
		switch a.ErrorCode {
		case kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code:
			if leader, epoch, ok := leaderOf(image, part.id); ok && op.req.Version >= 12 {
				a.CurrentLeader.LeaderID, a.CurrentLeader.LeaderEpoch = int32(leader), int32(epoch)
				hinted[leader] = op.consumer
			}
		case kerr.OffsetOutOfRange.Code:
			if op.consumer {
				a.DivergingEpoch.Default()
			}
		}
		topic := &op.resp.Topics[part.topic]
		topic.Partitions = append(topic.Partitions, *a)
	}
	if op.req.Version >= 16 {
		for _, e := range op.broker.externalEndpoints(image, hinted) {
			broker := kmsg.NewFetchResponseBroker()
			broker.NodeID, broker.Host, broker.Port, broker.Rack = int32(e.id), e.host, e.port, e.rack
			op.resp.Brokers = append(op.resp.Brokers, broker)
		}
	}
	op.req.ReplyRaw(wire.EncodeFetch(op.req.Version, &op.resp))
}
