package replication

import (
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Role is what the replica is.
func (r *Replica) Role() Role { return r.role }

// HighWatermark is the exclusive end of what is known to be committed.
func (r *Replica) HighWatermark() ident.Offset { return r.hw }

// FlushAlways says whether only flushed records count.
func (r *Replica) FlushAlways() bool { return r.cfg.FlushAlways }

// LeaderEpoch and CurrentLeader are as metadata has them: -1 before the first, NoNode when nobody leads.
func (r *Replica) LeaderEpoch() ident.Epoch { return r.meta.LeaderEpoch }

// CurrentLeader is who leads.
func (r *Replica) CurrentLeader() ident.NodeID { return r.meta.Leader }

// Metadata is the state this replica works by; its slices must not be changed.
func (r *Replica) Metadata() MetadataChanged { return r.meta }

// MaximalISR is the committed ISR united with the proposed one.
func (r *Replica) MaximalISR() []ident.NodeID {
	isr := slices.Clone(r.meta.ISR)
	if p := r.leader.pending; p != nil {
		for _, id := range p.isr {
			if !slices.Contains(isr, id) {
				isr = append(isr, id)
			}
		}
	}
	return isr
}

// Pending says whether a proposal is in flight.
func (r *Replica) Pending() bool { return r.leader.pending != nil }

// PendingFor is for how long the proposal in flight has not been settled, retries included; 0 when there is none.
// While it grows, nobody else can join or leave the ISR.
func (r *Replica) PendingFor(now ident.Instant) time.Duration {
	if p := r.leader.pending; p != nil {
		return now.Sub(p.since)
	}
	return 0
}

// EpochStart is where this leader's epoch starts in its log; -1 when it does not lead.
func (r *Replica) EpochStart() ident.Offset {
	if r.role != Leader {
		return ident.UnknownOffset
	}
	return r.leader.epochStart
}

// UnderMinISR says whether this leader has fewer in-sync replicas than the effective min ISR.
func (r *Replica) UnderMinISR() bool {
	return r.role == Leader && len(r.meta.ISR) < r.effectiveMinISR()
}

// UnderReplicated says whether this leader misses an assigned replica in the ISR. One that a reassignment is adding is
// not missed before it has come, as Kafka counts.
func (r *Replica) UnderReplicated(adding []ident.NodeID) bool {
	return r.role == Leader && slices.ContainsFunc(r.meta.Replicas, func(id ident.NodeID) bool {
		return !slices.Contains(r.meta.ISR, id) && !slices.Contains(adding, id)
	})
}

// FollowerState is for metrics and for people.
type FollowerState struct {
	ID          ident.NodeID
	BrokerEpoch int64
	End         ident.Offset // -1: has not fetched in this leadership
	LagOffsets  int64
	LagTime     time.Duration // since it was caught up; -1: never in this leadership
	CaughtUp    bool
	InSync      bool
}

// Followers lists what a leader knows of the others.
func (r *Replica) Followers(now ident.Instant) []FollowerState {
	list := make([]FollowerState, 0, len(r.leader.followers))
	for i := range r.leader.followers {
		f := &r.leader.followers[i]
		offsets, since := f.lag(now, r.log.EndOffset())
		list = append(list, FollowerState{
			ID: f.id, BrokerEpoch: f.brokerEpoch, End: f.end, LagOffsets: offsets, LagTime: since,
			CaughtUp: r.caughtUp(now, f), InSync: slices.Contains(r.meta.ISR, f.id),
		})
	}
	return list
}
