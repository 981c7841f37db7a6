package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// segmentsOf lists the segments of a node's copy of partition 0.
func (c *testCluster) segmentsOf(id ident.NodeID, topic string) []string {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.nodes[id].config.DataDir, topic+"-0", "*.log"))
	if err != nil {
		c.t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

// content is all that a node's copy holds.
func (c *testCluster) content(id ident.NodeID, topic string) []byte {
	var all []byte
	for _, name := range c.segmentsOf(id, topic) {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil
		}
		all = append(all, b...)
	}
	return all
}

func (c *testCluster) produceValue(client *kgo.Client, topic, value string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(60*time.Second))
	defer cancel()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		c.t.Fatal(err)
	}
}

// consumePadded reads n records and checks that they are there once and in order.
func (c *testCluster) consumePadded(topic string, n int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(60*time.Second))
	defer cancel()
	client := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	for seen := 0; seen < n; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			c.t.Fatalf("after %d records: %v", seen, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprintf("record-%dx", seen); !strings.HasPrefix(string(r.Value), want) {
				c.t.Fatalf("offset %d holds %.20q, want %q", r.Offset, r.Value, want)
			}
			seen++
		})
	}
}

func TestRottenSegmentOfAFollowerAndThenOfTheLeaderIsRefilled(t *testing.T) {
	c := emptyCluster(t)
	c.prepare(1, 3)
	for id := range ident.NodeID(3) {
		c.nodes[id].config.ScrubInterval = 500 * time.Millisecond
	}
	c.startAll()
	c.waitReady(1000, 0, 1, 2)
	two, small := "2", "1048576"
	c.createTopic("orders", 1, 3, map[string]*string{"min.insync.replicas": &two, "segment.bytes": &small})
	client := c.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	n := 0
	for pad := strings.Repeat("x", 250_000); n < 20; n++ {
		c.produceValue(client, "orders", fmt.Sprintf("record-%d", n)+pad)
	}
	inSync := func() error {
		now, err := c.partition("orders")
		if err != nil {
			return err
		}
		if len(now.ISR) != 3 || now.Leader < 0 {
			return fmt.Errorf("leader %d, ISR %v", now.Leader, now.ISR)
		}
		return nil
	}
	c.eventually("three in sync", inSync)
	for _, who := range []string{"follower", "leader"} {
		before, err := c.partition("orders")
		if err != nil {
			t.Fatal(err)
		}
		rotten := ident.NodeID(before.Leader)
		if who == "follower" {
			rotten = ident.NodeID((before.Leader + 1) % 3)
		}
		segments := c.segmentsOf(rotten, "orders")
		if len(segments) < 4 {
			t.Fatalf("segments %v", segments)
		}
		file, err := os.OpenFile(segments[1], os.O_RDWR, 0)
		if err == nil {
			_, err = file.WriteAt([]byte("rot"), 1000)
			file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		c.eventually("the "+who+" has left, was refilled, and is back", func() error {
			now, err := c.partition("orders")
			switch {
			case err != nil:
				return err
			case now.LeaderEpoch < before.LeaderEpoch || who == "leader" && now.LeaderEpoch == before.LeaderEpoch:
				return fmt.Errorf("leader %d in epoch %d still", now.Leader, now.LeaderEpoch)
			}
			if err := inSync(); err != nil {
				return err
			}
			want := c.content((rotten+1)%3, "orders")
			if got := c.content(rotten, "orders"); !bytes.Equal(got, want) {
				return fmt.Errorf("the copies of %d and %d bytes differ", len(got), len(want))
			}
			if left, _ := filepath.Glob(filepath.Join(c.nodes[rotten].config.DataDir, "orders-0", "*.quarantine")); len(left) > 0 {
				return fmt.Errorf("%v is left", left)
			}
			return nil
		})
	}
	c.consumePadded("orders", n)
}

// What a replica wants may change while the controller is asked: the answer is to what it wanted before.
func TestWishThatComesWhileAnotherIsAnsweredIsStillSaid(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	r, a := b.hostedReplica(ordersID, 0), b.assigner
	waits := func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		_, waits := a.waiting[r]
		return waits
	}
	a.want(r)
	earlier := waitingWish{r, a.waiting[r]}
	a.want(r)
	if a.settled(earlier); !waits() {
		t.Error("the newer wish is forgotten")
	}
	if a.wishes(); waits() { // it wants nothing any more
		t.Error("it waits for ever")
	}
}
