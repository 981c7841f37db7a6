package replication

import (
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// serveFetch answers a fetch at once. The order of the checks is Kafka's: an error or a divergence changes
// nothing about the follower.
func (r *Replica) serveFetch(now ident.Instant, f Fetch, out *Effects) {
	a := FetchAnswer{
		Token: f.Token, From: f.Offset, Below: f.Offset, HighWatermark: ident.UnknownOffset,
		LogStart: ident.UnknownOffset, Diverging: NoEpochEnd,
	}
	if a.Code = r.refuseFetch(f); a.Code == None {
		r.position(f, &a)
		if a.Code == None {
			a.LogStart = r.log.StartOffset()
			if a.Diverging == NoEpochEnd {
				r.readRange(now, f, &a, out)
			}
			a.HighWatermark = r.hw
		}
	}
	out.Answers = append(out.Answers, a)
}

// refuseFetch is about who asks whom.
func (r *Replica) refuseFetch(f Fetch) Code {
	if code := r.checkEpoch(f.LeaderEpoch); code != None {
		return code
	}
	if f.Replica < 0 {
		return None
	}
	fol := r.follower(f.Replica)
	if fol == nil || !slices.Contains(r.meta.Replicas, f.Replica) {
		if f.LeaderEpoch != ident.UnknownEpoch {
			return UnknownLeaderEpoch // it may know newer metadata
		}
		return NotLeaderOrFollower
	}
	if r.cfg.Mutant != StaleBrokerEpochAccepted && f.BrokerEpoch >= 0 {
		b, ok := r.cluster.Broker(f.Replica)
		if (ok && f.BrokerEpoch < b.Epoch) || f.BrokerEpoch < fol.brokerEpoch {
			return NotLeaderOrFollower // sent before its restart
		}
	}
	return None
}

// checkEpoch compares a request's leader epoch (-1: not checked) and wants this replica to lead.
func (r *Replica) checkEpoch(epoch ident.Epoch) Code {
	switch {
	case r.role == Failed:
		return KafkaStorageError
	case epoch != ident.UnknownEpoch && epoch < r.meta.LeaderEpoch:
		return FencedLeaderEpoch
	case epoch != ident.UnknownEpoch && epoch > r.meta.LeaderEpoch:
		return UnknownLeaderEpoch
	case r.role != Leader:
		return NotLeaderOrFollower
	}
	return None
}

// position is about where the reader stands: in the log, on it, or on another branch of history.
func (r *Replica) position(f Fetch, a *FetchAnswer) {
	outOfRange := f.Offset < r.log.StartOffset() || f.Offset > r.log.EndOffset()
	if f.LastFetchedEpoch != ident.UnknownEpoch && f.Offset >= r.log.StartOffset() {
		epoch, end, ok := r.log.EpochEndOffset(f.LastFetchedEpoch)
		switch {
		case !ok:
			outOfRange = true
		case epoch < f.LastFetchedEpoch || end < f.Offset:
			a.Diverging = EpochEnd{Epoch: epoch, End: end}
			return
		case f.Replica >= 0 && end <= r.log.StartOffset() && f.LastFetchedEpoch < r.log.LatestEpoch():
			// Nothing of that epoch is left here, so where it really ended is not known: it may have been below the
			// log start, and what the follower has beyond that is another branch of history. Kafka lets it pass.
			a.Diverging = EpochEnd{Epoch: epoch, End: r.log.StartOffset()}
			return
		}
	}
	if outOfRange {
		a.Code = OffsetOutOfRange
		a.LogStart = r.log.StartOffset()
		// The follower has to know both ends of this log to find its place; this saves it two ListOffsets.
		a.Diverging = EpochEnd{Epoch: r.log.LatestEpoch(), End: r.log.EndOffset()}
	}
}

// readRange says what may be read, followers to the log end and consumers to the high watermark, and takes a
// follower's offset as its progress.
func (r *Replica) readRange(now ident.Instant, f Fetch, a *FetchAnswer, out *Effects) {
	if f.Replica < 0 {
		a.Below = max(f.Offset, min(r.hw, r.log.EndOffset()))
		return
	}
	a.Below = r.log.EndOffset()
	if f.Again {
		return
	}
	r.follower(f.Replica).fetched(now, f, r.log.EndOffset())
	r.completeDeletions(now, out)
	r.maybeExpand(now, out)
	r.advanceHighWatermark(now, out)
}

// TellsLogStart says whether the answer has a log start that the follower which asked does not have yet. Such an answer
// is not held back for records: deletions wait for the followers.
func (a FetchAnswer) TellsLogStart(f Fetch) bool {
	return a.Code == None && f.Replica >= 0 && f.LogStart >= 0 && f.LogStart < a.LogStart
}

// EpochEnd answers OffsetForLeaderEpoch: where the asked epoch ends in this leader's log.
func (r *Replica) EpochEnd(leaderEpoch, asked ident.Epoch) (EpochEnd, Code) {
	if code := r.checkEpoch(leaderEpoch); code != None {
		return NoEpochEnd, code
	}
	epoch, end, ok := r.log.EpochEndOffset(asked)
	if !ok || asked == ident.UnknownEpoch {
		return NoEpochEnd, None
	}
	return EpochEnd{Epoch: epoch, End: end}, None
}
