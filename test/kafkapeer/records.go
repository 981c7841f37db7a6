package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/nodes"
)

// Topics. Partition 0 of mixed is led by our node 0 and followed by the broker, partition 1 the other way round. The
// load goes to a topic that all three have.
const (
	topicKafkas = "kafkas"
	topicMixed  = "mixed"
	topicLoad   = "load"
)

// records writes to and reads from the broker, and has it and our node replicate from each other.
func (p *proof) records(ctx context.Context) error {
	theirs, err := kgo.NewClient(kgo.SeedBrokers(p.broker.external), kgo.RetryTimeout(testscale.Duration(30*time.Second)))
	if err != nil {
		return err
	}
	defer theirs.Close()
	p.check("a topic is created through our node, another through the broker", func() (string, error) {
		return "", errors.Join(
			createTopic(ctx, p.client, topicKafkas, nil, []int32{kafkaID}),
			createTopic(ctx, theirs, topicMixed, nil, []int32{0, kafkaID}, []int32{kafkaID, 0}),
			createTopic(ctx, theirs, topicLoad, map[string]string{"min.insync.replicas": "2"}, []int32{kafkaID, 0, 1}),
		)
	})
	if !p.check("the broker leads what it should and is in sync", func() (string, error) {
		return "", nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) error {
			return errors.Join(
				p.inSync(ctx, topicKafkas, 0, kafkaID, kafkaID), p.inSync(ctx, topicMixed, 0, 0, 0, kafkaID),
				p.inSync(ctx, topicMixed, 1, kafkaID, 0, kafkaID), p.inSync(ctx, topicLoad, 0, kafkaID, 0, 1, kafkaID),
			)
		})
	}) {
		return errors.New("the replicas are not in sync")
	}
	p.check("kafka-console-producer and kafka-console-consumer, through the broker", func() (string, error) { return p.console(ctx) })
	p.check("franz-go produces with every codec, acks=all, and reads it back", func() (string, error) {
		for _, partition := range []int32{0, 1} {
			if err := p.produce(ctx, topicMixed, partition, 50, kgo.AllISRAcks()); err != nil {
				return "", err
			}
		}
		n, err := p.consume(ctx, topicMixed, 2)
		if want := 2 * 50 * len(codecs()); err == nil && n != want {
			err = fmt.Errorf("%d records were read of %d", n, want)
		}
		return fmt.Sprintf("%d records", n), err
	})
	p.check("both replicas of either partition are the same byte for byte, and in sync", func() (string, error) {
		return p.sameBytes(ctx, 0, kafkaID)
	})
	p.check("kafka-delete-records: either leader answers once the other's replica has followed", func() (string, error) { return p.deleteRecords(ctx) })
	return nil
}

// codecs are what franz-go compresses with.
func codecs() []kgo.CompressionCodec {
	return []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
}

// console sends lines through Kafka's console tools.
func (p *proof) console(ctx context.Context) (string, error) {
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprintf("line %d", i))
	}
	if _, err := toolWith(ctx, []byte(strings.Join(want, "\n")+"\n"), consoleProducer,
		"--bootstrap-server", p.broker.external, "--topic", topicKafkas); err != nil {
		return "", err
	}
	out, err := tool(ctx, consoleConsumer, "--bootstrap-server", p.broker.external, "--topic", topicKafkas,
		"--partition", "0", "--offset", "earliest", "--max-messages", "100", "--timeout-ms", fmt.Sprint(testscale.Duration(30*time.Second).Milliseconds()))
	if err != nil {
		return "", err
	}
	if got := strings.Split(strings.TrimSpace(out), "\n"); !slices.Equal(got, want) {
		return "", fmt.Errorf("%d lines came back, want %d in order: %s", len(got), len(want), firstLines(out, 3))
	}
	return "100 lines", nil
}

// produce writes n records with each codec to a partition.
func (p *proof) produce(ctx context.Context, topic string, partition int32, n int, acks kgo.Acks) error {
	return produceTo(ctx, []string{p.ours.Node(0).External, p.ours.Node(1).External, p.broker.external}, topic, partition, n, acks)
}

// produceTo asks no node but these, and the leader.
func produceTo(ctx context.Context, seeds []string, topic string, partition int32, n int, acks kgo.Acks) error {
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(time.Minute))
	defer cancel()
	for i, codec := range codecs() {
		options := []kgo.Opt{
			kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(acks), kgo.MetadataMinAge(100 * time.Millisecond),
		}
		if acks != kgo.AllISRAcks() {
			options = append(options, kgo.DisableIdempotentWrite())
		}
		client, err := kgo.NewClient(options...)
		if err != nil {
			return err
		}
		records := make([]*kgo.Record, n)
		for j := range records {
			records[j] = &kgo.Record{
				Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "key-%d-%d", i, j),
				Value: bytes.Repeat(fmt.Appendf(nil, "record %d ", j), 20),
			}
		}
		err = client.ProduceSync(ctx, records...).FirstErr()
		client.Close()
		if err != nil {
			return fmt.Errorf("produce to %s-%d: %w", topic, partition, err)
		}
	}
	return nil
}

// consume reads a topic from its start to its end and returns how many records it has.
func (p *proof) consume(ctx context.Context, topic string, partitions int32) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(time.Minute))
	defer cancel()
	starts, total := map[int32]kgo.Offset{}, int64(0)
	for index := range partitions {
		starts[index] = kgo.NewOffset().AtStart()
		end, err := p.endOffset(ctx, topic, index)
		if err != nil {
			return 0, err
		}
		total += end
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(p.ours.Node(0).External, p.broker.external), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	n := 0
	for int64(n) < total {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return n, fmt.Errorf("%d of %d records were read: %w", n, total, errors.Join(ctx.Err(), fetches.Err()))
		}
		n += fetches.NumRecords()
	}
	return n, nil
}

// deletedBefore is up to where the records of mixed are deleted.
const deletedBefore = 100

// deleteRecords has Kafka's tool delete the first records of both partitions.
func (p *proof) deleteRecords(ctx context.Context) (string, error) {
	file := filepath.Join(p.dir, "delete.json")
	ask := fmt.Sprintf(`{"version": 1, "partitions": [{"topic": %[1]q, "partition": 0, "offset": %[2]d}, {"topic": %[1]q, "partition": 1, "offset": %[2]d}]}`,
		topicMixed, deletedBefore)
	if err := os.WriteFile(file, []byte(ask), 0o644); err != nil {
		return "", err
	}
	out, err := tool(ctx, deleteRecords, "--bootstrap-server", p.broker.external, "--offset-json-file", file)
	if err != nil {
		return "", err
	}
	for index := range 2 {
		if want := fmt.Sprintf("partition: %s-%d\tlow_watermark: %d", topicMixed, index, deletedBefore); !strings.Contains(out, want) {
			return "", fmt.Errorf("%q is not in: %s", want, out)
		}
	}
	return fmt.Sprintf("both start at %d", deletedBefore), p.startsAt(ctx)
}

// startsAt wants both partitions of mixed to start behind what was deleted, whoever leads them.
func (p *proof) startsAt(ctx context.Context) error {
	starts, err := kadm.NewClient(p.client).ListStartOffsets(ctx, topicMixed)
	if err != nil {
		return err
	}
	for index := range int32(2) {
		if start, ok := starts.Lookup(topicMixed, index); !ok || start.Err != nil || start.Offset != deletedBefore {
			return fmt.Errorf("%s-%d starts at %d, want %d: %w", topicMixed, index, start.Offset, deletedBefore, start.Err)
		}
	}
	return nil
}

// sameBytes waits until both partitions of mixed are in sync, and compares the files of both replicas.
func (p *proof) sameBytes(ctx context.Context, leaders ...int32) (string, error) {
	var size int
	err := nodes.WaitFor(ctx, time.Minute, func(ctx context.Context) error {
		size = 0
		for index, leader := range leaders {
			if err := p.inSync(ctx, topicMixed, int32(index), leader, 0, kafkaID); err != nil {
				return err
			}
			dir := fmt.Sprintf("%s-%d", topicMixed, index)
			ours, err1 := segments(filepath.Join(p.ours.Node(0).DataDir(), dir))
			theirs, err2 := segments(filepath.Join(p.broker.data(), dir))
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			if len(ours) == 0 || !bytes.Equal(ours, theirs) {
				return fmt.Errorf("%s has %d bytes at our node and %d others at the broker", dir, len(ours), len(theirs))
			}
			size += len(ours)
		}
		return nil
	})
	return fmt.Sprintf("%d bytes, ISR [0 %d] of both", size, kafkaID), err
}

// segments is the content of a partition's log, as it lies in its files.
func segments(dir string) ([]byte, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []byte
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, raw...)
	}
	return all, nil
}
