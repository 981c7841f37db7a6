package log

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// keyed is what was written to a compacted log: all of it, by offset.
type keyed struct {
	records []keyedRecord
	// cleaned is when the tombstone at an offset was first compacted.
	cleaned map[ident.Offset]int64
	start   ident.Offset
}

type keyedRecord struct {
	key, value string // a tombstone has value ""
	timestamp  int64
}

func (k *keyed) end() ident.Offset { return ident.Offset(len(k.records)) }

func (k *keyed) truncate(to ident.Offset) {
	k.records = k.records[:to]
	maps.DeleteFunc(k.cleaned, func(o ident.Offset, _ int64) bool { return o >= to })
}

func (k *keyed) clone() *keyed {
	return &keyed{slices.Clone(k.records), maps.Clone(k.cleaned), k.start}
}

// last returns the last offset of each key below an end.
func (k *keyed) last(end ident.Offset) map[string]ident.Offset {
	last := map[string]ident.Offset{}
	for o, r := range k.records[:end] {
		last[r.key] = ident.Offset(o)
	}
	return last
}

// holds says whether a log has everything that a compacted log must have. clean is up to where it was compacted.
func (k *keyed) holds(l *Log, now, retention int64, clean ident.Offset) error {
	end := l.EndOffset()
	if end > k.end() {
		return fmt.Errorf("ends at %d, %d were written", end, k.end())
	}
	found := map[ident.Offset]bool{}
	at := ident.Offset(-1)
	for o := l.StartOffset(); o < end; {
		c, err := l.Read(o, 900, end, true)
		if err != nil {
			return err
		}
		raw, err := c.AppendTo(nil)
		c.Release()
		if err != nil || len(raw) == 0 {
			return fmt.Errorf("read at %d of %d: %d bytes, %w", o, end, len(raw), err)
		}
		for len(raw) > 0 {
			one, rest, h, err := batch.Next(raw)
			if err == nil {
				err = batch.Verify(one)
			}
			if err != nil {
				return err
			}
			if h.BaseOffset <= at {
				return fmt.Errorf("batch at %d after %d", h.BaseOffset, at)
			}
			for r, err := range batch.Records(one) {
				if err != nil {
					return err
				}
				w := k.records[r.Offset]
				if r.Offset <= at || string(r.Key) != w.key || string(r.Value) != w.value || (r.Value == nil) != (w.value == "") || r.Timestamp != w.timestamp {
					return fmt.Errorf("record at %d after %d is %q=%q at %d, was %+v", r.Offset, at, r.Key, r.Value, r.Timestamp, w)
				}
				at = r.Offset
				found[at] = true
			}
			at = h.LastOffset()
			raw, o = rest, h.NextOffset()
		}
	}
	if at >= 0 && at != end-1 {
		return fmt.Errorf("the last batch ends at %d, the log at %d", at, end)
	}
	last := k.last(end)
	for key, o := range last {
		w := k.records[o]
		if o < l.StartOffset() || found[o] {
			continue
		}
		if w.value != "" {
			return fmt.Errorf("the last value of %s, at %d, is gone", key, o)
		}
		since, ok := k.cleaned[o]
		if !ok || now < since+retention {
			return fmt.Errorf("the tombstone of %s at %d is gone too early, at %d; compacted %v at %d", key, o, now, ok, since)
		}
		for older := range o {
			if found[older] && k.records[older].key == key {
				return fmt.Errorf("%s is back at %d: its tombstone at %d is gone", key, older, o)
			}
		}
	}
	below := k.last(min(clean, end))
	for o := range found {
		if o >= l.StartOffset() && o < clean && below[k.records[o].key] != o {
			return fmt.Errorf("compacted up to %d, but %s is at %d and at %d", clean, k.records[o].key, o, below[k.records[o].key])
		}
	}
	return nil
}

// batchFor makes a batch of random records and notes them.
func (k *keyed) batchFor(intN func(int) int, now int64) []byte {
	b := batch.NewBuilder(0, -1, now)
	if p := intN(4); p > 0 {
		b.Producer(int64(p), 0, -1)
	}
	for range 1 + intN(6) {
		w := keyedRecord{key: fmt.Sprintf("key-%d", intN(12)), timestamp: now + int64(intN(5))}
		var value []byte
		if intN(4) > 0 {
			w.value = fmt.Sprintf("%d/%s", len(k.records), strings.Repeat("v", 1+intN(90)))
			value = []byte(w.value)
		}
		b.AppendAt(w.timestamp, []byte(w.key), value, batch.RecordHeader{Key: "h", Value: []byte{1}})
		k.records = append(k.records, w)
	}
	return b.Build()
}

// sequence writes the producer's next sequence number into a batch.
func sequence(t tb, l *Log, raw []byte) []byte {
	h, err := batch.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	if !h.HasProducer() {
		return raw
	}
	next := int32(0)
	if p := l.producers.byID[h.ProducerID]; p != nil && p.n > 0 {
		next = batch.AddSequence(p.batches[p.n-1].lastSequence, 1)
	}
	return resequenced(raw, next)
}

func cleanSettings(retention int64) Settings {
	return Settings{SegmentBytes: 1500, IndexIntervalBytes: 200, Compaction: Compaction{Enabled: true, DeleteRetentionMs: retention}}
}

// compact runs a compaction of all that lies below the end.
func compact(t tb, l *Log, now int64) *Clean {
	t.Helper()
	mustFlush(t, l)
	c, err := l.BeginClean(now, l.EndOffset(), CleanOptions{Map: NewOffsetMap(0)})
	if err != nil || c == nil {
		t.Fatalf("nothing to compact: %v", err)
	}
	if done, err := l.EndClean(c, c.Run()); err != nil || !done {
		t.Fatalf("done %v, %v", done, err)
	}
	return c
}

func put(t tb, l *Log, b *batch.Builder) {
	t.Helper()
	if _, err := l.AppendAsLeader(b.Build(), 1); err != nil {
		t.Fatal(err)
	}
}

func mustRoll(t tb, l *Log) {
	t.Helper()
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
}

// keysAt returns the records of a log by offset, as "key=value".
func keysAt(t tb, l *Log) map[ident.Offset]string {
	t.Helper()
	out := map[ident.Offset]string{}
	for rest := readAll(t, l, 1<<20); len(rest) > 0; {
		one, after, _, err := batch.Next(rest)
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range batch.Records(one) {
			if err != nil {
				t.Fatal(err)
			}
			out[r.Offset] = fmt.Sprintf("%s=%s", r.Key, r.Value)
		}
		rest = after
	}
	return out
}
