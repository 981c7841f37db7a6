package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Connection is the connection to one cluster. It is safe for concurrent use.
type Connection interface {
	// State returns what is known now; it does not wait.
	State() State
	// Admin returns how to change the cluster.
	Admin() Admin
	// Facts returns what nodes told of ISR changes and of their disks.
	Facts() *FactBook
	// Retarget tells where the nodes of the same cluster are now. What is known of it stays.
	Retarget(target Target)
	// Close ends the connection.
	Close()
}

// Opener makes a connection, which calls notify whenever something changed. Open does not wait for the cluster.
type Opener func(target Target, notify func(Change)) Connection

// Registry holds the connection of each ReplicaSet. It is safe for concurrent use.
type Registry struct {
	open Opener

	mu          sync.Mutex
	connections map[types.NamespacedName]*entry

	// A lock of their own, since a connection may notify while Ensure still opens it.
	subscribing sync.Mutex
	subscribers []*subscriber
}

type entry struct {
	target     Target
	connection Connection
}

// NewRegistry returns a registry without connections.
func NewRegistry(open Opener) *Registry {
	return &Registry{open: open, connections: map[types.NamespacedName]*entry{}}
}

// Ensure makes the connection to a target, anew when it is another cluster than before.
func (r *Registry) Ensure(target Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, found := r.connections[target.ReplicaSet]
	if found {
		switch {
		case before.target.equal(target):
			return
		case before.target.sameCluster(target):
			before.target = target
			before.connection.Retarget(target)
			return
		}
		before.connection.Close()
	}
	r.connections[target.ReplicaSet] = &entry{target: target, connection: r.open(target, r.notify)}
}

// Get returns the connection of a ReplicaSet.
func (r *Registry) Get(replicaSet types.NamespacedName) (Connection, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, found := r.connections[replicaSet]; found {
		return e.connection, true
	}
	return nil, false
}

// Close ends the connection of a ReplicaSet, if there is one.
func (r *Registry) Close(replicaSet types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, found := r.connections[replicaSet]; found {
		e.connection.Close()
		delete(r.connections, replicaSet)
	}
}

// Start waits for the end of ctx and closes every connection. Only the operator that holds the lease has any.
func (r *Registry) Start(ctx context.Context) error {
	<-ctx.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.connections {
		e.connection.Close()
	}
	clear(r.connections)
	return nil
}

// NeedLeaderElection says that the registry is for the operator that holds the lease.
func (r *Registry) NeedLeaderElection() bool { return true }

// Subscribe returns a channel of changes until ctx ends. Changes that nobody has taken yet are merged, so a slow
// reader holds back no observer.
func (r *Registry) Subscribe(ctx context.Context) <-chan event.TypedGenericEvent[Change] {
	s := &subscriber{
		pending: map[types.NamespacedName]Change{},
		wake:    make(chan struct{}, 1),
		out:     make(chan event.TypedGenericEvent[Change]),
	}
	r.subscribing.Lock()
	r.subscribers = append(r.subscribers, s)
	r.subscribing.Unlock()
	go s.run(ctx)
	return s.out
}

// notify hands a change to all subscribers; it does not wait for them.
func (r *Registry) notify(change Change) {
	r.subscribing.Lock()
	defer r.subscribing.Unlock()
	for _, s := range r.subscribers {
		s.add(change)
	}
}

type subscriber struct {
	mu      sync.Mutex
	pending map[types.NamespacedName]Change
	wake    chan struct{}
	out     chan event.TypedGenericEvent[Change]
}

func (s *subscriber) add(change Change) {
	s.mu.Lock()
	merged := s.pending[change.ReplicaSet]
	merged.ReplicaSet = change.ReplicaSet
	merged.Everything = merged.Everything || change.Everything
	if merged.Everything {
		merged.Topics = nil
	} else {
		merged.Topics = slices.Compact(slices.Sorted(slices.Values(slices.Concat(merged.Topics, change.Topics))))
	}
	s.pending[change.ReplicaSet] = merged
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		pending := s.pending
		s.pending = map[types.NamespacedName]Change{}
		s.mu.Unlock()
		for _, change := range pending {
			select {
			case <-ctx.Done():
				return
			case s.out <- event.TypedGenericEvent[Change]{Object: change}:
			}
		}
	}
}

func (t Target) sameCluster(other Target) bool {
	return t.ReplicaSet == other.ReplicaSet && t.UID == other.UID && t.ClusterID == other.ClusterID
}

func (t Target) equal(other Target) bool {
	return t.sameCluster(other) && maps.Equal(t.Voters, other.Voters) && maps.Equal(t.Facts, other.Facts)
}
