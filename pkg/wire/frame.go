package wire

import (
	"io"

	"github.com/highwater-io/highwater/pkg/buffer"
)

// readStep bounds what is reserved before the bytes are there.
const readStep = 1 << 20

// readFrame reads size bytes, into a buffer that its reader releases if it is pooled. before is called ahead of each
// step of at most readStep bytes. Memory grows with what has arrived: a length alone costs its sender nothing.
func readFrame(in io.Reader, size int, pooled bool, before func()) (*buffer.Buffer, error) {
	lend := buffer.New
	if pooled {
		lend = buffer.Get
	}
	frame := lend(min(size, readStep))
	for len(frame.B) < size {
		if len(frame.B) == cap(frame.B) {
			grown := lend(min(size, 2*cap(frame.B)))
			grown.B = append(grown.B, frame.B...)
			frame.Release()
			frame = grown
		}
		before()
		at := len(frame.B)
		frame.B = frame.B[:min(cap(frame.B), size, at+readStep)]
		if _, err := io.ReadFull(in, frame.B[at:]); err != nil {
			frame.Release()
			return nil, err
		}
	}
	return frame, nil
}
