package node

import (
	"context"
	"sync"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Kinds of facts. A fact is what the metadata log does not carry: why the leader proposed what was committed.
const (
	// FactISRChange tells why this leader proposed to take a replica out of the ISR or into it.
	FactISRChange = "ISRChange"
	// FactReplicaReset tells that this follower restarted at the leader's log start.
	FactReplicaReset = "ReplicaReset"
	// FactLogRecovered tells what the recovery of a log after an unclean stop repaired.
	FactLogRecovered = "LogRecovered"
)

// Fact is one entry of the node's numbered stream. A reader joins it to the commit by topic id, index and
// partition epoch.
type Fact struct {
	Seq            int64        `json:"seq"`
	Kind           string       `json:"kind"`
	Time           time.Time    `json:"time"`
	TopicID        ident.UUID   `json:"topicId"`
	Topic          string       `json:"topic,omitempty"`
	Index          int32        `json:"index"`
	LeaderEpoch    ident.Epoch  `json:"leaderEpoch"`
	PartitionEpoch int32        `json:"partitionEpoch"`
	Replica        ident.NodeID `json:"replica"`
	Reason         string       `json:"reason"`
	LagOffsets     int64        `json:"lagOffsets"`
	LagMillis      int64        `json:"lagMillis"`
	Message        string       `json:"message,omitempty"`
}

// FactPage is one answer of the stream. Incarnation changes with the process: a reader that holds another
// one's number begins anew.
type FactPage struct {
	Incarnation ident.UUID `json:"incarnation"`
	Facts       []Fact     `json:"facts"`
}

// keptFacts bounds the stream: a reader that was away for longer misses the oldest, which costs an event its
// reason and nothing else.
const keptFacts = 4096

// factStream keeps the newest facts and wakes readers that wait for the next one.
type factStream struct {
	incarnation ident.UUID

	mu    sync.Mutex
	facts []Fact
	next  int64
	grown chan struct{}
}

func newFactStream(incarnation ident.UUID) *factStream {
	return &factStream{incarnation: incarnation, next: 1, grown: make(chan struct{})}
}

// add numbers the fact and wakes all who wait.
func (s *factStream) add(f Fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Seq = s.next
	s.next++
	if len(s.facts) == keptFacts {
		copy(s.facts, s.facts[1:])
		s.facts = s.facts[:keptFacts-1]
	}
	s.facts = append(s.facts, f)
	close(s.grown)
	s.grown = make(chan struct{})
}

// after returns the facts with numbers above seq, waiting for the first of them until ctx ends.
func (s *factStream) after(ctx context.Context, seq int64) FactPage {
	for {
		s.mu.Lock()
		if seq >= s.next {
			// A number of an earlier incarnation: begin anew.
			seq = 0
		}
		grown := s.grown
		page := FactPage{Incarnation: s.incarnation, Facts: []Fact{}}
		for i := range s.facts {
			if s.facts[i].Seq > seq {
				page.Facts = append(page.Facts, s.facts[i:]...)
				break
			}
		}
		s.mu.Unlock()
		if len(page.Facts) > 0 {
			return page
		}
		select {
		case <-ctx.Done():
			return page
		case <-grown:
		}
	}
}
