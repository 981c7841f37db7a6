package sim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/replication"
)

// isrRot is a flipped bit in a sealed segment of one node: at most one at a time, and of a record that the other nodes
// hold whole. What all in-sync replicas have lost nobody can give back.
type isrRot struct {
	node   *isrNode
	passes int  // full scrubs of the node when it happened
	known  bool // the node has noticed
}

// rot flips a bit of a committed batch that lies in a sealed, flushed segment of the node and whole on both others.
func (s *isrSim) rot(n *isrNode) {
	if s.rotten != nil || n.part == nil || !n.up || s.compact { // what another one holds whole can't be told where each compacts its own
		return
	}
	l := n.part.Log()
	segments := l.Segments()
	upTo := min(ident.Offset(len(s.check.truth)), n.recoveryPoint, segments[len(segments)-1])
	for _, other := range s.nodes {
		if other.part == nil || !other.up {
			return
		}
		if other != n {
			upTo = min(upTo, other.end(), other.part.Log().FlushedOffset())
		}
	}
	from := l.StartOffset()
	for _, other := range s.nodes {
		from = max(from, other.part.Log().StartOffset())
	}
	if from >= upTo {
		return
	}
	o := from + ident.Offset(s.w.IntN(int(upTo-from)))
	chunk, err := l.Read(o, 1, l.EndOffset(), true)
	if err != nil || chunk.Bytes == 0 {
		s.fail("node %d: no batch at %d to be damaged: %v", n.id, o, err)
		return
	}
	defer chunk.Release()
	if chunk.Next > upTo || chunk.First < from {
		return
	}
	// The others may hold something else there that is still to be cut off.
	epoch, _ := l.EpochAt(chunk.Next - 1)
	for _, other := range s.nodes {
		if theirs, ok := other.part.Log().EpochAt(chunk.Next - 1); !ok || theirs != epoch {
			return
		}
	}
	r := chunk.Ranges[0]
	at := r.Pos + batch.CRCStart + int64(s.w.IntN(r.Len-batch.CRCStart)) // what is outside of the checksum is pkg/log's matter
	f, err := n.fs.OpenFile(r.File.Name(), os.O_RDWR, 0)
	b := make([]byte, 1)
	if err == nil {
		_, err = f.ReadAt(b, at)
		b[0] ^= 1 << s.w.IntN(8)
		if _, e := f.WriteAt(b, at); err == nil {
			err = e
		}
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		s.fail("node %d: %v", n.id, err)
		return
	}
	s.counts.Rots++
	s.rotten = &isrRot{node: n, passes: n.passes}
	s.w.Trace("a bit of node %d rots in offsets %d to %d, position %d of %s", n.id, chunk.First, chunk.Next-1, at, r.File.Name())
}

// rotOver forgets a rot that is made good, or has gone with the records before anybody noticed.
func (s *isrSim) rotOver() {
	r := s.rotten
	if r == nil || r.node.part == nil {
		return
	}
	r.known = r.known || r.node.part.Log().Damaged()
	if r.node.part.Core().Damage() != (replication.DamageChanged{}) || s.lost(r.node.id) {
		return
	}
	if r.known || r.node.passes > r.passes+1 {
		s.rotten = nil
	}
}

// lost says whether the controller knows the node's replica as damaged.
func (s *isrSim) lost(id ident.NodeID) bool {
	p := s.ctl.partition()
	return p != nil && lostIn(p, id)
}

func lostIn(p *metadata.Partition, id ident.NodeID) bool {
	dir, ok := p.Directory(id)
	return ok && dir == ident.LostDirectory
}

// scrub checks the whole log every now and then.
func (n *isrNode) scrub() {
	if n.part != nil && !n.broken {
		for s := n.part.BeginScrub(1 << 20); s != nil; s = n.part.BeginScrub(1 << 20) {
			n.part.EndScrub(n.s.w.Now(), s, s.Run())
		}
		n.passes++
		n.settle()
	}
	n.after(n.s.w.Between(500*time.Millisecond, 2*time.Second), n.scrub)
}

// assign tells the controller what the replica wishes, until it has taken it.
func (n *isrNode) assign() {
	if n.assigning || n.part == nil || n.brokerEpoch < 0 || n.part.Core().DirectoryWish() == replication.NoWish {
		return
	}
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	req.BrokerID, req.BrokerEpoch = int32(n.id), n.brokerEpoch
	dir, topic := kmsg.NewAssignReplicasToDirsRequestDirectory(), kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
	if dir.ID = n.dir; n.part.Core().DirectoryWish() == replication.WishLost {
		dir.ID, n.saidWhole = ident.LostDirectory, false
	} else if _, refilling := n.part.Log().Refilling(); !refilling && !n.part.Log().Damaged() {
		n.saidWhole = true
	}
	topic.TopicID = n.s.ctl.topic.Topic
	topic.Partitions = append(topic.Partitions, kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition())
	dir.Topics = append(dir.Topics, topic)
	req.Directories = append(req.Directories, dir)
	n.s.w.Trace("node %d assigns its replica to directory %s", n.id, ident.UUID(dir.ID))
	n.assigning = true
	n.ask(req, nil, func(kmsg.Response) {})
	n.after(300*time.Millisecond, func() {
		n.assigning = false
		n.assign()
	})
}

// damage is what the checker makes of a log that is not whole: what the node knows to be damaged counts as what it was,
// since only committed records are. It says how far that goes, or that the node does not know yet.
func (c *isrChecker) damage(n *isrNode, l *isrLog) (filled bool) {
	for _, d := range n.part.Log().Damage() {
		if o := ident.Offset(len(l.entries)); o >= d.From && o < d.To {
			if int(d.To) > len(c.truth) {
				c.s.fail("node %d: %s, but committed are %d records", n.id, d, len(c.truth))
				return false
			}
			l.entries = append(l.entries, c.truth[o:d.To]...)
			return true
		}
	}
	segments := n.part.Log().Segments()
	i, found := slices.BinarySearch(segments, ident.Offset(len(l.entries)))
	if !found {
		i--
	}
	n.part.Suspect(&log.CorruptError{Segment: segments[max(i, 0)], Err: batch.ErrCorrupt})
	if !n.examining {
		n.examining = true
		n.after(0, func() {
			n.examining = false
			if n.part != nil {
				n.settle()
			}
		})
	}
	return false
}

// returns: a replica that says it is whole again is, or was when it said so first.
func (c *isrChecker) returns(before, p *metadata.Partition) {
	for _, n := range c.s.nodes {
		if before == nil || n.part == nil || !lostIn(before, n.id) || lostIn(p, n.id) {
			continue
		}
		if _, refilling := n.part.Log().Refilling(); (n.part.Log().Damaged() || refilling) && !n.saidWhole {
			c.s.fail("node %d said that it is whole: damaged %v, refilling %v", n.id, n.part.Log().Damage(), refilling)
		}
	}
}

// identical says whether all logs hold the same bytes, from the highest log start on.
func (s *isrSim) identical() bool {
	var want []byte
	for i, n := range s.nodes {
		got, err := n.bytesFrom(s.check.logStart)
		if err != nil {
			return false
		}
		if i == 0 {
			want = got
		} else if !bytes.Equal(got, want) {
			return false
		}
	}
	return true
}

// bytesFrom reads the node's log from an offset to its end.
func (n *isrNode) bytesFrom(from ident.Offset) (data []byte, err error) {
	for o := from; o < n.end(); {
		chunk, err := n.part.Log().Read(o, 1<<20, n.end(), true)
		if err == nil && chunk.Next <= o {
			err = fmt.Errorf("nothing is read at %d of %d", o, n.end())
		}
		if err == nil {
			data, err = chunk.AppendTo(data)
		}
		o = chunk.Next
		chunk.Release()
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}
