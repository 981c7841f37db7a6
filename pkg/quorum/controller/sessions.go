package controller

import (
	"cmp"
	"math"
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// A session is what the active controller remembers of a registered broker and no record holds.
type session struct {
	epoch          int64         // of the registration that it is about
	contact        ident.Instant // when the broker was last heard of
	metadataOffset int64         // the last metadata offset that it had applied then; -1 when not known
	shutdownOffset ident.Offset  // what the others must have applied before it may stop; unknown when it does not want to
}

func (c *Controller) startSession(id ident.NodeID) {
	c.sessions[id] = &session{epoch: c.appended.broker(id).Epoch, contact: c.now, metadataOffset: -1, shutdownOffset: ident.UnknownOffset}
}

// Contact notes that a broker was heard of at the given time, so that a heartbeat that waits behind other work
// counts from when it came, even if nobody waits for its answer any more (KAFKA-15019). A loop with such heartbeats
// at hand reports them before it calls Tick.
func (c *Controller) Contact(at ident.Instant, id ident.NodeID, brokerEpoch int64) {
	if s := c.sessions[id]; s != nil && s.epoch == brokerEpoch {
		s.contact = max(s.contact, at)
	}
}

func (c *Controller) renewSessions() {
	for _, s := range c.sessions {
		s.contact = c.now
	}
}

func (c *Controller) expired(id ident.NodeID) bool {
	s := c.sessions[id]
	return s == nil || c.now >= s.contact.Add(c.cfg.SessionTimeout)
}

// nextExpiry is when the first session of an unfenced broker ends.
func (c *Controller) nextExpiry() ident.Instant {
	next := ident.Never
	for b := range c.appended.image.Brokers() {
		if s := c.sessions[b.ID]; s != nil && !b.Fenced {
			next = min(next, s.contact.Add(c.cfg.SessionTimeout))
		}
	}
	return next
}

// sessionOrder returns the brokers with sessions, the longest silent one first.
func (c *Controller) sessionOrder() []ident.NodeID {
	ids := make([]ident.NodeID, 0, len(c.sessions))
	for id := range c.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	slices.SortStableFunc(ids, func(a, b ident.NodeID) int { return cmp.Compare(c.sessions[a].contact, c.sessions[b].contact) })
	return ids
}

// lowestMetadataOffset is up to where every broker that takes part has applied the metadata log.
func (c *Controller) lowestMetadataOffset() int64 {
	lowest := int64(math.MaxInt64)
	for b := range c.appended.image.Brokers() {
		if b.Active() {
			lowest = min(lowest, c.sessions[b.ID].metadataOffset)
		}
	}
	return lowest
}
