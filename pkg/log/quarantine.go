package log

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
)

// quarantineSuffix is what segments get that were taken out of a damaged log and are kept until it is refilled. Apache
// Kafka ignores such files.
const quarantineSuffix = ".quarantine"

// Refill is what a log lacks since Quarantine, or since a truncation that cut off damage: what it held from From to To.
// To is beyond every offset when that is not known any more.
type Refill struct{ From, To ident.Offset }

// Refilling says what is being refilled; ok is false when nothing is.
func (l *Log) Refilling() (r Refill, ok bool) {
	if l.refilling == nil {
		return Refill{}, false
	}
	return *l.refilling, true
}

// Quarantined says what Quarantine took out of a log.
type Quarantined struct {
	Refill
	Segments []ident.Offset // base offsets
	Bytes    int64
}

// Quarantine ends the log before its first damaged segment: that segment and all later ones are renamed aside, to be
// kept until EndRefill. It is for a replica that is out of the ISR and has a leader to fetch them from again. Without
// damage it does nothing. It is durable when it returns; after a crash on the way the log is shorter or still damaged,
// and Refilling in both cases.
func (l *Log) Quarantine() (Quarantined, error) {
	if l.err != nil {
		return Quarantined{}, l.err
	}
	damage := l.Damage()
	if len(damage) == 0 {
		return Quarantined{}, nil
	}
	keep := 0
	for keep < len(l.segments) && l.segments[keep].next <= damage[0].From && !l.segments[keep].hasDamage() {
		keep++
	}
	for keep > 0 && l.segments[keep-1].size == 0 {
		keep-- // of no record
	}
	end := l.start
	if keep > 0 {
		end = l.segments[keep-1].next
	}
	if err := l.lacks(Refill{end, l.active().next}); err != nil {
		return Quarantined{}, err
	}
	q := Quarantined{Refill: *l.refilling}
	if err := l.lower(end, l.start); err != nil {
		return q, err
	}
	l.truncations++
	gone := l.segments[keep:]
	if err := l.completeSeals(gone[0].base); err != nil {
		return q, err
	}
	l.cancelSeals(gone[0].base)
	next := l.newActive(end)
	l.segments = append(l.segments[:keep:keep], next)
	l.flushed.Store(min(l.flushed.Load(), int64(end)))
	l.clean = min(l.clean, end)
	// Readers first: names of what they look at must not change under them.
	l.publish(true)
	for i := len(gone) - 1; i >= 0; i-- { // the last first: a crash leaves a log without gaps
		gone[i].drop()
		if err := gone[i].quarantine(); err != nil {
			return q, l.poison("quarantine segment", err)
		}
		q.Segments = append([]ident.Offset{gone[i].base}, q.Segments...)
		q.Bytes += gone[i].size
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return q, l.poison("sync directory", err)
	}
	if err := next.create(); err != nil {
		return q, l.poison("create segment", err)
	}
	if err := next.file().Sync(); err != nil {
		return q, l.poison("sync", err)
	}
	if err := l.removeSnapshotsAbove(end); err != nil {
		return q, l.poison("truncate", err)
	}
	if err := l.examineAnd(func() error { return l.rebuildProducers(nil) }); err != nil {
		return q, l.poison("rebuild producer state", err)
	}
	l.epochs.TruncateFromEnd(end)
	if err := l.writeEpochs(); err != nil {
		return q, err
	}
	return q, l.damageChanged()
}

// lacks notes, durably, what is about to be taken out of the log and has to be fetched again.
func (l *Log) lacks(r Refill) error {
	if l.refilling != nil {
		r = Refill{min(r.From, l.refilling.From), max(r.To, l.refilling.To)}
	}
	l.refilling = &r
	return l.damageChanged()
}

// hasDamage says whether anything within the segment is damaged, or only missing behind it.
func (s *segment) hasDamage() bool {
	return slices.ContainsFunc(s.damage(), func(b bad) bool { return b.pos < s.size })
}

// quarantine renames the segment's file, with a number where one was renamed so before. Its indexes are made again from
// it, should anybody want to look.
func (s *segment) quarantine() error {
	name := s.path(logSuffix + quarantineSuffix)
	for n := 1; ; n++ {
		if _, err := s.fsys.Stat(name); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		name = s.path(logSuffix) + "." + strconv.Itoa(n) + quarantineSuffix
	}
	if err := renameIfThere(s.fsys, s.path(logSuffix), name); err != nil {
		return err
	}
	for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
		if err := removeIfThere(s.fsys, s.path(suffix)); err != nil {
			return err
		}
	}
	return nil
}

// EndRefill says that the log holds again what Quarantine took out of it, and all of it whole: what was kept aside is
// deleted. It returns how many bytes that were. Nothing is done when nothing is being refilled.
func (l *Log) EndRefill() (bytes int64, err error) {
	if l.err != nil {
		return 0, l.err
	}
	if l.refilling == nil {
		return 0, nil
	}
	bytes, err = l.removeQuarantined()
	if err != nil {
		return bytes, l.poison("remove quarantined segment", err)
	}
	l.refilling = nil
	return bytes, l.damageChanged()
}

// QuarantinedBytes is how much is kept aside.
func (l *Log) QuarantinedBytes() (int64, error) {
	total := int64(0)
	err := l.eachQuarantined(func(_ string, bytes int64) error { total += bytes; return nil })
	return total, err
}

func (l *Log) removeQuarantined() (int64, error) {
	total := int64(0)
	err := l.eachQuarantined(func(name string, bytes int64) error {
		total += bytes
		return removeIfThere(l.fsys, name)
	})
	if err == nil {
		err = l.fsys.SyncDir(l.dir)
	}
	return total, err
}

func (l *Log) eachQuarantined(visit func(name string, bytes int64) error) error {
	entries, err := l.fsys.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), quarantineSuffix) {
			continue
		}
		name := filepath.Join(l.dir, e.Name())
		info, err := l.fsys.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := visit(name, info.Size()); err != nil {
			return err
		}
	}
	return nil
}
