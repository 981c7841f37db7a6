package controller

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// place assigns replicas to n new partitions: every partition's replicas on as many racks as there are, live
// brokers before fenced ones, each broker with an even share of leaders and replicas, the first replica always
// live. Brokers without a rack share one. The start is drawn, so that topics of one partition spread too.
func (c *Controller) place(s *state, n int, factor int) ([][]ident.NodeID, *refusal) {
	var ring []candidate
	live := 0
	for b := range s.image.Brokers() {
		k := candidate{id: b.ID, live: b.Active()}
		if b.Rack != nil {
			k.rack = *b.Rack
		}
		if k.live {
			live++
		}
		ring = append(ring, k)
	}
	switch {
	case live == 0:
		return nil, refuse(kerr.InvalidReplicationFactor, *text("Unable to replicate the partition %d time(s): All brokers are currently fenced or in controlled shutdown.", factor))
	case factor > len(ring):
		return nil, refuse(kerr.InvalidReplicationFactor, *text("Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered.", factor, factor, len(ring)))
	}
	c.shuffle(ring)
	out := make([][]ident.NodeID, n)
	for i := range out {
		out[i] = placeOne(ring, factor)
	}
	return out, nil
}

// A candidate is a broker with what a request has placed on it so far. Ties go to who stands first in the ring.
type candidate struct {
	id       ident.NodeID
	rack     string
	live     bool
	leads    int
	replicas int
}

func placeOne(ring []candidate, factor int) []ident.NodeID {
	replicas := make([]ident.NodeID, 0, factor)
	racks := map[string]int{}
	take := func(k *candidate) {
		replicas = append(replicas, k.id)
		racks[k.rack]++
		k.replicas++
	}
	leader := best(ring, func(k *candidate) (bool, [3]int) { return k.live, [3]int{k.leads, k.replicas} })
	leader.leads++
	take(leader)
	for len(replicas) < factor {
		take(best(ring, func(k *candidate) (bool, [3]int) {
			dead := 0
			if !k.live {
				dead = 1
			}
			return !slices.Contains(replicas, k.id), [3]int{dead, racks[k.rack], k.replicas}
		}))
	}
	return replicas
}

// best returns the first of the candidates that may be taken and cost least.
func best(ring []candidate, cost func(*candidate) (may bool, cost [3]int)) *candidate {
	var found *candidate
	var least [3]int
	for i := range ring {
		may, price := cost(&ring[i])
		if may && (found == nil || slices.Compare(price[:], least[:]) < 0) {
			found, least = &ring[i], price
		}
	}
	return found
}

// shuffle draws an order in which brokers of one rack stand apart as far as they can.
func (c *Controller) shuffle(ring []candidate) {
	for i := len(ring) - 1; i > 0; i-- {
		j := c.drawBelow(i + 1)
		ring[i], ring[j] = ring[j], ring[i]
	}
	turn, seen := make(map[ident.NodeID]int, len(ring)), map[string]int{}
	for _, k := range ring {
		turn[k.id] = seen[k.rack]
		seen[k.rack]++
	}
	slices.SortStableFunc(ring, func(a, b candidate) int { return cmp.Compare(turn[a.id], turn[b.id]) })
}

func (c *Controller) drawBelow(n int) int {
	high, _ := bits.Mul64(c.cfg.Random.Uint64(), uint64(n))
	return int(high)
}

// newTopicID draws a random (version 4) uuid that no topic has. Kafka's begin with no '-', so that tools don't
// take one for an option.
func (c *Controller) newTopicID(image *metadata.Image) ident.UUID {
	for {
		var id ident.UUID
		a, b := c.cfg.Random.Uint64(), c.cfg.Random.Uint64()
		for i := range 8 {
			id[i], id[8+i] = byte(a>>(56-8*i)), byte(b>>(56-8*i))
		}
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
		if _, taken := image.TopicByID(id); !taken && id.String()[0] != '-' {
			return id
		}
	}
}

// checkAssignment is what a manual assignment of one partition must hold to; want is the number of replicas that
// the partitions before it have, 0 when there are none.
func (s *state) checkAssignment(replicas []int32, want int) ([]ident.NodeID, *refusal) {
	if len(replicas) == 0 {
		return nil, refuse(kerr.InvalidReplicaAssignment, *text("The manual partition assignment includes an empty replica list."))
	}
	ids := nodeIDs(replicas)
	ordered := slices.Clone(ids)
	slices.Sort(ordered)
	for i, id := range ordered {
		switch {
		case s.broker(id) == nil:
			return nil, refuse(kerr.InvalidReplicaAssignment, *text("The manual partition assignment includes broker %d, but no such broker is registered.", id))
		case i > 0 && ordered[i-1] == id:
			return nil, refuse(kerr.InvalidReplicaAssignment, *text("The manual partition assignment includes the broker %d more than once.", id))
		}
	}
	if want > 0 && len(ids) != want {
		return nil, refuse(kerr.InvalidReplicaAssignment, *text("The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).", len(ids), want))
	}
	return ids, nil
}

// newPartition is the record of a new partition: in sync are the live replicas, the first of them leads. nil when
// no replica is live.
func (s *state) newPartition(tp ident.TopicPartition, replicas []ident.NodeID) *metadata.PartitionRecord {
	r := &metadata.PartitionRecord{TopicID: tp.Topic, PartitionID: tp.Index, Replicas: replicas}
	for _, id := range replicas {
		if s.active(id) {
			r.ISR = append(r.ISR, id)
		}
		r.Directories = append(r.Directories, s.defaultDir(id))
	}
	if len(r.ISR) == 0 {
		return nil
	}
	r.Leader = r.ISR[0]
	return r
}

func nodeIDs(ids []int32) []ident.NodeID {
	out := make([]ident.NodeID, len(ids))
	for i, id := range ids {
		out[i] = ident.NodeID(id)
	}
	return out
}

func int32s(ids []ident.NodeID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}
