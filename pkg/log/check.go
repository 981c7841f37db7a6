package log

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// bad is a run of a segment's bytes that is no part of the log: records were there and are not whole. Offsets from to
// to are lost with it. It has no bytes where records are missing from between two batches or segments.
type bad struct {
	pos, end int64
	from, to ident.Offset
	err      error
}

// noOffset stands for an offset that nothing tells.
const noOffset = ident.Offset(-1)

// A checker reads the batches of a segment one after the other and checks each: offsets and epochs that follow on,
// the checksum. Where one is not as it must be it goes on at the next valid batch.
type checker struct {
	f     vfsFile
	base  ident.Offset // of the segment
	size  int64        // bytes from here on are not part of the log
	limit ident.Offset // the base of the segment that follows; of the last one where it was closed, noOffset when nobody knows
	// Compaction leaves gaps between batches. noGaps: there are none in this log; gaps: there are, or it was met one that
	// nothing else explains. While neither is known, one counts only when what follows confirms it.
	noGaps, gaps bool
	// epochAt tells the leader epoch of an offset where that is known otherwise; nil: it is not.
	epochAt func(ident.Offset) (ident.Epoch, bool)

	// following is the leader epoch of the first batch of the segment that follows; UnknownEpoch when there is none.
	following ident.Epoch

	pos   int64        // of the batch that step checks next
	next  ident.Offset // that is expected there
	epoch ident.Epoch  // of the batch before

	buf   []byte
	bufAt int64
	bufN  int
}

const checkBytes = 256 << 10

// step checks the batch at pos, which must be below size, and moves on. damage is set instead of a header when
// something is wrong there; its to is noOffset when nothing valid follows and nothing else tells. Errors are the disk's.
func (c *checker) step() (h batch.Header, damage *bad, err error) {
	h, wrong, err := c.check(c.pos, c.next)
	switch {
	case err != nil:
		return h, nil, err
	case wrong == nil && h.BaseOffset > c.next && c.noGaps:
		// Whole batches are missing; this one is right.
		damage = &bad{c.pos, c.pos, c.next, h.BaseOffset, fmt.Errorf("%w: base offset is %d, expected %d", batch.ErrCorrupt, h.BaseOffset, c.next)}
		c.next = h.BaseOffset
		return h, damage, nil
	case wrong == nil:
		c.gaps = c.gaps || h.BaseOffset > c.next
		c.pos, c.next, c.epoch = c.pos+int64(h.Size()), h.NextOffset(), h.LeaderEpoch
		return h, nil, nil
	}
	damage = &bad{pos: c.pos, from: c.next, err: wrong}
	if damage.end, damage.to, err = c.resync(); err != nil {
		return h, nil, err
	}
	c.pos, c.next = damage.end, damage.to
	return h, damage, nil
}

// check checks one batch. wrong says what its bytes are at fault for, err that they could not be read.
func (c *checker) check(pos int64, expected ident.Offset) (h batch.Header, wrong, err error) {
	if h, wrong, err = c.header(pos); wrong != nil || err != nil {
		return h, wrong, err
	}
	switch {
	case h.BaseOffset < expected:
		wrong = fmt.Errorf("%w: base offset is %d, expected %d", batch.ErrCorrupt, h.BaseOffset, expected)
	case c.limit >= 0 && h.NextOffset() > c.limit:
		wrong = fmt.Errorf("%w: offsets up to %d, but there the log went on, or was closed, at %d", batch.ErrCorrupt, h.LastOffset(), c.limit)
	case h.LastOffset()-c.base > math.MaxInt32:
		wrong = fmt.Errorf("%w: offset %d does not fit in segment %d", batch.ErrCorrupt, h.LastOffset(), c.base)
	case h.LeaderEpoch < c.epoch:
		wrong = fmt.Errorf("%w: leader epoch is %d, after %d", batch.ErrCorrupt, h.LeaderEpoch, c.epoch)
	default:
		wrong, err = c.checksum(pos, h)
		if wrong == nil && err == nil && h.BaseOffset > expected {
			wrong, err = c.checkJump(pos, h, expected)
		}
		if wrong == nil && err == nil {
			wrong, err = c.checkEpoch(pos, h)
		}
	}
	return h, wrong, err
}

// checkJump tells a base offset that has become too high, which the checksum does not cover, from batches that are
// missing before this one: what follows goes on from it only when it is right. In a log that is not known to have
// gaps there is none before the last batch.
func (c *checker) checkJump(pos int64, h batch.Header, expected ident.Offset) (wrong, err error) {
	right := c.gaps || c.limit >= 0 && (!c.noGaps || h.NextOffset() == c.limit)
	if after := pos + int64(h.Size()); after < c.size {
		next, unreadable, err := c.header(after)
		switch {
		case err != nil:
			return nil, err
		case unreadable != nil:
			right = c.gaps || c.noGaps
		default:
			right = next.BaseOffset == h.NextOffset() || next.BaseOffset > h.NextOffset() && !c.noGaps
		}
	}
	if right {
		return nil, nil
	}
	return fmt.Errorf("%w: base offset is %d, expected %d, and what follows does not go on from there", batch.ErrCorrupt, h.BaseOffset, expected), nil
}

// checkEpoch is for what the checksum does not cover: an epoch that has become too high would make all that follow it
// look wrong.
func (c *checker) checkEpoch(pos int64, h batch.Header) (wrong, err error) {
	if c.epochAt != nil {
		if e, ok := c.epochAt(h.BaseOffset); ok && e != h.LeaderEpoch {
			return fmt.Errorf("%w: leader epoch is %d, offset %d is of epoch %d", batch.ErrCorrupt, h.LeaderEpoch, h.BaseOffset, e), nil
		} else if ok {
			return nil, nil
		}
	}
	if h.LeaderEpoch == c.epoch {
		return nil, nil
	}
	following := c.following
	if after := pos + int64(h.Size()); after < c.size {
		next, wrong, err := c.header(after)
		if err != nil || wrong != nil || next.BaseOffset < h.NextOffset() {
			return nil, err
		}
		following = next.LeaderEpoch
	}
	if following >= max(c.epoch, 0) && following < h.LeaderEpoch {
		return fmt.Errorf("%w: leader epoch is %d, the next batch's is %d", batch.ErrCorrupt, h.LeaderEpoch, following), nil
	}
	return nil, nil
}

func (c *checker) header(pos int64) (h batch.Header, wrong, err error) {
	if err := c.fill(pos, batch.HeaderSize); err != nil {
		return h, nil, err
	}
	if h, wrong = batch.ParseHeader(c.buf[pos-c.bufAt : c.bufN]); wrong == nil && int64(h.Size()) > c.size-pos {
		wrong = fmt.Errorf("%w: %d of %d bytes", batch.ErrTruncated, c.size-pos, h.Size())
	}
	return h, wrong, nil
}

// checksum reads a batch in pieces: a length that is garbage must not cost memory.
func (c *checker) checksum(pos int64, h batch.Header) (wrong, err error) {
	crc := uint32(0)
	for at, end := pos+batch.CRCStart, pos+int64(h.Size()); at < end; {
		if err := c.fill(at, 1); err != nil {
			return nil, err
		}
		part := c.buf[at-c.bufAt : min(int64(c.bufN), end-c.bufAt)]
		crc = batch.UpdateCRC(crc, part)
		at += int64(len(part))
	}
	return batch.CheckCRC(crc, h), nil
}

// fill makes the bytes from pos on available, n of them or what the file has.
func (c *checker) fill(pos int64, n int) error {
	n = int(min(int64(n), c.size-pos))
	if pos >= c.bufAt && pos+int64(n) <= c.bufAt+int64(c.bufN) {
		return nil
	}
	if c.buf == nil {
		c.buf = make([]byte, min(checkBytes, max(c.size, batch.HeaderSize)))
	}
	c.bufN = 0
	want := int(min(int64(len(c.buf)), c.size-pos))
	got, err := c.f.ReadAt(c.buf[:want], pos)
	if got < want {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read %s at %d: %w", c.f.Name(), pos, err)
	}
	c.bufAt, c.bufN = pos, want
	return nil
}

// resync finds where the log goes on after what is wrong at pos: the position of the next valid batch and its base
// offset, or the end of the segment.
func (c *checker) resync() (int64, ident.Offset, error) {
	end := noOffset
	if h, wrong, err := c.header(c.pos); err != nil {
		return 0, 0, err
	} else if wrong == nil {
		// Most likely only what the header does not say is wrong, and the next batch is where it ends.
		if after := c.pos + int64(h.Size()); after < c.size {
			if next, ok, err := c.follows(after); err != nil || ok {
				return after, next.BaseOffset, err
			}
		} else if h.BaseOffset == c.next && h.NumRecords == h.LastOffsetDelta+1 {
			end = h.NextOffset()
		}
	}
	const magicAt = 16
	for pos := c.pos + 1; c.size-pos >= batch.HeaderSize; pos++ {
		if err := c.fill(pos, batch.HeaderSize); err != nil {
			return 0, 0, err
		}
		if c.buf[pos-c.bufAt+magicAt] != batch.Magic {
			continue
		}
		if next, ok, err := c.follows(pos); err != nil || ok {
			return pos, next.BaseOffset, err
		}
	}
	if c.limit >= 0 {
		end = c.limit
	}
	return c.size, end, nil
}

// follows says whether a valid batch at pos can be one of this log after what is wrong. Records can hold batches too,
// of other logs.
func (c *checker) follows(pos int64) (batch.Header, bool, error) {
	const furthest = 1 << 31 // what a segment's offsets span at most
	h, wrong, err := c.header(pos)
	if err != nil || wrong != nil || h.BaseOffset < c.next || h.BaseOffset-c.next > furthest {
		return h, false, err
	}
	_, wrong, err = c.check(pos, c.next)
	return h, err == nil && wrong == nil, err
}
