package sim

import (
	"fmt"
	"sort"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// quorumChecker watches from outside, with its own memory, and is asked after every step of a node. It looks at
// the logs' bytes and at what nodes say to each other, not at what the core thinks of itself, roles apart.
//
//	SingleLeader          at most one node, in one life and one go, leads an epoch: not again after it resigned
//	VoteOnce              a voter votes for one candidate in an epoch, over all its lives
//	VoteDurable           a vote is on the disk for good before anybody hears of it
//	MonotonicEpoch        what a node has told of its epoch never goes back, over all its lives
//	MonotonicHighWatermark within a life
//	LogMatching           two batches of the same epoch and offset are the same, and so is all before them
//	MajorityReached       what a leader calls committed is on the disks of a majority, and its last record is of its epoch
//	CommittedStays        what is committed is the same everywhere, is never cut off, and stays on a majority's disks
//	LeaderCompleteness    whoever leads has all that was committed in earlier epochs
//	FlushedStays          what a log calls flushed survives every crash
//	CheckQuorum           a leader that a majority has not fetched from for its time leads no more (KAFKA-15489)
//	Undisturbed           a node that comes back unseats no leader that is well (KIP-996); in calm schedules
//	VoterChangeAlone      a set of voters differs by one from the one before, which was committed
//	NewVoterCaughtUp      whoever becomes a voter had what was committed a moment ago
//	StateIsReplay         a state from a snapshot and the log behind it is the one that all committed records make, byte for byte
//	AppliedStays          a node's state never goes back
//	SnapshotCommitted     a snapshot holds only what is committed
//	SnapshotAtLogStart    a log that does not begin at 0 begins at or before the end of a snapshot beside it
//	SnapshotAsWritten     nobody is sent bytes of a snapshot that the disk has damaged, and only such a one is called damaged
//	DownloadFromOne       a download goes on only at the leader, and in the epoch, where it began
//	StopsForItsDisk       a node stops when, and only when, its disk fails, and says nothing more
//	Starts, AnswersOnce, Timers, Progress: it starts on what a crash left, answers each request once, sleeps until its
//	                      deadline, and once all faults are over everything gets done
type quorumChecker struct {
	s         *quorumSim
	dice      Dice // where a look at a disk needs some
	violation string
	checked   int

	leaders map[ident.Epoch]quorumLife
	votes   map[quorumBallot]raft.ReplicaKey
	told    map[raft.ReplicaKey]ident.Epoch
	chains  map[quorumPlace]uint64
	// committed is every committed batch, in order, and committedIn the epoch whose leader committed it.
	committed   []quorumBatch
	committedIn []ident.Epoch
	committedAt []ident.Instant

	// replay is every committed record, applied by the checker itself, and sets the voter sets among them.
	replay *metadata.Loader
	images []*metadata.Image // after each committed batch
	sets   []raft.VotersAt

	healedAt ident.Instant // -1 while there are faults
	goal     ident.Offset  // end of the first proposal after the faults that was committed, -1 before
	asked    map[ident.Epoch]ident.Offset
}

type quorumLife struct {
	node       ident.NodeID
	life, term int
}

type quorumBallot struct {
	voter raft.ReplicaKey
	epoch ident.Epoch
}

type quorumPlace struct {
	epoch ident.Epoch
	base  ident.Offset
}

// quorumBatch is a batch of a log; chain is a hash over it and all before it.
type quorumBatch struct {
	base, next ident.Offset
	epoch      ident.Epoch
	chain      uint64
	raw        []byte
	control    bool
}

// quorumShadow is what the checker has read of a node's log: while the node is down, of what is on its disk.
type quorumShadow []quorumBatch

func (b quorumShadow) end() ident.Offset {
	if len(b) == 0 {
		return 0
	}
	return b[len(b)-1].next
}

// upTo returns the chain at a batch boundary.
func (b quorumShadow) upTo(end ident.Offset) (uint64, bool) {
	if end == 0 {
		return 0, true
	}
	i := sort.Search(len(b), func(i int) bool { return b[i].next >= end })
	if i == len(b) || b[i].next != end {
		return 0, false
	}
	return b[i].chain, true
}

func newQuorumChecker(s *quorumSim) *quorumChecker {
	return &quorumChecker{
		s: s, dice: NewDice(s.opts.Seed, 3), healedAt: -1, goal: -1,
		leaders: map[ident.Epoch]quorumLife{},
		votes:   map[quorumBallot]raft.ReplicaKey{},
		told:    map[raft.ReplicaKey]ident.Epoch{},
		replay:  metadata.NewLoader(metadata.Empty(), -1),
		chains:  map[quorumPlace]uint64{},
		asked:   map[ident.Epoch]ident.Offset{},
	}
}

func (c *quorumChecker) fail(format string, args ...any) {
	if c.violation == "" {
		c.violation = fmt.Sprintf(format, args...)
		c.s.w.Trace("VIOLATION %s", c.violation)
	}
}

// after looks at a node that has just made a step.
func (c *quorumChecker) after(n *quorumNode) {
	c.checked++
	core := n.q.Core()
	if core.Epoch() < n.epoch {
		c.fail("MonotonicEpoch: node %d goes from epoch %d to %d", n.id, n.epoch, core.Epoch())
	}
	if core.Role() != n.role || core.Epoch() != n.epoch {
		c.s.w.Trace("%d is %s in epoch %d", n.id, core.Role(), core.Epoch())
	}
	newLeader := core.Role() == raft.Leader && (n.role != raft.Leader || core.Epoch() != n.epoch)
	// A leader may commit and resign in one step.
	led := n.epoch
	if n.role != raft.Leader {
		led = -1
	}
	n.epoch, n.role = core.Epoch(), core.Role()
	if newLeader {
		n.terms++
		n.contacts = map[raft.ReplicaKey]ident.Instant{}
	}
	if core.Role() == raft.Leader {
		led = n.epoch
		l := quorumLife{n.id, n.life, n.terms}
		if had, ok := c.leaders[n.epoch]; ok && had != l {
			c.fail("SingleLeader: epoch %d is led by node %d in its life %d and by node %d in its life %d, for the %d. time", n.epoch, had.node, had.life, l.node, l.life, n.terms)
		}
		c.leaders[n.epoch] = l
		c.checkQuorum(n)
	}
	c.stillCalm(n)
	c.follow(n)
	c.logStart(n)
	if newLeader {
		c.complete(n)
	}
	if hw := n.q.HighWatermark(); hw != n.hw {
		if hw < n.hw {
			c.fail("MonotonicHighWatermark: node %d goes from %d to %d", n.id, n.hw, hw)
		}
		n.hw = hw
		c.highWatermark(n, hw, led)
	}
	if c.s.opts.Visit != nil {
		c.s.opts.Visit(c.s.abstract())
	}
}

// complete: a leader has all that leaders of earlier epochs committed. (One that stood still may come to lead an
// epoch that is long over.)
func (c *quorumChecker) complete(n *quorumNode) {
	before := sort.Search(len(c.committedIn), func(i int) bool { return c.committedIn[i] >= n.epoch })
	want := quorumShadow(c.committed[:before])
	chain, ok := n.shadow.upTo(want.end())
	if all, _ := want.upTo(want.end()); !ok || chain != all {
		c.fail("LeaderCompleteness: node %d leads epoch %d without all that is committed up to %d: its log ends at %d", n.id, n.epoch, want.end(), n.shadow.end())
	}
}

// follow reads what is new in a node's log.
func (c *quorumChecker) follow(n *quorumNode) {
	c.installed(n)
	end := n.q.EndOffset()
	if end < n.shadow.end() {
		c.s.counts.Truncations++
		c.s.w.Trace("%d cuts its log to %d", n.id, end)
		keep := sort.Search(len(n.shadow), func(i int) bool { return n.shadow[i].next > end })
		for _, b := range n.shadow[keep:] {
			if chain, ok := quorumShadow(c.committed).upTo(b.next); ok && chain == b.chain {
				c.fail("CommittedStays: node %d cuts its log to %d, and with it the committed records up to %d", n.id, end, b.next)
			}
		}
		n.shadow = n.shadow[:keep]
		c.stillOnMajority()
	}
	if end > n.shadow.end() {
		var err error
		known := len(n.shadow)
		if n.shadow, err = readShadow(n.q.Log(), n.shadow); err != nil {
			c.fail("Disk: node %d: %v", n.id, err)
			return
		}
		c.match(n)
		if n.role == raft.Leader {
			c.changesAlone(n, known)
		}
	}
}

// match compares each batch with all of the same epoch and offset that were ever seen.
func (c *quorumChecker) match(n *quorumNode) {
	for i := len(n.shadow) - 1; i >= 0; i-- {
		b := n.shadow[i]
		place := quorumPlace{b.epoch, b.base}
		chain, seen := c.chains[place]
		if seen && chain != b.chain {
			c.fail("LogMatching: node %d has at offset %d, epoch %d, another batch, or another log before it, than was seen there", n.id, b.base, b.epoch)
			return
		}
		if seen {
			return // and so is all before it
		}
		c.chains[place] = b.chain
	}
}

func (c *quorumChecker) end() ident.Offset { return quorumShadow(c.committed).end() }

func (c *quorumChecker) chain() uint64 {
	if len(c.committed) == 0 {
		return 0
	}
	return c.committed[len(c.committed)-1].chain
}

// highWatermark: a node calls everything below hw committed; it leads the epoch led, or did before this step.
func (c *quorumChecker) highWatermark(n *quorumNode, hw ident.Offset, led ident.Epoch) {
	if hw > c.end() {
		c.commit(n, hw, led)
	}
	mine, ok := n.shadow.upTo(hw)
	all, ok2 := quorumShadow(c.committed).upTo(hw)
	if !ok || !ok2 || mine != all {
		c.fail("CommittedStays: node %d calls its log committed up to %d, where others have something else or no batch ends", n.id, hw)
	}
	if goal, ok := c.asked[led]; ok && c.goal < 0 && hw >= goal {
		c.goal = goal
	}
}

func (c *quorumChecker) commit(n *quorumNode, hw ident.Offset, led ident.Epoch) {
	if led < 0 {
		c.fail("MajorityReached: node %d, %s, calls everything up to %d committed before any leader did", n.id, n.role, hw)
		return
	}
	if chain, ok := n.shadow.upTo(c.end()); !ok || chain != c.chain() {
		c.fail("CommittedStays: leader %d commits up to %d without what was committed up to %d", n.id, hw, c.end())
		return
	}
	for _, b := range n.shadow {
		if b.next > c.end() && b.next <= hw {
			c.committed = append(c.committed, b)
			c.committedIn = append(c.committedIn, led)
			c.committedAt = append(c.committedAt, c.s.w.Now())
		}
	}
	if c.end() != hw {
		c.fail("MajorityReached: leader %d commits up to %d, which is no batch boundary", n.id, hw)
		return
	}
	c.apply()
	if last := c.committed[len(c.committed)-1]; last.epoch != led {
		c.fail("MajorityReached: leader %d of epoch %d commits a record of epoch %d by counting (Raft, figure 8)", n.id, led, last.epoch)
	}
	c.stillOnMajority()
}

// stillOnMajority: all that is committed is on the disks of a majority of the voters.
func (c *quorumChecker) stillOnMajority() {
	end, chain, without := c.end(), c.chain(), 0
	voters := c.voters()
	for _, v := range voters {
		n := c.s.node(v.Key.ID)
		if n.key() != v.Key {
			continue // its disk is gone, and with it the right to vote
		}
		if got, ok := n.shadow.upTo(end); !ok || got != chain || n.flushedUpTo() < end {
			without++
		}
	}
	// Those without it must not be able to elect one of them. (With an even number of voters that is less than that
	// a majority has it: the commit may have been counted in the set of a change that is not committed.)
	if without >= voters.Majority() {
		c.fail("MajorityReached: what is committed up to %d is not on the disks of %d of %d voters: %s", end, without, len(voters), c.s.state())
	}
}

// flushedUpTo is what is on the node's disk for good.
func (n *quorumNode) flushedUpTo() ident.Offset {
	if n.q == nil {
		return n.shadow.end()
	}
	return n.q.Log().FlushedOffset()
}

// crashed looks at what a crash left on a node's disk, by what a start would make of it, without touching it.
func (c *quorumChecker) crashed(n *quorumNode, flushed ident.Offset) {
	before := n.shadow
	recovery, ok := c.lookAtDisk(n)
	if !ok {
		return
	}
	had, _ := before.upTo(flushed)
	if has, ok := n.shadow.upTo(flushed); !ok || has != had {
		c.fail("FlushedStays: node %d had flushed up to %d and has after the crash %d: %+v", n.id, flushed, n.shadow.end(), recovery)
		return
	}
	c.stillOnMajority()
}

// lookAtDisk reads what a node that is down would start with; false when it would not, which is said.
func (c *quorumChecker) lookAtDisk(n *quorumNode) (log.Recovery, bool) {
	q, recovery, err := exec.OpenQuorum(exec.QuorumConfig{
		FS: n.disk.CrashClone(c.dice.Rand, 100), Dir: quorumDir, Voters: n.configured(), Raft: raft.Config{Self: n.key(), ClusterID: "sim"},
	})
	if err != nil && n.replaced(err) {
		return recovery, false
	}
	if err == nil {
		n.shadow, err = readShadow(q.Log(), c.behind(n, q.Log().StartOffset()))
	}
	if err != nil {
		c.fail("FlushedStays: node %d: %v", n.id, err)
	}
	return recovery, err == nil
}

// restarted looks at what a node remembers.
func (c *quorumChecker) restarted(n *quorumNode) {
	v := n.q.Core().Vote()
	if v.Epoch < c.told[n.key()] {
		c.fail("MonotonicEpoch: node %d restarts in epoch %d and has told others of %d", n.id, v.Epoch, c.told[n.key()])
	}
	if voted, ok := c.votes[quorumBallot{n.key(), v.Epoch}]; ok && voted != v.Voted {
		c.fail("VoteOnce: node %d remembers a vote for %v in epoch %d and gave it to %v", n.id, v.Voted, v.Epoch, voted)
	}
}

func (c *quorumChecker) tell(n *quorumNode, e ident.Epoch) { c.told[n.key()] = max(c.told[n.key()], e) }

func (c *quorumChecker) vote(n *quorumNode, e ident.Epoch, candidate raft.ReplicaKey) {
	b := quorumBallot{n.key(), e}
	if had, ok := c.votes[b]; ok && had != candidate {
		c.fail("VoteOnce: node %d votes in epoch %d for %v and for %v", n.id, e, had, candidate)
	}
	c.votes[b] = candidate
	c.voteDurable(n, e, candidate)
}

// sent looks at a request that leaves a node.
func (c *quorumChecker) sent(n *quorumNode, to ident.NodeID, m raft.Message) {
	switch m := m.(type) {
	case *raft.VoteRequest:
		c.tell(n, m.Epoch)
		if !m.PreVote {
			c.vote(n, m.Epoch, m.Candidate)
		}
	case *raft.FetchSnapshotRequest:
		c.tell(n, m.Epoch)
		from := downloadFrom{to, m.Epoch, m.Snapshot}
		if m.Position > 0 && from != n.from {
			c.fail("DownloadFromOne: node %d asks node %d in epoch %d for snapshot %s from byte %d on, which it began with node %d in epoch %d",
				n.id, to, m.Epoch, m.Snapshot, m.Position, n.from.leader, n.from.epoch)
		}
		n.from = from
	case *raft.BeginQuorumEpochRequest:
		c.tell(n, m.Epoch)
	case *raft.EndQuorumEpochRequest:
		c.tell(n, m.Epoch)
	case *raft.FetchRequest:
		c.tell(n, m.Epoch)
		if flushed := n.q.Log().FlushedOffset(); m.Offset > flushed {
			c.fail("MajorityReached: node %d acknowledges up to %d and has on disk %d", n.id, m.Offset, flushed)
		}
	}
}

// replied looks at an answer that leaves a node.
func (c *quorumChecker) replied(n *quorumNode, req quorumRequest, m raft.Message) {
	switch m := m.(type) {
	case *raft.VoteResponse:
		c.tell(n, m.Current.Epoch)
		asked := req.msg.(*raft.VoteRequest)
		switch {
		case !m.Granted:
			c.s.counts.Refused++
		case asked.PreVote:
			c.s.counts.PreVotes++
		default:
			c.s.counts.Votes++
			c.vote(n, asked.Epoch, asked.Candidate)
		}
	case *raft.BeginQuorumEpochResponse:
		c.tell(n, m.Current.Epoch)
	case *raft.EndQuorumEpochResponse:
		c.tell(n, m.Current.Epoch)
	case *raft.FetchResponse:
		c.tell(n, m.Current.Epoch)
		if m.Diverging != nil {
			c.s.counts.Diverged++
		}
	case *raft.FetchSnapshotResponse:
		c.tell(n, m.Current.Epoch)
		c.served(n, m)
	}
}

// proposed notes the first proposal of each epoch after the faults: progress is that one of them is committed.
func (c *quorumChecker) proposed(n *quorumNode, end ident.Offset) {
	if _, ok := c.asked[n.leads]; !ok && c.healedAt >= 0 {
		c.asked[n.leads] = end
	}
}

// readShadow reads on behind what is known of a log.
func readShadow(l *log.Log, b quorumShadow) (quorumShadow, error) {
	for b.end() < l.EndOffset() {
		chunk, err := l.Read(b.end(), 1<<20, l.EndOffset(), true)
		if err != nil {
			return b, err
		}
		data, err := chunk.AppendTo(nil)
		chunk.Release()
		if err != nil {
			return b, err
		}
		for len(data) > 0 {
			one, rest, h, err := batch.Next(data)
			if err != nil {
				return b, err
			}
			data = rest
			if h.BaseOffset != b.end() {
				return b, fmt.Errorf("batch at offset %d, want %d", h.BaseOffset, b.end())
			}
			prev := uint64(0)
			if len(b) > 0 {
				prev = b[len(b)-1].chain
			}
			b = append(b, quorumBatch{h.BaseOffset, h.NextOffset(), h.LeaderEpoch, chainOf(prev, h), one, h.IsControl()})
		}
	}
	return b, nil
}

// chainOf hashes a batch onto what is before it. The CRC stands for the records; it does not cover the first three.
func chainOf(prev uint64, h batch.Header) uint64 {
	sum := mixed(mixed(prev, uint64(h.BaseOffset)), uint64(h.LeaderEpoch))
	return mixed(mixed(sum, uint64(h.Length)), uint64(h.CRC))
}
