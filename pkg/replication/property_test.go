package replication

import (
	"slices"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"pgregory.net/rapid"
)

// TestLeaderKeepsItsPromisesUnderAnyEvents throws any events at a leader and checks after each what must hold
// whatever the followers, the network and the controller do.
func TestLeaderKeepsItsPromisesUnderAnyEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(Config{LagTimeMax: 2 * time.Second})
		m := newPromises(b)
		b.lead(2, 1, 2, 3)
		m.metadata = b.r.Metadata()
		t.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"produce":  m.produce,
			"fetch":    m.fetch,
			"park":     m.park,
			"pass":     m.pass,
			"answer":   m.answer,
			"metadata": m.changeMetadata,
			"fence":    m.fence,
		})
		m.finish(t)
	})
}

// promises is the model: what was told to whom.
type promises struct {
	b        *bench
	metadata MetadataChanged // as the controller has it
	token    Token
	produced map[Token]ident.Offset // required offset of those not completed
	parked   map[Token]bool
	reported map[ident.NodeID]ident.Offset // what each follower vouched for in this epoch
	epoch    ident.Epoch
	hw       ident.Offset
	inFlight *Proposal
}

func newPromises(b *bench) *promises {
	return &promises{b: b, produced: map[Token]ident.Offset{}, parked: map[Token]bool{}, reported: map[ident.NodeID]ident.Offset{}}
}

// took looks at the effects of a step.
func (m *promises) took(t *rapid.T) {
	b := m.b
	if m.epoch != b.r.LeaderEpoch() {
		m.epoch = b.r.LeaderEpoch()
		clear(m.reported)
	}
	for _, c := range b.out.Completed {
		required, ok := m.produced[c.Token]
		if !ok {
			t.Fatalf("produce %d completed twice or never asked", c.Token)
		}
		delete(m.produced, c.Token)
		if c.Code == None && required > b.r.HighWatermark() {
			t.Fatalf("produce %d acknowledged at %d, high watermark %d", c.Token, required, b.r.HighWatermark())
		}
	}
	for _, w := range b.out.Wake {
		if !m.parked[w] {
			t.Fatalf("fetch %d woken twice or never parked", w)
		}
		delete(m.parked, w)
	}
	if p := b.out.Proposal; p != nil {
		if m.inFlight != nil && m.inFlight != p && m.inFlight.PartitionEpoch == p.PartitionEpoch && m.inFlight.LeaderEpoch == p.LeaderEpoch {
			t.Fatalf("proposes %v beside %v", p, m.inFlight)
		}
		for _, member := range p.ISR {
			if !slices.Contains(b.r.Metadata().Replicas, member.ID) {
				t.Fatalf("proposes %v outside the assignment %v", p.ISR, b.r.Metadata().Replicas)
			}
		}
		m.inFlight = p
	}
}

func (m *promises) produce(t *rapid.T) {
	m.token++
	n := rapid.IntRange(1, 5).Draw(t, "records")
	m.produced[m.token] = m.b.log.end + ident.Offset(n)
	m.b.produce(m.token, -1, n)
	m.took(t)
}

func (m *promises) fetch(t *rapid.T) {
	id := ident.NodeID(rapid.IntRange(2, 3).Draw(t, "follower"))
	offset := ident.Offset(rapid.IntRange(0, int(m.b.log.end)+1).Draw(t, "offset"))
	epoch := m.b.r.LeaderEpoch() - ident.Epoch(rapid.IntRange(0, 1).Draw(t, "behind"))
	m.b.step(Fetch{Replica: id, BrokerEpoch: 100 + int64(id), LeaderEpoch: epoch, Offset: offset, LastFetchedEpoch: -1})
	if m.b.out.Answers[0].Code == None {
		m.reported[id] = offset
	} else if epoch == m.b.r.LeaderEpoch() && offset <= m.b.log.end {
		t.Fatalf("fetch of %d at %d refused: %+v", id, offset, m.b.out.Answers[0])
	}
	m.took(t)
}

func (m *promises) park(t *rapid.T) {
	m.token++
	m.parked[m.token] = true
	f := Fetch{Token: m.token, Replica: -1, LeaderEpoch: -1, Offset: m.b.r.HighWatermark()}
	m.b.step(ParkFetch{Fetch: f, Seen: f.Offset, Deadline: m.b.now.Add(time.Second)})
	m.took(t)
}

func (m *promises) pass(t *rapid.T) {
	m.b.wait(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
	m.took(t)
}

// answer plays the controller on the proposal in flight: right, refused, lost, or lost after it was applied.
func (m *promises) answer(t *rapid.T) {
	p := m.inFlight
	if p == nil {
		return
	}
	done := AlterPartitionDone{LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	valid := p.LeaderEpoch == m.metadata.LeaderEpoch && p.PartitionEpoch == m.metadata.PartitionEpoch
	switch kind := rapid.SampledFrom([]string{"true", "refused", "lost"}).Draw(t, "answer"); {
	case !valid:
		done.Code = InvalidUpdateVersion
	case kind == "refused":
		done.Code = IneligibleReplica
		m.inFlight = nil
	default:
		m.metadata.ISR = proposed(p)
		m.metadata.PartitionEpoch++
		done.NowLeader, done.NowLeaderEpoch, done.NowPartitionEpoch, done.NowISR = 1, p.LeaderEpoch, m.metadata.PartitionEpoch, m.metadata.ISR
		if kind == "lost" {
			done = AlterPartitionDone{LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Code: RequestTimedOut}
		}
	}
	m.b.step(done)
	m.took(t)
}

// changeMetadata delivers what the controller has, after a change of its own perhaps.
func (m *promises) changeMetadata(t *rapid.T) {
	switch rapid.SampledFrom([]string{"same", "shrink", "elect"}).Draw(t, "change") {
	case "shrink":
		if n := len(m.metadata.ISR); n > 1 {
			m.metadata.ISR = m.metadata.ISR[:n-1]
			m.metadata.PartitionEpoch++
		}
	case "elect":
		m.metadata.LeaderEpoch++
		m.metadata.PartitionEpoch++
	}
	m.b.step(m.metadata)
	m.took(t)
}

func (m *promises) fence(t *rapid.T) {
	id := ident.NodeID(rapid.IntRange(2, 3).Draw(t, "node"))
	broker := m.b.cluster[id]
	broker.Fenced = !broker.Fenced
	m.b.cluster[id] = broker
	if rapid.Bool().Draw(t, "told") {
		m.b.step(BrokersChanged{})
		m.took(t)
	}
}

// check is what holds after every event.
func (m *promises) check(t *rapid.T) {
	b := m.b
	if b.r.HighWatermark() < m.hw {
		t.Fatalf("high watermark went back from %d to %d", m.hw, b.r.HighWatermark())
	}
	if b.r.HighWatermark() > m.hw {
		for _, id := range b.r.MaximalISR() {
			if at, ok := m.reported[id]; id != 1 && (!ok || at < b.r.HighWatermark()) {
				t.Fatalf("high watermark moved to %d, but %d of the maximal ISR vouched for %d (%v)", b.r.HighWatermark(), id, at, ok)
			}
		}
	}
	m.hw = b.r.HighWatermark()
	if m.hw > b.log.end {
		t.Fatalf("high watermark %d beyond the end %d", m.hw, b.log.end)
	}
	if m.epoch == m.metadata.LeaderEpoch {
		for _, id := range m.metadata.ISR {
			if !slices.Contains(b.r.MaximalISR(), id) {
				t.Fatalf("controller's ISR %v, maximal ISR %v", m.metadata.ISR, b.r.MaximalISR())
			}
		}
	}
	if len(m.produced)+len(m.parked) > 0 && b.r.NextDeadline() == ident.Never {
		t.Fatal("somebody waits and there is no deadline")
	}
}

// finish ends the replica: nobody is left waiting.
func (m *promises) finish(t *rapid.T) {
	m.b.step(Removed{})
	m.took(t)
	if len(m.produced)+len(m.parked) > 0 {
		t.Fatalf("left waiting: produces %v, fetches %v", m.produced, m.parked)
	}
}

// TestCaughtUpTimeIsTrue: whatever the fetches, at the time that is noted as "was caught up" the leader had no more
// than the follower has now.
func TestCaughtUpTimeIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFollower(2, 0)
		type point struct {
			at  ident.Instant
			end ident.Offset
		}
		history := []point{{0, 0}}
		now, end := ident.Instant(0), ident.Offset(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now += ident.Instant(rapid.IntRange(1, 100).Draw(t, "pause"))
			if rapid.Bool().Draw(t, "append") {
				end += ident.Offset(rapid.IntRange(1, 10).Draw(t, "records"))
				history = append(history, point{now, end})
				continue
			}
			offset := ident.Offset(rapid.IntRange(int(max(f.end, 0)), int(end)).Draw(t, "offset"))
			f.fetched(now, Fetch{Offset: offset}, end)
			if f.lastCaughtUp == longAgo {
				continue
			}
			for _, p := range history {
				if p.at <= f.lastCaughtUp && p.end > f.end {
					t.Fatalf("at %d noted caught up at %d with end %d, but the leader had %d at %d", now, f.lastCaughtUp, f.end, p.end, p.at)
				}
			}
		}
	})
}
