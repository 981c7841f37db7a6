package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// numberedValue is a value that only this producer writes as this record.
func numberedValue(producer, index int) []byte {
	rng := rand.New(rand.NewPCG(uint64(producer), uint64(index)))
	value := make([]byte, 1+rng.IntN(1<<(4+rng.IntN(14))))
	for i := range value {
		value[i] = byte(rng.Uint32())
	}
	return value
}

// TestBuffersAreNobodyElsesWhileTheyAreUsed runs producers whose requests wait for their followers, a follower's
// fetches and a consumer that does not read for a long time, on buffers that are overwritten when they are released.
func TestBuffersAreNobodyElsesWhileTheyAreUsed(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.waitReady(1000, 0, 1)
	two := "2"
	c.createTopic("bytes", 1, 2, map[string]*string{"min.insync.replicas": &two})
	var before, after sync.WaitGroup
	const producers, half = 4, 150
	produce := func(client *kgo.Client, producer, from, to int) {
		ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(60*time.Second))
		defer cancel()
		for i := from; i < to; i++ {
			record := &kgo.Record{Topic: "bytes", Key: fmt.Appendf(nil, "%d-%d", producer, i), Value: numberedValue(producer, i)}
			client.Produce(ctx, record, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("producer %d record %d: %v", producer, i, err)
				}
			})
		}
		if err := client.Flush(ctx); err != nil {
			t.Error(err)
		}
	}
	var clients []*kgo.Client
	for range producers {
		clients = append(clients, c.client(kgo.ProducerLinger(0)))
	}
	for p, client := range clients {
		before.Go(func() { produce(client, p, 0, half) })
	}
	before.Wait()
	slow := c.openSlowFetch("bytes")
	for p, client := range clients {
		after.Go(func() { produce(client, p, half, 2*half) })
	}
	after.Wait()
	if t.Failed() {
		return
	}
	slow.verify()

	// Everything is there once, as it was sent.
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(60*time.Second))
	defer cancel()
	consumer := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"bytes": {0: kgo.NewOffset().AtStart()}}))
	for seen := map[string]bool{}; len(seen) < producers*2*half; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %d records: %v", len(seen), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			var p, i int
			if _, err := fmt.Sscanf(string(r.Key), "%d-%d", &p, &i); err != nil || seen[string(r.Key)] || !bytes.Equal(r.Value, numberedValue(p, i)) {
				t.Fatalf("offset %d: key %q, %d bytes: not what was produced (%v)", r.Offset, r.Key, len(r.Value), err)
			}
			seen[string(r.Key)] = true
		})
	}
	// And the follower has the leader's bytes.
	for _, id := range []ident.NodeID{0, 1} {
		if err := c.stop(id); err != nil {
			t.Fatal(err)
		}
	}
	segment := func(id ident.NodeID) []byte {
		data, err := os.ReadFile(filepath.Join(c.nodes[id].config.DataDir, "bytes-0", "00000000000000000000.log"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if a, b := segment(0), segment(1); !bytes.Equal(a, b) || len(a) == 0 {
		t.Fatalf("the replicas hold %d and %d bytes, which differ", len(a), len(b))
	}
}

// slowFetch is a consumer that has asked and does not read on.
type slowFetch struct {
	t    *testing.T
	conn net.Conn
	size uint32
}

// openSlowFetch asks for all of a topic's partition 0 and reads no more than the answer's length.
func (c *testCluster) openSlowFetch(topic string) *slowFetch {
	c.t.Helper()
	detail, err := c.partition(topic)
	if err != nil {
		c.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", c.nodes[ident.NodeID(detail.Leader)].config.AdvertisedExternal)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testscale.Duration(60 * time.Second)))
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MinBytes, req.MaxBytes = 11, -1, 1, 64<<20
	asked, part := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	asked.Topic, part.PartitionMaxBytes = topic, 64<<20
	asked.Partitions = append(asked.Partitions, part)
	req.Topics = append(req.Topics, asked)
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
		c.t.Fatal(err)
	}
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		c.t.Fatal(err)
	}
	return &slowFetch{c.t, conn, binary.BigEndian.Uint32(head[:])}
}

// verify reads the rest and checks every batch.
func (s *slowFetch) verify() {
	s.t.Helper()
	frame := make([]byte, s.size)
	if _, err := io.ReadFull(s.conn, frame); err != nil {
		s.t.Fatal(err)
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 11
	if err := resp.ReadFrom(frame[4:]); err != nil {
		s.t.Fatal(err)
	}
	records, batches := resp.Topics[0].Partitions[0].RecordBatches, 0
	for len(records) > 0 {
		one, rest, h, err := batch.Next(records)
		if err == nil {
			err = batch.VerifyCRC(one, h)
		}
		if err != nil {
			s.t.Fatalf("batch %d of the slow reader: %v", batches, err)
		}
		records, batches = rest, batches+1
	}
	if batches == 0 {
		s.t.Fatal("the slow reader got nothing")
	}
}
