package replication

import (
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// metadataChanged takes over a committed state of the partition.
func (r *Replica) metadataChanged(now ident.Instant, m MetadataChanged, out *Effects) {
	if r.role == Gone || m.PartitionEpoch < r.meta.PartitionEpoch || m.LeaderEpoch < r.meta.LeaderEpoch {
		return
	}
	if m.PartitionEpoch == r.meta.PartitionEpoch && m.LeaderEpoch == r.meta.LeaderEpoch {
		r.minISRChanged(now, m.MinISR, out)
		return
	}
	if r.role == Failed {
		r.meta = m
		return
	}
	switch {
	case m.Leader == r.cfg.Self:
		if r.role == Leader && m.LeaderEpoch == r.meta.LeaderEpoch {
			r.leaderUpdated(now, m, out)
		} else {
			r.becomeLeader(now, m, out)
		}
	case m.Leader != ident.NoNode && slices.Contains(m.Replicas, r.cfg.Self):
		if r.role == Follower && m.LeaderEpoch == r.meta.LeaderEpoch {
			r.meta = m
		} else {
			r.becomeFollower(m, out)
		}
	default:
		r.loseRole(Idle, m, out)
	}
}

// minISRChanged is for a state that is known already; only the topic's configuration may be new in it.
func (r *Replica) minISRChanged(now ident.Instant, minISR int, out *Effects) {
	if r.meta.MinISR == minISR {
		return
	}
	r.meta.MinISR = minISR
	r.advanceHighWatermark(now, out)
	r.completeProduces(out)
}

// brokersChanged looks at the followers at once: one that was about to join and was fenced no longer holds the high
// watermark back, also when nobody else fetches, and one that was unfenced joins without another fetch.
func (r *Replica) brokersChanged(now ident.Instant, out *Effects) {
	if r.role != Leader {
		return
	}
	r.maybeExpand(now, out)
	r.advanceHighWatermark(now, out)
	r.completeDeletions(now, out)
}

// becomeLeader starts a leadership. The followers' positions are forgotten even when this replica led before: a
// leader whose record was never seen here may have made them truncate.
func (r *Replica) becomeLeader(now ident.Instant, m MetadataChanged, out *Effects) {
	if r.role != Leader {
		r.fetcher = fetcherState{}
		out.Fetcher = true
	}
	r.role = Leader
	r.meta = m
	start := r.log.EndOffset()
	if r.log.LatestEpoch() < m.LeaderEpoch {
		epoch := m.LeaderEpoch
		out.AssignEpoch = &epoch
	}
	r.leader = leaderState{epochStart: start, nextCheck: now.Add(r.cfg.LagTimeMax / 2), refusedUntil: longAgo}
	r.syncFollowers()
	for i := range r.leader.followers {
		f := &r.leader.followers[i]
		f.lastFetchLeaderEnd = start
		if slices.Contains(m.ISR, f.id) { // one lag time of grace (A1)
			f.lastCaughtUp, f.lastFetch = now, now
		}
	}
	r.wakeAll(out)
	r.advanceHighWatermark(now, out)
	r.completeProduces(out)
}

// leaderUpdated takes over a new ISR or assignment within the leadership. Whatever was proposed is settled by it: a
// proposal at an older partition epoch can't be accepted any more, and if it was, this state includes it.
func (r *Replica) leaderUpdated(now ident.Instant, m MetadataChanged, out *Effects) {
	if p := r.leader.pending; p != nil && m.PartitionEpoch == p.proposal.PartitionEpoch+1 && sameMembers(m.ISR, p.isr) {
		out.Facts = append(out.Facts, p.committedFacts(m.PartitionEpoch)...)
	}
	reassigned := !slices.Equal(m.Replicas, r.meta.Replicas)
	r.meta = m
	r.leader.pending = nil
	r.leader.refusedUntil = longAgo
	r.syncFollowers()
	if reassigned {
		r.wakeAll(out)
	}
	r.advanceHighWatermark(now, out)
	r.completeProduces(out)
}

// becomeFollower starts to follow the leader of a new epoch. Nothing is truncated here: the leader tells where the
// logs part when the first fetch names the last fetched epoch.
func (r *Replica) becomeFollower(m MetadataChanged, out *Effects) {
	r.loseRole(Follower, m, out)
	r.fetcher = fetcherState{state: fetching}
	if r.cfg.Mutant == TruncateToHighWatermark {
		r.truncate(Truncation{To: r.hw}, out)
	}
}

// loseRole ends whatever role there was.
func (r *Replica) loseRole(to Role, m MetadataChanged, out *Effects) {
	r.role = to
	r.meta = m
	r.leader = leaderState{}
	r.fetcher = fetcherState{}
	r.produces.failAll(NotLeaderOrFollower, r.log.StartOffset(), out)
	r.failDeletions(NotLeaderOrFollower, out)
	r.wakeAll(out)
	out.Fetcher = true
}

// syncFollowers keeps progress of the followers that still are, and begins it for new ones. Members of the ISR
// outside the assignment, which old metadata may hold (KAFKA-9672), count as followers.
func (r *Replica) syncFollowers() {
	old := r.leader.followers
	ids := slices.Concat(r.meta.Replicas, r.meta.ISR)
	r.leader.followers = make([]follower, 0, len(r.meta.Replicas))
	for i, id := range ids {
		if id == r.cfg.Self || slices.Contains(ids[:i], id) {
			continue
		}
		f := newFollower(id, r.leader.epochStart)
		if j := slices.IndexFunc(old, func(f follower) bool { return f.id == id }); j >= 0 {
			f = old[j]
		}
		r.leader.followers = append(r.leader.followers, f)
	}
}

func sameMembers(a, b []ident.NodeID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(id ident.NodeID) bool { return !slices.Contains(b, id) })
}
