package log

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func benchLog(b *testing.B, cfg Config) *Log {
	b.Helper()
	l, _, err := Open(vfs.OS(), b.TempDir()+"/t-0", cfg)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// batchSizes are of batches of records of 1000 bytes.
var batchSizes = []struct {
	name    string
	records int
}{{"1KiB", 1}, {"16KiB", 16}, {"128KiB", 128}, {"1MiB", 1024}}

// appendLoop keeps the log below a size that the page cache holds.
func appendLoop(b *testing.B, appendTo func(l *Log, raw []byte) error) {
	for _, size := range batchSizes {
		b.Run(size.name, func(b *testing.B) {
			l := benchLog(b, Config{Settings: Settings{SegmentBytes: 256 << 20}})
			raw := records(0, 0, size.records, 950)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := appendTo(l, raw); err != nil {
					b.Fatal(err)
				}
				if l.Size() > 128<<20 {
					b.StopTimer()
					if err := l.TruncateFully(0); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
		})
	}
}

func BenchmarkAppendAsLeader(b *testing.B) {
	appendLoop(b, func(l *Log, raw []byte) error {
		_, err := l.AppendAsLeader(raw, 0)
		return err
	})
}

func BenchmarkAppendAsFollower(b *testing.B) {
	appendLoop(b, func(l *Log, raw []byte) error {
		batch.SetBaseOffset(raw, l.EndOffset())
		_, err := l.AppendAsFollower(raw)
		return err
	})
}

// BenchmarkLookUp finds the batch of an offset in a log of 32 MB: index, then headers.
func BenchmarkLookUp(b *testing.B) {
	l := filledLog(b)
	end := l.EndOffset()
	b.ReportAllocs()
	i := end
	for b.Loop() {
		i = (i*31 + 7) % (end - 1000)
		c, err := l.Read(i, 1, end, true)
		if err != nil || c.Bytes == 0 {
			b.Fatal(c, err)
		}
		c.Release()
	}
}

func filledLog(t testing.TB) *Log {
	t.Helper()
	l, _, err := Open(vfs.OS(), t.TempDir()+"/t-0", Config{})
	if err != nil {
		t.Fatal(err)
	}
	raw := records(0, 0, 16, 1000)
	for range 2000 {
		if _, err := l.AppendAsLeader(raw, 0); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func BenchmarkRead(b *testing.B) {
	l := benchLog(b, Config{})
	raw := records(0, 0, 16, 1000)
	for range 2000 {
		if _, err := l.AppendAsLeader(raw, 0); err != nil {
			b.Fatal(err)
		}
	}
	end := l.EndOffset()
	b.ReportAllocs()
	i := end
	for b.Loop() {
		i = (i*31 + 7) % (end - 1000)
		c, err := l.Read(i, 64<<10, end, true)
		if err != nil || c.Bytes == 0 {
			b.Fatal(c, err)
		}
		c.Release()
	}
}

func BenchmarkRecovery(b *testing.B) {
	l := benchLog(b, Config{})
	raw := records(0, 0, 16, 1000)
	for range 2000 {
		if _, err := l.AppendAsLeader(raw, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(l.Size())
	b.ReportAllocs()
	for b.Loop() {
		again, rec, err := Open(vfs.OS(), l.Dir(), Config{})
		if err != nil || rec.Scanned != l.Size() {
			b.Fatal(rec, err)
		}
		for _, s := range again.segments {
			s.drop()
		}
	}
}

// BenchmarkCompaction compacts 64 MiB of records of about 500 bytes, each key ten times.
func BenchmarkCompaction(b *testing.B) {
	for _, codec := range []batch.Compression{batch.None, batch.LZ4, batch.Zstd} {
		b.Run([]string{"none", "gzip", "snappy", "lz4", "zstd"}[codec], func(b *testing.B) {
			dirty := benchLog(b, Config{Settings: Settings{SegmentBytes: 16 << 20}})
			const batches, perBatch = 4000, 32
			value := bytes.Repeat([]byte("0123456789abcdef"), 30)
			for i := range batches {
				one := batch.NewBuilder(0, -1, 1000)
				for j := range perBatch {
					one.Append(fmt.Appendf(nil, "key-%08d", (i*perBatch+j*7919)%(batches*perBatch/10)), value)
				}
				if _, err := dirty.AppendAsLeader(compressed(b, one.Build(), codec), 0); err != nil {
					b.Fatal(err)
				}
			}
			if err := dirty.Roll(); err != nil {
				b.Fatal(err)
			}
			mustClose(b, dirty)
			m := NewOffsetMap(128 << 20)
			b.ReportAllocs()
			b.SetBytes(dirty.Size())
			for b.Loop() {
				b.StopTimer()
				dir := b.TempDir() + "/t-0"
				if err := os.CopyFS(dir, os.DirFS(dirty.Dir())); err != nil {
					b.Fatal(err)
				}
				l, _, err := Open(vfs.OS(), dir, Config{CleanShutdown: true, Settings: Settings{SegmentBytes: 16 << 20, Compaction: Compaction{Enabled: true}}})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				c, err := l.BeginClean(2000, l.EndOffset(), CleanOptions{Map: m})
				if err != nil {
					b.Fatal(err)
				}
				if done, err := l.EndClean(c, c.Run()); !done || err != nil || c.Stats.Records != batches*perBatch {
					b.Fatal(done, err, c.Stats)
				}
				b.StopTimer()
				mustClose(b, l)
				b.StartTimer()
			}
			b.ReportMetric(float64(batches*perBatch*b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkRoll measures what an append waits for when it rolls: with the chores run apart, as a node does, and without.
func BenchmarkRoll(b *testing.B) {
	for _, apart := range []bool{false, true} {
		b.Run(fmt.Sprintf("apart=%v", apart), func(b *testing.B) {
			l := benchLog(b, Config{Settings: Settings{SegmentBytes: 1 << 20}, ChoresApart: apart})
			raw := records(0, 0, 16, 600<<6) // more than half a segment: each append rolls
			for b.Loop() {
				if _, err := l.AppendAsLeader(raw, 0); err != nil {
					b.Fatal(err)
				}
				if len(l.Segments()) > 20 {
					b.StopTimer()
					if err := l.SetStartOffset(l.EndOffset() - 1); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				if apart {
					b.StopTimer()
					if err := l.RunChores(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
		})
	}
}
