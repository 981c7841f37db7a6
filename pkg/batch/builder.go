package batch

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Builder makes one uncompressed batch. Its methods return it, for chains.
type Builder struct {
	h       Header
	records []byte
	body    []byte // of the record that is being added
}

// NewBuilder starts a batch whose records all have one timestamp, in ms since 1970.
func NewBuilder(base ident.Offset, epoch ident.Epoch, timestampMs int64) *Builder {
	return new(Builder).Reset(base, epoch, timestampMs)
}

// Reset starts another batch, as NewBuilder does, in the same memory.
func (b *Builder) Reset(base ident.Offset, epoch ident.Epoch, timestampMs int64) *Builder {
	b.h = Header{
		BaseOffset: base, LeaderEpoch: epoch, BaseTimestamp: timestampMs, MaxTimestamp: timestampMs,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1,
	}
	b.records = b.records[:0]
	return b
}

// Producer makes the batch one of an idempotent producer; sequence is that of the first record.
func (b *Builder) Producer(id int64, epoch int16, sequence int32) *Builder {
	b.h.ProducerID, b.h.ProducerEpoch, b.h.BaseSequence = id, epoch, sequence
	return b
}

// Transactional marks the batch as part of a transaction.
func (b *Builder) Transactional() *Builder {
	b.h.Attributes |= attrTransactional
	return b
}

// Append adds a record with the batch's timestamp. nil key or value means that there is none.
func (b *Builder) Append(key, value []byte) *Builder {
	return b.AppendAt(b.h.BaseTimestamp, key, value)
}

// AppendAt adds a record with a timestamp of its own and headers.
func (b *Builder) AppendAt(timestampMs int64, key, value []byte, headers ...RecordHeader) *Builder {
	body := append(b.body[:0], 0)
	body = binary.AppendVarint(body, timestampMs-b.h.BaseTimestamp)
	body = binary.AppendVarint(body, int64(b.h.NumRecords))
	body = appendVarBytes(body, key)
	body = appendVarBytes(body, value)
	body = binary.AppendVarint(body, int64(len(headers)))
	for _, h := range headers {
		body = binary.AppendVarint(body, int64(len(h.Key)))
		body = append(body, h.Key...)
		body = appendVarBytes(body, h.Value)
	}
	b.records = binary.AppendVarint(b.records, int64(len(body)))
	b.records = append(b.records, body...)
	b.body = body
	if b.h.MaxTimestamp = max(b.h.MaxTimestamp, timestampMs); b.h.NumRecords == 0 {
		b.h.MaxTimestamp = timestampMs
	}
	b.h.NumRecords++
	return b
}

// AppendControl adds a control record and makes the batch a control batch; one batch never mixes both kinds.
func (b *Builder) AppendControl(t ControlType, body []byte) *Builder {
	b.h.Attributes |= attrControl
	return b.Append(t.key(), body)
}

// Len is the number of records so far.
func (b *Builder) Len() int { return int(b.h.NumRecords) }

// Size is the length in bytes that Build would return now.
func (b *Builder) Size() int { return HeaderSize + len(b.records) }

// Build returns the batch. A batch without records takes the offset of one, as an emptied batch of a
// compacted log does.
func (b *Builder) Build() []byte { return b.AppendTo(make([]byte, 0, b.Size())) }

// AppendTo appends what Build returns to dst.
func (b *Builder) AppendTo(dst []byte) []byte {
	h := b.h
	h.Length = int32(HeaderSize - LogOverhead + len(b.records))
	h.LastOffsetDelta = max(0, h.NumRecords-1)
	whole := append(h.appendTo(slices.Grow(dst, b.Size())), b.records...)
	out := whole[len(dst):]
	binary.BigEndian.PutUint32(out[posCRC:], crc32.Checksum(out[posAttributes:], castagnoli))
	return whole
}

func appendVarBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}
