package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/highwater-io/highwater/pkg/ident"
)

// A Tag is a tagged field (KIP-482) that this version of the code does not know. It is kept, so that a record
// written by a newer Kafka is written again as it was read.
type Tag struct {
	Number uint32
	Value  []byte
}

// maxString is the longest string that Kafka's message format takes, in bytes.
const maxString = math.MaxInt16

var errShort = errors.New("ends in the middle of a field")

// A coder walks over the fields of a record and either reads or writes them, so that each record says its layout
// once. After the first error it does nothing more.
type coder struct {
	buf     []byte // reading: what is left; writing: what was written
	writing bool
	version int16
	err     error
}

func (c *coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
		c.stop()
	}
}

func (c *coder) stop() {
	if !c.writing {
		c.buf = nil
	}
}

// take returns the next n bytes, or nil after setting the error.
func (c *coder) take(n int) []byte {
	if c.err != nil {
		return nil
	}
	if n > len(c.buf) {
		c.err = errShort
		c.stop()
		return nil
	}
	b := c.buf[:n]
	c.buf = c.buf[n:]
	return b
}

func code8[T ~int8](c *coder, p *T) {
	if c.writing {
		c.buf = append(c.buf, byte(*p))
	} else if b := c.take(1); b != nil {
		*p = T(b[0])
	}
}

func (c *coder) bool(p *bool) {
	if c.writing {
		b := byte(0)
		if *p {
			b = 1
		}
		c.buf = append(c.buf, b)
	} else if b := c.take(1); b != nil {
		*p = b[0] != 0
	}
}

func code16[T ~int16 | ~uint16](c *coder, p *T) {
	if c.writing {
		c.buf = binary.BigEndian.AppendUint16(c.buf, uint16(*p))
	} else if b := c.take(2); b != nil {
		*p = T(binary.BigEndian.Uint16(b))
	}
}

func code32[T ~int32](c *coder, p *T) {
	if c.writing {
		c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(*p))
	} else if b := c.take(4); b != nil {
		*p = T(binary.BigEndian.Uint32(b))
	}
}

func code64[T ~int64](c *coder, p *T) {
	if c.writing {
		c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(*p))
	} else if b := c.take(8); b != nil {
		*p = T(binary.BigEndian.Uint64(b))
	}
}

func (c *coder) float64(p *float64) {
	bits := int64(math.Float64bits(*p))
	code64(c, &bits)
	if !c.writing {
		*p = math.Float64frombits(uint64(bits))
	}
}

func (c *coder) uuid(p *ident.UUID) {
	if c.writing {
		c.buf = append(c.buf, p[:]...)
	} else if b := c.take(16); b != nil {
		copy(p[:], b)
	}
}

// uvarint is Kafka's unsigned varint: at most 32 bits in five bytes.
func (c *coder) uvarint(p *uint32) {
	if c.writing {
		c.buf = binary.AppendUvarint(c.buf, uint64(*p))
		return
	}
	if c.err != nil {
		return
	}
	v, n := binary.Uvarint(c.buf)
	switch {
	case n == 0:
		c.err = errShort
		c.stop()
	case n < 0 || n > 5 || v > math.MaxUint32:
		c.fail("varint is longer than 32 bits")
	default:
		*p = uint32(v)
		c.buf = c.buf[n:]
	}
}

// length codes a compact length: 0 is null, else the length plus one. When reading it checks n against the bytes
// that are left, elementSize being the least that one element takes, so that nothing is allocated on a mere claim.
func (c *coder) length(n, elementSize int, null, nullable bool) (int, bool) {
	if c.writing {
		raw := uint32(n) + 1
		if null {
			raw = 0
		}
		c.uvarint(&raw)
		return n, null
	}
	var raw uint32
	c.uvarint(&raw)
	if c.err != nil {
		return 0, true
	}
	if raw == 0 {
		if !nullable {
			c.fail("null where the field can't be null")
		}
		return 0, true
	}
	if int64(raw-1)*int64(elementSize) > int64(len(c.buf)) {
		c.fail("a length of %d is more than the %d bytes that are left can hold", raw-1, len(c.buf))
		return 0, true
	}
	return int(raw - 1), false
}

func (c *coder) string(p *string) {
	if c.writing && len(*p) > maxString {
		c.fail("string of %d bytes, the longest that the format takes is %d", len(*p), maxString)
		return
	}
	n, null := c.length(len(*p), 1, false, false)
	if c.writing {
		c.buf = append(c.buf, *p...)
	} else if !null {
		*p = c.readString(n)
	}
}

func (c *coder) nullableString(p **string) {
	if !c.writing {
		if n, null := c.length(0, 1, false, true); !null {
			s := c.readString(n)
			*p = &s
		}
		return
	}
	if *p == nil {
		c.length(0, 1, true, true)
		return
	}
	c.string(*p)
}

func (c *coder) readString(n int) string {
	if n > maxString {
		c.fail("string of %d bytes, the longest that the format takes is %d", n, maxString)
		return ""
	}
	return string(c.take(n))
}

func (c *coder) bytes(p *[]byte) {
	n, null := c.length(len(*p), 1, false, false)
	if c.writing {
		c.buf = append(c.buf, *p...)
	} else if !null {
		*p = append([]byte{}, c.take(n)...)
	}
}

// array codes a compact array. An empty array that can't be null is read as nil; one that can is read as empty,
// because for those null and empty differ.
func array[T any](c *coder, p *[]T, elementSize int, nullable bool, element func(*coder, *T)) {
	n, null := c.length(len(*p), elementSize, nullable && *p == nil, nullable)
	if !c.writing {
		if null || (n == 0 && !nullable) {
			*p = nil
			return
		}
		*p = make([]T, n)
	}
	for i := 0; i < n && c.err == nil; i++ {
		element(c, &(*p)[i])
	}
}

func (c *coder) nodeIDs(p *[]ident.NodeID, nullable bool) {
	array(c, p, 4, nullable, code32[ident.NodeID])
}

func (c *coder) uuids(p *[]ident.UUID, nullable bool) {
	array(c, p, 16, nullable, (*coder).uuid)
}

// since says that the fields behind it exist from version first on. A value that an older version has no room for
// is an error when writing: dropping it would make the log say something else than the writer meant.
func (c *coder) since(first int16, set bool, field string) bool {
	if c.version >= first {
		return true
	}
	if c.writing && set {
		c.fail("%s is set, but version %d has no such field (it came with version %d)", field, c.version, first)
	}
	return false
}

// A tagged field of a struct R that the code knows. R's fields stand in a table of the package, so that coding allocates
// nothing for them.
type knownTag[R any] struct {
	number uint32
	first  int16           // the record version it came with
	set    func(r *R) bool // writing: differs from the default
	name   string          // for errors
	body   func(c *coder, r *R)
}

// noTags codes the tagged fields of a struct of which none is known.
func (c *coder) noTags(unknown *[]Tag) { tags[struct{}](c, nil, unknown, nil) }

// tags codes the tagged fields that end every struct: the known ones of r, given in the order of their numbers, and
// what else was found.
func tags[R any](c *coder, r *R, unknown *[]Tag, known []knownTag[R]) {
	if c.writing {
		writeTags(c, r, *unknown, known)
	} else {
		readTags(c, r, unknown, known)
	}
}

func writeTags[R any](c *coder, r *R, unknown []Tag, known []knownTag[R]) {
	count := uint32(len(unknown))
	for i := range known {
		if k := &known[i]; k.set(r) && c.since(k.first, true, k.name) {
			count++
		}
	}
	if c.uvarint(&count); count == 0 {
		return
	}
	for i := range known {
		k := &known[i]
		for len(unknown) > 0 && unknown[0].Number < k.number {
			c.rawTag(unknown[0].Number, unknown[0].Value)
			unknown = unknown[1:]
		}
		if !k.set(r) {
			continue
		}
		body := coder{writing: true, version: c.version}
		if k.body(&body, r); body.err != nil && c.err == nil {
			c.err = body.err
		}
		c.rawTag(k.number, body.buf)
	}
	for _, t := range unknown {
		c.rawTag(t.Number, t.Value)
	}
}

func (c *coder) rawTag(number uint32, value []byte) {
	n := uint32(len(value))
	c.uvarint(&number)
	c.uvarint(&n)
	c.buf = append(c.buf, value...)
}

func readTags[R any](c *coder, r *R, unknown *[]Tag, known []knownTag[R]) {
	var count uint32
	c.uvarint(&count)
	last := int64(-1)
	for ; count > 0 && c.err == nil; count-- {
		var number, size uint32
		c.uvarint(&number)
		c.uvarint(&size)
		if c.err != nil {
			return
		}
		if int64(number) <= last {
			c.fail("tagged field %d comes after %d", number, last)
			return
		}
		last = int64(number)
		if int64(size) > int64(len(c.buf)) {
			c.err = errShort
			c.stop()
			return
		}
		value := c.take(int(size))
		if !readKnownTag(c, r, known, number, value) && c.err == nil {
			*unknown = append(*unknown, Tag{Number: number, Value: append([]byte{}, value...)})
		}
	}
}

func readKnownTag[R any](c *coder, r *R, known []knownTag[R], number uint32, value []byte) bool {
	for i := range known {
		k := &known[i]
		if k.number != number {
			continue
		}
		if c.version < k.first {
			c.fail("tagged field %d (%s) is not valid for version %d", number, k.name, c.version)
			return false
		}
		body := coder{buf: value, version: c.version}
		k.body(&body, r)
		if body.err == nil && len(body.buf) > 0 {
			body.fail("%d bytes too many", len(body.buf))
		}
		if body.err != nil {
			c.fail("tagged field %d (%s): %w", number, k.name, body.err)
		}
		return true
	}
	return false
}
