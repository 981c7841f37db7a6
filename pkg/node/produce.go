package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/wire"
)

// produceOp is one Produce request on its way: its partitions complete one by one.
type produceOp struct {
	broker *broker
	req    *wire.Request
	acks   int16
	// resp is begun with the topics; the request's body is gone by the time it is sent.
	resp *kmsg.ProduceResponse

	mu        sync.Mutex
	remaining int
	parts     []producePart
}

type producePart struct {
	topic   int // index into the response's topics
	part    kmsg.ProduceResponseTopicPartition
	id      ident.TopicPartition
	hasHint bool

	// What is to be appended where, until it is.
	replica *replica
	records []byte
}

// produce appends what it may before it returns, so that requests of one connection are appended in their order;
// with acks=all the answer comes when the in-sync replicas have the records.
func (b *broker) produce(req *wire.Request) {
	body := req.Body.(*kmsg.ProduceRequest)
	op := &produceOp{broker: b, req: req, acks: body.Acks, resp: kmsg.NewPtrProduceResponse(), remaining: 1}
	timeout := time.Duration(body.TimeoutMillis) * time.Millisecond
	image := b.image()
	partitions := 0
	for t := range body.Topics {
		partitions += len(body.Topics[t].Partitions)
	}
	op.parts = make([]producePart, 0, partitions)
	op.resp.Topics = make([]kmsg.ProduceResponseTopic, 0, len(body.Topics))
	for t := range body.Topics {
		topic := &body.Topics[t]
		answer := kmsg.NewProduceResponseTopic()
		answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
		op.resp.Topics = append(op.resp.Topics, answer)
		found, code := b.topicFor(req, wire.OpWrite, image, body.Version >= 13, topic.Topic, topic.TopicID)
		for p := range topic.Partitions {
			asked := &topic.Partitions[p]
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition = asked.Partition
			part.BaseOffset, part.LogStartOffset = -1, -1
			entry := producePart{topic: t, part: part}
			switch {
			case code != nil:
				entry.part.ErrorCode = code.Code
			case body.TransactionID != nil:
				// No transaction coordinator answers here, so no transaction can have begun.
				entry.part.ErrorCode = kerr.TransactionalIDNotFound.Code
			default:
				entry.id = ident.TopicPartition{Topic: found.ID, Index: asked.Partition}
				r, code := b.hosted(found, asked.Partition)
				if code != nil {
					entry.part.ErrorCode = code.Code
					entry.hasHint = code == kerr.NotLeaderForPartition
				} else {
					entry.replica, entry.records = r, asked.Records
					op.remaining++
				}
			}
			op.parts = append(op.parts, entry)
		}
	}
	ev := replication.Produce{Acks: body.Acks, Timeout: timeout}
	for i := range op.parts {
		r, records := op.parts[i].replica, op.parts[i].records
		if r == nil {
			continue
		}
		op.parts[i].replica, op.parts[i].records = nil, nil // another request's, once the body is released
		if !r.produce(op, i, ev, records) {
			op.done(i, exec.Produced{Code: replication.NotLeaderOrFollower, Base: -1, LogStart: -1, LogAppendTime: -1})
		}
	}
	req.ReleaseBody()
	op.finishOne()
}

// produce is do for a produce, the most frequent call: no closure.
func (r *replica) produce(op *produceOp, index int, ev replication.Produce, records []byte) bool {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return false
	}
	now := r.broker.clock.now()
	ev.Token = r.token()
	r.produces[ev.Token] = produceWaiter{op: op, index: index}
	r.partition.Produce(now, ev, records)
	after := r.drain(now)
	r.mu.Unlock()
	r.act(after)
	return true
}

// done takes one partition's result; it may be called from any goroutine, without locks of a replica.
func (op *produceOp) done(index int, result exec.Produced) {
	op.mu.Lock()
	entry := &op.parts[index]
	entry.part.ErrorCode = int16(result.Code)
	entry.part.BaseOffset = int64(result.Base)
	entry.part.LogStartOffset = int64(result.LogStart)
	entry.part.LogAppendTime = result.LogAppendTime
	if result.Message != "" {
		entry.part.ErrorMessage = kmsg.StringPtr(result.Message)
	}
	entry.hasHint = result.Code == replication.NotLeaderOrFollower
	op.mu.Unlock()
	op.finishOne()
}

func (op *produceOp) finishOne() {
	op.mu.Lock()
	op.remaining--
	last := op.remaining == 0
	op.mu.Unlock()
	if last {
		op.reply()
	}
}

func (op *produceOp) reply() {
	if op.acks == 0 {
		// Nobody reads an answer; a producer learns of a failure only by losing its connection, as in Kafka.
		for i := range op.parts {
			if code := op.parts[i].part.ErrorCode; code != 0 {
				op.req.Fail(fmt.Errorf("produce with acks=0 failed: %w", kerr.ErrorForCode(code)))
				return
			}
		}
		op.req.NoReply()
		return
	}
	image := op.broker.image()
	hinted := map[ident.NodeID]bool{}
	for i := range op.parts {
		entry := &op.parts[i]
		if entry.hasHint && op.req.Version >= 10 {
			if leader, epoch, ok := leaderOf(image, entry.id); ok {
				entry.part.CurrentLeader.LeaderID, entry.part.CurrentLeader.LeaderEpoch = int32(leader), int32(epoch)
				hinted[leader] = true
			}
		}
		topic := &op.resp.Topics[entry.topic]
		topic.Partitions = append(topic.Partitions, entry.part)
	}
	for _, e := range op.broker.externalEndpoints(image, hinted) {
		broker := kmsg.NewProduceResponseBroker()
		broker.NodeID, broker.Host, broker.Port, broker.Rack = int32(e.id), e.host, e.port, e.rack
		op.resp.Brokers = append(op.resp.Brokers, broker)
	}
	op.req.Reply(op.resp)
}

// leaderOf returns who leads a partition by an image (KIP-951).
func leaderOf(image *metadata.Image, id ident.TopicPartition) (ident.NodeID, ident.Epoch, bool) {
	p, ok := image.Partition(id)
	if !ok {
		return ident.NoNode, ident.UnknownEpoch, false
	}
	return p.Leader, p.LeaderEpoch, true
}
