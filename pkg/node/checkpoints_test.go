package node

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func TestCheckpointsAreWrittenWhenSomethingHasChangedAndAtACleanStop(t *testing.T) {
	var mu sync.Mutex
	var written []string
	fsys := vfs.Inject(vfs.NewMem(), func(op, path string) error {
		mu.Lock()
		defer mu.Unlock()
		if name, ok := strings.CutSuffix(filepath.Base(path), ".tmp"); ok && op == vfs.OpSync && slices.Contains(checkpointFiles, name) {
			written = append(written, name)
		}
		return nil
	})
	b := newTestBroker(t, fsys)
	checkpoint := func(want ...string) {
		t.Helper()
		mu.Lock()
		written = nil
		mu.Unlock()
		if err := b.checkpoint(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(written, want) {
			t.Fatalf("written %q, want %q", written, want)
		}
	}
	checkpoint() // there is nothing yet
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	checkpoint(checkpointFiles[1:]...) // the first is the cleaner's: nothing was compacted
	checkpoint()
	b.mustWrite("orders", 0, ordersID, "v")
	checkpoint(log.HighWatermarkCheckpointFile)
	if _, err := b.hostedReplica(ordersID, 0).partition.Log().Flush(); err != nil {
		t.Fatal(err)
	}
	checkpoint(log.RecoveryPointCheckpointFile)
	if got := <-b.deleteRecords("orders", 0, 1, 0); got.ErrorCode != 0 {
		t.Fatalf("code %d", got.ErrorCode)
	}
	checkpoint()
	mu.Lock()
	written = nil
	mu.Unlock()
	if err := (&Node{cfg: b.cfg, fs: fsys, broker: b.broker}).closeBroker(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(written, checkpointFiles) {
		t.Fatalf("a clean stop wrote %q", written)
	}
}
