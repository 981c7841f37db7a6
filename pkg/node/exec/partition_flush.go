package exec

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
)

// FlushPolicy says when what is appended is made durable. The zero value leaves it to the operating system, as Kafka
// does by default.
type FlushPolicy struct {
	// Always: only flushed records are acknowledged, counted for the high watermark and vouched for by a follower's
	// fetch (flush.messages=1).
	Always bool
	// Records: a flush in the background, which nobody waits for, once so many records are not flushed
	// (flush.messages above 1); 0 is never.
	Records int64
	// After: a flush in the background once a record has not been flushed for so long (flush.ms); 0 is never.
	After time.Duration
}

// SetFlushPolicy follows the topic's configuration, also while records wait.
func (p *Partition) SetFlushPolicy(now ident.Instant, policy FlushPolicy) {
	p.cfg.Flush = policy
	p.step(now, replication.FlushPolicyChanged{Always: policy.Always})
}

// flushClock is when the oldest record was appended that no flush covers, even one that is under way.
type flushClock struct {
	covered ident.Offset // by the flush under way
	since   ident.Instant
	running bool
}

// noteUnflushed runs after each step: it starts the clock of FlushPolicy.After and asks for the flush that is due. One
// is due, too, before a new log start may be written down.
func (p *Partition) noteUnflushed(now ident.Instant) {
	policy, c := &p.cfg.Flush, &p.unflushed
	p.flush = p.flush || !p.flushing && p.log.StartOffset() > p.log.DurableStartOffset()
	if policy.Records == 0 && policy.After == 0 || p.failure != nil || p.closed {
		c.running = false
		return
	}
	covered := p.log.FlushedOffset()
	if p.flushing {
		covered = max(covered, c.covered)
	}
	records := int64(p.log.EndOffset() - covered)
	if records <= 0 {
		c.running = false
		return
	}
	if !c.running {
		c.running, c.since = true, now
	}
	if policy.Records > 0 && records >= policy.Records || policy.After > 0 && now.Sub(c.since) >= policy.After {
		p.flush = true
	}
}

// flushDeadline is when a flush is due by FlushPolicy.After; Never when it is asked for already.
func (p *Partition) flushDeadline() ident.Instant {
	if p.flush || !p.unflushed.running || p.cfg.Flush.After == 0 {
		return ident.Never
	}
	return p.unflushed.since.Add(p.cfg.Flush.After)
}

// BeginFlush notes what a flush has to cover. The caller may then let go of the mutex, call Sync, and report it by
// EndFlush; what is appended meanwhile is for the next one, so that all who wait share it (group commit). It says
// false when there is nothing to be done.
func (p *Partition) BeginFlush(now ident.Instant) (*log.PendingFlush, bool) {
	if !p.flush || p.flushing {
		return nil, false
	}
	p.flush = false
	if p.failure != nil || p.closed {
		return nil, false
	}
	return p.startFlush(now)
}

func (p *Partition) startFlush(now ident.Instant) (*log.PendingFlush, bool) {
	f, err := p.log.BeginFlush()
	if err != nil {
		p.step(now, p.fail("flush", err))
		return nil, false
	}
	p.flushing = true
	p.unflushed = flushClock{covered: p.log.EndOffset()}
	return f, true
}

// EndFlush takes the outcome of a flush: acknowledgements, the high watermark and the next fetch rest on it.
func (p *Partition) EndFlush(now ident.Instant, f *log.PendingFlush, syncErr error) {
	p.flushing = false
	_, err := p.log.EndFlush(f, syncErr)
	switch {
	case p.closed:
	case err != nil:
		p.step(now, p.fail("flush", err))
	default:
		p.step(now, replication.FlushDone{})
	}
}
