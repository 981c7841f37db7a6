package log

import "github.com/highwater-io/highwater/pkg/batch"

// indexCheck compares index files with the batches that a scan finds, one after the other. Entries need not be those
// that the scan would make: the interval may have been another one, and each clean shutdown adds a time entry.
type indexCheck struct {
	offsets []offsetEntry // not met yet
	times   []timeEntry
	entries int // of the offset index
	last    timeEntry
	wrong   bool
}

func newIndexCheck(s *segment, size int64) *indexCheck {
	x, err := s.readIndexes(size)
	if err != nil {
		return &indexCheck{wrong: true}
	}
	c := &indexCheck{offsets: *x.offsets.Load(), times: *x.times.Load()}
	c.entries = len(c.offsets)
	if n := len(c.times); n > 0 {
		c.last = c.times[n-1]
	}
	return c
}

// note takes the batch at pos, which s has noted.
func (c *indexCheck) note(s *segment, h batch.Header, pos int64) {
	last := relative(s.base, h.LastOffset())
	if len(c.offsets) > 0 && int64(c.offsets[0].pos) <= pos {
		c.wrong = c.wrong || c.offsets[0] != offsetEntry{last, uint32(pos)}
		c.offsets = c.offsets[1:]
	}
	if len(c.times) > 0 && c.times[0].rel <= last {
		c.wrong = c.wrong || c.times[0] != timeEntry{s.maxTS, last} || s.maxTSOffset != h.LastOffset()
		c.times = c.times[1:]
		c.wrong = c.wrong || len(c.times) > 0 && c.times[0].rel <= last
	}
}

// right says whether all entries were met, the last one tells the largest timestamp, and x, which the scan has made,
// has not many more.
func (c *indexCheck) right(x *indexes) bool {
	made := *x.times.Load()
	return !c.wrong && len(c.offsets) == 0 && len(c.times) == 0 && len(*x.offsets.Load()) <= 2*c.entries+1 &&
		(len(made) == 0 || made[len(made)-1] == c.last)
}
