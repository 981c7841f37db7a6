package log

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// scrubState is how far the check of the log has come. It belongs to the owner.
type scrubState struct {
	suspects []*segment // to be checked before all others
	segment  *segment   // that is being checked
	checker  *checker
	found    []bad
	begun    bool         // a Scrub is out
	after    ident.Offset // the pass goes on with the first segment whose base is not below
}

// Scrub is a part of the check of a log, between BeginScrub and EndScrub.
type Scrub struct {
	segment     *segment
	checker     *checker
	limit       int64
	truncations int
	found       []bad
	done        bool // the segment's end is reached

	// Bytes is how many were read and checked.
	Bytes int64
}

// Suspect has the segment checked first that an error of a look-up names. It says false when that is not this log's any
// more.
func (l *Log) Suspect(err error) bool {
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) {
		return false
	}
	for _, s := range l.segments {
		if s.base != corrupt.Segment {
			continue
		}
		if !slices.Contains(l.scrub.suspects, s) {
			l.scrub.suspects = append(l.scrub.suspects, s)
		}
		return true
	}
	return false
}

// Suspects says whether a segment waits to be checked before all others.
func (l *Log) Suspects() bool { return len(l.scrub.suspects) > 0 }

// BeginScrub begins to check the next bytes of the log, about limitBytes of them: first the segments that are suspect,
// then the sealed ones in order, for more in those that are damaged. The owner may let go of its lock, call Run, and
// pass the outcome to EndScrub under the lock again. It returns nil when the pass is through all segments; the next
// call begins another one.
func (l *Log) BeginScrub(limitBytes int64) *Scrub {
	st := &l.scrub
	if l.err != nil || st.begun {
		return nil
	}
	s := l.nextToScrub()
	if s == nil {
		st.after = 0
		return nil
	}
	if st.segment != s {
		st.segment, st.found = s, nil
		st.checker = l.checkerOf(s)
	}
	st.begun = true
	return &Scrub{segment: s, checker: st.checker, limit: limitBytes, truncations: l.truncations}
}

func (l *Log) nextToScrub() *segment {
	st := &l.scrub
	st.suspects = slices.DeleteFunc(st.suspects, func(s *segment) bool { return !slices.Contains(l.segments, s) })
	if len(st.suspects) > 0 {
		return st.suspects[0]
	}
	for _, s := range l.segments[:len(l.segments)-1] {
		if s.base >= st.after && s.size > 0 && !s.lost(s.size) {
			return s
		}
	}
	return nil
}

// checkerOf makes a checker for what is now in a segment. It has no file yet.
func (l *Log) checkerOf(s *segment) *checker {
	c := &checker{base: s.base, size: s.size, limit: noOffset, noGaps: l.cfg.StopOnCorruption, gaps: l.mayHaveGaps(), following: l.epochBehind(s), next: s.base, epoch: ident.UnknownEpoch}
	if s != l.active() {
		c.limit = s.next
	}
	if table, err := epoch.New(l.epochs.Entries()); err == nil && len(l.epochs.Entries()) > 0 {
		start := l.start
		c.epochAt = func(o ident.Offset) (ident.Epoch, bool) {
			if o < start {
				return 0, false
			}
			return table.EpochAt(o)
		}
	}
	return c
}

// epochBehind returns the leader epoch of the first batch after the segment, UnknownEpoch when it can't be told.
func (l *Log) epochBehind(s *segment) ident.Epoch {
	i := slices.Index(l.segments, s) + 1
	if i == 0 || i == len(l.segments) {
		return ident.UnknownEpoch
	}
	next := l.segments[i]
	f, err := next.acquire()
	if err != nil {
		return ident.UnknownEpoch
	}
	defer f.release()
	r := headerReader{f: f.file, size: next.size, buf: make([]byte, batch.HeaderSize)}
	if h, err := r.at(0); err == nil && h.BaseOffset == next.base {
		return h.LeaderEpoch
	}
	return ident.UnknownEpoch
}

// Run reads and checks. It may run beside the owner. An error is the disk's, or says that the segment changed
// meanwhile.
func (s *Scrub) Run() error {
	c := s.checker
	f, err := s.segment.acquire()
	if err != nil {
		return err
	}
	defer f.release()
	c.f = f.file
	from := c.pos
	for c.pos < c.size {
		_, damage, err := c.step()
		s.Bytes = c.pos - from
		if err != nil {
			return err
		}
		if damage != nil {
			s.found = append(s.found, *damage)
		}
		if s.Bytes >= s.limit {
			break
		}
	}
	s.done = c.pos >= c.size
	return nil
}

// EndScrub takes the outcome of Run. found says that damage was noted that was not known before.
func (l *Log) EndScrub(s *Scrub, runErr error) (found bool, err error) {
	st := &l.scrub
	st.begun = false
	seg := s.segment
	forget := func() { st.segment, st.checker, st.found = nil, nil, nil }
	if l.err != nil {
		forget()
		return false, l.err
	}
	if s.truncations != l.truncations || !slices.Contains(l.segments, seg) {
		forget() // what was read may have been cut off or written over meanwhile
		return false, nil
	}
	if runErr != nil {
		forget()
		if errors.Is(runErr, io.ErrUnexpectedEOF) || errors.Is(runErr, errFileMissing) {
			// The file is shorter than it was when it was opened, or gone: so is what was in it.
			st.after = seg.base + 1
			return l.examine(seg)
		}
		return false, fmt.Errorf("log %s: check segment %d: %w", l.dir, seg.base, runErr)
	}
	st.found = append(st.found, s.found...)
	if !s.done {
		return false, nil
	}
	l.gaps = l.gaps || s.checker.gaps
	damage, size := st.found, s.checker.size
	next := s.checker.next
	forget()
	st.after = seg.base + 1
	return l.checked(seg, size, next, damage)
}

// examine checks a segment at once, all of it.
func (l *Log) examine(s *segment) (found bool, err error) {
	f, err := s.acquire()
	if errors.Is(err, errFileMissing) {
		return l.checked(s, 0, s.base, nil)
	}
	if err != nil {
		return false, err
	}
	defer f.release()
	size, err := f.file.Size()
	if err != nil {
		return false, err
	}
	c := l.checkerOf(s)
	c.f, c.size = f.file, min(c.size, size)
	var damage []bad
	for c.pos < c.size {
		_, b, err := c.step()
		if err != nil {
			return false, err
		}
		if b != nil {
			damage = append(damage, *b)
		}
	}
	return l.checked(s, c.size, c.next, damage)
}

// checked takes what the check of the first size bytes of a segment has found; next is the offset after them. What is
// known to be damaged stays so. It says whether anything is new.
func (l *Log) checked(s *segment, size int64, next ident.Offset, damage []bad) (found bool, err error) {
	l.scrub.suspects = slices.DeleteFunc(l.scrub.suspects, func(x *segment) bool { return x == s })
	for i := range damage {
		if b := &damage[i]; b.to == noOffset { // of the active segment, whose end is known
			b.to, next = s.next, s.next
		}
	}
	until, sealed := s.next, s != l.active()
	if i := slices.Index(l.segments, s) + 1; i > 0 && i < len(l.segments) {
		until = l.segments[i].base
	}
	if n := len(damage); n > 0 && size < s.size && damage[n-1].end == size {
		damage[n-1].end, damage[n-1].to = s.size, until // one run: a truncation behind it cuts before it
	} else if size == s.size && sealed && !l.mayEnd(s, until, next) || size < s.size {
		damage = append(damage, bad{size, s.size, next, until, missing(s.base, next, until)})
		if size == s.size {
			s.next = next
		}
	}
	damage = slices.DeleteFunc(damage, func(b bad) bool { return b.from >= b.to && b.pos == b.end })
	known := s.damage()
	damage = mergeBad(known, damage)
	s.setDamage(damage)
	same := slices.EqualFunc(known, damage, func(a, b bad) bool { return a.pos == b.pos && a.end == b.end && a.from == b.from && a.to == b.to })
	return !same, l.damageChanged()
}

// examineAnd does something that reads batches, and again after a segment in which they turned out damaged has been
// checked: what is known to be damaged is passed over.
func (l *Log) examineAnd(do func() error) error {
	err := do()
	for range l.segments {
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			return err
		}
		i := slices.IndexFunc(l.segments, func(s *segment) bool { return s.base == corrupt.Segment })
		if i < 0 {
			return err
		}
		if found, e := l.examine(l.segments[i]); e != nil || !found {
			return cmp.Or(e, err)
		}
		err = do()
	}
	return err
}
