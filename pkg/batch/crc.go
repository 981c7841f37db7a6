package batch

import (
	"fmt"
	"hash/crc32"
)

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
