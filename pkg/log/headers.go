package log

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// headerReader walks the batch headers of a file through a small buffer.
type headerReader struct {
	f    vfs.File
	size int64 // bytes from here on are not part of the log
	buf  []byte
	pos  int64 // of buf[0]
	n    int   // valid bytes in buf

	least ident.Offset // no batch begins below: the segment's base, then the end of the last batch that was read
	seen  int64        // a position after that batch's first byte
}

const (
	lookUpBytes = 4 << 10
	scanBytes   = 64 << 10
)

var lookUpBuffers = sync.Pool{New: func() any { b := make([]byte, lookUpBytes); return &b }}

// at returns the header of the batch at pos. The batch must end within the file: batch.ErrTruncated if not. It must not
// begin with an offset of a batch before it that was read: batch.ErrCorrupt.
// io errors are wrapped; a file that is shorter than size, truncated meanwhile or damaged, is io.ErrUnexpectedEOF.
func (r *headerReader) at(pos int64) (batch.Header, error) {
	want := int(min(batch.HeaderSize, r.size-pos))
	if want < batch.HeaderSize {
		return batch.Header{}, fmt.Errorf("%w: %d bytes at position %d", batch.ErrTruncated, want, pos)
	}
	if pos < r.pos || pos+int64(want) > r.pos+int64(r.n) {
		r.pos, r.n = pos, 0
		n, err := r.f.ReadAt(r.buf[:min(int64(len(r.buf)), r.size-pos)], pos)
		if n < want {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return batch.Header{}, fmt.Errorf("read %s at %d: %w", r.f.Name(), pos, err)
		}
		r.n = n
	}
	h, err := batch.ParseHeader(r.buf[pos-r.pos : pos-r.pos+int64(want)])
	if err != nil {
		return h, fmt.Errorf("%s at %d: %w", r.f.Name(), pos, err)
	}
	if int64(h.Size()) > r.size-pos {
		return h, fmt.Errorf("%s at %d: %w: %d of %d bytes", r.f.Name(), pos, batch.ErrTruncated, r.size-pos, h.Size())
	}
	if pos >= r.seen {
		if h.BaseOffset < r.least {
			return h, fmt.Errorf("%s at %d: %w: base offset is %d, after offset %d", r.f.Name(), pos, batch.ErrCorrupt, h.BaseOffset, r.least-1)
		}
		r.least, r.seen = h.NextOffset(), pos+1
	}
	return h, nil
}

// eachHeader calls visit for the batches of the segment's first size bytes that are not damaged, from the one at pos on,
// as long as it says so.
func (s *segment) eachHeader(f vfs.File, pos, size int64, visit func(h batch.Header, pos int64) (more bool, err error)) error {
	r := headerReader{f: f, size: size, buf: make([]byte, scanBytes)}
	list := s.damage()
	for pos = skipBad(list, pos); pos < size; pos = skipBad(list, pos) {
		h, err := r.at(pos)
		if err != nil {
			return err
		}
		if more, err := visit(h, pos); err != nil || !more {
			return err
		}
		pos += int64(h.Size())
	}
	return nil
}

// readFull reads exactly len(p) bytes.
func readFull(f vfs.File, p []byte, pos int64) error {
	n, err := f.ReadAt(p, pos)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %s at %d: %w", f.Name(), pos, err)
}
