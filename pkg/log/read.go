package log

import (
	"errors"
	"fmt"
	"io"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// Chunk is a piece of a log: whole batches, as ranges of its files. The ranges stay readable until Release,
// also when retention removes the segment meanwhile.
type Chunk struct {
	Ranges []Range
	// First is the base offset of the first batch, which may be below the offset that was asked for, or above it
	// where compaction left a gap; Next is where to read on: behind the last batch. Both are the offset asked for
	// when the chunk is empty.
	First, Next ident.Offset
	Bytes       int
}

// Range is a run of bytes in a file. File is a vfs.OSFiler when the log is on the real file system.
type Range struct {
	File vfs.File
	Pos  int64
	Len  int

	handle *handle
}

// Release gives the ranges back. It must be called once.
func (c *Chunk) Release() {
	for i := range c.Ranges {
		c.Ranges[i].handle.release()
	}
	c.Ranges = nil
}

// AppendTo reads the chunk and appends it to dst. io.ErrUnexpectedEOF says that it was truncated away.
func (c *Chunk) AppendTo(dst []byte) ([]byte, error) {
	for _, r := range c.Ranges {
		n := len(dst)
		dst = append(dst, make([]byte, r.Len)...)
		if err := readFull(r.File, dst[n:], r.Pos); err != nil {
			return dst[:n], err
		}
	}
	return dst, nil
}

// Read returns whole batches from the one that holds offset from on, or the next one after it, of at most maxBytes and with records below
// the offset below only; with minOne the first batch is returned whatever its size. It is empty when there is
// nothing to return yet. It may run beside the log's owner.
//
// ErrOffsetOutOfRange says that from is below the log's start or beyond its end, ErrCorrupt that the log is
// damaged there: a CorruptError when that is new. What is whole before and after damage is read.
func (l *Log) Read(from ident.Offset, maxBytes int, below ident.Offset, minOne bool) (Chunk, error) {
	var c Chunk
	err := l.onView(func(v *view) (err error) {
		c, err = l.read(v, from, int64(maxBytes), below, minOne)
		return err
	})
	return c, err
}

// onView calls f with what readers see, and again as long as that is overtaken while it runs.
func (l *Log) onView(f func(v *view) error) error {
	for short := 0; ; {
		v := l.view.Load()
		err := f(v)
		switch {
		case errors.Is(err, errSegmentGone):
			if l.view.Load() == v {
				return fmt.Errorf("log %s: %w", l.dir, ErrClosed)
			}
		case errors.Is(err, io.ErrUnexpectedEOF) && short < 3 && l.view.Load() != v:
			// A truncation shows the new view before it shortens the file. But appends change the view too: a file that
			// has lost its end is short again.
			short++
		default:
			return err
		}
	}
}

// errSegmentGone says that the view was overtaken: a segment of it has been dropped.
var errSegmentGone = errors.New("segment is gone")

func (l *Log) read(v *view, from ident.Offset, maxBytes int64, below ident.Offset, minOne bool) (c Chunk, err error) {
	c.First, c.Next = from, from
	if from < v.start || from > v.end {
		return c, fmt.Errorf("log %s: %w: %d is not in %d to %d", l.dir, ErrOffsetOutOfRange, from, v.start, v.end)
	}
	below = min(below, v.end)
	if from >= below {
		return c, nil
	}
	d, whole := v.damageAt(from, below)
	if l.cfg.ServeDamaged {
		d, whole = nil, below
	}
	below = whole
	if d != nil {
		return c, fmt.Errorf("log %s: %w: %s", l.dir, ErrCorrupt, d)
	}
	defer func() {
		if err != nil {
			c.Release()
			c.Bytes = 0
		}
	}()
	for i := v.find(from); i < v.count(); i++ {
		s := v.at(i)
		if s.size == 0 || s.next <= from {
			continue
		}
		if s.base >= below || c.Bytes > 0 && int64(c.Bytes) >= maxBytes {
			break
		}
		h, err := s.acquire()
		if err != nil {
			return c, l.readError(s.segment, err)
		}
		piece := piece{segmentView: s, below: below,
			maxBytes: maxBytes - int64(c.Bytes), minOne: minOne && c.Bytes == 0}
		if len(c.Ranges) == 0 {
			err = piece.findStart(from)
		} else {
			piece.first = s.base
		}
		if err == nil {
			err = piece.findEnd()
		}
		if err != nil || piece.end == piece.start {
			h.release()
			if err == nil && piece.start == s.size {
				continue // nothing in it from there on: compaction, by Kafka, has dropped its end
			}
			return c, l.readError(s.segment, err)
		}
		if len(c.Ranges) == 0 {
			c.First = piece.first
		}
		c.Ranges = append(c.Ranges, Range{File: h.file, Pos: piece.start, Len: int(piece.end - piece.start), handle: h})
		c.Bytes += int(piece.end - piece.start)
		c.Next = piece.next
		if piece.end < s.size {
			break
		}
	}
	return c, nil
}

func (l *Log) readError(s *segment, err error) error {
	var corrupt *CorruptError
	switch {
	case err == nil, errors.Is(err, errSegmentGone):
		return err
	case errors.As(err, &corrupt):
		return err
	case isCorrupt(err), errors.Is(err, batch.ErrCompression):
		return &CorruptError{l.dir, s.base, err}
	}
	return fmt.Errorf("log %s: %w", l.dir, err)
}

// piece is what one segment gives to a chunk.
type piece struct {
	*segmentView
	below      ident.Offset
	maxBytes   int64
	minOne     bool
	start, end int64
	first      ident.Offset // base offset of the batch at start
	next       ident.Offset // offset after the batch that ends at end
}

func (p *piece) findStart(from ident.Offset) error {
	var err error
	p.start, p.first, err = p.locate(p.size, from)
	p.end, p.next = p.start, from
	return err
}

// findEnd sets end to the last batch boundary within the limits.
func (p *piece) findEnd() error {
	if p.below >= p.segmentView.next && p.size-p.start <= p.maxBytes {
		p.end, p.next = p.size, p.segmentView.next
		return nil
	}
	return p.lookUp(p.size, p.findEndBy)
}

// findEndBy is led by the index, so that few headers are read.
func (p *piece) findEndBy(f vfs.File, x *indexes) error {
	// All batches before an index entry end before its offset.
	p.end, p.next = p.start, p.first
	p.end = max(p.start, min(x.floorPos(p.start+p.maxBytes), x.floor(relative(p.base, min(p.below, p.segmentView.next)))))
	buf := lookUpBuffers.Get().(*[]byte)
	defer lookUpBuffers.Put(buf)
	r := headerReader{f: f, size: p.size, buf: *buf, least: p.base}
	list := p.damage()
	for indexed := p.end > p.start; p.end < p.size; indexed = false {
		if b := stopsAt(list, p.end); b != nil && p.end > p.start {
			p.next = b.from
			return nil
		}
		h, err := r.at(p.end)
		if indexed && (err != nil || h.BaseOffset <= p.first || h.BaseOffset > p.below) {
			return errIndexWrong
		}
		if err != nil {
			return err
		}
		if h.NextOffset() > p.segmentView.next {
			return fmt.Errorf("%s at %d: %w: offsets %d to %d, but the segment ends at %d", f.Name(), p.end, batch.ErrCorrupt, h.BaseOffset, h.LastOffset(), p.segmentView.next)
		}
		if p.end > p.start {
			p.next = min(h.BaseOffset, p.below)
		}
		end := p.end + int64(h.Size())
		if h.NextOffset() > p.below || end-p.start > p.maxBytes && (p.end > p.start || !p.minOne) {
			return nil
		}
		p.end, p.next = end, h.NextOffset()
	}
	p.next = p.segmentView.next
	return nil
}
