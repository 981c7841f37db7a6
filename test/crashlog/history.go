package main

import (
	"bytes"
	"fmt"
	"sort"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// entry is a batch that was written, with the bytes that a reader must find.
type entry struct {
	batch.Header
	raw []byte
}

// history is what a log must hold. It does not change: a step makes the next one. Batches below the start are
// kept, since a crash may bring the start back to where the owner had last written it down.
type history struct {
	start, end ident.Offset
	entries    []entry // without gaps up to end
	// cleaned is the offset below which the log may have been compacted.
	cleaned ident.Offset
	// beheaded: the log has lost what removed records before it; a truncation to another log, cut off by a crash, may.
	beheaded bool
}

func (h *history) appended(more []entry) *history {
	next := *h
	next.entries = append(h.entries[:len(h.entries):len(h.entries)], more...)
	if len(more) > 0 {
		next.end = more[len(more)-1].NextOffset()
	}
	return &next
}

// emptied is the history of a log without records.
func emptied(at ident.Offset) *history { return &history{start: at, end: at} }

// truncated is what Log.Truncate leaves.
func (h *history) truncated(to ident.Offset) *history {
	switch {
	case to < h.start:
		return emptied(to)
	case to >= h.end:
		return h
	}
	keep := sort.Search(len(h.entries), func(i int) bool { return h.entries[i].NextOffset() > to })
	// Compaction may have removed the batches right before that.
	next := &history{start: h.start, end: h.entries[keep].BaseOffset, entries: h.entries[:keep:keep], cleaned: h.cleaned}
	if next.end < h.start {
		return emptied(h.start)
	}
	return next
}

// recovered is the part of h that a restart has found.
func (h *history) recovered(start, end ident.Offset) *history {
	keep := sort.Search(len(h.entries), func(i int) bool { return h.entries[i].NextOffset() > end })
	return &history{start: start, end: end, entries: h.entries[:keep:keep], cleaned: h.cleaned, beheaded: h.beheaded || end < h.cleaned}
}

func (h *history) startingAt(o ident.Offset) *history {
	next := *h
	next.start = o
	return &next
}

// at returns the batch that begins at offset o.
func (h *history) at(o ident.Offset) (entry, bool) {
	i := sort.Search(len(h.entries), func(i int) bool { return h.entries[i].BaseOffset >= o })
	if i == len(h.entries) || h.entries[i].BaseOffset != o {
		return entry{}, false
	}
	return h.entries[i], true
}

// isPrefix says why the batches, as read from a log that starts at start, are not the history's.
func (h *history) isPrefix(found []entry, start, end ident.Offset) error {
	if end > h.end && (len(found) > 0 || start != end) {
		return fmt.Errorf("the log ends at %d, but only %d was written", end, h.end)
	}
	for _, f := range found {
		if err := h.has(f); err != nil {
			return err
		}
	}
	if h.cleaned > 0 && !h.beheaded {
		return h.lackOnly(found, start, end)
	}
	return nil
}

// has says why a batch is none of the history's.
func (h *history) has(f entry) error {
	want, ok := h.at(f.BaseOffset)
	switch {
	case !ok:
		return fmt.Errorf("a batch at offset %d, epoch %d: none was written there", f.BaseOffset, f.LeaderEpoch)
	case bytes.Equal(f.raw, want.raw):
		return nil
	case f.LastOffset() < h.cleaned && isCleaned(f, want):
		return nil
	}
	return fmt.Errorf("the batch at offset %d, epoch %d, is not the one that was written there in epoch %d", f.BaseOffset, f.LeaderEpoch, want.LeaderEpoch)
}

// epochs is the table that the batches of a log that starts at start say.
func epochsOf(found []entry, start ident.Offset) []epoch.Entry {
	var t epoch.Table
	for _, f := range found {
		t.Assign(f.LeaderEpoch, f.BaseOffset)
	}
	t.TruncateFromStart(start)
	return t.Entries()
}

// producerState is what a producer snapshot says of one producer, from the batches.
type producerState struct {
	epoch        int16
	lastSequence int32
	lastOffset   ident.Offset
	offsetDelta  int32
	timestamp    int64
	txnFirst     ident.Offset
	lastControl  ident.Offset // of the last marker
}

// producersOf is the state that the batches below end make.
func producersOf(entries []entry, end ident.Offset) map[int64]producerState {
	out := map[int64]producerState{}
	for _, e := range entries {
		if e.NextOffset() > end {
			break
		}
		if !e.HasProducer() {
			continue
		}
		s, ok := out[e.ProducerID]
		if !ok {
			s = producerState{epoch: e.ProducerEpoch, lastSequence: -1, lastOffset: -1, txnFirst: -1, lastControl: -1}
		}
		if s.epoch != e.ProducerEpoch {
			s.epoch, s.lastSequence, s.lastOffset, s.offsetDelta = e.ProducerEpoch, -1, -1, 0
		}
		s.timestamp = e.MaxTimestamp
		if e.IsControl() {
			s.txnFirst, s.lastControl = -1, e.LastOffset()
		} else {
			s.lastSequence, s.lastOffset, s.offsetDelta = e.LastSequence(), e.LastOffset(), e.LastOffsetDelta
			if e.IsTransactional() && s.txnFirst < 0 {
				s.txnFirst = e.BaseOffset
			}
		}
		out[e.ProducerID] = s
	}
	return out
}
