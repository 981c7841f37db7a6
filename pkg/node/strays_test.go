package node

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// whileDown leaves the directories of orders-0 and orders-1, of which metadata has another idea when the node is back.
func whileDown(t *testing.T) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	before := newTestBroker(t, fsys)
	before.register()
	before.apply(topicRecords("orders", ordersID, 2, nil)...)
	for i := range int32(2) {
		before.mustWrite("orders", i, ordersID, "v")
	}
	if err := before.closeAll(); err != nil {
		t.Fatal(err)
	}
	if err := before.checkpoint(); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func (b *testBroker) deletedFacts() (reasons []string) {
	noWait, cancel := context.WithCancel(b.t.Context())
	cancel()
	for _, f := range b.facts.after(noWait, 0).Facts {
		if f.Kind == nodefact.ReplicaDeleted {
			reasons = append(reasons, f.Topic+" "+f.Reason)
		}
	}
	return reasons
}

func TestReplicaThatWasGivenAwayWhileItsNodeWasDownIsDeleted(t *testing.T) {
	fsys := whileDown(t)
	b := newTestBroker(t, fsys)
	records := append(b.registrations(1), topicRecords("orders", ordersID, 2, func(p *metadata.PartitionRecord) {
		if p.PartitionID == 1 {
			p.Replicas, p.ISR, p.Leader = []ident.NodeID{1}, []ident.NodeID{1}, 1
		}
	})...)
	b.apply(records...)
	b.removals.working.Wait()
	if dirs := partitionDirs(t, fsys); !slices.Equal(dirs, []string{"orders-0"}) {
		t.Fatalf("directories %q are left", dirs)
	}
	if got := b.deletedFacts(); !slices.Equal(got, []string{"orders " + reassigned}) {
		t.Fatalf("facts of deletion: %q", got)
	}
	if at := b.checkpoints.highWatermark("orders", 1); at != 0 {
		t.Fatalf("the checkpoints keep %d", at)
	}
}

func TestReplicaWhoseTopicIsUnknownIsMovedAsideAndDeletedLater(t *testing.T) {
	fsys := whileDown(t)
	b := newTestBroker(t, fsys)
	b.cfg.Timing.StrayDelay = time.Hour
	b.register()
	aside := []string{"orders-0." + ordersID.String() + straySuffix, "orders-1." + ordersID.String() + straySuffix}
	for _, name := range aside {
		if _, err := fsys.Stat(filepath.Join(testDataDir, name, log.PartitionMetadataFile)); err != nil {
			t.Fatal(err)
		}
	}
	b.removals.stop()
	if got := b.deletedFacts(); len(got) != 0 {
		t.Fatalf("facts of deletion: %q", got)
	}
	b = newTestBroker(t, fsys) // and found by their names
	b.cfg.Timing.StrayDelay = time.Nanosecond
	b.register()
	b.removals.working.Wait()
	for _, name := range aside {
		if _, err := fsys.Stat(filepath.Join(testDataDir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if got := b.deletedFacts(); !slices.Equal(got, []string{"orders " + topicDeleted, "orders " + topicDeleted}) {
		t.Fatalf("facts of deletion: %q", got)
	}
}

func TestDirectoryThatDoesNotSayWhoseItIsStays(t *testing.T) {
	fsys := whileDown(t)
	if err := fsys.Remove(filepath.Join(testDataDir, "orders-0", log.PartitionMetadataFile)); err != nil {
		t.Fatal(err)
	}
	b := newTestBroker(t, fsys)
	b.cfg.Timing.StrayDelay = time.Nanosecond
	b.register()
	b.removals.working.Wait()
	if dirs := partitionDirs(t, fsys); !slices.Equal(dirs, []string{"orders-0"}) {
		t.Fatalf("directories %q are left", dirs)
	}
}

// TestRemovalDuringALongFsyncHoldsUpNoMetadata: a topic is deleted, made again and deleted while the disk works.
func TestRemovalDuringALongFsyncHoldsUpNoMetadata(t *testing.T) {
	mem := vfs.NewMem()
	var once sync.Once
	var armed atomic.Bool
	began, release := make(chan struct{}), make(chan struct{})
	b := newTestBroker(t, vfs.Inject(mem, func(op, path string) error {
		if armed.Load() && op == vfs.OpSync && strings.HasSuffix(path, "orders-0/00000000000000000000.log") {
			once.Do(func() { close(began); <-release })
		}
		return nil
	}))
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	r := b.hostedReplica(ordersID, 0)
	b.mustWrite("orders", 0, ordersID, "v")
	armed.Store(true)
	var flushing sync.WaitGroup
	flushing.Go(func() {
		r.mu.Lock()
		f, err := r.partition.Log().BeginFlush()
		r.mu.Unlock()
		if err == nil {
			err = f.Sync()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		_, _ = r.partition.Log().EndFlush(f, err)
	})
	<-began
	namesake := ident.UUID{0: 3, 15: 2}
	b.apply(&metadata.RemoveTopicRecord{TopicID: ordersID})
	b.apply(topicRecords("orders", namesake, 1, nil)...)
	if _, hosted := b.replica(ident.TopicPartition{Topic: namesake}); hosted {
		t.Fatal("two logs have one directory")
	}
	close(release)
	flushing.Wait()
	b.removals.working.Wait()
	b.openings.working.Wait()
	if l := b.hostedReplica(namesake, 0).partition.Log(); l.EndOffset() != 0 {
		t.Fatalf("the new topic's log ends at %d", l.EndOffset())
	}
	if dirs := partitionDirs(t, mem); !slices.Equal(dirs, []string{"orders-0"}) {
		t.Fatalf("directories %q", dirs)
	}
}
