package node

import (
	"context"
	"slices"
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
	// onAcknowledged is told up to which number the reader has written down what it read, nil where nobody asks.
	onAcknowledged func(upTo int64) error

	mu        sync.Mutex
	directory ident.UUID
	facts     []nodefact.Fact
	next      int64
	grown     chan struct{}
}

func newFactStream(incarnation ident.UUID) *factStream {
	return &factStream{incarnation: incarnation, next: 1, grown: make(chan struct{})}
}

// opened notes the directory that this node has: it is formatted, durably.
func (s *factStream) opened(directory ident.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.directory = directory
	s.wake()
}

// wake wakes all who wait. The mutex is held.
func (s *factStream) wake() {
	close(s.grown)
	s.grown = make(chan struct{})
}

// add numbers the fact, which it returns, and wakes all who wait.
func (s *factStream) add(f nodefact.Fact) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Seq = s.next
	s.next++
	s.facts = slices.DeleteFunc(s.facts, func(old nodefact.Fact) bool { return replaces(&f, &old) })
	if len(s.facts) >= keptFacts {
		if oldest := slices.IndexFunc(s.facts, func(old nodefact.Fact) bool { return !held(&old) }); oldest >= 0 {
			s.facts = slices.Delete(s.facts, oldest, oldest+1)
		}
	}
	s.facts = append(s.facts, f)
	s.wake()
	return f.Seq
}

// replaces says whether nobody needs an older fact any more who reads a newer one.
func replaces(f, old *nodefact.Fact) bool {
	switch f.Kind {
	case nodefact.SnapshotInstallProgress, nodefact.SnapshotInstalled:
		return old.Kind == nodefact.SnapshotInstallProgress && old.Install == f.Install
	case nodefact.MetadataCurrent, nodefact.MetadataBehind:
		return old.Kind == nodefact.MetadataCurrent || old.Kind == nodefact.MetadataBehind
	}
	return false
}

// held says whether a fact is kept however many came since: whoever told it drops it, or another one replaces it.
func held(f *nodefact.Fact) bool {
	switch f.Kind {
	case nodefact.SnapshotInstallStarted, nodefact.SnapshotInstalled, nodefact.MetadataCurrent, nodefact.MetadataBehind:
		return true
	}
	return false
}

// drop takes facts out.
func (s *factStream) drop(gone func(*nodefact.Fact) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts = slices.DeleteFunc(s.facts, func(f nodefact.Fact) bool { return gone(&f) })
}

// acknowledge notes that the reader has written down what it read of this incarnation up to a number.
func (s *factStream) acknowledge(upTo int64) error {
	if s.onAcknowledged == nil {
		return nil
	}
	return s.onAcknowledged(upTo)
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
		page := nodefact.Page{Incarnation: s.incarnation, DirectoryID: s.directory, Facts: []nodefact.Fact{}}
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
