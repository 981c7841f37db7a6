package sim

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// ask hands the leader a change of the voters.
func (s *quorumSim) ask(l *quorumNode, m raft.Message) {
	s.changedAt = s.w.Now()
	l.do("change of voters", func(now ident.Instant) error {
		l.token++
		l.asked++
		l.requests[l.token] = quorumRequest{from: ident.NoNode, life: l.life, msg: m}
		s.w.Trace("%d is asked for %T", l.id, m)
		return l.q.HandleRequest(now, l.token, m)
	})
}

func (s *quorumSim) add(l, n *quorumNode) {
	s.ask(l, &raft.AddVoterRequest{ClusterID: "sim", Voter: raft.Voter{Key: n.key(), Endpoints: n.endpoints()}})
}

// changed takes the answer.
func (s *quorumSim) changed(n *quorumNode, m raft.Message) {
	n.asked--
	s.w.Trace("%d answers %s", n.id, said{m})
	if r, ok := m.(*raft.ChangeVotersResponse); ok && r.Code != raft.None {
		s.counts.RefusedChanges++
	}
}

// changeVoters asks a leader for one change, sometimes two at once: a node comes, caught up or not, or a voter goes.
// While a voter is lost or about to be, only that one goes.
func (s *quorumSim) changeVoters(d Dice) {
	l := s.leading(d)
	if l == nil {
		return
	}
	for range 1 + d.IntN(2) {
		voters := l.q.Core().Voters()
		n := s.nodes[d.IntN(len(s.nodes))]
		switch v, there := voters.Find(n.id); {
		case there && v.Key != n.key():
			s.ask(l, &raft.RemoveVoterRequest{ClusterID: "sim", Voter: v.Key})
		case !there:
			s.add(l, n)
		case (len(voters) > 3 && d.Chance(600) || len(voters) > 5) && s.endangered() == nil:
			if d.Chance(350) {
				n = l // removes itself
			}
			s.ask(l, &raft.RemoveVoterRequest{ClusterID: "sim", Voter: n.key()})
		}
	}
}

// tendVoters does, for as long as the schedule lasts, what a person does about a voter that lost its disk: out with the
// old identity, in with the new one once it is caught up.
func (s *quorumSim) tendVoters() {
	s.w.After(500*time.Millisecond, func() {
		if s.check.violation != "" {
			return
		}
		if l := s.leading(s.w.Dice); l != nil && l.asked == 0 {
			voters := l.q.Core().Voters()
			for _, n := range s.nodes {
				v, there := voters.Find(n.id)
				if there && v.Key != n.key() {
					s.ask(l, &raft.RemoveVoterRequest{ClusterID: "sim", Voter: v.Key})
					break
				}
				if !there && len(voters) < 3 && n.q != nil {
					s.add(l, n)
					break
				}
			}
		}
		s.tendVoters()
	})
}

// lostVoters are identities that count and whose disk is gone.
func (s *quorumSim) lostVoters() (lost []raft.ReplicaKey) {
	for _, v := range s.check.voters() {
		if s.node(v.Key.ID).key() != v.Key {
			lost = append(lost, v.Key)
		}
	}
	return lost
}

// endangered is a node whose disk is lost, or would be with the next start, nil when there is none. A quorum survives
// one such voter, not several; so there is one at a time, and not while the voters change.
func (s *quorumSim) endangered() *quorumNode {
	for _, n := range s.nodes {
		if n.rotten != nil && n.stillRotten() {
			return n
		}
	}
	if lost := s.lostVoters(); len(lost) > 0 {
		return s.node(lost[0].ID)
	}
	return nil
}

// canLose says whether the quorum can do without a node's disk now: it is no voter for anybody, or one of three at
// least in a set that everybody has settled on.
func (s *quorumSim) canLose(n *quorumNode) bool {
	if s.endangered() != nil || s.w.Now().Sub(s.changedAt) < 1200*time.Millisecond && s.changedAt > 0 {
		return false
	}
	if s.check.setsUnderWay() {
		return false
	}
	_, voter := s.check.voters().Find(n.id)
	return !voter || len(s.check.voters()) >= 3 && len(s.check.sets) > 0
}

// wipeObserver takes the disk of a node that is no voter.
func (s *quorumSim) wipeObserver(d Dice) {
	n := s.nodes[d.IntN(len(s.nodes))]
	if _, voter := s.check.voters().Find(n.id); voter || !s.canLose(n) {
		return
	}
	s.wipe(d, n)
	if l := s.leading(d); d.Chance(500) && l != nil {
		s.add(l, n) // before it has anything
	}
}

// loseVoter takes the disk of a voter. Its identity never comes back.
func (s *quorumSim) loseVoter(d Dice, n *quorumNode) {
	if _, voter := s.check.voters().Find(n.id); !voter || !s.canLose(n) {
		return
	}
	s.counts.LostVoters++
	s.wipe(d, n)
}

// wipe gives a node an empty disk, and with it another identity.
func (s *quorumSim) wipe(d Dice, n *quorumNode) {
	s.counts.Wiped++
	s.w.Trace("%d loses its disk", n.id)
	n.kill(d, true)
	n.newDisk()
	n.restartLater(d)
}

func (n *quorumNode) newDisk() {
	n.dirs++
	n.disk = vfs.NewMem()
	n.shadow, n.rotten = nil, nil
}
