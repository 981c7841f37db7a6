package log

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// aged makes a log of segments of two batches each, of one record; the record at offset o is of time 1000*o.
func aged(t *testing.T, n int) *Log {
	l, _ := newLog(t, Config{})
	for o := range n {
		if o%2 == 0 {
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.AppendAsLeader(batch.NewBuilder(0, -1, int64(o)*1000).Append(nil, value(0, ident.Offset(o), 50)).Build(), 0); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestRetentionByTimeAndSizeStopsAtTheHighWatermark(t *testing.T) {
	for _, c := range []struct {
		name   string
		now    int64
		limits Limits
		upTo   ident.Offset
		start  ident.Offset
	}{
		{"none", 100_000, Limits{-1, -1}, 10, 0},
		{"time", 6500, Limits{Ms: 3000, Bytes: -1}, 10, 4},
		{"time, high watermark stuck", 6500, Limits{Ms: 3000, Bytes: -1}, 3, 2},
		{"time, all", 100_000, Limits{Ms: 3000, Bytes: -1}, 10, 10},
		{"time, all but what is not committed", 100_000, Limits{Ms: 3000, Bytes: -1}, 9, 8},
		{"size", 0, Limits{Ms: -1, Bytes: 400}, 10, 6},
		{"size, high watermark stuck", 0, Limits{Ms: -1, Bytes: 400}, 5, 4},
	} {
		l := aged(t, 10)
		size := l.Size()
		segments, bytes, err := l.DeleteOldSegments(c.now, c.limits, c.upTo)
		if err != nil {
			t.Fatal(err)
		}
		if l.StartOffset() != c.start || segments != int(c.start)/2 || size-bytes != l.Size() || l.EndOffset() != 10 {
			t.Errorf("%s: start %d, want %d; %d segments, %d of %d bytes", c.name, l.StartOffset(), c.start, segments, bytes, size)
		}
		check(t, l)
		mustAppend(t, l, 0, 1, 10)
		if e, end, ok := l.EpochEndOffset(0); !ok || e != 0 || end != 11 {
			t.Errorf("%s: epoch 0 ends at %d, %v", c.name, end, ok)
		}
	}
}

func TestOffsetForTimestampEqualsBruteForce(t *testing.T) {
	l, _ := newLog(t, Config{Settings: Settings{SegmentBytes: 2000, IndexIntervalBytes: 200}})
	var times []int64
	for i := range 60 {
		b := batch.NewBuilder(0, -1, int64(1000+i*10))
		for j := range 3 {
			ts := int64(1000 + (i*37+j*11)%400*5) // up and down
			times = append(times, ts)
			b.AppendAt(ts, nil, value(0, ident.Offset(len(times)-1), 40))
		}
		if _, err := l.AppendAsLeader(b.Build(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetStartOffset(31); err != nil {
		t.Fatal(err)
	}
	for ts := int64(990); ts < 3100; ts += 5 {
		want := ident.Offset(-1)
		for o := ident.Offset(31); o < ident.Offset(len(times)) && want < 0; o++ {
			if times[o] >= ts {
				want = o
			}
		}
		got, ok, err := l.OffsetForTimestamp(ts)
		if err != nil || ok != (want >= 0) || ok && (got.Offset != want || got.Timestamp != times[want]) {
			t.Fatalf("time %d: %+v, %v, %v; want %d", ts, got, ok, err, want)
		}
	}
}

func TestMaxTimestampIsTheFirstRecordThatHasIt(t *testing.T) {
	l, _ := newLog(t, Config{Settings: Settings{SegmentBytes: 400}})
	if _, ok, err := l.MaxTimestamp(l.EndOffset()); ok || err != nil {
		t.Fatalf("of an empty log: %v, %v", ok, err)
	}
	for o, ts := range []int64{5, 9, 7, 9, 3, 8} {
		if _, err := l.AppendAsLeader(batch.NewBuilder(0, -1, ts).Append(nil, value(0, ident.Offset(o), 100)).Build(), 0); err != nil {
			t.Fatal(err)
		}
	}
	got, ok, err := l.MaxTimestamp(l.EndOffset())
	if err != nil || !ok || got.Offset != 1 || got.Timestamp != 9 || got.LeaderEpoch != 0 {
		t.Fatalf("%+v, %v, %v", got, ok, err)
	}
}

func TestMaxTimestampEqualsBruteForceBetweenStartAndHighWatermark(t *testing.T) {
	l, _ := newLog(t, Config{Settings: Settings{SegmentBytes: 2000, IndexIntervalBytes: 200}})
	var times []int64
	for i := range 30 {
		b := batch.NewBuilder(0, -1, int64(1000+i*10))
		for j := range 3 {
			ts := int64(1000 + (i*37+j*11)%400*5) // up and down
			times = append(times, ts)
			b.AppendAt(ts, nil, value(0, ident.Offset(len(times)-1), 40))
		}
		if _, err := l.AppendAsLeader(b.Build(), 0); err != nil {
			t.Fatal(err)
		}
	}
	for start := ident.Offset(0); start <= 90; start++ {
		if err := l.SetStartOffset(start); err != nil {
			t.Fatal(err)
		}
		for below := start - start%3; below <= 90; below += 3 { // high watermarks lie between batches
			want := ident.Offset(-1)
			for o := start; o < below; o++ {
				if want < 0 || times[o] > times[want] {
					want = o
				}
			}
			got, ok, err := l.MaxTimestamp(below)
			if err != nil || ok != (want >= 0) || ok && (got.Offset != want || got.Timestamp != times[want]) {
				t.Fatalf("from %d to %d: %+v, %v, %v; want %d", start, below, got, ok, err, want)
			}
		}
	}
}

func TestRecordsThatNobodyCanDecodeStandForTheirBatch(t *testing.T) {
	l, _ := newLog(t, Config{})
	mustAppend(t, l, 0, 1, 10)
	raw := batch.NewBuilder(0, -1, 5000).Append(nil, []byte("v")).Build()
	raw[batch.HeaderSize] = 0x7f // the record's length
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	if _, err := l.AppendAsLeader(raw, 0); err != nil {
		t.Fatal(err)
	}
	got, ok, err := l.OffsetForTimestamp(3000)
	if err != nil || !ok || got.Offset != 1 || got.Timestamp != 5000 {
		t.Fatalf("%+v, %v, %v", got, ok, err)
	}
}

func TestRetentionByTimePassesSegmentsWithoutATimestamp(t *testing.T) {
	l := aged(t, 10)
	for i, s := range l.segments[:3] {
		if i != 1 {
			s.maxTS, s.maxKnown = -1, true
		}
	}
	if _, _, err := l.DeleteOldSegments(6500, Limits{Ms: 3000, Bytes: -1}, 10); err != nil || l.StartOffset() != 4 {
		t.Fatalf("start %d, %v", l.StartOffset(), err)
	}
}

func TestSegmentsBelowTheStartGoWithoutALimit(t *testing.T) {
	l, _ := newLog(t, small)
	mustAppend(t, l, 1, 4, 50)
	if err := l.SetStartOffset(4); err != nil { // the segment is the active one, and stays
		t.Fatal(err)
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, 1, 4, 50)
	n, _, err := l.DeleteOldSegments(0, Limits{-1, -1}, 8)
	if err != nil || n != 1 || l.Segments()[0] != 4 || l.StartOffset() != 4 {
		t.Fatalf("%d removed, %v; %v from %d", n, err, l.Segments(), l.StartOffset())
	}
}
