package exec

import (
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
)

// ExpireProducers forgets the idempotent producers that were idle for too long, and returns how many. nowMs is in ms
// since 1970.
func (p *Partition) ExpireProducers(nowMs int64) int {
	if p.closed || p.failure != nil {
		return 0
	}
	return p.log.ExpireProducers(nowMs)
}

// DeleteOldSegments drops the oldest segments that are beyond a limit and lie below the high watermark. nowMs is the
// calendar's time in ms since 1970, which records carry. A disk error takes the directory out of service.
func (p *Partition) DeleteOldSegments(now ident.Instant, nowMs int64, limits log.Limits) (segments int, bytes int64, err error) {
	if p.failure != nil {
		return 0, 0, p.failure
	}
	segments, bytes, err = p.log.DeleteOldSegments(nowMs, limits, p.core.HighWatermark())
	if p.suspect(err) {
		return segments, bytes, nil
	}
	if err != nil {
		p.step(now, p.fail("retention", err))
	} else if segments > 0 {
		p.step(now, replication.LogStartRaised{})
	}
	return segments, bytes, err
}
