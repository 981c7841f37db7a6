package sim

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
)

// isrKeys is how many keys the records of a topic that is compacted have.
const isrKeys = 7

// keyOf is the key of a record, which follows from its value; nil where the topic is not compacted.
func (s *isrSim) keyOf(value string) []byte {
	if !s.compact {
		return nil
	}
	h := fnv.New32a()
	h.Write([]byte(value))
	return fmt.Appendf(nil, "key-%d", h.Sum32()%isrKeys)
}

// nextUpkeep has a log compacted, or records deleted, now and then while the time of faults lasts.
func (s *isrSim) nextUpkeep() {
	if !s.compact && !s.deletes {
		return
	}
	s.w.After(s.w.Between(50*time.Millisecond, 500*time.Millisecond), func() {
		if !s.faults {
			return
		}
		if s.compact && s.w.Chance(700) {
			s.nodes[s.w.IntN(3)].compact()
		} else if s.deletes {
			s.deleteRecords()
		}
		s.nextUpkeep()
	})
}

// compact compacts a node's log, of which other things may come between the parts.
func (n *isrNode) compact() {
	if !n.up || n.paused || n.part == nil || n.broken {
		return
	}
	if f, ok := n.part.BeginSealedFlush(n.s.w.Now()); ok { // only what is flushed is compacted
		n.part.EndFlush(n.s.w.Now(), f, f.Sync())
		n.settle()
	}
	c, err := n.part.BeginClean(n.s.w.Now(), int64(n.s.w.Now())/1e6, log.CleanOptions{Map: log.NewOffsetMap(1 << 12)})
	n.settle()
	if err != nil || c == nil {
		return
	}
	n.after(n.s.w.Between(0, 50*time.Millisecond), func() {
		runErr := c.Run()
		n.after(n.s.w.Between(0, 50*time.Millisecond), func() {
			done, err := n.part.EndClean(n.s.w.Now(), c, runErr)
			if done {
				n.s.counts.Compactions++
				n.s.w.Trace("node %d has compacted its log up to %d: %d of %d records are gone", n.id, c.Stats.To, c.Stats.Removed, c.Stats.Records)
			} else {
				n.s.w.Trace("node %d gives a compaction up: %v", n.id, err)
			}
			n.settle()
		})
	})
}

// deleteRecords asks whoever is thought to lead to delete records.
func (s *isrSim) deleteRecords() {
	n := s.nodes[s.guessLeader()-1]
	if !n.up || n.paused || n.part == nil {
		return
	}
	start, end := n.part.Log().StartOffset(), n.end()
	before := start + ident.Offset(s.w.IntN(int(end-start)/4+2)) // at times beyond the high watermark
	n.token++
	n.deletes[n.token] = before
	s.w.Trace("node %d is asked to delete what is below %d", n.id, before)
	n.part.DeleteRecords(s.w.Now(), replication.DeleteRecords{Token: n.token, Before: before, Timeout: 700 * time.Millisecond})
	n.settle()
}

// deleted: success is told when the log starts there and will after a crash, and never beyond what is committed.
func (c *isrChecker) deleted(n *isrNode, d replication.Deletion, before ident.Offset) {
	if d.Code != replication.None {
		return
	}
	c.s.counts.Deletions++
	if before > d.LowWatermark || d.LowWatermark > n.part.Log().DurableStartOffset() || int(before) > len(c.truth) {
		c.s.fail("node %d said that all below %d is deleted, its low watermark is %d, its log starts at %d, and durably at %d; committed are %d records",
			n.id, before, d.LowWatermark, n.part.Log().StartOffset(), n.part.Log().DurableStartOffset(), len(c.truth))
	}
	c.toldStart[n.id] = max(c.toldStart[n.id], before)
}

// lowered: the node's log is truncated, perhaps to another beginning, which is its leader's.
func (c *isrChecker) lowered(n *isrNode) {
	c.toldStart[n.id] = min(c.toldStart[n.id], n.logStart)
}

// gap takes the records up to an offset that a log does not hold as what they were. Compaction may have removed them: so
// another one with their key is committed, and comes later.
func (c *isrChecker) gap(n *isrNode, l *isrLog, upTo ident.Offset) {
	for o := ident.Offset(len(l.entries)); o < upTo && c.s.compact; o = ident.Offset(len(l.entries)) {
		if int(o) >= len(c.truth) {
			c.s.fail("node %d: no record at %d, and committed are %d records", n.id, o, len(c.truth))
			return
		}
		key := string(c.s.keyOf(c.truth[o].value))
		if c.last[key] <= o {
			c.s.fail("node %d: the record %v at %d is gone, the last one of %s", n.id, c.truth[o], o, key)
			return
		}
		c.s.counts.Gone++
		l.entries = append(l.entries, c.truth[o])
	}
}

// sameValues says whether every log, from the highest log start on, holds the last record of each key, and nothing but
// what was committed.
func (s *isrSim) sameValues() bool {
	for _, n := range s.nodes {
		there := map[ident.Offset]bool{}
		data, err := n.bytesFrom(s.check.logStart)
		for err == nil && len(data) > 0 {
			var one []byte
			if one, data, _, err = batch.Next(data); err != nil {
				break
			}
			for r, err := range batch.Records(one) {
				if err != nil || int(r.Offset) >= len(s.check.truth) || s.check.truth[r.Offset].value != string(r.Value) {
					return false
				}
				there[r.Offset] = true
			}
		}
		if err != nil {
			return false
		}
		for _, o := range s.check.last {
			if o >= s.check.logStart && !there[o] {
				s.fail("node %d: the last record of a key, %v at %d, is gone", n.id, s.check.truth[o], o)
			}
		}
	}
	return true
}
