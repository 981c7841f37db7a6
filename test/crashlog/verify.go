package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
)

// expectation is what a restart may find of one partition.
type expectation struct {
	before, after *history
	startFrom     ident.Offset // the lowest start
	startUpTo     ident.Offset // and the highest
	floor         ident.Offset // what must be there
	promised      ident.Offset
	expired       bool
}

func (r *run) expectations(keepAll bool) []expectation {
	var all []expectation
	for _, p := range r.parts {
		e := expectation{before: p.before, after: p.after, promised: p.promised, expired: p.expired,
			startFrom: min(p.written, p.before.start, p.after.start), startUpTo: max(p.before.start, p.after.start, p.startUpTo)}
		switch {
		case p.resets:
			before := *p.before
			before.beheaded = true
			e.before = &before
		case keepAll:
			e.floor = min(p.before.end, p.after.end)
		default:
			e.floor = min(p.promised, p.before.end, p.after.end)
		}
		all = append(all, e)
	}
	return all
}

// check compares partition i, just opened, with what must be there, and returns what is.
func (e *expectation) check(o *owner, i int, rng *rand.Rand) (*history, error) {
	recovery := o.recoveries[i]
	if o.logs[i].Damaged() {
		return nil, fmt.Errorf("partition %d: torn writes were taken for damage: %v", i, recovery.Repairs)
	}
	if o.clean && recovery.Repaired() {
		return nil, fmt.Errorf("partition %d: repaired after a clean shutdown: %v", i, recovery.Repairs)
	}
	return e.checkContent(o, i, rng, 6)
}

// checkContent looks at what can be read, and with so many look-ups at what is derived from it.
func (e *expectation) checkContent(o *owner, i int, rng *rand.Rand, lookUps int) (*history, error) {
	l := o.logs[i]
	found, err := readAll(l, rng, max(e.before.cleaned, e.after.cleaned) > 0)
	var h *history
	if err == nil {
		h, err = e.holds(l, found)
	}
	if err == nil {
		err = agrees(l, h, found, rng, lookUps, e.expired || h.beheaded)
	}
	if err != nil {
		return nil, fmt.Errorf("partition %d, from %d to %d: %w; %v", i, l.StartOffset(), l.EndOffset(), err, o.recoveries[i].Repairs)
	}
	return h, nil
}

// holds says whether the log is one that the crash may have left, and returns its history.
func (e *expectation) holds(l *log.Log, found []entry) (*history, error) {
	start, end := l.StartOffset(), l.EndOffset()
	if end < e.floor {
		return nil, fmt.Errorf("lost: %d was flushed", e.floor)
	}
	if start > e.startUpTo && e.floor > e.startUpTo {
		return nil, fmt.Errorf("lost: the log starts at %d, may start at %d, and was flushed to %d", start, e.startUpTo, e.floor)
	}
	if start < e.startFrom {
		return nil, fmt.Errorf("the log starts at %d, though %d was written down", start, e.startFrom)
	}
	if f := l.FlushedOffset(); f != end {
		return nil, fmt.Errorf("called flushed to %d after the start", f)
	}
	if len(found) == 0 && start == e.after.start && len(e.after.entries) == 0 && l.Producers().Len() == 0 {
		return e.after, nil
	}
	err := e.before.isPrefix(found, start, end)
	if err == nil {
		return e.before.recovered(start, end), nil
	}
	if err2 := e.after.isPrefix(found, start, end); err2 != nil {
		return nil, fmt.Errorf("not what was there before the step: %w; nor after it: %w", err, err2)
	}
	return e.after.recovered(start, end), nil
}

// readAll reads the whole log in pieces, as a client would, and checks every batch and that none is missing.
func readAll(l *log.Log, rng *rand.Rand, gaps bool) ([]entry, error) {
	var found []entry
	next := ident.Offset(-1)
	for o := l.StartOffset(); o < l.EndOffset(); {
		c, err := l.Read(o, 1+rng.IntN(4000), l.EndOffset(), true)
		if err != nil {
			return found, fmt.Errorf("read at %d: %w", o, err)
		}
		if c.Bytes == 0 || c.Next <= o || c.First > o && !gaps {
			return found, fmt.Errorf("read at %d: %d bytes from %d to %d", o, c.Bytes, c.First, c.Next)
		}
		raw, err := c.AppendTo(nil)
		last := c.Next
		c.Release()
		if err != nil {
			return found, fmt.Errorf("read at %d: %w", o, err)
		}
		for rest := raw; len(rest) > 0; {
			one, after, h, err := batch.Next(rest)
			if err == nil {
				err = batch.VerifyCRC(one, h)
			}
			if err != nil {
				return found, fmt.Errorf("served at %d: %w", o, err)
			}
			if next >= 0 && (h.BaseOffset < next || h.BaseOffset > next && !gaps) {
				return found, fmt.Errorf("served a batch at offset %d after %d", h.BaseOffset, next)
			}
			found = append(found, entry{h, one})
			next, rest = h.NextOffset(), after
		}
		if next > last || next < last && !gaps {
			return found, fmt.Errorf("read at %d: said to end at %d, ends at %d", o, last, next)
		}
		o = last
	}
	if len(found) > 0 && (found[0].BaseOffset > l.StartOffset() && !gaps || next != l.EndOffset()) {
		return found, fmt.Errorf("the records go from %d to %d, the log from %d to %d", found[0].BaseOffset, next, l.StartOffset(), l.EndOffset())
	}
	return found, nil
}

// agrees compares all that is derived from the batches, and what look-ups say, with the batches.
func agrees(l *log.Log, h *history, found []entry, rng *rand.Rand, lookUps int, expired bool) error {
	if want, got := epochsOf(found, l.StartOffset()), l.Epochs(); len(found) > 0 && h.cleaned == 0 && !slices.Equal(want, got) {
		return fmt.Errorf("leader epochs are %v, the batches say %v", got, want)
	}
	for _, f := range found {
		if e, ok := l.EpochAt(max(f.BaseOffset, l.StartOffset())); !ok || e != f.LeaderEpoch {
			return fmt.Errorf("the leader epoch at offset %d is %d, %v, the batch says %d", f.BaseOffset, e, ok, f.LeaderEpoch)
		}
	}
	for range min(lookUps, len(found)) {
		f := found[rng.IntN(len(found))]
		o := max(f.LastOffset(), l.StartOffset())
		c, err := l.Read(o, 1, l.EndOffset(), true)
		if err != nil {
			return fmt.Errorf("read at %d: %w", o, err)
		}
		raw, err := c.AppendTo(nil)
		first := c.First
		c.Release()
		if err != nil || first > f.BaseOffset || !bytes.Equal(raw, f.raw) {
			return fmt.Errorf("read at %d: %d bytes from %d, want the batch of %d bytes from %d: %w", o, len(raw), first, len(f.raw), f.BaseOffset, err)
		}
		if err := timeAgrees(l, found, f.MaxTimestamp-int64(rng.IntN(60))); err != nil {
			return err
		}
	}
	return producersAgree(l, h, found, expired)
}

// timeAgrees compares a look-up by time with all records.
func timeAgrees(l *log.Log, found []entry, ts int64) error {
	got, ok, err := l.OffsetForTimestamp(ts)
	if err != nil {
		return fmt.Errorf("look-up of time %d: %w", ts, err)
	}
	for _, f := range found {
		for record, err := range batch.Records(f.raw) {
			if err != nil {
				return err
			}
			if record.Timestamp < ts || record.Offset < l.StartOffset() {
				continue
			}
			if !ok || got.Offset != record.Offset || got.Timestamp != record.Timestamp || got.LeaderEpoch != f.LeaderEpoch {
				return fmt.Errorf("look-up of time %d: %+v, %v; want offset %d", ts, got, ok, record.Offset)
			}
			return nil
		}
	}
	if ok {
		return fmt.Errorf("look-up of time %d: %+v, but no record is as young", ts, got)
	}
	return nil
}

// producersAgree asks for every producer whether its last batch is known, and that none is which is not there.
func producersAgree(l *log.Log, h *history, found []entry, expired bool) error {
	last := map[int64]entry{}
	for _, f := range found {
		if f.HasProducer() && !f.IsControl() {
			last[f.ProducerID] = f
		}
	}
	states := producersOf(h.entries, h.end)
	for id, f := range last {
		s := states[id]
		if s.epoch != f.ProducerEpoch || s.lastSequence != f.LastSequence() {
			continue // a marker has raised the epoch since
		}
		info, duplicate, err := l.Producers().Check(f.Header)
		if !expired && (err != nil || !duplicate || info.First != f.BaseOffset) {
			return fmt.Errorf("the last batch of producer %d, at %d, is not known as such: %+v, %w", id, f.BaseOffset, info, err)
		}
	}
	for id, s := range states {
		next := batch.Header{ProducerID: id, ProducerEpoch: s.epoch, BaseSequence: batch.AddSequence(s.lastSequence, 1)}
		if _, duplicate, err := l.Producers().Check(next); duplicate || err != nil {
			return fmt.Errorf("producer %d can't go on after its sequence number %d, at offset %d: duplicate %v, %w", id, s.lastSequence, s.lastOffset, duplicate, err)
		}
	}
	if n := l.Producers().Len(); n > len(states) {
		return fmt.Errorf("%d producers are known, %d have written", n, len(states))
	}
	return nil
}
