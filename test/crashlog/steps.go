package main

import (
	"fmt"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
)

// draw does one step.
func (r *run) draw() {
	p := r.parts[r.rng.IntN(len(r.parts))]
	r.clock += int64(r.rng.IntN(1000))
	if r.rng.IntN(12) == 0 {
		r.powerIn = r.rng.IntN(6) // the power goes within this step or one of the next
	}
	switch k := r.rng.IntN(100); {
	case r.settings.compact && r.rng.IntN(4) == 0:
		r.compact(p)
	case r.settings.choresApart && (p.chores != nil && r.rng.IntN(3) == 0 || p.log.ChoresWanted() && r.rng.IntN(2) == 0):
		r.doChores(p)
	case k < 34:
		r.appendAsLeader(p)
	case k < 44:
		r.appendAsFollower(p)
	case k < 46:
		r.appendAgain(p)
	case k < 58:
		r.flush(p)
	case k < 62:
		r.named("roll", p.log.Roll)
	case k < 70:
		r.truncate(p)
	case k < 72:
		r.truncateFully(p)
	case k < 76:
		r.moveStart(p)
	case k < 79:
		r.retain(p)
	case k < 82:
		p.epoch++
		r.named("assign-epoch", func() error { return p.log.AssignEpoch(p.epoch) })
	case k < 83:
		p.expired = true
		r.named("expire-producers", func() error { p.log.ExpireProducers(r.clock + 1<<40); return nil })
	case k < 90:
		r.named("checkpoint", r.written(r.owner.checkpoint))
	case k < 93:
		r.restart(r.rng.IntN(3) == 0)
	default:
		r.stopCleaning()
		r.named("stop", r.written(r.owner.stop))
		r.restartCleanly()
	}
}

func (r *run) value() []byte {
	r.unique++
	head := fmt.Sprintf("%d.%d.", r.seed, r.unique)
	v := make([]byte, len(head)+r.rng.IntN(r.settings.large))
	copy(v, head)
	if r.rng.IntN(10) > 0 { // else zeros, which a sector that was never written has too
		for i := len(head); i < len(v); i++ {
			v[i] = byte('a' + i%26)
		}
	}
	return v
}

// newBatch makes the batch that comes after h.
func (r *run) newBatch(h *history, base ident.Offset, e ident.Epoch) []byte {
	b := batch.NewBuilder(base, e, r.clock)
	id := int64(r.rng.IntN(6)) // 0: not idempotent
	state, known := producerState{lastSequence: -1, txnFirst: -1, lastControl: -1}, false
	if id > 0 {
		state, known = producersOf(h.entries, h.end)[id]
	}
	switch {
	case id == 0:
	case known && state.txnFirst >= 0 && r.rng.IntN(3) == 0:
		kind := batch.Commit
		if r.rng.IntN(2) == 0 {
			kind = batch.Abort
		}
		return b.Producer(id, state.epoch, -1).Transactional().AppendControl(kind, []byte{0, 0, 0, 0, 0, 3}).Build()
	case known && state.txnFirst < 0 && r.rng.IntN(10) == 0:
		b.Producer(id, state.epoch+1, 0)
	default:
		next := int32(0)
		if known && state.lastSequence >= 0 {
			next = batch.AddSequence(state.lastSequence, 1)
		}
		b.Producer(id, state.epoch, next)
		if known && state.txnFirst >= 0 || id == 5 && !r.settings.compact {
			b.Transactional()
		}
	}
	for range 1 + r.rng.IntN(4) {
		var key []byte
		if r.rng.IntN(4) > 0 {
			key = fmt.Appendf(nil, "key-%d", r.rng.IntN(8))
		}
		value := r.value()
		if key != nil && r.rng.IntN(8) == 0 {
			value = nil // a tombstone
		}
		b.AppendAt(r.clock+int64(r.rng.IntN(50)), key, value)
	}
	return b.Build()
}

// batches makes what comes after h, each with an epoch of its own when step says so.
func (r *run) batches(p *part, h *history, epochStep func()) (raw []byte, after *history) {
	after = h
	for range 1 + r.rng.IntN(3) {
		epochStep()
		one := r.newBatch(after, after.end, p.epoch)
		header, err := batch.ParseHeader(one)
		if err != nil {
			r.fail("built a batch: %v", err)
		}
		raw = append(raw, one...)
		after = after.appended([]entry{{header, one}})
	}
	return raw, after
}

func (r *run) appendAsLeader(p *part) {
	if r.rng.IntN(4) == 0 {
		p.epoch++
	}
	raw, after := r.batches(p, p.before, func() {})
	for rest := raw; len(rest) > 0; { // as a client sends it
		one, next, _, err := batch.Next(rest)
		if err != nil {
			r.fail("built batches: %v", err)
		}
		batch.SetBaseOffset(one, 0)
		batch.SetLeaderEpoch(one, -1)
		rest = next
	}
	p.after = after
	r.named(fmt.Sprintf("append-as-leader %d-%d", p.index, after.end), func() error {
		_, err := p.log.AppendAsLeader(raw, p.epoch)
		return err
	})
}

func (r *run) appendAsFollower(p *part) {
	raw, after := r.batches(p, p.before, func() {
		if r.rng.IntN(3) == 0 {
			p.epoch++
		}
	})
	p.after = after
	r.named(fmt.Sprintf("append-as-follower %d-%d", p.index, after.end), func() error {
		_, err := p.log.AppendAsFollower(raw)
		return err
	})
}

// appendAgain sends the last batch of a producer once more: nothing may change.
func (r *run) appendAgain(p *part) {
	h := p.before
	if len(h.entries) == 0 {
		return
	}
	last := h.entries[len(h.entries)-1]
	if !last.HasProducer() || last.IsControl() || last.BaseOffset < h.start || p.expired {
		return
	}
	r.named("append-again", func() error {
		info, err := p.log.AppendAsLeader(append([]byte(nil), last.raw...), p.epoch)
		if err == nil && (!info.Duplicate || info.First != last.BaseOffset || info.Last != last.LastOffset()) {
			err = fmt.Errorf("the batch at %d came again and was not known: %+v", last.BaseOffset, info)
		}
		return err
	})
}

// flush makes everything durable, in one go or, as nodes do, beside other steps.
func (r *run) flush(p *part) {
	if p.flush == nil && r.rng.IntN(2) == 0 {
		r.named("flush", func() error { _, err := p.log.Flush(); return err })
		return
	}
	if p.flush == nil {
		r.named("flush-begin", func() (err error) { p.flush, err = p.log.BeginFlush(); return err })
		return
	}
	f := p.flush
	p.flush = nil
	r.named("flush-end", func() error {
		err := f.Sync()
		_, endErr := p.log.EndFlush(f, err)
		if err == nil {
			err = endErr
		}
		return err
	})
}

// doChores goes on with what a roll or a removal has left, of which other steps may come between the parts.
func (r *run) doChores(p *part) {
	switch {
	case p.chores == nil:
		r.named("chores-begin", func() error {
			p.chores, p.choresDone = p.log.BeginChores(), false
			return nil
		})
	case !p.choresDone:
		p.choresDone = true
		r.named("chores-run", func() error {
			p.choresErr = p.chores.Run()
			return p.choresErr
		})
	default:
		c := p.chores
		p.chores = nil
		r.named("chores-end", func() error { return p.log.EndChores(c, p.choresErr) })
	}
}

func (r *run) truncate(p *part) {
	h := p.before
	from := max(0, h.start-2)
	if r.rng.IntN(8) > 0 {
		from = max(from, h.end-12)
	}
	from = max(from, min(p.committed, h.end))
	to := from + ident.Offset(r.rng.Int64N(int64(h.end+2-from)))
	p.after = h.truncated(to)
	if len(p.after.entries) == 0 && p.after != h {
		p.resets, p.promised = true, 0
	}
	p.promised = min(p.promised, p.after.end)
	r.named(fmt.Sprintf("truncate %d to %d", p.index, to), r.written(func() error {
		err := p.log.Truncate(to)
		for _, e := range p.log.Epochs() {
			if err == nil && e.Start >= max(to, p.after.end) { // KAFKA-10706
				err = fmt.Errorf("leader epoch %d still starts at %d", e.Epoch, e.Start)
			}
		}
		return err
	}))
}

func (r *run) truncateFully(p *part) {
	to := ident.Offset(r.rng.IntN(300))
	p.committed = 0
	p.after, p.resets, p.promised = emptied(to), true, 0
	r.named(fmt.Sprintf("truncate-fully %d to %d", p.index, to), r.written(func() error { return p.log.TruncateFully(to) }))
}

func (r *run) moveStart(p *part) {
	h := p.before
	to := h.start + ident.Offset(r.rng.Int64N(int64(h.end-h.start+1)))
	p.after = h.startingAt(to)
	r.named(fmt.Sprintf("move-start %d to %d", p.index, to), func() error { return p.log.SetStartOffset(to) })
}

func (r *run) retain(p *part) {
	h := p.before
	upTo := h.start + ident.Offset(r.rng.Int64N(int64(h.end-h.start+1)))
	limits := log.Limits{Ms: -1, Bytes: int64(r.rng.IntN(3000))}
	if r.rng.IntN(2) == 0 {
		limits = log.Limits{Ms: int64(r.rng.IntN(10_000)), Bytes: -1}
	}
	p.startUpTo = max(upTo, h.start)
	r.named(fmt.Sprintf("retain %d below %d", p.index, upTo), func() error {
		_, _, err := p.log.DeleteOldSegments(r.clock, limits, upTo)
		if err == nil {
			if start := p.log.StartOffset(); start > p.startUpTo || start < h.start {
				err = fmt.Errorf("the start moved to %d", start)
			}
			p.after = h.startingAt(p.log.StartOffset())
		}
		return err
	})
}

// written notes the log starts that are written down once do has done it.
func (r *run) written(do func() error) func() error {
	return func() error {
		err := do()
		if err == nil {
			for i, p := range r.parts {
				p.written = r.owner.files[log.LogStartCheckpointFile][topicIndex(i)]
			}
		}
		return err
	}
}
