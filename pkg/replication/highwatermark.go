package replication

import "github.com/highwater-io/highwater/pkg/ident"

// advanceHighWatermark moves the leader's high watermark to the smallest position over this replica, the maximal ISR
// and the followers about to join; never back, and not at all while the committed ISR is below the effective min
// ISR (KIP-966): what is committed then could be lost with one disk.
func (r *Replica) advanceHighWatermark(now ident.Instant, out *Effects) {
	if r.role != Leader || len(r.meta.ISR) < r.effectiveMinISR() {
		return
	}
	hw := r.acked()
	for i := range r.leader.followers {
		f := &r.leader.followers[i]
		if r.inMaximalISR(f.id) || (r.caughtUp(now, f) && r.eligible(f)) {
			hw = min(hw, f.end)
		}
	}
	if hw <= r.hw {
		return
	}
	r.hw = hw
	out.HighWatermark = true
	r.completeProduces(out)
	r.wakeConsumers(out)
}

// LatestOffset is what ListOffsets answers for the latest offset: the high watermark, but only once it has reached
// the start of this leader's epoch, so that nobody sees the end move back across an election.
func (r *Replica) LatestOffset() (ident.Offset, Code) {
	switch {
	case r.role == Failed:
		return ident.UnknownOffset, KafkaStorageError
	case r.role != Leader:
		return ident.UnknownOffset, NotLeaderOrFollower
	case r.hw < r.leader.epochStart && r.cfg.Mutant != LatestBeforeEpochStart:
		return ident.UnknownOffset, OffsetNotAvailable
	}
	return r.hw, None
}
