package log

import (
	"fmt"
	"math"
	"sort"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// TimestampOffset is a record's timestamp, in ms since 1970, its offset, and the leader epoch of its batch.
type TimestampOffset struct {
	Timestamp   int64
	Offset      ident.Offset
	LeaderEpoch ident.Epoch
}

// timeMark follows a time entry on a walk over the batches: index files have no checksum, and only the batch that has
// the timestamp says whether the entry is right.
type timeMark struct {
	timeEntry
	known, met, wrong bool
}

// lastTime is the last entry of the time index whose batch ends below an offset; base is the segment's.
func lastTime(x *indexes, base, below ident.Offset) timeMark {
	times := *x.times.Load()
	n := sort.Search(len(times), func(i int) bool { return base+ident.Offset(times[i].rel) >= below })
	if n == 0 {
		return timeMark{}
	}
	return timeMark{timeEntry: times[n-1], known: true}
}

// meet takes a batch of the segment that begins at base.
func (m *timeMark) meet(base ident.Offset, h batch.Header) {
	o := base + ident.Offset(m.rel)
	switch {
	case !m.known:
	case h.BaseOffset <= o && o <= h.LastOffset():
		m.met, m.wrong = true, m.wrong || h.MaxTimestamp != m.ts
	case h.BaseOffset > o && !m.met:
		m.wrong = true
	}
}

// err is errIndexWrong unless the batch was met, and right.
func (m *timeMark) err() error {
	if m.known && (m.wrong || !m.met) {
		return errIndexWrong
	}
	return nil
}

// largestTimestamp returns the largest timestamp of a segment, -1 when it has none, and the last offset of the
// first batch that has it. Safe beside the owner.
func (s *segment) largestTimestamp(size int64) (largest int64, at ident.Offset, err error) {
	return s.largestBetween(size, s.base, math.MaxInt64)
}

// largestBetween is largestTimestamp of the records from an offset on, in batches that end below another.
func (s *segment) largestBetween(size int64, from, below ident.Offset) (largest int64, at ident.Offset, err error) {
	if s.lost(size) {
		return -1, s.base, nil
	}
	err = s.lookUp(size, func(f vfs.File, x *indexes) error {
		// Entries of the time index tell of all records before them; those below from don't count here.
		last, start := timeMark{}, int64(0)
		largest, at = -1, s.base
		if from > s.base {
			start = x.floor(relative(s.base, from))
		} else if last = lastTime(x, s.base, below); last.known {
			largest, at = last.ts, s.base+ident.Offset(last.rel)
			start = x.floor(last.rel)
		}
		buf := lookUpBuffers.Get().(*[]byte)
		defer lookUpBuffers.Put(buf)
		r := headerReader{f: f, size: size, buf: *buf}
		list := s.damage()
		for pos := skipBad(list, start); pos < size; pos = skipBad(list, pos) {
			h, err := r.at(pos)
			if pos == start && pos > 0 && (err != nil || from > s.base && h.BaseOffset > from) {
				return errIndexWrong
			}
			if err != nil {
				return err
			}
			if h.LastOffset() >= below {
				break
			}
			last.meet(s.base, h)
			if ts := largestOf(h); ts > largest && h.LastOffset() >= from {
				if h.BaseOffset < from {
					if ts, err = largestFrom(f, pos, h, from); err != nil {
						return err
					}
				}
				if ts > largest {
					largest, at = ts, h.LastOffset()
				}
			}
			pos += int64(h.Size())
		}
		return last.err()
	})
	return largest, at, err
}

// largestFrom returns the largest timestamp of a batch's records from an offset on; the batch's own where nobody can
// decode them.
func largestFrom(f vfs.File, pos int64, h batch.Header, from ident.Offset) (int64, error) {
	raw := make([]byte, h.Size())
	if err := readFull(f, raw, pos); err != nil {
		return 0, err
	}
	largest := int64(-1)
	for rec, err := range batch.Records(raw) {
		if err != nil {
			return h.MaxTimestamp, nil
		}
		if rec.Offset >= from {
			largest = max(largest, rec.Timestamp)
		}
	}
	return largest, nil
}

// OffsetForTimestamp returns the first record, not before the log's start, that is not older than ts. ok is
// false when there is none. Like Read it may run beside the owner. When damaged records lie directly before it, one of
// them may have been the first: ErrCorrupt.
func (l *Log) OffsetForTimestamp(ts int64) (found TimestampOffset, ok bool, err error) {
	err = l.onView(func(v *view) error {
		for i := range v.count() {
			s := v.at(i)
			if s.next <= v.start || s.lost(s.size) {
				continue
			}
			found, ok, err = s.firstNotBefore(ts, v.start)
			if err != nil {
				ok = false
				return l.readError(s.segment, err)
			}
			if !ok {
				continue
			}
			for _, d := range v.damage {
				if d.To == found.Offset {
					ok = false
					return fmt.Errorf("log %s: look-up of timestamp %d: %w: %s", l.dir, ts, ErrCorrupt, d)
				}
			}
			return nil
		}
		return nil
	})
	return found, ok, err
}

// MaxTimestamp returns the first record that has the largest timestamp of those from the log's start up to, but not
// including, an offset: what lies beyond the high watermark may yet go (ListOffsets -3, KIP-734).
func (l *Log) MaxTimestamp(below ident.Offset) (found TimestampOffset, ok bool, err error) {
	var largest int64
	err = l.onView(func(v *view) error {
		largest = -1
		for i := range v.count() {
			s := v.at(i)
			if s.size == 0 || s.next <= v.start || s.base >= below {
				continue
			}
			ts, _, err := s.largestBetween(s.size, v.start, below)
			if err != nil {
				return l.readError(s.segment, err)
			}
			largest = max(largest, ts)
		}
		return nil
	})
	if err != nil || largest < 0 {
		return TimestampOffset{}, false, err
	}
	return l.OffsetForTimestamp(largest)
}

func (s *segmentView) firstNotBefore(ts int64, start ident.Offset) (found TimestampOffset, ok bool, err error) {
	err = s.lookUp(s.size, func(f vfs.File, x *indexes) error {
		found, ok, err = s.firstNotBeforeBy(f, x, ts, start)
		return err
	})
	return found, ok, err
}

func (s *segmentView) firstNotBeforeBy(f vfs.File, x *indexes, ts int64, start ident.Offset) (TimestampOffset, bool, error) {
	buf := lookUpBuffers.Get().(*[]byte)
	defer lookUpBuffers.Put(buf)
	r := headerReader{f: f, size: s.size, buf: *buf}
	mark := x.floorTime(ts)
	from := x.floor(mark.rel)
	list := s.damage()
	for pos := skipBad(list, from); pos < s.size; pos = skipBad(list, pos) {
		h, err := r.at(pos)
		if pos == from && pos > 0 && (err != nil || h.BaseOffset > s.base+ident.Offset(mark.rel)) {
			return TimestampOffset{}, false, errIndexWrong
		}
		if err != nil {
			return TimestampOffset{}, false, err
		}
		mark.meet(s.base, h)
		largest := largestOf(h)
		if largest >= ts && mark.err() != nil {
			return TimestampOffset{}, false, errIndexWrong
		}
		if largest >= ts && h.LastOffset() >= start {
			raw := make([]byte, h.Size())
			if err := readFull(f, raw, pos); err != nil {
				return TimestampOffset{}, false, err
			}
			if err := batch.VerifyCRC(raw, h); err != nil {
				return TimestampOffset{}, false, err
			}
			for rec, err := range batch.Records(raw) {
				if err != nil {
					// A client wrote records that nobody can decode; their batch as a whole stands for them.
					return TimestampOffset{h.MaxTimestamp, max(h.BaseOffset, start), h.LeaderEpoch}, true, nil
				}
				if rec.Timestamp >= ts && rec.Offset >= start {
					return TimestampOffset{rec.Timestamp, rec.Offset, h.LeaderEpoch}, true, nil
				}
			}
		}
		pos += int64(h.Size())
	}
	return TimestampOffset{}, false, mark.err()
}
