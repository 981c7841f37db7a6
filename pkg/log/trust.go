package log

import (
	"fmt"
	"math"
	"slices"

	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// The owner's checkpoints have no checksum: a bit that flips in one of their digits makes another offset of it. What
// they say is weighed against the files of the log, so that one digit neither removes records nor hides them.

// weighRecoveryPoint decides what the recovery point is good for. Too high a one that could be right is believed: it
// calls damaged what a crash has torn, which is fetched again, while too low a one would call torn what had been flushed.
// One that lies further beyond the last segment than that can reach says nothing, and all is scanned. So is a metadata
// log in any case: there it only says that damage below is none that a crash has torn.
func (l *Log) weighRecoveryPoint(clean bool, rec *Recovery) {
	last := l.active()
	l.scanPoint, l.reached, l.closedAt = l.cfg.RecoveryPoint, l.cfg.RecoveryPoint, noOffset
	if l.cfg.StopOnCorruption {
		l.scanPoint, l.reached = 0, 0
		return
	}
	newest := l.newestSnapshot()
	if l.cfg.CleanShutdown && newest == l.reached && newest >= last.base {
		l.closedAt = newest
	}
	switch {
	case clean && newest == last.next && newest < l.reached:
		// The state of the producers was written as the log was closed, and where it ended is its file's name.
		rec.note("the recovery point %d is wrong: the log was closed at its end, offset %d", l.reached, newest)
		l.reached = newest
	case l.reached-last.base > l.furthest(last):
		rec.note("the recovery point %d can't be right, the last segment begins at %d: all of the log is checked", l.reached, last.base)
		l.scanPoint, l.reached = 0, newest
	}
	if clean {
		l.reached = max(l.reached, newest)
	}
}

// newestSnapshot is where the log once ended, as the name of the newest producer snapshot says; 0 when there is none. It
// is written, too, when the log is closed.
func (l *Log) newestSnapshot() ident.Offset {
	if n := len(l.producers.snapshots); n > 0 {
		return l.producers.snapshots[n-1]
	}
	return 0
}

// furthest is how many offsets the segment may have had: one for each byte that fits into it, where compaction leaves no
// gaps.
func (l *Log) furthest(s *segment) ident.Offset {
	if l.mayHaveGaps() {
		return math.MaxInt32
	}
	return ident.Offset(min(max(l.cfg.SegmentBytes, s.size), math.MaxInt32))
}

// mayHaveGaps says whether it is known that compaction, here or on a leader, has removed batches from the log.
func (l *Log) mayHaveGaps() bool {
	return !l.cfg.StopOnCorruption && (l.cfg.Compaction.Enabled || l.gaps || max(l.clean, l.cfg.CleanOffset) > 0)
}

// missTail notes as damaged what had been flushed and lies behind the end of what is there.
func (l *Log) missTail() {
	if a := l.active(); a.next < l.reached {
		a.setDamage(append(slices.Clone(a.damage()), bad{a.size, a.size, a.next, l.reached,
			fmt.Errorf("the log ends at offset %d, but had been flushed to %d: its last file is missing or has lost its end", a.next, l.reached)}))
	}
}

// weighStart returns where the log begins, given the leader epochs as their file has them, nil when that can't be read.
// A start was written down when a flush had covered it (DurableStartOffset), so none of these can be: that it lies
// beyond the end, that a whole segment lies below, that the leader epochs begin before. Rather show what had been deleted
// than hide what had not.
func (l *Log) weighStart(table *epoch.Table, rec *Recovery) ident.Offset {
	first, end, said := l.segments[0].base, l.active().next, l.cfg.StartOffset
	if said <= first || l.cfg.StopOnCorruption {
		return max(said, first) // the start of a metadata log is a snapshot's end, wherever the log is
	}
	epochsFrom := ident.UnknownOffset
	if table != nil && len(table.Entries()) > 0 {
		epochsFrom = table.Entries()[0].Start
	}
	var why string
	switch {
	case said > end:
		why = fmt.Sprintf("the log ends at %d", end)
	case len(l.segments) > 1 && l.segments[1].base < said:
		why = fmt.Sprintf("there is a segment that ends at %d", l.segments[1].base)
	case epochsFrom >= 0 && epochsFrom < said:
		why = fmt.Sprintf("its leader epochs begin at %d", epochsFrom)
	default:
		return said
	}
	start := first
	if epochsFrom > first && epochsFrom <= end {
		start = epochsFrom
	}
	rec.note("the log start %d that was written down is wrong, %s: it starts at %d", said, why, start)
	return start
}
