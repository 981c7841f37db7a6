package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is one connection: a goroutine that reads requests and hands them on, and one that writes the answers
// in the order of the requests. A request that waits costs neither.
type conn struct {
	server    *Server
	net       net.Conn
	log       *slog.Logger
	principal Principal

	// ctx ends when the connection is gone; readCtx also when the server drains.
	ctx      context.Context
	cancel   context.CancelFunc
	readCtx  context.Context
	stopRead context.CancelFunc
	slots    chan struct{} // one element for each request in flight
	wake     chan struct{}

	mu         sync.Mutex
	queue      []*Request // unanswered or unwritten, in order of arrival
	readerDone bool
	closed     bool
	reason     CloseReason
	err        error
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		server: s, net: nc, log: s.cfg.Log.With("remote", nc.RemoteAddr().String()), principal: Anonymous,
		slots: make(chan struct{}, s.cfg.MaxInFlight), wake: make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.readCtx, c.stopRead = context.WithCancel(c.ctx)
	return c
}

// run serves the connection until it ends.
func (c *conn) run() {
	defer c.cancel()
	if err := c.open(); err != nil {
		c.close(ClosedAuthentication, err)
		c.ended()
		return
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		c.writeLoop()
		c.close(ClosedShutdown, nil) // Only a drained connection comes here without a reason of its own.
	})
	reason, err := c.readLoop()
	if reason == "" {
		c.mu.Lock()
		c.readerDone = true
		c.mu.Unlock()
		c.signal()
	} else {
		c.close(reason, err)
	}
	writing.Wait()
	c.ended()
}

// open does the TLS handshake and finds out who is there.
func (c *conn) open() error {
	cfg := &c.server.cfg
	if cfg.TLS != nil {
		secured := tls.Server(c.net, cfg.TLS)
		ctx, cancel := context.WithTimeout(c.readCtx, cfg.BodyTimeout)
		defer cancel()
		if err := secured.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("TLS handshake: %w", err)
		}
		c.mu.Lock()
		c.net = secured
		c.mu.Unlock()
	}
	p, err := cfg.Principal(c.net)
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	c.principal = p
	return nil
}

// drain ends reading; answers still go out.
func (c *conn) drain() {
	c.stopRead()
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.net.SetReadDeadline(time.Unix(1, 0))
}

// setReadDeadline keeps the deadline in the past once the connection drains.
func (c *conn) setReadDeadline(after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readCtx.Err() == nil {
		_ = c.net.SetReadDeadline(time.Now().Add(after)) // fails only on a closed connection, which the read then tells
	}
}

// close ends the connection; the first reason counts. Answers that are ready are dropped, those to come are
// released as they come.
func (c *conn) close(reason CloseReason, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed, c.reason, c.err = true, reason, err
	dropped := c.queue
	c.queue = nil
	nc := c.net
	var ready []outgoing
	for _, r := range dropped {
		if r.ready {
			ready = append(ready, r.out)
		}
	}
	c.mu.Unlock()
	nc.Close()
	c.cancel()
	for i := range ready {
		ready[i].release()
	}
}

func (c *conn) ended() {
	c.server.cfg.Metrics.ConnectionClosed(c.reason)
	level := slog.LevelDebug
	if c.err != nil {
		level = slog.LevelInfo
	}
	c.log.Log(context.Background(), level, "connection closed", "reason", string(c.reason), "error", c.err)
}

// readLoop returns an empty reason when the server drains.
func (c *conn) readLoop() (CloseReason, error) {
	in := bufio.NewReaderSize(c.net, 16<<10)
	for {
		if reason, err := c.readOne(in); reason != "" || err != nil || c.readCtx.Err() != nil {
			if c.ctx.Err() == nil && c.readCtx.Err() != nil {
				return "", nil
			}
			return reason, err
		}
	}
}

// readOne reads one request and hands it on. Any reason ends the connection.
func (c *conn) readOne(in *bufio.Reader) (CloseReason, error) {
	cfg := &c.server.cfg
	size, err := c.readSize(in)
	if err != nil {
		return reasonOf(err), quiet(err)
	}
	received := time.Now()
	if size < fixedHeaderSize {
		return ClosedMalformed, fmt.Errorf("%w: frame of %d bytes", ErrMalformed, size)
	}
	if size > cfg.MaxRequestBytes {
		return ClosedOversized, fmt.Errorf("%w: %d bytes announced, %d allowed%s", ErrTooLarge, size, cfg.MaxRequestBytes, looksLike(size))
	}
	if in.Buffered() < int(size) {
		c.setReadDeadline(cfg.BodyTimeout)
	}
	head, err := in.Peek(2)
	if err != nil {
		return ClosedMalformed, fmt.Errorf("a request of %d bytes ended early: %w", size, err)
	}
	key := int16(binary.BigEndian.Uint16(head))
	if size > cfg.MaxPlainBytes && key != int16(kmsg.Produce) {
		return ClosedOversized, fmt.Errorf("%w: %d bytes announced for %s, %d allowed%s", ErrTooLarge, size,
			kmsg.NameForKey(key), cfg.MaxPlainBytes, looksLike(size))
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.readCtx.Done():
		return ClosedShutdown, nil
	}
	held := min(int64(size), cfg.MaxBufferedBytes)
	if err := c.server.budget.Acquire(c.readCtx, held); err != nil {
		return ClosedShutdown, nil
	}
	// Only Produce brings bytes that are worth a pool, and its handler says when it needs them no longer. What other
	// requests hold may be looked at even after their answer, by a handler that gave one at its deadline.
	pooled := key == int16(kmsg.Produce)
	frame, err := readFrame(in, int(size), pooled, func() {
		if in.Buffered() < int(size) { // else it is there already
			c.setReadDeadline(cfg.BodyTimeout)
		}
	})
	if err != nil {
		c.server.budget.Release(held)
		return ClosedMalformed, fmt.Errorf("a request of %d bytes ended early: %w", size, err)
	}

	h, body, err := ParseRequest(frame.B, cfg.Versions)
	r := &Request{
		Header: h, Listener: cfg.Listener, Principal: c.principal, RemoteAddr: c.net.RemoteAddr(), Body: body,
		Received: received, ctx: c.ctx, authorizer: cfg.Authorizer, bodySize: held,
		giveBack: c.server.budget.Release, finish: c.finish, frameSize: int64(size) + 4,
	}
	if pooled {
		r.frame = frame
	}
	switch {
	case errors.Is(err, ErrUnsupportedVersion) && h.Key == int16(kmsg.ApiVersions):
		r.Version, r.Body = 0, kmsg.NewPtrApiVersionsRequest()
	case err != nil:
		r.ReleaseBody()
		if errors.Is(err, ErrMalformed) {
			return ClosedMalformed, err
		}
		return ClosedUnsupported, err
	}
	c.mu.Lock()
	c.queue = append(c.queue, r)
	c.mu.Unlock()

	switch b := r.Body.(type) {
	case *kmsg.ApiVersionsRequest:
		if err != nil {
			r.Reply(unsupportedAPIVersions(cfg.Versions))
		} else {
			r.Reply(apiVersions(b, cfg.Versions, cfg.Features()))
		}
		return "", nil
	case *kmsg.FetchRequest:
		if id, _ := FetchReplica(b); cfg.Listener == External && id >= 0 {
			r.Reply(refuseReplicaFetch(b))
			return "", nil
		}
	}
	if c.server.call(r) {
		return ClosedByHandler, fmt.Errorf("handler of %s panicked", kmsg.NameForKey(r.Key))
	}
	return "", nil
}

// readSize waits for the next request. An idle time-out counts only while nothing is in flight.
func (c *conn) readSize(in *bufio.Reader) (int32, error) {
	for {
		c.setReadDeadline(c.server.cfg.IdleTimeout)
		b, err := in.Peek(4)
		if err == nil {
			_, _ = in.Discard(4) // they were peeked at
			return int32(binary.BigEndian.Uint32(b)), nil
		}
		if c.readCtx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) && len(b) == 0 && len(c.slots) > 0 {
			continue
		}
		if errors.Is(err, io.EOF) && len(b) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
}

// finish puts an answer into its place; what is ready at the head is written.
func (c *conn) finish(r *Request, out outgoing) {
	if out.failure != nil {
		out.release()
		c.close(ClosedByHandler, fmt.Errorf("%s version %d: %w", kmsg.NameForKey(r.Key), r.Version, out.failure))
		return
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		out.release()
		return
	}
	r.out, r.ready = out, true
	atHead := len(c.queue) > 0 && c.queue[0] == r
	c.mu.Unlock()
	if atHead {
		c.signal()
	}
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// reasonOf tells how reading ended between two requests.
func reasonOf(err error) CloseReason {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ClosedIdle
	case errors.Is(err, io.ErrUnexpectedEOF):
		return ClosedMalformed
	}
	return ClosedByClient
}

// quiet drops errors that are a connection's ordinary end.
func quiet(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// looksLike explains the two most usual senders of absurd lengths.
func looksLike(size int32) string {
	switch b := binary.BigEndian.AppendUint32(nil, uint32(size)); {
	case b[0] == 0x16 && b[1] == 3:
		return " (these bytes are a TLS handshake: the client speaks TLS, this listener doesn't)"
	case string(b) == "GET " || string(b) == "POST" || string(b) == "HEAD" || string(b) == "PUT ":
		return " (these bytes are an HTTP request: this is a Kafka listener)"
	}
	return ""
}
