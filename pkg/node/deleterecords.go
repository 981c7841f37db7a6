package node

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/topicconfig"
	"github.com/highwater-io/highwater/pkg/wire"
)

const policyViolation replication.Code = 44

// deleteOp is one DeleteRecords request on its way: its partitions complete one by one.
type deleteOp struct {
	broker *broker
	req    *wire.Request
	resp   *kmsg.DeleteRecordsResponse

	mu        sync.Mutex
	remaining int
	parts     []deletePart
}

type deletePart struct {
	topic int // index into the response's topics
	part  kmsg.DeleteRecordsResponseTopicPartition
}

// deleteWaiter is one partition's part of a DeleteRecords request.
type deleteWaiter struct {
	op    *deleteOp
	index int
}

type completedDelete struct {
	waiter *deleteWaiter
	result replication.Deletion
}

// deleteRecords moves the starts of logs that this node leads. Each is answered when the replicas on live nodes have
// followed, or when the time is over. Before success is told, log-start-offset-checkpoint has the new start: Kafka
// writes it by and by, so that a crash may bring deleted records back.
func (b *broker) deleteRecords(req *wire.Request) {
	body := req.Body.(*kmsg.DeleteRecordsRequest)
	op := &deleteOp{broker: b, req: req, resp: kmsg.NewPtrDeleteRecordsResponse(), remaining: 1}
	timeout := time.Duration(body.TimeoutMillis) * time.Millisecond
	image := b.image()
	type work struct {
		replica   *replica
		index     int
		before    ident.Offset
		forbidden bool
	}
	var todo []work
	for t := range body.Topics {
		asked := &body.Topics[t]
		answer := kmsg.NewDeleteRecordsResponseTopic()
		answer.Topic = asked.Topic
		op.resp.Topics = append(op.resp.Topics, answer)
		topic, code := b.topicFor(req, wire.OpDelete, image, false, asked.Topic, [16]byte{})
		for _, p := range asked.Partitions {
			part := kmsg.NewDeleteRecordsResponseTopicPartition()
			part.Partition, part.LowWatermark = p.Partition, -1
			r, failure := (*replica)(nil), code
			if failure == nil {
				r, failure = b.hosted(topic, p.Partition)
			}
			if failure != nil {
				part.ErrorCode = failure.Code
			} else {
				todo = append(todo, work{r, len(op.parts), ident.Offset(p.Offset), !b.mayDelete(image, topic)})
			}
			op.parts = append(op.parts, deletePart{topic: t, part: part})
		}
	}
	op.remaining += len(todo)
	for _, w := range todo {
		refused := false
		ok := w.replica.do(func(now ident.Instant, p *exec.Partition) {
			if refused = w.forbidden && p.Core().Role() == replication.Leader; refused {
				return
			}
			token := w.replica.token()
			w.replica.deletes[token] = &deleteWaiter{op: op, index: w.index}
			p.DeleteRecords(now, replication.DeleteRecords{Token: token, Before: w.before, Timeout: timeout})
		})
		switch {
		case refused:
			op.done(w.index, replication.Deletion{Code: policyViolation, LowWatermark: ident.UnknownOffset})
		case !ok:
			op.done(w.index, replication.Deletion{Code: replication.NotLeaderOrFollower, LowWatermark: ident.UnknownOffset})
		}
	}
	op.finishOne()
}

// mayDelete says whether records of a topic may be deleted by offset: not where only compaction removes any.
func (b *broker) mayDelete(image *metadata.Image, topic *metadata.Topic) bool {
	key, _ := topicconfig.Lookup(topicconfig.CleanupPolicy)
	policy, _ := b.defaults.Value(key, image.Config(metadata.ResourceTopic, topic.Name).Get)
	return slices.Contains(topicconfig.SplitList(policy), "delete")
}

// done takes one partition's result; it may be called from any goroutine, without locks of a replica.
func (op *deleteOp) done(index int, result replication.Deletion) {
	op.mu.Lock()
	part := &op.parts[index].part
	part.ErrorCode, part.LowWatermark = int16(result.Code), int64(result.LowWatermark)
	op.mu.Unlock()
	op.finishOne()
}

func (op *deleteOp) finishOne() {
	op.mu.Lock()
	op.remaining--
	last := op.remaining == 0
	op.mu.Unlock()
	if last {
		op.broker.replies.Go(op.reply) // the disk takes its time, and whoever completes the last part has other things to do
	}
}

func (op *deleteOp) reply() {
	deleted := func(p deletePart) bool { return p.part.ErrorCode == 0 }
	if slices.ContainsFunc(op.parts, deleted) {
		if err := op.broker.writeLogStarts(); err != nil {
			op.broker.takeOffline(fmt.Errorf("write the log starts: %w", err))
			for i := range op.parts {
				if deleted(op.parts[i]) {
					op.parts[i].part.ErrorCode, op.parts[i].part.LowWatermark = kerr.KafkaStorageError.Code, -1
				}
			}
		}
	}
	for i := range op.parts {
		topic := &op.resp.Topics[op.parts[i].topic]
		topic.Partitions = append(topic.Partitions, op.parts[i].part)
	}
	op.req.Reply(op.resp)
}
