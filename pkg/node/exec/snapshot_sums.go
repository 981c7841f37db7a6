package exec

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// sumBlockBytes is how much of a snapshot has a checksum in memory, 4 bytes for each.
const sumBlockBytes = 64 << 10

// blockSums are the checksums of a snapshot's blocks, taken when its bytes were known to be right: when they were
// written, or read as a whole with every batch's CRC looked at. Whoever serves a piece of the file later compares
// them, so that a disk that lost a bit since is found by the leader, not by each of its followers over and over.
type blockSums struct {
	whole []uint32
	last  uint32
	size  int64
}

// Write is io.Writer's; it takes the next bytes.
func (s *blockSums) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part := b[:min(int64(len(b)), sumBlockBytes-s.size%sumBlockBytes)]
		s.last = batch.UpdateCRC(s.last, part)
		s.size += int64(len(part))
		if s.size%sumBlockBytes == 0 {
			s.whole, s.last = append(s.whole, s.last), 0
		}
		b = b[len(part):]
	}
	return n, nil
}

// of returns a block's sum.
func (s *blockSums) of(block int64) uint32 {
	if block < int64(len(s.whole)) {
		return s.whole[block]
	}
	return s.last
}

// errDamaged says that a snapshot's file is not what it was any more.
var errDamaged = errors.New("the file on the disk is damaged")

// readChecked reads n bytes of a snapshot that has its sums. An error that wraps errDamaged says that the disk has
// something else by now.
func (s *snapshotFiles) readChecked(file *snapshotFile, at int64, n int) ([]byte, error) {
	name := filepath.Join(s.dir, file.id.FileName())
	f, err := s.fs.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: it is gone", name, errDamaged)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	from := at - at%sumBlockBytes
	to := min((at+int64(n)+sumBlockBytes-1)/sumBlockBytes*sumBlockBytes, file.size)
	b := make([]byte, to-from)
	if got, err := f.ReadAt(b, from); got < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w: it has less than %d bytes", name, errDamaged, file.size)
		}
		return nil, fmt.Errorf("read %s at %d: %w", name, from, err)
	}
	for block := from; block < to; block += sumBlockBytes {
		part := b[block-from : min(block+sumBlockBytes, to)-from]
		if !s.serveRotten && batch.UpdateCRC(0, part) != file.sums.of(block/sumBlockBytes) {
			return nil, fmt.Errorf("%s: %w: bytes %d to %d have another checksum than when they were written", name, errDamaged, block, block+int64(len(part))-1)
		}
	}
	return b[at-from : at-from+int64(n)], nil
}

// DamagedSnapshot is a snapshot that turned out to be damaged while the node, which holds its state in memory, was
// running. It is served to nobody any more. A new one has to be taken at once (BeginSnapshot); the damaged one is
// removed when that is durable.
type DamagedSnapshot struct {
	ID  metadata.SnapshotID
	Err error
}

// SnapshotWanted says that a snapshot was found damaged and that there is no newer one yet.
func (q *Quorum) SnapshotWanted() bool {
	n := len(q.snapshots.files)
	return n > 0 && q.snapshots.files[n-1].damaged && q.err == nil
}

// dropDamaged removes damaged snapshots once there is a newer one. A log that begins behind one of them begins at the
// end of a whole one then: nobody could tell of which epoch the record before its start is.
func (q *Quorum) dropDamaged() error {
	base := slices.IndexFunc(q.snapshots.files, func(f snapshotFile) bool { return !f.damaged })
	if base < 0 {
		return nil
	}
	if base > 0 && q.log.StartOffset() > 0 {
		if err := q.log.SetStartOffset(q.snapshots.files[base].id.EndOffset); err != nil {
			return err
		}
	}
	return q.snapshots.remove(func(f snapshotFile) bool { return f.damaged })
}
