package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/topicconfig"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// powerCluster is one voter on the operating system's disk and three data nodes on machines whose power can be cut.
type powerCluster struct {
	*testCluster
	rng      *rand.Rand
	machines map[ident.NodeID]*machine
}

func newPowerCluster(t *testing.T, flush FlushPolicy) *powerCluster {
	t.Helper()
	c := &powerCluster{emptyCluster(t), rand.New(rand.NewPCG(1, 2)), map[ident.NodeID]*machine{}}
	c.shared.Defaults.Flush = flush
	c.prepare(1, 3)
	for id := range ident.NodeID(3) {
		config := c.nodes[id].config
		mem := vfs.NewMem()
		dir := filepath.Dir(config.DataDir) // is there before the node, as a mounted volume is
		err := mem.MkdirAll(dir, 0o755)
		for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
			err = mem.SyncDir(filepath.Dir(dir))
		}
		if err != nil {
			t.Fatal(err)
		}
		c.plugIn(id, mem)
	}
	c.startAll()
	c.waitReady(1000, 0, 1, 2)
	return c
}

func (c *powerCluster) plugIn(id ident.NodeID, mem *vfs.Mem) {
	c.machines[id] = newMachine(mem)
	c.nodes[id].disk = c.machines[id]
}

// cutPower takes the power from all the machines, keeping so much of what was not synced, and starts them again.
func (c *powerCluster) cutPower(keepPercent int, ids ...ident.NodeID) {
	c.t.Helper()
	for _, id := range ids {
		c.plugIn(id, c.machines[id].cutPower(c.rng, keepPercent))
	}
	for _, id := range ids {
		c.nodes[id].cancel()
	}
	for _, id := range ids {
		_ = c.stop(id) // it complains of its disk
		c.start(id)
	}
	c.waitReady(ids...)
}

// flushes is how many flushes of partition logs a node has counted.
func (c *powerCluster) flushes(id ident.NodeID) float64 {
	c.t.Helper()
	n, err := c.metric(id, "highwater_log_flush_seconds_count")
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// isrIsWhole waits until all three replicas are in sync.
func (c *powerCluster) isrIsWhole(topic string) {
	c.t.Helper()
	c.eventually("the ISR is whole", func() error {
		now, err := c.partition(topic)
		if err == nil && (now.Leader < 0 || len(now.ISR) != 3) {
			err = fmt.Errorf("leader %d ISR %v", now.Leader, now.ISR)
		}
		return err
	})
}

// ackedLog produces numbered records until it is stopped and remembers where each was acknowledged.
type ackedLog struct {
	mu    sync.Mutex
	at    map[int64]string
	acked int
}

func (a *ackedLog) add(r *kgo.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[r.Offset] = string(r.Value)
	a.acked++
}

func (a *ackedLog) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.acked
}

func (c *powerCluster) produceOn(topic string) (*ackedLog, func()) {
	client := c.client(kgo.MaxBufferedRecords(64), kgo.ProducerLinger(0), kgo.RetryTimeout(time.Minute))
	acked, ctx, cancel := &ackedLog{at: map[int64]string{}}, context.Background(), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-cancel:
				_ = client.Flush(ctx)
				return
			default:
			}
			client.Produce(ctx, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "value-%d", i)}, func(r *kgo.Record, err error) {
				if err == nil {
					acked.add(r)
				}
			})
		}
	}()
	return acked, func() { close(cancel); <-ended }
}

// holds checks that every acknowledged record is where it was acknowledged.
func (c *powerCluster) holds(topic string, acked *ackedLog) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(60*time.Second))
	defer cancel()
	client := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	last := int64(-1)
	for o := range acked.at {
		last = max(last, o)
	}
	for next := int64(0); next <= last; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			c.t.Fatalf("the log ends at %d, acknowledged is offset %d", next, last)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want, ok := acked.at[r.Offset]; ok && want != string(r.Value) {
				c.t.Fatalf("offset %d holds %s, acknowledged was %s", r.Offset, r.Value, want)
			}
			next = r.Offset + 1
		})
	}
}

func TestFlushAlwaysLosesNothingAcknowledgedWhenEveryMachineLosesPower(t *testing.T) {
	c := newPowerCluster(t, FlushAlways)
	two := "2"
	c.createTopic("orders", 1, 3, map[string]*string{"min.insync.replicas": &two})
	c.isrIsWhole("orders")
	acked, stop := c.produceOn("orders")
	all := []ident.NodeID{0, 1, 2}
	for round := range 4 {
		before := acked.count()
		c.eventually("more is acknowledged", func() error {
			if n := acked.count() - before; n < 200 {
				return fmt.Errorf("%d records", n)
			}
			return nil
		})
		lost := all
		if round == 1 { // the leader alone
			now, err := c.partition("orders")
			if err != nil {
				t.Fatal(err)
			}
			lost = []ident.NodeID{ident.NodeID(now.Leader)}
		}
		c.cutPower(c.rng.IntN(2)*50, lost...)
		c.isrIsWhole("orders")
	}
	stop()
	c.holds("orders", acked)
	for _, id := range all {
		if c.flushes(id) == 0 {
			t.Errorf("node %d has not flushed", id)
		}
	}
}

func TestFlushPolicyIsSwitchedWhileTheTopicIsUsed(t *testing.T) {
	c := newPowerCluster(t, FlushPageCache)
	two := "2"
	c.createTopic("orders", 1, 3, map[string]*string{"min.insync.replicas": &two})
	c.isrIsWhole("orders")
	acked, stop := c.produceOn("orders")
	all := []ident.NodeID{0, 1, 2}
	alter := func(op kadm.IncrementalOp, value string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(30*time.Second))
		defer cancel()
		resp, err := kadm.NewClient(c.client()).AlterTopicConfigs(ctx,
			[]kadm.AlterConfig{{Op: op, Name: topicconfig.FlushMessages, Value: &value}}, "orders")
		if err == nil {
			err = resp[0].Err
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// A node that flushes again and again has taken the new policy over.
	flushing := func(id ident.NodeID) error {
		before := c.flushes(id)
		n := acked.count()
		for acked.count() < n+50 {
			timer := time.NewTimer(5 * time.Millisecond)
			<-timer.C
		}
		if c.flushes(id) == before {
			return fmt.Errorf("node %d does not flush", id)
		}
		return nil
	}
	alter(kadm.SetConfig, "1")
	for _, id := range all {
		c.eventually("Always", func() error { return flushing(id) })
	}
	before := acked.count()
	c.eventually("more is acknowledged", func() error {
		if acked.count() < before+200 {
			return errors.New("not yet")
		}
		return nil
	})
	c.cutPower(0, all...)
	c.isrIsWhole("orders")

	alter(kadm.DeleteConfig, "")
	for _, id := range all {
		c.eventually("PageCache again", func() error {
			if flushing(id) == nil {
				return fmt.Errorf("node %d still flushes", id)
			}
			return nil
		})
	}
	stop()
	c.holds("orders", acked)
}

func TestFailedFlushTakesTheLeaderOffline(t *testing.T) {
	c := newPowerCluster(t, FlushAlways)
	two := "2"
	c.createTopic("orders", 1, 3, map[string]*string{"min.insync.replicas": &two})
	c.isrIsWhole("orders")
	acked, stop := c.produceOn("orders")
	before, err := c.partition("orders")
	if err != nil {
		t.Fatal(err)
	}
	c.machines[ident.NodeID(before.Leader)].failSyncs()
	c.eventually("another replica leads", func() error {
		now, err := c.partition("orders")
		if err == nil && (now.Leader < 0 || now.Leader == before.Leader) {
			err = fmt.Errorf("leader %d ISR %v", now.Leader, now.ISR)
		}
		return err
	})
	n := acked.count()
	c.eventually("more is acknowledged", func() error {
		if acked.count() < n+100 {
			return errors.New("not yet")
		}
		return nil
	})
	stop()
	c.holds("orders", acked)
}

func TestFlushPolicyOfTopicConfigs(t *testing.T) {
	const never = math.MaxInt64
	for _, x := range []struct {
		messages, ms int64
		want         exec.FlushPolicy
	}{
		{never, never, exec.FlushPolicy{}},
		{1, never, exec.FlushPolicy{Always: true}},
		{1, 0, exec.FlushPolicy{Always: true, After: 1}},
		{1000, never, exec.FlushPolicy{Records: 1000}},
		{never, 250, exec.FlushPolicy{After: 250 * time.Millisecond}},
		{never, never - 1, exec.FlushPolicy{}},
	} {
		if got := flushPolicy(topicconfig.Values{FlushMessages: x.messages, FlushMs: x.ms}); got != x.want {
			t.Errorf("flush.messages=%d flush.ms=%d: %+v, want %+v", x.messages, x.ms, got, x.want)
		}
	}
	if !slices.Equal([]bool{flushPolicyOf(t, ""), flushPolicyOf(t, FlushPageCache), flushPolicyOf(t, FlushAlways)}, []bool{false, false, true}) {
		t.Error("defaults.flush decides where a topic says nothing")
	}
}

func flushPolicyOf(t *testing.T, flush FlushPolicy) bool {
	t.Helper()
	values, err := topicDefaults(Defaults{Flush: flush, MinInSyncReplicas: 1}).Values(nil)
	if err != nil {
		t.Fatal(err)
	}
	return flushPolicy(values).Always
}
