package replication

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// follower is what the leader knows of one other replica.
type follower struct {
	id          ident.NodeID
	brokerEpoch int64        // of its last fetch, -1 before
	end         ident.Offset // its log end: the offset of its last fetch, -1 before
	logStart    ident.Offset

	lastFetch          ident.Instant // when the last fetch was handled
	lastFetchLeaderEnd ident.Offset  // the leader's log end at that time
	lastCaughtUp       ident.Instant // latest time at which it is known to have had all that the leader then had
}

func newFollower(id ident.NodeID, epochStart ident.Offset) follower {
	return follower{
		id: id, brokerEpoch: -1, end: ident.UnknownOffset, logStart: ident.UnknownOffset,
		lastFetch: longAgo, lastFetchLeaderEnd: epochStart, lastCaughtUp: longAgo,
	}
}

// fetched notes a fetch at offset while the leader's log ended at leaderEnd. A follower of a busy leader never
// reads up to the end of the moment; that it reached the end of its previous fetch is enough, dated to that
// (KAFKA-4485).
func (f *follower) fetched(now ident.Instant, fetch Fetch, leaderEnd ident.Offset) {
	switch {
	case fetch.Offset >= leaderEnd:
		f.lastCaughtUp = max(f.lastCaughtUp, now)
	case fetch.Offset >= f.lastFetchLeaderEnd:
		f.lastCaughtUp = max(f.lastCaughtUp, f.lastFetch)
	}
	f.end = fetch.Offset
	f.logStart = fetch.LogStart
	f.brokerEpoch = fetch.BrokerEpoch
	f.lastFetch = now
	f.lastFetchLeaderEnd = max(f.lastFetchLeaderEnd, leaderEnd)
}

// caughtUp: at the leader's end (however long ago it got there: KAFKA-7152), or it was within the lag time.
func (f *follower) caughtUp(now ident.Instant, leaderEnd ident.Offset, lagTimeMax time.Duration) bool {
	return f.end == leaderEnd || (f.lastCaughtUp != longAgo && now.Sub(f.lastCaughtUp) <= lagTimeMax)
}

// lag is for facts and metrics: offsets behind, and the time since it was caught up (-1: never).
func (f *follower) lag(now ident.Instant, leaderEnd ident.Offset) (int64, time.Duration) {
	since := time.Duration(-1)
	if f.lastCaughtUp != longAgo {
		since = now.Sub(f.lastCaughtUp)
	}
	return int64(leaderEnd - max(f.end, 0)), since
}

func (r *Replica) follower(id ident.NodeID) *follower {
	for i := range r.leader.followers {
		if f := &r.leader.followers[i]; f.id == id {
			return f
		}
	}
	return nil
}

// eligible says whether metadata lets the follower into the ISR: unfenced, not shutting down (KIP-841), and the one
// that fetches is the one that is registered (KIP-903), no damage reported (KIP-858). An unknown broker epoch is not eligible.
func (r *Replica) eligible(f *follower) bool {
	b, ok := r.cluster.Broker(f.id)
	if !ok || b.Fenced || b.ShuttingDown || r.toldLost(f.id) {
		return false
	}
	return f.brokerEpoch == b.Epoch || r.cfg.Mutant == StaleBrokerEpochAccepted
}

func (r *Replica) caughtUp(now ident.Instant, f *follower) bool {
	return f.caughtUp(now, r.log.EndOffset(), r.cfg.LagTimeMax)
}
