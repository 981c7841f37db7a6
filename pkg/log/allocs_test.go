package log

import (
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// TestAllocationsAreBounded: what happens for every batch or every fetch allocates little, and nothing for a record.
func TestAllocationsAreBounded(t *testing.T) {
	allowed := func(what string, bound float64, op func()) {
		t.Helper()
		n := testing.AllocsPerRun(500, op)
		t.Logf("%s: %.0f allocations", what, n)
		if n > bound {
			t.Errorf("%s: %.0f allocations, at most %.0f are allowed", what, n, bound)
		}
	}
	for _, size := range batchSizes[:3] {
		raw := records(0, 0, size.records, 950)
		l, _, err := Open(vfs.OS(), t.TempDir()+"/t-0", Config{})
		if err != nil {
			t.Fatal(err)
		}
		allowed("leader's append of "+size.name, 3, func() { // the view that readers get, an index entry
			if _, err := l.AppendAsLeader(raw, 0); err != nil {
				t.Fatal(err)
			}
		})
		allowed("follower's append of "+size.name, 3, func() {
			batch.SetBaseOffset(raw, l.EndOffset())
			if _, err := l.AppendAsFollower(raw); err != nil {
				t.Fatal(err)
			}
		})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := filledLog(t)
	end := l.EndOffset()
	i := end
	for what, maxBytes := range map[string]int{"look-up": 1, "read of 64 KiB": 64 << 10, "read of 1 MiB": 1 << 20} {
		allowed(what, 2, func() { // the ranges
			i = (i*31 + 7) % (end - 1000)
			c, err := l.Read(i, maxBytes, end, true)
			if err != nil || c.Bytes == 0 {
				t.Fatal(c, err)
			}
			c.Release()
		})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
