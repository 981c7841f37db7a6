package kafkadecode

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// The other direction, for which no Java is needed: our log opens a real Kafka's folders.

const golden = "../../pkg/metadata/testdata/kafka-4.1"

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(from))
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestOurLogOpensKafkasFoldersAndFindsNothingToRepair(t *testing.T) {
	for _, tc := range []struct {
		dir       string
		end       ident.Offset
		producers int
	}{
		{"single/node1/orders-0", 80, 5},
		{"features/node1/pairs-0", 44, 6},
		{"features/node1/__transaction_state-0", 7, 0},
	} {
		dir := copyDir(t, filepath.Join(golden, tc.dir))
		l, recovery, err := log.Open(vfs.OS(), dir, log.Config{Settings: log.Settings{IndexIntervalBytes: 64}})
		if err != nil {
			t.Errorf("%s: %v", tc.dir, err)
			continue
		}
		if recovery.Repaired() {
			t.Errorf("%s: repaired: %v", tc.dir, recovery.Repairs)
		}
		if l.StartOffset() != 0 || l.EndOffset() != tc.end || l.Producers().Len() != tc.producers {
			t.Errorf("%s: from %d to %d, %d producers; want 0 to %d, %d producers", tc.dir, l.StartOffset(), l.EndOffset(), l.Producers().Len(), tc.end, tc.producers)
		}
		chunk, err := l.Read(0, 1<<20, l.EndOffset(), true)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := chunk.AppendTo(nil)
		chunk.Release()
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := os.ReadFile(filepath.Join(golden, tc.dir, "00000000000000000000.log")); !bytes.Equal(raw, want) {
			t.Errorf("%s: what is read is not what the file has", tc.dir)
		}
		next := ident.Offset(0)
		for len(raw) > 0 {
			one, rest, _, err := batch.Next(raw)
			if err != nil {
				t.Fatal(err)
			}
			for r, err := range batch.Records(one) {
				if err != nil || r.Offset != next {
					t.Fatalf("%s, offset %d, want %d: %v", tc.dir, r.Offset, next, err)
				}
				next++
			}
			raw = rest
		}
		if next != tc.end {
			t.Errorf("%s: records up to %d of %d", tc.dir, next, tc.end)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOurLogRebuildsKafkasIndexesByteForByte(t *testing.T) {
	const from = golden + "/single/node1/orders-0"
	dir := copyDir(t, from)
	for _, name := range []string{"00000000000000000000.index", "00000000000000000000.timeindex"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	l, _, err := log.Open(vfs.OS(), dir, log.Config{Settings: log.Settings{IndexIntervalBytes: 64}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00000000000000000000.index", "00000000000000000000.timeindex", "leader-epoch-checkpoint"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s\ngot  %x\nwant %x", name, got, want)
		}
	}
}
