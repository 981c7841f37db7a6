package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
	"github.com/highwater-io/highwater/pkg/wire"
)

// testBroker is the data side of node 0 over a file system in memory. No loop runs, and no controller is known: it
// does what the images say that the test applies.
type testBroker struct {
	*broker
	t      *testing.T
	image  *metadata.Image
	offset ident.Offset
}

const testDataDir = "/data"

func newTestBroker(t *testing.T, fsys vfs.FS) *testBroker {
	t.Helper()
	if err := fsys.MkdirAll(testDataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		NodeID: 0, Data: true, DirectoryID: testUUID(9, 0), DataDir: testDataDir, Timing: DefaultTiming(),
		Shared: SharedConfig{ClusterID: ident.UUID{0: 7, 15: 200}, Defaults: Defaults{
			ReplicaLagTimeMax: Duration(time.Hour), MinInSyncReplicas: 1, ReplicationFactor: 1, Partitions: 1,
		}},
	}
	dialer := &wire.Dialer{Timeout: cfg.Timing.RequestTimeout}
	controllers := newControllerChannel(&wire.Pool{Dialer: dialer}, cfg.Timing.RequestTimeout)
	controllers.setLeader(raft.Leadership{Leader: ident.NoNode, Epoch: ident.UnknownEpoch})
	incarnation := ident.UUID{0: 1, 15: 99}
	b, err := newBroker(cfg, slog.New(slog.DiscardHandler), newClock(), newLogDir(fsys, testDataDir, 0), incarnation, controllers, dialer,
		newFactStream(incarnation), newMetrics(), func(err error) { t.Errorf("the broker stops: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.offlineLoop(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); b.removals.stop() })
	return &testBroker{broker: b, t: t, image: metadata.Empty()}
}

// apply commits records and has the broker follow them until all logs are open.
func (b *testBroker) apply(records ...metadata.Record) {
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
	b.openings.working.Wait()
}

// register commits the registrations of this broker, of its own incarnation, and of others.
func (b *testBroker) register(others ...ident.NodeID) {
	b.t.Helper()
	b.apply(b.registrations(others...)...)
}

func (b *testBroker) registrations(others ...ident.NodeID) []metadata.Record {
	var records []metadata.Record
	for _, id := range append([]ident.NodeID{0}, others...) {
		r := &metadata.RegisterBrokerRecord{Version: 3, BrokerID: id, BrokerEpoch: int64(100 + id), IncarnationID: testUUID(8, id), LogDirs: []ident.UUID{testUUID(9, id)}}
		if id == 0 {
			r.IncarnationID = b.incarnation
		}
		records = append(records, r)
	}
	return records
}

// topicRecords make a topic with partitions that this broker leads alone, unless change says otherwise.
func topicRecords(name string, id ident.UUID, partitions int32, change func(*metadata.PartitionRecord)) []metadata.Record {
	records := []metadata.Record{&metadata.TopicRecord{Name: name, TopicID: id}}
	for i := range partitions {
		p := &metadata.PartitionRecord{
			PartitionID: i, TopicID: id, Replicas: []ident.NodeID{0}, ISR: []ident.NodeID{0}, Leader: 0, LeaderEpoch: 1, PartitionEpoch: 1,
			Directories: []ident.UUID{testUUID(9, 0)},
		}
		if change != nil {
			change(p)
		}
		records = append(records, p)
	}
	return records
}

// hostedReplica is a replica that must be here.
func (b *testBroker) hostedReplica(topic ident.UUID, index int32) *replica {
	b.t.Helper()
	r, ok := b.replica(ident.TopicPartition{Topic: topic, Index: index})
	if !ok {
		b.t.Fatalf("no replica of %s-%d", topic, index)
	}
	return r
}

// ask hands a request to a handler; the decoded answer comes into the channel, which has room for one too many.
func (b *testBroker) ask(ctx context.Context, handle func(*wire.Request), body kmsg.Request) chan kmsg.Response {
	answers := make(chan kmsg.Response, 2)
	h := wire.Header{Key: body.Key(), Version: body.GetVersion(), CorrelationID: 1}
	req := wire.NewRequest(ctx, h, body, wire.Anonymous, nil, func(raw []byte, err error) {
		if err != nil {
			b.t.Errorf("%s: %v", kmsg.NameForKey(body.Key()), err)
			return
		}
		resp := body.ResponseKind()
		resp.SetVersion(body.GetVersion())
		if _, err := wire.ParseResponse(raw, resp); err != nil {
			b.t.Errorf("the answer to %s: %v", kmsg.NameForKey(body.Key()), err)
		}
		answers <- resp
	})
	req.Listener = wire.External
	handle(req)
	return answers
}

// write produces one record of a value with acks=1 and returns its answer.
func (b *testBroker) write(topic string, index int32, id ident.UUID, value string) kmsg.ProduceResponseTopicPartition {
	b.t.Helper()
	return b.writeBatch(topic, index, id, batch.NewBuilder(0, -1, 1000).Append(nil, []byte(value)).Build())
}

func (b *testBroker) writeBatch(topic string, index int32, id ident.UUID, records []byte) kmsg.ProduceResponseTopicPartition {
	b.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 12, 1, 10_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, id
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition = index
	p.Records = records
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return (<-b.ask(b.t.Context(), b.produce, req)).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

func (b *testBroker) mustWrite(topic string, index int32, id ident.UUID, value string) {
	b.t.Helper()
	if p := b.write(topic, index, id, value); p.ErrorCode != 0 {
		b.t.Fatalf("produce to %s-%d: code %d", topic, index, p.ErrorCode)
	}
}

// fetchRequest reads the partitions 0 to n-1 of a topic from the given offsets on.
func fetchRequest(topic ident.UUID, wait time.Duration, minBytes int32, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 16, int32(wait.Milliseconds()), minBytes, 1<<20
	wire.SetFetchReplica(req, -1, -1)
	t := kmsg.NewFetchRequestTopic()
	t.TopicID = topic
	for i, offset := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.CurrentLeaderEpoch, p.PartitionMaxBytes = int32(i), offset, -1, 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	if len(offsets) > 0 {
		req.Topics = append(req.Topics, t)
	}
	return req
}

// parked counts the fetches that wait at a replica.
func (r *replica) parked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.fetches)
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	c := &testCluster{t: t}
	c.eventually(what, func() error {
		if !check() {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

// runTimers runs the broker's timers until the test ends.
func (b *testBroker) runTimers() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.timers.run(ctx) })
	b.t.Cleanup(func() { cancel(); running.Wait() })
}

// KAFKA-8442: a partition without a leader shows the last ISR it had, not none.
func TestMetadataOfALeaderlessPartitionShowsItsLastISR(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, func(p *metadata.PartitionRecord) { p.Leader = ident.NoNode })...)
	topic, ok := b.image.Topic("orders")
	if !ok {
		t.Fatal("no topic")
	}
	got := b.describeTopic(b.image, topic).Partitions[0]
	if got.ErrorCode != kerr.LeaderNotAvailable.Code || got.Leader != -1 || !slices.Equal(got.ISR, []int32{0}) || !slices.Equal(got.Replicas, []int32{0}) {
		t.Fatalf("%+v", got)
	}
}
