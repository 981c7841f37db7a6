package batch

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Record is one record. Key and Value are nil when the record has none; both may share memory with the batch.
type Record struct {
	Offset    ident.Offset
	Timestamp int64 // ms since 1970
	Key       []byte
	Value     []byte
	Headers   []RecordHeader
}

// RecordHeader is a header of a record.
type RecordHeader struct {
	Key   string
	Value []byte
}

// Records walks the records of one batch, in order, decompressing where needed. The second value is an error
// that ends the walk; it wraps ErrCorrupt or ErrCompression. The checksum is not looked at.
func Records(batch []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		one, _, h, err := Next(batch)
		if err != nil {
			yield(Record{}, err)
			return
		}
		body, err := new(codec).decompress(h.Compression(), one[HeaderSize:])
		if err != nil {
			yield(Record{}, fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err))
			return
		}
		for i := range h.NumRecords {
			var r Record
			if r, body, err = nextRecord(h, body); err != nil {
				yield(Record{}, fmt.Errorf("batch at offset %d, record %d of %d: %w", h.BaseOffset, i, h.NumRecords, err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if len(body) != 0 {
			yield(Record{}, fmt.Errorf("batch at offset %d: %w: %d bytes after the last record", h.BaseOffset, ErrCorrupt, len(body)))
		}
	}
}

// recordReader takes apart one record; the first failure sticks.
type recordReader struct {
	b      []byte
	failed bool
}

func (r *recordReader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.failed, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// bytes reads a length and so many bytes; a negative length is nil.
func (r *recordReader) bytes() []byte {
	n := r.varint()
	if n < 0 || r.failed {
		return nil
	}
	if n > int64(len(r.b)) {
		r.failed, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func nextRecord(h Header, b []byte) (Record, []byte, error) {
	outer := recordReader{b: b}
	r := recordReader{b: outer.bytes()}
	if outer.failed || len(r.b) == 0 {
		return Record{}, b, fmt.Errorf("%w: record length", ErrCorrupt)
	}
	r.b = r.b[1:] // attributes: no bit is in use
	timestampDelta, offsetDelta := r.varint(), r.varint()
	rec := Record{
		Offset:    h.BaseOffset + ident.Offset(offsetDelta),
		Timestamp: h.BaseTimestamp + timestampDelta,
		Key:       r.bytes(),
		Value:     r.bytes(),
	}
	if h.IsLogAppendTime() {
		rec.Timestamp = h.MaxTimestamp
	}
	// A header takes two bytes at least, which bounds what a false count can allocate.
	if n := r.varint(); n < 0 || n > int64(len(r.b))/2 {
		r.failed = true
	} else if n > 0 {
		rec.Headers = make([]RecordHeader, 0, n)
		for range n {
			key := r.bytes()
			rec.Headers = append(rec.Headers, RecordHeader{Key: string(key), Value: r.bytes()})
		}
	}
	if r.failed || len(r.b) != 0 || offsetDelta < 0 || offsetDelta > int64(h.LastOffsetDelta) {
		return Record{}, b, fmt.Errorf("%w: record content", ErrCorrupt)
	}
	return rec, outer.b, nil
}
