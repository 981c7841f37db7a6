package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/wire"
)

// errNoController is wrapped when nobody is known to lead the quorum.
var errNoController = errors.New("no active controller is known")

// Lanes to the controller. Answers of one connection come in order: a heartbeat must not wait behind a
// CreateTopics that waits for its commit.
const (
	laneHeartbeat   = "heartbeat"
	laneAlter       = "alter"
	laneAdmin       = "admin"
	laneVoters      = "voters"
	laneProducerIDs = "producer-ids"
	laneDirectories = "directories"
)

// controllerChannel sends requests to the active controller: the leader of the quorum as this node's raft
// knows it.
type controllerChannel struct {
	pool    *wire.Pool
	timeout time.Duration

	mu      sync.Mutex
	leader  raft.Leadership
	changed chan struct{}
}

func newControllerChannel(pool *wire.Pool, timeout time.Duration) *controllerChannel {
	return &controllerChannel{
		pool: pool, timeout: timeout, changed: make(chan struct{}),
		leader: raft.Leadership{Leader: ident.NoNode, Epoch: ident.UnknownEpoch},
	}
}

// setLeader is told of every change of leadership. Requests under way to the old leader fail by themselves: it
// answers NOT_CONTROLLER, or it is gone and their time runs out.
func (c *controllerChannel) setLeader(l raft.Leadership) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = l
	close(c.changed)
	c.changed = make(chan struct{})
}

// current returns the leader and a channel that is closed when it changes.
func (c *controllerChannel) current() (raft.Leadership, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader, c.changed
}

// request sends one request to the active controller and waits for its answer, at most the channel's time-out.
// It does not try again: the caller knows whether the request may be repeated.
func (c *controllerChannel) request(ctx context.Context, lane string, req kmsg.Request) (kmsg.Response, error) {
	return c.requestFor(ctx, lane, c.timeout, req)
}

func (c *controllerChannel) requestFor(ctx context.Context, lane string, timeout time.Duration, req kmsg.Request) (kmsg.Response, error) {
	leader, changed := c.current()
	if leader.Leader == ident.NoNode {
		return nil, errNoController
	}
	if len(leader.Endpoints) == 0 {
		return nil, fmt.Errorf("%w: node %d leads the quorum and its address is not known", errNoController, leader.Leader)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// A dead leader's connection says nothing; its successor does.
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-changed:
			cancel()
		case <-stop:
		}
	}()
	e := leader.Endpoints[0]
	return c.pool.Peer(net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))), lane).Request(ctx, req)
}
