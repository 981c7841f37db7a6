package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/buffer"
)

// writeLoop writes answers in order until the connection is closed or, when it drains, until the last one.
func (c *conn) writeLoop() {
	out := newSender(c.net, c.server.cfg.IdleTimeout)
	var batch []*Request
	for {
		c.mu.Lock()
		n := 0
		for n < len(c.queue) && c.queue[n].ready {
			n++
		}
		batch = append(batch[:0], c.queue[:n]...)
		c.queue = append(c.queue[:0], c.queue[n:]...)
		clear(c.queue[len(c.queue):cap(c.queue)])
		last := c.readerDone && len(c.queue) == 0
		c.mu.Unlock()
		if n > 0 {
			err := c.writeAll(out, batch)
			clear(batch)
			if err != nil {
				c.close(ClosedWriteFailed, quietWrite(err))
				return
			}
			continue
		}
		if last {
			return
		}
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
	}
}

// writeAll writes the answers of a batch and releases them also when that fails.
func (c *conn) writeAll(out *sender, batch []*Request) (err error) {
	for _, r := range batch {
		if err == nil && !r.out.silent {
			err = out.add(r.out.prefix, r.out.body)
		}
	}
	if err == nil {
		err = out.flush(false)
	}
	out.reset()
	now := time.Now()
	for _, r := range batch {
		size := r.out.size()
		if r.out.silent {
			size = 0
		}
		r.out.release()
		<-c.slots
		if err == nil {
			c.server.cfg.Metrics.RequestDone(r.Key, r.Version, r.frameSize, size, now.Sub(r.Received))
		}
	}
	if err != nil {
		return fmt.Errorf("write %d answers, the first to %s: %w", len(batch), kmsg.NameForKey(batch[0].Key), err)
	}
	return nil
}

// quietWrite drops the errors of a client that went away.
func quietWrite(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled) || isReset(err) {
		return nil
	}
	return err
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Bounds of what a sender gathers before it writes.
const (
	maxGatherParts = 256
	maxGatherBytes = 256 << 10
)

// sender gathers small parts into one write and sends large file ranges by themselves.
type sender struct {
	net     net.Conn
	tcp     *net.TCPConn // nil when neither writev nor sendfile is there: TLS, pipes
	plain   *bufio.Writer
	timeout time.Duration

	parts   net.Buffers
	gather  int64
	scratch []*buffer.Buffer
	corked  bool
}

func newSender(nc net.Conn, timeout time.Duration) *sender {
	s := &sender{net: nc, timeout: timeout}
	if tcp, ok := nc.(*net.TCPConn); ok {
		s.tcp = tcp
	} else {
		s.plain = bufio.NewWriterSize(nc, 64<<10)
	}
	return s
}

func (s *sender) add(prefix []byte, body *Response) error {
	if err := s.bytes(prefix); err != nil {
		return err
	}
	if body == nil {
		return nil
	}
	for _, part := range body.Segments {
		var err error
		switch {
		case part.File == nil:
			err = s.bytes(part.Bytes)
		case s.tcp != nil && part.Length >= sendfileMin && part.osFile() != nil:
			if err = s.flush(true); err == nil {
				err = s.sendFile(part)
			}
		default:
			err = s.fileBytes(part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sender) bytes(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	s.parts = append(s.parts, b)
	s.gather += int64(len(b))
	if len(s.parts) >= maxGatherParts || s.gather >= maxGatherBytes {
		return s.flush(true)
	}
	return nil
}

// copyStep bounds the memory that a file range passes through.
const copyStep = 64 << 10

// fileBytes sends a file range through memory.
func (s *sender) fileBytes(part Segment) error {
	for at := int64(0); at < part.Length; {
		n := min(part.Length-at, copyStep)
		buf := buffer.Get(int(n))
		s.scratch = append(s.scratch, buf)
		buf.B = buf.B[:n]
		if err := (Segment{File: part.File, Offset: part.Offset + at, Length: n}).readInto(buf.B); err != nil {
			return err
		}
		if err := s.bytes(buf.B); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// flush writes what was gathered. more says that further bytes follow at once, so that a small head doesn't go
// out in a packet of its own.
func (s *sender) flush(more bool) error {
	if s.tcp != nil && more != s.corked {
		if more {
			setCork(s.tcp, true)
			s.corked = true
		} else {
			defer func() { setCork(s.tcp, false); s.corked = false }()
		}
	}
	_ = s.net.SetWriteDeadline(time.Now().Add(s.timeout))
	if len(s.parts) > 0 {
		var err error
		if s.tcp != nil {
			parts := s.parts // WriteTo consumes its receiver.
			_, err = parts.WriteTo(s.tcp)
		} else {
			for _, b := range s.parts {
				if _, err = s.plain.Write(b); err != nil {
					break
				}
			}
		}
		s.reset()
		if err != nil {
			return err
		}
	}
	if s.plain != nil && !more {
		return s.plain.Flush()
	}
	return nil
}

// reset forgets what was gathered and gives its memory back.
func (s *sender) reset() {
	clear(s.parts)
	s.parts, s.gather = s.parts[:0], 0
	for i, buf := range s.scratch {
		buf.Release()
		s.scratch[i] = nil
	}
	s.scratch = s.scratch[:0]
}

// sendfileStep is how much must be taken by the client within one write time-out.
const sendfileStep = 4 << 20

func (s *sender) sendFile(part Segment) error {
	file := part.osFile()
	for at := int64(0); at < part.Length; {
		n := min(part.Length-at, sendfileStep)
		_ = s.net.SetWriteDeadline(time.Now().Add(s.timeout))
		if err := sendFileRange(s.tcp, file, part.Offset+at, n); err != nil {
			if errors.Is(err, errShortFile) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("send %d bytes at %d of %s: %w", n, part.Offset+at, file.Name(), err)
		}
		at += n
	}
	return nil
}

// errShortFile says that a file ended inside of a promised range.
var errShortFile = errors.New("file is shorter than the range")
