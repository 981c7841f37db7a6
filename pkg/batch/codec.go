package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
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

// codec compresses and decompresses one batch after the other with the same coders and memory. What it returns is
// valid until its next call. Its zero value is ready; it is not safe for concurrent use.
type codec struct {
	in    bytes.Reader
	plain []byte

	packed bytes.Buffer
	blocks []byte

	gzipReader *gzip.Reader
	gzipWriter *gzip.Writer
	lz4Reader  *lz4.Reader
	lz4Writer  *lz4.Writer
	zstdReader *zstd.Decoder
	zstdWriter *zstd.Encoder
}

// keptBytes is how much memory a codec keeps for the next batch; what a rare giant needed goes.
const keptBytes = 8 << 20

// decompress returns the records of a batch. An error wraps ErrCorrupt or ErrCompression.
func (c *codec) decompress(t Compression, body []byte) (plain []byte, err error) {
	if t == None {
		return body, nil
	}
	if cap(c.plain) > keptBytes {
		c.plain = nil
	}
	dst := c.plain[:0]
	c.in.Reset(body)
	switch t {
	case Gzip:
		if c.gzipReader == nil {
			c.gzipReader = new(gzip.Reader)
		}
		if err = c.gzipReader.Reset(&c.in); err == nil {
			dst, err = appendBounded(dst, c.gzipReader)
		}
	case Snappy:
		dst, err = unsnappy(dst, body)
	case LZ4:
		if c.lz4Reader == nil {
			c.lz4Reader = lz4.NewReader(nil)
		}
		c.lz4Reader.Reset(&c.in)
		dst, err = appendBounded(dst, c.lz4Reader)
	case Zstd:
		if c.zstdReader == nil {
			c.zstdReader, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxDecompressedBytes))
			if err != nil {
				return nil, err
			}
		}
		dst, err = c.zstdReader.DecodeAll(body, dst)
	default:
		return nil, fmt.Errorf("%w %d", ErrCompression, t)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, t, err)
	}
	c.plain = dst
	return dst, nil
}

// appendBounded reads r to its end.
func appendBounded(dst []byte, r io.Reader) ([]byte, error) {
	for {
		dst = slices.Grow(dst, 4096)
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > MaxDecompressedBytes:
			return dst, fmt.Errorf("more than %d bytes", MaxDecompressedBytes)
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
}

// compress is the opposite. framed says that snappy data are to be in xerial's framing.
func (c *codec) compress(t Compression, framed bool, plain []byte) ([]byte, error) {
	if t == None {
		return plain, nil
	}
	if c.packed.Cap() > keptBytes {
		c.packed = bytes.Buffer{}
	}
	c.packed.Reset()
	switch t {
	case Gzip:
		if c.gzipWriter == nil {
			c.gzipWriter = gzip.NewWriter(nil)
		}
		c.gzipWriter.Reset(&c.packed)
		return c.finish(c.gzipWriter, plain)
	case Snappy:
		return c.snappy(framed, plain), nil
	case LZ4:
		if c.lz4Writer == nil {
			c.lz4Writer = lz4.NewWriter(nil)
			// What Kafka's clients write. Kafka reads independent blocks only, which is this writer's way.
			if err := c.lz4Writer.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err != nil {
				return nil, err
			}
		}
		c.lz4Writer.Reset(&c.packed)
		return c.finish(c.lz4Writer, plain)
	case Zstd:
		if c.zstdWriter == nil {
			var err error
			if c.zstdWriter, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true)); err != nil {
				return nil, err
			}
		}
		c.blocks = c.zstdWriter.EncodeAll(plain, c.blocks[:0])
		return c.blocks, nil
	}
	return nil, fmt.Errorf("%w %d", ErrCompression, t)
}

func (c *codec) finish(w io.WriteCloser, plain []byte) ([]byte, error) {
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return c.packed.Bytes(), nil
}

func (c *codec) snappy(framed bool, plain []byte) []byte {
	if !framed {
		c.blocks = s2.EncodeSnappy(c.blocks[:cap(c.blocks)], plain)
		return c.blocks
	}
	c.packed.Write(xerialMagic)
	c.packed.Write([]byte{0, 0, 0, 1, 0, 0, 0, 1}) // version, and the oldest that can read it
	for len(plain) > 0 {
		n := min(len(plain), xerialBlock)
		c.blocks = s2.EncodeSnappy(c.blocks[:cap(c.blocks)], plain[:n])
		c.packed.Write(binary.BigEndian.AppendUint32(c.packed.AvailableBuffer(), uint32(len(c.blocks))))
		c.packed.Write(c.blocks)
		plain = plain[n:]
	}
	return c.packed.Bytes()
}
