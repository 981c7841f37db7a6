package node

import (
	"math"
	"sync"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/topicconfig"
)

// flushWorkers bounds the flushes that are under way at once. Each occupies a thread while the disk works, and a disk
// gains little from more.
const flushWorkers = 16

// flusher has logs flushed that want it: each by one flush at a time, which all share who wait for it (group commit),
// several logs beside each other, in the order in which they asked. A worker lives while there is work.
type flusher struct {
	mu      sync.Mutex
	queue   []*replica
	queued  map[*replica]bool
	workers int
	stopped bool
	running sync.WaitGroup
}

func newFlusher() *flusher { return &flusher{queued: map[*replica]bool{}} }

// want has the replica's log flushed soon. The replica's mutex is held.
func (f *flusher) want(r *replica) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.queued[r] {
		return
	}
	f.queued[r] = true
	f.queue = append(f.queue, r)
	if f.workers < flushWorkers {
		f.workers++
		f.running.Go(f.work)
	}
}

func (f *flusher) work() {
	for r := f.next(); r != nil; r = f.next() {
		r.flush((*exec.Partition).BeginFlush)
	}
}

// next takes the replica that waits for longest; nil ends the worker.
func (f *flusher) next() *replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 || f.stopped {
		f.workers--
		return nil
	}
	r := f.queue[0]
	f.queue[0] = nil
	f.queue = f.queue[1:]
	delete(f.queued, r) // before it begins: what is appended from then on asks anew
	return r
}

// stop lets the flushes under way end and begins no others. Closing a log flushes it.
func (f *flusher) stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.running.Wait()
}

// flush does what begin, of the executor, notes. The disk works without the mutex.
func (r *replica) flush(begin func(*exec.Partition, ident.Instant) (*log.PendingFlush, bool)) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	now := r.broker.clock.now()
	pending, ok := begin(r.partition, now)
	after := r.drain(now)
	r.mu.Unlock()
	r.act(after)
	if !ok {
		return
	}
	began := time.Now()
	err := pending.Sync()
	r.broker.metrics.flushed(pending, time.Since(began))
	r.mu.Lock()
	now = r.broker.clock.now()
	r.partition.EndFlush(now, pending, err) // also when it was closed meanwhile: files are held by it
	after = r.drain(now)
	r.mu.Unlock()
	r.act(after)
}

// flushSealed makes durable what was written when a segment was sealed since the last time.
func (r *replica) flushSealed() { r.flush((*exec.Partition).BeginSealedFlush) }

// flushPolicy is what a topic's flush.messages and flush.ms ask for.
func flushPolicy(v topicconfig.Values) exec.FlushPolicy {
	policy := exec.FlushPolicy{Always: v.FlushMessages == 1}
	if v.FlushMessages > 1 && v.FlushMessages != math.MaxInt64 {
		policy.Records = v.FlushMessages
	}
	if v.FlushMs <= math.MaxInt64/int64(time.Millisecond) { // 292 years
		policy.After = max(1, time.Duration(v.FlushMs)*time.Millisecond) // 0 ms: as soon as the disk is free
	}
	return policy
}
