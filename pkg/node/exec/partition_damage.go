package exec

import (
	"errors"
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
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

// Suspect takes an error of a look-up that did not go through the executor.
func (p *Partition) Suspect(err error) { p.suspect(err) }

// examineSuspects checks the segments in which a look-up met something that is no batch.
func (p *Partition) examineSuspects(now ident.Instant) {
	if p.cfg.ScrubApart {
		p.outputs.Scrub = p.failure == nil && !p.closed && p.log.Suspects()
		return
	}
	for p.log.Suspects() {
		s := p.BeginScrub(scrubAtOnce)
		if s == nil {
			return
		}
		p.EndScrub(now, s, s.Run())
	}
}

// scrubAtOnce is how much of a suspect segment is checked between two looks at it.
const scrubAtOnce = 64 << 20

// BeginScrub begins the check of about limitBytes of the log, first of suspect segments. The caller lets go of the
// mutex, calls Run, and hands the outcome to EndScrub. Nil: all of it has been checked, the next call begins anew.
func (p *Partition) BeginScrub(limitBytes int64) *log.Scrub {
	if p.failure != nil || p.closed {
		return nil
	}
	return p.log.BeginScrub(limitBytes)
}

// EndScrub takes the outcome of a scrub. What is damaged is this replica's trouble; an error to read is the directory's.
func (p *Partition) EndScrub(now ident.Instant, s *log.Scrub, runErr error) {
	_, err := p.log.EndScrub(s, runErr)
	if err != nil && p.failure == nil && !p.closed {
		p.step(now, p.fail("check", err))
	}
}

// noteDamage tells the core and the caller what the log is like, when that has changed.
func (p *Partition) noteDamage(now ident.Instant) {
	if is := p.damageState(); is != p.core.Damage() {
		p.step(now, is)
	}
	known := p.damage
	p.damage = p.log.Damage()
	for _, d := range p.damage {
		if !slices.ContainsFunc(known, func(k log.Damage) bool { return k.From <= d.From && k.To >= d.To }) {
			p.outputs.Damage = append(p.outputs.Damage, d)
		}
	}
}

func (p *Partition) damageState() replication.DamageChanged {
	refill, refilling := p.log.Refilling()
	return replication.DamageChanged{Damaged: p.log.Damaged(), Refilling: refilling, RefillTo: refill.To}
}

// Refilled is what a replica has again.
type Refilled struct {
	log.Refill
	// Bytes were kept aside until now.
	Bytes int64
}

func (p *Partition) quarantine() replication.Event {
	q, err := p.log.Quarantine()
	switch {
	case err != nil:
		p.do("quarantine", err)
	case len(q.Segments) > 0:
		p.outputs.Quarantined = &q
	}
	return p.damageState()
}

func (p *Partition) endRefill() replication.Event {
	refill, _ := p.log.Refilling()
	bytes, err := p.log.EndRefill()
	if err != nil {
		p.do("end of the refill", err)
	} else {
		refill.To = min(refill.To, p.log.EndOffset())
		p.outputs.Refilled = &Refilled{refill, bytes}
	}
	return p.damageState()
}
