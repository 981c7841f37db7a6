package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// MaxDecompressedBytes bounds what the records of one batch may grow to.
const MaxDecompressedBytes = 128 << 20

// xerialMagic starts snappy data in the framing of Java's snappy-java, which Kafka's Java clients write.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

func decompress(c Compression, body []byte) ([]byte, error) {
	switch c {
	case None:
		return body, nil
	case Gzip:
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("%w: gzip: %w", ErrCorrupt, err)
		}
		return readBounded(r, "gzip")
	case Snappy:
		return unsnappy(nil, body)
	case LZ4:
		return readBounded(lz4.NewReader(bytes.NewReader(body)), "lz4")
	case Zstd:
		r, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxDecompressedBytes))
		if err != nil {
			return nil, fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
		}
		defer r.Close()
		return readBounded(r, "zstd")
	}
	return nil, fmt.Errorf("%w %d", ErrCompression, c)
}

func readBounded(r io.Reader, name string) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(r, MaxDecompressedBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	}
	if len(out) > MaxDecompressedBytes {
		return nil, fmt.Errorf("%w: %s: more than %d bytes", ErrCorrupt, name, MaxDecompressedBytes)
	}
	return out, nil
}

// unsnappy reads one snappy block, or blocks in xerial's framing: magic, two versions, then length and block. It
// appends to out.
func unsnappy(out, body []byte) ([]byte, error) {
	if !bytes.HasPrefix(body, xerialMagic) {
		return unsnappyBlock(out, body)
	}
	if len(body) < 16 {
		return nil, fmt.Errorf("%w: snappy framing", ErrCorrupt)
	}
	for body = body[16:]; len(body) > 0; {
		if len(body) < 4 {
			return nil, fmt.Errorf("%w: snappy framing", ErrCorrupt)
		}
		n := int64(binary.BigEndian.Uint32(body))
		if n > int64(len(body)-4) {
			return nil, fmt.Errorf("%w: snappy block of %d bytes in %d", ErrCorrupt, n, len(body)-4)
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
		return nil, fmt.Errorf("%w: snappy block length", ErrCorrupt)
	}
	// Snappy shrinks by less than 32 to 1, so this bounds an allocation by what was really sent.
	if n > 64*len(block) {
		return nil, fmt.Errorf("%w: snappy block claims %d bytes from %d", ErrCorrupt, n, len(block))
	}
	dst = slices.Grow(dst, n)
	if _, err := s2.Decode(dst[len(dst):len(dst)+n], block); err != nil {
		return nil, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	}
	return dst[:len(dst)+n], nil
}
