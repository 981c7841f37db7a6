package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Default back-off between attempts to connect to one address.
const (
	DefaultBackOffMin = 50 * time.Millisecond
	DefaultBackOffMax = time.Second
)

// Pool keeps connections open, one for each address and lane. Its zero value with a Dialer works.
type Pool struct {
	Dialer *Dialer
	// BackOffMin doubles with each failed attempt up to BackOffMax; each wait is shortened by up to half at
	// random, so that nodes that lost the same peer don't come back in step.
	BackOffMin, BackOffMax time.Duration

	mu     sync.Mutex
	closed bool
	peers  map[peerKey]*Peer
}

type peerKey struct{ addr, lane string }

// Lanes of Pool.Request. Answers of a connection come in order, so that a parked fetch would hold back a
// heartbeat behind it.
const (
	LaneFetch = "fetch"
	LaneCall  = "call"
)

// Request sends req to addr on the lane for its key: fetches have one of their own.
func (p *Pool) Request(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	lane := LaneCall
	switch kmsg.Key(req.Key()) {
	case kmsg.Fetch, kmsg.FetchSnapshot:
		lane = LaneFetch
	}
	return p.Peer(addr, lane).Request(ctx, req)
}

// Peer returns the keeper of the connection to addr on a lane; the same one for the same arguments until Drop.
func (p *Pool) Peer(addr, lane string) *Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := peerKey{addr, lane}
	peer := p.peers[key]
	if peer == nil {
		ctx, end := context.WithCancel(context.Background())
		peer = &Peer{
			dialer: p.Dialer, addr: addr, busy: make(chan struct{}, 1), closed: p.closed, ctx: ctx, end: end,
			backOffMin: p.BackOffMin, backOffMax: p.BackOffMax,
		}
		if peer.dialer == nil {
			peer.dialer = &Dialer{}
		}
		setDefault(&peer.backOffMin, DefaultBackOffMin)
		setDefault(&peer.backOffMax, DefaultBackOffMax)
		if p.peers == nil {
			p.peers = map[peerKey]*Peer{}
		}
		p.peers[key] = peer
	}
	return peer
}

// Drop closes what is open to addr: that node is gone or has a new address.
func (p *Pool) Drop(addr string) {
	p.mu.Lock()
	var dropped []*Peer
	for key, peer := range p.peers {
		if key.addr == addr {
			dropped = append(dropped, peer)
			delete(p.peers, key)
		}
	}
	p.mu.Unlock()
	for _, peer := range dropped {
		peer.close()
	}
}

// Close closes all connections; requests fail from then on.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	peers := make([]*Peer, 0, len(p.peers))
	for _, peer := range p.peers {
		peers = append(peers, peer)
	}
	p.mu.Unlock()
	for _, peer := range peers {
		peer.close()
	}
}

// Peer keeps one connection to one address: it is made by the first request and made again, with back-off,
// by the first one after it broke.
type Peer struct {
	dialer                 *Dialer
	addr                   string
	backOffMin, backOffMax time.Duration

	busy chan struct{} // held by whoever dials
	ctx  context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	conn     *Conn
	closed   bool
	failures int
	notUntil time.Time
	lastErr  error
}

// Addr is the peer's address.
func (p *Peer) Addr() string { return p.addr }

// Request sends req, see Conn.Request. While a back-off runs it waits for its end, at most until ctx ends; the
// error then says what the last attempt failed with.
func (p *Peer) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	conn, err := p.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Request(ctx, req)
}

// RequestPooled is Request with an answer in a buffer that is lent, see Conn.RequestPooled.
func (p *Peer) RequestPooled(ctx context.Context, req kmsg.Request) (resp kmsg.Response, release func(), err error) {
	conn, err := p.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	return conn.RequestPooled(ctx, req)
}

// Conn returns the connection that works, dialing if there is none.
func (p *Peer) Conn(ctx context.Context) (*Conn, error) {
	if conn, err := p.current(); conn != nil || err != nil {
		return conn, err
	}
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-ctx.Done():
		return nil, p.gaveUp(ctx)
	case <-p.ctx.Done():
		_, err := p.current()
		return nil, err
	}
	conn, err := p.current()
	if conn != nil || err != nil {
		return conn, err
	}
	p.mu.Lock()
	wait := time.Until(p.notUntil)
	p.mu.Unlock()
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, p.gaveUp(ctx)
		case <-p.ctx.Done():
			_, err := p.current()
			return nil, err
		}
	}
	dialCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	conn, err = p.dialer.Dial(dialCtx, p.addr)
	if errors.Is(ctx.Err(), context.Canceled) && err != nil {
		return nil, err // Says nothing about the address.
	}
	if err := p.dialed(conn, err); err != nil {
		return nil, err
	}
	return conn, nil
}

// current returns the connection if it works, and an error if there will be none.
func (p *Peer) current() (*Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("%s: %w", p.addr, ErrConnClosed)
	}
	if p.conn == nil {
		return nil, nil
	}
	if err := p.conn.Err(); err != nil {
		p.conn = nil
		return nil, nil
	}
	return p.conn, nil
}

func (p *Peer) dialed(conn *Conn, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		wait := min(p.backOffMin<<min(p.failures, 16), p.backOffMax)
		p.failures++
		p.notUntil = time.Now().Add(wait - rand.N(wait/2+1))
		p.lastErr = err
		return err
	}
	p.failures, p.lastErr, p.notUntil = 0, nil, time.Time{}
	if p.closed {
		conn.Close()
		return fmt.Errorf("%s: %w", p.addr, ErrConnClosed)
	}
	p.conn = conn
	return nil
}

// gaveUp says why there is no connection yet as well as that ctx ended.
func (p *Peer) gaveUp(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lastErr != nil {
		return fmt.Errorf("%w before another attempt; the last one: %w", ctx.Err(), p.lastErr)
	}
	return fmt.Errorf("waiting for a connection to %s: %w", p.addr, ctx.Err())
}

func (p *Peer) close() {
	p.mu.Lock()
	p.closed = true
	conn := p.conn
	p.conn = nil
	p.mu.Unlock()
	p.end()
	if conn != nil {
		conn.Close()
	}
}
