package sim

import (
	"fmt"
	"time"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
)

// isrProducer sends numbered values, one batch at a time. The idempotent one repeats a batch until it is
// acknowledged and must never find it twice; the other gives up and does not know.
type isrProducer struct {
	s          *isrSim
	id         ident.NodeID
	idempotent bool
	target     ident.NodeID

	request   int // names the request that is waited for
	next      int // number of the next value
	sequence  int32
	batch     []string // under way
	acks      int16
	acked     int // batches
	stopAfter int // batches acknowledged; 0 goes on
}

func newISRProducer(s *isrSim, id ident.NodeID, idempotent bool) *isrProducer {
	p := &isrProducer{s: s, id: id, idempotent: idempotent, target: 1}
	p.send()
	return p
}

func (p *isrProducer) done() bool { return p.stopAfter > 0 && p.acked >= p.stopAfter }

func (p *isrProducer) send() {
	if p.done() {
		return
	}
	if p.s.w.Now() < p.s.quietUntil {
		p.s.w.At(p.s.quietUntil, p.send)
		return
	}
	if len(p.batch) == 0 {
		p.acks = -1
		if !p.idempotent && p.stopAfter == 0 && p.s.w.Chance(300) {
			p.acks = 1
		}
		for range 1 + p.s.w.IntN(4) {
			p.batch = append(p.batch, fmt.Sprintf("%d-%d", p.id, p.next))
			p.next++
		}
	}
	p.request++
	request, values, acks := p.request, p.batch, p.acks
	b := batch.NewBuilder(0, 0, int64(p.s.w.Now())/1e6)
	if p.idempotent {
		b.Producer(int64(p.id), 0, p.sequence)
	}
	for _, v := range values {
		b.Append(p.s.keyOf(v), []byte(v))
	}
	records := b.Build()
	node := p.s.nodes[p.target-1]
	p.s.net.Send(p.id, node.id, func() {
		node.deliver(node.life, func() {
			ev := replication.Produce{Acks: acks, Timeout: 700 * time.Millisecond}
			node.serveProduce(ev, append([]byte(nil), records...), func(r exec.Produced) {
				if r.Code == exec.OutOfOrderSequenceNumber && node.part.Core().LeaderEpoch() < p.s.ctl.partition().LeaderEpoch {
					// A deposed leader that does not know it yet has not seen what its successor acknowledged. A real
					// client never goes back to an older leader epoch; this one guesses and comes here.
					r.Code = replication.NotLeaderOrFollower
				}
				if r.Code == replication.None && acks == -1 {
					p.s.check.acknowledged(node, r.Base, values)
				}
				p.s.net.Send(node.id, p.id, func() { p.answered(request, r) })
			})
		})
	})
	p.s.w.After(1200*time.Millisecond, func() {
		p.answered(request, exec.Produced{Code: replication.NetworkException})
	})
}

func (p *isrProducer) answered(request int, r exec.Produced) {
	if request != p.request {
		return
	}
	p.request++
	again := p.idempotent
	switch r.Code {
	case replication.None:
		p.s.counts.Acked++
		p.sequence += int32(len(p.batch))
		p.batch = nil
		p.acked++
		p.s.w.After(p.s.w.Between(0, 40*time.Millisecond), p.send)
		return
	case replication.NotEnoughReplicas, replication.NotEnoughReplicasAfterAppend:
		p.s.counts.Refused++
	case replication.RequestTimedOut:
		p.s.counts.TimedOut++
	case replication.NotLeaderOrFollower, replication.NetworkException, replication.KafkaStorageError:
	default:
		p.s.fail("producer %d: code %d (%s)", p.id, r.Code, r.Message)
	}
	if !again {
		p.batch = nil
	}
	p.target = p.s.guessLeader()
	p.s.w.After(p.s.w.Between(10*time.Millisecond, 100*time.Millisecond), p.send)
}

// guessLeader is what a client finds out: mostly right.
func (s *isrSim) guessLeader() ident.NodeID {
	if p := s.ctl.partition(); p != nil && p.Leader != ident.NoNode && !s.w.Chance(200) {
		return p.Leader
	}
	return ident.NodeID(1 + s.w.IntN(3))
}

// isrConsumer reads from the first record on. Like any client of today it names the newest leader epoch it has heard
// of (KIP-320), so that a deposed leader that does not know it yet can't tell it that its offset is out of range.
type isrConsumer struct {
	s       *isrSim
	id      ident.NodeID
	target  ident.NodeID
	epoch   ident.Epoch
	request int
	offset  ident.Offset
}

func newISRConsumer(s *isrSim, id ident.NodeID) *isrConsumer {
	c := &isrConsumer{s: s, id: id, target: 1}
	c.fetch()
	return c
}

func (c *isrConsumer) fetch() {
	c.request++
	c.epoch = max(c.epoch, c.s.ctl.partition().LeaderEpoch)
	request, offset := c.request, c.offset
	node := c.s.nodes[c.target-1]
	f := exec.Fetch{MaxBytes: 2048, MinOne: true, Fetch: replication.Fetch{
		Replica: ident.NoNode, BrokerEpoch: -1, LeaderEpoch: c.epoch, Offset: offset, LastFetchedEpoch: ident.UnknownEpoch,
	}}
	c.s.net.Send(c.id, node.id, func() {
		node.deliver(node.life, func() {
			node.serveFetch(f, func(r exec.FetchResult, records []byte) {
				if r.Code == replication.None {
					c.s.check.read(node, offset, records)
				}
				c.s.net.Send(node.id, c.id, func() { c.answered(request, r.Code, records) })
			})
		})
	})
	c.s.w.After(time.Second, func() { c.answered(request, replication.NetworkException, nil) })
}

func (c *isrConsumer) answered(request int, code replication.Code, records []byte) {
	if request != c.request {
		return
	}
	c.request++
	switch code {
	case replication.None:
		for rest := records; len(rest) > 0; {
			one, next, h, err := batch.Next(rest)
			if err == nil && batch.VerifyCRC(one, h) != nil {
				break // as a client does, it asks again; until a scrub has found it nobody knows better
			}
			if err != nil {
				c.s.fail("consumer %d at %d: %v", c.id, c.offset, err)
				return
			}
			c.s.counts.Read += int(h.NextOffset() - c.offset)
			c.offset, rest = h.NextOffset(), next
		}
		c.s.w.After(c.s.w.Between(0, 50*time.Millisecond), c.fetch)
	case replication.NotLeaderOrFollower, replication.NetworkException, replication.KafkaStorageError,
		replication.FencedLeaderEpoch, replication.UnknownLeaderEpoch:
		c.target = c.s.guessLeader()
		c.s.w.After(c.s.w.Between(10*time.Millisecond, 100*time.Millisecond), c.fetch)
	case replication.OffsetOutOfRange:
		if c.offset >= c.s.check.logStart {
			c.s.fail("consumer %d at %d, which was committed: out of range", c.id, c.offset)
		}
		c.offset = c.s.check.logStart // as auto.offset.reset=earliest would find it
		c.s.w.After(time.Millisecond, c.fetch)
	default:
		c.s.fail("consumer %d at %d, which was committed: code %d", c.id, c.offset, code)
	}
}
