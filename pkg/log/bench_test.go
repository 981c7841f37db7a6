package log

import (
	"testing"

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

func BenchmarkAppend(b *testing.B) {
	l := benchLog(b, Config{Settings: Settings{SegmentBytes: 256 << 20}})
	raw := records(0, 0, 16, 1000)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.AppendAsLeader(raw, 0); err != nil {
			b.Fatal(err)
		}
	}
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
			s.release()
		}
	}
}
