package controller

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// producerIDBlock is how many producer ids a broker gets at once (KIP-730).
const producerIDBlock = 1000

// checkBrokerEpoch says STALE_BROKER_EPOCH to a sender that is not registered with that epoch, as Kafka does for
// both cases.
func (c *Controller) checkBrokerEpoch(id ident.NodeID, epoch int64) *kerr.Error {
	if b := c.appended.broker(id); b == nil || b.Epoch != epoch {
		return kerr.StaleBrokerEpoch
	}
	return nil
}

// AllocateProducerIDs (67) hands a broker a block of producer ids that nobody else ever gets.
func (c *Controller) AllocateProducerIDs(now ident.Instant, request *kmsg.AllocateProducerIDsRequest) Decision {
	response := request.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	if !c.active {
		response.ErrorCode = kerr.NotController.Code
		return notController(response)
	}
	c.enter(now)
	defer c.plan()
	id := ident.NodeID(request.BrokerID)
	if code := c.checkBrokerEpoch(id, request.BrokerEpoch); code != nil {
		response.ErrorCode = code.Code
		return c.answer(response)
	}
	first := max(c.appended.image.NextProducerID(), 0)
	if first > math.MaxInt64-producerIDBlock {
		response.ErrorCode = kerr.UnknownServerError.Code // Kafka's answer when they have run out
		return c.answer(response)
	}
	t := c.begin()
	t.add(&metadata.ProducerIDsRecord{BrokerID: id, BrokerEpoch: request.BrokerEpoch, NextProducerID: first + producerIDBlock})
	response.ProducerIDStart, response.ProducerIDLen = first, producerIDBlock
	return t.commit(response)
}
