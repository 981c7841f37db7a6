package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
)

// compact goes on with a compaction, of which other steps may come between the parts.
func (r *run) compact(p *part) {
	switch {
	case p.clean == nil:
		// Only what is flushed, committed and sealed is compacted. What is committed is not truncated again.
		if len(p.log.Segments()) < 3 {
			r.named("roll", p.log.Roll)
		}
		if p.flush == nil && r.rng.IntN(3) > 0 {
			r.named("flush", func() error { _, err := p.log.Flush(); return err })
		}
		p.committed = max(p.committed, p.before.end-ident.Offset(r.rng.Int64N(min(int64(p.before.end-p.before.start), 6)+1)))
		r.named("clean-begin", func() (err error) {
			p.clean, err = p.log.BeginClean(r.clock, p.committed, log.CleanOptions{Map: log.NewOffsetMap(1 << 16)})
			p.cleaned = false
			return err
		})
	case !p.cleaned:
		p.cleaned = true
		r.named("clean-run", func() error {
			p.cleanErr = p.clean.Run()
			if errors.Is(p.cleanErr, errPower) {
				return p.cleanErr
			}
			return nil // EndClean judges
		})
	default:
		c := p.clean
		p.clean = nil
		next := *p.before
		next.cleaned = max(next.cleaned, c.Stats.To)
		p.after = &next
		r.named("clean-end", func() error {
			_, err := p.log.EndClean(c, p.cleanErr)
			return err
		})
	}
}

// errStopping ends a compaction that has not run to its end.
var errStopping = errors.New("the node stops")

// stopCleaning ends the compactions that are under way, as a node does before it closes its logs.
func (r *run) stopCleaning() {
	for _, p := range r.parts {
		c := p.clean
		if c == nil {
			continue
		}
		p.clean = nil
		r.named("clean-stop", func() error {
			_, err := p.log.EndClean(c, errStopping)
			if errors.Is(err, errStopping) {
				err = nil
			}
			return err
		})
	}
}

// isCleaned says whether compaction may have made f of the batch want: the same but for records that are gone.
func isCleaned(f, want entry) bool {
	if f.LastOffset() != want.LastOffset() || f.LeaderEpoch != want.LeaderEpoch || f.ProducerID != want.ProducerID ||
		f.ProducerEpoch != want.ProducerEpoch || f.BaseSequence != want.BaseSequence || f.IsControl() != want.IsControl() {
		return false
	}
	were := map[ident.Offset]batch.Record{}
	for record, err := range batch.Records(want.raw) {
		if err != nil {
			return false
		}
		were[record.Offset] = record
	}
	for record, err := range batch.Records(f.raw) {
		w, ok := were[record.Offset]
		if err != nil || !ok || record.Timestamp != w.Timestamp || !bytes.Equal(record.Key, w.Key) ||
			(record.Value == nil) != (w.Value == nil) || !bytes.Equal(record.Value, w.Value) {
			return false
		}
	}
	return true
}

// lackOnly says why the records that are not there are not ones that compaction may remove: those whose key comes again
// later in what is compacted, tombstones, and those without a key.
func (h *history) lackOnly(found []entry, start, end ident.Offset) error {
	there := map[ident.Offset]bool{}
	for _, f := range found {
		for record, err := range batch.Records(f.raw) {
			if err != nil {
				return err
			}
			there[record.Offset] = true
		}
	}
	last := map[string]ident.Offset{}
	for _, e := range h.entries {
		// A record that is not there itself is no reason for another to be gone.
		if e.LastOffset() >= min(h.cleaned, end) || e.IsControl() {
			continue
		}
		for record, err := range batch.Records(e.raw) {
			if err != nil {
				return err
			}
			last[string(record.Key)] = record.Offset
		}
	}
	for _, e := range h.entries {
		if e.LastOffset() < start || e.LastOffset() >= end {
			continue
		}
		for record, err := range batch.Records(e.raw) {
			switch {
			case err != nil:
				return err
			case record.Offset < start || there[record.Offset]:
			case record.Offset >= h.cleaned || record.Key != nil && record.Value != nil && last[string(record.Key)] <= record.Offset:
				return fmt.Errorf("the record at %d, key %q, is gone, and the log was compacted up to %d", record.Offset, record.Key, h.cleaned)
			}
		}
	}
	return nil
}
