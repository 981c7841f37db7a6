package sim

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"

	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// rottenFile is a snapshot that a node's disk has damaged, and what it was.
type rottenFile struct {
	id         metadata.SnapshotID
	was, isNow []byte
}

func (r *rottenFile) path() string { return filepath.Join(quorumDir, r.id.FileName()) }

// stillRotten says whether the damaged file may be there yet, now or after a crash.
func (n *quorumNode) stillRotten() bool {
	for _, disk := range []*vfs.Mem{n.disk, n.disk.CrashClone(n.s.check.dice.Rand, 0)} {
		if b, err := vfs.ReadFile(disk, n.rotten.path()); err == nil && bytes.Equal(b, n.rotten.isNow) {
			return true
		}
	}
	return false
}

// rot flips a bit of a stored snapshot, or cuts its end off, where the bytes lay safely synced: of a node whose disk
// the quorum can do without.
func (s *quorumSim) rot(d Dice, n *quorumNode) {
	if l := s.leading(d); l != nil && d.Chance(500) {
		n = l
	}
	var ids []metadata.SnapshotID
	entries, _ := n.disk.ReadDir(quorumDir) // no directory, no snapshots
	for _, e := range entries {
		if id, ok := metadata.ParseSnapshotName(e.Name()); ok && id.EndOffset > 0 {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 || !s.canLose(n) {
		return
	}
	id := ids[len(ids)-1]
	if d.Chance(200) {
		id = ids[d.IntN(len(ids))]
	}
	r := &rottenFile{id: id}
	var err error
	if r.was, err = vfs.ReadFile(n.disk, r.path()); err != nil || len(r.was) == 0 {
		s.check.fail("Disk: node %d: %v", n.id, err)
		return
	}
	r.isNow = bytes.Clone(r.was)
	if d.Chance(300) {
		r.isNow = r.isNow[:d.IntN(len(r.isNow))]
	} else {
		at := d.IntN(len(r.isNow))
		if d.Chance(500) {
			at = len(r.isNow)/2 + d.IntN(len(r.isNow)-len(r.isNow)/2) // where the records are
		}
		r.isNow[at] ^= 1 << d.IntN(8)
	}
	f, err := n.disk.OpenFile(r.path(), os.O_RDWR|os.O_TRUNC, 0)
	if err == nil {
		_, err = f.WriteAt(r.isNow, 0)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		s.check.fail("Disk: node %d: %v", n.id, err)
		return
	}
	n.rotten = r
	s.counts.Rots++
	s.w.Trace("snapshot %s of %d rots: %d of %d bytes are left", id, n.id, len(r.isNow), len(r.was))
	if n.q == nil {
		s.check.lookAtDisk(n) // a snapshot may go further than what was flushed of the log behind it
	}
	switch d.IntN(5) {
	case 0, 1:
		n.kill(d, d.Chance(500))
		n.restartLater(d)
	case 2, 3:
		s.starve(d, n)
	}
}

// starve has another node lose its disk, so that it has to ask for a snapshot; the quorum loses nobody by it.
func (s *quorumSim) starve(d Dice, rotten *quorumNode) {
	for _, n := range s.nodes {
		if _, voter := s.check.voters().Find(n.id); !voter && n != rotten && n.q != nil {
			s.wipe(d, n)
			return
		}
	}
}

// served looks at a piece of a snapshot that a node sends: it is of what the node once wrote.
func (c *quorumChecker) served(n *quorumNode, m *raft.FetchSnapshotResponse) {
	if m.Code != raft.None {
		return
	}
	c.s.counts.Pieces++
	r := n.rotten
	if r == nil || m.Snapshot != (raft.SnapshotID{End: r.id.EndOffset, Epoch: r.id.Epoch}) || !n.stillRotten() {
		return
	}
	if end := m.Position + int64(len(m.Bytes)); end > int64(len(r.was)) || !bytes.Equal(m.Bytes, r.was[m.Position:end]) {
		c.fail("SnapshotAsWritten: node %d sends bytes %d to %d of snapshot %s, which its disk has damaged", n.id, m.Position, end, r.id)
	}
}

// replaced gives a node whose start was refused because of a damaged snapshot an empty disk, as a person does.
func (n *quorumNode) replaced(err error) bool {
	if n.rotten == nil || !errors.Is(err, metadata.ErrSnapshot) {
		return false
	}
	n.s.counts.Replaced++
	n.s.w.Trace("%d can't start on what its disk has damaged, and gets another", n.id)
	n.newDisk()
	return true
}
