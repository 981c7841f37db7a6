package fault

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunkBytes = 32 << 10
	// queueChunks bounds what a delayed direction holds in memory; after that the sender feels it, as it would a
	// full window.
	queueChunks = 128
	dialTimeout = 5 * time.Second
)

// proxy carries the connections that one participant opens to one listener of another.
type proxy struct {
	table *Table
	link  Direction
	addr  string
	wg    sync.WaitGroup

	// The table's lock guards these two.
	listener  net.Listener // nil while the target is down
	accepting bool

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
}

func (p *proxy) accept(l net.Listener) {
	defer p.wg.Done()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if !p.keep(conn) {
			return
		}
		p.wg.Add(1)
		go p.serve(conn)
	}
}

// keep remembers a connection so that close ends it; false when the proxy has ended.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.Close()
}

// close ends the listener and all connections. The caller holds the table's lock.
func (p *proxy) close() {
	if p.listener != nil {
		p.listener.Close()
		p.listener, p.accepting = nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for c := range p.conns {
		c.Close()
	}
	p.table.wake()
}

// resetAll resets the connections that stand.
func (p *proxy) resetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

func (p *proxy) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

func (p *proxy) serve(client net.Conn) {
	defer p.wg.Done()
	defer p.drop(client)
	// A connection needs packets of both directions before it stands.
	if !p.passable(p.link) || !p.passable(p.link.reversed()) {
		return
	}
	addr, up := p.table.target(p.link)
	if !up {
		reset(client)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	server, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	cancel()
	if err != nil {
		reset(client)
		return
	}
	if !p.keep(server) {
		return
	}
	defer p.drop(server)
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client, p.link) })
	both.Go(func() { p.pump(client, server, p.link.reversed()) })
	both.Wait()
}

// passable waits until a direction is not cut; false when the proxy ends before that.
func (p *proxy) passable(d Direction) bool {
	for {
		cut, _, changed := p.table.state(d)
		if p.over() {
			return false
		}
		if !cut {
			return true
		}
		<-changed
	}
}

type chunk struct {
	data    []byte // nil: the sender has ended, with err
	err     error
	arrived time.Time
}

// pump carries one direction of a connection, its end included.
func (p *proxy) pump(dst, src net.Conn, d Direction) {
	queue := make(chan chunk, queueChunks)
	var reader sync.WaitGroup
	gone := make(chan struct{}) // closed when nothing can be written any more
	reader.Go(func() {
		defer close(queue)
		for {
			buffer := make([]byte, chunkBytes)
			n, err := src.Read(buffer)
			if n > 0 {
				select {
				case queue <- chunk{data: buffer[:n], arrived: time.Now()}:
				case <-gone:
					return
				}
			}
			if err != nil {
				select {
				case queue <- chunk{err: err, arrived: time.Now()}:
				case <-gone:
				}
				return
			}
		}
	})
	defer reader.Wait()
	defer close(gone)
	for c := range queue {
		if !p.deliver(c.arrived, d) {
			src.Close()
			return
		}
		if c.data == nil {
			if tcp, ok := dst.(*net.TCPConn); ok && errors.Is(c.err, io.EOF) {
				_ = tcp.CloseWrite()
			} else {
				reset(dst)
			}
			return
		}
		p.table.notePassed(d)
		if _, err := dst.Write(c.data); err != nil {
			reset(src)
			return
		}
	}
}

// deliver waits until what arrived at a time may go on; false when the proxy ends before that.
func (p *proxy) deliver(arrived time.Time, d Direction) bool {
	for {
		cut, delay, changed := p.table.state(d)
		if p.over() {
			return false
		}
		wait := time.Until(arrived.Add(delay))
		switch {
		case cut:
			<-changed
		case delay > 0 && wait > 0:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-changed:
				timer.Stop()
			}
		default:
			return true
		}
	}
}

// reset closes a connection so that the other side sees a reset and not an orderly end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}
