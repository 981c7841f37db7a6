package controller

import (
	"fmt"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// leave takes the broker out of the ISR of those partitions and moves what it leads of them. The last member of an
// ISR stays in it, without leading. What finds no room in this decision is left to settle.
func (t *tx) leave(id ident.NodeID, partitions []ident.TopicPartition) (done bool) {
	s := t.state()
	for _, tp := range partitions {
		if !t.room() {
			t.c.unsettled = true
			return false
		}
		topic, p := s.partition(tp)
		ch := s.change(tp, p, id)
		ch.isr = without(p.ISR, []ident.NodeID{id})
		ch.election = s.automatic(topic)
		if r := ch.record(); r != nil {
			t.add(r)
		}
	}
	return true
}

// leaveAll is leave of all that the broker is in.
func (t *tx) leaveAll(id ident.NodeID) (done bool) { return t.leave(id, t.state().index.of(id)) }

// fence writes that the broker is fenced, and before it what follows for its partitions.
func (t *tx) fence(b *metadata.Broker) {
	t.leaveAll(b.ID)
	t.add(&metadata.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: metadata.Fence})
}

// unfence writes that the broker is unfenced and elects leaders for the partitions that have none.
func (t *tx) unfence(b *metadata.Broker) {
	t.add(&metadata.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: metadata.Unfence})
	t.electLeaderless()
}

// electLeaderless elects leaders for the partitions without one, as far as they can be. What finds no room in this
// decision is left to settle.
func (t *tx) electLeaderless() (done bool) { return t.reconsider(t.state().index.of(ident.NoNode)) }

// settle finishes what one decision could not hold, and what a leader before this one left unfinished: brokers that
// may not be in sync leave, partitions without a leader get one. It takes as many decisions as it needs.
func (c *Controller) settle() []Decision {
	var decisions []Decision
	for c.unsettled {
		c.unsettled = false
		t := c.begin()
		if t.leaveInactive() {
			t.electLeaderless()
		}
		if len(t.records) > 0 {
			d := t.commit(nil)
			d.Reason = fmt.Sprintf("%d partitions follow what happened to their brokers", len(d.Records))
			decisions = append(decisions, d)
		}
	}
	return decisions
}

func (t *tx) leaveInactive() (done bool) {
	s := *t.state()
	for id := range s.index.nodes() {
		if !s.active(id) && !t.leaveAll(id) || s.active(id) && !t.leaveOffline(id) {
			return false
		}
	}
	return true
}

// leaveOffline is leave of what is in directories that the broker has not. What is damaged there leaves too, unless
// nobody else is in sync.
func (t *tx) leaveOffline(id ident.NodeID) (done bool) {
	s := t.state()
	var offline, damaged []ident.TopicPartition
	for _, tp := range s.index.of(id) {
		switch _, p := s.partition(tp); {
		case damagedIn(p, id):
			damaged = append(damaged, tp)
		case !s.directoryOnline(id, p):
			offline = append(offline, tp)
		}
	}
	return t.leave(id, offline) && t.reconsider(damaged)
}

// reconsider writes what the rules make of the partitions as they are: leave, by nobody.
func (t *tx) reconsider(partitions []ident.TopicPartition) (done bool) {
	return t.leave(ident.NoNode, partitions)
}

// expire fences the brokers whose session has ended. Each is decided on what the ones before it left behind
// (KAFKA-13173).
func (c *Controller) expire() []Decision {
	var decisions []Decision
	for _, id := range c.sessionOrder() {
		b := c.appended.broker(id)
		if b == nil || b.Fenced || !c.expired(id) {
			continue
		}
		t := c.begin()
		t.fence(b)
		d := t.commit(nil)
		d.Reason = fmt.Sprintf("broker %d is fenced: nothing was heard of it for %s", id, c.now.Sub(c.sessions[id].contact))
		decisions = append(decisions, d)
	}
	return decisions
}
