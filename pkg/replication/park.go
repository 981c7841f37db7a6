package replication

import (
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// parkedFetch waits for more to read. How many bytes are enough is the caller's: a fetch may span partitions, and
// the one that was woken and still finds too little is parked again.
type parkedFetch struct {
	token    Token
	consumer bool
	offset   ident.Offset
	logStart ident.Offset // the follower's, -1 when it did not say
	seen     ident.Offset
	deadline ident.Instant
}

func (r *Replica) parkFetch(ev ParkFetch, out *Effects) {
	p := parkedFetch{
		token: ev.Fetch.Token, consumer: ev.Fetch.Replica < 0, offset: ev.Fetch.Offset, seen: ev.Seen,
		logStart: ev.Fetch.LogStart, deadline: ev.Deadline,
	}
	stale := ev.Fetch.LeaderEpoch != ident.UnknownEpoch && ev.Fetch.LeaderEpoch != r.meta.LeaderEpoch
	if r.role != Leader || stale || r.readable(p) != p.seen || r.startsHigher(p) {
		out.Wake = append(out.Wake, p.token)
		return
	}
	r.parked = append(r.parked, p)
}

// readable is what FetchAnswer.Below would be now.
func (r *Replica) readable(p parkedFetch) ident.Offset {
	if p.consumer {
		return max(p.offset, min(r.hw, r.log.EndOffset()))
	}
	return r.log.EndOffset()
}

// startsHigher says whether this log starts above that of the follower that waits.
func (r *Replica) startsHigher(p parkedFetch) bool {
	return !p.consumer && p.logStart >= 0 && p.logStart < r.log.StartOffset()
}

func (r *Replica) unparkFetch(token Token) {
	r.parked = slices.DeleteFunc(r.parked, func(p parkedFetch) bool { return p.token == token })
}

func (r *Replica) wake(out *Effects, which func(parkedFetch) bool) {
	if len(r.parked) == 0 {
		return
	}
	r.parked = slices.DeleteFunc(r.parked, func(p parkedFetch) bool {
		if !which(p) {
			return false
		}
		out.Wake = append(out.Wake, p.token)
		return true
	})
}

func (r *Replica) wakeAll(out *Effects) {
	r.wake(out, func(parkedFetch) bool { return true })
}

// wakeFollowers is for an append, wakeConsumers for a move of the high watermark, wakeLogStart for one of the log's
// start.
func (r *Replica) wakeFollowers(out *Effects) {
	r.wake(out, func(p parkedFetch) bool { return !p.consumer && r.readable(p) != p.seen })
}

func (r *Replica) wakeConsumers(out *Effects) {
	r.wake(out, func(p parkedFetch) bool { return p.consumer && r.readable(p) != p.seen })
}

func (r *Replica) wakeLogStart(out *Effects) {
	r.wake(out, r.startsHigher)
}

func (r *Replica) wakeExpired(now ident.Instant, out *Effects) {
	r.wake(out, func(p parkedFetch) bool { return now >= p.deadline })
}

func (r *Replica) nextParked() ident.Instant {
	next := ident.Never
	for _, p := range r.parked {
		next = min(next, p.deadline)
	}
	return next
}
