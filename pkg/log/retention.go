package log

import (
	"fmt"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// Limits of retention; a negative one does not limit.
type Limits struct {
	Ms    int64 // age of the youngest record of a segment (retention.ms)
	Bytes int64 // size of the log (retention.bytes)
}

// SetStartOffset moves the log's start up to offset o: records below are no longer read, and segments that lie
// wholly below are removed. A lower o than the start changes nothing. ErrOffsetOutOfRange when beyond the end.
// Writing log-start-offset-checkpoint is the owner's.
func (l *Log) SetStartOffset(o ident.Offset) error {
	switch {
	case l.err != nil:
		return l.err
	case o > l.active().next:
		return fmt.Errorf("log %s: %w: start offset %d beyond the end %d", l.dir, ErrOffsetOutOfRange, o, l.active().next)
	case o <= l.start:
		return nil
	}
	l.start = o
	if l.epochs.TruncateFromStart(o) {
		l.epochsDirty = true
	}
	gone := 0
	for gone < len(l.segments)-1 && l.segments[gone].next <= o {
		gone++
	}
	if err := l.dropFirst(gone); err != nil {
		return err
	}
	return l.damageChanged()
}

// DeleteOldSegments removes the oldest segments that are beyond a limit, but none with records at or above
// upTo, the high watermark: those may be needed to bring followers up (KAFKA-5634). The log's start moves with
// them. The active segment is sealed and goes too when all its records are too old. It returns how many segments
// were removed and how many bytes they had. nowMs is in ms since 1970.
func (l *Log) DeleteOldSegments(nowMs int64, limits Limits, upTo ident.Offset) (segments int, bytes int64, err error) {
	if l.err != nil {
		return 0, 0, l.err
	}
	size := l.Size()
	for segments < len(l.segments) {
		s := l.segments[segments]
		if s == l.active() && s.size == 0 || s.next > upTo {
			break
		}
		expired, err := l.isExpired(segments, nowMs, limits.Ms)
		if err != nil {
			return 0, 0, err
		}
		// One below the start was the active one when the start came to its end.
		belowStart := s.next <= l.start && s != l.active()
		if !expired && !belowStart && (limits.Bytes < 0 || size-s.size < limits.Bytes) {
			break
		}
		size -= s.size
		bytes += s.size
		segments++
	}
	if segments == 0 {
		return 0, 0, nil
	}
	if segments == len(l.segments) {
		if err := l.roll(); err != nil {
			return 0, 0, err
		}
	}
	l.start = max(l.start, l.segments[segments].base)
	if l.epochs.TruncateFromStart(l.start) {
		l.epochsDirty = true
	}
	if err := l.dropFirst(segments); err != nil {
		return 0, 0, err
	}
	return segments, bytes, l.damageChanged()
}

// isExpired says whether all records of segment i are older than ms. One that has no timestamp, or none that is not
// damaged, goes with the first segment behind it that has one: it is not younger than that.
func (l *Log) isExpired(i int, nowMs, ms int64) (bool, error) {
	if ms < 0 {
		return false, nil
	}
	if l.segments[i].size == 0 {
		return true, nil // Kafka's cleaner may leave it so
	}
	for k, s := range l.segments[i:] {
		if !s.maxKnown {
			largest, at, err := s.largestTimestamp(s.size)
			if err != nil {
				return false, l.readError(s, err)
			}
			s.maxTS, s.maxTSOffset, s.maxKnown = largest, at, true
		}
		if s.maxTS >= 0 {
			return nowMs-s.maxTS > ms, nil
		}
		if k == 0 && len(s.damage()) == 0 {
			if records, err := s.hasRecords(); err != nil || !records {
				return !records, l.readError(s, err)
			}
		}
	}
	return false, nil
}

// hasRecords says whether any batch of the segment has records: compaction may have emptied all of them.
func (s *segment) hasRecords() (bool, error) {
	file, err := s.acquire()
	if err != nil {
		return false, err
	}
	defer file.release()
	some := false
	err = s.eachHeader(file.file, 0, s.size, func(h batch.Header, _ int64) (bool, error) {
		some = h.NumRecords > 0
		return !some, nil
	})
	return some, err
}

// dropFirst removes the first n segments, the oldest first, so that a crash leaves a log without gaps.
func (l *Log) dropFirst(n int) error {
	if n > 0 {
		// The producers' state behind the last that goes is the one that the log begins with.
		if err := l.completeSeals(l.segments[n].base); err != nil {
			return err
		}
	}
	gone := l.segments[:n:n]
	l.dirDirty = l.dirDirty || n > 0
	l.segments = append([]*segment(nil), l.segments[n:]...)
	l.publish(true)
	for _, s := range gone {
		if err := l.doom(s); err != nil {
			return l.poison("remove segment", err)
		}
	}
	if err := l.removeSnapshotsBelow(l.segments[0].base); err != nil {
		return l.poison("remove producer snapshot", err)
	}
	return l.settle()
}
