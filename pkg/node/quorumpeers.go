package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/quorum/raft/rpc"
	"github.com/highwater-io/highwater/pkg/wire"
)

// Back-off between attempts to reach a member of the quorum. It is short: an election waits for it.
const (
	peerBackOffMin = 20 * time.Millisecond
	peerBackOffMax = 200 * time.Millisecond
)

// quorumPeers carries the core's requests to the other members and their answers back. The core has one request to
// each of them under way at most, so this needs no queue.
type quorumPeers struct {
	quorum *quorum
	pool   *wire.Pool

	mu      sync.Mutex
	ctx     context.Context
	running *sync.WaitGroup
	flying  map[chan struct{}]bool // one for each request under way, closed when it has its answer
}

// outgoingCall is a request and where it goes.
type outgoingCall struct {
	raft.Send
	endpoints []raft.Endpoint
}

func newQuorumPeers(q *quorum) *quorumPeers {
	return &quorumPeers{
		quorum: q, flying: map[chan struct{}]bool{},
		pool: &wire.Pool{Dialer: q.node.dialer, BackOffMin: peerBackOffMin, BackOffMax: peerBackOffMax},
	}
}

func (p *quorumPeers) start(ctx context.Context, running *sync.WaitGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx, p.running = ctx, running
}

func (p *quorumPeers) close() { p.pool.Close() }

// send starts a request; its answer, or the error, goes back to the core.
func (p *quorumPeers) send(call outgoingCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	landed := make(chan struct{})
	p.flying[landed] = true
	p.running.Go(func() {
		message, err := p.request(call)
		p.quorum.do(func(now ident.Instant) error {
			if refused(err) {
				// Nobody listens there any more: no need to wait for the time-out.
				if err := p.quorum.exec.Unreachable(now, call.To); err != nil {
					return err
				}
			}
			return p.quorum.exec.HandleResponse(now, call.To, call.Correlation, message, err)
		})
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.flying, landed)
		close(landed)
	})
}

// refused says whether an error is that of a host that answered that nobody listens on the port.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func (p *quorumPeers) request(call outgoingCall) (raft.Message, error) {
	if len(call.endpoints) == 0 {
		return nil, fmt.Errorf("the address of node %d is not known", call.To)
	}
	lane, timeout := wire.LaneCall, raft.DefaultRequestTimeout
	switch call.Msg.(type) {
	case *raft.FetchRequest, *raft.FetchSnapshotRequest:
		// The time that the core gives these, and a lane of their own, so that nothing waits behind their many bytes.
		lane, timeout = wire.LaneFetch, raft.DefaultFetchMaxWait+raft.DefaultRequestTimeout
	}
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	e := call.endpoints[0]
	conn, err := p.pool.Peer(net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))), lane).Conn(ctx)
	if err != nil {
		return nil, err
	}
	request := rpc.ToRequest(call.Msg)
	highest := rpc.Versions[request.Key()][1]
	if version, ok := conn.Version(request.Key(), highest); !ok || version < rpc.MinVersion(call.Msg) {
		return nil, raft.ErrUnsupportedVersion
	}
	resp, err := conn.RequestMax(ctx, request, highest)
	if err != nil {
		return nil, err
	}
	return rpc.FromResponse(resp)
}

// drain waits until every request that is under way now has its answer, or ctx ends. It does not wait for those that
// follow: a former leader soon fetches from its successor, and goes on and on.
func (p *quorumPeers) drain(ctx context.Context) {
	p.mu.Lock()
	flying := slices.Collect(maps.Keys(p.flying))
	p.mu.Unlock()
	for _, landed := range flying {
		select {
		case <-landed:
		case <-ctx.Done():
			return
		}
	}
}
