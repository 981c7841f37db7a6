package sim

import (
	"fmt"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// QuorumOptions shape a schedule of the metadata quorum. Seed and Skip say all of it.
type QuorumOptions struct {
	Seed uint64
	// Skip leaves parts of the schedule out.
	Skip Skip
	// Mutant breaks one rule of the core, the executor or the disk (QuorumMutants).
	Mutant  raft.Mutant
	Verbose bool // keep the text of the trace
	Voters  int  // how many at first; 0: by the seed
	// Visit is told of each state that the cluster is in, as a number in which neither offsets, epochs nor times
	// count, only how they compare.
	Visit func(state uint64)
}

// QuorumReport is what a schedule came to.
type QuorumReport struct {
	Violation string // begins with the invariant's name; empty when all held and everything healed
	Hash      uint64
	Trace     string
	Steps     int
	Counts    QuorumCounts
	// Played are the faults and proposals that happened, Traits those of the schedule, both as Skip has them.
	Played, Traits []string
}

const (
	quorumHealTime = 20 * time.Second
	// replaySteps is how often everything is compared byte for byte.
	replaySteps = 1000
)

// quorumSim is one metadata quorum: voters 1 to n and two observers with logs.
type quorumSim struct {
	opts   QuorumOptions
	plan   *quorumPlan
	w      *World
	net    *Network
	check  *quorumChecker
	voters raft.VoterSet
	nodes  []*quorumNode
	counts QuorumCounts

	played    []string
	proposals int
	calm      calmness
	changedAt ident.Instant // when a change of the voters was asked for last
	faulting  bool
}

// RunQuorum plays one schedule: some seconds of proposals under crashes, lost power, failing syncs, rotting snapshots,
// wiped disks, changes of the voters, pauses, wrong clocks, cuts, losses, duplicates and disorder; then all heals, and
// a proposal has to reach every node. After every step of a node its invariants are checked (quorum_check.go).
func RunQuorum(opts QuorumOptions) QuorumReport {
	s := newQuorumSim(opts)
	if s.plan.traits[traitNoise] {
		s.net.Faults = s.plan.noise
	}
	s.populate()
	for _, n := range s.nodes {
		n.boot()
	}
	s.faulting = true
	s.start()
	s.tendVoters()
	s.w.RunUntil(s.w.Now().Add(s.plan.faultTime), s.stepped)
	s.heal()
	end := s.w.Now().Add(quorumHealTime)
	if !s.w.RunUntil(end, func() bool { return s.stepped() || s.healed() }) && s.check.violation == "" {
		s.check.fail("Progress: %v after everything healed %s: %s", quorumHealTime, s.lacking(), s.state())
	}
	s.check.replayed()
	s.counts.Checked = s.check.checked
	s.counts.Committed = len(s.check.committed)
	s.counts.Elections = len(s.check.leaders)
	r := QuorumReport{
		Violation: s.check.violation, Hash: s.w.Hash(), Trace: s.w.Text(), Steps: s.w.Steps(), Counts: s.counts, Played: s.played,
	}
	for _, name := range traitNames {
		if s.plan.traits[name] {
			r.Traits = append(r.Traits, name)
		}
	}
	return r
}

// stepped looks at everything now and then, and says whether it is over.
func (s *quorumSim) stepped() bool {
	if s.w.Steps()%replaySteps == 0 && s.w.Steps() > 0 {
		s.check.replayed()
	}
	return s.check.violation != ""
}

func newQuorumSim(opts QuorumOptions) *quorumSim {
	s := &quorumSim{opts: opts, plan: newQuorumPlan(opts), w: NewWorld(opts.Seed)}
	s.w.Verbose = opts.Verbose
	s.check = newQuorumChecker(s)
	s.net = NewNetwork(s.w, Calm)
	s.w.Trace("seed %d: %d voters, %v, noise %v, fetch %d bytes, snapshots every %d bytes in pieces of %d", opts.Seed, s.plan.voters,
		fmt.Sprint(s.plan.traits), fmt.Sprintf("%+v", s.plan.noise), s.plan.fetchMaxBytes, s.plan.snapshotBytes, s.plan.snapshotChunk)
	return s
}

// populate makes voters and observers.
func (s *quorumSim) populate() {
	var vs []raft.Voter
	for id := ident.NodeID(1); int(id) <= s.plan.voters; id++ {
		vs = append(vs, raft.Voter{Key: quorumKey(id), Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: fmt.Sprintf("node-%d", id), Port: 9093}}})
	}
	var err error
	if s.voters, err = raft.NewVoterSet(vs...); err != nil {
		panic(err)
	}
	for _, v := range s.voters {
		s.nodes = append(s.nodes, newQuorumNode(s, v.Key.ID))
	}
	for _, id := range []ident.NodeID{10, 11} {
		s.nodes = append(s.nodes, newQuorumNode(s, id))
	}
}

func quorumKey(id ident.NodeID) raft.ReplicaKey {
	return raft.ReplicaKey{ID: id, DirectoryID: ident.UUID{0: 0xd1, 15: byte(id)}}
}

func (s *quorumSim) node(id ident.NodeID) *quorumNode {
	for _, n := range s.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// leading returns a running node that was told that it leads and still thinks so: of several, which is all the same,
// since only one of them can commit, the one of the latest epoch or, by the dice, any.
func (s *quorumSim) leading(d Dice) *quorumNode {
	var found *quorumNode
	for _, n := range s.nodes {
		if n.q != nil && !n.paused && n.leads == n.q.Core().Epoch() && n.q.Core().Role() == raft.Leader {
			if found == nil || n.leads > found.leads || d.Chance(500) {
				found = n
			}
		}
	}
	return found
}

// proposal has the leader append one to three batches.
func (s *quorumSim) proposal(d Dice) {
	if n := s.leading(d); n != nil {
		for range 1 + d.IntN(3) {
			n.propose(d)
		}
	}
}

// keepProposing goes on with proposals that are not part of the plan.
func (s *quorumSim) keepProposing() {
	s.w.After(s.w.Between(time.Millisecond, 80*time.Millisecond), func() {
		if s.check.violation == "" {
			s.proposal(s.w.Dice)
			s.keepProposing()
		}
	})
}

// heal ends all faults and brings everybody back.
func (s *quorumSim) heal() {
	s.faulting = false
	s.net.Heal()
	s.net.Faults = Calm
	s.w.Trace("heal")
	for _, n := range s.nodes {
		n.failSync = false
		n.rightClock()
		if n.q == nil {
			n.boot()
		}
		n.resume()
	}
	s.check.healedAt = s.w.Now()
	s.keepProposing()
}

// healed: nothing is lacking any more.
func (s *quorumSim) healed() bool { return s.lacking() == "" }

// lacking says what there is to be waited for: something that was proposed after the faults is committed and known to
// every node, nobody installs, no snapshot is damaged, no voter is lost, every change of the voters was answered.
func (s *quorumSim) lacking() string {
	goal := s.check.goal
	if goal < 0 {
		return "nothing that was proposed is committed"
	}
	for _, n := range s.nodes {
		switch {
		case n.q == nil:
			return fmt.Sprintf("node %d is down", n.id)
		case n.q.HighWatermark() < goal:
			return fmt.Sprintf("node %d does not know what is committed", n.id)
		case n.q.Core().Install().Active:
			return fmt.Sprintf("node %d still installs a snapshot", n.id)
		case n.q.SnapshotWanted():
			return fmt.Sprintf("node %d has a damaged snapshot", n.id)
		case n.asked > 0:
			return fmt.Sprintf("node %d has not answered a change of the voters", n.id)
		}
	}
	if lost := s.lostVoters(); len(lost) > 0 {
		return fmt.Sprintf("voter %s is lost and still counts", lost[0])
	}
	return ""
}

func (s *quorumSim) state() string {
	text := ""
	for _, n := range s.nodes {
		if n.q == nil {
			text += fmt.Sprintf("%d down; ", n.id)
			continue
		}
		c := n.q.Core()
		text += fmt.Sprintf("%d %s epoch %d log %d to %d flushed %d hw %d voters %v install %+v trouble %v; ",
			n.id, c.Role(), c.Epoch(), n.q.Log().StartOffset(), n.q.EndOffset(), n.q.Log().FlushedOffset(), c.HighWatermark(),
			len(c.Voters()), c.Install(), c.Trouble())
	}
	return text
}
