package log

import (
	"slices"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// stamped makes a batch of one record with a timestamp; -1 is none.
func stamped(ts int64) []byte {
	b := batch.NewBuilder(0, -1, ts)
	b.AppendAt(ts, nil, []byte("x"))
	return b.Build()
}

func TestSegmentsRollByTime(t *testing.T) {
	const none = -1
	type write struct {
		ts, wall int64
	}
	for _, c := range []struct {
		name     string
		settings Settings
		writes   []write
		want     []ident.Offset
	}{
		{"younger than the limit", Settings{SegmentMs: 100}, []write{{1000, 0}, {1100, 0}, {1050, 0}}, []ident.Offset{0}},
		{"older than the limit", Settings{SegmentMs: 100}, []write{{1000, 0}, {1101, 0}, {1201, 0}, {1202, 0}}, []ident.Offset{0, 1, 3}},
		{"no limit", Settings{}, []write{{1000, 0}, {1 << 50, 0}}, []ident.Offset{0}},
		{"by the first record, not the largest", Settings{SegmentMs: 100}, []write{{1000, 0}, {1090, 0}, {1120, 0}}, []ident.Offset{0, 2}},
		{"older records do not age it", Settings{SegmentMs: 100}, []write{{1000, 0}, {10, 0}, {1, 0}}, []ident.Offset{0}},
		{"nor does the clock when there are timestamps", Settings{SegmentMs: 100}, []write{{1000, 0}, {1000, 1 << 40}}, []ident.Offset{0}},
		{"nor records without one", Settings{SegmentMs: 100}, []write{{1000, 0}, {none, 1 << 40}}, []ident.Offset{0}},
		{"the clock when there is no timestamp", Settings{SegmentMs: 100}, []write{{none, 50}, {none, 100}, {none, 101}}, []ident.Offset{0, 2}},
		{"the clock counts from when the segment was begun", Settings{SegmentMs: 100}, []write{{none, 101}, {none, 201}, {none, 202}, {none, 302}, {none, 303}}, []ident.Offset{0, 1, 3}},
		{"the clock also for records with timestamps", Settings{SegmentMs: 100}, []write{{none, 0}, {5, 101}}, []ident.Offset{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wall := int64(0)
			l, _ := newLog(t, Config{Settings: c.settings, WallMillis: func() int64 { return wall }})
			for _, w := range c.writes {
				wall = w.wall
				if _, err := l.AppendAsLeader(stamped(w.ts), 1); err != nil {
					t.Fatal(err)
				}
			}
			if got := l.Segments(); !slices.Equal(got, c.want) {
				t.Fatalf("segments %v, want %v", got, c.want)
			}
			// A follower that is restarted before each write makes the same of it, but for the time that only the clock knows.
			if c.writes[0].ts == none {
				return
			}
			cfg := Config{Settings: c.settings, CleanShutdown: true}
			f, disk := newLog(t, cfg)
			raw := readAll(t, l, 1<<20)
			for len(raw) > 0 {
				one, rest, _, err := batch.Next(raw)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.AppendAsFollower(one); err != nil {
					t.Fatal(err)
				}
				mustClose(t, f)
				f, _ = mustOpen(t, disk, cfg)
				raw = rest
			}
			if got := f.Segments(); !slices.Equal(got, c.want) {
				t.Fatalf("the follower has segments %v, want %v", got, c.want)
			}
		})
	}
}

func TestSegmentsDrawTheirJitterAndKeepIt(t *testing.T) {
	cfg := Config{Settings: Settings{SegmentMs: 1000, SegmentJitterMs: 400}}
	run := func() (rolledAfter []int64) {
		l, _ := newLog(t, cfg)
		first := int64(0)
		for ts := int64(0); ts < 20000; ts += 10 {
			n := len(l.Segments())
			if _, err := l.AppendAsLeader(stamped(ts), 1); err != nil {
				t.Fatal(err)
			}
			if len(l.Segments()) > n {
				rolledAfter = append(rolledAfter, ts-first)
				first = ts
			}
		}
		return rolledAfter
	}
	once, again := run(), run()
	if !slices.Equal(once, again) {
		t.Errorf("rolled after %v, then after %v", once, again)
	}
	if lo, hi := slices.Min(once), slices.Max(once); lo <= 600 || hi > 1010 || hi-lo < 100 {
		t.Errorf("rolled after %v, want all over 600 to 1010", once)
	}
}

func TestTruncationForgetsTheFirstTimestamp(t *testing.T) {
	l, _ := newLog(t, Config{Settings: Settings{SegmentMs: 100}})
	for _, ts := range []int64{1000, 2000} {
		if _, err := l.AppendAsLeader(stamped(ts), 1); err != nil {
			t.Fatal(err)
		}
	}
	mustTruncate(t, l, 0)
	for _, ts := range []int64{5000, 5100} {
		if _, err := l.AppendAsLeader(stamped(ts), 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := l.Segments(); len(got) != 1 {
		t.Fatalf("segments %v", got)
	}
}
