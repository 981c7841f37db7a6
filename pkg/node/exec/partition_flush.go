package exec

import (
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
)

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
