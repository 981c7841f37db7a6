package node

import (
	"math"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/topicconfig"
)

// flushWorkers bounds the flushes that are under way at once. Each occupies a thread while the disk works, and a disk
// gains little from more.
const flushWorkers = 16

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
