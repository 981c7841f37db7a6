package log

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// Truncate removes the records from offset to on. A batch that holds it goes whole, so EndOffset may then be
// lower; so it is where to lies in a gap that compaction left: the log ends behind its last batch, as it will after
// a restart. Below the log's start it is TruncateFully(to); at or beyond the end only the leader epochs that start
// there go. Where what lies right before is damaged, that goes as well, and the log is Refilling up to the offset. It is
// durable when it returns. FlushedOffset may fall, see Config.LowerCheckpoints.
func (l *Log) Truncate(to ident.Offset) error {
	if l.err != nil {
		return l.err
	}
	if to < l.start {
		return l.TruncateFully(to)
	}
	if to >= l.active().next {
		// Also now, or an epoch without records would make the search for the divergence endless (KAFKA-10706).
		if l.epochs.TruncateFromEnd(to) {
			return l.writeEpochs()
		}
		return nil
	}
	keep := len(l.segments)
	for keep > 1 && l.segments[keep-1].base >= to {
		keep--
	}
	gone := l.segments[keep:]
	last := l.segments[keep-1]
	if err := l.completeSeals(last.base); err != nil {
		return err
	}
	l.cancelSeals(last.base)
	if err := l.pinAgain(last); err != nil {
		return l.poison("truncate", err)
	}
	if err := l.examineAnd(func() error {
		_, err := last.pinIndex()
		return l.readError(last, err)
	}); err != nil {
		return l.poison("truncate", err)
	}
	x, cut, end, err := l.cutAt(last, to)
	if err != nil {
		return l.poison("truncate", err)
	}
	if end < l.start {
		// The batch that goes holds the log's start, so nothing readable is left.
		return l.TruncateFully(l.start)
	}
	if err := l.lower(end, l.start); err != nil {
		return err
	}
	if slices.ContainsFunc(last.damage(), func(b bad) bool { return b.from < to && b.to > end }) {
		if err := l.lacks(Refill{end, to}); err != nil {
			return err
		}
	}
	l.truncations++
	// Readers first: they must not find what is being removed.
	l.segments = l.segments[:keep:keep]
	last.size, last.next = cut, end
	last.setDamage(slices.DeleteFunc(slices.Clone(last.damage()), func(b bad) bool { return b.from >= end }))
	l.flushed.Store(min(l.flushed.Load(), int64(end)))
	l.clean = min(l.clean, end)
	x.truncate(relative(last.base, to), uint32(cut))
	l.publish(true)
	if err := l.removeSegments(gone); err != nil {
		return err
	}
	// Synced at once: else a crash may show old records behind new ones.
	if err := last.file().Truncate(cut); err != nil {
		return l.poison("truncate", err)
	}
	if err := last.file().Sync(); err != nil {
		return l.poison("sync after truncation", err)
	}
	last.dirty = false
	if err := last.lookUp(cut, last.loadTail); err != nil {
		return l.poison("truncate", err)
	}
	if last.next != end {
		return l.poison("truncate", fmt.Errorf("%w: ends at offset %d after a truncation to %d", ErrCorrupt, last.next, end))
	}
	if err := l.removeSnapshotsAbove(end); err != nil {
		return l.poison("truncate", err)
	}
	if err := l.examineAnd(func() error { return l.rebuildProducers(nil) }); err != nil {
		return l.poison("rebuild producer state", err)
	}
	l.epochs.TruncateFromEnd(end)
	if err := l.writeEpochs(); err != nil {
		return err
	}
	if err := l.damageChanged(); err != nil {
		return err
	}
	return l.settle()
}

// pinAgain opens the file of a segment that is to be the active one again. One that has vanished is damage; what is
// appended goes to a new one.
func (l *Log) pinAgain(s *segment) error {
	err := s.pin()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.cfg.Files.forget(s)
	if _, err := l.checked(s, 0, s.base, nil); err != nil {
		return err
	}
	s.loaded.Store(newIndexes(nil, nil))
	if err := s.create(); err != nil {
		return err
	}
	return l.fsys.SyncDir(l.dir)
}

// cutAt finds where a segment ends that is truncated to offset to: the file position, and the offset after what is
// left. Damage has no batches to be cut at; it goes with the truncation.
func (l *Log) cutAt(s *segment, to ident.Offset) (x *indexes, cut int64, end ident.Offset, err error) {
	err = l.examineAnd(func() error {
		for _, b := range s.damage() {
			if to >= b.from && to < b.to {
				cut, end = b.pos, b.from
				return nil
			}
		}
		if cut, _, err = s.locate(s.size, to); err != nil {
			return l.readError(s, err)
		}
		for _, b := range s.damage() {
			if b.end == cut && b.pos < cut {
				cut, end = b.pos, b.from // an end that is damaged would say nothing of where it is
				return nil
			}
		}
		end, err = s.endBefore(s.size, cut)
		return l.readError(s, err)
	})
	if err == nil {
		x, err = s.index(s.size) // the look-ups may have made it again
	}
	return x, cut, end, err
}

// TruncateFully removes all records and makes the log begin and end at start, which may lie anywhere. Leader
// epochs and producers are forgotten. It is durable when it returns; a crash on the way leaves a valid log that
// has lost some or all of its end, or is empty and begins at Config.StartOffset.
func (l *Log) TruncateFully(start ident.Offset) error {
	if l.err != nil {
		return l.err
	}
	if start < 0 {
		return fmt.Errorf("log %s: %w: truncation to %d", l.dir, ErrOffsetOutOfRange, start)
	}
	// A crash on the way may leave it empty from any older start on.
	if err := l.lower(0, start); err != nil {
		return err
	}
	l.truncations++
	l.flushed.Store(0)
	l.cancelSeals(0)
	gone := l.segments
	next := l.newActive(start)
	l.segments = []*segment{next}
	l.start = start
	l.epochs = &epoch.Table{}
	l.producers.clear()
	l.clean = start
	// Readers first: they must not find what is being removed.
	l.publish(true)
	if err := l.removeSegments(gone); err != nil {
		return err
	}
	if err := l.removeSnapshotsAbove(-1); err != nil {
		return l.poison("truncate", err)
	}
	if err := next.create(); err != nil {
		return l.poison("create segment", err)
	}
	if err := next.file().Sync(); err != nil {
		return l.poison("sync", err)
	}
	if err := l.writeEpochs(); err != nil {
		return err
	}
	l.flushed.Store(int64(start))
	l.durable = start
	if err := l.damageChanged(); err != nil {
		return err
	}
	return l.settle()
}

// lower has the owner write down that no more than this is flushed, and where the log starts.
func (l *Log) lower(recoveryPoint, start ident.Offset) error {
	if l.cfg.LowerCheckpoints == nil {
		return nil
	}
	if err := l.cfg.LowerCheckpoints(recoveryPoint, start); err != nil {
		return l.poison("write the checkpoints", err)
	}
	return nil
}

// removeSegments removes segments that the view no longer holds, the last one first, so that a crash leaves a
// log without gaps.
func (l *Log) removeSegments(gone []*segment) error {
	for i := len(gone) - 1; i >= 0; i-- {
		if err := l.doom(gone[i]); err != nil {
			return l.poison("remove segment", err)
		}
	}
	if len(gone) > 0 {
		if err := l.fsys.SyncDir(l.dir); err != nil {
			return l.poison("sync directory", err)
		}
	}
	return nil
}
