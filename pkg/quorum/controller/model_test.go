package controller

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// A model drives two controllers with the same calls. Their decisions are appended to one log and committed some
// time later; now and then appends or the leadership are lost.
type model struct {
	t     *rapid.T
	c     [2]*Controller
	now   ident.Instant
	epoch ident.Epoch

	log       []entry // all of it; the first committed ones can't be lost
	committed int
	bounds    []int             // where batches end: nothing is committed or lost in part
	images    []*metadata.Image // images[i] is of log[:i]

	checked *metadata.Image           // the last one that check has seen
	leaders map[epochKey]ident.NodeID // of committed records
}

type entry struct {
	record metadata.Record // nil for what the raft layer wrote
	epoch  ident.Epoch
}

type epochKey struct {
	tp    ident.TopicPartition
	epoch ident.Epoch
}

const modelBrokers = 5

func newModel(t *rapid.T, records int) *model {
	m := &model{t: t, now: ident.Instant(time.Hour), leaders: map[epochKey]ident.NodeID{}, images: []*metadata.Image{metadata.Empty()}}
	for i := range m.c {
		cfg := Config{ClusterID: testClusterID, Random: rand.NewPCG(3, 4), MaxRecords: records, BalanceInterval: 20 * time.Second}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		m.c[i] = c
	}
	m.lead()
	return m
}

func (m *model) end() ident.Offset { return ident.Offset(len(m.log)) }

func (m *model) image() *metadata.Image { return m.images[len(m.log)] }

// append writes a record at the end of the log and replays it.
func (m *model) append(r metadata.Record) {
	next := m.image()
	e := entry{r, m.epoch}
	switch r.(type) {
	case nil:
	case *metadata.BeginTransactionRecord, *metadata.EndTransactionRecord, *metadata.AbortTransactionRecord:
		next = metadata.NewDelta(next).Image(m.end(), m.epoch)
	default:
		delta := metadata.NewDelta(next)
		if err := delta.Replay(r); err != nil {
			m.t.Fatalf("offset %d: %v", m.end(), err)
		}
		next = delta.Image(m.end(), m.epoch)
	}
	m.log = append(m.log, e)
	m.images = append(m.images[:len(m.log)], next)
}

// boundary draws the end of a batch that is not committed, or the committed end.
func (m *model) boundary() int {
	open := slices.DeleteFunc(slices.Clone(m.bounds), func(n int) bool { return n < m.committed })
	return rapid.SampledFrom(append(open, m.committed)).Draw(m.t, "boundary")
}

// lead makes both controllers the leader of a new epoch after everything was committed.
func (m *model) lead() {
	m.epoch++
	m.append(nil)
	m.bounds = append(m.bounds, len(m.log))
	m.commit(len(m.log))
	var decisions [2][]Decision
	for i, c := range m.c {
		d, err := c.BecomeLeader(m.now, m.epoch, m.image(), m.end(), false)
		if err != nil {
			m.t.Fatal(err)
		}
		decisions[i] = d
	}
	m.take(decisions)
}

// commit commits the first n entries: what they say is what the world sees.
func (m *model) commit(n int) {
	for ; m.committed < n; m.committed++ {
		before, after := m.images[m.committed], m.images[m.committed+1]
		switch r := m.log[m.committed].record.(type) {
		case *metadata.PartitionRecord:
			m.leads(ident.TopicPartition{Topic: r.TopicID, Index: r.PartitionID}, after)
		case *metadata.PartitionChangeRecord:
			tp := ident.TopicPartition{Topic: r.TopicID, Index: r.PartitionID}
			old, _ := before.Partition(tp)
			changed, _ := after.Partition(tp)
			if changed.PartitionEpoch != old.PartitionEpoch+1 || changed.LeaderEpoch < old.LeaderEpoch {
				m.t.Fatalf("%s: from %s to %s", tp, show(old), show(changed))
			}
			if changed.Leader != old.Leader && changed.LeaderEpoch != old.LeaderEpoch+1 {
				m.t.Fatalf("%s: another leader in the same epoch: from %s to %s", tp, show(old), show(changed))
			}
			if len(without(old.Replicas, changed.Replicas)) > 0 && changed.LeaderEpoch == old.LeaderEpoch {
				m.t.Fatalf("%s: a replica leaves and the epoch stays: from %s to %s", tp, show(old), show(changed))
			}
			// A replica that joins with the record that completes a reassignment may lead at once.
			completes := old.Reassigning() && !changed.Reassigning()
			// So does one that joins a damaged leader, which nobody else was in sync with: it takes over at once.
			relieves := old.Leader != ident.NoNode && damagedIn(old, old.Leader) && slices.Equal(changed.ISR, []ident.NodeID{changed.Leader})
			if changed.Leader != ident.NoNode && changed.Leader != old.Leader && !slices.Contains(old.ISR, changed.Leader) && !completes && !relieves && changed.RecoveryState != metadata.Recovering {
				m.t.Fatalf("%s: an unclean leader is not marked: from %s to %s", tp, show(old), show(changed))
			}
			m.leads(tp, after)
		}
	}
}

func (m *model) leads(tp ident.TopicPartition, image *metadata.Image) {
	p, _ := image.Partition(tp)
	if p.Leader == ident.NoNode {
		return
	}
	key := epochKey{tp, p.LeaderEpoch}
	if other, ok := m.leaders[key]; ok && other != p.Leader {
		m.t.Fatalf("%s: both %d and %d lead epoch %d", tp, other, p.Leader, p.LeaderEpoch)
	}
	m.leaders[key] = p.Leader
}

// both asks the two controllers the same and takes what they decide.
func (m *model) both(ask func(c *Controller) []Decision) []Decision {
	var decisions [2][]Decision
	for i, c := range m.c {
		decisions[i] = ask(c)
	}
	m.take(decisions)
	return decisions[0]
}

func (m *model) take(decisions [2][]Decision) {
	if len(decisions[0]) != len(decisions[1]) {
		m.t.Fatalf("%d and %d decisions of the same", len(decisions[0]), len(decisions[1]))
	}
	for i, d := range decisions[0] {
		same := decisions[1][i]
		var a, b []byte
		for _, r := range d.Records {
			a = metadata.Encode(a, r)
		}
		for _, r := range same.Records {
			b = metadata.Encode(b, r)
		}
		if !bytes.Equal(a, b) || d.Offset != same.Offset || d.CommitOffset != same.CommitOffset {
			m.t.Fatalf("the same calls gave %s at %d and %s at %d", kinds(d.Records), d.Offset, kinds(same.Records), same.Offset)
		}
		if d.Response != nil && !bytes.Equal(d.Response.AppendTo(nil), same.Response.AppendTo(nil)) {
			m.t.Fatalf("the same request is answered %+v and %+v", d.Response, same.Response)
		}
		if d.Offset != m.end() {
			m.t.Fatalf("decided for offset %d, the log ends at %d", d.Offset, m.end())
		}
		if len(d.Records) > m.c[0].cfg.MaxRecords {
			m.t.Fatalf("a decision of %d records", len(d.Records))
		}
		for _, r := range d.Records {
			m.append(r)
		}
		m.bounds = append(m.bounds, len(m.log))
		if d.CommitOffset != m.end() || d.Image != m.checked && !d.Image.SameState(m.image()) {
			m.t.Fatalf("the appended image is not what the log gives at offset %d", m.end())
		}
	}
	if m.c[0].appended.image != m.checked {
		m.check()
	}
	if d := m.c[0].NextDeadline(); d < m.now || d > m.now.Add(500*time.Millisecond) {
		m.t.Fatalf("the next deadline is in %s", d.Sub(m.now))
	}
}

// check is what must hold of every image that a controller decides on.
func (m *model) check() {
	c := m.c[0]
	s := c.appended
	for topic := range s.image.Topics() {
		for i, p := range topic.Partitions() {
			fail := func(why string) { m.t.Fatalf("%s-%d: %s: %s of %v", topic.Name, i, why, show(p), p.Replicas) }
			for j, id := range p.ISR {
				if !slices.Contains(p.Replicas, id) || slices.Contains(p.ISR[:j], id) {
					fail("the ISR is no subset of the replicas")
				}
				if b := s.broker(id); !c.unsettled && (b == nil || b.Fenced) && (len(p.ISR) > 1 || p.Leader != ident.NoNode) {
					fail("a fenced broker is in the ISR")
				}
			}
			if len(p.ISR) == 0 {
				fail("the ISR is empty")
			}
			if p.Leader != ident.NoNode && !slices.Contains(p.ISR, p.Leader) {
				fail("the leader is not in the ISR")
			}
			if b := s.broker(p.Leader); !c.unsettled && p.Leader != ident.NoNode && (b == nil || !b.Active() || !s.directoryOnline(p.Leader, p) && !damagedIn(p, p.Leader)) {
				fail("a broker leads that may not")
			}
			whole := func(id ident.NodeID) bool { return s.active(id) && s.directoryOnline(id, p) }
			damaged := func(id ident.NodeID) bool { return damagedIn(p, id) }
			if p.Leader == ident.NoNode && !c.unsettled && slices.ContainsFunc(p.ISR, func(id ident.NodeID) bool { return whole(id) || s.active(id) && damaged(id) }) {
				fail("there is no leader, though one could be")
			}
			if !c.unsettled && slices.ContainsFunc(p.ISR, damaged) && slices.ContainsFunc(p.ISR, whole) {
				fail("a damaged replica is in the ISR beside a whole one")
			}
			if len(p.Directories) != len(p.Replicas) {
				fail("directories and replicas differ in number")
			}
		}
	}
	sameIndex(m.t, s.index, newIndex(s.image))
	m.checked = s.image
}

// seen is what nodes and clients know: the committed image.
func (m *model) seen() *metadata.Image { return m.images[m.committed] }

func (m *model) anyPartition() (ident.TopicPartition, *metadata.Partition, bool) {
	var all []ident.TopicPartition
	for topic := range m.seen().Topics() {
		for i := range topic.Partitions() {
			all = append(all, ident.TopicPartition{Topic: topic.ID, Index: i})
		}
	}
	if len(all) == 0 {
		return ident.TopicPartition{}, nil, false
	}
	slices.SortFunc(all, ident.TopicPartition.Compare)
	tp := rapid.SampledFrom(all).Draw(m.t, "partition")
	p, _ := m.seen().Partition(tp)
	return tp, p, true
}

func (m *model) anyTopic() string {
	return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.t, "topic")
}

func (m *model) anyBroker() ident.NodeID {
	return ident.NodeID(rapid.IntRange(0, modelBrokers-1).Draw(m.t, "broker"))
}

func (m *model) request(r kmsg.Request) {
	m.both(func(c *Controller) []Decision {
		d, ok := c.Handle(m.now, r)
		if !ok {
			m.t.Fatalf("%T is not handled", r)
		}
		return []Decision{d}
	})
}

func (m *model) heartbeat(id ident.NodeID) {
	r := kmsg.NewPtrBrokerHeartbeatRequest()
	r.Version, r.BrokerID = 1, int32(id)
	r.CurrentMetadataOffset = int64(m.committed) - 1 - int64(rapid.IntRange(0, 3).Draw(m.t, "behind"))
	if b, ok := m.seen().Broker(id); ok {
		r.BrokerEpoch = b.Epoch
	}
	r.WantFence = rapid.IntRange(0, 7).Draw(m.t, "want fence") == 0
	r.WantShutdown = rapid.IntRange(0, 7).Draw(m.t, "want shutdown") == 0
	m.request(r)
}

func (m *model) propose() {
	tp, p, ok := m.anyPartition()
	if !ok {
		return
	}
	r := kmsg.NewPtrAlterPartitionRequest()
	r.Version, r.BrokerID = 3, int32(p.Leader)
	if b, ok := m.seen().Broker(p.Leader); ok {
		r.BrokerEpoch = b.Epoch
	}
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch = tp.Index, int32(p.LeaderEpoch), p.PartitionEpoch
	for id := range ident.NodeID(modelBrokers) {
		if id != p.Leader && rapid.IntRange(0, 2).Draw(m.t, "member") == 0 || id == p.Leader && rapid.IntRange(0, 9).Draw(m.t, "leader") == 0 {
			continue
		}
		mb := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		mb.BrokerID, mb.BrokerEpoch = int32(id), -1
		if b, ok := m.seen().Broker(id); ok && rapid.Bool().Draw(m.t, "epoch known") {
			mb.BrokerEpoch = b.Epoch
		}
		if slices.Contains(p.Replicas, id) || rapid.IntRange(0, 9).Draw(m.t, "no replica") == 0 {
			rp.NewEpochISR = append(rp.NewEpochISR, mb)
		}
	}
	rt := kmsg.NewAlterPartitionRequestTopic()
	rt.TopicID, rt.Partitions = tp.Topic, append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	before := m.c[0].appended.image
	ask := func() []Decision {
		return m.both(func(c *Controller) []Decision { return []Decision{c.AlterPartition(m.now, r)} })
	}
	d := ask()[0]
	answer := d.Response.(*kmsg.AlterPartitionResponse)
	refused := answer.ErrorCode != 0 || answer.Topics[0].Partitions[0].ErrorCode != 0
	if refused && answer.ErrorCode == 0 && name(answer.Topics[0].Partitions[0].ErrorCode) == "NEW_LEADER_ELECTED" {
		refused = false
	}
	if refused && (len(d.Records) > 0 || d.Image != before) {
		m.t.Fatalf("a refused proposal changed something: %+v", answer)
	}
	if !refused && len(d.Records) > 0 {
		if again := ask()[0]; len(again.Records) > 0 {
			m.t.Fatalf("of two proposals of one partition epoch both were taken")
		}
	}
}

// assign reports one replica damaged, or whole again.
func (m *model) assign(damaged bool) {
	tp, p, ok := m.anyPartition()
	if !ok {
		return
	}
	id := rapid.SampledFrom(p.Replicas).Draw(m.t, "replica")
	b, ok := m.seen().Broker(id)
	if !ok {
		return
	}
	dir := b.LogDirs[0]
	if damaged {
		dir = ident.LostDirectory
	}
	before, _ := m.c[0].appended.image.Partition(tp)
	m.request(assignRequest(id, b.Epoch, dir, tp))
	after, _ := m.c[0].appended.image.Partition(tp)
	if before == nil || after == nil {
		return
	}
	if dir, _ := after.Directory(id); damaged && dir == ident.LostDirectory && slices.Contains(after.ISR, id) && len(after.ISR) > 1 &&
		slices.ContainsFunc(after.ISR, func(o ident.NodeID) bool {
			return m.c[0].appended.active(o) && m.c[0].appended.directoryOnline(o, after)
		}) {
		m.t.Fatalf("%s: a damaged replica stays in the ISR: from %s to %s", tp, show(before), show(after))
	}
	if len(without(after.ISR, before.ISR)) > 0 && after.RecoveryState != metadata.Recovering {
		m.t.Fatalf("%s: naming a directory lets somebody into the ISR: from %s to %s", tp, show(before), show(after))
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, rapid.SampledFrom([]int{40, 10_000}).Draw(t, "max records"))
		incarnation := byte(1)
		if rapid.IntRange(0, 3).Draw(t, "from nothing") > 0 {
			for id := range ident.NodeID(modelBrokers) {
				m.request(registration(id, incarnation))
			}
			m.commit(len(m.log))
			for b := range m.seen().Brokers() {
				r := kmsg.NewPtrBrokerHeartbeatRequest()
				r.Version, r.BrokerID, r.BrokerEpoch, r.CurrentMetadataOffset = 1, int32(b.ID), b.Epoch, int64(m.committed)
				m.request(r)
			}
			m.request(createRequest(automatic("a", 5, 3), automatic("b", 30, 2), automatic("c", 2, 1)))
			m.commit(len(m.log))
		}
		t.Repeat(map[string]func(*rapid.T){
			"heartbeat":       func(*rapid.T) { m.heartbeat(m.anyBroker()) },
			"heartbeats":      func(*rapid.T) { m.allHeartbeats() },
			"more heartbeats": func(*rapid.T) { m.allHeartbeats() },
			"register": func(*rapid.T) {
				id := m.anyBroker()
				if rapid.Bool().Draw(t, "restarted") {
					incarnation++
				}
				r := registration(id, incarnation)
				if rapid.IntRange(0, 9).Draw(t, "new disk") == 0 {
					r.LogDirs[0] = ident.UUID{0: 3, 14: byte(id), 15: incarnation}
				}
				m.request(r)
			},
			"propose":      func(*rapid.T) { m.propose() },
			"propose more": func(*rapid.T) { m.propose() },
			"assign":       func(*rapid.T) { m.assign(rapid.Bool().Draw(t, "damaged")) },
			"create": func(*rapid.T) {
				m.request(createRequest(automatic(m.anyTopic(), int32(rapid.IntRange(1, 20).Draw(t, "partitions")), int16(rapid.IntRange(1, 4).Draw(t, "factor")))))
			},
			"grow": func(*rapid.T) {
				m.request(growRequest(m.anyTopic(), int32(rapid.IntRange(1, 25).Draw(t, "partitions"))))
			},
			"delete": func(*rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
					return
				}
				r := kmsg.NewPtrDeleteTopicsRequest()
				r.Version, r.TopicNames = 5, []string{m.anyTopic()}
				m.request(r)
			},
			"configure": func(*rapid.T) {
				value := fmt.Sprint(rapid.Bool().Draw(t, "unclean"))
				m.request(configRequest(m.anyTopic(), configOp(opSet, "unclean.leader.election.enable", value)))
			},
			"elect": func(*rapid.T) {
				r := electRequest(int8(rapid.IntRange(0, 1).Draw(t, "kind")), "a")
				r.Topics = nil
				m.request(r)
			},
			"reassign": func(*rapid.T) {
				tp, _, ok := m.anyPartition()
				topic, there := m.seen().TopicByID(tp.Topic)
				if !ok || !there {
					return
				}
				var target []int32 // nil cancels
				for range rapid.IntRange(0, 3).Draw(t, "replicas") {
					target = append(target, int32(m.anyBroker()))
				}
				m.request(reassignRequest(topic.Name, tp.Index, target))
			},
			"unregister": func(*rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
					return
				}
				r := kmsg.NewPtrUnregisterBrokerRequest()
				r.BrokerID = int32(m.anyBroker())
				m.request(r)
			},
			"producer ids": func(*rapid.T) {
				r := kmsg.NewPtrAllocateProducerIDsRequest()
				r.BrokerID = int32(m.anyBroker())
				if b, ok := m.seen().Broker(ident.NodeID(r.BrokerID)); ok {
					r.BrokerEpoch = b.Epoch
				}
				m.request(r)
			},
			"commit": func(*rapid.T) { m.commit(m.boundary()) },
			"commit all": func(*rapid.T) {
				m.commit(len(m.log))
			},
			"time": func(*rapid.T) { m.pass(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond) },
			"lose appends": func(*rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
					return
				}
				m.cut(m.boundary())
				if rapid.Bool().Draw(t, "control record") {
					m.append(nil)
					m.bounds = append(m.bounds, len(m.log))
				}
				for _, c := range m.c {
					c.LoseAppends(m.image(), m.end())
				}
				m.check()
			},
			"fail over": func(*rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
					return
				}
				m.cut(m.boundary())
				for _, c := range m.c {
					c.Resign()
				}
				m.lead()
			},
		})
		m.commit(len(m.log))
		m.replay()
	})
}

func (m *model) allHeartbeats() {
	for id := range ident.NodeID(modelBrokers) {
		m.heartbeat(id)
	}
}

// pass lets time pass as a loop does that is on time.
func (m *model) pass(d time.Duration) {
	for end := m.now.Add(d); m.now < end; {
		m.now = min(end, m.c[0].NextDeadline())
		if m.now == end {
			break
		}
		if len(m.both(func(c *Controller) []Decision { return c.Tick(m.now) })) == 0 && m.c[0].NextDeadline() <= m.now {
			m.t.Fatalf("a Tick that was due did nothing and is due again")
		}
	}
	m.both(func(c *Controller) []Decision { return c.Tick(m.now) })
}

// cut drops the end of the log, as a lost append or a lost leadership does.
func (m *model) cut(n int) {
	m.log, m.images = m.log[:n], m.images[:n+1]
	m.bounds = slices.DeleteFunc(m.bounds, func(at int) bool { return at > n })
}

// replay reads the whole log as a node does that starts from nothing.
func (m *model) replay() {
	loader := metadata.NewLoader(metadata.Empty(), -1)
	for i, e := range m.log {
		b := metadata.Batch{BaseOffset: ident.Offset(i), LastOffset: ident.Offset(i), Epoch: e.epoch}
		if e.record != nil {
			decoded, err := metadata.Decode(metadata.Encode(nil, e.record))
			if err != nil {
				m.t.Fatal(err)
			}
			b.Records = []metadata.Record{decoded}
		}
		if err := loader.Load(b); err != nil {
			m.t.Fatal(err)
		}
	}
	if _, image := loader.Publish(); !image.SameState(m.c[0].appended.image) {
		m.t.Fatalf("replay of the log gives another image than the controller has")
	}
}
