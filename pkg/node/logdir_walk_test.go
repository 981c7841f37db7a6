package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// changes are the operations that change a directory.
var changes = map[string]bool{
	vfs.OpCreate: true, vfs.OpWrite: true, vfs.OpTruncate: true, vfs.OpSync: true, vfs.OpSyncDir: true,
	vfs.OpBack: true, vfs.OpRemove: true, vfs.OpRename: true, vfs.OpMkdir: true,
}

// faultyDisk fails the n-th change with an error, once: what is tried afterwards would succeed, and is noted.
type faultyDisk struct {
	mu     sync.Mutex
	failAt int // from 1 on; 0: never
	err    error

	seen   []string // changes until the one that failed
	failed string
	after  []string // changes that reached the disk though its directory was offline

	dir atomic.Pointer[logDir] // once it is known; until then nobody works side by side
}

func (d *faultyDisk) hook(op, path string) error {
	// Flushes and chores run side by side: one may be under way while the other's change fails. It is what comes once
	// the directory is offline that nobody may do, so that is looked at before this waits for the other to be through.
	dir := d.dir.Load()
	offline := dir == nil || dir.offline() != nil
	d.mu.Lock()
	defer d.mu.Unlock()
	if !changes[op] || op == vfs.OpMkdir && path == testDataDir { // which the test makes
		return nil
	}
	what := op + " " + strings.TrimPrefix(path, testDataDir)
	if d.failed != "" {
		if offline {
			d.after = append(d.after, what)
		}
		return nil
	}
	d.seen = append(d.seen, what)
	if len(d.seen) == d.failAt {
		d.failed = what
		return d.err
	}
	return nil
}

// diskWork has a broker do all that it does on its disk: open, append, roll, flush, checkpoint, retain, follow,
// truncate, remove, close. It returns how many records were acknowledged per partition.
func diskWork(b *testBroker) map[string]int {
	acked := map[string]int{}
	gone := ident.UUID{0: 3, 15: 9}
	write := func(topic string, index int32, id ident.UUID) {
		if p := b.write(topic, index, id, strings.Repeat("v", 300_000)); p.ErrorCode == 0 {
			acked[log.DirName(topic, index)]++
		} else if p.ErrorCode != kerr.KafkaStorageError.Code {
			b.t.Errorf("produce: code %d", p.ErrorCode)
		}
	}
	// What is done apart is waited for, so that each run makes the same changes.
	b.maintenance.limit = 1
	rest := func() {
		b.flusher.running.Wait() // of a log whose start has moved
		b.maintenance.running.Wait()
		b.removals.working.Wait()
	}
	b.register(1)
	small := func(topic, key, value string) metadata.Record {
		return &metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: topic, Name: key, Value: &value}
	}
	b.apply(append(topicRecords("orders", ordersID, 2, nil), small("orders", "segment.bytes", "1048576"), small("orders", "retention.ms", "-1"))...)
	b.apply(append(topicRecords("gone", gone, 1, nil), small("gone", "segment.bytes", "1048576"), small("gone", "retention.bytes", "1"))...)
	for range 8 {
		write("orders", 0, ordersID)
		rest()
		write("gone", 0, gone)
		rest()
	}
	write("orders", 1, ordersID)
	write("orders", 1, ordersID)
	rest()
	b.eachReplica(func(r *replica) { r.flushSealed(); rest() })
	if err := b.checkpoint(); err != nil {
		b.takeOffline(err)
	}
	b.eachReplica(func(r *replica) { b.retain(r); rest() })
	// It follows, and its leader does not have the last record.
	b.apply(&metadata.PartitionRecord{
		PartitionID: 1, TopicID: ordersID, Replicas: []ident.NodeID{0, 1}, ISR: []ident.NodeID{0, 1}, Leader: 1, LeaderEpoch: 2, PartitionEpoch: 2,
		Directories: []ident.UUID{testUUID(9, 0), testUUID(9, 1)},
	})
	if r, ok := b.replica(ident.TopicPartition{Topic: ordersID, Index: 1}); ok {
		r.do(func(now ident.Instant, p *exec.Partition) {
			if asked, ok := p.NextFetch(); ok {
				p.HandleFetchResponse(now, exec.FetchResponse{Asked: asked, Diverging: replication.EpochEnd{Epoch: 1, End: 1}})
				acked["orders-1"] = min(acked["orders-1"], 1)
			}
		})
	}
	rest()
	b.apply(&metadata.RemoveTopicRecord{TopicID: gone})
	rest()
	delete(acked, "gone-0")
	node := &Node{cfg: b.cfg, logger: b.logger, broker: b.broker}
	_ = node.closeBroker()
	return acked
}

// TestEveryDiskErrorTakesTheDirectoryOffline breaks each change that a broker makes on its disk, one after the other:
// nobody may go on as if nothing had happened, whoever the writer is.
func TestEveryDiskErrorTakesTheDirectoryOffline(t *testing.T) {
	clean := &faultyDisk{}
	diskWork(newTestBroker(t, vfs.Inject(vfs.NewMem(), clean.hook)))
	writers := []string{
		"create /orders-0", "write /orders-0/", "mkdir /orders-0", "partition.metadata",
		".index", ".timeindex", "leader-epoch-checkpoint", ".snapshot", "sync /orders-0/00000000000000000000.log", "syncdir /orders-0",
		log.HighWatermarkCheckpointFile, log.RecoveryPointCheckpointFile, log.LogStartCheckpointFile,
		"truncate /orders-1/", "remove /gone-0", "rename /gone-0", "create /" + log.CleanShutdownFile, "syncdir ",
	}
	all := strings.Join(clean.seen, "\n")
	for _, writer := range writers {
		if !strings.Contains(all, writer) {
			t.Errorf("the work does not reach %q", writer)
		}
	}
	// The file of the next segment is made ahead by the chores, or by whoever rolls before they come to it.
	if !strings.Contains(all, "create /orders-0/00000000000000000003.log") && !strings.Contains(all, "rename /orders-0/next-segment.tmp") {
		t.Error("the work begins no second segment")
	}
	if t.Failed() {
		t.Fatalf("changes of the disk:\n%s", all)
	}
	for at := 1; at <= len(clean.seen); at++ {
		for _, errno := range []syscall.Errno{syscall.EIO, []syscall.Errno{syscall.ENOSPC, syscall.EROFS}[at%2]} {
			t.Run(fmt.Sprintf("%d/%s", at, errno), func(t *testing.T) { breakChange(t, at, errno) })
		}
	}
}

func breakChange(t *testing.T, at int, errno syscall.Errno) {
	disk := &faultyDisk{failAt: at, err: errno}
	mem := vfs.NewMem()
	b := newTestBroker(t, vfs.Inject(mem, disk.hook))
	disk.dir.Store(b.dir)
	acked := diskWork(b)
	disk.mu.Lock()
	defer disk.mu.Unlock()
	op, path, _ := strings.Cut(disk.failed, " ")
	if disk.failed == "" {
		// Chores that come late leave some changes out: whoever rolls makes the next segment's file in their place.
		if len(disk.seen) < at-10 {
			t.Fatalf("the work has only %d changes", len(disk.seen))
		}
		return
	}
	failure := b.dir.offline()
	if failure == nil {
		t.Fatalf("%s failed and the directory is online", disk.failed)
	}
	want := map[syscall.Errno]string{syscall.EIO: nodefact.IOError, syscall.ENOSPC: nodefact.DiskFull, syscall.EROFS: nodefact.ReadOnly}[errno]
	if op == vfs.OpSync || op == vfs.OpSyncDir || op == vfs.OpBack {
		want = nodefact.IOError
	}
	if failure.reason != want || !errors.Is(failure, errno) || !strings.Contains(failure.Error(), "; ") {
		t.Errorf("reason %s, want %s: %v", failure.reason, want, failure)
	}
	for _, change := range disk.after {
		op, _, _ := strings.Cut(change, " ")
		if want != nodefact.DiskFull || op != vfs.OpRemove && op != vfs.OpRename && op != vfs.OpSyncDir {
			t.Errorf("after the failed %s the disk was changed: %s", disk.failed, change)
		}
	}
	req := b.lifecycle.heartbeatRequest()
	if len(req.OfflineLogDirs) != 1 || !req.WantFence || b.lifecycle.ready() == nil {
		t.Errorf("heartbeat %+v, ready %v", req, b.lifecycle.ready())
	}
	if !strings.Contains(path, log.CleanShutdownFile) && disk.failed != "syncdir " {
		if _, err := mem.Stat(filepath.Join(testDataDir, log.CleanShutdownFile)); err == nil {
			t.Error("the directory is marked as closed in order")
		}
	}
	// The next start, on a disk that works, has all that was acknowledged.
	next := newTestBroker(t, mem)
	next.apply(append(next.registrations(1), topicRecords("orders", ordersID, 2, nil)...)...)
	if f := next.dir.offline(); f != nil {
		t.Fatalf("the next start: %v", f)
	}
	for index := range int32(2) {
		end := next.hostedReplica(ordersID, index).partition.Log().EndOffset()
		if int(end) < acked[log.DirName("orders", index)] {
			t.Errorf("orders-%d ends at %d, %d records were acknowledged", index, end, acked[log.DirName("orders", index)])
		}
	}
}

func TestOfflineDirectoryFailsReplicasAndTellsAFact(t *testing.T) {
	mem := vfs.NewMem()
	b := newTestBroker(t, mem)
	b.register()
	b.apply(topicRecords("orders", ordersID, 2, nil)...)
	b.mustWrite("orders", 1, ordersID, "v")
	mem.SetReadOnly(testDataDir, true)
	if p := b.write("orders", 0, ordersID, "v"); p.ErrorCode != kerr.KafkaStorageError.Code {
		t.Fatalf("produce to a read-only disk: code %d", p.ErrorCode)
	}
	eventually(t, "the other replica is failed too", func() bool {
		return b.write("orders", 1, ordersID, "v").ErrorCode == kerr.KafkaStorageError.Code
	})
	answer := <-b.ask(t.Context(), b.fetch, fetchRequest(ordersID, 0, 0, 0, 0))
	for _, p := range answer.(*kmsg.FetchResponse).Topics[0].Partitions {
		if p.ErrorCode != kerr.KafkaStorageError.Code {
			t.Errorf("fetch: code %d", p.ErrorCode)
		}
	}
	var told []nodefact.Fact
	eventually(t, "the fact", func() bool {
		told = b.facts.after(t.Context(), 0).Facts
		return len(told) > 0
	})
	f := told[0]
	if f.Kind != nodefact.LogDirOffline || f.Reason != nodefact.ReadOnly || f.Index != -1 || !strings.Contains(f.Message, "make the volume writable") || time.Since(f.Time) > time.Hour {
		t.Errorf("fact %+v", f)
	}
}

func TestUnreadableCheckpointTakesTheDirectoryOfflineAndNotTheNode(t *testing.T) {
	for _, file := range []string{log.RecoveryPointCheckpointFile, log.LogStartCheckpointFile, log.HighWatermarkCheckpointFile} {
		b := newTestBroker(t, vfs.Inject(killedBroker(t, 1), func(op, path string) error {
			if op == vfs.OpRead && filepath.Base(path) == file {
				return syscall.EIO
			}
			return nil
		}))
		b.register()
		b.apply(topicRecords("orders", ordersID, 1, nil)...)
		if f := b.dir.offline(); f == nil || f.reason != nodefact.IOError {
			t.Errorf("%s can't be read: %v", file, f)
		}
		if code := b.write("orders", 0, ordersID, "v").ErrorCode; code != kerr.KafkaStorageError.Code {
			t.Errorf("produce: code %d", code)
		}
	}
}

// A sync may have begun before another write found the disk full. Its pages are lost all the same.
func TestSyncThatFailsOnAFullDiskIsRemembered(t *testing.T) {
	var d *logDir
	d = newLogDir(vfs.Inject(vfs.NewMem(), func(op, _ string) error {
		if op != vfs.OpSync {
			return nil
		}
		_ = d.fail(vfs.OpWrite, syscall.ENOSPC) // of another file, meanwhile
		return syscall.ENOSPC
	}), "/", 0)
	err := vfs.WriteFile(d, "/a", []byte("v"), true)
	if f := d.offline(); !errors.Is(err, syscall.ENOSPC) || f.reason != nodefact.IOError || f.comesBack() {
		t.Errorf("%v, offline %v", err, f)
	}
}

// Who starts on a full disk opens no log. Deleting topics makes room nevertheless.
func TestDeletedTopicLeavesAFullDiskOnWhichItsLogsWereNotOpened(t *testing.T) {
	fsys := killedBroker(t, 3)
	fsys.SetCapacity(testDataDir, 1)
	b := newTestBroker(t, fsys)
	_ = b.dir.fail(vfs.OpWrite, syscall.ENOSPC) // as openVolumes finds it
	b.register(1)
	b.apply(topicRecords("orders", ordersID, 3, nil)...)
	b.apply(&metadata.PartitionChangeRecord{PartitionID: 1, TopicID: ordersID, Leader: 1, Replicas: []ident.NodeID{1}, ISR: []ident.NodeID{1}})
	b.removals.working.Wait()
	for i, want := range []bool{true, false, true} {
		if _, err := fsys.Stat(filepath.Join(testDataDir, log.DirName("orders", int32(i)))); (err == nil) != want {
			t.Errorf("after partition 1 was moved away, orders-%d: %v", i, err)
		}
	}
	b.apply(&metadata.RemoveTopicRecord{TopicID: ordersID})
	b.removals.working.Wait()
	entries, err := fsys.ReadDir(testDataDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "orders") {
			t.Errorf("%s is left", e.Name())
		}
	}
	deleted := 0
	for _, f := range b.facts.after(t.Context(), 0).Facts {
		if f.Kind == nodefact.ReplicaDeleted {
			deleted++
		}
	}
	if deleted != 3 {
		t.Errorf("%d deletions were told", deleted)
	}
}

// Deleting is what makes room, so one directory that can't be removed must not end it for all others.
func TestFullDiskGoesOnRemovingAfterARemovalThatFailed(t *testing.T) {
	fsys := killedBroker(t, 2)
	failed := false
	b := newTestBroker(t, vfs.Inject(fsys, func(op, path string) error {
		if op == vfs.OpRemove && strings.Contains(path, "-delete") && !failed {
			failed = true
			return syscall.ENOSPC // as of a file system that copies on write
		}
		return nil
	}))
	b.register()
	b.apply(topicRecords("orders", ordersID, 2, nil)...)
	b.apply(&metadata.RemoveTopicRecord{TopicID: ordersID})
	b.removals.working.Wait()
	entries, err := fsys.ReadDir(testDataDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "orders") {
			t.Errorf("%s is left", e.Name())
		}
	}
	if f := b.dir.offline(); f == nil || f.reason != nodefact.DiskFull {
		t.Errorf("offline %v", f)
	}
}

// A topic may be deleted while a log of it is being opened, on a disk that turns out to be full.
func TestTopicThatIsDeletedWhileAFullDiskFailsToOpenItsLog(t *testing.T) {
	fsys := killedBroker(t, 1)
	g := newGate(fsys, "orders-0")
	b := newTestBroker(t, g)
	b.follow(append(topicRecords("orders", ordersID, 1, nil), b.registrations()...)...)
	<-g.reached
	_ = b.dir.fail(vfs.OpWrite, syscall.ENOSPC)
	b.follow(&metadata.RemoveTopicRecord{TopicID: ordersID})
	close(g.goOn)
	b.openings.working.Wait()
	b.removals.working.Wait()
	if _, err := fsys.Stat(filepath.Join(testDataDir, "orders-0")); err == nil {
		t.Error("orders-0 is left")
	}
}
