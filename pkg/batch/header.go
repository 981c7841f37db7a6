package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/highwater-io/highwater/pkg/ident"
)

// HeaderSize is the length of a batch without its records.
const HeaderSize = 61

// LogOverhead is the length of base offset and length field, which the length field does not count.
const LogOverhead = 12

// Magic is the only batch format that is read and written; 0 and 1 are gone since Kafka 4.0 (KIP-724).
const Magic = 2

// MaxBytes bounds one batch; the length field of a longer one is taken as garbage.
const MaxBytes = 1 << 30

// Where the header's fields lie.
const (
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21 // the checksum covers everything from here
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posNumRecords      = 57
)

// Bits of Header.Attributes.
const (
	attrCompression   = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

var (
	// ErrTruncated says that the bytes end before the batch does.
	ErrTruncated = errors.New("record batch is not whole")
	// ErrCorrupt says that the bytes are no valid batch. Kafka: CORRUPT_MESSAGE (2).
	ErrCorrupt = errors.New("record batch is corrupt")
	// ErrCRC is an ErrCorrupt by the checksum.
	ErrCRC = fmt.Errorf("%w: checksum", ErrCorrupt)
	// ErrMagic says that the batch has a format other than 2; it wraps ErrCorrupt.
	ErrMagic = fmt.Errorf("%w: format is not magic 2", ErrCorrupt)
	// ErrOldMagic says that it has format 0 or 1; it wraps ErrMagic. Kafka: INVALID_RECORD (87).
	ErrOldMagic = fmt.Errorf("%w, which came later", ErrMagic)
	// ErrInvalid says that a client may not write such a batch. Kafka: INVALID_RECORD (87).
	ErrInvalid = errors.New("record batch is not one that a client may write")
	// ErrCompression says that the compression type is none of Kafka's. Kafka: UNSUPPORTED_COMPRESSION_TYPE (76).
	ErrCompression = errors.New("unknown compression type")
)

// Compression is the way the records of a batch are compressed.
type Compression uint8

// Compression types, by Kafka's numbers.
const (
	None Compression = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String is the type's name in Kafka's compression.type.
func (c Compression) String() string {
	if names := [...]string{"none", "gzip", "snappy", "lz4", "zstd"}; int(c) < len(names) {
		return names[c]
	}
	return strconv.Itoa(int(c))
}

// Header is the fixed part of a batch. Its zero value is no valid header.
type Header struct {
	BaseOffset      ident.Offset
	Length          int32 // bytes after the length field
	LeaderEpoch     ident.Epoch
	CRC             uint32 // CRC-32C from the attributes to the end
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64 // ms since 1970, -1 when there is none
	MaxTimestamp    int64
	ProducerID      int64 // -1 when the producer is not idempotent
	ProducerEpoch   int16
	BaseSequence    int32
	NumRecords      int32
}

// Size is the length of the whole batch in bytes.
func (h Header) Size() int { return LogOverhead + int(h.Length) }

// LastOffset is the offset of the last record.
func (h Header) LastOffset() ident.Offset { return h.BaseOffset + ident.Offset(h.LastOffsetDelta) }

// NextOffset is the offset that follows the batch.
func (h Header) NextOffset() ident.Offset { return h.LastOffset() + 1 }

// IsControl says whether the records are control records, which consumers never see.
func (h Header) IsControl() bool { return h.Attributes&attrControl != 0 }

// IsTransactional says whether the batch is part of a transaction.
func (h Header) IsTransactional() bool { return h.Attributes&attrTransactional != 0 }

// IsLogAppendTime says whether the timestamps are the broker's.
func (h Header) IsLogAppendTime() bool { return h.Attributes&attrLogAppendTime != 0 }

// DeleteHorizon is the time, in ms since 1970, from which on the batch's tombstones may be dropped. ok is false
// before the log cleaner has set it. It stands where the base timestamp else is, and the records' timestamps are
// relative to it (KIP-534).
func (h Header) DeleteHorizon() (ms int64, ok bool) {
	if h.Attributes&attrDeleteHorizon == 0 {
		return 0, false
	}
	return h.BaseTimestamp, true
}

// Compression is the compression type, which may be one that nobody knows.
func (h Header) Compression() Compression { return Compression(h.Attributes & attrCompression) }

// HasProducer says whether the batch takes part in idempotence.
func (h Header) HasProducer() bool { return h.ProducerID >= 0 }

// LastSequence is the sequence number of the last record, which wraps from 2^31-1 to 0; -1 without a producer.
func (h Header) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return -1
	}
	return AddSequence(h.BaseSequence, h.LastOffsetDelta)
}

// AddSequence adds to a sequence number; 0 follows 2^31-1.
func AddSequence(sequence, delta int32) int32 {
	return int32((int64(sequence) + int64(delta)) & 0x7fffffff)
}

// ParseHeader reads the header at the start of b, which need not hold the records. It checks what every
// reader relies on: magic, a length that holds a header, offsets and counts that are not negative. Errors are
// ErrTruncated when b is shorter than a header, ErrMagic, ErrCorrupt.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: %d of %d header bytes", ErrTruncated, len(b), HeaderSize)
	}
	be := binary.BigEndian
	h := Header{
		BaseOffset:      ident.Offset(be.Uint64(b)),
		Length:          int32(be.Uint32(b[posLength:])),
		LeaderEpoch:     ident.Epoch(be.Uint32(b[posLeaderEpoch:])),
		CRC:             be.Uint32(b[posCRC:]),
		Attributes:      int16(be.Uint16(b[posAttributes:])),
		LastOffsetDelta: int32(be.Uint32(b[posLastOffsetDelta:])),
		BaseTimestamp:   int64(be.Uint64(b[posBaseTimestamp:])),
		MaxTimestamp:    int64(be.Uint64(b[posMaxTimestamp:])),
		ProducerID:      int64(be.Uint64(b[posProducerID:])),
		ProducerEpoch:   int16(be.Uint16(b[posProducerEpoch:])),
		BaseSequence:    int32(be.Uint32(b[posBaseSequence:])),
		NumRecords:      int32(be.Uint32(b[posNumRecords:])),
	}
	switch {
	case b[posMagic] < Magic:
		return Header{}, fmt.Errorf("%w, but %d", ErrOldMagic, b[posMagic])
	case b[posMagic] != Magic:
		return Header{}, fmt.Errorf("%w but %d: a later version wrote it, or it is damaged", ErrMagic, int8(b[posMagic]))
	case h.Length < HeaderSize-LogOverhead || h.Length > MaxBytes-LogOverhead:
		return Header{}, fmt.Errorf("%w: length field is %d", ErrCorrupt, h.Length)
	case h.BaseOffset < 0 || h.LastOffsetDelta < 0 || h.LastOffset() < h.BaseOffset || h.NextOffset() < 0:
		return Header{}, fmt.Errorf("%w: base offset %d, last offset delta %d", ErrCorrupt, h.BaseOffset, h.LastOffsetDelta)
	case h.NumRecords < 0:
		return Header{}, fmt.Errorf("%w: %d records", ErrCorrupt, h.NumRecords)
	}
	return h, nil
}

// Next splits the first batch off b. It returns ErrTruncated when the batch is not whole, which is how a
// fetch response or a torn file may end; b empty is ErrTruncated too. The checksum is not looked at.
func Next(b []byte) (batch, rest []byte, h Header, err error) {
	h, err = ParseHeader(b)
	if err != nil {
		return nil, b, Header{}, err
	}
	if len(b) < h.Size() {
		return nil, b, h, fmt.Errorf("%w: %d of %d bytes", ErrTruncated, len(b), h.Size())
	}
	return b[:h.Size():h.Size()], b[h.Size():], h, nil
}

// SetBaseOffset writes the base offset into the header of a batch. The checksum does not cover it.
func SetBaseOffset(batch []byte, o ident.Offset) { binary.BigEndian.PutUint64(batch, uint64(o)) }

// SetLogAppendTime makes a batch's timestamps the broker's: with the bit in the attributes every record has the
// largest timestamp, in ms since 1970. The records stay as they are, compressed or not; the checksum covers both
// fields and is made again, here and in h, which is the batch's header.
func SetLogAppendTime(batch []byte, h *Header, ms int64) {
	h.Attributes |= attrLogAppendTime
	h.MaxTimestamp = ms
	setTimestampType(batch, h)
}

// ClearLogAppendTime makes a batch's timestamps those that its records have.
func ClearLogAppendTime(batch []byte, h *Header) {
	h.Attributes &^= attrLogAppendTime
	setTimestampType(batch, h)
}

func setTimestampType(batch []byte, h *Header) {
	binary.BigEndian.PutUint16(batch[posAttributes:], uint16(h.Attributes))
	binary.BigEndian.PutUint64(batch[posMaxTimestamp:], uint64(h.MaxTimestamp))
	h.CRC = crc32.Checksum(batch[posAttributes:h.Size()], castagnoli)
	binary.BigEndian.PutUint32(batch[posCRC:], h.CRC)
}

// SetLeaderEpoch writes the leader epoch into the header of a batch. The checksum does not cover it.
func SetLeaderEpoch(batch []byte, e ident.Epoch) {
	binary.BigEndian.PutUint32(batch[posLeaderEpoch:], uint32(e))
}
