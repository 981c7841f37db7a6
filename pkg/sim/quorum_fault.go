package sim

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// quorumFaults is what can go wrong, with how often it does.
var quorumFaults = []struct {
	weight int
	trait  string // that the schedule must have; empty: none
	do     func(s *quorumSim, d Dice, victim *quorumNode)
}{
	{16, "", func(s *quorumSim, d Dice, victim *quorumNode) { victim.kill(d, true); victim.restartLater(d) }},
	{9, "", func(s *quorumSim, d Dice, victim *quorumNode) { victim.kill(d, false); victim.restartLater(d) }},
	{2, "", func(s *quorumSim, d Dice, _ *quorumNode) { s.powerCut(d) }},
	{3, "", func(_ *quorumSim, _ Dice, victim *quorumNode) { victim.failSync = true }},
	{10, "", func(s *quorumSim, d Dice, victim *quorumNode) {
		victim.pauseFor(d.Between(20*time.Millisecond, 1500*time.Millisecond))
	}},
	{12, "", func(s *quorumSim, d Dice, victim *quorumNode) { s.isolate(d, victim) }},
	{8, "", func(s *quorumSim, d Dice, _ *quorumNode) { s.split(d) }},
	{9, "", func(s *quorumSim, d Dice, victim *quorumNode) { s.cutOneWay(d, victim) }},
	{4, "", func(s *quorumSim, d Dice, victim *quorumNode) { s.slowLinks(d, victim) }},
	{5, "", func(s *quorumSim, _ Dice, _ *quorumNode) { s.w.Trace("links mended"); s.net.Heal() }},
	{4, "", func(s *quorumSim, d Dice, _ *quorumNode) { s.resign(d) }},
	{5, "", func(s *quorumSim, d Dice, _ *quorumNode) { s.unseat(d) }},
	{4, "", func(s *quorumSim, d Dice, victim *quorumNode) { s.hint(d, victim) }},
	{10, traitClocks, func(s *quorumSim, d Dice, victim *quorumNode) { s.disturbClock(d, victim) }},
	{14, traitVoters, func(s *quorumSim, d Dice, _ *quorumNode) { s.changeVoters(d) }},
	{4, "", func(s *quorumSim, d Dice, _ *quorumNode) { s.wipeObserver(d) }},
	{4, traitVoters, func(s *quorumSim, d Dice, victim *quorumNode) { s.loseVoter(d, victim) }},
	{16, traitRot, func(s *quorumSim, d Dice, victim *quorumNode) { s.rot(d, victim) }},
}

func (s *quorumSim) fault(e plannedEvent) {
	d := e.dice
	if s.plan.traits[traitCalm] {
		s.disturb(d)
		return
	}
	victim := s.nodes[d.IntN(len(s.nodes))]
	if l := s.leading(d); d.Chance(350) && l != nil {
		victim = l
	}
	total := 0
	for _, f := range quorumFaults {
		if f.trait == "" || s.plan.traits[f.trait] {
			total += f.weight
		}
	}
	roll := d.IntN(total)
	for _, f := range quorumFaults {
		if f.trait == "" || s.plan.traits[f.trait] {
			if roll -= f.weight; roll < 0 {
				f.do(s, d, victim)
				return
			}
		}
	}
}

func (s *quorumSim) resign(d Dice) {
	if l := s.leading(d); l != nil {
		s.counts.Resigned++
		l.do("resign", func(now ident.Instant) error { return l.q.Resign(now, l.leads) })
	}
}

// hint tells a node that another can't be reached, which need not be true.
func (s *quorumSim) hint(d Dice, n *quorumNode) {
	s.counts.Hints++
	voters := s.check.voters()
	about := voters[d.IntN(len(voters))].Key.ID
	n.do("unreachable", func(now ident.Instant) error { return n.q.Unreachable(now, about) })
}

// unseat kills a leader and has all others notice at once.
func (s *quorumSim) unseat(d Dice) {
	l := s.leading(d)
	if l == nil {
		return
	}
	l.kill(d, d.Chance(500))
	l.restartLater(d)
	for _, n := range s.nodes {
		n.do("unreachable", func(now ident.Instant) error { return n.q.Unreachable(now, l.id) })
	}
}

// powerCut takes several machines at once, perhaps all.
func (s *quorumSim) powerCut(d Dice) {
	for _, n := range s.nodes {
		if d.Chance(700) {
			n.kill(d, true)
			n.restartLater(d)
		}
	}
}

func (s *quorumSim) others(n *quorumNode) []ident.NodeID {
	var ids []ident.NodeID
	for _, o := range s.nodes {
		if o != n {
			ids = append(ids, o.id)
		}
	}
	return ids
}

func (s *quorumSim) mend(n *quorumNode, others []ident.NodeID) {
	for _, o := range others {
		s.net.Mend(n.id, o)
		s.net.Mend(o, n.id)
	}
}

// isolate cuts a node off from all others for a while.
func (s *quorumSim) isolate(d Dice, n *quorumNode) {
	s.counts.Cuts++
	s.w.Trace("%d cut off", n.id)
	others := s.others(n)
	s.net.Separate([]ident.NodeID{n.id}, others)
	s.w.After(d.Between(100*time.Millisecond, 3*time.Second), func() {
		s.w.Trace("%d back", n.id)
		s.mend(n, others)
	})
}

// split parts the nodes into two groups.
func (s *quorumSim) split(d Dice) {
	s.counts.Cuts++
	var a, b []ident.NodeID
	for _, n := range s.nodes {
		if d.Chance(500) {
			a = append(a, n.id)
		} else {
			b = append(b, n.id)
		}
	}
	s.w.Trace("split %v from %v", a, b)
	s.net.Separate(a, b)
	s.w.After(d.Between(100*time.Millisecond, 2*time.Second), func() {
		s.w.Trace("links mended")
		s.net.Heal()
	})
}

// cutOneWay cuts a link, or all that leave or all that reach a node.
func (s *quorumSim) cutOneWay(d Dice, n *quorumNode) {
	s.counts.Cuts++
	others := s.others(n)
	if d.Chance(500) {
		others = []ident.NodeID{others[d.IntN(len(others))]}
	}
	out := d.Chance(500)
	s.w.Trace("%d cut one way (out %v) from %v", n.id, out, others)
	for _, o := range others {
		if out {
			s.net.Cut(n.id, o)
		} else {
			s.net.Cut(o, n.id)
		}
	}
	s.w.After(d.Between(100*time.Millisecond, 2*time.Second), func() {
		s.mend(n, others)
	})
}

// slowLinks delays all that a node sends, so that transfers outlast their leaders.
func (s *quorumSim) slowLinks(d Dice, n *quorumNode) {
	s.counts.Slow++
	by, others := d.Between(5*time.Millisecond, 250*time.Millisecond), s.others(n)
	s.w.Trace("%d sends %v later", n.id, by)
	for _, o := range others {
		s.net.Slow(n.id, o, by)
	}
	s.w.After(d.Between(200*time.Millisecond, 2*time.Second), func() {
		for _, o := range others {
			s.net.Slow(n.id, o, 0)
		}
	})
}

// calmness is what a calm schedule keeps of its one leader.
type calmness struct {
	epoch ident.Epoch // of the leader that must stay, 0 until there is one that everybody follows
	busy  ident.Instant
}

// disturb has a single follower go wrong and come back while the leader and all others are well. The leader must not
// be unseated by it (KIP-996): invariant Undisturbed.
func (s *quorumSim) disturb(d Dice) {
	l := s.leading(d)
	if l == nil || s.w.Now() < s.calm.busy {
		return
	}
	if s.calm.epoch == 0 {
		for _, n := range s.nodes {
			if n.q == nil || n.q.Core().Epoch() != l.leads || n.q.HighWatermark() < 5 {
				return // the first election is not over
			}
		}
		s.calm.epoch = l.leads
	}
	victim := s.node(s.voters[d.IntN(len(s.voters))].Key.ID)
	if victim == l {
		return
	}
	s.counts.Calm++
	took := d.Between(100*time.Millisecond, 2500*time.Millisecond)
	switch d.IntN(4) {
	case 0:
		others := s.others(victim)
		s.w.Trace("%d cut off", victim.id)
		s.net.Separate([]ident.NodeID{victim.id}, others)
		s.w.After(took, func() { s.w.Trace("%d back", victim.id); s.mend(victim, others) })
	case 1:
		victim.kill(d, d.Chance(500))
		victim.restartLater(d)
		took = 1500 * time.Millisecond
	case 2:
		victim.pauseFor(took)
	default:
		s.disturbClock(d, victim)
		took = 3 * time.Second
	}
	s.calm.busy = s.w.Now().Add(took + 700*time.Millisecond)
}

// stillCalm is the invariant of calm schedules.
func (c *quorumChecker) stillCalm(n *quorumNode) {
	if want := c.s.calm.epoch; want > 0 && c.s.faulting && n.q.Core().Epoch() > want {
		c.fail("Undisturbed: node %d goes to epoch %d, though the leader of epoch %d and all but one follower are well", n.id, n.q.Core().Epoch(), want)
	}
}
