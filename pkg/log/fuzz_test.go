package log

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// FuzzRecovery opens whatever is in a segment file: it ends with an error that has a name, or with a log that
// holds valid batches only and can be written, closed and opened.
func FuzzRecovery(f *testing.F) {
	two := append(batchOf(0, 2, 1), batchOf(2, 1, 2)...)
	f.Add(two, []byte{}, []byte{}, false, true)
	f.Add(two[:len(two)-3], []byte{0, 0, 0, 2, 0, 0, 0, 1}, []byte("0\n1\n1 0\n"), true, false)
	f.Add(append(two, make([]byte, 600)...), []byte{1}, []byte("0\n1\n7 0\n"), false, true)
	f.Add(batch.NewBuilder(0, 3, 1).Producer(4, 0, 0).AppendControl(batch.Commit, []byte{0, 0, 0, 0, 0, 1}).Build(), []byte{}, []byte{}, false, true)
	f.Fuzz(func(t *testing.T, data, index, epochs []byte, stop, fixChecksums bool) {
		if fixChecksums { // leads deeper
			data = slices.Clone(data)
			for rest := data; len(rest) > 0; {
				one, after, _, err := batch.Next(rest)
				if err != nil {
					break
				}
				binary.BigEndian.PutUint32(one[17:], crc32.Checksum(one[21:], castagnoli))
				rest = after
			}
		}
		m := vfs.NewMem()
		if err := m.MkdirAll("/data/t-0", 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{fileName(0, logSuffix): data, fileName(0, indexSuffix): index,
			fileName(0, timeIndexSuffix): index, EpochCheckpointFile: epochs} {
			if len(content) > 0 || name == fileName(0, logSuffix) {
				if err := vfs.WriteFile(m, "/data/t-0/"+name, content, true); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, clean := range []bool{true, false} {
			l, rec, err := Open(m.CrashClone(nil, 100), "/data/t-0", Config{StopOnCorruption: stop, CleanShutdown: clean})
			if err != nil {
				if !errors.Is(err, ErrCorrupt) {
					t.Fatalf("unnamed error %v", err)
				}
				continue
			}
			if clean {
				continue // what was closed is not read again, so nothing can be said of it
			}
			if l.Size()+rec.CutBytes != int64(len(data)) {
				t.Fatalf("%d bytes kept, %d cut, of %d", l.Size(), rec.CutBytes, len(data))
			}
			if err := useFuzzed(l, batch.Verify); err != nil {
				t.Fatal(err)
			}
			mustClose(t, l)
		}
	})
}

func FuzzIndex(f *testing.F) {
	x := newIndexes([]offsetEntry{{3, 100}, {9, 400}}, []timeEntry{{1000, 3}, {2000, 9}})
	f.Add(x.encodeOffsets(), x.encodeTimes(), int64(500))
	f.Add(append(x.encodeOffsets(), make([]byte, 16)...), append(x.encodeTimes(), make([]byte, 24)...), int64(500))
	f.Fuzz(func(t *testing.T, offsets, times []byte, size int64) {
		if entries, err := decodeOffsets(offsets, size); err == nil {
			x := newIndexes(entries, nil)
			for _, e := range entries {
				if x.floor(e.rel) != int64(e.pos) || x.floorPos(int64(e.pos)) != int64(e.pos) {
					t.Fatalf("entry %+v is not found", e)
				}
			}
			again, err := decodeOffsets(x.encodeOffsets(), size)
			if err != nil || len(entries) > 0 && !cmp.Equal(entries, again, cmp.AllowUnexported(offsetEntry{})) {
				t.Fatalf("%v, then %v, %v", entries, again, err)
			}
		}
		if entries, err := decodeTimes(times); err == nil {
			x := newIndexes(nil, entries)
			if _, err := decodeTimes(x.encodeTimes()); err != nil {
				t.Fatal(err)
			}
			x.floorTime(size)
		}
	})
}

func TestIndexLookUpsEqualBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newIndexes(nil, nil)
		var kept []offsetEntry
		var rel, pos uint32
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			rel += uint32(rapid.IntRange(1, 5).Draw(t, "rel"))
			pos += uint32(rapid.IntRange(1, 50).Draw(t, "pos"))
			x.addOffset(offsetEntry{rel, pos})
			x.addTime(timeEntry{int64(pos), rel})
			kept = append(kept, offsetEntry{rel, pos})
		}
		if rapid.Bool().Draw(t, "cut") {
			at := uint32(rapid.IntRange(0, 110).Draw(t, "at"))
			x.truncate(at, 1<<31)
			for len(kept) > 0 && kept[len(kept)-1].rel >= at {
				kept = kept[:len(kept)-1]
			}
		}
		want := uint32(rapid.IntRange(0, 120).Draw(t, "want"))
		var byRel, byPos, byTime uint32
		for _, e := range kept {
			if e.rel <= want {
				byRel = e.pos
			}
			if e.pos <= want {
				byPos = e.pos
			}
			if e.pos < want {
				byTime = e.rel
			}
		}
		if got := x.floor(want); got != int64(byRel) {
			t.Fatalf("floor(%d) = %d, want %d", want, got, byRel)
		}
		if got := x.floorPos(int64(want)); got != int64(byPos) {
			t.Fatalf("floorPos(%d) = %d, want %d", want, got, byPos)
		}
		if got := x.floorTime(int64(want)).rel; got != byTime {
			t.Fatalf("floorTime(%d) = %d, want %d", want, got, byTime)
		}
	})
}
