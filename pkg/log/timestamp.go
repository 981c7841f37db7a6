package log

import (
	"fmt"

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

// lastTime is the last entry of the time index.
func lastTime(x *indexes) timeMark {
	times := *x.times.Load()
	if len(times) == 0 {
		return timeMark{}
	}
	return timeMark{timeEntry: times[len(times)-1], known: true}
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
	err = s.lookUp(size, func(f vfs.File, x *indexes) error {
		last, from := lastTime(x), int64(0)
		if largest, at = -1, s.base; last.known {
			largest, at = last.ts, s.base+ident.Offset(last.rel)
			from = x.floor(last.rel)
		}
		buf := lookUpBuffers.Get().(*[]byte)
		defer lookUpBuffers.Put(buf)
		r := headerReader{f: f, size: size, buf: *buf}
		list := s.damage()
		for pos := skipBad(list, from); pos < size; pos = skipBad(list, pos) {
			h, err := r.at(pos)
			if err != nil && pos == from && pos > 0 {
				return errIndexWrong
			}
			if err != nil {
				return err
			}
			last.meet(s.base, h)
			if h.MaxTimestamp > largest {
				largest, at = h.MaxTimestamp, h.LastOffset()
			}
			pos += int64(h.Size())
		}
		return last.err()
	})
	return largest, at, err
}

// OffsetForTimestamp returns the first record, not before the log's start, that is not older than ts. ok is
// false when there is none. Like Read it may run beside the owner. When damaged records lie directly before it, one of
// them may have been the first: ErrCorrupt.
func (l *Log) OffsetForTimestamp(ts int64) (found TimestampOffset, ok bool, err error) {
	err = l.onView(func(v *view) error {
		for i := range v.count() {
			s := v.at(i)
			if s.size == 0 || s.next <= v.start {
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

// MaxTimestamp returns the first record that has the largest timestamp of the log (ListOffsets -3, KIP-734).
func (l *Log) MaxTimestamp() (found TimestampOffset, ok bool, err error) {
	largest := int64(-1)
	err = l.onView(func(v *view) error {
		for i := range v.count() {
			s := v.at(i)
			if s.size == 0 || s.next <= v.start {
				continue
			}
			ts, _, err := s.largestTimestamp(s.size)
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
		if h.MaxTimestamp >= ts && mark.err() != nil {
			return TimestampOffset{}, false, errIndexWrong
		}
		if h.MaxTimestamp >= ts && h.LastOffset() >= start {
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
