package node

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// replicaQueue has something done for replicas that want it, by a few workers, in the order in which they asked; for
// each replica by one worker at a time, if it asks again only once it is done. A worker lives while there is work.
type replicaQueue struct {
	limit int
	do    func(*replica)

	mu      sync.Mutex
	queue   []*replica
	queued  map[*replica]bool
	workers int
	stopped bool
	running sync.WaitGroup
}

func newReplicaQueue(workers int, do func(*replica)) *replicaQueue {
	return &replicaQueue{limit: workers, do: do, queued: map[*replica]bool{}}
}

// want has it done for the replica soon. The replica's mutex may be held.
func (q *replicaQueue) want(r *replica) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped || q.queued[r] {
		return
	}
	q.queued[r] = true
	q.queue = append(q.queue, r)
	if q.workers < q.limit {
		q.workers++
		q.running.Go(q.work)
	}
}

func (q *replicaQueue) work() {
	for r := q.next(); r != nil; r = q.next() {
		q.do(r)
	}
}

// next takes the replica that waits for longest; nil ends the worker.
func (q *replicaQueue) next() *replica {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 || q.stopped {
		q.workers--
		return nil
	}
	r := q.queue[0]
	q.queue[0] = nil
	q.queue = q.queue[1:]
	delete(q.queued, r) // before it begins: what comes up from then on asks anew
	return r
}

// stop lets what is under way end and begins nothing more.
func (q *replicaQueue) stop() {
	q.mu.Lock()
	q.stopped = true
	q.mu.Unlock()
	q.running.Wait()
}

// choreWorkers bounds the logs whose chores run at once: they must not take the disk from those who wait for it.
const choreWorkers = 2

// runChores does what the log has left to be done (log.Chores); the disk works without the mutex.
func (r *replica) runChores() {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	chores := r.partition.BeginChores()
	r.mu.Unlock()
	if chores == nil {
		return
	}
	err := chores.Run()
	r.broker.metrics.chores.ran(err)
	r.mu.Lock()
	now := r.broker.clock.now()
	r.partition.EndChores(now, chores, err) // also when it was closed meanwhile
	after := r.drain(now)
	r.mu.Unlock()
	r.act(after)
}

// choreMetrics count the runs of chores.
type choreMetrics struct{ runs, failures prometheus.Counter }

func newChoreMetrics() choreMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "highwater", Name: name, Help: help})
	}
	return choreMetrics{
		runs:     counter("log_chores_total", "Runs of what logs leave to be done beside their writers: index files of sealed segments, unlinking of dropped ones, the next segment's file, write-back."),
		failures: counter("log_chore_failures_total", "Those that failed on the disk, which takes the data directory offline."),
	}
}

func (m choreMetrics) ran(err error) {
	m.runs.Inc()
	if err != nil {
		m.failures.Inc()
	}
}
