package exec

import (
	"errors"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
)

// suspect says whether an error of a look-up means that records of this replica are damaged, which is no reason to
// doubt the directory. The segment is then checked, unless that is known already.
func (p *Partition) suspect(err error) bool {
	if !errors.Is(err, log.ErrCorrupt) {
		return false
	}
	p.log.Suspect(err)
	return true
}

// examineSuspects checks the segments in which a look-up met something that is no batch.
func (p *Partition) examineSuspects(now ident.Instant) {
	for p.failure == nil && !p.closed && p.log.Suspects() {
		s := p.log.BeginScrub(scrubAtOnce)
		if s == nil {
			return
		}
		p.endScrub(now, s, s.Run())
	}
}

// scrubAtOnce is how much of a suspect segment is checked between two looks at it.
const scrubAtOnce = 64 << 20

func (p *Partition) endScrub(now ident.Instant, s *log.Scrub, runErr error) {
	if _, err := p.log.EndScrub(s, runErr); err != nil {
		p.step(now, p.fail("check", err))
	}
}
