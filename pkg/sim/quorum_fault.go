package sim

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// scheduleFault has something go wrong every now and then while faults are on.
func (s *quorumSim) scheduleFault() {
	s.w.After(s.w.Between(20*time.Millisecond, 500*time.Millisecond), func() {
		if s.faulting && s.check.violation == "" {
			s.fault()
			s.scheduleFault()
		}
	})
}

func (s *quorumSim) fault() {
	victim := s.anyNode()
	if l := s.leading(); l != nil && s.w.Chance(350) {
		victim = l
	}
	switch roll := s.w.Rand.IntN(100); {
	case roll < 18:
		victim.kill(true)
		victim.restartLater()
	case roll < 28:
		victim.kill(false)
		victim.restartLater()
	case roll < 30:
		s.powerCut()
	case roll < 31:
		s.wipe(s.anyNode())
	case roll < 34:
		victim.failSync = true
	case roll < 46:
		victim.pause()
		s.w.After(s.w.Between(20*time.Millisecond, 1500*time.Millisecond), victim.resume)
	case roll < 60:
		s.isolate(victim)
	case roll < 70:
		s.split()
	case roll < 80:
		s.cutOneWay(victim)
	case roll < 86:
		s.w.Trace("links mended")
		s.mendAll()
	case roll < 90:
		if l := s.leading(); l != nil {
			s.counts.Resigned++
			l.do("resign", func(now ident.Instant) error { return l.q.Resign(now, l.leads) })
		}
	case roll < 96:
		if l := s.leading(); l != nil {
			s.unseat(l)
		}
	default:
		// A hint that need not be true.
		s.counts.Hints++
		about := s.anyVoter().id
		victim.do("unreachable", func(now ident.Instant) error { return victim.q.Unreachable(now, about) })
	}
}

// unseat kills a leader and has all others notice at once.
func (s *quorumSim) unseat(l *quorumNode) {
	l.kill(s.w.Chance(500))
	l.restartLater()
	for _, n := range s.nodes {
		n.do("unreachable", func(now ident.Instant) error { return n.q.Unreachable(now, l.id) })
	}
}

// powerCut takes several machines at once, perhaps all.
func (s *quorumSim) powerCut() {
	for _, n := range s.nodes {
		if s.w.Chance(700) {
			n.kill(true)
			n.restartLater()
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
	s.mends++
	for _, o := range others {
		s.net.Mend(n.id, o)
		s.net.Mend(o, n.id)
	}
}

func (s *quorumSim) mendAll() {
	s.mends++
	s.net.Heal()
}

// isolate cuts a node off from all others for a while. A leader has to resign within its time (KAFKA-15489).
func (s *quorumSim) isolate(n *quorumNode) {
	s.counts.Cuts++
	s.w.Trace("%d cut off", n.id)
	others := s.others(n)
	s.net.Separate([]ident.NodeID{n.id}, others)
	if n.q != nil && !n.paused && n.q.Core().Role() == raft.Leader {
		s.watchResignation(n)
	}
	s.w.After(s.w.Between(100*time.Millisecond, 3*time.Second), func() {
		s.w.Trace("%d back", n.id)
		s.mend(n, others)
	})
}

// watchResignation looks again when a leader that was cut off must have noticed: it may have handled what was
// fetched up to now, and then has CheckQuorumTimeout.
func (s *quorumSim) watchResignation(n *quorumNode) {
	life, epoch, pauses, mends := n.life, n.q.Core().Epoch(), n.pauses, s.mends
	s.w.After(raft.DefaultCheckQuorumTimeout+200*time.Millisecond, func() {
		if n.q == nil || n.life != life || n.pauses != pauses || s.mends != mends {
			return
		}
		if n.q.Core().Role() == raft.Leader && n.q.Core().Epoch() == epoch {
			s.check.fail("CheckQuorum: node %d still leads epoch %d, though nobody reaches it any more", n.id, epoch)
		}
		s.counts.CheckQuorum++
	})
}

// split parts the nodes into two groups.
func (s *quorumSim) split() {
	s.counts.Cuts++
	var a, b []ident.NodeID
	for _, n := range s.nodes {
		if s.w.Chance(500) {
			a = append(a, n.id)
		} else {
			b = append(b, n.id)
		}
	}
	s.w.Trace("split %v from %v", a, b)
	s.net.Separate(a, b)
	s.w.After(s.w.Between(100*time.Millisecond, 2*time.Second), func() {
		s.w.Trace("links mended")
		s.mendAll()
	})
}

// cutOneWay cuts a link, or all that leave or all that reach a node.
func (s *quorumSim) cutOneWay(n *quorumNode) {
	s.counts.Cuts++
	others := s.others(n)
	if s.w.Chance(500) {
		others = []ident.NodeID{others[s.w.Rand.IntN(len(others))]}
	}
	out := s.w.Chance(500)
	s.w.Trace("%d cut one way (out %v) from %v", n.id, out, others)
	for _, o := range others {
		if out {
			s.net.Cut(n.id, o)
		} else {
			s.net.Cut(o, n.id)
		}
	}
	s.w.After(s.w.Between(100*time.Millisecond, 2*time.Second), func() {
		s.mend(n, others)
	})
}
