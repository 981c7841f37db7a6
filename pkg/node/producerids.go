package node

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/wire"
)

// producerIDs hands out producer ids from blocks that the controller gives this broker (KIP-730).
type producerIDs struct {
	broker *broker

	mu        sync.Mutex
	next, end int64 // what is left of the block
}

func newProducerIDs(b *broker) *producerIDs { return &producerIDs{broker: b} }

// allocate returns an id that nobody else has. One request for a block is under way at most: the others wait.
func (p *producerIDs) allocate(ctx context.Context) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.end {
		if err := p.fetchBlock(ctx); err != nil {
			return -1, err
		}
	}
	id := p.next
	p.next++
	return id, nil
}

func (p *producerIDs) fetchBlock(ctx context.Context) error {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = int32(p.broker.cfg.NodeID), p.broker.epoch()
	answer, err := p.broker.controllers.request(ctx, laneAdmin, req)
	if err != nil {
		return err
	}
	resp, ok := answer.(*kmsg.AllocateProducerIDsResponse)
	if !ok {
		return errors.New("the controller answered AllocateProducerIds with something else")
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	p.next, p.end = resp.ProducerIDStart, resp.ProducerIDStart+int64(resp.ProducerIDLen)
	return nil
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
