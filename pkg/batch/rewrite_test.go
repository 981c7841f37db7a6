package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/highwater-io/highwater/pkg/ident"
)

// packed compresses an uncompressed batch.
func packed(t testing.TB, raw []byte, c Compression, framed bool) []byte {
	t.Helper()
	var w Rewriter
	if !framed {
		out, err := w.Compress(raw, c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	h, err := ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	body, err := w.codec.compress(c, framed, raw[HeaderSize:])
	if err != nil {
		t.Fatal(err)
	}
	h.Attributes |= int16(c)
	h.Length = int32(HeaderSize - LogOverhead + len(body))
	return sealed(append(h.appendTo(nil), body...))
}

func sealed(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[posCRC:], crc32.Checksum(raw[posAttributes:], castagnoli))
	return raw
}

func unpack(t testing.TB, raw []byte) []Record {
	t.Helper()
	if err := Verify(raw); err != nil {
		t.Fatal(err)
	}
	var all []Record
	for r, err := range Records(raw) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// story is a batch of n records: every third is a tombstone, and timestamps go back and forth.
func story(n int) []byte {
	b := NewBuilder(1000, 7, 5000).Producer(4, 1, 90)
	for i := range n {
		value := bytes.Repeat([]byte(fmt.Sprintf("value %d ", i)), 1+i%5)
		if i%3 == 2 {
			value = nil
		}
		b.AppendAt(5000+int64(i*37%11), fmt.Appendf(nil, "key %d", i%4), value, RecordHeader{Key: "h", Value: []byte{byte(i)}})
	}
	return b.Build()
}

var codecs = []struct {
	name   string
	c      Compression
	framed bool
}{{"none", None, false}, {"gzip", Gzip, false}, {"snappy", Snappy, false}, {"snappy-java", Snappy, true}, {"lz4", LZ4, false}, {"zstd", Zstd, false}}

func TestRewriteKeepsWhatStaysAsItWas(t *testing.T) {
	var w Rewriter // one for all, as the cleaner has it
	for _, n := range []int{1, 30, 9000} {
		for _, c := range codecs {
			t.Run(fmt.Sprint(c.name, " ", n), func(t *testing.T) {
				raw := packed(t, story(n), c.c, c.framed)
				before := unpack(t, raw)
				h, _ := ParseHeader(raw)
				all, err := w.Rewrite(raw, h, Filter{Keep: func(*RecordView) bool { return true }})
				if err != nil {
					t.Fatal(err)
				}
				if n == 1 && (all.Changed || !bytes.Equal(all.Batch, raw)) {
					t.Fatal("a batch that keeps all was changed")
				}
				var want []Record
				keep := func(r *RecordView) bool { return r.Offset%2 == 1 && r.HasValue || n == 1 }
				for _, r := range before {
					if r.Offset%2 == 1 && r.Value != nil || n == 1 {
						want = append(want, r)
					}
				}
				res, err := w.Rewrite(raw, h, Filter{Keep: keep})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, unpack(t, res.Batch)); diff != "" {
					t.Fatal(diff)
				}
				got, _ := ParseHeader(res.Batch)
				if got.BaseOffset != h.BaseOffset || got.LastOffset() != h.LastOffset() || got.LastSequence() != h.LastSequence() ||
					got.LeaderEpoch != h.LeaderEpoch || got.ProducerID != 4 || got.ProducerEpoch != 1 || got.Compression() != c.c {
					t.Fatalf("header %+v, was %+v", got, h)
				}
				largest := int64(-1)
				for _, r := range want {
					largest = max(largest, r.Timestamp)
				}
				if got.MaxTimestamp != largest {
					t.Fatalf("largest timestamp %d, want %d", got.MaxTimestamp, largest)
				}
				if c.framed && n > 1 && !bytes.HasPrefix(res.Batch[HeaderSize:], xerialMagic) {
					t.Fatal("snappy-java's framing is lost")
				}
			})
		}
	}
}

func TestDeleteHorizonIsSetOnceAndTimestampsStay(t *testing.T) {
	var w Rewriter
	for _, c := range codecs {
		all := Filter{Keep: func(*RecordView) bool { return true }, DeleteHorizonMs: 77_000}
		raw := packed(t, story(20), c.c, c.framed)
		h, _ := ParseHeader(raw)
		res, err := w.Rewrite(raw, h, all)
		if err != nil {
			t.Fatal(err)
		}
		once := bytes.Clone(res.Batch)
		got, _ := ParseHeader(once)
		if horizon, ok := got.DeleteHorizon(); !ok || horizon != 77_000 || !res.Changed || got.MaxTimestamp != h.MaxTimestamp {
			t.Fatalf("%s: horizon %d, %v", c.name, horizon, ok)
		}
		if diff := cmp.Diff(unpack(t, raw), unpack(t, once)); diff != "" {
			t.Fatalf("%s: %s", c.name, diff)
		}
		all.DeleteHorizonMs = 99_000
		if res, err = w.Rewrite(once, got, all); err != nil || res.Changed {
			t.Fatalf("%s: set again: %v, %v", c.name, res.Changed, err)
		}
		res, err = w.Rewrite(once, got, Filter{Keep: func(r *RecordView) bool { return r.HasValue }})
		if err != nil {
			t.Fatal(err)
		}
		h2, _ := ParseHeader(res.Batch)
		if horizon, _ := h2.DeleteHorizon(); horizon != 77_000 {
			t.Fatalf("%s: horizon became %d", c.name, horizon)
		}
		for _, r := range unpack(t, res.Batch) {
			if i := int64(r.Offset - 1000); r.Timestamp != 5000+i*37%11 || r.Value == nil {
				t.Fatalf("%s: record %d has timestamp %d", c.name, r.Offset, r.Timestamp)
			}
		}
	}
}

func TestEmptiedBatchKeepsOffsetsAndSequence(t *testing.T) {
	var w Rewriter
	raw := packed(t, story(20), LZ4, false)
	h, _ := ParseHeader(raw)
	none := func(*RecordView) bool { return false }
	if res, err := w.Rewrite(raw, h, Filter{Keep: none}); err != nil || res.Batch != nil || !res.Changed || res.Records != 20 {
		t.Fatalf("%+v, %v", res, err)
	}
	res, err := w.Rewrite(raw, h, Filter{Keep: none, KeepEmpty: true})
	if err != nil || len(res.Batch) != HeaderSize || len(unpack(t, res.Batch)) != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	empty := bytes.Clone(res.Batch)
	got, _ := ParseHeader(empty)
	want := h
	want.NumRecords, want.Attributes, want.BaseTimestamp, want.Length, want.CRC = 0, 0, -1, HeaderSize-LogOverhead, got.CRC
	if got != want {
		t.Fatalf("header %+v, want %+v", got, want)
	}
	if res, err = w.Rewrite(empty, got, Filter{Keep: none, KeepEmpty: true}); err != nil || res.Changed {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err = w.Rewrite(empty, got, Filter{Keep: none}); err != nil || res.Batch != nil {
		t.Fatalf("%+v, %v", res, err)
	}
}

func TestLogAppendTimeStays(t *testing.T) {
	var w Rewriter
	raw := story(9)
	h, _ := ParseHeader(raw)
	h.Attributes |= attrLogAppendTime
	h.MaxTimestamp = 123_456
	raw = sealed(append(h.appendTo(nil), raw[HeaderSize:]...))
	res, err := w.Rewrite(raw, h, Filter{Keep: func(r *RecordView) bool { return r.Offset > 1002 }, DeleteHorizonMs: 500_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range unpack(t, res.Batch) {
		if r.Timestamp != 123_456 {
			t.Fatalf("record %d has timestamp %d", r.Offset, r.Timestamp)
		}
	}
}

func TestKeylessRecordIsFound(t *testing.T) {
	for _, c := range codecs {
		good := packed(t, story(50), c.c, c.framed)
		h, _ := ParseHeader(good)
		if err := CheckKeyed(good, h); err != nil {
			t.Fatal(err)
		}
		bad := packed(t, NewBuilder(0, 0, 1).Append([]byte{}, nil).Append(nil, []byte("v")).Build(), c.c, c.framed)
		h, _ = ParseHeader(bad)
		if err := CheckKeyed(bad, h); !errors.Is(err, ErrNoKey) {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	torn := NewBuilder(0, 0, 1).Append([]byte("k"), nil).Build()
	torn[len(torn)-1] = 9 // more headers than there are bytes
	h, _ := ParseHeader(torn)
	if err := CheckKeyed(torn, h); !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
	sealed(torn)
	h, _ = ParseHeader(torn)
	if err := CheckKeyed(torn, h); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
}

func TestCheckKeyedDoesNotAllocate(t *testing.T) {
	raw := story(500)
	h, _ := ParseHeader(raw)
	if n := testing.AllocsPerRun(100, func() { _ = CheckKeyed(raw, h) }); n > 1 {
		t.Fatalf("%.1f allocations for 500 records", n)
	}
}

// FuzzRewrite compares the rewriting of whatever is there with what Records says of before and after.
func FuzzRewrite(f *testing.F) {
	for _, c := range codecs {
		f.Add(packed(f, story(12), c.c, c.framed), uint64(0x5a5a), int64(10_000), true)
	}
	f.Add(NewBuilder(0, 0, 1).Build(), uint64(0), int64(0), false)
	f.Fuzz(func(t *testing.T, data []byte, keep uint64, horizon int64, keepEmpty bool) {
		raw, _, h, err := Next(data)
		if err != nil {
			return
		}
		raw = sealed(bytes.Clone(raw))
		var before []Record
		var broken error
		for r, err := range Records(raw) {
			if broken = err; err != nil {
				break
			}
			before = append(before, r)
		}
		kept := func(o ident.Offset) bool { return keep>>(uint64(o)%64)&1 == 1 }
		var w Rewriter
		res, err := w.Rewrite(raw, h, Filter{
			Keep: func(r *RecordView) bool { return kept(r.Offset) }, DeleteHorizonMs: horizon, KeepEmpty: keepEmpty,
		})
		if (err == nil) != (broken == nil) {
			t.Fatalf("rewrite: %v; records: %v", err, broken)
		}
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrCompression) {
				t.Fatal(err)
			}
			return
		}
		var want []Record
		for _, r := range before {
			if kept(r.Offset) {
				want = append(want, r)
			}
		}
		if res.Batch == nil {
			if len(want) != 0 || keepEmpty {
				t.Fatalf("%d records are gone", len(want))
			}
			return
		}
		if diff := cmp.Diff(want, unpack(t, res.Batch)); diff != "" {
			t.Fatal(diff)
		}
		got, _ := ParseHeader(res.Batch)
		if got.BaseOffset != h.BaseOffset || got.LastOffsetDelta != h.LastOffsetDelta || got.BaseSequence != h.BaseSequence {
			t.Fatalf("header %+v, was %+v", got, h)
		}
	})
}

func BenchmarkRewrite(b *testing.B) {
	for _, c := range codecs {
		b.Run(c.name, func(b *testing.B) {
			raw := packed(b, story(200), c.c, c.framed)
			h, _ := ParseHeader(raw)
			var w Rewriter
			f := Filter{Keep: func(r *RecordView) bool { return r.Offset%2 == 0 && r.HasValue }}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Rewrite(raw, h, f); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(200*b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
