package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func TestHeaderIsWhatKmsgReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder(7, 3, rapid.Int64Range(0, 1<<40).Draw(t, "ts"))
		if rapid.Bool().Draw(t, "idempotent") {
			b.Producer(rapid.Int64Range(0, 1<<50).Draw(t, "pid"), rapid.Int16Range(0, 1<<14).Draw(t, "pe"), rapid.Int32Min(0).Draw(t, "seq"))
		}
		for i := range rapid.IntRange(1, 20).Draw(t, "n") {
			b.Append([]byte(fmt.Sprint(i)), rapid.SliceOf(rapid.Byte()).Draw(t, "v"))
		}
		if b.Size() != len(b.Build()) {
			t.Fatalf("Size says %d, Build has %d bytes", b.Size(), len(b.Build()))
		}
		raw := b.Build()
		var want kmsg.RecordBatch
		if err := want.ReadFrom(raw); err != nil {
			t.Fatal(err)
		}
		h, err := ParseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		got := kmsg.RecordBatch{
			FirstOffset: int64(h.BaseOffset), Length: h.Length, PartitionLeaderEpoch: int32(h.LeaderEpoch), Magic: Magic,
			CRC: int32(h.CRC), Attributes: h.Attributes, LastOffsetDelta: h.LastOffsetDelta, FirstTimestamp: h.BaseTimestamp,
			MaxTimestamp: h.MaxTimestamp, ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch,
			FirstSequence: h.BaseSequence, NumRecords: h.NumRecords, Records: raw[HeaderSize:],
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if err := Verify(raw); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOffsetAndEpochAreRewrittenOutsideTheChecksum(t *testing.T) {
	raw := NewBuilder(0, -1, 5).Append(nil, []byte("a")).Append(nil, []byte("b")).Build()
	SetBaseOffset(raw, 100)
	SetLeaderEpoch(raw, 9)
	if err := Verify(raw); err != nil {
		t.Fatal(err)
	}
	h, _ := ParseHeader(raw)
	if h.BaseOffset != 100 || h.LastOffset() != 101 || h.NextOffset() != 102 || h.LeaderEpoch != 9 {
		t.Fatalf("header %+v", h)
	}
}

func TestVerifyFindsEveryFlippedBitThatTheChecksumCovers(t *testing.T) {
	raw := NewBuilder(1, 1, 5).Append([]byte("key"), []byte("value")).Build()
	for bit := posMagic * 8; bit < len(raw)*8; bit++ {
		raw[bit/8] ^= 1 << (bit % 8)
		if err := Verify(raw); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d flipped: %v", bit, err)
		}
		raw[bit/8] ^= 1 << (bit % 8)
	}
}

func TestNextSplitsBatchesAndSaysWhenTheTailIsNotWhole(t *testing.T) {
	one := NewBuilder(0, 0, 0).Append(nil, []byte("one")).Build()
	two := NewBuilder(1, 0, 0).Append(nil, []byte("two")).Build()
	all := append(append([]byte{}, one...), two...)
	got, rest, h, err := Next(all)
	if err != nil || !bytes.Equal(got, one) || !bytes.Equal(rest, two) || h.BaseOffset != 0 {
		t.Fatalf("first: %v", err)
	}
	for cut := range two {
		if _, _, _, err := Next(two[:cut]); !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	if err := Verify(all); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("two batches are not one: %v", err)
	}
}

func TestParseHeaderRefusesWhatCannotBe(t *testing.T) {
	good := NewBuilder(1, 1, 5).Append(nil, nil).Build()
	for name, change := range map[string]func(b []byte){
		"old magic":             func(b []byte) { b[posMagic] = 1 },
		"length below a header": func(b []byte) { binary.BigEndian.PutUint32(b[posLength:], 48) },
		"negative length":       func(b []byte) { binary.BigEndian.PutUint32(b[posLength:], 1<<31) },
		"negative offset":       func(b []byte) { b[0] = 0x80 },
		"negative delta":        func(b []byte) { b[posLastOffsetDelta] = 0x80 },
		"offset overflow":       func(b []byte) { copy(b, "\x7f\xff\xff\xff\xff\xff\xff\xff") },
		"negative count":        func(b []byte) { b[posNumRecords] = 0x80 },
	} {
		bad := append([]byte{}, good...)
		change(bad)
		if _, err := ParseHeader(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClientsMayNotWriteWhatTheBrokerWrites(t *testing.T) {
	parse := func(b *Builder) Header {
		h, err := ParseHeader(b.Build())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	record := func() *Builder { return NewBuilder(0, -1, 5).Append(nil, []byte("v")) }
	if err := CheckFromClient(parse(record().Producer(1, 0, 0))); err != nil {
		t.Fatal(err)
	}
	short := parse(record())
	short.NumRecords = 2
	claims := parse(record())
	claims.NumRecords, claims.LastOffsetDelta = 1<<30, 1<<30-1
	smallest := parse(NewBuilder(0, -1, 5).Append(nil, nil))
	if err := CheckFromClient(smallest); err != nil || smallest.Size() != HeaderSize+minRecordBytes {
		t.Fatalf("the smallest record, %d bytes: %v", smallest.Size(), err)
	}
	codec := parse(record())
	codec.Attributes = 5
	offset := parse(record())
	offset.BaseOffset = 3
	for name, c := range map[string]struct {
		h    Header
		want error
	}{
		"control":       {parse(NewBuilder(0, 0, 0).AppendControl(Commit, nil)), ErrInvalid},
		"empty":         {parse(NewBuilder(0, 0, 0)), ErrInvalid},
		"count":         {short, ErrInvalid},
		"claims":        {claims, ErrInvalid},
		"base offset":   {offset, ErrInvalid},
		"codec":         {codec, ErrCompression},
		"sequence":      {parse(record().Producer(1, 0, -1)), ErrInvalid},
		"transactional": {parse(record().Transactional()), ErrInvalid},
	} {
		if err := CheckFromClient(c.h); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func collect(t *testing.T, raw []byte) []Record {
	t.Helper()
	var out []Record
	for r, err := range Records(raw) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func TestRecordsReadBackWhatWasBuilt(t *testing.T) {
	raw := NewBuilder(40, 0, 1000).Append([]byte("k"), nil).
		AppendAt(990, nil, []byte{}, RecordHeader{Key: "h", Value: []byte("x")}, RecordHeader{Key: "none"}).Build()
	want := []Record{
		{Offset: 40, Timestamp: 1000, Key: []byte("k")},
		{Offset: 41, Timestamp: 990, Value: []byte{}, Headers: []RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "none"}}},
	}
	if diff := cmp.Diff(want, collect(t, raw)); diff != "" {
		t.Fatal(diff)
	}
}

// recompress replaces a batch's records by compressed ones, made by the franz-go client's code.
func recompress(t *testing.T, raw []byte, c Compression, body []byte) []byte {
	t.Helper()
	out := append(append([]byte{}, raw[:HeaderSize]...), body...)
	binary.BigEndian.PutUint32(out[posLength:], uint32(len(out)-LogOverhead))
	out[posAttributes+1] = byte(c)
	binary.BigEndian.PutUint32(out[posCRC:], crc32.Checksum(out[posAttributes:], castagnoli))
	return out
}

// compressions has a batch's records in every compression.
func compressions(t *testing.T, records []byte) map[Compression][]byte {
	t.Helper()
	out := map[Compression][]byte{None: records}
	for c, codec := range map[Compression]kgo.CompressionCodec{
		Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
	} {
		compressor, err := kgo.DefaultCompressor(codec)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := compressor.Compress(new(bytes.Buffer), records)
		out[c] = append([]byte{}, body...)
	}
	return out
}

func TestRecordsReadEveryCompression(t *testing.T) {
	b := NewBuilder(3, 0, 1000)
	for i := range 200 {
		b.Append([]byte("key"), bytes.Repeat([]byte{byte(i)}, 100))
	}
	plain := b.Build()
	want := collect(t, plain)
	for c, body := range compressions(t, plain[HeaderSize:]) {
		if c == None {
			continue
		}
		raw := recompress(t, plain, c, body)
		if diff := cmp.Diff(want, collect(t, raw)); diff != "" {
			t.Fatalf("compression %d: %s", c, diff)
		}
		if c == Snappy {
			framed := append(append([]byte{}, xerialMagic...), 0, 0, 0, 1, 0, 0, 0, 1)
			framed = append(binary.BigEndian.AppendUint32(framed, uint32(len(body))), body...)
			if diff := cmp.Diff(want, collect(t, recompress(t, plain, c, framed))); diff != "" {
				t.Fatalf("snappy in java's framing: %s", diff)
			}
		}
		broken := recompress(t, plain, c, body[:len(body)/2])
		var last error
		for _, err := range Records(broken) {
			last = err
		}
		if !errors.Is(last, ErrCorrupt) {
			t.Fatalf("compression %d cut short: %v", c, last)
		}
	}
}

func TestSequenceNumbersWrapToZero(t *testing.T) {
	if got := AddSequence(1<<31-1, 1); got != 0 {
		t.Fatalf("after the last: %d", got)
	}
	if got := (Header{BaseSequence: 1<<31 - 2, LastOffsetDelta: 3}).LastSequence(); got != 1 {
		t.Fatalf("last sequence of a batch that wraps: %d", got)
	}
}

func FuzzBatch(f *testing.F) {
	f.Add(NewBuilder(0, 0, 0).Append([]byte("k"), []byte("v")).Build())
	f.Add(NewBuilder(9, 1, 5).Producer(3, 1, 0).AppendAt(7, nil, nil, RecordHeader{Key: "h"}).Append(nil, nil).Build())
	f.Add(NewBuilder(9, 1, 5).AppendControl(SnapshotFooterType, SnapshotFooter{}.Encode()).Build())
	f.Fuzz(func(t *testing.T, b []byte) {
		one, rest, h, err := Next(b)
		if err != nil {
			if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("unnamed error %v", err)
			}
			return
		}
		if len(one)+len(rest) != len(b) || len(one) != h.Size() || h.NextOffset() <= h.BaseOffset {
			t.Fatalf("header %+v of %d bytes", h, len(b))
		}
		for r, err := range Records(one) {
			if err != nil {
				return
			}
			if r.Offset < h.BaseOffset || r.Offset > h.LastOffset() {
				t.Fatalf("record at %d outside %d..%d", r.Offset, h.BaseOffset, h.LastOffset())
			}
		}
	})
}

func TestLogAppendTimeIsWrittenOverAnyCompression(t *testing.T) {
	plain := NewBuilder(0, 0, 1000).AppendAt(1000, []byte("k"), []byte("v")).AppendAt(1005, nil, []byte("w")).Build()
	for c, body := range compressions(t, plain[HeaderSize:]) {
		raw := plain
		if c != None {
			raw = recompress(t, plain, c, body)
		}
		raw = append([]byte{}, raw...)
		records := append([]byte{}, raw[HeaderSize:]...)
		_, _, h, err := Next(raw)
		if err != nil {
			t.Fatal(err)
		}
		SetLogAppendTime(raw, &h, 7777)
		if err := Verify(raw); err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		if again, err := ParseHeader(raw); err != nil || again != h || !h.IsLogAppendTime() || h.MaxTimestamp != 7777 || h.BaseTimestamp != 1000 || h.Compression() != c {
			t.Fatalf("%v: %+v, %v", c, again, err)
		}
		for _, r := range collect(t, raw) {
			if r.Timestamp != 7777 {
				t.Errorf("%v: record of time %d", c, r.Timestamp)
			}
		}
		if !bytes.Equal(raw[HeaderSize:], records) {
			t.Errorf("%v: the records have changed", c)
		}
		ClearLogAppendTime(raw, &h)
		if err := Verify(raw); err != nil || h.IsLogAppendTime() || collect(t, raw)[1].Timestamp != 1005 {
			t.Errorf("%v: %v, %+v", c, err, h)
		}
	}
}
