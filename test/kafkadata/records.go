package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

var codecs = []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}

// client is one that does not choose partitions by itself.
func client(seed string, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seed), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryTimeout(testscale.Duration(30 * time.Second)), kgo.ProducerBatchMaxBytes(60_000)}, opts...)...)
}

func createTopic(ctx context.Context, seed, name string, partitions int32, configs map[string]string) error {
	c, err := client(seed)
	if err != nil {
		return err
	}
	defer c.Close()
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = &v
	}
	response, err := kadm.NewClient(c).CreateTopic(ctx, partitions, 1, values, name)
	if err == nil {
		err = response.Err
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// produce writes n records with each codec to each partition, of a size that makes segments roll.
func produce(ctx context.Context, seed, topic string, partitions int32, n, keys int, opts ...kgo.Opt) error {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for i, codec := range codecs {
		c, err := client(seed, append(opts, kgo.ProducerBatchCompression(codec))...)
		if err != nil {
			return err
		}
		var records []*kgo.Record
		for j := range n * int(partitions) {
			value := make([]byte, 200+rng.IntN(1200))
			for k := range value[:len(value)/2] {
				value[k] = byte(rng.Uint32())
			}
			r := &kgo.Record{Topic: topic, Partition: int32(j) % partitions, Value: value, Timestamp: base.Add(time.Duration(i*n+j) * time.Millisecond)}
			if keys > 0 || j%3 > 0 {
				r.Key = fmt.Appendf(nil, "key-%d", j%max(keys, 7))
			}
			if j%4 == 0 {
				r.Headers = []kgo.RecordHeader{{Key: "number", Value: fmt.Appendf(nil, "%d", j)}}
			}
			if keys == 0 && j%50 == 7 {
				r.Value = nil
			}
			records = append(records, r)
		}
		err = c.ProduceSync(ctx, records...).FirstErr()
		c.Close()
		if err != nil {
			return fmt.Errorf("produce to %s: %w", topic, err)
		}
	}
	return nil
}

// transactions writes one that is committed and one that is aborted.
func transactions(ctx context.Context, seed, topic string) error {
	c, err := client(seed, kgo.TransactionalID("kafkadata"), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer c.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := c.BeginTransaction(); err != nil {
			return err
		}
		if err := c.ProduceSync(ctx, kgo.StringRecord("in a transaction"), kgo.StringRecord("and another")).FirstErr(); err != nil {
			return err
		}
		if err := c.EndTransaction(ctx, end); err != nil {
			return err
		}
	}
	return nil
}

type partition struct {
	topic string
	index int32
}

// content is what a server serves: of each partition the start, the bytes, and the end.
type content map[partition]served

type served struct {
	start, end int64
	raw        []byte
}

// readAll fetches everything of the topics, as it is stored.
func readAll(ctx context.Context, seed string, topics ...string) (content, error) {
	c, err := client(seed)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	details, err := admin.ListTopics(ctx, topics...)
	if err != nil {
		return nil, err
	}
	all := content{}
	var failed error
	starts.Each(func(o kadm.ListedOffset) {
		end, _ := ends.Lookup(o.Topic, o.Partition)
		raw, err := fetch(ctx, c, details[o.Topic].ID, o.Topic, o.Partition, o.Offset, end.Offset)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s-%d: %w", o.Topic, o.Partition, err))
		}
		all[partition{o.Topic, o.Partition}] = served{o.Offset, end.Offset, raw}
	})
	return all, failed
}

// fetch reads a partition's batches from start to end, and checks each.
func fetch(ctx context.Context, c *kgo.Client, id kadm.TopicID, topic string, index int32, start, end int64) (raw []byte, err error) {
	for start < end {
		request := kmsg.NewPtrFetchRequest()
		request.MaxWaitMillis, request.MinBytes, request.MaxBytes = 500, 1, 8<<20
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = topic, id
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = index, start, 1<<20
		t.Partitions = append(t.Partitions, p)
		request.Topics = append(request.Topics, t)
		response, err := c.Broker(nodeID).Request(ctx, request)
		if err != nil {
			return nil, err
		}
		answer := response.(*kmsg.FetchResponse)
		if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
			return nil, fmt.Errorf("fetch at %d: an answer without the partition: %w", start, kerr.ErrorForCode(answer.ErrorCode))
		}
		got := answer.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return nil, fmt.Errorf("fetch at %d: %w", start, err)
		}
		before := start
		for rest := got.RecordBatches; ; {
			one, after, h, err := batch.Next(rest)
			if errors.Is(err, batch.ErrTruncated) {
				break // the answer ends within a batch, as it may
			}
			if err == nil {
				err = batch.VerifyCRC(one, h)
			}
			if err != nil {
				return nil, fmt.Errorf("fetch at %d: %w", start, err)
			}
			for _, err := range batch.Records(one) {
				if err != nil {
					return nil, fmt.Errorf("batch at %d: %w", h.BaseOffset, err)
				}
			}
			raw = append(raw, one...)
			start, rest = int64(h.NextOffset()), after
		}
		if start == before {
			return raw, fmt.Errorf("nothing to read at %d of %d", start, end)
		}
	}
	return raw, nil
}

// same compares what a server serves now with what was served before; with grown it may have more behind it.
func (c content) same(now content, grown bool) error {
	if len(c) != len(now) {
		return fmt.Errorf("%d partitions were served, now %d: %v", len(c), len(now), slices.Collect(maps.Keys(now)))
	}
	for p, b := range c {
		n := now[p]
		if n.start != b.start || n.end < b.end || !grown && n.end != b.end {
			return fmt.Errorf("%s-%d went from %d to %d, now it goes from %d to %d", p.topic, p.index, b.start, b.end, n.start, n.end)
		}
		if !bytes.HasPrefix(n.raw, b.raw) {
			return fmt.Errorf("%s-%d: the bytes are not the same; first difference at %d of %d", p.topic, p.index, difference(b.raw, n.raw), len(b.raw))
		}
	}
	return nil
}

func difference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// String says how much there is.
func (c content) String() string {
	records, size := 0, 0
	for _, s := range c {
		size += len(s.raw)
		for rest := s.raw; len(rest) > 0; {
			_, after, h, err := batch.Next(rest)
			if err != nil {
				return err.Error()
			}
			records += int(h.NumRecords)
			rest = after
		}
	}
	return fmt.Sprintf("%d records, %d bytes, %d partitions", records, size, len(c))
}

// consume reads the same with an ordinary consumer and compares offsets and timestamps with the stored batches.
func (c content) consume(ctx context.Context, seed string) error {
	want := 0
	starts := map[string]map[int32]kgo.Offset{}
	expected := map[partition]map[ident.Offset]batch.Record{}
	for p, s := range c {
		if starts[p.topic] == nil {
			starts[p.topic] = map[int32]kgo.Offset{}
		}
		starts[p.topic][p.index] = kgo.NewOffset().At(s.start)
		expected[p] = map[ident.Offset]batch.Record{}
		for rest := s.raw; len(rest) > 0; {
			one, after, h, err := batch.Next(rest)
			if err != nil {
				return err
			}
			rest = after
			if h.IsControl() {
				continue
			}
			for r, err := range batch.Records(one) {
				if err != nil {
					return err
				}
				if int64(r.Offset) >= s.start {
					expected[p][r.Offset] = r
					want++
				}
			}
		}
	}
	consumer, err := client(seed, kgo.ConsumePartitions(starts))
	if err != nil {
		return err
	}
	defer consumer.Close()
	for want > 0 {
		fetches := consumer.PollFetches(ctx)
		if err := errors.Join(fetches.Err(), ctx.Err()); err != nil {
			return fmt.Errorf("with %d records to go: %w", want, err)
		}
		for _, r := range fetches.Records() {
			e, ok := expected[partition{r.Topic, r.Partition}][ident.Offset(r.Offset)]
			if !ok || e.Timestamp != r.Timestamp.UnixMilli() || !bytes.Equal(e.Key, r.Key) || !bytes.Equal(e.Value, r.Value) || len(e.Headers) != len(r.Headers) {
				return fmt.Errorf("%s-%d offset %d is not what is stored there: %v", r.Topic, r.Partition, r.Offset, ok)
			}
			want--
		}
	}
	return nil
}
