package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/wire"
)

// producerIDs hands out producer ids from blocks that the controller gives this broker (KIP-730).
type producerIDs struct {
	broker *broker
	// askBlock gets the next block of ids.
	askBlock func(ctx context.Context) (first int64, n int32, err error)

	mu        sync.Mutex
	next, end int64         // what is left of the block
	asking    *blockRequest // under way, nil when there is none
}

// blockRequest is a request for a block, with all who wait for it.
type blockRequest struct {
	done chan struct{}
	err  error
}

func newProducerIDs(b *broker) *producerIDs {
	p := &producerIDs{broker: b}
	p.askBlock = p.askController
	return p
}

// allocate returns an id that nobody else has. One request for a block is under way at most: the others wait for it
// and share its failure, so that nobody waits longer than one request takes.
func (p *producerIDs) allocate(ctx context.Context) (int64, error) {
	for {
		p.mu.Lock()
		if p.next < p.end {
			id := p.next
			p.next++
			p.mu.Unlock()
			return id, nil
		}
		if p.asking == nil {
			p.asking = &blockRequest{done: make(chan struct{})}
			go p.fetchBlock(p.asking)
		}
		asking := p.asking
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return -1, ctx.Err()
		case <-asking.done:
			if asking.err != nil {
				return -1, asking.err
			}
		}
	}
}

// fetchBlock outlives whoever asked first: others may wait too. The channel to the controller bounds its time.
func (p *producerIDs) fetchBlock(r *blockRequest) {
	first, n, err := p.askBlock(context.Background())
	if err == nil && n <= 0 {
		err = errors.New("the controller gave an empty block of producer ids")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.next, p.end = first, first+int64(n)
	}
	p.asking, r.err = nil, err
	close(r.done)
}

func (p *producerIDs) askController(ctx context.Context) (int64, int32, error) {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = int32(p.broker.cfg.NodeID), p.broker.epoch()
	answer, err := p.broker.controllers.request(ctx, laneProducerIDs, req)
	if err != nil {
		return 0, 0, err
	}
	resp, ok := answer.(*kmsg.AllocateProducerIDsResponse)
	if !ok {
		return 0, 0, errors.New("the controller answered AllocateProducerIds with something else")
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, 0, err
	}
	return resp.ProducerIDStart, resp.ProducerIDLen, nil
}

// initProducerID answers InitProducerId for idempotent producers. Transactional ids need a coordinator, which
// this node does not have: the answer says so instead of giving an id that would not be transactional.
func (b *broker) initProducerID(req *wire.Request) {
	body := req.Body.(*kmsg.InitProducerIDRequest)
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	switch {
	case body.TransactionalID != nil:
		resp.ErrorCode = kerr.UnsupportedVersion.Code
	case !req.Authorize(wire.OpIdempotentWrite, wire.ClusterResource):
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
	default:
		go func() {
			id, err := b.producerIDs.allocate(req.Context())
			if err != nil {
				b.logger.Info("no producer id can be given out now", "error", err)
				resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			} else {
				resp.ProducerID, resp.ProducerEpoch = id, 0
			}
			req.Reply(resp)
		}()
		return
	}
	req.Reply(resp)
}

// producerExpirationInterval is producer.id.expiration.check.interval.ms.
const producerExpirationInterval = 10 * time.Minute

// producerExpirationLoop has the partitions forget producers that were idle for too long.
func (b *broker) producerExpirationLoop(ctx context.Context) {
	every(ctx, producerExpirationInterval, func() { b.expireProducers(time.Now().UnixMilli()) })
}

func (b *broker) expireProducers(nowMs int64) {
	forgotten := 0
	b.eachReplica(func(r *replica) {
		r.do(func(_ ident.Instant, p *exec.Partition) { forgotten += p.ExpireProducers(nowMs) })
	})
	if forgotten > 0 {
		b.logger.Info("idle producers forgotten", "producers", forgotten)
	}
}
