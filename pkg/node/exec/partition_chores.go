package exec

import (
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
)

// BeginChores takes what the log has left to be done beside its owner; nil when there is nothing, or when chores are
// under way. The caller lets go of the mutex, calls Run, and reports it by EndChores.
func (p *Partition) BeginChores() *log.Chores {
	if p.failure != nil || p.closed {
		return nil
	}
	return p.log.BeginChores()
}

// EndChores takes the outcome of chores. An error takes the directory out of service, as one of an append does.
func (p *Partition) EndChores(now ident.Instant, c *log.Chores, runErr error) {
	if err := p.log.EndChores(c, runErr); err != nil && !p.closed {
		p.step(now, p.fail("chores", err))
	}
}

// chores runs them here and now, unless the caller does, and says whether the caller is to.
func (p *Partition) chores(now ident.Instant) bool {
	if p.cfg.ChoresApart {
		return p.failure == nil && !p.closed && p.log.ChoresWanted()
	}
	if c := p.BeginChores(); c != nil {
		p.EndChores(now, c, c.Run())
	}
	return false
}
