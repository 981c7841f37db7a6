package sim

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// someRecords are what a controller could propose: settings change, now and then a topic comes.
func (s *quorumSim) someRecords(d Dice) []metadata.Record {
	var records []metadata.Record
	for range 1 + d.IntN(3) {
		s.proposals++
		name := fmt.Sprintf("p%d", s.proposals)
		if d.Chance(200) {
			records = append(records, &metadata.TopicRecord{Name: name, TopicID: ident.UUID{1, byte(s.proposals >> 16), byte(s.proposals >> 8), byte(s.proposals)}})
			continue
		}
		value := &name
		if d.Chance(150) {
			value = nil // the setting goes
		}
		records = append(records, &metadata.ConfigRecord{
			ResourceType: metadata.ResourceTopic, ResourceName: fmt.Sprintf("p%d", d.IntN(15)), Name: [...]string{"retention.ms", "min.insync.replicas"}[d.IntN(2)], Value: value,
		})
	}
	return records
}

// publish applies what is committed, and takes a snapshot when one is due.
func (n *quorumNode) publish() {
	if n.q == nil || n.s.check.violation != "" {
		return
	}
	for {
		if state, ok := n.q.TakeState(); ok {
			n.loader, n.newBytes = metadata.NewLoader(state.Image, state.TimestampMs), 0
			if n.loader.NextOffset() < n.applied {
				n.s.check.fail("AppliedStays: node %d had applied everything up to %d and is taken back to %d by a snapshot", n.id, n.applied, n.loader.NextOffset())
			}
			n.s.check.state(n, "after a snapshot", state.Image, false)
		}
		if n.loader.NextOffset() >= n.q.HighWatermark() {
			break
		}
		raw, _, err := n.q.ReadCommitted(nil, n.loader.NextOffset(), 1<<20)
		if len(raw) == 0 && err == nil {
			err = fmt.Errorf("there is nothing at %d, the log ends at %d, the high watermark is %d", n.loader.NextOffset(), n.q.EndOffset(), n.q.HighWatermark())
		}
		for b, err2 := range metadata.ReadBatches(raw) {
			if err == nil {
				err = err2
			}
			if err == nil {
				err = n.loader.Load(b)
			}
		}
		if err != nil {
			n.s.check.fail("StateIsReplay: node %d can't follow what is committed: %v", n.id, err)
			return
		}
		n.newBytes += len(raw)
	}
	n.loader.Publish()
	n.applied = n.loader.NextOffset()
	if (n.s.plan.snapshotBytes > 0 && n.newBytes >= n.s.plan.snapshotBytes || n.q.SnapshotWanted()) && !n.snapping {
		n.snapshot()
	}
}

// snapshot takes one beside everything else, as the node's snapshotter does.
func (n *quorumNode) snapshot() {
	p := n.q.BeginSnapshot(exec.State{Image: n.loader.Image(), TimestampMs: n.loader.Timestamp()})
	if p == nil {
		return
	}
	s, life := n.s, n.life
	n.snapping, n.newBytes = true, 0
	var err error
	early := n.dice.Chance(500)
	if early {
		err = p.Write()
	}
	s.w.After(n.dice.Between(time.Millisecond, 50*time.Millisecond), func() {
		if n.life != life || n.q == nil || s.check.violation != "" {
			return
		}
		n.snapping = false
		if !early {
			err = p.Write()
		}
		s.counts.Snapshots++
		s.w.Trace("%d has taken snapshot %s", n.id, p.ID())
		n.do("snapshot", func(now ident.Instant) error {
			if err := n.q.EndSnapshot(now, p, err, exec.SnapshotLimits{}); err != nil {
				return err
			}
			return n.q.Tick(now)
		})
	})
}

// state compares a node's state with what all committed records up to there make.
func (c *quorumChecker) state(n *quorumNode, when string, image *metadata.Image, byBytes bool) {
	end := image.SnapshotID().EndOffset
	if end > c.end() {
		c.fail("SnapshotCommitted: node %d, %s, stands at %d, committed is %d", n.id, when, end, c.end())
		return
	}
	c.s.counts.Compared++
	i, there := slices.BinarySearchFunc(c.images, end, func(im *metadata.Image, end ident.Offset) int {
		return int(im.SnapshotID().EndOffset - end)
	})
	if !there {
		if end > 0 {
			c.fail("SnapshotCommitted: node %d, %s, stands at %d, where no committed batch ends", n.id, when, end)
		}
		return
	}
	want := c.images[i]
	same := !byBytes && image.Equal(want) || byBytes && bytes.Equal(whole(image), whole(want))
	if !same {
		c.fail("StateIsReplay: node %d, %s, has at %d another state than the committed records make (%d and %d topics)",
			n.id, when, end, image.NumTopics(), want.NumTopics())
	}
}

func whole(im *metadata.Image) []byte {
	return metadata.AppendSnapshot(nil, im, metadata.SnapshotHeader{})
}

// replayed replays all that is committed from the first record on, and compares it, and everybody's state, byte for
// byte.
func (c *quorumChecker) replayed() {
	if c.violation != "" || len(c.committed) == 0 {
		return
	}
	l := metadata.NewLoader(metadata.Empty(), -1)
	for _, b := range c.committed {
		if err := load(l, b.raw); err != nil {
			c.fail("StateIsReplay: committed records can't be applied: %v", err)
			return
		}
	}
	if _, image := l.Publish(); !bytes.Equal(whole(image), whole(c.images[len(c.images)-1])) {
		c.fail("StateIsReplay: a replay of everything up to %d makes another state than the records made one by one", c.end())
	}
	for _, n := range c.s.nodes {
		if n.q != nil && c.violation == "" {
			c.state(n, "looked at", n.loader.Image(), true)
		}
	}
}

func load(l *metadata.Loader, raw []byte) error {
	for b, err := range metadata.ReadBatches(raw) {
		if err == nil {
			err = l.Load(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// apply follows what was committed just now.
func (c *quorumChecker) apply() {
	from := c.replay.NextOffset()
	for _, b := range c.committed {
		if b.base < from {
			continue
		}
		if err := load(c.replay, b.raw); err != nil {
			c.fail("StateIsReplay: committed records can't be applied: %v", err)
			return
		}
		_, image := c.replay.Publish()
		c.images = append(c.images, image)
		if sets := votersOf(b); len(sets) > 0 {
			if len(c.sets) > 0 {
				c.s.counts.Changes++
			}
			c.sets = append(c.sets, sets...)
		}
	}
}

// votersOf finds the voter sets in a batch.
func votersOf(b quorumBatch) (sets []raft.VotersAt) {
	if !b.control {
		return nil
	}
	decoded, err := metadata.ReadBatch(b.raw)
	if err != nil {
		return nil
	}
	for i, r := range decoded.Control {
		if r.Type != batch.VotersType {
			continue
		}
		record, err := batch.DecodeVoters(r.Value)
		if err != nil {
			continue
		}
		var set raft.VoterSet
		for _, v := range record.Voters {
			voter := raft.Voter{Key: raft.ReplicaKey{ID: v.ID, DirectoryID: v.DirectoryID}}
			for _, e := range v.Endpoints {
				voter.Endpoints = append(voter.Endpoints, raft.Endpoint(e))
			}
			set = append(set, voter)
		}
		sets = append(sets, raft.VotersAt{Offset: b.base + ident.Offset(i), Voters: set})
	}
	return sets
}

// voters is the committed voter set.
func (c *quorumChecker) voters() raft.VoterSet {
	if len(c.sets) == 0 {
		return c.s.voters
	}
	return c.sets[len(c.sets)-1].Voters
}

// behind is what a log that starts at an offset stands behind: everything committed below.
func (c *quorumChecker) behind(n *quorumNode, start ident.Offset) quorumShadow {
	i := slices.IndexFunc(c.committed, func(b quorumBatch) bool { return b.base >= start })
	if i < 0 {
		i = len(c.committed)
	}
	prefix := quorumShadow(c.committed[:i:i])
	if prefix.end() != start {
		c.fail("SnapshotCommitted: node %d has a log that starts at %d, where no committed batch ends", n.id, start)
	}
	return prefix
}

// installed looks whether a snapshot has taken the place of a node's log.
func (c *quorumChecker) installed(n *quorumNode) {
	count := n.q.Snapshots().Installed
	if count == n.installed {
		return
	}
	n.installed = count
	c.s.counts.Installs++
	start, end := n.q.Log().StartOffset(), n.q.EndOffset()
	c.s.w.Trace("%d has installed a snapshot: log %d to %d", n.id, start, end)
	prefix := c.behind(n, start)
	chain, _ := prefix.upTo(start)
	if mine, ok := n.shadow.upTo(start); ok && mine == chain && n.shadow.end() == end {
		return // the log held it, and was kept
	}
	if end != start {
		c.fail("StateIsReplay: node %d keeps its log up to %d behind a snapshot whose end it did not hold", n.id, end)
	}
	n.shadow = prefix
}
