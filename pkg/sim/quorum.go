package sim

import (
	"fmt"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// QuorumOptions shape a run of the metadata quorum. What is left zero follows from the seed.
type QuorumOptions struct {
	Seed uint64
	// Mutant breaks one rule of the core, or of the disk (see below).
	Mutant  raft.Mutant
	Verbose bool // keep the text of the trace
	Voters  int  // 3 or 5
}

// Rules that the simulator's disk can break.
const (
	// MutateVoteUnsynced: the vote is written and not fsynced.
	MutateVoteUnsynced raft.Mutant = "disk: vote-unsynced"
	// MutateLogUnsynced: the log says that it is flushed and is not fsynced.
	MutateLogUnsynced raft.Mutant = "disk: log-unsynced"
	// MutateSnapshotUnsynced: a snapshot gets its name before its bytes are on the disk.
	MutateSnapshotUnsynced raft.Mutant = "disk: snapshot-unsynced"
)

var diskMutants = []raft.Mutant{MutateVoteUnsynced, MutateLogUnsynced, MutateSnapshotUnsynced}

// QuorumReport is what a run came to.
type QuorumReport struct {
	Violation string // empty when every invariant held and everything healed
	Hash      uint64
	Trace     string
	Steps     int
	Counts    QuorumCounts
}

// QuorumCounts tells how much happened, so that a test can see that the runs were worth something.
type QuorumCounts struct {
	Proposed, Committed               int // batches appended by leaders; batches committed
	Elections                         int // epochs that had a leader
	Truncations, Diverged             int // logs cut; of these cut by a fetch's divergence
	Kills, Losses, DiskErrors         int // processes killed, machines that lost power, syncs that failed
	Pauses, Cuts, Resigned, Hints     int
	CheckQuorum                       int // isolated leaders seen to resign
	Votes, PreVotes, Refused, Checked int // answers given; invariant checks made
	Snapshots, Installs, Compared     int // snapshots taken; installed; states compared byte for byte
	Changes, Wiped                    int // changes of the voters committed; disks that were wiped
}

func (c *QuorumCounts) add(o QuorumCounts) {
	c.Proposed += o.Proposed
	c.Committed += o.Committed
	c.Elections += o.Elections
	c.Truncations += o.Truncations
	c.Diverged += o.Diverged
	c.Kills += o.Kills
	c.Losses += o.Losses
	c.DiskErrors += o.DiskErrors
	c.Pauses += o.Pauses
	c.Cuts += o.Cuts
	c.Resigned += o.Resigned
	c.Hints += o.Hints
	c.CheckQuorum += o.CheckQuorum
	c.Votes += o.Votes
	c.PreVotes += o.PreVotes
	c.Refused += o.Refused
	c.Checked += o.Checked
	c.Snapshots += o.Snapshots
	c.Installs += o.Installs
	c.Compared += o.Compared
	c.Changes += o.Changes
	c.Wiped += o.Wiped
}

const (
	quorumFaultTime = 6 * time.Second
	quorumHealTime  = 20 * time.Second
)

// quorumSim is one metadata quorum: voters 1 to n and two observers with logs.
type quorumSim struct {
	opts   QuorumOptions
	w      *World
	net    *Network
	check  *quorumChecker
	voters raft.VoterSet
	nodes  []*quorumNode
	counts QuorumCounts

	// Drawn once for the run.
	fetchMaxBytes int32
	election      time.Duration
	slowDisk      int // chance per thousand that a flush takes long
	overWire      bool
	snapshotBytes int // of new metadata make a snapshot due; 0: none is taken
	snapshotChunk int32
	changing      bool // voters come and go
	proposals     int
	mends         int // how often cuts were taken back
	faulting      bool
}

// RunQuorum plays one schedule: six seconds of proposals under crashes, lost power, failing syncs, pauses, cuts,
// losses, duplicates and disorder, then all heals, and a proposal has to reach every node. After every step of a
// node its invariants are checked (quorum_check.go).
func RunQuorum(opts QuorumOptions) QuorumReport {
	s := newQuorumSim(opts)
	s.draw()
	s.populate()
	for _, n := range s.nodes {
		n.boot()
	}
	s.faulting = true
	s.scheduleFault()
	s.scheduleProposal()
	done := func() bool { return s.check.violation != "" }
	s.w.RunUntil(s.w.Now().Add(quorumFaultTime), done)
	s.heal()
	end := s.w.Now().Add(quorumHealTime)
	if !s.w.RunUntil(end, func() bool { return done() || s.healed() }) && s.check.violation == "" {
		s.check.fail("liveness: %v after everything healed there is no progress: %s", quorumHealTime, s.state())
	}
	s.check.states()
	s.counts.Checked = s.check.checked
	s.counts.Committed = len(s.check.committed)
	s.counts.Elections = len(s.check.leaders)
	return QuorumReport{
		Violation: s.check.violation, Hash: s.w.Hash(), Trace: s.w.Text(), Steps: s.w.Steps(), Counts: s.counts,
	}
}

func newQuorumSim(opts QuorumOptions) *quorumSim {
	s := &quorumSim{opts: opts, w: NewWorld(opts.Seed), fetchMaxBytes: 1 << 20}
	s.w.Verbose = opts.Verbose
	s.check = newQuorumChecker(s)
	s.net = NewNetwork(s.w, Calm)
	return s
}

// draw makes the run what its seed says.
func (s *quorumSim) draw() {
	if s.opts.Voters == 0 {
		s.opts.Voters = 3
		if s.w.Chance(300) {
			s.opts.Voters = 5
		}
	}
	faults := Calm
	if s.w.Chance(600) {
		faults = Faults{
			DelayMin: 100 * time.Microsecond, DelayMax: s.w.Between(time.Millisecond, 20*time.Millisecond),
			Loss: s.w.Rand.IntN(60), Duplicate: s.w.Rand.IntN(60), Reorder: s.w.Rand.IntN(100),
		}
	}
	s.net.Faults = faults
	if s.w.Chance(400) {
		s.fetchMaxBytes = 100 // about one batch at a time, and small pieces of snapshots
	}
	if s.w.Chance(400) {
		s.slowDisk = 50
	}
	if s.w.Chance(400) {
		s.election = 15 * time.Millisecond // candidates meet
	}
	s.overWire = s.opts.Seed%8 == 0
	if s.w.Chance(700) {
		s.snapshotBytes = 500 + s.w.Rand.IntN(4000)
	}
	s.snapshotChunk = int32(64 + s.w.Rand.IntN(4000))
	s.changing = s.w.Chance(500)
	s.w.Trace("seed %d: %d voters, faults %+v, fetch %d bytes, election %v", s.opts.Seed, s.opts.Voters, faults, s.fetchMaxBytes, s.election)
}

// populate makes voters and observers.
func (s *quorumSim) populate() {
	var vs []raft.Voter
	for id := ident.NodeID(1); int(id) <= s.opts.Voters; id++ {
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

func (s *quorumSim) anyNode() *quorumNode { return s.nodes[s.w.Rand.IntN(len(s.nodes))] }

func (s *quorumSim) anyVoter() *quorumNode {
	voters := s.check.voters()
	return s.node(voters[s.w.Rand.IntN(len(voters))].Key.ID)
}

// leading returns a running node that was told that it leads and still thinks so.
func (s *quorumSim) leading() *quorumNode {
	var found *quorumNode
	for _, n := range s.nodes {
		if n.q != nil && !n.paused && n.leads == n.q.Core().Epoch() && n.q.Core().Role() == raft.Leader {
			// With several, any: only one of them can commit.
			if found == nil || s.w.Chance(500) {
				found = n
			}
		}
	}
	return found
}

// scheduleProposal keeps records coming.
func (s *quorumSim) scheduleProposal() {
	s.w.After(s.w.Between(time.Millisecond, 60*time.Millisecond), func() {
		if n := s.leading(); n != nil {
			for range 1 + s.w.Rand.IntN(3) {
				n.propose()
			}
			if s.changing && s.faulting && s.w.Chance(60) {
				s.changeVoters(n)
			}
		}
		s.scheduleProposal()
	})
}

// heal ends all faults and brings everybody back.
func (s *quorumSim) heal() {
	s.faulting = false
	s.mendAll()
	s.net.Faults = Calm
	s.slowDisk = 0
	s.w.Trace("heal")
	for _, n := range s.nodes {
		n.failSync = false
		if n.q == nil {
			n.boot()
		}
		n.resume()
	}
	s.check.healedAt = s.w.Now()
}

// healed: something that was proposed after the faults is committed, and every node knows it.
func (s *quorumSim) healed() bool {
	goal := s.check.goal
	if goal < 0 {
		return false
	}
	for _, n := range s.nodes {
		if n.q == nil || n.q.HighWatermark() < goal {
			return false
		}
	}
	return true
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
