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
// mutex is free, since completing a request may call other replicas (KAFKA-8334: deadlocks by lock order). What only
// the newest word counts for (the deadline, whom to follow, the ISR that is proposed) is passed on under the mutex:
// else an older word could overtake a newer one and stay. Those who take it never call back.
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
	produces  map[replication.Token]produceWaiter
	deletes   map[replication.Token]*deleteWaiter
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
		produces: map[replication.Token]produceWaiter{}, deletes: map[replication.Token]*deleteWaiter{}, fetches: map[replication.Token]*fetchOp{},
	}
}

// aftermath is what do has to act on once the mutex is free.
type aftermath struct {
	completed []completedProduce
	deleted   []completedDelete
	woken     []*fetchOp
	facts     []replication.Fact
	news      damageNews
	refused   error
	failed    error
}

type completedProduce struct {
	waiter produceWaiter
	result exec.Produced
}

var aftermaths = sync.Pool{New: func() any { return new(aftermath) }}

// forget gives the memory back for another one.
func (a *aftermath) forget() {
	clear(a.completed)
	clear(a.deleted)
	clear(a.woken)
	clear(a.facts)
	*a = aftermath{completed: a.completed[:0], deleted: a.deleted[:0], woken: a.woken[:0], facts: a.facts[:0]}
	aftermaths.Put(a)
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

// whole is do for what was begun before and has to be ended also when the replica was closed meanwhile.
func (r *replica) whole(f func(now ident.Instant, p *exec.Partition)) {
	r.mu.Lock()
	now := r.broker.clock.now()
	f(now, r.partition)
	after := r.drain(now)
	r.mu.Unlock()
	r.act(after)
}

// drain collects the executor's output and passes on what must not be overtaken. The mutex is held.
func (r *replica) drain(now ident.Instant) *aftermath {
	r.partition.Drain(now, &r.output)
	out := &r.output
	after := aftermaths.Get().(*aftermath)
	after.refused, after.failed = out.Refused, out.Failed
	deadline := ident.Never
	if !r.closed {
		deadline = r.partition.NextDeadline()
	}
	r.broker.timers.set(r, deadline)
	if out.Fetcher {
		r.broker.fetchers.follow(r, r.leaderToFollow())
	}
	if out.Proposal != nil && !r.closed {
		r.broker.alterer.propose(r, *out.Proposal)
	}
	if out.Directory {
		r.broker.assigner.want(r)
	}
	if out.Scrub {
		r.broker.scrubber.want(r)
	}
	after.news = damageNews{damage: out.Damage, quarantined: out.Quarantined, refilled: out.Refilled}
	if out.Flush {
		r.broker.flusher.want(r)
	}
	if out.Chores {
		r.broker.maintenance.want(r)
	}
	for _, c := range out.Completed {
		if waiter, ok := r.produces[c.Token]; ok {
			delete(r.produces, c.Token)
			after.completed = append(after.completed, completedProduce{waiter, c})
		}
	}
	for _, d := range out.Deleted {
		if waiter, ok := r.deletes[d.Token]; ok {
			delete(r.deletes, d.Token)
			after.deleted = append(after.deleted, completedDelete{waiter, d})
		}
	}
	if out.LogStart && !r.closed {
		r.broker.checkpoints.noteLogStart(r.topic, r.id.Index, r.partition.Log().DurableStartOffset())
		wakeUp(r.broker.checkpoints.kick)
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

// act runs without the mutex, once for each drain.
func (r *replica) act(after *aftermath) {
	defer after.forget()
	for _, f := range after.facts {
		r.broker.noteFact(r, f)
	}
	r.broker.tellDamage(r, after.news)
	if after.refused != nil {
		r.broker.logger.Error("records that the leader sent are damaged", "topic", r.topic, "index", r.id.Index, "error", after.refused)
	}
	if after.failed != nil {
		r.broker.takeOffline(after.failed)
	}
	for _, c := range after.completed {
		c.waiter.op.done(c.waiter.index, c.result)
	}
	for _, d := range after.deleted {
		d.waiter.op.done(d.waiter.index, d.result)
	}
	for _, op := range after.woken {
		op.wake()
	}
}

// leaderToFollow is whom this replica fetches from, ident.NoNode when from nobody. Between two questions, backing
// off or truncating, it stays with its leader. The mutex is held.
func (r *replica) leaderToFollow() ident.NodeID {
	if r.closed || r.partition.Core().Role() != replication.Follower {
		return ident.NoNode
	}
	return r.partition.Core().CurrentLeader()
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

// close ends the replica in order; whoever waits at it is answered.
func (r *replica) close() (err error) {
	r.end(func(now ident.Instant, p *exec.Partition) { err = p.Close(now) })
	return err
}

// discard ends a replica whose directory is to be deleted. The directory is free when rest, unless nil, has returned,
// which waits for the disk and may be called without a lock.
func (r *replica) discard() (rest func()) {
	r.end(func(now ident.Instant, p *exec.Partition) {
		abandoning := p.BeginDiscard(now)
		if abandoning.Over() {
			p.Discard()
			return
		}
		rest = func() {
			abandoning.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			p.Discard()
		}
	})
	return rest
}

func (r *replica) end(how func(now ident.Instant, p *exec.Partition)) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.closed = true
	now := r.broker.clock.now()
	how(now, r.partition)
	after := r.drain(now)
	r.broker.fetchers.follow(r, ident.NoNode)
	r.mu.Unlock()
	r.act(after)
}

// failDir tells the replica that its directory is lost.
func (r *replica) failDir(err error) {
	r.do(func(now ident.Instant, p *exec.Partition) { p.FailDir(now, err) })
}
