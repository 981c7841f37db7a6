package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// A producer snapshot, "<offset>.snapshot", is Kafka's: version 1, checksum of what follows it, number of
// entries, entries. It holds the state before the record at that offset; of the batches only the last.
const (
	producerSnapshotVersion = 1
	producerSnapshotHeader  = 2 + 4 + 4
	producerEntryBytes      = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p *Producers) encode() []byte {
	ids := make([]int64, 0, len(p.byID))
	for id := range p.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	be := binary.BigEndian
	out := make([]byte, producerSnapshotHeader, producerSnapshotHeader+len(ids)*producerEntryBytes)
	be.PutUint16(out, producerSnapshotVersion)
	be.PutUint32(out[6:], uint32(len(ids)))
	for _, id := range ids {
		s := p.byID[id]
		sequence, offset, delta, timestamp := s.last()
		out = be.AppendUint64(out, uint64(id))
		out = be.AppendUint16(out, uint16(s.epoch))
		out = be.AppendUint32(out, uint32(sequence))
		out = be.AppendUint64(out, uint64(offset))
		out = be.AppendUint32(out, uint32(delta))
		out = be.AppendUint64(out, uint64(timestamp))
		out = be.AppendUint32(out, uint32(s.coordinatorEpoch))
		out = be.AppendUint64(out, uint64(s.txnFirst))
	}
	be.PutUint32(out[2:], crc32.Checksum(out[6:], castagnoli))
	return out
}

func (p *Producers) decode(data []byte) error {
	be := binary.BigEndian
	if len(data) < producerSnapshotHeader {
		return fmt.Errorf("%d bytes", len(data))
	}
	if v := be.Uint16(data); v != producerSnapshotVersion {
		return fmt.Errorf("version %d, only %d is known", v, producerSnapshotVersion)
	}
	if got, want := crc32.Checksum(data[6:], castagnoli), be.Uint32(data[2:]); got != want {
		return fmt.Errorf("checksum is %08x, file says %08x", got, want)
	}
	n := int64(be.Uint32(data[6:]))
	data = data[producerSnapshotHeader:]
	if n*producerEntryBytes != int64(len(data)) {
		return fmt.Errorf("%d entries in %d bytes", n, len(data))
	}
	for ; len(data) > 0; data = data[producerEntryBytes:] {
		s := &producer{
			id:               int64(be.Uint64(data)),
			epoch:            int16(be.Uint16(data[8:])),
			lastTimestamp:    int64(be.Uint64(data[26:])),
			coordinatorEpoch: int32(be.Uint32(data[34:])),
			txnFirst:         ident.Offset(be.Uint64(data[38:])),
		}
		sequence, last, delta := int32(be.Uint32(data[10:])), ident.Offset(be.Uint64(data[14:])), int32(be.Uint32(data[22:]))
		if last >= 0 && sequence >= 0 && delta >= 0 && ident.Offset(delta) <= last {
			s.n = 1
			first := int32((int64(sequence) - int64(delta)) & 0x7fffffff)
			s.batches[0] = producerBatch{first, sequence, last - ident.Offset(delta), last, s.lastTimestamp}
		}
		p.byID[s.id] = s
	}
	return nil
}

// writeSnapshot writes the state as the one before offset o, unless it is written already. It is durable with the
// next flush.
func (p *Producers) writeSnapshot(o ident.Offset) error {
	if !p.noteSnapshot(o) {
		return nil
	}
	return vfs.WriteFile(p.fsys, p.path(o), p.encode(), false)
}

// noteSnapshot says whether the state before offset o is yet to be written, and counts it as written.
func (p *Producers) noteSnapshot(o ident.Offset) bool {
	if n := len(p.snapshots); n > 0 && p.snapshots[n-1] >= o {
		return false
	}
	p.snapshots, p.unsynced = append(p.snapshots, o), append(p.unsynced, o)
	return true
}

func (p *Producers) path(o ident.Offset) string {
	return filepath.Join(p.dir, fileName(o, snapshotSuffix))
}

func (p *Producers) readSnapshot(o ident.Offset) error {
	data, err := vfs.ReadFile(p.fsys, p.path(o))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return err
	}
	if err := p.decode(data); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, p.path(o), err)
	}
	return nil
}

// removeSnapshotsAbove removes the snapshot files that speak of records at or beyond the end o.
func (l *Log) removeSnapshotsAbove(o ident.Offset) error {
	p := l.producers
	keep := sort.Search(len(p.snapshots), func(i int) bool { return p.snapshots[i] > o })
	for i := len(p.snapshots) - 1; i >= keep; i-- {
		if err := removeIfThere(p.fsys, p.path(p.snapshots[i])); err != nil {
			return err
		}
		p.snapshots = p.snapshots[:i]
	}
	return nil
}

// removeSnapshotsBelow removes the snapshot files of segments that are gone.
func (l *Log) removeSnapshotsBelow(o ident.Offset) error {
	p := l.producers
	for len(p.snapshots) > 1 && p.snapshots[0] < o {
		if err := removeIfThere(p.fsys, p.path(p.snapshots[0])); err != nil {
			return err
		}
		p.snapshots = p.snapshots[1:]
	}
	return nil
}

// removeStraySnapshots removes those that are neither at the start of a segment nor the newest: each clean
// shutdown leaves one.
func (l *Log) removeStraySnapshots() error {
	p := l.producers
	var kept []ident.Offset
	for i, o := range p.snapshots {
		_, found := slices.BinarySearchFunc(l.segments, o, func(s *segment, o ident.Offset) int { return int(s.base - o) })
		if found || i == len(p.snapshots)-1 {
			kept = append(kept, o)
			continue
		}
		if err := removeIfThere(p.fsys, p.path(o)); err != nil {
			return err
		}
	}
	p.snapshots = kept
	return nil
}
