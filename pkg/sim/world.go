package sim

import (
	"container/heap"
	"strings"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// World is virtual time with a queue of things to happen, a source of randomness and a trace. It is used
// from one goroutine: everything in a run follows from the seed. Two events of one instant happen in the
// order in which they were put in.
type World struct {
	// Dice are the source of randomness of a run; others of it are made from the same seed.
	Dice
	// Verbose keeps the text of the trace; without it only the hash is kept. Set it before the run.
	Verbose bool

	seed  uint64
	now   ident.Instant
	seq   uint64
	steps int
	queue timerQueue
	hash  uint64

	networks uint64
	text     strings.Builder
}

// NewWorld returns a world at instant 0 in which nothing is due.
func NewWorld(seed uint64) *World {
	return &World{Dice: NewDice(seed, 0), seed: seed, hash: 0xcbf29ce484222325}
}

// Seed returns what NewWorld was given.
func (w *World) Seed() uint64 { return w.seed }

// Now returns the present instant.
func (w *World) Now() ident.Instant { return w.now }

// Steps returns how many events have happened.
func (w *World) Steps() int { return w.steps }

// Timer is something that will happen in a World.
type Timer struct {
	at    ident.Instant
	seq   uint64
	index int // in the queue; -1 when it is not there
	fn    func()
	world *World
}

// Stop keeps the timer from happening; false when it already has, or was stopped before.
func (t *Timer) Stop() bool {
	if t.index < 0 {
		return false
	}
	heap.Remove(&t.world.queue, t.index)
	return true
}

// At has fn happen at instant t, or as the next of this instant when t is past. Never is never.
func (w *World) At(t ident.Instant, fn func()) *Timer {
	timer := &Timer{at: max(t, w.now), seq: w.seq, index: -1, fn: fn, world: w}
	w.seq++
	if t != ident.Never {
		heap.Push(&w.queue, timer)
	}
	return timer
}

// After has fn happen when d has gone by.
func (w *World) After(d time.Duration, fn func()) *Timer { return w.At(w.now.Add(d), fn) }

// Next returns the instant of the next event, Never when there is none.
func (w *World) Next() ident.Instant {
	if len(w.queue) == 0 {
		return ident.Never
	}
	return w.queue[0].at
}

// Step moves time to the next event and lets it happen; false when nothing is due any more.
func (w *World) Step() bool {
	if len(w.queue) == 0 {
		return false
	}
	t := heap.Pop(&w.queue).(*Timer)
	w.now = t.at
	w.steps++
	t.fn()
	return true
}

// Run lets everything happen that is due up to and at the given instant, and leaves the time there.
func (w *World) Run(until ident.Instant) {
	for w.Next() <= until && w.Step() {
	}
	w.now = max(w.now, until)
}

// RunUntil steps until done is true; false when the limit came first or nothing was left to happen.
func (w *World) RunUntil(limit ident.Instant, done func() bool) bool {
	for !done() {
		if w.Next() > limit || !w.Step() {
			return false
		}
	}
	return true
}

// timerQueue is a heap ordered by instant, then by the order of At.
type timerQueue []*Timer

func (q timerQueue) Len() int { return len(q) }

func (q timerQueue) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].seq < q[j].seq
}

func (q timerQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *timerQueue) Push(x any) {
	t := x.(*Timer)
	t.index = len(*q)
	*q = append(*q, t)
}

func (q *timerQueue) Pop() any {
	old := *q
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	t.index = -1
	return t
}
