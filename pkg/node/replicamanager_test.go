package node

import (
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func TestNamesakeOfATopicDeletedWhileTheNodeWasDownBeginsAnew(t *testing.T) {
	fsys := vfs.NewMem()
	before := newTestBroker(t, fsys)
	before.register()
	before.apply(topicRecords("orders", ordersID, 1, nil)...)
	before.mustWrite("orders", 0, ordersID, "of the old topic")
	if err := before.closeAll(); err != nil {
		t.Fatal(err)
	}
	// Retention moved the old topic's log start.
	before.checkpoints.note("orders", 0, 70, 70, 70)
	if err := before.checkpoints.write(); err != nil {
		t.Fatal(err)
	}

	namesake := ident.UUID{0: 3, 15: 2}
	b := newTestBroker(t, fsys)
	b.register()
	b.apply(topicRecords("orders", namesake, 1, nil)...)
	l := b.hostedReplica(namesake, 0).partition.Log()
	if l.StartOffset() != 0 || l.EndOffset() != 0 {
		t.Fatalf("the new topic's log holds %d to %d", l.StartOffset(), l.EndOffset())
	}
	if got := b.write("orders", 0, namesake, "v"); got.ErrorCode != 0 || got.BaseOffset != 0 {
		t.Fatalf("code %d, offset %d", got.ErrorCode, got.BaseOffset)
	}
	// The old records are moved aside first, and deleted later.
	if _, err := fsys.Stat(filepath.Join(testDataDir, "orders-0."+ordersID.String()+"-stray")); err != nil {
		t.Fatal(err)
	}
}

func TestDeletionThatACrashCutShortIsFinished(t *testing.T) {
	fsys := vfs.NewMem()
	doomed := "orders-0." + ordersID.String() + "-delete"
	keep := []string{"my.topic-delete", "orders-delete", "a." + ordersID.String() + "-delete", "orders-1." + ordersID.String() + "-stray"}
	for _, name := range append([]string{doomed}, keep...) {
		if err := fsys.MkdirAll(filepath.Join(testDataDir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	newTestBroker(t, fsys).removals.working.Wait()
	if _, err := fsys.Stat(filepath.Join(testDataDir, doomed)); err == nil {
		t.Errorf("%s is still there", doomed)
	}
	for _, name := range keep {
		if _, err := fsys.Stat(filepath.Join(testDataDir, name)); err != nil {
			t.Errorf("%s was removed: %v", name, err)
		}
	}
}

func TestDeletedTopicLeavesNoDirectoryAndNoCheckpoint(t *testing.T) {
	fsys := vfs.NewMem()
	b := newTestBroker(t, fsys)
	b.register()
	b.apply(topicRecords("orders", ordersID, 2, nil)...)
	b.mustWrite("orders", 1, ordersID, "v")
	if err := b.checkpoint(); err != nil {
		t.Fatal(err)
	}
	r := b.hostedReplica(ordersID, 1)
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
	// A checkpoint that had the replica in hand comes too late to bring its offsets back.
	b.replicas.Store(r.id, r)
	if err := b.checkpoint(); err != nil {
		t.Fatal(err)
	}
	if at := b.checkpoints.highWatermark("orders", 1); at != 0 {
		t.Errorf("the checkpoint keeps %d of a topic that is gone", at)
	}
}

func TestDiskErrorTakesAllReplicasOfTheNodeOffline(t *testing.T) {
	for name, breaks := range map[string]string{"append": "orders-0", "open": "later-0"} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			fsys := vfs.Inject(vfs.NewMem(), func(op, path string) error {
				if broken.Load() && strings.Contains(path, breaks) && op != vfs.OpClose {
					return errors.New("input/output error")
				}
				return nil
			})
			b := newTestBroker(t, fsys)
			b.register()
			b.apply(topicRecords("orders", ordersID, 2, nil)...)
			broken.Store(true)
			laterID := ident.UUID{0: 3, 15: 9}
			if breaks == "orders-0" {
				if got := b.write("orders", 0, ordersID, "v"); got.ErrorCode != kerr.KafkaStorageError.Code {
					t.Fatalf("code %d", got.ErrorCode)
				}
			}
			b.apply(topicRecords("later", laterID, 1, nil)...)
			eventually(t, "the replicas are failed", func() bool {
				r := b.hostedReplica(ordersID, 1)
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.partition.Core().Role() == replication.Failed
			})
			for _, got := range []kmsg.ProduceResponseTopicPartition{
				b.write("orders", 1, ordersID, "v"), b.write("later", 0, laterID, "v"),
			} {
				if got.ErrorCode != kerr.KafkaStorageError.Code {
					t.Errorf("code %d, want KAFKA_STORAGE_ERROR", got.ErrorCode)
				}
			}
			if b.lifecycle.ready() == nil {
				t.Error("the node says that it is ready")
			}
		})
	}
}

func TestDamagedCheckpointCountsAsMissing(t *testing.T) {
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll(testDataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		t.Helper()
		if err := vfs.WriteFileAtomic(fsys, filepath.Join(testDataDir, file), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write(log.HighWatermarkCheckpointFile, "0\n2\norders 0 5\n")
	write(log.RecoveryPointCheckpointFile, "0\n1\norders 0 7\n")
	b := newTestBroker(t, fsys)
	if got := b.checkpoints.highWatermark("orders", 0); got != 0 {
		t.Errorf("high watermark %d of a file that announces more than it has", got)
	}
	if got := b.checkpoints.recoveryPoint("orders", 0); got != 7 {
		t.Errorf("recovery point %d, want 7", got)
	}
	if err := b.checkpoint(); err != nil {
		t.Fatal(err)
	}
	if offsets, err := log.ReadOffsetCheckpoint(fsys, testDataDir, log.HighWatermarkCheckpointFile); err != nil || len(offsets) != 0 {
		t.Errorf("the file is %v, %v after the next checkpoint", offsets, err)
	}
	if offsets, err := log.ReadOffsetCheckpoint(fsys, testDataDir, log.RecoveryPointCheckpointFile); err != nil || len(offsets) != 1 {
		t.Errorf("a partition that is not opened lost its recovery point: %v, %v", offsets, err)
	}
}

func TestSegmentSizeFollowsTheTopicsConfiguration(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	small := "1048576"
	b.apply(&metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: "orders", Name: "segment.bytes", Value: &small})
	value := strings.Repeat("v", 700_000)
	for range 3 {
		b.mustWrite("orders", 0, ordersID, value)
	}
	if n := len(b.hostedReplica(ordersID, 0).partition.Log().Segments()); n != 3 {
		t.Fatalf("%d segments", n)
	}
}

func TestTimersCallInTheOrderOfDeadlines(t *testing.T) {
	tm := newTimers(newClock())
	a, b, c := &replica{topic: "a"}, &replica{topic: "b"}, &replica{topic: "c"}
	now := tm.clock.now()
	later := now.Add(time.Hour)
	tm.set(a, later)
	<-tm.kick
	tm.set(b, later.Add(time.Second))
	if len(tm.kick) != 0 {
		t.Fatal("a later deadline wakes the loop")
	}
	tm.set(b, now)
	<-tm.kick // it is the earliest now
	tm.set(c, now)
	tm.set(c, ident.Never)
	if due, next := tm.due(); len(due) != 1 || due[0] != b || next != later {
		t.Fatalf("%d due, next %v", len(due), next)
	}
	tm.set(a, ident.Never)
	tm.set(a, ident.Never)
	if due, next := tm.due(); len(due) != 0 || next != ident.Never || len(tm.byRep) != 0 {
		t.Fatalf("%d due, next %v, %d entries", len(due), next, len(tm.byRep))
	}
}

func TestRecoveryPointFollowsSealedSegmentsWithoutHoldingUpAppends(t *testing.T) {
	var hold atomic.Bool
	syncing, goOn := make(chan struct{}, 1), make(chan struct{})
	fsys := vfs.Inject(vfs.NewMem(), func(op, path string) error {
		if strings.HasSuffix(path, ".log") && op == vfs.OpSync && hold.CompareAndSwap(true, false) {
			syncing <- struct{}{}
			<-goOn
		}
		return nil
	})
	b := newTestBroker(t, fsys)
	b.register()
	small := "1048576"
	b.apply(append(topicRecords("orders", ordersID, 1, nil),
		&metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: "orders", Name: "segment.bytes", Value: &small})...)
	r := b.hostedReplica(ordersID, 0)
	recoveryPoint := func() ident.Offset {
		t.Helper()
		if err := b.checkpoint(); err != nil {
			t.Fatal(err)
		}
		return b.checkpoints.recoveryPoint("orders", 0)
	}
	value := strings.Repeat("v", 700_000)
	b.mustWrite("orders", 0, ordersID, value)
	r.flushSealed()
	if at := recoveryPoint(); at != 0 {
		t.Fatalf("recovery point %d although no segment was sealed", at)
	}
	b.mustWrite("orders", 0, ordersID, value) // seals the first

	hold.Store(true)
	done := make(chan struct{})
	go func() { defer close(done); r.flushSealed() }()
	<-syncing
	b.mustWrite("orders", 0, ordersID, value) // the disk is at work, the replica is free
	close(goOn)
	<-done
	if at := recoveryPoint(); at != 2 {
		t.Fatalf("recovery point %d, want what the flush covered", at)
	}

	// One that is under way when the replica goes ends in order.
	b.mustWrite("orders", 0, ordersID, value)
	goOn = make(chan struct{})
	hold.Store(true)
	done = make(chan struct{})
	go func() { defer close(done); r.flushSealed() }()
	<-syncing
	close(goOn)
	b.apply(&metadata.RemoveTopicRecord{TopicID: ordersID})
	<-done
	if b.dir.offline() != nil {
		t.Fatalf("the directory is offline: %s", b.dir.offline())
	}
}

func TestCheckpointsAreLoweredBeforeATruncation(t *testing.T) {
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll(testDataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := newTestBroker(t, fsys)
	b.checkpoints.note("orders", 0, 9, 9, 7)
	b.checkpoints.note("orders", 1, 9, 9, 7)
	b.checkpoints.noteClean("orders", 0, 9)
	b.checkpoints.noteClean("orders", 1, 9)
	if err := b.checkpoints.write(); err != nil {
		t.Fatal(err)
	}
	if err := b.checkpoints.lower("orders", 0, 8, 8); err != nil {
		t.Fatal(err)
	}
	if err := b.checkpoints.lower("orders", 1, 0, 3); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][2]ident.Offset{
		log.RecoveryPointCheckpointFile: {8, 0}, log.CleanerCheckpointFile: {8, 0},
		log.LogStartCheckpointFile: {7, 3}, log.HighWatermarkCheckpointFile: {9, 9},
	} {
		offsets, err := log.ReadOffsetCheckpoint(fsys, testDataDir, file)
		if got := [2]ident.Offset{offsets[log.TopicIndex{Topic: "orders"}], offsets[log.TopicIndex{Topic: "orders", Index: 1}]}; err != nil || got != want {
			t.Errorf("%s: %v, want %v, %v", file, got, want, err)
		}
	}
}
