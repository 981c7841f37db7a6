package partition

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// factPatience is how long the event of a shrunk ISR waits for the leader's reason. The status does not wait.
const factPatience = 500 * time.Millisecond

// shrink is a change by which replicas left the ISR.
type shrink struct {
	left  []int32
	isr   []int32
	after int32 // partition epoch of the status before
	until int32 // partition epoch at which it was seen
	since time.Time
}

// shrinks are those whose event has not been written yet. They live in memory only: an operator that dies within half
// a second of a shrink loses its event, while the status has all of it.
type shrinks struct {
	mu  sync.Mutex
	all map[types.UID]shrink
}

func (s *shrinks) get(uid types.UID) (shrink, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, has := s.all[uid]
	return found, has
}

func (s *shrinks) put(uid types.UID, waiting shrink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[types.UID]shrink{}
	}
	s.all[uid] = waiting
}

func (s *shrinks) drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, uid)
}

// newShrink compares two statuses.
func newShrink(before, after *hwv1alpha1.PartitionStatus, now time.Time) (shrink, bool) {
	if before.TopicID == "" || after.PartitionEpoch == nil || before.PartitionEpoch == nil {
		return shrink{}, false
	}
	left := without(before.ISR, after.ISR)
	return shrink{left: left, isr: after.ISR, after: *before.PartitionEpoch, until: *after.PartitionEpoch, since: now}, len(left) > 0
}

// explained says whether the reason of every replica that left is known.
func (s shrink) explained(replicas []hwv1alpha1.ReplicaStatus) bool {
	for _, id := range s.left {
		for _, replica := range replicas {
			if replica.ID == id && replica.State != hwv1alpha1.ReplicaInSync && replica.Reason == "" {
				return false
			}
		}
	}
	return true
}
