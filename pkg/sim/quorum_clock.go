package sim

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// nodeClock is what a node takes for the time: it may go faster or slower than the world's, and jump forward. It never
// goes back, as the monotonic clock of a real node does not. The wall clock, which only stamps batches, jumps both ways.
type nodeClock struct {
	base, since ident.Instant // it showed base at the world's instant since
	permille    int64         // how fast it goes, 0 is 1000
	wall        time.Duration // how far the wall clock is off
	changes     int
}

func (c *nodeClock) rate() int64 {
	if c.permille == 0 {
		return 1000
	}
	return c.permille
}

func (c *nodeClock) at(w ident.Instant) ident.Instant {
	passed := int64(w - c.since)
	return c.base + ident.Instant(passed/1000*c.rate()+passed%1000*c.rate()/1000)
}

// when is the world's instant at which the clock shows t at the earliest.
func (c *nodeClock) when(t ident.Instant) ident.Instant {
	if t == ident.Never {
		return ident.Never
	}
	left := int64(max(t-c.base, 0))
	w := c.since + ident.Instant(left/c.rate()*1000+left%c.rate()*1000/c.rate())
	for c.at(w) < t {
		w++
	}
	return w
}

// set has the clock go on at another rate from now on, after a jump.
func (c *nodeClock) set(w ident.Instant, jump time.Duration, permille int64) {
	c.base, c.since = c.at(w).Add(jump), w
	c.permille = permille
	c.changes++
}

func (n *quorumNode) now() ident.Instant { return n.clock.at(n.s.w.Now()) }

// disturbClock has a node's clock jump, or go wrong for a while.
func (s *quorumSim) disturbClock(d Dice, n *quorumNode) {
	s.counts.Clocks++
	jump, rate := time.Duration(0), int64(1000)
	switch d.IntN(3) {
	case 0:
		jump = d.Between(10*time.Millisecond, 30*time.Second)
	case 1:
		rate = 1000 + int64(d.IntN(1000)) // up to twice as fast
	default:
		rate = 500 + int64(d.IntN(500))
	}
	n.clock.set(s.w.Now(), jump, rate)
	n.clock.wall = d.Between(0, 48*time.Hour) - 24*time.Hour
	s.w.Trace("the clock of %d jumps by %v and goes at %d per mille; its wall clock is off by %v", n.id, jump, rate, n.clock.wall)
	n.rearm()
	back, changes := d.Between(200*time.Millisecond, 3*time.Second), n.clock.changes
	s.w.After(back, func() {
		if n.clock.changes == changes {
			n.rightClock()
		}
	})
}

// rightClock has the clock go on as it should, from where it is.
func (n *quorumNode) rightClock() {
	if n.clock.rate() != 1000 {
		n.clock.set(n.s.w.Now(), 0, 1000)
		n.s.w.Trace("the clock of %d goes right again", n.id)
		n.rearm()
	}
}

// rearm sets the timer anew: the deadline is by the node's clock.
func (n *quorumNode) rearm() {
	if n.q != nil && !n.paused && n.s.check.violation == "" {
		n.arm()
	}
}
