package controller

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

type brokerState int8

const (
	fenced brokerState = iota
	unfenced
	controlledShutdown
	shutdownNow
)

func (s brokerState) String() string {
	return [...]string{"fenced", "unfenced", "in controlled shutdown", "free to stop"}[s]
}

// BrokerHeartbeat (63) keeps a broker's session alive and moves it through its life: unfenced when it has applied
// its own registration and wants to, fenced when it wants to, and stopped only when it leads nothing and everybody
// else has heard of that. BROKER_ID_NOT_REGISTERED and STALE_BROKER_EPOCH tell the broker to register (again).
func (c *Controller) BrokerHeartbeat(now ident.Instant, request *kmsg.BrokerHeartbeatRequest) Decision {
	response := request.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	response.IsFenced = true
	if !c.active {
		response.ErrorCode = kerr.NotController.Code
		return notController(response)
	}
	c.enter(now)
	defer c.plan()
	id := ident.NodeID(request.BrokerID)
	b := c.appended.broker(id)
	switch {
	case b == nil:
		response.ErrorCode = kerr.BrokerIDNotRegistered.Code
		return c.answer(response)
	case b.Epoch != request.BrokerEpoch:
		response.ErrorCode = kerr.StaleBrokerEpoch.Code
		return c.answer(response)
	}
	s := c.sessions[id]
	s.contact, s.metadataOffset = c.now, request.CurrentMetadataOffset
	caughtUp := request.CurrentMetadataOffset >= b.Epoch // the offset of its registration, not a moving end (KAFKA-13959)

	t := c.begin()
	t.dirsOffline(b, request.OfflineLogDirs)
	current := stateOf(b)
	next := c.nextBrokerState(current, b, s, request, caughtUp)
	switch {
	case next == unfenced && current == fenced:
		t.unfence(b)
	case next == fenced && current != fenced, next == shutdownNow && current != fenced:
		t.fence(b)
	case next == controlledShutdown:
		if !b.InControlledShutdown {
			t.add(&metadata.BrokerRegistrationChangeRecord{BrokerID: id, BrokerEpoch: b.Epoch, InControlledShutdown: metadata.ControlledShutdown})
		}
		t.leaveAll(id)
	}
	response.IsCaughtUp, response.IsFenced, response.ShouldShutdown = caughtUp, next == fenced || next == shutdownNow, next == shutdownNow
	d := t.commit(response)
	if next != current {
		d.Reason = fmt.Sprintf("broker %d, of epoch %d, asks and is now %s", id, b.Epoch, next)
	}
	if next != controlledShutdown {
		s.shutdownOffset = ident.UnknownOffset
	} else if s.shutdownOffset == ident.UnknownOffset {
		// Fixed once: under load a moving one would never be reached (KAFKA-14292).
		s.shutdownOffset = c.nextOffset - 1
	}
	return d
}

func stateOf(b *metadata.Broker) brokerState {
	switch {
	case b.Fenced:
		return fenced
	case b.InControlledShutdown:
		return controlledShutdown
	}
	return unfenced
}

// nextBrokerState is KIP-631's state machine.
func (c *Controller) nextBrokerState(current brokerState, b *metadata.Broker, s *session, request *kmsg.BrokerHeartbeatRequest, caughtUp bool) brokerState {
	leads := func() bool { return c.appended.index.leads(b.ID) }
	switch current {
	case fenced:
		switch {
		case request.WantShutdown:
			return shutdownNow
		case !request.WantFence && caughtUp:
			return unfenced
		}
		return fenced
	case unfenced:
		switch {
		case request.WantFence && request.WantShutdown:
			return shutdownNow
		case request.WantFence:
			return fenced
		case request.WantShutdown && leads():
			return controlledShutdown
		case request.WantShutdown:
			return shutdownNow
		}
		return unfenced
	}
	if leads() || s.shutdownOffset == ident.UnknownOffset || c.lowestMetadataOffset() < int64(s.shutdownOffset) {
		return controlledShutdown
	}
	return shutdownNow
}

// dirsOffline takes a broker's replicas in directories that it can't use any more out of the ISR and moves what
// they lead, and notes what is left of its directories (KIP-858).
func (t *tx) dirsOffline(b *metadata.Broker, offline [][16]byte) {
	var left, lost []ident.UUID
	for _, dir := range b.LogDirs {
		if slices.Contains(offline, [16]byte(dir)) {
			lost = append(lost, dir)
		} else {
			left = append(left, dir)
		}
	}
	if len(lost) == 0 {
		return
	}
	s := t.state()
	var affected []ident.TopicPartition
	for _, tp := range s.index.of(b.ID) {
		_, p := s.partition(tp)
		dir, ok := p.Directory(b.ID)
		if ok && (slices.Contains(lost, dir) || dir == ident.LostDirectory && len(left) == 0) {
			affected = append(affected, tp)
		}
	}
	t.leave(b.ID, affected)
	// A record can't say that no directory is left: it would read as no change. Such a broker stops by itself.
	if len(left) > 0 {
		t.add(&metadata.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, LogDirs: left})
	}
}
