package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// deleteRecords asks for the deletion of the records below an offset and returns the answer of that partition.
func (b *testBroker) deleteRecords(topic string, index int32, before int64, timeout time.Duration) chan kmsg.DeleteRecordsResponseTopicPartition {
	b.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 2, int32(timeout.Milliseconds())
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Partition, rp.Offset = index, before
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	answers := b.ask(b.t.Context(), b.broker.deleteRecords, req)
	out := make(chan kmsg.DeleteRecordsResponseTopicPartition, 1)
	go func() { out <- (<-answers).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0] }()
	return out
}

// wantDeleted wants code and low watermark of an answer.
func wantDeleted(t *testing.T, got kmsg.DeleteRecordsResponseTopicPartition, code *kerr.Error, low int64) {
	t.Helper()
	want := int16(0)
	if code != nil {
		want = code.Code
	}
	if got.ErrorCode != want || got.LowWatermark != low {
		t.Errorf("code %d, low watermark %d; want %d, %d", got.ErrorCode, got.LowWatermark, want, low)
	}
}

// withNode1 gives a partition a second replica, in sync, on node 1.
func withNode1(p *metadata.PartitionRecord) {
	p.Replicas, p.ISR = []ident.NodeID{0, 1}, []ident.NodeID{0, 1}
	p.Directories = append(p.Directories, testUUID(9, 1))
}

func TestDeletedRecordsStayDeletedWhateverCrashes(t *testing.T) {
	fsys := vfs.NewMem()
	b := newTestBroker(t, fsys)
	if err := fsys.SyncDir("/"); err != nil { // the directory is there before the node is
		t.Fatal(err)
	}
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	for range 5 {
		b.mustWrite("orders", 0, ordersID, "v")
	}
	if _, err := b.hostedReplica(ordersID, 0).partition.Log().Flush(); err != nil {
		t.Fatal(err)
	}
	wantDeleted(t, <-b.deleteRecords("orders", 0, 3, time.Minute), nil, 3)
	wantDeleted(t, <-b.deleteRecords("orders", 0, 2, time.Minute), nil, 3) // is done already
	wantDeleted(t, <-b.deleteRecords("orders", 0, 6, time.Minute), kerr.OffsetOutOfRange, -1)

	b = newTestBroker(t, fsys.CrashClone(rand.New(rand.NewPCG(1, 2)), 0))
	b.apply(append(b.registrations(), topicRecords("orders", ordersID, 1, nil)...)...)
	if l := b.hostedReplica(ordersID, 0).partition.Log(); l.StartOffset() != 3 || l.EndOffset() != 5 {
		t.Fatalf("after the loss of power the log has %d to %d", l.StartOffset(), l.EndOffset())
	}
	wantDeleted(t, <-b.deleteRecords("orders", 0, -1, time.Minute), nil, 5)
}

func TestDeleteRecordsIsRefusedWhereItMustNotBe(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register(1)
	b.apply(topicRecords("orders", ordersID, 2, func(p *metadata.PartitionRecord) {
		if p.PartitionID == 1 {
			withNode1(p)
			p.Leader = 1
		}
	})...)
	b.mustWrite("orders", 0, ordersID, "v")
	wantDeleted(t, <-b.deleteRecords("unknown", 0, 0, time.Minute), kerr.UnknownTopicOrPartition, -1)
	wantDeleted(t, <-b.deleteRecords("orders", 2, 0, time.Minute), kerr.UnknownTopicOrPartition, -1)
	wantDeleted(t, <-b.deleteRecords("orders", 1, 0, time.Minute), kerr.NotLeaderForPartition, -1)
	for policy, code := range map[string]*kerr.Error{"compact": kerr.PolicyViolation, "compact,delete": nil} {
		b.apply(&metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: "orders", Name: "cleanup.policy", Value: &policy})
		low := int64(1)
		if code != nil {
			low = -1
		}
		wantDeleted(t, <-b.deleteRecords("orders", 0, 1, time.Minute), code, low)
	}
	b.apply(&metadata.RemoveTopicRecord{TopicID: ordersID})
	wantDeleted(t, <-b.deleteRecords("orders", 0, 1, time.Minute), kerr.UnknownTopicOrPartition, -1)
}

func TestDeleteRecordsWaitsForTheFollowerOrTheTime(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.runTimers()
	b.register(1)
	b.apply(topicRecords("orders", ordersID, 1, withNode1)...)
	b.mustWrite("orders", 0, ordersID, "v")
	r := b.hostedReplica(ordersID, 0)
	fetch := func(start ident.Offset) {
		r.do(func(now ident.Instant, p *exec.Partition) {
			res := p.Fetch(now, exec.Fetch{Fetch: replication.Fetch{Replica: 1, BrokerEpoch: 101, LeaderEpoch: 1, Offset: 1, LastFetchedEpoch: 1, LogStart: start}})
			if res.Code != 0 {
				t.Errorf("fetch: code %d", res.Code)
			}
		})
	}
	fetch(0)
	wantDeleted(t, <-b.deleteRecords("orders", 0, 1, 10*time.Millisecond), kerr.RequestTimedOut, 0)
	answer := b.deleteRecords("orders", 0, 1, time.Hour)
	eventually(t, "the request waits", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.deletes) == 1 })
	fetch(1)
	wantDeleted(t, <-answer, nil, 1)
}

func TestDeleteRecordsWhoseCheckpointFailsIsNotSuccess(t *testing.T) {
	var broken atomic.Bool
	b := newTestBroker(t, vfs.Inject(vfs.NewMem(), func(op, path string) error {
		if broken.Load() && op == vfs.OpSync && strings.HasPrefix(filepath.Base(path), log.LogStartCheckpointFile) {
			return errors.New("input/output error")
		}
		return nil
	}))
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	b.mustWrite("orders", 0, ordersID, "v")
	broken.Store(true)
	wantDeleted(t, <-b.deleteRecords("orders", 0, 1, time.Minute), kerr.KafkaStorageError, -1)
	if b.dir.offline() == nil {
		t.Fatal("the directory is still in service")
	}
}

func TestClientsDeleteRecords(t *testing.T) {
	c := newCluster(t, 1, 3)
	c.waitReady(1000, 0, 1, 2)
	c.createTopic("orders", 1, 3, nil)
	client := c.client()
	c.produce(client, "orders", 0, 10)
	ctx, cancel := context.WithTimeout(t.Context(), testscale.Duration(30*time.Second))
	defer cancel()
	admin := kadm.NewClient(client)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "orders", Partition: 0, At: 7})
	results, err := admin.DeleteRecords(ctx, offsets)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := results.Lookup("orders", 0); !ok || r.Err != nil || r.LowWatermark != 7 {
		t.Fatalf("got %+v", r)
	}
	starts, err := admin.ListStartOffsets(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := starts.Lookup("orders", 0); !ok || o.Err != nil || o.Offset != 7 {
		t.Fatalf("the log starts at %+v", o)
	}
	// All three have followed when the answer is there: what they wrote down says so.
	for id := range ident.NodeID(3) {
		c.eventually("the log start is on the disk", func() error {
			starts, err := log.ReadOffsetCheckpoint(vfs.OS(), c.nodes[id].config.DataDir, log.LogStartCheckpointFile)
			if err != nil || starts[log.TopicIndex{Topic: "orders"}] != 7 {
				return errors.Join(err, errors.New("not yet"))
			}
			return nil
		})
	}
}
