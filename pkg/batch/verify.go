package batch

import (
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRCStart is how many bytes at the start of a batch its checksum does not cover.
const CRCStart = posAttributes

// UpdateCRC adds bytes to a batch's checksum, for one that is read in pieces; it begins with 0 and the bytes from
// CRCStart on.
func UpdateCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// CheckCRC compares a checksum with the header's. An error wraps ErrCorrupt.
func CheckCRC(crc uint32, h Header) error {
	if crc != h.CRC {
		return fmt.Errorf("%w is %08x, header says %08x, base offset %d", ErrCRC, crc, h.CRC, h.BaseOffset)
	}
	return nil
}

// Verify checks that batch is exactly one batch, whole, and that its checksum is right. Errors wrap
// ErrTruncated or ErrCorrupt. Records are not decoded.
func Verify(batch []byte) error {
	one, rest, h, err := Next(batch)
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: %d bytes follow it", ErrCorrupt, len(rest))
	}
	return VerifyCRC(one, h)
}

// VerifyCRC checks the checksum of a batch that Next returned.
func VerifyCRC(batch []byte, h Header) error {
	return CheckCRC(crc32.Checksum(batch[posAttributes:], castagnoli), h)
}

// minRecordBytes is what a record takes at least: length, attributes, two deltas, no key, no value, no headers.
const minRecordBytes = 7

// CheckFromClient says whether a client may write a batch with this header: Kafka's rules for a produce
// request. Errors are ErrInvalid and ErrCompression. The checksum is the log's to check.
func CheckFromClient(h Header) error {
	switch {
	case h.BaseOffset != 0:
		return fmt.Errorf("%w: base offset is %d, not 0", ErrInvalid, h.BaseOffset)
	case h.IsControl():
		return fmt.Errorf("%w: it is a control batch", ErrInvalid)
	case h.NumRecords == 0:
		return fmt.Errorf("%w: it has no records", ErrInvalid)
	case h.LastOffsetDelta != h.NumRecords-1:
		return fmt.Errorf("%w: %d records, but last offset delta %d", ErrInvalid, h.NumRecords, h.LastOffsetDelta)
	case h.Compression() == None && int64(h.NumRecords)*minRecordBytes > int64(h.Size()-HeaderSize):
		// It would use up offsets by the billion, and with them a segment for each batch.
		return fmt.Errorf("%w: %d records in %d bytes", ErrInvalid, h.NumRecords, h.Size()-HeaderSize)
	case h.Compression() > Zstd:
		return fmt.Errorf("%w %d", ErrCompression, h.Compression())
	case h.HasProducer() && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		return fmt.Errorf("%w: producer id %d with epoch %d and sequence %d", ErrInvalid, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	case h.IsTransactional() && !h.HasProducer():
		return fmt.Errorf("%w: transactional without a producer id", ErrInvalid)
	}
	return nil
}
