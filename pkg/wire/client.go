package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/buffer"
)

// ErrConnClosed is wrapped by every error of a connection that is over: closed here or there, broken, or given
// up after a request's deadline. What was sent may or may not have been done.
var ErrConnClosed = errors.New("connection is closed")

// ErrNotServed is wrapped when the server doesn't list a key, or no version of it that we speak. Nothing was
// sent.
var ErrNotServed = errors.New("the server doesn't serve it")

// Conn is one connection to a server. Requests may be made from many goroutines; they are pipelined and
// answered in order, so that one that waits on the server (a fetch) holds back those behind it.
type Conn struct {
	net      net.Conn
	addr     string
	clientID string
	maxBytes int32
	peer     VersionTable
	features Features

	sending sync.Mutex // held while a request is written and queued
	next    int32      // correlation id, guarded by sending

	mu      sync.Mutex
	pending []*call
	err     error
	closed  chan struct{}
	done    chan struct{} // the reader has ended
}

// call is one request whose answer is awaited.
type call struct {
	correlationID int32
	resp          kmsg.Response
	pooled        bool
	frame         *buffer.Buffer // of a pooled call's answer, once there is a result
	result        chan error     // gets one value; room for it is there
}

func newClientConn(nc net.Conn, addr string, d *Dialer) *Conn {
	c := &Conn{net: nc, addr: addr, clientID: d.ClientID, maxBytes: d.MaxResponseBytes, closed: make(chan struct{}), done: make(chan struct{})}
	if c.maxBytes <= 0 {
		c.maxBytes = DefaultMaxResponseBytes
	}
	go c.readLoop()
	return c
}

// Addr is the address that was asked for, before the host table.
func (c *Conn) Addr() string { return c.addr }

// LocalAddr is this end of the connection.
func (c *Conn) LocalAddr() net.Addr { return c.net.LocalAddr() }

// Features are what the server told on connecting.
func (c *Conn) Features() Features { return c.features }

// Version returns the highest version of key that both sides speak, ours going up to highest.
func (c *Conn) Version(key, highest int16) (int16, bool) {
	row, ok := c.peer.Lookup(key)
	if !ok {
		return 0, false
	}
	v := min(row.Max, highest)
	return v, v >= row.Min
}

// Closed is closed when the connection is over; Err tells why.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Err returns nil while the connection works.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits for its goroutine. Requests under way fail.
func (c *Conn) Close() {
	c.fail(errors.New("closed by us"))
	<-c.done
}

// Request sends req in the highest version that both sides speak and waits for the answer; req's version is
// set to it. Byte slices in the answer are its own. When ctx is cancelled the answer is dropped as it comes;
// when ctx's deadline passes, the connection is closed as well, since the server doesn't answer in time what
// lies before the next request. A request without an answer (Produce with acks=0) can't be made.
func (c *Conn) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return c.RequestMax(ctx, req, req.MaxVersion())
}

// RequestMax is Request with a ceiling of its own for the version.
func (c *Conn) RequestMax(ctx context.Context, req kmsg.Request, highest int16) (kmsg.Response, error) {
	v, ok := c.Version(req.Key(), min(highest, req.MaxVersion()))
	if !ok {
		return nil, fmt.Errorf("%s at %s: %w up to version %d", kmsg.NameForKey(req.Key()), c.addr, ErrNotServed, highest)
	}
	req.SetVersion(v)
	return c.roundTrip(ctx, req)
}

// RequestPooled is Request for an answer of many bytes: its byte slices lie in a buffer that is lent until release is
// called. There is nothing to release on an error.
func (c *Conn) RequestPooled(ctx context.Context, req kmsg.Request) (resp kmsg.Response, release func(), err error) {
	v, ok := c.Version(req.Key(), req.MaxVersion())
	if !ok {
		return nil, nil, fmt.Errorf("%s at %s: %w", kmsg.NameForKey(req.Key()), c.addr, ErrNotServed)
	}
	req.SetVersion(v)
	k, err := c.call(ctx, req, true)
	if err != nil {
		return nil, nil, err
	}
	return k.resp, k.frame.Release, nil
}

func (c *Conn) roundTrip(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	k, err := c.call(ctx, req, false)
	if err != nil {
		return nil, err
	}
	return k.resp, nil
}

// call makes a request and waits for its answer. A buffer whose call was given up is the garbage collector's.
func (c *Conn) call(ctx context.Context, req kmsg.Request, pooled bool) (*call, error) {
	name := kmsg.NameForKey(req.Key())
	call, err := c.send(ctx, req, pooled)
	if err != nil {
		return nil, fmt.Errorf("%s to %s: %w", name, c.addr, err)
	}
	select {
	case err = <-call.result:
	case <-ctx.Done():
		err = ctx.Err()
		if errors.Is(err, context.DeadlineExceeded) {
			c.fail(fmt.Errorf("%s got no answer in time", name))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s to %s: %w", name, c.addr, err)
	}
	return call, nil
}

// writeTimeout bounds a write for whose request no deadline was given.
const writeTimeout = 30 * time.Second

// send writes a request and queues its call, both under one lock: answers come in the order of the writes.
func (c *Conn) send(ctx context.Context, req kmsg.Request, pooled bool) (*call, error) {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	k := &call{resp: resp, pooled: pooled, result: make(chan error, 1)}

	buf := buffer.Get(0)
	defer buf.Release()
	h := Header{}
	if c.clientID != "" {
		h.ClientID = &c.clientID
	}
	buf.B = AppendRequest(append(buf.B, 0, 0, 0, 0), h, req)
	binary.BigEndian.PutUint32(buf.B, uint32(len(buf.B)-4))

	c.sending.Lock()
	defer c.sending.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k.correlationID = c.next
	c.next++
	binary.BigEndian.PutUint32(buf.B[8:], uint32(k.correlationID))
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	c.pending = append(c.pending, k)
	c.mu.Unlock()

	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(writeTimeout)
	}
	_ = c.net.SetWriteDeadline(deadline) // fails only on a closed connection, which the write then tells
	if _, err := c.net.Write(buf.B); err != nil {
		c.fail(fmt.Errorf("write: %w", err)) // A part may be on the wire: nothing can follow it.
	}
	return k, nil
}

// fail ends the connection and everything that waits on it; the first reason counts.
func (c *Conn) fail(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = fmt.Errorf("%w: %w", ErrConnClosed, reason)
	pending := c.pending
	c.pending = nil
	err := c.err
	close(c.closed)
	c.mu.Unlock()
	c.net.Close()
	for _, k := range pending {
		k.result <- err
	}
}

func (c *Conn) readLoop() {
	defer close(c.done)
	in := bufio.NewReaderSize(c.net, 16<<10)
	for {
		err := c.readOne(in)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("closed by the server")
			}
			c.fail(err)
			return
		}
	}
}

// readOne reads an answer and gives it to the oldest call.
func (c *Conn) readOne(in io.Reader) error {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > c.maxBytes {
		return fmt.Errorf("response of %d bytes announced, 4 to %d allowed", size, c.maxBytes)
	}
	c.mu.Lock()
	pooled := len(c.pending) > 0 && c.pending[0].pooled
	c.mu.Unlock()
	frame, err := readFrame(in, int(size), pooled, func() {})
	if err != nil {
		return fmt.Errorf("response of %d bytes ended early: %w", size, io.ErrUnexpectedEOF)
	}
	return c.deliver(frame)
}

// deliver gives an answer to the oldest call. Anything out of place breaks the connection: what follows can't
// be told apart.
func (c *Conn) deliver(buf *buffer.Buffer) error {
	c.mu.Lock()
	if len(c.pending) == 0 {
		c.mu.Unlock()
		return errors.New("a response without a request")
	}
	k := c.pending[0]
	c.pending[0] = nil
	c.pending = c.pending[1:]
	c.mu.Unlock()
	k.frame = buf
	frame := buf.B

	if got := int32(binary.BigEndian.Uint32(frame)); got != k.correlationID {
		err := fmt.Errorf("response has correlation id %d, want %d", got, k.correlationID)
		k.result <- fmt.Errorf("%w: %w", ErrConnClosed, err)
		return err
	}
	// ApiVersions answers in version 0 when it doesn't know the version asked in (KIP-511).
	if k.resp.Key() == int16(kmsg.ApiVersions) && len(frame) >= 6 && int16(binary.BigEndian.Uint16(frame[4:])) == unsupportedVersionCode {
		k.resp.SetVersion(0)
	}
	if _, err := ParseResponse(frame, k.resp); err != nil {
		k.result <- fmt.Errorf("%w: %w", ErrConnClosed, err)
		return err
	}
	k.result <- nil
	return nil
}

// unsupportedVersionCode is kerr.UnsupportedVersion's code.
const unsupportedVersionCode = 35
