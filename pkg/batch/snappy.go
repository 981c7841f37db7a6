package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
)

// xerialMagic starts snappy data in the framing of Java's snappy-java, which Kafka's Java clients write.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

// xerialBlock is how much snappy-java puts into one block.
const xerialBlock = 32 << 10

// unsnappy reads one snappy block, or blocks in xerial's framing: magic, two versions, then length and block. It
// appends to out.
func unsnappy(out, body []byte) ([]byte, error) {
	if !bytes.HasPrefix(body, xerialMagic) {
		return unsnappyBlock(out, body)
	}
	if len(body) < 16 {
		return nil, errors.New("framing")
	}
	for body = body[16:]; len(body) > 0; {
		if len(body) < 4 {
			return nil, errors.New("framing")
		}
		n := int64(binary.BigEndian.Uint32(body))
		if n > int64(len(body)-4) {
			return nil, fmt.Errorf("block of %d bytes in %d", n, len(body)-4)
		}
		var err error
		if out, err = unsnappyBlock(out, body[4:4+n]); err != nil {
			return nil, err
		}
		body = body[4+n:]
	}
	return out, nil
}

func unsnappyBlock(dst, block []byte) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil || n > MaxDecompressedBytes-len(dst) {
		return nil, errors.New("block length")
	}
	// Snappy shrinks by less than 32 to 1, so this bounds an allocation by what was really sent.
	if n > 64*len(block) {
		return nil, fmt.Errorf("block claims %d bytes from %d", n, len(block))
	}
	dst = slices.Grow(dst, n)
	if _, err := s2.Decode(dst[len(dst):len(dst)+n], block); err != nil {
		return nil, err
	}
	return dst[:len(dst)+n], nil
}
