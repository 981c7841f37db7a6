package node

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// gate is a disk on which reading one partition's records waits until the test lets it go on.
type gate struct {
	vfs.FS
	once    sync.Once
	reached chan struct{}
	goOn    chan struct{}
}

func newGate(fsys vfs.FS, dir string) *gate {
	g := &gate{reached: make(chan struct{}), goOn: make(chan struct{})}
	g.FS = vfs.Inject(fsys, func(op, path string) error {
		if op == vfs.OpRead && strings.HasPrefix(path, filepath.Join(testDataDir, dir)+"/") && strings.HasSuffix(path, ".log") {
			g.once.Do(func() { close(g.reached) })
			<-g.goOn
		}
		return nil
	})
	return g
}

// killedBroker is a disk whose node was killed after it had written two records to each partition of a topic.
func killedBroker(t *testing.T, partitions int32) *vfs.Mem {
	fsys := vfs.NewMem()
	b := newTestBroker(t, fsys)
	b.register()
	b.apply(topicRecords("orders", ordersID, partitions, nil)...)
	for i := range partitions {
		b.mustWrite("orders", i, ordersID, "one")
		b.mustWrite("orders", i, ordersID, "two")
	}
	if err := b.checkpoint(); err != nil {
		t.Fatal(err)
	}
	return fsys
}

// follow commits records without waiting for the logs that are opened by them.
func (b *testBroker) follow(records ...metadata.Record) {
	b.t.Helper()
	delta := metadata.NewDelta(b.image)
	for _, r := range records {
		if err := delta.Replay(r); err != nil {
			b.t.Fatal(err)
		}
	}
	b.offset++
	b.image = delta.Image(b.offset, 1)
	b.metadataChanged(delta, b.image)
}

func TestNodeFollowsMetadataAndStaysFencedWhileItRecoversItsLogs(t *testing.T) {
	g := newGate(killedBroker(t, 3), "orders-1")
	b := newTestBroker(t, g)
	b.cfg.RecoveryThreads = 2
	b.follow(append(topicRecords("orders", ordersID, 3, nil), b.registrations(1)...)...)
	<-g.reached
	eventually(t, "the other logs are open", func() bool {
		for _, i := range []int32{0, 2} {
			if _, ok := b.replica(ident.TopicPartition{Topic: ordersID, Index: i}); !ok {
				return false
			}
		}
		return true
	})
	// Metadata goes on: a log that is open hears of a new leader.
	b.follow(&metadata.PartitionChangeRecord{PartitionID: 0, TopicID: ordersID, Leader: 1, Replicas: []ident.NodeID{0, 1}, ISR: []ident.NodeID{0, 1}})
	if got := b.hostedReplica(ordersID, 0).partition.Core(); got.Role() != replication.Follower || got.CurrentLeader() != 1 {
		t.Errorf("%v of leader %d", got.Role(), got.CurrentLeader())
	}
	if req := b.lifecycle.heartbeatRequest(); !req.WantFence || req.CurrentMetadataOffset != int64(b.offset) {
		t.Errorf("heartbeat %+v, want one of a fenced broker at %d", req, b.offset)
	}
	b.lifecycle.brokerEpoch = 100
	if err := b.lifecycle.ready(); err == nil || !strings.Contains(err.Error(), "2 of 3 logs") {
		t.Errorf("ready: %v", err)
	}
	if logs, bytes, read := b.openings.progress.remaining(); logs != 1 || bytes <= 0 || read != 2*bytes {
		t.Errorf("%d logs, %d bytes remain, %d were read", logs, bytes, read)
	}
	if code := b.write("orders", 1, ordersID, "v").ErrorCode; code != kerr.NotLeaderForPartition.Code {
		t.Errorf("code %d of a log that is not open", code)
	}

	close(g.goOn)
	b.openings.working.Wait()
	if req := b.lifecycle.heartbeatRequest(); req.WantFence {
		t.Error("it asks to stay fenced though all logs are open")
	}
	if end := b.hostedReplica(ordersID, 1).partition.Log().EndOffset(); end != 2 {
		t.Errorf("the log ends at %d", end)
	}
	if logs, bytes, _ := b.openings.progress.remaining(); logs != 0 || bytes != 0 {
		t.Errorf("%d logs, %d bytes remain", logs, bytes)
	}
}

func TestReplicaThatGoesWhileItIsOpenedLeavesRoomForItsNamesake(t *testing.T) {
	fsys := killedBroker(t, 1)
	g := newGate(fsys, "orders-0")
	b := newTestBroker(t, g)
	b.follow(append(topicRecords("orders", ordersID, 1, nil), b.registrations()...)...)
	<-g.reached
	namesake := ident.UUID{0: 3, 15: 2}
	b.follow(append([]metadata.Record{&metadata.RemoveTopicRecord{TopicID: ordersID}}, topicRecords("orders", namesake, 1, nil)...)...)
	close(g.goOn)
	b.openings.working.Wait()
	b.removals.working.Wait()
	if got := b.write("orders", 0, namesake, "v"); got.ErrorCode != 0 || got.BaseOffset != 0 {
		t.Errorf("code %d, offset %d in the new topic", got.ErrorCode, got.BaseOffset)
	}
	if _, ok := b.replica(ident.TopicPartition{Topic: ordersID}); ok {
		t.Error("the old topic's replica is still here")
	}
	if dirs := partitionDirs(t, fsys); len(dirs) != 1 || dirs[0] != "orders-0" {
		t.Errorf("directories %q", dirs)
	}
	if !b.lifecycle.caughtUp {
		t.Error("the node still waits for the log that went")
	}
}

func partitionDirs(t *testing.T, fsys vfs.FS) (dirs []string) {
	t.Helper()
	entries, err := fsys.ReadDir(testDataDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, e.Name())
		}
	}
	return dirs
}

func TestStopInTheMiddleOfARecoveryIsNotClean(t *testing.T) {
	fsys := killedBroker(t, 2)
	g := newGate(fsys, "orders-1")
	b := newTestBroker(t, g)
	b.follow(append(topicRecords("orders", ordersID, 2, nil), b.registrations()...)...)
	<-g.reached
	stopped := make(chan error)
	go func() { stopped <- (&Node{cfg: b.cfg, fs: fsys, broker: b.broker}).closeBroker() }()
	<-b.openings.ctx.Done()
	close(g.goOn)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if _, ok := b.replica(ident.TopicPartition{Topic: ordersID, Index: 1}); ok {
		t.Error("the recovery went on to its end")
	}
	if _, clean, err := log.TakeCleanShutdown(fsys, testDataDir); err != nil || clean {
		t.Fatalf("clean %v, %v, though one log was never looked at", clean, err)
	}
}

func TestLogThatWasNotOpenAtTheCleanStopIsRecovered(t *testing.T) {
	fsys := killedBroker(t, 1)
	stop := func(b *testBroker) {
		t.Helper()
		if err := (&Node{cfg: b.cfg, fs: fsys, broker: b.broker}).closeBroker(); err != nil {
			t.Fatal(err)
		}
	}
	// The partition is not assigned to the node any more when it comes back; nobody opens its log, nor deletes it, since
	// it does not say of which topic it is.
	if err := fsys.Remove(filepath.Join(testDataDir, "orders-0", log.PartitionMetadataFile)); err != nil {
		t.Fatal(err)
	}
	b := newTestBroker(t, fsys)
	b.register()
	stop(b)
	// After a clean stop it is.
	b = newTestBroker(t, fsys)
	b.register()
	if !b.cleanStart {
		t.Fatal("the stop was not clean")
	}
	_, _, before := b.openings.progress.remaining()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	if _, _, read := b.openings.progress.remaining(); read == before {
		t.Fatal("the log that a crash left was taken as it was")
	}
}

func TestRemovedReplicaIsDeletedAsideAndTriedAgain(t *testing.T) {
	mem := vfs.NewMem()
	var mu sync.Mutex
	broken, attempts := true, 0
	fsys := vfs.Inject(mem, func(op, path string) error {
		mu.Lock()
		defer mu.Unlock()
		if op == vfs.OpRemove && strings.Contains(path, doomedSuffix) && broken {
			attempts++
			return errors.New("device or resource busy")
		}
		return nil
	})
	b := newTestBroker(t, fsys)
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	b.mustWrite("orders", 0, ordersID, "v")
	remove := func() {
		b.apply(&metadata.PartitionChangeRecord{PartitionID: 0, TopicID: ordersID, Replicas: []ident.NodeID{1}, ISR: []ident.NodeID{1}, Leader: 1})
	}
	remove()
	eventually(t, "a first attempt", func() bool { mu.Lock(); defer mu.Unlock(); return attempts > 0 })
	// It comes back and goes again before the first copy is gone.
	b.apply(&metadata.PartitionChangeRecord{PartitionID: 0, TopicID: ordersID, Replicas: []ident.NodeID{0}, ISR: []ident.NodeID{0}, Leader: 0})
	if got := b.write("orders", 0, ordersID, "v"); got.ErrorCode != 0 || got.BaseOffset != 0 {
		t.Fatalf("code %d, offset %d of a replica that is here anew", got.ErrorCode, got.BaseOffset)
	}
	remove()
	stem := "orders-0." + ordersID.String()
	if dirs := partitionDirs(t, mem); len(dirs) != 2 || dirs[0] != stem+"-delete" || dirs[1] != stem+"~1-delete" {
		t.Fatalf("directories %q", dirs)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	b.removals.working.Wait()
	if dirs := partitionDirs(t, mem); len(dirs) != 0 {
		t.Fatalf("directories %q are left", dirs)
	}
	gone := 0
	for _, f := range b.facts.after(t.Context(), 0).Facts {
		if f.Kind == nodefact.ReplicaDeleted && f.TopicID == ordersID && f.Topic == "orders" && f.Reason == reassigned {
			gone++
		}
	}
	if gone != 2 {
		t.Fatalf("%d facts of deleted copies", gone)
	}
}

func TestDoomedNamesReadBack(t *testing.T) {
	for n := range 3 {
		topic, id, ok := parseDoomed(doomedName("my.topic-delete-7", ordersID, n, doomedSuffix), doomedSuffix)
		if !ok || topic != "my.topic-delete" || id != (ident.TopicPartition{Topic: ordersID, Index: 7}) {
			t.Errorf("%d: %q, %v, %v", n, topic, id, ok)
		}
	}
	for _, name := range []string{"orders-0", "orders-delete", "a." + ordersID.String() + "-delete", "orders-1." + ordersID.String() + "~x-delete"} {
		if _, _, ok := parseDoomed(name, doomedSuffix); ok {
			t.Errorf("%s is taken for a doomed directory", name)
		}
	}
}
