package log

import (
	"fmt"

	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// Truncate removes the records from offset to on. A batch that holds it goes whole, so EndOffset may then be
// lower; so it is where to lies in a gap that compaction left: the log ends behind its last batch, as it will after
// a restart. Below the log's start it is TruncateFully(to); at or beyond the end only the leader epochs that start
// there go. It is durable when it returns. FlushedOffset may fall: the recovery point that the owner has
// written down for this log should follow soon, since damage below it is taken for corruption.
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
	l.takeBackFlushed()
	keep := len(l.segments)
	for keep > 1 && l.segments[keep-1].base >= to {
		keep--
	}
	gone := l.segments[keep:]
	last := l.segments[keep-1]
	cut, _, err := last.locate(last.size, to)
	if err != nil {
		return l.poison("truncate", err)
	}
	end, err := last.endBefore(last.size, cut)
	if err != nil {
		return l.poison("truncate", err)
	}
	x, err := last.index(last.size)
	if err != nil {
		return l.poison("truncate", err)
	}
	if end < l.start {
		// The batch that goes holds the log's start, so nothing readable is left.
		return l.TruncateFully(l.start)
	}
	// Readers first: they must not find what is being removed.
	l.segments = l.segments[:keep:keep]
	last.size, last.next = cut, end
	l.flushed.Store(min(l.flushed.Load(), int64(end)))
	l.clean = min(l.clean, end)
	x.truncate(relative(last.base, to), uint32(cut))
	l.publish(true)
	if err := l.removeSegments(gone); err != nil {
		return err
	}
	// Synced at once: else a crash may show old records behind new ones.
	if err := last.file.Truncate(cut); err != nil {
		return l.poison("truncate", err)
	}
	if err := last.file.Sync(); err != nil {
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
	if err := l.rebuildProducers(nil); err != nil {
		return l.poison("rebuild producer state", err)
	}
	l.epochs.TruncateFromEnd(end)
	return l.writeEpochs()
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
	l.takeBackFlushed()
	gone := l.segments
	if err := l.removeFiles(gone); err != nil {
		return err
	}
	if err := l.removeSnapshotsAbove(-1); err != nil {
		return l.poison("truncate", err)
	}
	next, err := l.createSegment(start)
	if err != nil {
		return l.poison("create segment", err)
	}
	l.segments = []*segment{next}
	l.start = start
	l.epochs = &epoch.Table{}
	l.producers.clear()
	l.clean = start
	l.publish(true)
	for _, s := range gone {
		s.release()
	}
	if err := next.file.Sync(); err != nil {
		return l.poison("sync", err)
	}
	if err := l.writeEpochs(); err != nil {
		return err
	}
	l.flushed.Store(int64(start))
	return nil
}

// takeBackFlushed notes that a truncation is under way.
func (l *Log) takeBackFlushed() {
	l.truncations++
	l.toldFlushed = max(l.toldFlushed, l.FlushedOffset(), l.cfg.RecoveryPoint)
}

// removeSegments removes segments that the view no longer holds, the last one first, so that a crash leaves a
// log without gaps.
func (l *Log) removeSegments(gone []*segment) error {
	if err := l.removeFiles(gone); err != nil {
		return err
	}
	for _, s := range gone {
		s.release()
	}
	return nil
}

func (l *Log) removeFiles(gone []*segment) error {
	for i := len(gone) - 1; i >= 0; i-- {
		if err := gone[i].remove(); err != nil {
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
