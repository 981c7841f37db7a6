package controller

import (
	"fmt"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// leave takes the broker out of every ISR and moves what it leads, while there is room; done says whether nothing
// is left to do. The last member of an ISR stays in it, without leading.
func (t *tx) leave(id ident.NodeID, partitions []ident.TopicPartition) (done bool) {
	s := t.state()
	for _, tp := range partitions {
		if !t.room() {
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

// fence writes that the broker is fenced, and before it what follows for its partitions: both or, while there is
// more than one decision can hold, only a part of the latter. done says whether it is the whole.
func (t *tx) fence(b *metadata.Broker) (done bool) {
	if !t.leave(b.ID, t.state().index.of(b.ID)) {
		return false
	}
	t.add(&metadata.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: metadata.Fence})
	return true
}

// unfence writes that the broker is unfenced and elects leaders for the partitions that have none.
func (t *tx) unfence(b *metadata.Broker) {
	t.add(&metadata.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: metadata.Unfence})
	if !t.electLeaderless() {
		t.c.electionsDue = true
	}
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
		for done := false; !done; {
			t := c.begin()
			done = t.fence(b)
			d := t.commit(nil)
			d.Reason = fmt.Sprintf("broker %d is fenced: nothing was heard of it for %s", id, c.now.Sub(c.sessions[id].contact))
			decisions = append(decisions, d)
		}
	}
	return decisions
}
