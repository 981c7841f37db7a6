package log

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// fuzzedNames are the files that a directory of arbitrary bytes may hold: those of a log, of its compaction, of its
// damage, and what a crash leaves of them.
var fuzzedNames = func() (names []string) {
	for _, base := range []ident.Offset{0, 2, 3, 40} {
		for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix, snapshotSuffix} {
			names = append(names, fileName(base, suffix))
			for _, more := range []string{swapSuffix, cleanedSuffix, deletedSuffix} {
				names = append(names, fileName(base, suffix+more))
			}
		}
		names = append(names, fileName(base, logSuffix+quarantineSuffix))
	}
	return append(names, EpochCheckpointFile, EpochCheckpointFile+tempSuffix, PartitionMetadataFile, DamageCheckpointFile, "surprise")
}()

// FuzzDirectory opens a directory of arbitrary files. What it is made of comes from data: a file's number, how long it
// is, its bytes, the next file. However it looks, Open ends with a log or with an error that has a name, takes memory
// in proportion to what is there, and a log that opens can be read, written, closed and opened.
func FuzzDirectory(f *testing.F) {
	file := func(name string, content []byte) []byte {
		for i, n := range fuzzedNames {
			if n == name {
				return append([]byte{byte(i), byte(len(content) >> 8), byte(len(content))}, content...)
			}
		}
		f.Fatalf("no such file: %s", name)
		return nil
	}
	two, three := batchOf(0, 2, 1), batchOf(2, 1, 2)
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	f.Add(join(file(fileName(0, logSuffix), join(two, three))), uint16(0), false)
	f.Add(join(file(fileName(0, logSuffix), two), file(fileName(2, logSuffix), three), file(EpochCheckpointFile, []byte("0\n2\n1 0\n2 2\n"))), uint16(2), true)
	f.Add(join(file(fileName(0, logSuffix+swapSuffix), two), file(fileName(2, logSuffix), three), file(fileName(0, indexSuffix+swapSuffix), nil)), uint16(3), false)
	f.Add(join(file(fileName(0, logSuffix), two), file(fileName(0, logSuffix+cleanedSuffix), two), file(fileName(0, snapshotSuffix+deletedSuffix), two)), uint16(0), true)
	f.Add(join(file(fileName(0, logSuffix), two), file(fileName(3, snapshotSuffix), stateAfter(1, 2)), file(DamageCheckpointFile, []byte("0\n2\ndamaged 0 2\nrefilling 0 9\n"))), uint16(9), false)
	f.Add(join(file(fileName(40, logSuffix), nil), file(fileName(2, logSuffix+quarantineSuffix), three), file(DamageCheckpointFile, []byte("0\n1\nrefilling 2 9\n"))), uint16(40), false)
	f.Fuzz(func(t *testing.T, data []byte, point uint16, clean bool) {
		m := vfs.NewMem()
		if err := m.MkdirAll("/data/t-0", 0o755); err != nil {
			t.Fatal(err)
		}
		for rest := data; len(rest) >= 3; {
			name := fuzzedNames[int(rest[0])%len(fuzzedNames)]
			n := min(int(rest[1])<<8|int(rest[2]), len(rest)-3)
			if err := vfs.WriteFile(m, "/data/t-0/"+name, rest[3:3+n], true); err != nil {
				t.Fatal(err)
			}
			rest = rest[3+n:]
		}
		for _, dir := range []string{"/", "/data", "/data/t-0"} {
			if err := m.SyncDir(dir); err != nil {
				t.Fatal(err)
			}
		}
		cfg := Config{RecoveryPoint: ident.Offset(point), CleanShutdown: clean, CleanOffset: ident.Offset(point % 7), Settings: Settings{SegmentBytes: 1000}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l, _, err := Open(m, "/data/t-0", cfg)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20+1000*uint64(len(data)) {
			t.Fatalf("took %d bytes of memory for a directory of %d", grown, len(data))
		}
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("unnamed error %v", err)
			}
			return
		}
		if err := useFuzzed(l, nil); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		cfg.CleanShutdown, cfg.RecoveryPoint = true, l.EndOffset()
		again, _, err := Open(m.CrashClone(nil, 0), "/data/t-0", cfg)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if err == nil && again.EndOffset() != l.EndOffset() {
			t.Fatalf("ended at %d, now at %d", l.EndOffset(), again.EndOffset())
		}
	})
}

// useFuzzed reads all of a log that is not damaged, checks each batch unless check is nil, and appends to it.
func useFuzzed(l *Log, check func(batch []byte) error) error {
	for o, steps := l.StartOffset(), 0; o < l.EndOffset() && steps < 10_000; steps++ {
		c, err := l.Read(o, 1<<20, l.EndOffset(), true)
		switch {
		case errors.Is(err, ErrCorrupt):
			o++ // damaged, and said so
			continue
		case err != nil:
			return err
		case c.Next < o:
			return fmt.Errorf("read at %d of %d: to %d", o, l.EndOffset(), c.Next)
		case c.Next == o: // a segment without records below the recovery point, which nobody has looked at
			o++
			continue
		}
		raw, err := c.AppendTo(nil)
		for rest := raw; err == nil && check != nil && len(rest) > 0; {
			var one []byte
			if one, rest, _, err = batch.Next(rest); err == nil {
				err = check(one)
			}
		}
		if err != nil {
			return err
		}
		o = c.Next
		c.Release()
	}
	if e := l.LatestEpoch(); e < 1<<31-1 && l.EndOffset() < 1<<31 {
		if _, err := l.AppendAsLeader(batch.NewBuilder(0, -1, 1).Append([]byte("k"), []byte("v")).Build(), e+1); err != nil {
			return err
		}
	}
	return nil
}
