package log

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// value is the content of a record that was given offset o in epoch e.
func value(e ident.Epoch, o ident.Offset, size int) []byte {
	head := fmt.Sprintf("%d/%d/", e, o)
	return append([]byte(head), bytes.Repeat([]byte{'x'}, max(0, size-len(head)))...)
}

// records makes a batch as a client sends it, of n records, which say the offsets that they will get.
func records(o ident.Offset, e ident.Epoch, n, size int) []byte {
	b := batch.NewBuilder(0, -1, 1000+int64(o))
	for i := range n {
		b.AppendAt(1000+int64(o)+int64(i), nil, value(e, o+ident.Offset(i), size))
	}
	return b.Build()
}

func mustOpen(t tb, fsys vfs.FS, cfg Config) (*Log, Recovery) {
	t.Helper()
	l, rec, err := Open(fsys, "/data/t-0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l, rec
}

func mustAppend(t tb, l *Log, e ident.Epoch, n, size int) AppendInfo {
	t.Helper()
	info, err := l.AppendAsLeader(records(l.EndOffset(), e, n, size), e)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func mustFlush(t tb, l *Log) {
	t.Helper()
	if o, err := l.Flush(); err != nil || o != l.EndOffset() {
		t.Fatalf("flushed to %d of %d: %v", o, l.EndOffset(), err)
	}
}

func mustTruncate(t tb, l *Log, to ident.Offset) {
	t.Helper()
	if err := l.Truncate(to); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t tb, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// readAll returns the log's bytes from its start to its end, read in pieces of at most maxBytes.
func readAll(t tb, l *Log, maxBytes int) []byte {
	t.Helper()
	var out []byte
	for o := l.StartOffset(); o < l.EndOffset(); {
		c, err := l.Read(o, maxBytes, l.EndOffset(), true)
		if err != nil {
			t.Fatal(err)
		}
		if c.Bytes == 0 || c.Next <= o {
			t.Fatalf("nothing to read at %d of %d", o, l.EndOffset())
		}
		if out, err = c.AppendTo(out); err != nil {
			t.Fatal(err)
		}
		c.Release()
		o = c.Next
	}
	return out
}

// check reads the whole log and checks that each record says its own offset and epoch, without gaps. It
// returns the values by offset.
func check(t tb, l *Log) map[ident.Offset]string {
	t.Helper()
	return checkBatches(t, l, false)
}

func checkBatches(t tb, l *Log, gaps bool) map[ident.Offset]string {
	t.Helper()
	out := map[ident.Offset]string{}
	expected := ident.Offset(-1)
	for rest := readAll(t, l, 700); len(rest) > 0; {
		one, after, h, err := batch.Next(rest)
		if err == nil {
			err = batch.Verify(one)
		}
		if err != nil {
			t.Fatal(err)
		}
		if expected >= 0 && (h.BaseOffset < expected || h.BaseOffset > expected && !gaps) {
			t.Fatalf("batch at %d, expected %d", h.BaseOffset, expected)
		}
		if e, ok := l.EpochAt(max(h.BaseOffset, l.StartOffset())); !ok || e != h.LeaderEpoch {
			t.Fatalf("epoch table says %d at %d, batch %d", e, h.BaseOffset, h.LeaderEpoch)
		}
		for r, err := range batch.Records(one) {
			if err != nil {
				t.Fatal(err)
			}
			if want := value(h.LeaderEpoch, r.Offset, 0); !bytes.HasPrefix(r.Value, want) {
				t.Fatalf("record at %d in epoch %d is %.20q", r.Offset, h.LeaderEpoch, r.Value)
			}
			out[r.Offset] = string(r.Value)
		}
		expected = h.NextOffset()
		rest = after
	}
	if expected >= 0 && expected != l.EndOffset() {
		t.Fatalf("records end at %d, log at %d", expected, l.EndOffset())
	}
	return out
}

func newLog(t *testing.T, cfg Config) (*Log, *vfs.Mem) {
	t.Helper()
	m := vfs.NewMem()
	l, rec := mustOpen(t, m, cfg)
	if rec.Repaired() {
		t.Fatalf("a new log was repaired: %v", rec.Repairs)
	}
	return l, m
}

// rechecked gives a batch the checksum of what it now holds.
func rechecked(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	return raw
}

// resequenced gives a batch another first sequence number.
func resequenced(raw []byte, sequence int32) []byte {
	binary.BigEndian.PutUint32(raw[53:], uint32(sequence))
	return rechecked(raw)
}

// compressed is the batch in another compression.
func compressed(t tb, raw []byte, c batch.Compression) []byte {
	t.Helper()
	var w batch.Rewriter
	out, err := w.Compress(raw, c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
