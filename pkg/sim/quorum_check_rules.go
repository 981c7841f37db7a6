package sim

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// downloadFrom is where a node fetches a snapshot.
type downloadFrom struct {
	leader ident.NodeID
	epoch  ident.Epoch
	id     raft.SnapshotID
}

// received notes who fetches from a leader.
func (c *quorumChecker) received(n *quorumNode, now ident.Instant, m raft.Message) {
	var from raft.ReplicaKey
	var epoch ident.Epoch
	switch m := m.(type) {
	case *raft.FetchRequest:
		from, epoch = m.Replica, m.Epoch
	case *raft.FetchSnapshotRequest:
		from, epoch = m.Replica, m.Epoch
	default:
		return
	}
	if n.q.Core().Role() == raft.Leader && epoch == n.q.Core().Epoch() {
		n.contacts[from] = now
	}
}

// checkQuorum: a leader has heard of a majority within its time, by its own clock.
func (c *quorumChecker) checkQuorum(n *quorumNode) {
	voters, now := n.q.Core().Voters(), n.now()
	need := voters.Majority()
	var contacts []ident.Instant
	for _, v := range voters {
		if v.Key == n.key() {
			need--
			continue
		}
		at, ok := n.contacts[v.Key]
		if !ok {
			at, n.contacts[v.Key] = now, now
		}
		contacts = append(contacts, at)
	}
	if need <= 0 || need > len(contacts) {
		return
	}
	slices.Sort(contacts)
	if silent := now.Sub(contacts[len(contacts)-need]); silent >= raft.DefaultCheckQuorumTimeout {
		c.fail("CheckQuorum: node %d still leads epoch %d, though no majority has fetched for %v", n.id, n.epoch, silent)
	}
}

// voteDurable looks at what would be left of the vote if the power went now.
func (c *quorumChecker) voteDurable(n *quorumNode, e ident.Epoch, candidate raft.ReplicaKey) {
	var on struct {
		LeaderEpoch      ident.Epoch
		VotedID          ident.NodeID
		VotedDirectoryID ident.UUID
	}
	data, err := vfs.ReadFile(n.disk.CrashClone(c.dice.Rand, 0), filepath.Join(quorumDir, exec.QuorumStateFile))
	if err == nil {
		err = json.Unmarshal(data, &on)
	}
	if err != nil {
		c.fail("VoteDurable: node %d votes for %s in epoch %d, and on its disk is no vote: %v", n.id, candidate, e, err)
		return
	}
	if on.LeaderEpoch == e && (raft.ReplicaKey{ID: on.VotedID, DirectoryID: on.VotedDirectoryID}) != candidate || on.LeaderEpoch < e {
		c.fail("VoteDurable: node %d votes for %s in epoch %d, and on its disk is %+v", n.id, candidate, e, on)
	}
}

// logStart: what is before a log's start is in a snapshot.
func (c *quorumChecker) logStart(n *quorumNode) {
	start := n.q.Log().StartOffset()
	if start == n.start {
		return
	}
	n.start = start
	entries, err := n.disk.ReadDir(quorumDir)
	if err != nil {
		c.fail("Disk: node %d: %v", n.id, err)
		return
	}
	for _, e := range entries {
		if id, ok := metadata.ParseSnapshotName(e.Name()); ok && id.EndOffset >= start {
			return
		}
	}
	if start > 0 {
		c.fail("SnapshotAtLogStart: the log of node %d begins at %d, and no snapshot reaches up to there", n.id, start)
	}
}

// changesAlone looks at the sets of voters that a leader has just appended.
func (c *quorumChecker) changesAlone(n *quorumNode, known int) {
	for i := known; i < len(n.shadow); i++ {
		b := n.shadow[i]
		if b.epoch != n.epoch {
			continue
		}
		for _, set := range votersOf(b) {
			if before := c.setBefore(n, i); before != nil {
				c.changeAlone(n, *before, set)
			}
		}
	}
}

// setBefore is the set that counted before a batch of a node's log.
func (c *quorumChecker) setBefore(n *quorumNode, i int) *raft.VotersAt {
	for i--; i >= 0; i-- {
		if sets := votersOf(n.shadow[i]); len(sets) > 0 {
			return &sets[len(sets)-1]
		}
	}
	return nil
}

func (c *quorumChecker) changeAlone(n *quorumNode, before, set raft.VotersAt) {
	if before.Offset >= n.q.HighWatermark() {
		c.fail("VoterChangeAlone: leader %d changes the voters at %d, while the change at %d is not committed", n.id, set.Offset, before.Offset)
		return
	}
	var came, gone []raft.ReplicaKey
	for _, k := range set.Voters.Keys() {
		if !before.Voters.Has(k) {
			came = append(came, k)
		}
	}
	for _, k := range before.Voters.Keys() {
		if !set.Voters.Has(k) {
			gone = append(gone, k)
		}
	}
	if len(came)+len(gone) > 1 {
		c.fail("VoterChangeAlone: leader %d changes the voters at %d by %v and %v at once", n.id, set.Offset, came, gone)
	}
	for _, k := range came {
		// By the world's time: a leader's clock may be half as fast.
		lag := c.s.plan.voterLagMax + 10*time.Millisecond
		if c.s.plan.traits[traitClocks] {
			lag *= 2
		}
		i := sort.Search(len(c.committedAt), func(i int) bool { return c.committedAt[i] > c.s.w.Now().Add(-lag) })
		wanted := quorumShadow(c.committed[:i]).end()
		if m := c.s.node(k.ID); m.key() != k || m.shadow.end() < wanted {
			c.fail("NewVoterCaughtUp: leader %d makes %s a voter, whose log ends at %d; %v ago %d was committed", n.id, k, m.shadow.end(), lag, wanted)
		}
	}
}

// setsUnderWay says whether some log holds a set of voters that is not committed.
func (c *quorumChecker) setsUnderWay() bool {
	for _, n := range c.s.nodes {
		for i := len(n.shadow) - 1; i >= 0 && n.shadow[i].next > c.end(); i-- {
			if len(votersOf(n.shadow[i])) > 0 {
				return true
			}
		}
	}
	return false
}

// abstract is the state of the cluster as a number: what each node is, and how epochs and positions compare.
func (s *quorumSim) abstract() uint64 {
	h := uint64(len(s.nodes))
	ends := make([]ident.Offset, 0, 8)
	marks := make([]ident.Offset, 0, 8)
	epochs := make([]ident.Epoch, 0, 8)
	for _, n := range s.nodes {
		ends, marks, epochs = append(ends, n.shadow.end()), append(marks, n.hw), append(epochs, n.epoch)
	}
	for i, n := range s.nodes {
		if n.q == nil {
			h = mixed(h, 1+uint64(rank(ends, ends[i])))
			continue
		}
		core := n.q.Core()
		x := 1 + uint64(core.Role()) + uint64(rank(ends, ends[i]))<<4 + uint64(rank(marks, marks[i]))<<8 + uint64(rank(epochs, epochs[i]))<<12
		x += uint64(uint8(core.Leadership().Leader))<<16 + uint64(len(core.Voters()))<<24 + uint64(min(n.q.Snapshots().Count, 3))<<28
		for bit, is := range [...]bool{n.paused, core.Install().Active, n.q.Log().FlushedOffset() < ends[i], n.hw < ends[i], core.IsVoter(), n.start > 0} {
			if is {
				x += 1 << (32 + bit)
			}
		}
		h = mixed(h, x)
	}
	return mixed(h, uint64(len(s.check.voters())))
}

// rank counts what is smaller.
func rank[T ident.Offset | ident.Epoch](all []T, x T) (below int) {
	for _, y := range all {
		if y < x {
			below++
		}
	}
	return below
}
