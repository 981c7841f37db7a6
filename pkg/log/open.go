package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// Open opens the log in dir, or makes one. Unless Config.CleanShutdown says that it was closed, it is recovered:
// segments from the recovery point on are read and checked, what a crash has torn is cut off at the end, indexes,
// leader epochs and producer state are made again, and the result is synced. What is damaged in another way, and what
// is missing before the recovery point, stays as it is and is noted: see Damage. Recovery says what was found.
//
// An error wraps ErrCorrupt when the log's content is at fault and not the disk.
func Open(fsys vfs.FS, dir string, cfg Config) (*Log, Recovery, error) {
	var rec Recovery
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, rec, fmt.Errorf("open log %s: %w", dir, err)
	}
	l := &Log{fsys: fsys, dir: dir, cfg: cfg, producers: newProducers(fsys, dir)}
	l.producers.wall = cfg.WallMillis
	if err := l.open(&rec); err != nil {
		for _, s := range l.segments {
			s.drop()
		}
		return nil, rec, fmt.Errorf("open log %s: %w", dir, err)
	}
	if err := l.settle(); err != nil {
		return nil, rec, errors.Join(fmt.Errorf("open log %s: %w", dir, err), l.Close())
	}
	return l, rec, nil
}

func (l *Log) open(rec *Recovery) error {
	if err := makeDir(l.fsys, l.dir); err != nil {
		return err
	}
	if err := l.list(rec); err != nil {
		return err
	}
	known, err := l.readDamage(rec)
	if err != nil {
		return err
	}
	if len(l.segments) == 0 {
		return l.openEmpty(rec)
	}
	table, err := readEpochs(l.fsys, l.dir)
	if errors.Is(err, ErrCorrupt) {
		rec.note("leader epochs are made again from the batches: %v", err)
		table, err = nil, nil
	}
	if err != nil {
		return err
	}
	clean := false
	if l.cfg.CleanShutdown {
		if clean, err = l.loadClean(rec); err != nil {
			return err
		}
	}
	l.weighRecoveryPoint(clean, rec)
	scanFrom := len(l.segments)
	if !clean {
		scanFrom = l.firstToScan()
	}
	l.epochs = &epoch.Table{}
	if err := l.checkUnscanned(known, scanFrom, clean, rec); err != nil {
		return err
	}
	if err := l.loadEpochs(table, scanFrom); err != nil {
		return err
	}
	if !clean {
		if err := l.recover(scanFrom, table, rec); err != nil {
			return err
		}
	}
	return l.finishOpen(clean, table, rec)
}

// makeDir makes a directory and those above it, durably.
func makeDir(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := makeDir(fsys, parent); err != nil {
		return err
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}

// list notes the segments, without opening them, the producer snapshots; leftovers of a crash are removed.
func (l *Log) list(rec *Recovery) error {
	entries, err := l.fsys.ReadDir(l.dir)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if names, err = l.finishSwaps(names, rec); err != nil {
		return err
	}
	var bases []ident.Offset
	for _, name := range names {
		if base, ok := parseFileName(name, logSuffix); ok {
			bases = append(bases, base)
		} else if o, ok := parseFileName(name, snapshotSuffix); ok {
			l.producers.snapshots = append(l.producers.snapshots, o)
		}
	}
	for _, name := range names {
		index, isIndex := parseFileName(name, indexSuffix)
		if !isIndex {
			index, isIndex = parseFileName(name, timeIndexSuffix)
		}
		_, hasLog := slices.BinarySearch(bases, index)
		if isLeftover(name) || isIndex && !hasLog {
			if err := l.fsys.Remove(filepath.Join(l.dir, name)); err != nil {
				return err
			}
			if !strings.HasSuffix(name, deletedSuffix) && name != nextSegmentFile { // these every crash may leave
				rec.note("removed leftover file %s", name)
			}
		}
	}
	for _, base := range bases {
		s := l.newSegment(base)
		info, err := l.fsys.Stat(s.path(logSuffix))
		if err != nil {
			return err
		}
		s.size = info.Size()
		l.segments = append(l.segments, s)
	}
	for i, s := range l.segments[:max(0, len(l.segments)-1)] {
		s.next = l.segments[i+1].base
	}
	return nil
}

func (l *Log) openEmpty(rec *Recovery) error {
	if err := l.removeSnapshotsAbove(-1); err != nil {
		return err
	}
	s := l.newActive(l.cfg.StartOffset)
	if err := s.create(); err != nil {
		return err
	}
	if err := s.file().Sync(); err != nil {
		return err
	}
	l.segments = []*segment{s}
	l.start, l.durable = l.cfg.StartOffset, l.cfg.StartOffset
	l.epochs = &epoch.Table{}
	if point := l.cfg.RecoveryPoint; point > l.start && !l.cfg.StopOnCorruption {
		// Whoever empties a log lowers its recovery point first.
		s.setDamage([]bad{{0, 0, l.start, point, fmt.Errorf("the log was flushed up to offset %d, and none of its segments is there", point)}})
		rec.note("no segment is there, though offsets %d to %d were flushed", l.start, point)
		if err := l.sealDamagedTail(); err != nil {
			return err
		}
		if err := l.active().file().Sync(); err != nil {
			return err
		}
	}
	l.flushed.Store(int64(l.active().next))
	l.publish(true)
	// The file may tell of a log that was truncated away.
	if _, err := l.fsys.Stat(filepath.Join(l.dir, EpochCheckpointFile)); err == nil {
		rec.note("leader epochs without a log were removed")
		return l.writeEpochs()
	}
	return l.fsys.SyncDir(l.dir)
}

// loadClean takes the files as Close left them. It reports false when they are not as they should be, and the
// log is to be recovered.
func (l *Log) loadClean(rec *Recovery) (bool, error) {
	for i, s := range l.segments[:len(l.segments)-1] {
		if s.size == 0 && !l.mayEnd(s, l.segments[i+1].base, s.base) {
			rec.note("segment %d is empty though followed by %d: recovering after a clean shutdown", s.base, l.segments[i+1].base)
			return false, nil
		}
	}
	last := l.active()
	if err := last.pin(); err != nil {
		return false, err
	}
	if x, err := last.readIndexes(last.size); err == nil {
		if err := last.loadTail(last.file(), x); err == nil {
			last.loaded.Store(x)
			return l.endsAsClosed(rec), nil
		}
	}
	// The indexes are at fault, or the batches. The scan will tell.
	x, err := last.scanIndexes(last.size)
	if err == nil {
		err = last.loadTail(last.file(), x)
	}
	if err != nil {
		rec.note("recovering after a clean shutdown: %v", err)
		return false, nil
	}
	last.loaded.Store(x)
	rec.RebuiltIndexes = append(rec.RebuiltIndexes, last.base)
	rec.note("index of segment %d was missing or wrong", last.base)
	return l.endsAsClosed(rec), nil
}

// endsAsClosed says whether the log does not end behind where it was closed: then an offset in a header is wrong.
func (l *Log) endsAsClosed(rec *Recovery) bool {
	closed, end := l.newestSnapshot(), l.active().next
	if closed == 0 || end <= closed {
		return true
	}
	rec.note("recovering after a clean shutdown: the log was closed at offset %d, its last batch ends at %d", closed, end)
	return false
}

// firstToScan is the first segment that is not wholly below the recovery point; the last one in any case. One that
// ends at the recovery point may have been sealed after that flush, and then its index was not synced and may be
// one of an earlier life.
func (l *Log) firstToScan() int {
	i := 0
	for i < len(l.segments)-1 && l.segments[i+1].base < l.scanPoint {
		i++
	}
	return i
}

// loadEpochs sets the table as it stood before the segment scanFrom; recovery adds the rest. Without a table it
// is made from the batches.
func (l *Log) loadEpochs(table *epoch.Table, scanFrom int) error {
	if table != nil {
		kept, err := epoch.New(table.Entries()) // recover still needs what goes
		if err != nil {
			return err
		}
		if scanFrom < len(l.segments) {
			l.epochsDirty = kept.TruncateFromEnd(l.segments[scanFrom].base)
		}
		l.epochs = kept
		return nil
	}
	l.epochsDirty = true
	return l.examineAnd(func() error {
		l.epochs = &epoch.Table{}
		for _, s := range l.segments[:scanFrom] {
			if err := l.readEpochsOf(s); err != nil {
				return l.readError(s, err)
			}
		}
		return nil
	})
}

func (l *Log) readEpochsOf(s *segment) error {
	if s.lost(s.size) {
		return nil
	}
	f, err := s.acquire()
	if err != nil {
		return err
	}
	defer f.release()
	return s.eachHeader(f.file, 0, s.size, func(h batch.Header, _ int64) (bool, error) {
		l.epochs.Assign(h.LeaderEpoch, h.BaseOffset)
		return true, nil
	})
}

// finishOpen brings what is derived from the batches in line with them and makes it durable.
func (l *Log) finishOpen(clean bool, table *epoch.Table, rec *Recovery) error {
	end := l.active().next
	l.start = l.weighStart(table, rec)
	l.durable = l.start
	l.flushed.Store(int64(end))
	l.clean = min(l.cfg.CleanOffset, end)
	if l.cfg.RecoveryPoint > end || l.cfg.StartOffset > l.start {
		if err := l.lower(end, l.start); err != nil {
			return err
		}
	}
	l.publish(true)
	if l.start > end { // of a metadata log alone
		rec.note("log ends at %d, below its start %d: it is emptied", end, l.start)
		return l.TruncateFully(l.start)
	}
	if l.epochs.TruncateFromEnd(end) {
		l.epochsDirty = true
	}
	if _, ok := l.epochs.EpochAt(l.start); !ok && l.start < end {
		// The table forgets what lies below the start at once, the owner writes the start down later: a crash between
		// the two brings records back whose epochs are forgotten.
		if err := l.loadEpochs(nil, len(l.segments)); err != nil {
			return err
		}
	}
	if l.epochs.TruncateFromStart(l.start) {
		l.epochsDirty = true
	}
	if err := l.removeSnapshotsAbove(end); err != nil {
		return err
	}
	if err := l.examineAnd(func() error { return l.rebuildProducers(rec) }); err != nil {
		return err
	}
	if err := l.damageChanged(); err != nil {
		return err
	}
	for _, d := range l.Damage() {
		rec.note("%s", d)
	}
	if err := l.removeStraySnapshots(); err != nil {
		return err
	}
	if clean && !l.epochsDirty {
		return nil
	}
	// Not before all that was read is durable may anybody build on it: until now it may be page cache only.
	l.dirDirty = true
	_, err := l.Flush()
	return err
}
