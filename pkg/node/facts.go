package node

import (
	"context"
	"sync"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// keptFacts bounds the stream: a reader that was away for longer misses the oldest, which costs an event its
// reason and nothing else.
const keptFacts = 4096

// factStream keeps the newest facts and wakes readers that wait for the next one.
type factStream struct {
	incarnation ident.UUID

	mu    sync.Mutex
	facts []nodefact.Fact
	next  int64
	grown chan struct{}
}

func newFactStream(incarnation ident.UUID) *factStream {
	return &factStream{incarnation: incarnation, next: 1, grown: make(chan struct{})}
}

// add numbers the fact and wakes all who wait.
func (s *factStream) add(f nodefact.Fact) {
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
func (s *factStream) after(ctx context.Context, seq int64) nodefact.Page {
	for {
		s.mu.Lock()
		if seq >= s.next {
			// A number of an earlier incarnation: begin anew.
			seq = 0
		}
		grown := s.grown
		page := nodefact.Page{Incarnation: s.incarnation, Facts: []nodefact.Fact{}}
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
