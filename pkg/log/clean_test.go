package log

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
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

type cleanMachine struct {
	mem       *vfs.Mem
	log       *Log
	model     *keyed
	cfg       Config
	hw        ident.Offset
	now       int64
	retention int64
	options   CleanOptions
}

func (m *cleanMachine) open(t *rapid.T) {
	cfg := m.cfg
	cfg.StartOffset = m.model.start
	m.log, _ = mustOpen(t, m.mem, cfg)
}

func (m *cleanMachine) append(t *rapid.T) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "batch"), 1))
	raw := compressed(t, sequence(t, m.log, m.model.batchFor(rng.IntN, m.now)), batch.Compression(rng.IntN(5)))
	if _, err := m.log.AppendAsLeader(raw, 1); err != nil {
		t.Fatal(err)
	}
}

func (m *cleanMachine) truncate(t *rapid.T) {
	to := ident.Offset(rapid.Int64Range(int64(m.hw), int64(m.model.end())).Draw(t, "to"))
	mustTruncate(t, m.log, to)
	m.model.truncate(m.log.EndOffset()) // lower than the high watermark where that lies within a batch
	m.hw = min(m.hw, m.log.EndOffset())
}

func (m *cleanMachine) moveStart(t *rapid.T) {
	o := ident.Offset(rapid.Int64Range(int64(m.model.start), int64(m.hw)).Draw(t, "start"))
	if err := m.log.SetStartOffset(o); err != nil {
		t.Fatal(err)
	}
	m.model.start = o
}

func (m *cleanMachine) clean(t *rapid.T) {
	mustFlush(t, m.log)
	c, err := m.log.BeginClean(m.now, m.hw, m.options)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return
	}
	if other, err := m.log.BeginClean(m.now, m.hw, m.options); other != nil || err != nil {
		t.Fatalf("a second run beside the first: %v", err)
	}
	reader, err := m.log.Read(m.log.StartOffset(), 1<<20, m.log.EndOffset(), true)
	if err != nil {
		t.Fatal(err)
	}
	before, err := reader.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	between := func() {
		switch rapid.IntRange(0, 5).Draw(t, "between") {
		case 0:
			m.append(t)
		case 1:
			m.truncate(t)
		case 2:
			m.moveStart(t)
		}
	}
	between()
	runErr := c.Run()
	between()
	done, err := m.log.EndClean(c, runErr)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := reader.AppendTo(nil); done && (err != nil || !bytes.Equal(before, after)) {
		t.Fatalf("a reader of the old segments: %v", err)
	}
	reader.Release()
	if !done {
		return
	}
	if m.log.CleanOffset() != c.Stats.To {
		t.Fatalf("compacted up to %d, the run says %d", m.log.CleanOffset(), c.Stats.To)
	}
	for o := range c.Stats.To {
		if _, ok := m.model.cleaned[o]; !ok {
			m.model.cleaned[o] = m.now
		}
	}
}

func (m *cleanMachine) check(t *rapid.T) {
	if err := m.model.holds(m.log, m.now, m.retention, m.log.CleanOffset()); err != nil {
		t.Fatal(err)
	}
}

// ends are the producers as far as they must survive.
func (p *Producers) ends() map[int64]string {
	out := map[int64]string{}
	for id, s := range p.byID {
		sequence, offset, _, _ := s.last()
		out[id] = fmt.Sprint(s.epoch, sequence, offset)
	}
	return out
}

func TestCompactionAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &cleanMachine{
			mem: vfs.NewMem(), model: &keyed{cleaned: map[ident.Offset]int64{}}, now: 1_000_000, retention: 500,
			options: CleanOptions{Map: NewOffsetMap(0)},
		}
		m.cfg = Config{Settings: cleanSettings(m.retention)}
		if rapid.Bool().Draw(t, "small map") {
			m.options.Map.maxSlots = 24
			m.options.Map.slots = make([]slot, 24)
		}
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"append":   m.append,
			"append 2": m.append,
			"append 3": m.append,
			"commit": func(t *rapid.T) {
				m.hw = ident.Offset(rapid.Int64Range(int64(m.hw), int64(m.log.EndOffset())).Draw(t, "hw"))
			},
			"commit all": func(t *rapid.T) { m.hw = m.log.EndOffset() },
			"time":       func(t *rapid.T) { m.now += rapid.Int64Range(1, 400).Draw(t, "ms") },
			"roll": func(t *rapid.T) {
				if err := m.log.Roll(); err != nil {
					t.Fatal(err)
				}
			},
			"truncate":   m.truncate,
			"move start": m.moveStart,
			"clean":      m.clean,
			"clean 2":    m.clean,
			"restart": func(t *rapid.T) {
				before := m.log.producers.ends()
				// The checkpoint may be an older one, and is none when its file is damaged.
				m.cfg.CleanOffset = rapid.SampledFrom([]ident.Offset{0, m.log.CleanOffset() / 2, m.log.CleanOffset()}).Draw(t, "checkpoint")
				m.cfg.RecoveryPoint = rapid.SampledFrom([]ident.Offset{0, m.log.FlushedOffset()}).Draw(t, "recovery point")
				if m.cfg.CleanShutdown = rapid.Bool().Draw(t, "in order"); m.cfg.CleanShutdown {
					mustClose(t, m.log)
				} else {
					if m.log.DurableStartOffset() != m.model.start {
						mustFlush(t, m.log)
					}
					m.mem = m.mem.CrashClone(nil, 100)
				}
				m.open(t)
				if after := m.log.producers.ends(); !maps.Equal(before, after) {
					t.Fatalf("producers were %v, are %v", before, after)
				}
			},
			"": m.check,
		})
	})
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

func TestSmallSegmentsBecomeOne(t *testing.T) {
	l, m := newLog(t, Config{Settings: cleanSettings(0)})
	for i := range 30 {
		put(t, l, batch.NewBuilder(0, -1, 1000).Append(fmt.Appendf(nil, "k%d", i%3), fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 300))))
	}
	mustRoll(t, l)
	c := compact(t, l, 2000)
	if got := l.Segments(); len(got) != 9 { // each was full; so they stay for this time
		t.Fatalf("segments %v", got)
	}
	compact2, err := l.BeginClean(3000, 30, CleanOptions{Map: NewOffsetMap(0)})
	if compact2 != nil || err != nil {
		t.Fatalf("nothing is dirty, yet a run begins: %v", err)
	}
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("k0"), []byte("last")))
	mustRoll(t, l)
	compact(t, l, 3000)
	if got := l.Segments(); !slices.Equal(got, []ident.Offset{0, 30, 31}) {
		t.Fatalf("segments %v", got)
	}
	want := []ident.Offset{28, 29, 30}
	if got := slices.Sorted(maps.Keys(keysAt(t, l))); !slices.Equal(got, want) || c.Stats.Removed != 27 {
		t.Fatalf("offsets %v, want %v; %+v", got, want, c.Stats)
	}
	entries, err := m.ReadDir("/data/t-0")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if isLeftover(e.Name()) {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func TestOnlyWhatIsOldCommittedFlushedAndSealedIsCompacted(t *testing.T) {
	settings := cleanSettings(0)
	settings.Compaction.MinLagMs = 100
	l, _ := newLog(t, Config{Settings: settings})
	for i := range 6 {
		put(t, l, batch.NewBuilder(0, -1, int64(1000+i*10)).Append([]byte("k"), []byte("v")))
		mustRoll(t, l)
	}
	for _, c := range []struct {
		now  int64
		hw   ident.Offset
		want int
	}{{2000, 6, 0}, {2000, 6, 6}, {2000, 3, 3}, {1125, 6, 3}, {1000, 6, 0}, {2000, 0, 0}} {
		if c.want > 0 {
			mustFlush(t, l)
		}
		if n, err := l.cleanable(c.now, c.hw); n != c.want || err != nil {
			t.Errorf("at %d, high watermark %d: %d segments, %v; want %d", c.now, c.hw, n, err, c.want)
		}
	}
	settings.Compaction.Enabled = false
	if err := l.SetSettings(settings); err != nil {
		t.Fatal(err)
	}
	if c, err := l.BeginClean(2000, 6, CleanOptions{Map: NewOffsetMap(0)}); c != nil || err != nil {
		t.Fatalf("compacted though it is off: %v", err)
	}
}

func TestTombstoneStaysForItsRetentionAfterTheRunThatRemovedWhatItDeletes(t *testing.T) {
	l, _ := newLog(t, Config{Settings: cleanSettings(500)})
	add := func(key, value string) {
		put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte(key), []byte(value)).Append([]byte(key+"'"), []byte(value)))
		mustRoll(t, l)
	}
	add("a", "1")
	put(t, l, batch.NewBuilder(0, -1, 1000).AppendAt(1003, []byte("a"), nil).AppendAt(1001, []byte("b"), []byte("2")))
	mustRoll(t, l)
	add("c", "3")
	compact(t, l, 10_000)
	if got := keysAt(t, l); got[0] != "" || got[2] != "a=" || got[1] != "a'=1" {
		t.Fatalf("%v", got)
	}
	at, ok, err := l.OffsetForTimestamp(1002) // timestamps are what they were
	if err != nil || !ok || at.Offset != 2 || at.Timestamp != 1003 {
		t.Fatalf("%+v, %v, %v", at, ok, err)
	}
	add("d", "4")
	compact(t, l, 10_499)
	if got := keysAt(t, l); got[2] != "a=" {
		t.Fatalf("%v", got)
	}
	add("e", "5")
	compact(t, l, 10_500)
	if got := keysAt(t, l); got[2] != "" || got[3] != "b=2" {
		t.Fatalf("%v", got)
	}
}

// A horizon that came with a batch from the leader does not let a follower drop the tombstone in the run that first
// removes what it deletes.
func TestTombstoneOfTheDirtySectionStays(t *testing.T) {
	leader, _ := newLog(t, Config{Settings: cleanSettings(500)})
	put(t, leader, batch.NewBuilder(0, -1, 1000).Append([]byte("a"), nil).Append([]byte("b"), []byte("1")))
	mustRoll(t, leader)
	put(t, leader, batch.NewBuilder(0, -1, 1000).Append([]byte("c"), []byte("1")))
	mustRoll(t, leader)
	compact(t, leader, 2000)
	l, _ := newLog(t, Config{Settings: cleanSettings(500)})
	if _, err := l.AppendAsFollower(readAll(t, leader, 1<<20)); err != nil {
		t.Fatal(err)
	}
	mustRoll(t, l)
	compact(t, l, 5000)
	if got := keysAt(t, l); got[0] != "a=" {
		t.Fatalf("%v", got)
	}
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("c"), []byte("2")))
	mustRoll(t, l)
	compact(t, l, 5000)
	if got := keysAt(t, l); len(got) != 2 || got[0] != "" {
		t.Fatalf("%v", got)
	}
}

func TestEmptiedBatchesHaveNoTimestampAndDoNotHoldUpRetention(t *testing.T) {
	l, _ := newLog(t, Config{Settings: cleanSettings(0)})
	put(t, l, batch.NewBuilder(0, -1, 9000).Append([]byte("k"), bytes.Repeat([]byte("v"), 1400)))
	mustRoll(t, l)
	put(t, l, batch.NewBuilder(0, -1, 5000).Append([]byte("k"), bytes.Repeat([]byte("v"), 1400)))
	mustRoll(t, l)
	compact(t, l, 10_000)
	if got := l.Segments(); len(got) != 3 {
		t.Fatalf("segments %v", got)
	}
	if at, ok, err := l.MaxTimestamp(l.EndOffset()); err != nil || !ok || at.Offset != 1 || at.Timestamp != 5000 {
		t.Fatalf("%+v, %v, %v", at, ok, err)
	}
	if n, _, err := l.DeleteOldSegments(6000, Limits{Ms: 2000, Bytes: -1}, 2); n != 1 || err != nil {
		t.Fatalf("%d segments dropped, %v", n, err)
	}
}

// An emptied batch keeps the largest timestamp of what was in it, which no entry of the time index tells of.
func TestTimeLookUpPassesOverAnEmptiedBatch(t *testing.T) {
	settings := cleanSettings(0)
	settings.SegmentBytes, settings.IndexIntervalBytes = 1<<20, 600
	l, _ := newLog(t, Config{Settings: settings})
	put(t, l, batch.NewBuilder(0, -1, 9000).Producer(7, 0, 0).Append([]byte("k"), []byte("v"))) // its producer's last
	mustRoll(t, l)
	put(t, l, batch.NewBuilder(0, -1, 4000).Append([]byte("k"), bytes.Repeat([]byte("v"), 1000)))
	put(t, l, batch.NewBuilder(0, -1, 3000).Append([]byte("c"), []byte("v")))
	put(t, l, batch.NewBuilder(0, -1, 5000).Append([]byte("d"), []byte("v")))
	mustRoll(t, l)
	compact(t, l, 10_000)
	if got := l.Segments(); len(got) != 2 {
		t.Fatalf("segments %v, want the two in one", got)
	}
	for ts, want := range map[int64]ident.Offset{3500: 1, 4000: 1, 4500: 3, 5000: 3} {
		if at, ok, err := l.OffsetForTimestamp(ts); err != nil || !ok || at.Offset != want {
			t.Errorf("time %d: %+v, %v, %v; want offset %d", ts, at, ok, err, want)
		}
	}
	if at, ok, err := l.OffsetForTimestamp(5001); err != nil || ok {
		t.Errorf("time 5001: %+v, %v, %v", at, ok, err)
	}
}

func TestReadersMayRunBesideACompaction(t *testing.T) {
	l, _ := newLog(t, Config{Settings: cleanSettings(0)})
	model := &keyed{cleaned: map[ident.Offset]int64{}}
	rng := rand.New(rand.NewPCG(1, 1))
	fill := func() {
		for range 60 {
			if _, err := l.AppendAsLeader(sequence(t, l, model.batchFor(rng.IntN, 1000)), 1); err != nil {
				t.Fatal(err)
			}
		}
		mustRoll(t, l)
	}
	fill()
	stop := make(chan struct{})
	failed := make(chan error, 8)
	read := func() error {
		end := l.EndOffset()
		for o := ident.Offset(0); o < end; {
			// Up to the end of now: what a run that ends meanwhile leaves may begin behind the end of then.
			c, err := l.Read(o, 2000, l.EndOffset(), true)
			if err != nil {
				return err
			}
			raw, err := c.AppendTo(nil)
			if c.Release(); err != nil {
				return err
			}
			if now := l.EndOffset(); len(raw) == 0 && now > end {
				end = now // what was there may have been compacted since: later records have its keys
				continue
			}
			if len(raw) == 0 {
				return fmt.Errorf("nothing to read at %d of %d", o, end)
			}
			for len(raw) > 0 {
				one, rest, h, err := batch.Next(raw)
				if err == nil {
					err = batch.Verify(one)
				}
				if err != nil {
					return err
				}
				if h.NextOffset() <= o {
					return fmt.Errorf("batch at %d, wanted from %d on", h.BaseOffset, o)
				}
				raw, o = rest, h.NextOffset()
			}
		}
		_, ok, err := l.OffsetForTimestamp(1000)
		if err == nil && !ok {
			err = errors.New("no record by its timestamp")
		}
		return err
	}
	for range cap(failed) {
		go func() {
			for {
				select {
				case <-stop:
					failed <- nil
					return
				default:
				}
				if err := read(); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	for range 12 {
		compact(t, l, 2000)
		fill()
	}
	close(stop)
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

func TestMaxLagSealsAndIsOverdue(t *testing.T) {
	settings := cleanSettings(0)
	settings.Compaction.MaxLagMs = 500
	l, _ := newLog(t, Config{Settings: settings})
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("k"), []byte("v")))
	for _, c := range []struct {
		now      int64
		hw       ident.Offset
		segments int
	}{{1500, 1, 1}, {1501, 0, 1}, {1501, 1, 2}, {9000, 1, 2}} {
		if err := l.RollForCompaction(c.now, c.hw); err != nil || len(l.Segments()) != c.segments {
			t.Fatalf("at %d, high watermark %d: %d segments, %v", c.now, c.hw, len(l.Segments()), err)
		}
	}
	mustFlush(t, l)
	state, err := l.CleanState(1600, 1)
	if err != nil || !state.Overdue || state.Ratio() != 1 {
		t.Fatalf("%+v, %v", state, err)
	}
	compact(t, l, 1600)
	put(t, l, batch.NewBuilder(0, -1, 1400).Append([]byte("k2"), []byte("v")))
	mustRoll(t, l)
	mustFlush(t, l)
	if state, err = l.CleanState(1600, 2); err != nil || state.Overdue || state.Ratio() <= 0 || state.Ratio() >= 1 {
		t.Fatalf("%+v, %v", state, err)
	}
}

func TestProducerSurvivesTheLossOfItsRecords(t *testing.T) {
	l, m := newLog(t, Config{Settings: cleanSettings(0)})
	put(t, l, batch.NewBuilder(0, -1, 1000).Producer(7, 2, 0).Append([]byte("k"), []byte("1")).Append([]byte("k"), []byte("2")))
	mustRoll(t, l)
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("k"), []byte("3")))
	mustRoll(t, l)
	compact(t, l, 2000)
	if got := keysAt(t, l); len(got) != 1 || got[2] != "k=3" {
		t.Fatalf("%v", got)
	}
	again, _ := mustOpen(t, m.CrashClone(nil, 100), Config{Settings: cleanSettings(0)})
	again.producers.snapshots = nil // from the batches alone
	if err := again.rebuildProducers(nil); err != nil {
		t.Fatal(err)
	}
	dup := batch.NewBuilder(0, -1, 1000).Producer(7, 2, 0).Append([]byte("k"), nil).Append([]byte("k"), nil).Build()
	if info, err := again.AppendAsLeader(dup, 1); err != nil || !info.Duplicate || info.First != 0 || info.Last != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
}

// The records of transactions remove nothing, since they may be aborted; their markers stay.
func TestTransactionsOfKafkaStayReadable(t *testing.T) {
	l, _ := newLog(t, Config{Settings: cleanSettings(0)})
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("a"), []byte("old")).Append([]byte("b"), []byte("old")))
	put(t, l, batch.NewBuilder(0, -1, 1000).Producer(9, 0, 0).Transactional().Append([]byte("a"), []byte("in")).Append([]byte("b"), nil))
	put(t, l, batch.NewBuilder(0, -1, 1000).Producer(9, 0, -1).Transactional().AppendControl(batch.Abort, []byte{0, 0, 0, 0, 0, 1}))
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("c"), []byte("x")))
	mustRoll(t, l)
	compact(t, l, 2000)
	if got := keysAt(t, l); len(got) != 6 {
		t.Fatalf("%v", got)
	}
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("a"), []byte("new")).Append([]byte("b"), nil))
	mustRoll(t, l)
	compact(t, l, 3000)
	got := keysAt(t, l)
	if want := map[ident.Offset]string{4: got[4], 5: "c=x", 6: "a=new", 7: "b="}; !maps.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("d"), []byte("y")))
	mustRoll(t, l)
	compact(t, l, 9000)
	if got := keysAt(t, l); len(got) != 4 || got[7] != "" {
		t.Fatalf("%v", got)
	}
}

func TestKeylessRecordsGoAndUndecodableBatchesStay(t *testing.T) {
	l, _ := newLog(t, Config{Settings: cleanSettings(0)})
	put(t, l, batch.NewBuilder(0, -1, 1000).Append(nil, []byte("keyless")).Append([]byte("k"), []byte("v")))
	odd := batch.NewBuilder(0, -1, 1000).Append([]byte("k"), []byte("odd")).Build()
	odd[len(odd)-1] = 40 // headers that are not there
	if _, err := l.AppendAsLeader(rechecked(odd), 1); err != nil {
		t.Fatal(err)
	}
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("k2"), []byte("v")))
	mustRoll(t, l)
	stats := compact(t, l, 2000).Stats
	if stats.Keyless != 1 || stats.Undecodable != 2 || stats.Removed != 1 {
		t.Fatalf("%+v", stats)
	}
	if !bytes.Contains(readAll(t, l, 1<<20), odd[batch.HeaderSize:]) {
		t.Fatal("the batch that can't be decoded is gone")
	}
}

func TestDamageStopsACompactionAndNothingIsDropped(t *testing.T) {
	l, m := newLog(t, Config{Settings: cleanSettings(0)})
	for range 8 {
		put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("k"), bytes.Repeat([]byte("v"), 300)))
	}
	mustRoll(t, l)
	mustFlush(t, l)
	before := l.Segments()
	f, err := m.OpenFile("/data/t-0/"+fileName(before[1], logSuffix), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("?"), 200); err != nil {
		t.Fatal(err)
	}
	c, err := l.BeginClean(2000, l.EndOffset(), CleanOptions{Map: NewOffsetMap(0)})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := l.EndClean(c, c.Run()); done || !errors.Is(err, ErrCorrupt) || l.Err() != nil || !slices.Equal(l.Segments(), before) || l.CleanOffset() != 0 {
		t.Fatalf("done %v, %v", done, err)
	}
}

func TestBatchThatIsTooMuchForTheMapIsAnError(t *testing.T) {
	l, _ := newLog(t, Config{Settings: cleanSettings(0)})
	b := batch.NewBuilder(0, -1, 1000)
	for i := range 800 {
		b.Append(fmt.Appendf(nil, "%d", i), nil)
	}
	put(t, l, b)
	mustRoll(t, l)
	mustFlush(t, l)
	c, err := l.BeginClean(2000, l.EndOffset(), CleanOptions{Map: NewOffsetMap(0)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.EndClean(c, c.Run()); !errors.Is(err, ErrOffsetMapFull) || l.Err() != nil {
		t.Fatal(err)
	}
}

func TestStoppedCompactionLeavesNothing(t *testing.T) {
	l, m := newLog(t, Config{Settings: cleanSettings(0)})
	for range 600 {
		put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("k"), bytes.Repeat([]byte("v"), 300)))
	}
	mustRoll(t, l)
	mustFlush(t, l)
	stop := errors.New("the node stops")
	calls := 0
	c, err := l.BeginClean(2000, l.EndOffset(), CleanOptions{Map: NewOffsetMap(0), Pace: func(int) error {
		if calls++; calls > 4 {
			return stop
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := l.EndClean(c, c.Run()); done || !errors.Is(err, stop) || l.Err() != nil {
		t.Fatalf("done %v, %v", done, err)
	}
	entries, _ := m.ReadDir("/data/t-0")
	for _, e := range entries {
		if isLeftover(e.Name()) {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func TestOffsetMapGrowsUpToItsBound(t *testing.T) {
	m := NewOffsetMap(1 << 20)
	for round := range 2 {
		m.reset()
		n := m.Capacity()
		for i := range n {
			if !m.fits(1) {
				t.Fatalf("full with %d of %d", i, n)
			}
			m.put(fmt.Appendf(nil, "key %d", i), ident.Offset(i*2+round))
		}
		if m.fits(1) || len(m.slots) != m.maxSlots || m.maxSlots*slotBytes > 1<<20 {
			t.Fatalf("%d slots, bound %d", len(m.slots), m.maxSlots)
		}
		for i := range n {
			if o, ok := m.latest(fmt.Appendf(nil, "key %d", i)); !ok || o != ident.Offset(i*2+round) {
				t.Fatalf("key %d is at %d, %v", i, o, ok)
			}
		}
		if _, ok := m.latest([]byte("other")); ok {
			t.Fatal("a key that was never put")
		}
	}
}
