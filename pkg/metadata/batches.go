package metadata

import (
	"fmt"
	"iter"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// A Batch is one record batch of the metadata log or of a snapshot, decoded. It holds either metadata records or
// control records.
type Batch struct {
	BaseOffset ident.Offset
	LastOffset ident.Offset
	Epoch      ident.Epoch
	Timestamp  int64 // when it was appended, in ms since 1970
	SizeBytes  int
	Records    []Record
	Control    []ControlRecord
}

// A ControlRecord is a record of the raft layer. batch.DecodeVoters and its sisters read the value.
type ControlRecord struct {
	Type  batch.ControlType
	Value []byte
}

// ReadBatches goes through the batches of b, which may be part of a log segment, of a fetch response or of a
// snapshot. An error ends it: one that wraps batch.ErrTruncated when the last batch is cut off, else what
// ReadBatch returns. What it yields shares no memory with b.
func ReadBatches(b []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for len(b) > 0 {
			one, rest, _, err := batch.Next(b)
			if err != nil {
				yield(Batch{}, err)
				return
			}
			decoded, err := ReadBatch(one)
			if !yield(decoded, err) || err != nil {
				return
			}
			b = rest
		}
	}
}

// ReadBatch decodes one whole batch after checking its CRC. The error wraps batch.ErrCorrupt or ErrMalformed, or
// is an *UnsupportedError, and says at which offset it happened.
func ReadBatch(raw []byte) (Batch, error) {
	if err := batch.Verify(raw); err != nil {
		return Batch{}, err
	}
	h, err := batch.ParseHeader(raw)
	if err != nil {
		return Batch{}, err
	}
	out := Batch{BaseOffset: h.BaseOffset, LastOffset: h.LastOffset(), Epoch: h.LeaderEpoch, Timestamp: h.MaxTimestamp, SizeBytes: len(raw)}
	if h.NumRecords != h.LastOffsetDelta+1 {
		return Batch{}, fmt.Errorf("%w: batch at offset %d of the metadata log has %d records for %d offsets",
			batch.ErrCorrupt, h.BaseOffset, h.NumRecords, h.LastOffsetDelta+1)
	}
	if !h.IsControl() {
		// The header's number is a claim, but a record takes at least a few bytes.
		out.Records = make([]Record, 0, min(int(max(h.NumRecords, 0)), len(raw)/minRecordBytes))
	}
	var c coder
	next := h.BaseOffset
	for r, err := range batch.Records(raw) {
		if err == nil && r.Offset != next {
			err = fmt.Errorf("%w: record with offset %d where %d comes next", batch.ErrCorrupt, r.Offset, next)
		}
		if err == nil {
			err = out.add(&c, h.IsControl(), r)
		}
		if err != nil {
			return Batch{}, fmt.Errorf("metadata log, offset %d: %w", next, err)
		}
		next++
	}
	return out, nil
}

// minRecordBytes is what a metadata record takes in a batch at least.
const minRecordBytes = 8

func (b *Batch) add(c *coder, control bool, r batch.Record) error {
	if control {
		t, err := batch.ParseControlType(r.Key)
		if err != nil {
			return err
		}
		b.Control = append(b.Control, ControlRecord{Type: t, Value: append([]byte{}, r.Value...)})
		return nil
	}
	if r.Key != nil || r.Value == nil {
		return fmt.Errorf("%w: a record with a key or without a value", ErrMalformed)
	}
	record, err := c.decode(r.Value)
	if err != nil {
		return err
	}
	b.Records = append(b.Records, record)
	return nil
}

// EncodeBatch returns the records as one batch, as the metadata log and snapshots hold them. It panics where
// Encode does.
func EncodeBatch(base ident.Offset, epoch ident.Epoch, timestampMs int64, records ...Record) []byte {
	b := batch.NewBuilder(base, epoch, timestampMs)
	var value []byte
	for _, r := range records {
		value = Encode(value[:0], r)
		b.Append(nil, value)
	}
	return b.Build()
}
