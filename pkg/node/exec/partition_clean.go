package exec

import (
	"errors"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
)

// CleanState says how dirty a compacted log is below the high watermark, after sealing what max.compaction.lag.ms wants
// sealed. ok is false when the log is not compacted, or is of no use any more. nowMs is the calendar's time in ms since
// 1970.
func (p *Partition) CleanState(now ident.Instant, nowMs int64) (state log.CleanState, ok bool, err error) {
	if p.failure != nil || p.closed || !p.log.Compacted() {
		return state, false, nil
	}
	if err := p.log.RollForCompaction(nowMs, p.core.HighWatermark()); err != nil {
		p.step(now, p.fail("roll", err))
		return state, false, err
	}
	state, err = p.log.CleanState(nowMs, p.core.HighWatermark())
	p.cleanFailed(now, err)
	return state, err == nil, err
}

// BeginClean prepares a compaction of what lies below the high watermark. The caller lets go of the mutex, calls Run,
// which takes long, and passes the outcome to EndClean. It returns nil when there is nothing to be compacted.
func (p *Partition) BeginClean(now ident.Instant, nowMs int64, options log.CleanOptions) (*log.Clean, error) {
	if p.failure != nil || p.closed {
		return nil, p.failure
	}
	c, err := p.log.BeginClean(nowMs, p.core.HighWatermark(), options)
	p.cleanFailed(now, err)
	return c, err
}

// EndClean takes the outcome of a compaction, and says whether it counts: it does not when the log was truncated, or its
// start moved, meanwhile. What went wrong without harm to the log, above all damaged records (log.ErrCorrupt) and too
// little room for it to begin (log.ErrNoRoom), is only returned; any other error, a disk that became full on the way
// among them, takes the directory out of service.
func (p *Partition) EndClean(now ident.Instant, c *log.Clean, runErr error) (done bool, err error) {
	done, err = p.log.EndClean(c, runErr)
	if !p.closed {
		p.cleanFailed(now, err)
	}
	return done, err
}

// cleanFailed does what an error of a compaction asks for.
func (p *Partition) cleanFailed(now ident.Instant, err error) {
	switch {
	case err == nil:
	case p.log.Err() != nil || !harmless(err):
		p.step(now, p.fail("compaction", err))
	default:
		p.suspect(err)
	}
}

func harmless(err error) bool {
	for _, known := range []error{
		log.ErrCorrupt, log.ErrOffsetMapFull, log.ErrCleanStopped, log.ErrNoRoom, log.ErrTooLarge, log.ErrOffsetOutOfRange,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
