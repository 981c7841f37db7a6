package log

import (
	"errors"
	"fmt"
	"math"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// errIndexWrong says that an entry of an index leads to where it can't belong: a file of it is damaged.
var errIndexWrong = errors.New("index does not fit the batches")

// lookUp calls look with the segment's file and indexes and, when they prove wrong, once more with new ones that are made
// from the batches. Index files have no checksum: whoever follows an entry checks that it leads to a batch that the
// entry can mean. Safe beside the owner.
func (s *segment) lookUp(size int64, look func(f vfs.File, x *indexes) error) error {
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	x, err := s.index(size)
	if err != nil {
		return err
	}
	if err = look(h.file, x); !errors.Is(err, errIndexWrong) {
		return err
	}
	if x, err = s.scanIndexes(size); err != nil {
		return err
	}
	s.replaceIndex(x)
	if err = look(h.file, x); errors.Is(err, errIndexWrong) {
		err = fmt.Errorf("%s: %w: %w", h.file.Name(), batch.ErrCorrupt, err)
	}
	return err
}

// fits says whether a batch's offsets are ones that its segment's indexes can hold. One whose base offset has a
// flipped bit may have others: the checksum does not cover it.
func (s *segment) fits(h batch.Header) bool {
	return h.BaseOffset >= s.base && h.LastOffset()-s.base <= math.MaxInt32
}

// locate returns the position of the batch that holds offset o, or of the first one after it; size when there
// is none. base is that batch's base offset.
func (s *segment) locate(size int64, o ident.Offset) (pos int64, base ident.Offset, err error) {
	err = s.lookUp(size, func(f vfs.File, x *indexes) error {
		pos, base, err = s.locateBy(f, x, size, o)
		return err
	})
	return pos, base, err
}

func (s *segment) locateBy(f vfs.File, x *indexes, size int64, o ident.Offset) (pos int64, base ident.Offset, err error) {
	buf := lookUpBuffers.Get().(*[]byte)
	defer lookUpBuffers.Put(buf)
	r := headerReader{f: f, size: size, buf: *buf, least: s.base}
	if o > s.base {
		pos = x.floor(relative(s.base, o))
	}
	list := s.damage()
	indexed := pos > 0 && skipBad(list, pos) == pos
	for pos = skipBad(list, pos); pos < size; pos, indexed = skipBad(list, pos), false {
		h, err := r.at(pos)
		if indexed && (err != nil || h.BaseOffset > o) {
			return 0, 0, errIndexWrong
		}
		if err != nil {
			return 0, 0, err
		}
		if h.LastOffset() >= o {
			return pos, h.BaseOffset, nil
		}
		pos += int64(h.Size())
	}
	return pos, o, nil
}

// endBefore returns the offset behind the last batch that lies before pos, a batch boundary; the segment's base when
// there is none.
func (s *segment) endBefore(size, pos int64) (end ident.Offset, err error) {
	err = s.lookUp(size, func(f vfs.File, x *indexes) error {
		buf := lookUpBuffers.Get().(*[]byte)
		defer lookUpBuffers.Put(buf)
		r := headerReader{f: f, size: pos, buf: *buf}
		end = s.base
		at := x.floorPos(pos - 1)
		list := s.damage()
		indexed := at > 0 && skipBad(list, at) == at
		for at = skipBad(list, at); at < pos; at, indexed = skipBad(list, at), false {
			h, err := r.at(at)
			if err != nil && indexed {
				return errIndexWrong
			}
			if err != nil {
				return err
			}
			end = h.NextOffset()
			at += int64(h.Size())
		}
		return nil
	})
	return end, err
}
