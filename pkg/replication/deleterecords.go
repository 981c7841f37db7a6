package replication

import (
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// waitingDeletion is a DeleteRecords that was accepted and not yet answered.
type waitingDeletion struct {
	token    Token
	required ident.Offset // where the log is to start
	deadline ident.Instant
}

// deleteRecords moves the log's start, never beyond the high watermark: what is not committed yet may still be needed
// to bring a follower up.
func (r *Replica) deleteRecords(now ident.Instant, ev DeleteRecords, out *Effects) {
	refuse := func(code Code) {
		out.Deleted = append(out.Deleted, Deletion{Token: ev.Token, Code: code, LowWatermark: ident.UnknownOffset})
	}
	before := ev.Before
	if before == ident.UnknownOffset {
		before = r.hw
	}
	switch {
	case r.role == Failed:
		refuse(KafkaStorageError)
		return
	case r.role != Leader:
		refuse(NotLeaderOrFollower)
		return
	case before < 0 || before > r.hw:
		refuse(OffsetOutOfRange)
		return
	}
	r.deletions = append(r.deletions, waitingDeletion{token: ev.Token, required: before, deadline: now.Add(ev.Timeout)})
	if before > r.log.StartOffset() {
		out.RaiseLogStart = &before
		return // logStartRaised
	}
	r.completeDeletions(now, out)
}

// logStartRaised tells the followers at once: their fetches may be parked, and a deletion waits for them.
func (r *Replica) logStartRaised(now ident.Instant, out *Effects) {
	r.wakeLogStart(out)
	r.completeDeletions(now, out)
}

// lowWatermark is the smallest log start over this leader and the replicas on live nodes, as Kafka has it; -1 while
// one of them has not fetched in this leadership.
func (r *Replica) lowWatermark() ident.Offset {
	low := r.log.StartOffset()
	for i := range r.leader.followers {
		f := &r.leader.followers[i]
		if b, ok := r.cluster.Broker(f.id); ok && !b.Fenced {
			low = min(low, f.logStart)
		}
	}
	return low
}

// completeDeletions answers those that every live replica has followed, and those whose time is over. One that this
// log itself has not followed yet waits in any case: the outcome is not known.
func (r *Replica) completeDeletions(now ident.Instant, out *Effects) {
	if len(r.deletions) == 0 {
		return
	}
	start, low := r.log.StartOffset(), r.lowWatermark()
	r.deletions = slices.DeleteFunc(r.deletions, func(d waitingDeletion) bool {
		code := None
		switch {
		case d.required <= low:
		case d.required <= start && now >= d.deadline:
			code = RequestTimedOut
		default:
			return false
		}
		out.Deleted = append(out.Deleted, Deletion{Token: d.token, Code: code, LowWatermark: low})
		return true
	})
}

func (r *Replica) failDeletions(code Code, out *Effects) {
	for _, d := range r.deletions {
		out.Deleted = append(out.Deleted, Deletion{Token: d.token, Code: code, LowWatermark: ident.UnknownOffset})
	}
	r.deletions = r.deletions[:0]
}

func (r *Replica) nextDeletion() ident.Instant {
	next := ident.Never
	for _, d := range r.deletions {
		next = min(next, d.deadline)
	}
	return next
}
