package node

import (
	"sync"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
)

// replica is one partition replica on this node: the executor under its mutex, and who waits at it.
//
// Whoever calls the executor goes through do: it drains what the call brought about and acts on it after the
// mutex is free, since completing a request may call other replicas (KAFKA-8334: deadlocks by lock order).
type replica struct {
	id     ident.TopicPartition
	topic  string
	dir    string
	broker *broker

	mu        sync.Mutex
	partition *exec.Partition
	output    exec.Output
	closed    bool
	nextToken replication.Token
	produces  map[replication.Token]*produceWaiter
	fetches   map[replication.Token]*fetchOp
}

// produceWaiter is one partition's part of a produce request.
type produceWaiter struct {
	op    *produceOp
	index int
}

func newReplica(b *broker, topic, dir string, p *exec.Partition) *replica {
	return &replica{
		id: p.ID(), topic: topic, dir: dir, broker: b, partition: p,
		produces: map[replication.Token]*produceWaiter{}, fetches: map[replication.Token]*fetchOp{},
	}
}

// aftermath is what do has to act on once the mutex is free.
type aftermath struct {
	completed []completedProduce
	woken     []*fetchOp
	proposal  *replication.Proposal
	fetcher   bool
	facts     []replication.Fact
	refused   error
	failed    error
	deadline  ident.Instant
}

type completedProduce struct {
	waiter *produceWaiter
	result exec.Produced
}

// do calls f under the mutex and then acts on what it brought about. It returns false, without calling f, when
// the replica is closed.
func (r *replica) do(f func(now ident.Instant, p *exec.Partition)) bool {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return false
	}
	now := r.broker.clock.now()
	f(now, r.partition)
	after := r.drain(now)
	r.mu.Unlock()
	r.act(after)
	return true
}

// drain collects the executor's output. The mutex is held.
func (r *replica) drain(now ident.Instant) aftermath {
	r.partition.Drain(now, &r.output)
	out := &r.output
	after := aftermath{
		proposal: out.Proposal, fetcher: out.Fetcher, refused: out.Refused, failed: out.Failed, deadline: r.partition.NextDeadline(),
	}
	for _, c := range out.Completed {
		if waiter, ok := r.produces[c.Token]; ok {
			delete(r.produces, c.Token)
			after.completed = append(after.completed, completedProduce{waiter, c})
		}
	}
	for _, token := range out.Wake {
		if op, ok := r.fetches[token]; ok {
			delete(r.fetches, token)
			after.woken = append(after.woken, op)
		}
	}
	after.facts = append(after.facts, out.Facts...)
	return after
}

// act runs without the mutex.
func (r *replica) act(after aftermath) {
	r.broker.timers.set(r, after.deadline)
	for _, f := range after.facts {
		r.broker.noteFact(r, f)
	}
	if after.refused != nil {
		r.broker.logger.Error("records that the leader sent are damaged", "topic", r.topic, "index", r.id.Index, "error", after.refused)
	}
	if after.failed != nil {
		r.broker.dirFailed(r, after.failed)
	}
	if after.proposal != nil {
		r.broker.alterer.propose(r, *after.proposal)
	}
	if after.fetcher {
		r.broker.fetchers.changed(r)
	}
	for _, c := range after.completed {
		c.waiter.op.done(c.waiter.index, c.result)
	}
	for _, op := range after.woken {
		op.wake()
	}
}

// token names a request that may wait here. The mutex is held.
func (r *replica) token() replication.Token {
	r.nextToken++
	return r.nextToken
}

// tick is called by the timers.
func (r *replica) tick() {
	r.do(func(now ident.Instant, p *exec.Partition) { p.Tick(now) })
}

// close ends the replica; whoever waits at it is answered.
func (r *replica) close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	now := r.broker.clock.now()
	err := r.partition.Close(now)
	after := r.drain(now)
	r.mu.Unlock()
	after.deadline = ident.Never
	r.act(after)
	r.broker.fetchers.remove(r)
	return err
}

// failDir tells the replica that its directory is lost.
func (r *replica) failDir(err error) {
	r.do(func(now ident.Instant, p *exec.Partition) { p.FailDir(now, err) })
}
