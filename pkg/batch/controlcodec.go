package batch

import (
	"encoding/binary"
	"fmt"

	"github.com/highwater-io/highwater/pkg/ident"
)

// writer and reader are Kafka's flexible encoding, as far as the control records need it (KIP-482).
type writer struct{ b []byte }

func (w *writer) int16(v int16)   { w.b = binary.BigEndian.AppendUint16(w.b, uint16(v)) }
func (w *writer) int32(v int32)   { w.b = binary.BigEndian.AppendUint32(w.b, uint32(v)) }
func (w *writer) int64(v int64)   { w.b = binary.BigEndian.AppendUint64(w.b, uint64(v)) }
func (w *writer) bytes(v []byte)  { w.b = append(w.b, v...) }
func (w *writer) count(n int)     { w.b = binary.AppendUvarint(w.b, uint64(n)+1) }
func (w *writer) string(v string) { w.count(len(v)); w.b = append(w.b, v...) }
func (w *writer) tags()           { w.b = append(w.b, 0) }

// reader keeps its first error and reads zeros after it.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail("%d bytes missing", n-len(r.b))
	}
	if r.err != nil {
		return make([]byte, min(n, 16))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) int16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *reader) uuid() ident.UUID { return ident.UUID(r.take(16)) }

func (r *reader) uvarint() int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<31-1 {
		r.fail("number of variable length is cut off or too large")
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

// count reads an array's length and refuses one that its elements, of minBytes at least, can't have.
func (r *reader) count(minBytes int) int {
	n := r.uvarint() - 1
	if r.err == nil && (n < 0 || n > len(r.b)/minBytes) {
		r.fail("array of %d elements in %d bytes", n, len(r.b))
	}
	if r.err != nil {
		return 0
	}
	return n
}

func (r *reader) string() string {
	n := r.uvarint() - 1
	if r.err == nil && (n < 0 || n > len(r.b)) {
		r.fail("string of %d bytes in %d", n, len(r.b))
	}
	if r.err != nil {
		return ""
	}
	return string(r.take(n))
}

// tags skips tagged fields, none of which is known.
func (r *reader) tags() {
	for range r.uvarint() {
		r.uvarint()
		n := r.uvarint()
		if r.err == nil && n > len(r.b) {
			r.fail("tagged field of %d bytes in %d", n, len(r.b))
		}
		if r.err != nil {
			return
		}
		r.b = r.b[n:]
	}
}

func (r *reader) version(highest int16) int16 {
	v := r.int16()
	if r.err == nil && (v < 0 || v > highest) {
		r.fail("version %d is not one of 0 to %d", v, highest)
	}
	return v
}

func (r *reader) finish(name string) error {
	r.tags()
	if r.err == nil && len(r.b) != 0 {
		r.fail("%d bytes left over", len(r.b))
	}
	if r.err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, name, r.err)
	}
	return nil
}
