package node

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// timers calls the replicas when their cores' deadlines come. One heap and one timer serve all of them; an idle
// follower has no entry.
type timers struct {
	clock clock

	mu    sync.Mutex
	heap  deadlineHeap
	byRep map[*replica]*deadline
	kick  chan struct{}
}

type deadline struct {
	replica *replica
	at      ident.Instant
	index   int
}

func newTimers(c clock) *timers {
	return &timers{clock: c, byRep: map[*replica]*deadline{}, kick: make(chan struct{}, 1)}
}

// set replaces the replica's deadline; ident.Never removes it.
func (t *timers) set(r *replica, at ident.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry, ok := t.byRep[r]
	switch {
	case !ok && at == ident.Never:
		return
	case !ok:
		entry = &deadline{replica: r, at: at}
		t.byRep[r] = entry
		heap.Push(&t.heap, entry)
	case at == ident.Never:
		heap.Remove(&t.heap, entry.index)
		delete(t.byRep, r)
		return
	case entry.at == at:
		return
	default:
		entry.at = at
		heap.Fix(&t.heap, entry.index)
	}
	if t.heap[0] == entry {
		select {
		case t.kick <- struct{}{}:
		default:
		}
	}
}

// due takes out all replicas whose deadline has passed and returns the next one's.
func (t *timers) due() (due []*replica, next ident.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.now()
	for len(t.heap) > 0 && t.heap[0].at <= now {
		entry := heap.Pop(&t.heap).(*deadline)
		delete(t.byRep, entry.replica)
		due = append(due, entry.replica)
	}
	if len(t.heap) == 0 {
		return due, ident.Never
	}
	return due, t.heap[0].at
}

func (t *timers) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next := t.due()
		for _, r := range due {
			r.tick()
		}
		if len(due) > 0 {
			continue
		}
		timer.Reset(t.clock.until(next))
		select {
		case <-ctx.Done():
			return
		case <-t.kick:
		case <-timer.C:
		}
	}
}

// deadlineHeap is a container/heap with the earliest deadline first.
type deadlineHeap []*deadline

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is heap.Interface's.
func (h *deadlineHeap) Push(x any) {
	d := x.(*deadline)
	d.index = len(*h)
	*h = append(*h, d)
}

// Pop is heap.Interface's.
func (h *deadlineHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
