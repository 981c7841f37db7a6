package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"
)

// Limits that hold when a ServerConfig leaves them zero.
const (
	DefaultMaxRequestBytes  = 100 << 20 // socket.request.max.bytes
	DefaultMaxPlainBytes    = 8 << 20
	DefaultMaxBufferedBytes = 128 << 20
	DefaultMaxInFlight      = 16
	DefaultIdleTimeout      = 10 * time.Minute // connections.max.idle.ms
	DefaultBodyTimeout      = 30 * time.Second
)

// CloseReason says in a word why a connection ended; metrics count by it.
type CloseReason string

// The reasons.
const (
	ClosedByClient       CloseReason = "client"
	ClosedIdle           CloseReason = "idle"
	ClosedOversized      CloseReason = "oversized"
	ClosedMalformed      CloseReason = "malformed"
	ClosedUnsupported    CloseReason = "unsupported"
	ClosedAuthentication CloseReason = "authentication"
	ClosedByHandler      CloseReason = "handler"
	ClosedWriteFailed    CloseReason = "write"
	ClosedShutdown       CloseReason = "shutdown"
)

// Metrics is told what happens on a listener, from many goroutines.
type Metrics interface {
	ConnectionOpened()
	ConnectionClosed(CloseReason)
	// RequestDone is called when the answer is written (or there is none to write): sizes as on the wire, took
	// from the request's first byte on.
	RequestDone(key, version int16, requestBytes, responseBytes int64, took time.Duration)
}

// NoMetrics counts nothing.
type NoMetrics struct{}

// ConnectionOpened does nothing.
func (NoMetrics) ConnectionOpened() {}

// ConnectionClosed does nothing.
func (NoMetrics) ConnectionClosed(CloseReason) {}

// RequestDone does nothing.
func (NoMetrics) RequestDone(_, _ int16, _, _ int64, _ time.Duration) {}

// ServerConfig is what a Server is made of. Handler and Listener are required.
type ServerConfig struct {
	Listener Listener
	Handler  Handler
	// Versions defaults to TableFor(Listener).
	Versions VersionTable
	// Features is asked for each ApiVersions request; nil: no features.
	Features func() Features
	// TLS, when not nil, makes every connection a TLS one.
	TLS *tls.Config
	// Principal defaults to Anonymous for everybody, Authorizer to AllowAll.
	Principal  PrincipalFunc
	Authorizer Authorizer
	Metrics    Metrics
	Log        *slog.Logger
	// MaxRequestBytes bounds one request, MaxPlainBytes one that carries no records (all but Produce): decoded
	// it may be thirty times as large as on the wire.
	MaxRequestBytes int32
	MaxPlainBytes   int32
	// MaxBufferedBytes bounds the request bytes that the listener holds at once; a connection isn't read while
	// its next request has no room. It is one listener's own: clients that fill theirs don't stop replication.
	MaxBufferedBytes int64
	// MaxInFlight bounds the unanswered requests of one connection; it isn't read beyond.
	MaxInFlight int
	// IdleTimeout ends a connection that has no request in flight and sends none, or takes no byte of an answer.
	IdleTimeout time.Duration
	// BodyTimeout ends a connection on which a request that began doesn't go on.
	BodyTimeout time.Duration
	// OnPanic is called when Handler panics. The default logs the request and panics again, which ends the
	// process: what the handler held half changed can't be trusted (a log, a lock). It may instead return;
	// then the connection is closed.
	OnPanic func(r *Request, value any, stack []byte)
}

// Server serves one listener.
type Server struct {
	cfg      ServerConfig
	budget   *semaphore.Weighted
	stopping chan struct{}

	mu        sync.Mutex
	stopped   bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	running   sync.WaitGroup
}

// NewServer checks cfg and fills its defaults.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Handler == nil {
		return nil, errors.New("wire server: no handler")
	}
	if cfg.Versions == nil {
		if cfg.Versions = TableFor(cfg.Listener); cfg.Versions == nil {
			return nil, fmt.Errorf("wire server: listener %q has no version table", cfg.Listener)
		}
	}
	setDefault(&cfg.MaxRequestBytes, DefaultMaxRequestBytes)
	setDefault(&cfg.MaxPlainBytes, DefaultMaxPlainBytes)
	setDefault(&cfg.MaxBufferedBytes, DefaultMaxBufferedBytes)
	setDefault(&cfg.MaxInFlight, DefaultMaxInFlight)
	setDefault(&cfg.IdleTimeout, DefaultIdleTimeout)
	setDefault(&cfg.BodyTimeout, DefaultBodyTimeout)
	if cfg.MaxRequestBytes < 0 || cfg.MaxPlainBytes < 0 || cfg.MaxBufferedBytes < 0 || cfg.MaxInFlight < 0 || cfg.IdleTimeout < 0 || cfg.BodyTimeout < 0 {
		return nil, fmt.Errorf("wire server %s: a limit is negative", cfg.Listener)
	}
	if cfg.Features == nil {
		cfg.Features = func() Features { return Features{FinalizedEpoch: -1} }
	}
	if cfg.Principal == nil {
		cfg.Principal = func(net.Conn) (Principal, error) { return Anonymous, nil }
	}
	if cfg.Authorizer == nil {
		cfg.Authorizer = AllowAll{}
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NoMetrics{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.Log = cfg.Log.With("listener", string(cfg.Listener))
	if cfg.OnPanic == nil {
		log := cfg.Log
		cfg.OnPanic = func(r *Request, value any, stack []byte) {
			log.Error("handler panicked, stopping", "api", kmsg.NameForKey(r.Key), "version", r.Version,
				"remote", r.RemoteAddr, "panic", value, "stack", string(stack))
			panic(value)
		}
	}
	return &Server{
		cfg: cfg, budget: semaphore.NewWeighted(cfg.MaxBufferedBytes), stopping: make(chan struct{}),
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
	}, nil
}

func setDefault[T ~int | ~int32 | ~int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// ErrServerClosed is what Serve returns after Shutdown or Close.
var ErrServerClosed = errors.New("wire server is closed")

// keepAlive finds a peer that vanished without a word within about a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// Serve accepts connections from ln until Shutdown or Close, then returns ErrServerClosed; another error when
// accepting fails for good. It closes ln. More than one Serve may run at once.
func (s *Server) Serve(ln net.Listener) error {
	defer ln.Close()
	if !s.addListener(ln) {
		return ErrServerClosed
	}
	defer s.removeListener(ln)
	backOff := time.Duration(0)
	for {
		nc, err := ln.Accept()
		select {
		case <-s.stopping:
			if err == nil {
				nc.Close()
			}
			return ErrServerClosed
		default:
		}
		if err == nil {
			backOff = 0
			s.start(nc)
			continue
		}
		// Out of file descriptors, or a connection that was gone before it was accepted: wait and go on. A
		// listener that is closed doesn't come back.
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept on %s: %w", s.cfg.Listener, err)
		}
		backOff = min(max(2*backOff, 5*time.Millisecond), time.Second)
		s.cfg.Log.Warn("accept failed", "error", err, "retryIn", backOff)
		select {
		case <-s.stopping:
			return ErrServerClosed
		case <-time.After(backOff):
		}
	}
}

// ServeConn serves one connection that was accepted elsewhere and returns at once.
func (s *Server) ServeConn(nc net.Conn) { s.start(nc) }

func (s *Server) start(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		if err := tcp.SetKeepAliveConfig(keepAlive); err != nil {
			s.cfg.Log.Debug("no keepalive", "remote", nc.RemoteAddr(), "error", err)
		}
	}
	c := newConn(s, nc)
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		nc.Close()
		c.cancel()
		return
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	s.mu.Unlock()
	s.cfg.Metrics.ConnectionOpened()
	go func() {
		defer s.running.Done()
		c.run()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
}

// Shutdown stops accepting and reading, lets what is in flight be answered, and closes each connection when
// its last answer is written. When ctx ends first the rest is closed at once and ctx's error returned. All
// goroutines of the server have ended when it returns.
func (s *Server) Shutdown(ctx context.Context) error {
	conns := s.stop()
	for _, c := range conns {
		c.drain()
	}
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	for _, c := range conns {
		c.close(ClosedShutdown, nil)
	}
	<-done
	return ctx.Err()
}

// Close ends all connections at once and waits for the server's goroutines.
func (s *Server) Close() {
	for _, c := range s.stop() {
		c.close(ClosedShutdown, nil)
	}
	s.running.Wait()
}

func (s *Server) stop() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	for ln := range s.listeners {
		ln.Close()
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

func (s *Server) addListener(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.listeners[ln] = struct{}{}
	s.running.Add(1)
	return true
}

func (s *Server) removeListener(ln net.Listener) {
	s.mu.Lock()
	delete(s.listeners, ln)
	s.mu.Unlock()
	s.running.Done()
}

// call runs the handler; see ServerConfig.OnPanic.
func (s *Server) call(r *Request) (panicked bool) {
	defer func() {
		if value := recover(); value != nil {
			panicked = true
			s.cfg.OnPanic(r, value, debug.Stack())
		}
	}()
	s.cfg.Handler.Handle(r)
	return false
}
