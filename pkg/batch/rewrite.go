package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/highwater-io/highwater/pkg/ident"
)

// RecordView is a record as it is encoded. It is valid during the call that gets it.
type RecordView struct {
	Offset   ident.Offset
	Key      []byte // nil when there is none
	HasValue bool   // a record of a compacted log without a value is a tombstone

	raw            []byte // with its length
	timestampDelta int64
	rest           []byte // from behind the timestamp on
}

// walk calls f for each record of a decompressed batch, and checks the records as Records does, without making
// anything. An error of f ends the walk.
func walk(h Header, body []byte, f func(*RecordView) error) error {
	var v RecordView
	for i := range h.NumRecords {
		outer := recordReader{b: body}
		r := recordReader{b: outer.bytes()}
		if outer.failed || len(r.b) == 0 {
			return fmt.Errorf("record %d of %d: %w: record length", i, h.NumRecords, ErrCorrupt)
		}
		r.b = r.b[1:]
		v.timestampDelta = r.varint()
		v.rest = r.b
		offsetDelta := r.varint()
		v.Offset = h.BaseOffset + ident.Offset(offsetDelta)
		v.Key = r.bytes()
		v.HasValue = r.bytes() != nil
		n := r.varint()
		if n < 0 || n > int64(len(r.b))/2 {
			return fmt.Errorf("record %d of %d: %w: record content", i, h.NumRecords, ErrCorrupt)
		}
		for range n {
			r.bytes()
			r.bytes()
		}
		if r.failed || len(r.b) != 0 || offsetDelta < 0 || offsetDelta > int64(h.LastOffsetDelta) {
			return fmt.Errorf("record %d of %d: %w: record content", i, h.NumRecords, ErrCorrupt)
		}
		v.raw = body[:len(body)-len(outer.b)]
		if err := f(&v); err != nil {
			return err
		}
		body = outer.b
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: %d bytes after the last record", ErrCorrupt, len(body))
	}
	return nil
}

// Rewriter removes records from batches, for log compaction. It keeps its coders and memory from batch to batch. Its
// zero value is ready; it is not safe for concurrent use.
type Rewriter struct {
	codec codec
	body  []byte
	out   []byte
}

// Filter says what Rewrite does.
type Filter struct {
	// Keep says whether a record stays.
	Keep func(*RecordView) bool
	// DeleteHorizonMs is set as the horizon of a batch that keeps a tombstone and has no horizon yet.
	DeleteHorizonMs int64
	// KeepEmpty makes a batch without records of one that loses all of them: its offsets and its producer's last
	// sequence number stand in it still.
	KeepEmpty bool
}

// Rewritten is the outcome.
type Rewritten struct {
	// Batch is the batch as it is to be kept; nil when nothing is. It shares memory with what was given, when
	// nothing has changed, or with the Rewriter until its next use.
	Batch []byte
	// Changed says that it is not the same as before.
	Changed bool
	// Records were in the batch; Kept of them stay.
	Records, Kept int
}

// Walk calls f for each record of a whole batch, decompressing where needed. Errors wrap ErrCorrupt or
// ErrCompression, or are f's own. The checksum is not looked at.
func (w *Rewriter) Walk(batch []byte, h Header, f func(*RecordView) error) error {
	body, err := w.codec.decompress(h.Compression(), batch[HeaderSize:h.Size()])
	if err == nil {
		err = walk(h, body, f)
	}
	if err != nil {
		return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
	}
	return nil
}

// Rewrite returns a whole batch without the records that f does not keep. What stays has the same offsets,
// timestamps and order, compressed as before; base offset, last offset, leader epoch, producer and sequence numbers
// stay in the header, as Kafka's cleaner leaves them. Errors are those of Walk; the batch is then as it was.
func (w *Rewriter) Rewrite(batch []byte, h Header, f Filter) (Rewritten, error) {
	res := Rewritten{Batch: batch, Records: int(h.NumRecords)}
	if cap(w.body) > keptBytes {
		w.body = nil
	}
	body := w.body[:0]
	tombstone := false
	maxTimestamp := int64(-1)
	err := w.Walk(batch, h, func(r *RecordView) error {
		if f.Keep(r) {
			body = append(body, r.raw...)
			maxTimestamp = max(maxTimestamp, h.BaseTimestamp+r.timestampDelta)
			tombstone = tombstone || !r.HasValue
			res.Kept++
		}
		return nil
	})
	w.body = body
	if err != nil {
		return Rewritten{}, err
	}
	_, hasHorizon := h.DeleteHorizon()
	setHorizon := tombstone && !hasHorizon
	switch {
	case res.Kept == res.Records && !setHorizon && (res.Kept > 0 || f.KeepEmpty):
		return res, nil
	case res.Kept == 0 && !f.KeepEmpty:
		res.Batch, res.Changed = nil, true
		return res, nil
	}
	res.Changed = true
	if !h.IsLogAppendTime() && res.Kept > 0 {
		h.MaxTimestamp = maxTimestamp
	}
	h.NumRecords = int32(res.Kept)
	switch {
	case res.Kept == 0:
		h.Attributes &^= attrCompression | attrDeleteHorizon
		h.BaseTimestamp = -1
		body = nil
	case setHorizon:
		if body, err = w.rebase(h, body, f.DeleteHorizonMs); err != nil {
			return Rewritten{}, err
		}
		h.Attributes |= attrDeleteHorizon
		h.BaseTimestamp = f.DeleteHorizonMs
	}
	packed, err := w.codec.compress(h.Compression(), bytes.HasPrefix(batch[HeaderSize:], xerialMagic), body)
	if err != nil {
		return Rewritten{}, fmt.Errorf("batch at offset %d: compress: %w", h.BaseOffset, err)
	}
	if res.Batch, err = w.assemble(h, packed); err != nil {
		return Rewritten{}, err
	}
	return res, nil
}

// Compress returns an uncompressed batch in another compression. It is valid until the Rewriter's next use.
func (w *Rewriter) Compress(batch []byte, c Compression) ([]byte, error) {
	h, err := ParseHeader(batch)
	if err != nil {
		return nil, err
	}
	if h.Compression() != None {
		return nil, fmt.Errorf("batch at offset %d is compressed already", h.BaseOffset)
	}
	packed, err := w.codec.compress(c, false, batch[HeaderSize:h.Size()])
	if err != nil {
		return nil, fmt.Errorf("batch at offset %d: compress: %w", h.BaseOffset, err)
	}
	h.Attributes |= int16(c)
	return w.assemble(h, packed)
}

// assemble makes a batch of a header and compressed records.
func (w *Rewriter) assemble(h Header, packed []byte) ([]byte, error) {
	if len(packed) > MaxBytes-HeaderSize {
		return nil, fmt.Errorf("batch at offset %d: %d bytes after compression", h.BaseOffset, len(packed))
	}
	h.Length = int32(HeaderSize - LogOverhead + len(packed))
	if cap(w.out) > keptBytes {
		w.out = nil
	}
	w.out = append(h.appendTo(w.out[:0]), packed...)
	binary.BigEndian.PutUint32(w.out[posCRC:], crc32.Checksum(w.out[posAttributes:], castagnoli))
	return w.out, nil
}

// rebase encodes the records anew with timestamps relative to another base.
func (w *Rewriter) rebase(h Header, body []byte, base int64) ([]byte, error) {
	w.out = w.out[:0]
	var record [1 + binary.MaxVarintLen64]byte // attributes and timestamp
	err := walk(h, body, func(r *RecordView) error {
		head := binary.AppendVarint(record[:1], h.BaseTimestamp+r.timestampDelta-base)
		w.out = binary.AppendVarint(w.out, int64(len(head)+len(r.rest)))
		w.out = append(append(w.out, head...), r.rest...)
		return nil
	})
	// The encoded records change places with the memory that they came from.
	w.body, w.out = w.out, body
	return w.body, err
}

// appendTo encodes the header with a checksum of nothing.
func (h Header) appendTo(dst []byte) []byte {
	be := binary.BigEndian
	dst = be.AppendUint64(dst, uint64(h.BaseOffset))
	dst = be.AppendUint32(dst, uint32(h.Length))
	dst = be.AppendUint32(dst, uint32(h.LeaderEpoch))
	dst = append(dst, Magic, 0, 0, 0, 0)
	dst = be.AppendUint16(dst, uint16(h.Attributes))
	dst = be.AppendUint32(dst, uint32(h.LastOffsetDelta))
	dst = be.AppendUint64(dst, uint64(h.BaseTimestamp))
	dst = be.AppendUint64(dst, uint64(h.MaxTimestamp))
	dst = be.AppendUint64(dst, uint64(h.ProducerID))
	dst = be.AppendUint16(dst, uint16(h.ProducerEpoch))
	dst = be.AppendUint32(dst, uint32(h.BaseSequence))
	return be.AppendUint32(dst, uint32(h.NumRecords))
}
