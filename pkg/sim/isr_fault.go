package sim

import (
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
)

// nextFault has one fault happen now and then while the time of faults lasts.
func (s *isrSim) nextFault() {
	s.w.After(s.w.Between(100*time.Millisecond, 900*time.Millisecond), func() {
		if s.faults {
			s.fault()
			s.nextFault()
		}
	})
}

func (s *isrSim) fault() {
	n := s.nodes[s.w.IntN(3)]
	calm := s.w.Now().Sub(s.lastFault) > 2*isrSession
	if s.disk == MachineLoss {
		if !calm {
			return
		}
		if s.w.Chance(500) {
			s.planLoss(n)
			return
		}
	}
	if s.disk == FlushSwitched && s.w.Chance(250) {
		s.switchFlush()
		return
	}
	switch s.w.IntN(17) {
	case 0, 1, 2:
		switch {
		case s.flushCounts() && s.w.Chance(100):
			s.blackout()
		case n.up && s.flushCounts() && s.w.Chance(500):
			s.counts.Kills++
			s.loseMachine(n)
		case n.up:
			s.counts.Kills++
			n.kill()
			n.restartAfter(s.w.Between(10*time.Millisecond, 4*time.Second))
		}
	case 3, 4:
		if n.up && !n.paused {
			s.counts.Pauses++
			n.paused = true
			s.w.Trace("node %d paused", n.id)
			n.resumeAfter(s.w.Between(10*time.Millisecond, 3*time.Second))
		}
	case 5, 6, 7:
		s.cut(n)
	case 8:
		s.w.Trace("controller changes hands")
		s.ctl.lead()
	case 9, 10:
		s.retention(n)
	case 11:
		if n.up && n.part != nil {
			s.counts.DiskErrors++
			s.w.Trace("disk of node %d breaks", n.id)
			n.broken = true
		}
	case 12:
		s.ctl.setMinISR()
	case 13, 14, 15:
		s.rot(n)
	default:
		s.w.Trace("links heal")
		s.net.Heal()
		s.control.Heal()
	}
	if s.disk == MachineLoss {
		s.lastFault = s.w.Now()
	}
}

// planLoss has a machine lose what was not flushed, but only after all else was well for longer than a session and a
// lag time, and nothing else happens before that machine is out of the ISR or back in it: one loss at a time, with the
// others in sync, is what the mode promises to survive. Without eligible leader replicas the last member of an ISR must
// not be the one that forgets.
func (s *isrSim) planLoss(n *isrNode) {
	s.lastFault = s.w.Now()
	s.calmDown()
	s.w.After(isrSession+isrLagTime, func() {
		if !s.faults || !s.allWell() {
			return
		}
		s.lastFault = s.w.Now()
		s.counts.Losses++
		n.loseMachine(s.w.IntN(100))
		n.restartAfter(s.w.Between(10*time.Millisecond, isrSession/2))
		s.haunt(n)
	})
}

// haunt has fetches of the earlier life arrive late, when the node is registered anew and has not yet read what it
// lost, and nothing is written meanwhile (KIP-903).
func (s *isrSim) haunt(n *isrNode) {
	if n.lastFetch == nil || s.w.Chance(500) {
		return
	}
	s.w.Trace("fetches of node %d will come late", n.id)
	s.quietUntil = s.w.Now().Add(3 * isrSession)
	late := n.lastFetch
	for _, other := range s.nodes {
		if other != n {
			s.net.Cut(n.id, other.id)
			s.w.At(s.quietUntil, func() { s.net.Mend(n.id, other.id) })
		}
	}
	for range 4 {
		s.w.After(s.w.Between(isrSession, 3*isrSession), late)
	}
}

// cut stops one way between two nodes, or between a node and the controller.
func (s *isrSim) cut(n *isrNode) {
	other := s.nodes[s.w.IntN(3)].id
	net := s.net
	if other == n.id {
		other, net = isrController, s.control
	}
	from, to := n.id, other
	if s.w.Chance(500) {
		from, to = to, from
	}
	s.counts.Cuts++
	s.w.Trace("cut %d -> %d", from, to)
	net.Cut(from, to)
	s.w.After(s.w.Between(100*time.Millisecond, 5*time.Second), func() { net.Mend(from, to) })
}

// retention drops old segments of one log.
func (s *isrSim) retention(n *isrNode) {
	if !n.up || n.paused || n.part == nil {
		return
	}
	segments, _, err := n.part.DeleteOldSegments(s.w.Now(), 1, log.Limits{Ms: -1, Bytes: 1024})
	if err == nil && segments > 0 {
		s.counts.Retentions++
		s.w.Trace("node %d drops %d segments, its log starts at %d", n.id, segments, n.part.Log().StartOffset())
	}
	n.settle()
}

// calmDown takes back everything but lost machines.
func (s *isrSim) calmDown() {
	s.net.Heal()
	s.control.Heal()
	for _, n := range s.nodes {
		if n.paused {
			n.resume()
		}
	}
}

// allWell says whether every node is in sync under its present registration, and the leader sees it so.
func (s *isrSim) allWell() bool {
	p := s.ctl.partition()
	if p == nil || p.Leader == ident.NoNode || s.nodes[p.Leader-1].part == nil {
		return false
	}
	leader := s.nodes[p.Leader-1].part.Core()
	if leader.Role() != replication.Leader || leader.LeaderEpoch() != p.LeaderEpoch || leader.Pending() {
		return false
	}
	for _, f := range leader.Followers(s.w.Now()) {
		if !f.CaughtUp {
			return false
		}
	}
	return len(p.ISR) == 3 && s.rotten == nil && s.ctl.allActive() && !slices.ContainsFunc(s.nodes, func(n *isrNode) bool {
		return !n.up || n.paused || n.broken || n.part == nil || !s.check.registered(n)
	})
}

func (n *isrNode) restartAfter(d time.Duration) {
	life := n.life
	n.s.w.After(d, func() {
		if !n.up && n.life == life {
			n.start()
		}
	})
}

func (n *isrNode) resumeAfter(d time.Duration) {
	life := n.life
	n.s.w.After(d, func() {
		if n.up && n.life == life && n.paused {
			n.s.w.Trace("node %d goes on", n.id)
			n.resume()
		}
	})
}
