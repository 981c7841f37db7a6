package sim

import (
	"errors"
	"slices"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/replication"
)

// isrChecker keeps what was promised and looks after every step whether it still holds. The names of the
// invariants are those of the replication protocol as the KIP-966 model states them.
type isrChecker struct {
	s *isrSim
	// truth is what is committed, by offset: what some leader's high watermark has passed, and so whatever was
	// acknowledged or read. It only grows.
	truth []isrEntry
	// written is every record ever written, by offset and epoch (LogMatching).
	written map[isrPosition]isrEntry
	logs    map[ident.NodeID]*isrLog
	leaders map[ident.Epoch]ident.NodeID
	seen    map[string]ident.Offset // where an idempotent value was committed

	// last is where the last committed record of a key is, of a topic that is compacted.
	last map[string]ident.Offset
	// toldStart is to where a node has said that records are deleted: none of them may come back there.
	toldStart map[ident.NodeID]ident.Offset

	// logStart is the highest log start that any log had.
	logStart    ident.Offset
	latest      ident.Offset // answered to ListOffsets
	latestEpoch ident.Epoch
}

type isrEntry struct {
	value  string
	epoch  ident.Epoch
	before ident.Epoch // epoch of the record before
}

type isrPosition struct {
	offset ident.Offset
	epoch  ident.Epoch
}

// isrLog is a node's log as the checker has read it.
type isrLog struct {
	entries []isrEntry
	agrees  int // entries that are known to be the truth's
	role    replication.Role
	epoch   ident.Epoch
	hw      ident.Offset
}

func newISRChecker(s *isrSim) *isrChecker {
	return &isrChecker{
		s: s, written: map[isrPosition]isrEntry{}, logs: map[ident.NodeID]*isrLog{},
		leaders: map[ident.Epoch]ident.NodeID{}, seen: map[string]ident.Offset{},
		last: map[string]ident.Offset{}, toldStart: map[ident.NodeID]ident.Offset{},
	}
}

// opened begins a life of a log.
func (c *isrChecker) opened(n *isrNode) {
	c.logs[n.id] = &isrLog{epoch: -1}
	if start, told := n.part.Log().StartOffset(), c.toldStart[n.id]; start < told {
		c.s.fail("node %d: its log starts at %d after a restart, it had said that all below %d is deleted", n.id, start, told)
	}
	c.stepped(n)
}

func (c *isrChecker) gone(n *isrNode) { delete(c.logs, n.id) }

// stepped looks at a node after its executor has done something.
func (c *isrChecker) stepped(n *isrNode) {
	l := c.logs[n.id]
	core := n.part.Core()
	if !c.follow(n, l) {
		return // it is about to find out that it is damaged
	}
	if core.Role() != l.role || core.LeaderEpoch() != l.epoch {
		l.role, l.epoch, l.hw = core.Role(), core.LeaderEpoch(), core.HighWatermark()
		c.s.w.Trace("node %d is %v in epoch %d, end %d, high watermark %d", n.id, l.role, l.epoch, len(l.entries), l.hw)
		if l.role == replication.Leader {
			c.elected(n, l)
		}
	}
	hw := core.HighWatermark()
	if l.role == replication.Leader {
		if hw < l.hw {
			c.s.fail("high watermark of leader %d went back from %d to %d in epoch %d", n.id, l.hw, hw, l.epoch)
		}
		c.commit(n, l, hw)
		c.maximalISR(n)
		c.latestOffset(n)
	}
	l.hw = hw
	// A log that failed may have stopped in the middle of a change; nobody is served from it, nothing of it is written down.
	if l.role != replication.Failed && int(hw) > len(l.entries) {
		c.s.fail("node %d: high watermark %d beyond the end %d", n.id, hw, len(l.entries))
	}
	c.compare(n, l, min(int(hw), len(l.entries)))
	c.s.noteFlushed(n)
	c.complete(n, l)
}

// follow reads what is new in a node's log.
// It says false when that waits for the node to find out that something of it is damaged.
func (c *isrChecker) follow(n *isrNode, l *isrLog) bool {
	end := int(n.end())
	if end < len(l.entries) {
		c.s.counts.Truncations++
		c.s.w.Trace("node %d truncated from %d to %d", n.id, len(l.entries), end)
		l.entries = l.entries[:end]
		l.agrees = min(l.agrees, end)
	}
	if start := int(n.part.Log().StartOffset()); start > l.agrees {
		// Reset, or opened after retention. What it does not show is taken as what it was.
		if start > len(c.truth) {
			c.s.fail("node %d: log starts at %d, committed are %d records", n.id, start, len(c.truth))
			return true
		}
		l.entries = append(append(l.entries[:0:0], c.truth[:start]...), l.entries[min(start, len(l.entries)):]...)
		l.agrees = start
	}
	c.logStart = max(c.logStart, n.part.Log().StartOffset())
	for len(l.entries) < end && c.s.violation == "" {
		chunk, err := n.part.Log().Read(ident.Offset(len(l.entries)), 1<<20, ident.Offset(end), true)
		if rotten := c.s.rotten != nil && c.s.rotten.node == n; rotten && errors.Is(err, log.ErrCorrupt) {
			if !c.damage(n, l) {
				return false
			}
			continue
		}
		if err != nil {
			c.s.fail("node %d: read at %d: %v", n.id, len(l.entries), err)
			return true
		}
		data, err := chunk.AppendTo(nil)
		chunk.Release()
		if err != nil || len(data) == 0 {
			c.s.fail("node %d: read at %d of %d: %d bytes, %v", n.id, len(l.entries), end, len(data), err)
			return true
		}
		if !c.parse(n, l, data) {
			c.damage(n, l)
			return false
		}
	}
	return true
}

// parse says false where it meets a batch that the node does not know to be damaged.
func (c *isrChecker) parse(n *isrNode, l *isrLog, data []byte) bool {
	for len(data) > 0 {
		one, rest, h, err := batch.Next(data)
		if err == nil && c.s.rotten != nil && c.s.rotten.node == n && batch.VerifyCRC(one, h) != nil {
			return false
		}
		if err != nil {
			c.s.fail("node %d: batch: %v", n.id, err)
			return true
		}
		for r, err := range batch.Records(one) {
			if err == nil && r.Offset < n.part.Log().StartOffset() {
				continue // deleted, of a batch that reaches beyond
			}
			if err == nil {
				c.gap(n, l, r.Offset)
			}
			if err != nil || int(r.Offset) != len(l.entries) {
				c.s.fail("node %d: record at offset %d, want %d: %v", n.id, r.Offset, len(l.entries), err)
				return true
			}
			e := isrEntry{value: string(r.Value), epoch: h.LeaderEpoch, before: -1}
			if i := len(l.entries); i > 0 {
				e.before = l.entries[i-1].epoch
			}
			c.logMatching(n, r.Offset, e)
			l.entries = append(l.entries, e)
		}
		c.gap(n, l, h.NextOffset())
		data = rest
	}
	return true
}

// logMatching: the same offset and epoch hold the same record after the same epoch, everywhere and for ever.
func (c *isrChecker) logMatching(n *isrNode, offset ident.Offset, e isrEntry) {
	at := isrPosition{offset, e.epoch}
	if known, ok := c.written[at]; ok && known != e {
		c.s.fail("LogMatching: node %d has %v at offset %d, another had %v", n.id, e, offset, known)
	}
	c.written[at] = e
}

// elected: one leader per epoch, and it has everything that was committed (LeaderCompleteness).
func (c *isrChecker) elected(n *isrNode, l *isrLog) {
	c.s.counts.Elections++
	if other, ok := c.leaders[l.epoch]; ok && other != n.id {
		c.s.fail("nodes %d and %d lead in epoch %d", other, n.id, l.epoch)
	}
	c.leaders[l.epoch] = n.id
	if p := c.s.ctl.partition(); p.LeaderEpoch != l.epoch {
		return // it leads by metadata of the past; nothing can be committed by it
	}
	if len(l.entries) < len(c.truth) {
		c.s.fail("LeaderCompleteness: node %d leads in epoch %d with end %d, but %d records were committed", n.id, l.epoch, len(l.entries), len(c.truth))
		return
	}
	c.compare(n, l, len(c.truth))
}

// commit takes what a leader's high watermark has passed as the truth.
func (c *isrChecker) commit(n *isrNode, l *isrLog, hw ident.Offset) {
	if int(hw) > len(l.entries) {
		return // said by stepped
	}
	for len(c.truth) < int(hw) {
		offset := ident.Offset(len(c.truth))
		e := l.entries[offset]
		c.truth = append(c.truth, e)
		if c.s.compact {
			c.last[string(c.s.keyOf(e.value))] = offset
		}
		if c.s.idempotent(e.value) {
			// What a producer wrote below a log start is forgotten by a replica that was reset there, as in Kafka.
			if at, ok := c.seen[e.value]; ok && at >= c.logStart {
				c.s.fail("idempotent value %s is committed at %d and at %d", e.value, at, offset)
			}
			c.seen[e.value] = offset
		}
	}
}

// compare checks a prefix of a node's log against the truth.
func (c *isrChecker) compare(n *isrNode, l *isrLog, upTo int) {
	for ; l.agrees < min(upTo, len(c.truth)); l.agrees++ {
		if l.entries[l.agrees] != c.truth[l.agrees] {
			c.s.fail("node %d has %v at offset %d, committed is %v", n.id, l.entries[l.agrees], l.agrees, c.truth[l.agrees])
			return
		}
	}
}

// complete: every running member of the controller's ISR holds everything committed (LeaderCandidateCompleteness),
// on the disk where that is what counts.
func (c *isrChecker) complete(n *isrNode, l *isrLog) {
	p := c.s.ctl.partition()
	if p == nil || !slices.Contains(p.ISR, n.id) || !c.registered(n) {
		return
	}
	holds := len(l.entries)
	if c.s.flushCounts() {
		holds = int(n.part.Log().FlushedOffset())
	}
	if holds < len(c.truth) {
		c.s.fail("node %d is in the ISR %v with %d records, committed are %d", n.id, p.ISR, holds, len(c.truth))
	}
}

// registered says whether the controller knows this life of the node. A life that it does not know yet is no member
// of anything.
func (c *isrChecker) registered(n *isrNode) bool {
	b, ok := c.s.ctl.image.Broker(n.id)
	return ok && b.Incarnation == n.incarnation
}

// maximalISR: the maximal ISR of a leader that is not stale contains the controller's ISR
// (ReplicationQuorumSuperset).
func (c *isrChecker) maximalISR(n *isrNode) {
	core, p := n.part.Core(), c.s.ctl.partition()
	if p == nil || p.LeaderEpoch != core.LeaderEpoch() || p.Leader != n.id {
		return
	}
	maximal := core.MaximalISR()
	for _, id := range p.ISR {
		if !slices.Contains(maximal, id) {
			c.s.fail("leader %d has maximal ISR %v, the controller's ISR is %v", n.id, maximal, p.ISR)
		}
	}
}

// latestOffset: what ListOffsets answers never goes back, across leaders too.
func (c *isrChecker) latestOffset(n *isrNode) {
	core := n.part.Core()
	o, code := core.LatestOffset()
	if code != replication.None || core.LeaderEpoch() < c.latestEpoch {
		return
	}
	if o < c.latest {
		c.s.fail("latest offset went back from %d in epoch %d to %d in epoch %d", c.latest, c.latestEpoch, o, core.LeaderEpoch())
	}
	c.latest, c.latestEpoch = o, core.LeaderEpoch()
}

// committed looks at a new state of the controller.
func (c *isrChecker) committed(before, p *metadata.Partition) {
	for i, id := range p.ISR {
		if !slices.Contains(p.Replicas, id) || slices.Contains(p.ISR[:i], id) {
			c.s.fail("ISR %v is no subset of the replicas %v", p.ISR, p.Replicas)
		}
	}
	if p.Leader != ident.NoNode && !slices.Contains(p.ISR, p.Leader) {
		c.s.fail("leader %d is not in the ISR %v", p.Leader, p.ISR)
	}
	if before != nil {
		if p.LeaderEpoch < before.LeaderEpoch || p.PartitionEpoch <= before.PartitionEpoch {
			c.s.fail("epochs went from %d/%d to %d/%d", before.LeaderEpoch, before.PartitionEpoch, p.LeaderEpoch, p.PartitionEpoch)
		}
		// Whoever joins a leader whose records are damaged takes over with the same record.
		alone := len(before.ISR) == 1 && lostIn(before, before.ISR[0])
		if p.Leader != ident.NoNode && p.LeaderEpoch != before.LeaderEpoch && !slices.Contains(before.ISR, p.Leader) && !alone {
			c.s.fail("leader %d was not in the ISR %v", p.Leader, before.ISR)
		}
	}
	c.returns(before, p)
	for _, n := range c.s.nodes {
		if l := c.logs[n.id]; l != nil && !n.examining {
			c.complete(n, l)
		}
	}
}

// acknowledged: whatever is acknowledged with acks=all is committed, where the answer says.
func (c *isrChecker) acknowledged(n *isrNode, base ident.Offset, values []string) {
	for i, v := range values {
		if at := int(base) + i; at >= len(c.truth) || c.truth[at].value != v {
			c.s.fail("node %d acknowledged %s at offset %d; committed are %d records", n.id, v, at, len(c.truth))
			return
		}
	}
}

// read: whatever a consumer reads is committed, and so never retracted.
func (c *isrChecker) read(n *isrNode, from ident.Offset, records []byte) {
	if _, _, h, err := batch.Next(records); err == nil && h.BaseOffset > from && !c.s.compact {
		c.s.fail("a consumer asked node %d for offset %d and was given what begins at %d", n.id, from, h.BaseOffset)
	}
	for len(records) > 0 {
		one, rest, h, err := batch.Next(records)
		if err != nil {
			c.s.fail("node %d: consumer's batch: %v", n.id, err)
			return
		}
		if r := c.s.rotten; r != nil && r.node == n && batch.VerifyCRC(one, h) != nil {
			if n.part != nil && slices.ContainsFunc(n.part.Log().Damage(), func(d log.Damage) bool { return h.BaseOffset >= d.From && h.BaseOffset < d.To }) {
				c.s.fail("node %d serves offset %d, which it knows to be damaged", n.id, h.BaseOffset)
			}
			return // the client sees it, and asks again
		}
		for r, err := range batch.Records(one) {
			if at := int(r.Offset); err != nil || at >= len(c.truth) || c.truth[at].value != string(r.Value) {
				c.s.fail("a consumer read %q at offset %d from node %d; committed are %d records (%v)", r.Value, at, n.id, len(c.truth), err)
				return
			}
		}
		records = rest
	}
}

// fact counts, and knows one that must not be: nobody truncates what is committed.
func (c *isrChecker) fact(n *isrNode, f replication.Fact) {
	c.s.w.Trace("node %d: fact %v replica %d %s pe %d", n.id, f.Kind, f.Replica, f.Reason, f.PartitionEpoch)
	switch f.Kind {
	case replication.ISRShrunk:
		c.s.counts.Shrinks++
	case replication.ISRExpanded:
		c.s.counts.Expands++
	case replication.ReplicaReset:
		c.s.counts.Resets++
	case replication.TruncatedBelowHW:
		c.s.fail("node %d truncated below its high watermark: %d to %d", n.id, f.From, f.To)
	}
}

// idempotent says whether the value came from the idempotent producer.
func (s *isrSim) idempotent(value string) bool { return len(value) > 4 && value[:4] == "101-" }
