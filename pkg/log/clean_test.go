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

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

func TestSmallSegmentsBecomeOne(t *testing.T) {
	l, m := newLog(t, Config{Settings: cleanSettings(0)})
	for i := range 30 {
		put(t, l, batch.NewBuilder(0, -1, 1000).Append(fmt.Appendf(nil, "k%d", i%3), fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 280))))
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
