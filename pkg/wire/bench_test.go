package wire

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkSend sends a range of a file over loopback TCP: by sendfile, or through memory as for TLS and small ranges.
func BenchmarkSend(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "segment"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(8 << 20); err != nil {
		b.Fatal(err)
	}
	for _, way := range []struct {
		name string
		file io.ReaderAt
	}{{"sendfile", file}, {"copied", io.NewSectionReader(file, 0, 8<<20)}} {
		for _, size := range []int64{32 << 10, 128 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", way.name, size>>10), func(b *testing.B) {
				conn := discardingPeer(b)
				out := newSender(conn, time.Minute)
				b.SetBytes(size)
				b.ReportAllocs()
				for i := int64(0); b.Loop(); i++ {
					body := Response{Segments: []Segment{{File: way.file, Offset: i % 7 << 20, Length: size}}}
					if err := out.add(nil, &body); err != nil {
						b.Fatal(err)
					}
					if err := out.flush(false); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func discardingPeer(t testing.TB) net.Conn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		peer, err := ln.Accept()
		if err == nil {
			_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{peer}, make([]byte, 256<<10))
			peer.Close()
		}
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); <-done })
	return conn
}

// TestAllocationsOfSending: none grows with the size of the range.
func TestAllocationsOfSending(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "segment"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(8 << 20); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{32 << 10, 4 << 20} {
		out := newSender(discardingPeer(t), time.Minute)
		n := testing.AllocsPerRun(100, func() {
			body := Response{Segments: []Segment{{File: file, Length: size}}}
			if err := out.add(nil, &body); err != nil {
				t.Fatal(err)
			}
			if err := out.flush(false); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%d KiB by sendfile: %.0f allocations", size>>10, n)
		if n > 20 {
			t.Errorf("%d KiB by sendfile: %.0f allocations, at most 20 are allowed", size>>10, n)
		}
	}
}
