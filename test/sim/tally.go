package main

import (
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/highwater-io/highwater/pkg/sim"
)

// played sums what the schedules of one kind came to.
type played[C any, P adder[C]] struct {
	mu           sync.Mutex
	steps, twice int
	counts       C
}

// adder is a pointer to counts.
type adder[C any] interface {
	*C
	Add(C)
}

func (p *played[C, P]) took(steps int, counts C, twice bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps += steps
	P(&p.counts).Add(counts)
	if twice {
		p.twice++
	}
}

func (p *played[C, P]) missing() []string { return zeros(p.counts) }

// quorumTally is the metadata quorum's.
type quorumTally struct {
	played[sim.QuorumCounts, *sim.QuorumCounts]
	states stateSet
}

func (t *quorumTally) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	return fmt.Sprintf("%d steps, %d distinct states, %d elections, %d installs, %d voter changes, 0 failures", t.steps, t.states.count(), c.Elections, c.Installs, c.Changes)
}

func (t *quorumTally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("  %d steps, about %d distinct states, %d invariant checks, %d states compared byte for byte, %d schedules played twice with the same trace\n  %s",
		t.steps, t.states.count(), t.counts.Checked, t.counts.Compared, t.twice, counted(t.counts))
}

// isrTally is the ISR protocol's.
type isrTally struct {
	played[sim.ISRCounts, *sim.ISRCounts]
}

func (t *isrTally) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d steps, %d acknowledged, %d elections, 0 failures", t.steps, t.counts.Acked, t.counts.Elections)
}

func (t *isrTally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("  %d steps, %d schedules played twice with the same trace\n  %s", t.steps, t.twice, counted(t.counts))
}

// counted writes a struct of counts.
func counted(counts any) string {
	v := reflect.ValueOf(counts)
	var parts []string
	for i := range v.NumField() {
		parts = append(parts, fmt.Sprintf("%s %d", v.Type().Field(i).Name, v.Field(i).Int()))
	}
	return strings.Join(parts, ", ")
}

// zeros are what did not happen once.
func zeros(counts any) (names []string) {
	v := reflect.ValueOf(counts)
	for i := range v.NumField() {
		if v.Field(i).Int() == 0 {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return names
}

// stateSet counts distinct numbers without keeping them: one bit for each, by its hash, and from how many bits are set
// the count follows (linear counting), within a percent up to some hundred millions.
type stateSet struct {
	words [1 << 21]atomic.Uint64
	set   atomic.Int64
}

const stateBits = 64 << 21

func (s *stateSet) add(state uint64) {
	state = (state ^ state>>31) * 0x9e3779b97f4a7c15
	bit := (state ^ state>>29) % stateBits
	word, mask := &s.words[bit/64], uint64(1)<<(bit%64)
	if word.Load()&mask == 0 && bits.OnesCount64(word.Or(mask)&mask) == 0 {
		s.set.Add(1)
	}
}

func (s *stateSet) count() int64 {
	set := float64(s.set.Load())
	return int64(-stateBits * math.Log1p(-min(set, stateBits-1)/stateBits))
}
