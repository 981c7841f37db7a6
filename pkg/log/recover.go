package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// sectorBytes is what a disk writes whole or not at all; a sector that was allocated but never written is zero.
const sectorBytes = 512

// recover scans the segments from index from on. What a crash has torn ends the log; what is damaged otherwise is noted
// and passed over. Indexes and leader epochs are made again; where records are damaged the epochs are as the file had
// them.
func (l *Log) recover(from int, table *epoch.Table, rec *Recovery) error {
	for i := from; i < len(l.segments); i++ {
		s := l.segments[i]
		x := newIndexes(nil, nil)
		s.loaded.Store(x)
		var files *indexCheck // of a sealed segment
		if i < len(l.segments)-1 {
			files = newIndexCheck(s, s.size)
		}
		if err := s.pin(); err != nil {
			return err
		}
		torn, err := l.scan(i, x, files, table, rec)
		if err != nil {
			return err
		}
		s.dirty = true
		if torn != nil {
			if err := l.cut(i, torn, rec); err != nil {
				return err
			}
			break
		}
		if files != nil {
			if l.mayBegin(l.segments[i+1].base, s.next) {
				s.next = l.segments[i+1].base
			}
			if err := l.checkIndexFiles(s, files, rec); err != nil {
				return err
			}
			// Not before what was read is durable may anybody build on it: until now it may be page cache only.
			if err := s.file().Sync(); err != nil {
				return err
			}
			s.dirty = false
			s.unpinIndex()
			s.unpin()
		}
	}
	return l.sealDamagedTail()
}

// mayBegin says whether a segment may begin at base when the one before it ends at the offset end. The segments
// that this package writes follow each other without a gap, compacted ones too: so one that is missing, or has lost
// its end, is noticed. Kafka's cleaner also drops the end of a segment, up to the offset to which it has cleaned.
func (l *Log) mayBegin(base, end ident.Offset) bool {
	return base == end || base > end && !l.cfg.StopOnCorruption && base <= max(l.cfg.CleanOffset, l.clean)
}

// mayEnd says whether a segment that ends at an offset may be followed by one that begins at base. One of which Kafka's
// cleaner has dropped the end has an index that knows of nothing there.
func (l *Log) mayEnd(s *segment, base, end ident.Offset) bool {
	if base == end || !l.mayBegin(base, end) {
		return base == end
	}
	raw, err := vfs.ReadFile(s.fsys, s.path(timeIndexSuffix))
	if err != nil {
		return true
	}
	times, err := decodeTimes(raw)
	return err != nil || len(times) == 0 || s.base+ident.Offset(times[len(times)-1].rel) < end
}

// mayFollow says whether a batch may begin at base where the log's end is at the offset end. Compaction leaves gaps
// within segments, and a follower takes them over; a crash can't make one, since batches follow each other in the
// file without a byte between them. The metadata log has none.
func (l *Log) mayFollow(base, end ident.Offset) bool {
	return base == end || base > end && !l.cfg.StopOnCorruption
}

// scan reads all batches of a pinned segment and checks them. Its extent afterwards is what is valid of it and what is
// damaged. It returns where a crash has torn it.
func (l *Log) scan(i int, x *indexes, files *indexCheck, table *epoch.Table, rec *Recovery) (torn *bad, err error) {
	s, size := l.segments[i], l.segments[i].size
	s.size, s.next, s.maxTS, s.maxKnown, s.sinceIndex = 0, s.base, -1, true, 0
	latest, _ := l.epochs.Latest()
	c := checker{f: s.file(), base: s.base, size: size, limit: noOffset, noGaps: l.cfg.StopOnCorruption, gaps: l.mayHaveGaps(), following: l.epochBehind(s), next: s.base, epoch: latest}
	if i < len(l.segments)-1 {
		c.limit = l.segments[i+1].base
	} else {
		c.limit = l.closedAt
	}
	if table != nil && !l.cfg.StopOnCorruption {
		c.epochAt = func(o ident.Offset) (ident.Epoch, bool) {
			if o >= l.scanPoint {
				return 0, false
			}
			return table.EpochAt(o)
		}
	}
	told := int64(0)
	var damage []bad
	note := func(b bad) (bool, error) {
		if isTorn, err := l.isTorn(s, b, size); isTorn || err != nil {
			return isTorn, err
		}
		if l.cfg.StopOnCorruption {
			return false, fmt.Errorf("%w: segment %d at position %d, offset %d: %w; this is no write that a crash has torn, and "+
				"cutting it off could lose committed records: restore the disk or replace this replica", ErrCorrupt, s.base, b.pos, b.from, b.err)
		}
		if c.limit < 0 && b.end == size { // nothing valid follows that would tell where it ended
			b.to = max(b.to, b.from+1, l.reached)
			c.next = b.to
		}
		s.size, s.next, s.sinceIndex = b.end, b.to, l.cfg.IndexIntervalBytes+1
		damage = append(damage, b)
		if table != nil {
			for _, e := range table.Entries() {
				if latest, _ := l.epochs.Latest(); e.Start >= b.from && e.Start < b.to && e.Epoch > latest {
					l.epochs.Assign(e.Epoch, e.Start)
				}
			}
		}
		return false, nil
	}
	for c.pos < size {
		pos := c.pos
		h, b, err := c.step()
		if b != nil {
			var isTorn bool
			if isTorn, err = note(*b); isTorn {
				s.setDamage(damage)
				return b, l.restoreFileSize(s, size)
			}
		}
		if err != nil {
			return nil, errors.Join(err, l.restoreFileSize(s, size))
		}
		if b != nil {
			continue
		}
		l.gaps = l.gaps || c.gaps
		s.note(x, h, pos)
		if files != nil {
			files.note(s, h, pos)
		}
		if l.epochs.Assign(h.LeaderEpoch, h.BaseOffset) {
			l.epochsDirty = true
		}
		rec.Scanned += int64(h.Size())
		if l.cfg.Progress != nil && (c.pos-told >= progressBytes || c.pos == size) {
			if err := l.cfg.Progress(c.pos - told); err != nil {
				return nil, err
			}
			told = c.pos
		}
	}
	if c.limit >= 0 && !l.mayEnd(s, c.limit, s.next) {
		if b := (bad{size, size, s.next, c.limit, missing(s.base, s.next, c.limit)}); b.from < b.to {
			if isTorn, err := note(b); isTorn || err != nil {
				s.setDamage(damage)
				return &b, err
			}
			s.next = b.from
		}
	}
	s.setDamage(damage)
	return nil, nil
}

// progressBytes is how much is read between two reports of progress.
const progressBytes = 1 << 20

// RecoveryBytes is how much of a log Open would have to read and check when it was not closed in order: the size of
// its segments from the recovery point on. A directory that is not there has none.
func RecoveryBytes(fsys vfs.FS, dir string, recoveryPoint ident.Offset) (int64, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var bases []ident.Offset
	for _, e := range entries {
		if base, ok := parseFileName(e.Name(), logSuffix); ok {
			bases = append(bases, base)
		}
	}
	total := int64(0)
	for i, base := range bases {
		if i < len(bases)-1 && bases[i+1] < recoveryPoint {
			continue // as firstToScan
		}
		info, err := fsys.Stat(filepath.Join(dir, fileName(base, logSuffix)))
		if err != nil {
			return total, err
		}
		total += info.Size()
	}
	return total, nil
}

func missing(base, from, to ident.Offset) error {
	return fmt.Errorf("segment %d ends at offset %d, and the next one begins at %d: a file is missing or has lost its end", base, from, to)
}

// sealDamagedTail begins a segment behind damage that reaches to the log's end: what is appended must get other offsets
// than what was there.
func (l *Log) sealDamagedTail() error {
	l.missTail()
	a := l.active()
	list := a.damage()
	if len(list) == 0 || list[len(list)-1].end < a.size {
		return nil
	}
	end := list[len(list)-1].to
	if err := a.writeIndexes(); err != nil {
		return err
	}
	next := l.newActive(end)
	if err := next.create(); err != nil {
		return err
	}
	a.unpinIndex()
	if !a.dirty {
		a.unpin()
	}
	l.dirDirty = true
	l.segments = append(l.segments, next)
	return nil
}

// restoreFileSize checks that the file is as long as it was when it was opened: somebody else at work on it is
// no damage.
func (l *Log) restoreFileSize(s *segment, size int64) error {
	now, err := s.file().Size()
	if err == nil && now != size {
		err = fmt.Errorf("%s changed from %d to %d bytes while it was read", s.file().Name(), size, now)
	}
	return err
}

// batchReader reads whole batches through a buffer that grows with them, bounded by the file.
type batchReader struct {
	f    vfsFile
	size int64
	buf  []byte
	pos  int64
	n    int
}

type vfsFile interface {
	io.ReaderAt
	Name() string
}

func (r *batchReader) at(pos int64) ([]byte, batch.Header, error) {
	if err := r.fill(pos, batch.HeaderSize); err != nil {
		return nil, batch.Header{}, err
	}
	h, err := batch.ParseHeader(r.buf[pos-r.pos : r.n])
	if err != nil {
		return nil, h, err
	}
	if int64(h.Size()) > r.size-pos {
		return nil, h, fmt.Errorf("%w: %d of %d bytes", batch.ErrTruncated, r.size-pos, h.Size())
	}
	if err := r.fill(pos, h.Size()); err != nil {
		return nil, h, err
	}
	return r.buf[pos-r.pos:][:h.Size()], h, nil
}

// fill makes the bytes from pos on available, n of them or what the file has.
func (r *batchReader) fill(pos int64, n int) error {
	n = int(min(int64(n), r.size-pos))
	if pos >= r.pos && pos+int64(n) <= r.pos+int64(r.n) {
		return nil
	}
	if len(r.buf) < max(n, scanBytes) {
		r.buf = make([]byte, max(n, scanBytes))
	}
	want := int(min(int64(len(r.buf)), r.size-pos))
	got, err := r.f.ReadAt(r.buf[:want], pos)
	if got < want {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read %s at %d: %w", r.f.Name(), pos, err)
	}
	r.pos, r.n = pos, want
	return nil
}

// cut ends the log where a crash has torn segment i.
func (l *Log) cut(i int, d *bad, rec *Recovery) error {
	s := l.segments[i]
	if err := s.pin(); err != nil {
		return err
	}
	size, err := s.file().Size()
	if err != nil {
		return err
	}
	if _, err := s.pinIndex(); err != nil {
		return err
	}
	rec.CutAt, rec.CutBytes = d.from, size-d.pos
	gone := l.segments[i+1:]
	for _, g := range gone {
		rec.CutBytes += g.size
		rec.RemovedSegments = append(rec.RemovedSegments, g.base)
	}
	rec.note("cut %d bytes from offset %d on (segment %d, position %d, %d later segments): a write torn by a crash: %v",
		rec.CutBytes, d.from, s.base, d.pos, len(gone), d.err)
	if err := l.removeSegments(gone); err != nil {
		return err
	}
	l.segments = l.segments[: i+1 : i+1]
	if err := s.file().Truncate(d.pos); err != nil {
		return err
	}
	s.size = d.pos
	return s.file().Sync()
}

// isTorn says whether damage is what a crash leaves of a write that was not yet flushed.
func (l *Log) isTorn(s *segment, d bad, size int64) (bool, error) {
	if d.from < max(l.cfg.RecoveryPoint, l.exchanged) {
		return false, nil // it had been flushed
	}
	if d.pos == size {
		return true, nil
	}
	return isTorn(s, d.pos, size)
}

// isTorn judges damage at pos: could a crash have left it, that let some sectors of what was not yet synced reach
// the disk and others not? Then a batch ends beyond the file, or a sector within it is still zero, as etcd's
// write-ahead log judges it. Damage without such a mark that is whole, or followed by a valid batch, is not.
func isTorn(s *segment, pos, size int64) (bool, error) {
	if size-pos < batch.HeaderSize {
		return true, nil
	}
	head := make([]byte, batch.HeaderSize)
	if err := readFull(s.file(), head, pos); err != nil {
		return false, err
	}
	var end int64
	runsOver := false
	if h, err := batch.ParseHeader(head); err == nil {
		runsOver = int64(h.Size()) > size-pos
		end = min(size, pos+int64(h.Size()))
	} else {
		// Nothing says how long it was; look at the sectors that hold the header.
		end = min(size, (pos/sectorBytes+2)*sectorBytes)
	}
	if runsOver {
		later, err := findBatch(s, pos+1, size)
		if err != nil {
			return false, err
		}
		if later < 0 {
			return true, nil
		}
		end = later
	}
	return hasZeroSector(s, pos, end)
}

// hasZeroSector says whether the part of any sector that lies between pos and end is all zero.
func hasZeroSector(s *segment, pos, end int64) (bool, error) {
	buf := make([]byte, scanBytes)
	for pos < end {
		// Reads stay aligned to sectors after the first.
		n := min(end-pos, int64(len(buf))-pos%sectorBytes)
		if err := readFull(s.file(), buf[:n], pos); err != nil {
			return false, err
		}
		for rest := buf[:n]; len(rest) > 0; {
			k := int(min(int64(len(rest)), sectorBytes-pos%sectorBytes))
			if allZero(rest[:k]) {
				return true, nil
			}
			rest, pos = rest[k:], pos+int64(k)
		}
	}
	return false, nil
}

// findBatch returns the position of the first valid batch at or after pos, -1 when there is none.
func findBatch(s *segment, pos, size int64) (int64, error) {
	const magicAt = 16
	r := batchReader{f: s.file(), size: size}
	buf := make([]byte, scanBytes)
	for size-pos >= batch.HeaderSize {
		n := min(size-pos, int64(len(buf)))
		if err := readFull(s.file(), buf[:n], pos); err != nil {
			return -1, err
		}
		tries := n - batch.HeaderSize + 1
		for i := range tries {
			if buf[i+magicAt] != batch.Magic {
				continue
			}
			if h, err := batch.ParseHeader(buf[i:n]); err != nil || int64(h.Size()) > size-pos-i {
				continue
			}
			raw, h, err := r.at(pos + i)
			if err != nil {
				return -1, err
			}
			if batch.VerifyCRC(raw, h) == nil {
				return pos + i, nil
			}
		}
		pos += tries
	}
	return -1, nil
}

// checkIndexFiles replaces the index files of a sealed segment when they don't say what was just found.
func (l *Log) checkIndexFiles(s *segment, files *indexCheck, rec *Recovery) error {
	x := s.loaded.Load()
	s.noteMaxTimestamp(x)
	if files.right(x) {
		s.indexDirty = true // right, but perhaps not yet on the disk
		return nil
	}
	rec.RebuiltIndexes = append(rec.RebuiltIndexes, s.base)
	rec.note("index of segment %d was missing or wrong", s.base)
	l.dirDirty = true
	return s.writeIndexes()
}
