package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// sendfileMin is the length from which a file range is sent by sendfile; below it a read into the response
// buffer is as cheap and saves a system call.
const sendfileMin = 32 << 10

// Segment is a part of a response: bytes in memory, or a range of a file that need not pass through memory.
type Segment struct {
	// Bytes are sent when File is nil. They must not change until the response is released.
	Bytes []byte
	// File is read from Offset, Length bytes. When it is an *os.File or has the method OSFile() *os.File, large
	// ranges go by sendfile. The range must stay readable until the response is released: a file that turns
	// out shorter breaks the connection, since the length is already promised.
	File           io.ReaderAt
	Offset, Length int64
}

// Size is the number of bytes of the segment.
func (s Segment) Size() int64 {
	if s.File == nil {
		return int64(len(s.Bytes))
	}
	return s.Length
}

// osFile returns the operating system's file behind s, nil when there is none.
func (s Segment) osFile() *os.File {
	switch f := s.File.(type) {
	case *os.File:
		return f
	case interface{ OSFile() *os.File }:
		return f.OSFile()
	}
	return nil
}

// readInto fills b, which has the segment's size, from a file range.
func (s Segment) readInto(b []byte) error {
	n, err := s.File.ReadAt(b, s.Offset)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at %d for a response: %w", len(b), s.Offset, err)
}

// Response is the body of an answer as parts to be written one after the other, without header and length.
type Response struct {
	Segments []Segment
	// Release, when not nil, is called exactly once when the parts are no longer needed: after they were
	// written, or when the connection is gone. It may be called from any goroutine.
	Release func()
}

// Size is the number of bytes of the body.
func (r *Response) Size() int64 {
	var n int64
	for _, s := range r.Segments {
		n += s.Size()
	}
	return n
}

// AppendTo appends the body to dst, reading file ranges; it does not release.
func (r *Response) AppendTo(dst []byte) ([]byte, error) {
	for _, s := range r.Segments {
		if s.File == nil {
			dst = append(dst, s.Bytes...)
			continue
		}
		at := len(dst)
		dst = append(dst, make([]byte, s.Length)...)
		if err := s.readInto(dst[at:]); err != nil {
			return dst[:at], err
		}
	}
	return dst, nil
}

func (r *Response) release() {
	if r != nil && r.Release != nil {
		r.Release()
	}
}
