package replication

import "github.com/highwater-io/highwater/pkg/ident"

// acked is the end of what this replica vouches for: all of the log, or what is flushed under flush: Always. A leader
// counts it for the high watermark and answers acks=1 by it; a follower's fetch offset is it.
func (r *Replica) acked() ident.Offset {
	if !r.cfg.FlushAlways || (r.cfg.Mutant == AckBeforeFlush && r.role == Leader) {
		return r.log.EndOffset()
	}
	return r.log.FlushedOffset()
}

// flushPolicyChanged: the high watermark never goes back by it, so a leader that has counted more than is flushed
// moves it again once the flush has come so far. While flush: Always is on, what is appended and not flushed always
// has a flush under way or asked for.
func (r *Replica) flushPolicyChanged(now ident.Instant, always bool, out *Effects) {
	if r.cfg.FlushAlways == always || r.cfg.Mutant == FlushSwitchIgnored {
		return
	}
	r.cfg.FlushAlways = always
	if r.role == Failed || r.role == Gone {
		return
	}
	if always && r.log.FlushedOffset() != r.log.EndOffset() {
		out.Flush = true
	}
	r.flushDone(now, out)
}

func (r *Replica) flushDone(now ident.Instant, out *Effects) {
	switch r.role {
	case Leader:
		r.advanceHighWatermark(now, out)
		r.completeProduces(out)
	case Follower:
		out.Fetcher = true
	}
}
