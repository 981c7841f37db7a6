package replication

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

type fetchState uint8

const (
	notFetching fetchState = iota
	fetching               // a fetch position is given out
	appending              // fetched batches are with the executor
	truncating             // a truncation is with the executor
	backingOff             // until fetcherState.until
	fenced                 // this leader epoch is over; waits for metadata
)

// fetcherState exists while role is Follower.
type fetcherState struct {
	state fetchState
	until ident.Instant // of backingOff
	// early is the last pause while one answer after the other says that the leader does not know yet what this follower
	// knows, else 0.
	early time.Duration

	// What the response said whose batches are being appended.
	leaderHW, leaderLogStart ident.Offset
}

func (f *fetcherState) retryAt() ident.Instant {
	if f.state == backingOff {
		return f.until
	}
	return ident.Never
}

// FetchPosition is the question that a follower puts to its leader next.
type FetchPosition struct {
	Leader           ident.NodeID
	LeaderEpoch      ident.Epoch
	Offset           ident.Offset
	LastFetchedEpoch ident.Epoch // -1: the log is empty, nothing to compare
	LogStart         ident.Offset
	HighWatermark    ident.Offset
}

// NextFetch is the fetch that this replica wants to send now, if any. Effects.Fetcher tells when to ask again.
// Under flush: Always there is none before the log is flushed, since the offset is what this replica vouches for.
func (r *Replica) NextFetch() (FetchPosition, bool) {
	flushed := r.acked() == r.log.EndOffset() || r.cfg.Mutant == FetchBeforeFlush
	if r.role != Follower || r.fetcher.state != fetching || !flushed {
		return FetchPosition{}, false
	}
	return r.fetchPosition(), true
}

func (r *Replica) fetchPosition() FetchPosition {
	p := FetchPosition{
		Leader: r.meta.Leader, LeaderEpoch: r.meta.LeaderEpoch, Offset: r.log.EndOffset(),
		LastFetchedEpoch: ident.UnknownEpoch, LogStart: r.log.StartOffset(), HighWatermark: r.hw,
	}
	if r.cfg.Mutant != TruncateToHighWatermark {
		p.LastFetchedEpoch = r.log.LatestEpoch()
	}
	return p
}

// fetchResponse uses an answer only if the replica still asks exactly that question.
func (r *Replica) fetchResponse(now ident.Instant, ev FetchResponse, out *Effects) {
	if r.role != Follower || r.fetcher.state != fetching {
		return
	}
	p := r.fetchPosition()
	same := ev.LeaderEpoch == p.LeaderEpoch && ev.Offset == p.Offset && ev.LastFetchedEpoch == p.LastFetchedEpoch
	if !same && r.cfg.Mutant != StaleResponseUsed {
		return
	}
	switch ev.Code {
	case None:
		if ev.Diverging.Epoch != ident.UnknownEpoch || ev.Diverging.End != ident.UnknownOffset {
			r.diverged(ev.Diverging, ev.LeaderLogStart, out)
			return
		}
		r.useBatches(now, ev, out)
	case OffsetOutOfRange:
		r.outOfRange(now, ev, out)
	case FencedLeaderEpoch:
		r.fetcher.state = fenced
		out.Fetcher = true
	case UnknownLeaderEpoch, NotLeaderOrFollower, UnknownTopicID, UnknownTopicOrPartition:
		r.awaitLeader(now, out)
	default:
		r.backOff(now, out)
	}
}

// useBatches takes the batches up to the first of an epoch above the question's: a former leader that truncates
// while it sends ships those (KAFKA-18723).
func (r *Replica) useBatches(now ident.Instant, ev FetchResponse, out *Effects) {
	n := 0
	for n < len(ev.Batches) && ev.Batches[n].Epoch <= ev.LeaderEpoch {
		n++
	}
	r.fetcher.early = 0
	r.fetcher.leaderHW, r.fetcher.leaderLogStart = ev.HighWatermark, ev.LeaderLogStart
	switch {
	case n > 0:
		r.fetcher.state = appending
		out.AppendFetched = n
	case len(ev.Batches) > 0:
		r.backOff(now, out)
	default:
		r.followLeader(out)
		r.maybeRefilled(true, out)
		out.Fetcher = true
	}
}

func (r *Replica) fetchedAppended(out *Effects) {
	if r.role != Follower || r.fetcher.state != appending {
		return
	}
	r.fetcher.state = fetching
	out.Flush = out.Flush || r.cfg.FlushAlways
	out.Fetcher = true
	r.followLeader(out)
	r.maybeRefilled(false, out)
}

// followLeader takes over the leader's high watermark, as far as this log goes. It never goes back by it: a leader
// that has just been elected lags behind what is known to be committed.
func (r *Replica) followLeader(out *Effects) {
	if hw := min(r.fetcher.leaderHW, r.log.EndOffset()); hw > r.hw {
		r.hw = hw
		out.HighWatermark = true
	}
	if start := r.fetcher.leaderLogStart; start > r.log.StartOffset() && start <= r.hw {
		out.RaiseLogStart = &start
	}
}

func (r *Replica) fetchedRefused(now ident.Instant, out *Effects) {
	if r.role == Follower && r.fetcher.state == appending {
		r.backOff(now, out)
	}
}

// diverged truncates to the end of the largest epoch that both logs have (KIP-101, KIP-279). If the leader's epoch
// is not in this log, that is one step of several: the next fetch names an older epoch. If all that would be left
// lies below the leader's log start, nobody can tell whether it is the leader's history: it goes, and this log begins
// where the leader's does.
func (r *Replica) diverged(d EpochEnd, leaderStart ident.Offset, out *Effects) {
	if r.cfg.Mutant == DivergenceIgnored {
		return
	}
	to := min(d.End, r.log.EndOffset())
	if epoch, end, ok := r.log.EpochEndOffset(d.Epoch); ok {
		if epoch != d.Epoch {
			to = min(end, r.log.EndOffset())
		} else {
			to = min(end, to)
		}
	}
	r.truncateTo(to, leaderStart, out)
}

// truncateTo cuts the log at an offset of the leader's. Where that leaves nothing of it, it begins again where the
// leader's does, and not at that offset as in Kafka: what lies between would be missing, and once this replica leads, the
// others would drop it too.
func (r *Replica) truncateTo(to, leaderStart ident.Offset, out *Effects) {
	if to <= leaderStart || to < r.log.StartOffset() {
		r.truncate(Truncation{To: max(leaderStart, 0), Full: true}, out)
		return
	}
	r.truncate(Truncation{To: to}, out)
}

// outOfRange finds the place again when the offset is not in the leader's log at all. With a log end below this
// one's, the leader was elected uncleanly: follow it. With a log start above this log's end, retention has passed
// by: restart there (a replica reset). Otherwise go on from here, after a while.
func (r *Replica) outOfRange(now ident.Instant, ev FetchResponse, out *Effects) {
	end, leaderStart, leaderEnd := r.log.EndOffset(), ev.LeaderLogStart, ev.Diverging.End
	switch {
	case leaderStart < 0 || leaderEnd < leaderStart:
		r.backOff(now, out)
	case leaderEnd < end:
		r.truncateTo(leaderEnd, leaderStart, out)
	case leaderStart > end:
		out.Facts = append(out.Facts, Fact{
			Kind: ReplicaReset, Replica: r.cfg.Self, LeaderEpoch: r.meta.LeaderEpoch, PartitionEpoch: r.meta.PartitionEpoch,
			LagOffsets: int64(leaderEnd - end), LagTime: -1, From: end, To: leaderStart,
		})
		r.truncate(Truncation{To: leaderStart, Full: true}, out)
	default:
		r.backOff(now, out)
	}
}

// truncate is also wanted when it removes no record: the epoch table is cut with it (KAFKA-10706). A log without
// records below its high watermark loses none of them, also where it begins again further down: under a leader that
// has not heard of all that was deleted.
func (r *Replica) truncate(t Truncation, out *Effects) {
	if t.To < r.hw && r.hw > r.log.StartOffset() {
		out.Facts = append(out.Facts, Fact{
			Kind: TruncatedBelowHW, Replica: r.cfg.Self, LeaderEpoch: r.meta.LeaderEpoch, PartitionEpoch: r.meta.PartitionEpoch,
			LagTime: -1, From: r.hw, To: t.To,
		})
	}
	r.fetcher.state = truncating
	out.Truncate = &t
	out.Fetcher = true
}

// truncateDone clamps the high watermark into what is left, on a full truncation to the new start (KAFKA-9491). It
// holds in every role: an executor that works behind may report when the role has moved on.
func (r *Replica) truncateDone(out *Effects) {
	if hw := clamp(r.hw, r.log.StartOffset(), r.log.EndOffset()); hw != r.hw {
		r.hw = hw
		out.HighWatermark = true
	}
	if r.role == Follower && r.fetcher.state == truncating {
		r.fetcher.state = fetching
		out.Flush = out.Flush || r.cfg.FlushAlways
		out.Fetcher = true
	}
}

// firstEarlyRetry is the pause after the first answer of a leader that has not heard yet that it leads.
const firstEarlyRetry = 20 * time.Millisecond

// awaitLeader: metadata reaches the nodes milliseconds apart, and the new leader's produces wait for this follower. So
// it asks again soon, after twice the pause each time, up to that of any other error.
func (r *Replica) awaitLeader(now ident.Instant, out *Effects) {
	r.fetcher.early = min(r.cfg.FetchBackoff, max(firstEarlyRetry, 2*r.fetcher.early))
	r.backOffFor(now, r.fetcher.early, out)
}

func (r *Replica) backOff(now ident.Instant, out *Effects) {
	r.backOffFor(now, r.cfg.FetchBackoff, out)
}

func (r *Replica) backOffFor(now ident.Instant, pause time.Duration, out *Effects) {
	r.fetcher.state = backingOff
	r.fetcher.until = now.Add(pause)
	out.Fetcher = true
}

func (r *Replica) fetcherTimer(now ident.Instant, out *Effects) {
	if r.fetcher.state == backingOff && now >= r.fetcher.until {
		r.fetcher.state = fetching
		out.Fetcher = true
	}
}
