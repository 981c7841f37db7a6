package log

import (
	"math/rand/v2"
	"testing"

	"github.com/highwater-io/highwater/pkg/vfs"
)

func TestFlushBesideAnotherSyncsWhatThatOneHasNotYet(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, mem, Config{})
	mustAppend(t, l, 1, 2, 20)
	slow, err := l.BeginFlush()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, 2, 1, 20)
	// The owner needs a flush of its own, while the slow one has not got to the disk.
	mustFlush(t, l)
	if l.FlushedOffset() != 3 {
		t.Fatalf("flushed %d", l.FlushedOffset())
	}
	after, _ := mustOpen(t, mem.CrashClone(rand.New(rand.NewPCG(1, 1)), 0), Config{})
	if after.EndOffset() != 3 {
		t.Fatalf("after a loss of power the log ends at %d of 3 that were flushed", after.EndOffset())
	}
	// The slow one must not put its older leader epochs over the newer ones.
	if _, err := l.EndFlush(slow, slow.Sync()); err != nil {
		t.Fatal(err)
	}
	table, err := readEpochs(mem, l.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if e, _ := table.Latest(); e != 2 || l.FlushedOffset() != 3 {
		t.Fatalf("the file's latest epoch is %d, flushed %d", e, l.FlushedOffset())
	}
}
