package exec

import (
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
)

// BeginSealedFlush begins a flush, for EndFlush to end, when a segment was sealed since the last one. Nothing waits
// for it: it bounds what a start after a crash has to scan to about the last segment, as Kafka's flush on roll does.
// It says false when there is nothing to be done, and when each append is flushed anyway.
func (p *Partition) BeginSealedFlush(now ident.Instant) (*log.PendingFlush, bool) {
	if p.flushing || p.closed || p.failure != nil || p.cfg.Flush.Always {
		return nil, false
	}
	segments := p.log.Segments()
	if p.log.FlushedOffset() >= segments[len(segments)-1] {
		return nil, false
	}
	return p.startFlush(now)
}
