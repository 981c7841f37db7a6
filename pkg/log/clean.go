package log

import (
	"errors"
	"fmt"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Log compaction, Kafka's cleanup.policy=compact: the log keeps the last record of each key. A log is compacted from
// its start up to a point below its active segment: first the last offset of each key of the dirty section, what was
// not compacted before, is noted in an OffsetMap; then the segments are rewritten without the records whose key comes
// again later. Offsets never change, so there are gaps.
//
// It runs apart: BeginClean under the owner's lock, Run without it, EndClean under it again. Readers go on reading the
// old segments until they release them.
//
// Beside the last record of each key these stay:
//   - a tombstone, a record with a key and no value, for DeleteRetentionMs after the run that removed what it deletes;
//     the end of that time, the delete horizon, is noted in its batch (KIP-534). A later run removes it, and only when
//     it lies in what was clean before: then what it deletes is durably gone, whatever crashes there were.
//   - the offsets, without records, of the last batch of a producer that is known, so that its sequence numbers survive;
//   - the offsets of the first batch of each leader epoch, so that a follower that copies the log knows where it began.
//   - the offsets of the last batch of each segment: so a segment that lost its end in a crash is noticed, and a follower
//     that copies the log reaches its end.
//
// Transactions can't be written here, but a log that Kafka wrote may hold some. Control batches stay. The records of
// transactional batches, of which some may be of aborted transactions, remove no others; they go themselves when a
// record outside of transactions has their key later. A transactional tombstone stays until then.
//
// As in Kafka, a record without a key goes: it may be there from before the log was compacted. A batch that is whole
// but whose records nobody can decode stays as it is.

// Compaction is what Settings say of it.
type Compaction struct {
	// Enabled: cleanup.policy holds compact.
	Enabled bool
	// DeleteRetentionMs is how long a tombstone stays after the run that removed what it deletes
	// (delete.retention.ms).
	DeleteRetentionMs int64
	// MinDirtyRatio is how much of the log, from 0 to 1, has to be dirty for a run to be worth it
	// (min.cleanable.dirty.ratio).
	MinDirtyRatio float64
	// MinLagMs is how long every record stays (min.compaction.lag.ms, KIP-58).
	MinLagMs int64
	// MaxLagMs is how long a record may stay dirty, also when little is; 0 is no limit (max.compaction.lag.ms,
	// KIP-354).
	MaxLagMs int64
}

func (c Compaction) validate() error {
	if c.DeleteRetentionMs < 0 || c.MinDirtyRatio < 0 || c.MinDirtyRatio > 1 || c.MinLagMs < 0 || c.MaxLagMs < 0 {
		return fmt.Errorf("compaction settings %+v: want 0 or more, and a ratio of at most 1", c)
	}
	return nil
}

// ErrOffsetMapFull says that a single batch has more records than the offset map has room for.
var ErrOffsetMapFull = errors.New("a batch has more records than the cleaner's offset map can hold")

// ErrCleanStopped is for CleanOptions.Pace to end a run that is not wanted any more.
var ErrCleanStopped = errors.New("compaction was stopped")

// ErrNoRoom says that the volume has too little room for the compacted segments beside the old ones.
var ErrNoRoom = errors.New("too little room on the disk for a compaction")

// errOvertaken says that the segments changed while they were compacted.
var errOvertaken = errors.New("the log was truncated, or its start moved, while it was compacted")

// CleanState says how dirty a log is.
type CleanState struct {
	// CleanBytes were compacted before, DirtyBytes could be now.
	CleanBytes, DirtyBytes int64
	// Overdue: something has been dirty for longer than MaxLagMs.
	Overdue bool
}

// Ratio is how much of what could be compacted is dirty, from 0 to 1.
func (s CleanState) Ratio() float64 {
	if s.DirtyBytes == 0 {
		return 0
	}
	return float64(s.DirtyBytes) / float64(s.CleanBytes+s.DirtyBytes)
}

// CleanOffset is the offset below which the log is compacted: the first dirty one, for cleaner-offset-checkpoint.
func (l *Log) CleanOffset() ident.Offset { return l.clean }

// RollForCompaction seals the active segment when MaxLagMs wants it compacted. upTo is the high watermark, nowMs is in
// ms since 1970. It belongs to the owner.
func (l *Log) RollForCompaction(nowMs int64, upTo ident.Offset) error {
	a, settings := l.active(), l.cfg.Compaction
	if l.err != nil || !settings.Enabled || settings.MaxLagMs == 0 || a.size == 0 || a.next > upTo {
		return l.err
	}
	first, err := l.firstTimestamp(a)
	if err != nil {
		return l.poison("age of the segment", l.readError(a, err))
	}
	if first < 0 || nowMs-first <= settings.MaxLagMs {
		return nil
	}
	return l.Roll()
}

// CleanState says how dirty the log is below upTo, the high watermark. It belongs to the owner. nowMs is in ms since
// 1970.
func (l *Log) CleanState(nowMs int64, upTo ident.Offset) (CleanState, error) {
	var state CleanState
	if l.err != nil {
		return state, l.err
	}
	n, err := l.cleanable(nowMs, upTo)
	if err != nil {
		return state, err
	}
	dirtyFrom := l.dirtyFrom()
	for _, s := range l.segments[:n] {
		if s.next <= dirtyFrom {
			state.CleanBytes += s.size
			continue
		}
		state.DirtyBytes += s.size
		if maxLag := l.cfg.Compaction.MaxLagMs; maxLag > 0 && !state.Overdue && s.size > 0 {
			first, err := l.firstTimestamp(s)
			if err != nil {
				return state, l.readError(s, err)
			}
			state.Overdue = first >= 0 && nowMs-first > maxLag
		}
	}
	return state, nil
}

func (l *Log) dirtyFrom() ident.Offset { return max(l.clean, l.start) }

// cleanable is how many of the oldest segments may be compacted: those that are sealed, wholly below upTo, flushed, and
// hold no record that is younger than MinLagMs; none from the first on that is damaged. Flushed, since what is rewritten is durable at once: if a crash took the
// record for which an older one was removed, both would be lost.
func (l *Log) cleanable(nowMs int64, upTo ident.Offset) (int, error) {
	minLag := l.cfg.Compaction.MinLagMs
	for i, s := range l.segments[:len(l.segments)-1] {
		if s.next > min(upTo, l.FlushedOffset()) || len(s.damage()) > 0 {
			return i, nil
		}
		if minLag > 0 && s.next > l.dirtyFrom() {
			largest, _, err := s.largestTimestamp(s.size)
			if err != nil {
				return 0, l.readError(s, err)
			}
			if largest > nowMs-minLag {
				return i, nil
			}
		}
	}
	return len(l.segments) - 1, nil
}

// CleanOptions of one run.
type CleanOptions struct {
	// Map is what the run notes keys in; it needs no preparation.
	Map *OffsetMap
	// Pace is told how many bytes were read or written since the last time, and may wait. An error of it ends the run.
	// Nil does not wait.
	Pace func(bytes int) error
	// MinFreeBytes are left free on the volume, beside a twentieth of it: appends go on meanwhile.
	MinFreeBytes int64
}

// BeginClean prepares a compaction of what lies below upTo, the high watermark. It returns nil when nothing is dirty,
// whatever the ratio, or when a run is under way already. nowMs is in ms since 1970.
func (l *Log) BeginClean(nowMs int64, upTo ident.Offset, options CleanOptions) (*Clean, error) {
	if l.err != nil || l.cleaning != nil || !l.cfg.Compaction.Enabled {
		return nil, l.err
	}
	n, err := l.cleanable(nowMs, upTo)
	if err != nil {
		return nil, err
	}
	dirtyFrom := l.dirtyFrom()
	if n == 0 || l.segments[n-1].next <= dirtyFrom {
		return nil, nil
	}
	c := &Clean{
		log: l, fsys: l.fsys, dir: l.dir, settings: l.cfg.Settings, options: options, nowMs: nowMs,
		segments: l.segments[:n:n], truncations: l.truncations, written: map[int64][]producerEnd{}, producers: map[int64]producerEnd{},
		epochStarts: map[ident.Offset]bool{},
		Stats:       CleanStats{From: dirtyFrom, To: l.segments[n-1].next},
	}
	for _, e := range l.epochs.Entries() {
		c.epochStarts[e.Start] = true
	}
	for id, p := range l.producers.byID {
		for _, b := range p.batches[:p.n] {
			c.written[id] = append(c.written[id], producerEnd{b.last, p.epoch})
		}
	}
	l.cleaning = c
	return c, nil
}

// EndClean ends a run with the outcome of Run: it puts the rewritten segments into the place of the old ones, unless
// these have changed meanwhile. It says whether it has done so. An error is Run's own, which leaves the log as it was,
// or, when the files can't be exchanged, poisons the log.
func (l *Log) EndClean(c *Clean, runErr error) (done bool, err error) {
	l.cleaning = nil
	// What the run may have met in segments that were truncated or dropped meanwhile says nothing.
	overtaken := l.err != nil || !l.sameSegments(c)
	if overtaken || runErr != nil {
		c.discard()
	}
	switch {
	case overtaken:
		return false, l.err
	case runErr != nil:
		return false, l.readError(l.active(), runErr)
	}
	if len(c.groups) > 0 {
		if err := l.swap(c); err != nil {
			return false, l.poison("exchange compacted segments", err)
		}
	}
	l.clean = c.Stats.To
	return true, nil
}

// sameSegments says whether what was compacted is the log's beginning still. A truncation may have gone anywhere, and
// segments that were written anew since may look like those before.
func (l *Log) sameSegments(c *Clean) bool {
	if l.truncations != c.truncations || len(l.segments) <= len(c.segments) {
		return false
	}
	for i, s := range c.segments {
		if l.segments[i] != s {
			return false
		}
	}
	return true
}
