package log

import (
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func TestIndexWithAFlippedBitLeadsNobodyAstray(t *testing.T) {
	whole, segments := filled(t)
	for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
		name := "/data/t-0/" + fileName(segments[1], suffix)
		raw, err := vfs.ReadFile(whole, name)
		if err != nil || len(raw) == 0 {
			t.Fatalf("%d bytes, %v", len(raw), err)
		}
		for bit := range 8 * len(raw) {
			flipped := append([]byte(nil), raw...)
			flipped[bit/8] ^= 1 << (bit % 8)
			m := whole.CrashClone(nil, 100)
			if err := vfs.WriteFile(m, name, flipped, true); err != nil {
				t.Fatal(err)
			}
			cfg := small
			cfg.RecoveryPoint = 40 // not scanned
			l, _ := mustOpen(t, m, cfg)
			for o := range ident.Offset(40) {
				c, err := l.Read(o, 100, 40, true)
				if err != nil || c.First != o&^1 || c.Next != c.First+2 {
					t.Fatalf("%s, bit %d: read at %d: %d to %d, %v", suffix, bit, o, c.First, c.Next, err)
				}
				c.Release()
				c, err = l.Read(o&^7, 1<<20, o&^1+2, true)
				if err != nil || c.Next != o&^1+2 {
					t.Fatalf("%s, bit %d: read from %d below %d: to %d, %v", suffix, bit, o&^7, o&^1+2, c.Next, err)
				}
				c.Release()
				found, ok, err := l.OffsetForTimestamp(1000 + int64(o))
				if err != nil || !ok || found.Offset != o {
					t.Fatalf("%s, bit %d: look-up of the time of %d: %+v, %v", suffix, bit, o, found, err)
				}
			}
			largest, _, err := l.segments[1].largestTimestamp(l.segments[1].size)
			if want := 1000 + int64(segments[2]) - 1; err != nil || largest != want {
				t.Fatalf("%s, bit %d: largest timestamp %d, want %d, %v", suffix, bit, largest, want, err)
			}
		}
	}
}
