package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func topicConfigs(topic string, pairs ...string) []metadata.Record {
	var records []metadata.Record
	for i := 0; i < len(pairs); i += 2 {
		records = append(records, &metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: topic, Name: pairs[i], Value: &pairs[i+1]})
	}
	return records
}

func keyedBatch(pairs ...string) []byte {
	b := batch.NewBuilder(0, -1, 1000)
	for i := 0; i < len(pairs); i += 2 {
		b.Append([]byte(pairs[i]), []byte(pairs[i+1]))
	}
	return b.Build()
}

func TestCompactedTopicRefusesRecordsWithoutAKey(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register()
	b.apply(append(topicRecords("orders", ordersID, 1, nil), topicConfigs("orders", "cleanup.policy", "compact")...)...)
	if p := b.write("orders", 0, ordersID, "keyless"); p.ErrorCode != kerr.InvalidRecord.Code || p.ErrorMessage == nil || p.BaseOffset != -1 {
		t.Fatalf("%+v", p)
	}
	if p := b.writeBatch("orders", 0, ordersID, keyedBatch("k", "v")); p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Fatalf("%+v", p)
	}
	b.apply(topicConfigs("orders", "cleanup.policy", "delete")...)
	b.mustWrite("orders", 0, ordersID, "keyless")
}

// records reads a replica's log.
func (b *testBroker) records(r *replica) map[ident.Offset]string {
	b.t.Helper()
	l := r.partition.Log()
	out := map[ident.Offset]string{}
	for o := l.StartOffset(); o < l.EndOffset(); {
		c, err := l.Read(o, 1<<20, l.EndOffset(), true)
		if err != nil {
			b.t.Fatal(err)
		}
		raw, err := c.AppendTo(nil)
		o = c.Next
		if c.Release(); err != nil {
			b.t.Fatal(err)
		}
		for len(raw) > 0 {
			one, rest, _, err := batch.Next(raw)
			if err != nil {
				b.t.Fatal(err)
			}
			for rec, err := range batch.Records(one) {
				if err != nil {
					b.t.Fatal(err)
				}
				out[rec.Offset] = fmt.Sprintf("%s=%s", rec.Key, rec.Value)
			}
			raw = rest
		}
	}
	return out
}

// counter reads a metric, of the one label value that it is asked for.
func (b *testBroker) counter(name, label string) float64 {
	b.t.Helper()
	families, err := b.metrics.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue()
			}
		}
	}
	b.t.Fatalf("no metric %s %s", name, label)
	return 0
}

// sealForCompaction has the cleaner look, so that it seals what is overdue, and flushes it as the broker's loop does.
func (b *testBroker) sealForCompaction() {
	b.cleaner.dirtiest(time.Now())
	b.eachReplica((*replica).flushSealed)
}

func TestCleanerCompactsAndItsCheckpointSurvivesARestart(t *testing.T) {
	mem := vfs.NewMem()
	b := newTestBroker(t, mem)
	b.register()
	topics := append(topicRecords("orders", ordersID, 1, nil),
		topicConfigs("orders", "cleanup.policy", "compact", "max.compaction.lag.ms", "1", "retention.ms", "1")...)
	b.apply(topics...)
	r := b.hostedReplica(ordersID, 0)
	for i := range 5 {
		b.writeBatch("orders", 0, ordersID, keyedBatch("a", fmt.Sprint(i), fmt.Sprintf("b%d", i), ""))
	}
	if b.cleaner.cleanDirtiest() {
		t.Fatal("compacted what is not sealed and flushed")
	}
	b.sealForCompaction()
	if !b.cleaner.cleanDirtiest() || b.cleaner.cleanDirtiest() {
		t.Fatal("want one compaction")
	}
	want := map[ident.Offset]string{1: "b0=", 3: "b1=", 5: "b2=", 7: "b3=", 8: "a=4", 9: "b4="}
	if got := b.records(r); !maps.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	b.retain(r) // compaction alone decides
	if start := r.partition.Log().StartOffset(); start != 0 {
		t.Fatalf("retention moved the start of a compacted log to %d", start)
	}
	if err := b.checkpoint(); err != nil {
		t.Fatal(err)
	}
	offsets, err := log.ReadOffsetCheckpoint(mem, testDataDir, log.CleanerCheckpointFile)
	if err != nil || offsets[log.TopicIndex{Topic: "orders", Index: 0}] != 10 {
		t.Fatalf("%v, %v", offsets, err)
	}
	if done, removed := b.counter("highwater_log_cleaner_runs_total", "done"), b.counter("highwater_log_cleaner_removed_records_total", ""); done != 1 || removed != 4 {
		t.Fatalf("%v runs and %v removed records are counted", done, removed)
	}

	again := newTestBroker(t, mem.CrashClone(nil, 100))
	again.apply(append(again.registrations(), topics...)...)
	if clean := again.hostedReplica(ordersID, 0).partition.Log().CleanOffset(); clean != 10 {
		t.Fatalf("clean up to %d after a restart", clean)
	}
	again.sealForCompaction()
	if again.cleaner.cleanDirtiest() {
		t.Fatal("compacted again")
	}
	// Both policies: retention goes on as well.
	again.apply(topicConfigs("orders", "cleanup.policy", "compact,delete")...)
	r = again.hostedReplica(ordersID, 0)
	again.retain(r)
	if start := r.partition.Log().StartOffset(); start != 10 {
		t.Fatalf("log start %d", start)
	}
}

func TestLogThatCantBeCompactedDoesNotHoldUpTheOthers(t *testing.T) {
	mem := vfs.NewMem()
	b := newTestBroker(t, mem)
	b.register()
	for _, topic := range []struct {
		name string
		id   ident.UUID
	}{{"damaged", testUUID(4, 1)}, {"whole", testUUID(4, 2)}} {
		b.apply(append(topicRecords(topic.name, topic.id, 1, nil), topicConfigs(topic.name, "cleanup.policy", "compact", "max.compaction.lag.ms", "1")...)...)
		for i := range 3 {
			b.writeBatch(topic.name, 0, topic.id, keyedBatch("k", fmt.Sprint(i)))
		}
	}
	b.sealForCompaction()
	f, err := mem.OpenFile(testDataDir+"/damaged-0/00000000000000000000.log", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("?"), 80); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.cleaner.cleanDirtiest()
	}
	if got := b.records(b.hostedReplica(testUUID(4, 2), 0)); !maps.Equal(got, map[ident.Offset]string{2: "k=2"}) {
		t.Fatalf("%v", got)
	}
	if n := len(b.cleaner.uncleanable); n != 1 || !b.cleaner.isUncleanable(ident.TopicPartition{Topic: testUUID(4, 1)}, time.Now()) {
		t.Fatalf("%d logs are left alone", n)
	}
	if b.dir.offline() != nil {
		t.Fatal("the directory is offline for one damaged log")
	}
	if failed := b.counter("highwater_log_cleaner_runs_total", "failed"); failed != 1 {
		t.Fatalf("%v failed runs", failed)
	}
	if b.cleaner.isUncleanable(ident.TopicPartition{Topic: testUUID(4, 1)}, time.Now().Add(uncleanableRetry)) {
		t.Fatal("it is never tried again")
	}
}

func TestReplicaThatGoesEndsItsCompaction(t *testing.T) {
	mem := vfs.NewMem()
	b := newTestBroker(t, mem)
	b.register()
	b.apply(append(topicRecords("orders", ordersID, 1, nil), topicConfigs("orders", "cleanup.policy", "compact", "max.compaction.lag.ms", "1")...)...)
	for i := range 3 {
		b.writeBatch("orders", 0, ordersID, keyedBatch("k", fmt.Sprint(i)))
	}
	b.sealForCompaction()
	removed := false
	b.cleaner.options.Pace = func(int) error {
		if !removed {
			removed = true
			b.apply(&metadata.RemoveTopicRecord{TopicID: ordersID})
		}
		return nil
	}
	b.cleaner.cleanDirtiest()
	if !removed || b.dir.offline() != nil || len(b.cleaner.uncleanable) != 0 {
		t.Fatalf("removed %v, offline %v, %d logs left alone", removed, b.dir.offline() != nil, len(b.cleaner.uncleanable))
	}
}

func TestCompactionKeepsItsPaceAndStops(t *testing.T) {
	c := &cleaner{rate: 1 << 20}
	began := time.Now()
	for range 4 {
		if err := c.pace(t.Context(), 16<<10); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 60*time.Millisecond { // 64 KiB at 1 MiB/s are 62.5 ms
		t.Fatalf("64 KiB took %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.pace(ctx, 1<<30); !errors.Is(err, log.ErrCleanStopped) {
		t.Fatal(err)
	}
}

// A follower that was away while the topic was written and compacted copies what is left, gaps and all, joins the ISR,
// and leads with the same end state; the producer goes on with its sequence numbers.
func TestLateFollowerOfACompactedTopicHasTheSameEndState(t *testing.T) {
	c := emptyCluster(t)
	c.prepare(1, 3)
	for id := range ident.NodeID(3) {
		timing := &c.nodes[id].config.Timing
		timing.CleanerInterval, timing.CheckpointInterval = 100*time.Millisecond, 100*time.Millisecond
	}
	c.startAll()
	c.waitReady(0, 1, 2)
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(90*time.Second))
	defer cancel()
	admin := kadm.NewClient(c.client())
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 10_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "table", -1, -1
	assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	assignment.Replicas = []int32{0, 1, 2}
	topic.ReplicaAssignment = append(topic.ReplicaAssignment, assignment)
	for name, value := range map[string]string{
		"cleanup.policy": "compact", "max.compaction.lag.ms": "100", "delete.retention.ms": "0", "min.insync.replicas": "1",
	} {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = name, &value
		topic.Configs = append(topic.Configs, config)
	}
	create.Topics = append(create.Topics, topic)
	if resp, err := create.RequestWith(ctx, c.client()); err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("create: %+v, %v", resp, err)
	}
	if err := c.stop(2); err != nil {
		t.Fatal(err)
	}
	producer := c.client(kgo.DefaultProduceTopic("table"))
	want := map[string]string{}
	write := func(key string, value []byte) {
		t.Helper()
		if err := producer.ProduceSync(ctx, &kgo.Record{Key: []byte(key), Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if delete(want, key); value != nil {
			want[key] = string(value)
		}
	}
	round := 0
	writeRound := func() {
		for i := range 20 {
			key := fmt.Sprintf("key-%d", i%7)
			if i%7 == round%7 {
				write(key, nil)
			} else {
				write(key, fmt.Appendf(nil, "%d of round %d", i, round))
			}
		}
		round++
	}
	compacted := func() error {
		_, records, err := c.table(ctx, "table")
		if err != nil {
			return err
		}
		if records > 8 { // 7 keys, and the one that may still be in the segment being written
			return fmt.Errorf("%d records are there", records)
		}
		return nil
	}
	for range 3 {
		writeRound()
		c.eventually("the leader's log is compacted", compacted)
	}
	c.start(2)
	c.waitReady(2)
	inSync := func(n int) func() error {
		return func() error {
			topics, err := admin.ListTopics(ctx, "table")
			if err != nil {
				return err
			}
			if isr := topics["table"].Partitions[0].ISR; len(isr) != n {
				return fmt.Errorf("ISR %v", isr)
			}
			return nil
		}
	}
	c.eventually("the late follower is in sync", inSync(3))
	writeRound()
	c.eventually("the late follower has all", inSync(3))
	for _, id := range []ident.NodeID{0, 1} { // then node 2 leads
		if err := c.stop(id); err != nil {
			t.Fatal(err)
		}
	}
	same := func() error { // errors are of connections to the nodes that stopped
		got, _, err := c.table(ctx, "table")
		if err == nil && !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		return err
	}
	c.eventually("the state is read from node 2", same)
	write("key-0", []byte("last"))
	c.eventually("the state is read from node 2 again", same)
}

// table reads a topic from its beginning and returns the last value of each key, and how many records there are.
func (c *testCluster) table(ctx context.Context, topic string) (map[string]string, int, error) {
	c.t.Helper()
	client := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, 0, err
	}
	end, _ := ends.Lookup(topic, 0)
	if end.Err != nil {
		return nil, 0, end.Err
	}
	table, n := map[string]string{}, 0
	for at := int64(0); at < end.Offset; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, 0, fmt.Errorf("at %d of %d: %w", at, end.Offset, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			at = r.Offset + 1
			if delete(table, string(r.Key)); r.Value != nil {
				table[string(r.Key)] = string(r.Value)
			}
		})
	}
	return table, n, nil
}

// The configuration may leave it to the node how much is kept free (-1).
func TestCleanerLeavesTheRoomThatTheDirectoryKeepsFree(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.cfg.MinFreeBytes, b.dir.minFreeBytes = -1, 5<<20
	if got := newCleaner(b.broker).options.MinFreeBytes; got != 5<<20 {
		t.Errorf("%d bytes, a compaction could take the directory offline", got)
	}
}
