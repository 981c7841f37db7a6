package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/testaddr"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
	"github.com/highwater-io/highwater/pkg/wire"
)

// testCluster is a cluster of nodes inside the test's process, on real sockets and files.
type testCluster struct {
	t      *testing.T
	dir    string
	shared SharedConfig
	nodes  map[ident.NodeID]*testNode
}

type testNode struct {
	config Config
	disk   vfs.FS // nil: the operating system's
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// logs collects what nodes say; a failing test prints it.
type logs struct {
	mu sync.Mutex
	t  *testing.T
	b  []byte
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	return len(p), nil
}

func testUUID(kind byte, id ident.NodeID) ident.UUID { return ident.UUID{0: kind, 14: 1, 15: byte(id)} }

// newCluster starts voters with ids from 1000 on and data nodes with ids from 0 on.
func newCluster(t *testing.T, voters, data int) *testCluster {
	t.Helper()
	c := emptyCluster(t)
	c.prepare(voters, data)
	c.startAll()
	return c
}

// newCombinedCluster starts nodes with ids from 0 on that vote and hold data.
func newCombinedCluster(t *testing.T, nodes int) *testCluster {
	t.Helper()
	c := emptyCluster(t)
	for i := range nodes {
		config := c.baseConfig(ident.NodeID(i))
		c.vote(&config)
		c.holdData(&config)
		c.add(config)
	}
	c.startAll()
	return c
}

func emptyCluster(t *testing.T) *testCluster {
	c := &testCluster{t: t, dir: t.TempDir(), nodes: map[ident.NodeID]*testNode{}}
	c.shared = SharedConfig{
		ClusterID: ident.UUID{0: 7, 15: 200},
		Defaults: Defaults{
			ReplicaLagTimeMax: Duration(2 * time.Second), MinInSyncReplicas: 1, ReplicationFactor: 1, Partitions: 1,
		},
	}
	return c
}

// prepare adds voters with ids from 1000 on and data nodes with ids from 0 on.
func (c *testCluster) prepare(voters, data int) {
	c.t.Helper()
	for i := range voters {
		config := c.baseConfig(ident.NodeID(1000 + i))
		c.vote(&config)
		c.add(config)
	}
	for i := range data {
		config := c.baseConfig(ident.NodeID(i))
		c.holdData(&config)
		c.add(config)
	}
}

func (c *testCluster) vote(config *Config) {
	c.t.Helper()
	config.Voter = true
	config.ControllerListener = testaddr.Free(c.t)
	config.AdvertisedController = config.ControllerListener
	host, port, err := splitAddress(config.ControllerListener)
	if err != nil {
		c.t.Fatal(err)
	}
	c.shared.Voters = append(c.shared.Voters, VoterConfig{ID: config.NodeID, DirectoryID: config.DirectoryID, Host: host, Port: int(port)})
}

func (c *testCluster) holdData(config *Config) {
	config.Data = true
	config.InternalListener, config.ExternalListener = testaddr.Free(c.t), testaddr.Free(c.t)
	config.AdvertisedInternal, config.AdvertisedExternal = config.InternalListener, config.ExternalListener
}

func (c *testCluster) add(config Config) { c.nodes[config.NodeID] = &testNode{config: config} }

// startAll starts every node once the voters are known.
func (c *testCluster) startAll() {
	for id, n := range c.nodes {
		n.config.Shared = c.shared
		c.start(id)
	}
	c.t.Cleanup(c.stopAll)
}

func (c *testCluster) baseConfig(id ident.NodeID) Config {
	dir := filepath.Join(c.dir, fmt.Sprint(id))
	permit := filepath.Join(c.dir, fmt.Sprintf("permit-%d", id))
	directory := testUUID(9, id)
	if err := os.WriteFile(permit, []byte(directory.String()), 0o644); err != nil {
		c.t.Fatal(err)
	}
	return Config{
		NodeID: id, DirectoryID: directory, DataDir: filepath.Join(dir, "data"), MetadataDir: filepath.Join(dir, "metadata"),
		HTTPListener: testaddr.Free(c.t), FormatPermitFile: permit, Timing: DefaultTiming(),
	}
}

func (c *testCluster) start(id ident.NodeID) {
	n := c.nodes[id]
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.done, n.err = cancel, make(chan struct{}), nil
	output := &logs{t: c.t}
	logger := slog.New(slog.NewTextHandler(output, &slog.HandlerOptions{Level: slog.LevelInfo}))
	go func() {
		defer close(n.done)
		if n.disk != nil {
			n.err = runOn(ctx, n.config, logger, n.disk)
		} else {
			n.err = Run(ctx, n.config, logger)
		}
	}()
	c.t.Cleanup(func() {
		if c.t.Failed() {
			output.mu.Lock()
			defer output.mu.Unlock()
			c.t.Logf("node %d:\n%s", id, output.b)
		}
	})
}

// stop ends a node in order and returns what Run returned.
func (c *testCluster) stop(id ident.NodeID) error {
	n := c.nodes[id]
	n.cancel()
	select {
	case <-n.done:
		return n.err
	case <-time.After(testscale.Duration(60 * time.Second)):
		c.t.Errorf("node %d does not stop", id)
		return errors.New("still running")
	}
}

// stopAll ends data nodes first: a controlled shutdown wants the quorum's consent.
func (c *testCluster) stopAll() {
	for _, voters := range []bool{false, true} {
		for _, n := range c.nodes {
			if n.config.Voter == voters {
				n.cancel()
			}
		}
		for id, n := range c.nodes {
			if n.config.Voter == voters {
				_ = c.stop(id)
			}
		}
	}
}

// eventually waits for a condition, which says what is missing.
func (c *testCluster) eventually(what string, check func() error) {
	c.t.Helper()
	deadline := time.Now().Add(testscale.Duration(30 * time.Second))
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: %v", what, err)
		}
		timer := time.NewTimer(50 * time.Millisecond)
		<-timer.C
	}
}

// waitReady waits until a node's readiness probe says yes.
func (c *testCluster) waitReady(ids ...ident.NodeID) {
	c.t.Helper()
	for _, id := range ids {
		c.eventually(fmt.Sprintf("node %d ready", id), func() error {
			select {
			case <-c.nodes[id].done:
				c.t.Fatalf("node %d has ended: %v", id, c.nodes[id].err)
			default:
			}
			resp, err := http.Get("http://" + c.nodes[id].config.HTTPListener + "/readyz")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusOK {
				return errors.New(string(body))
			}
			return nil
		})
	}
}

func (c *testCluster) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	var seeds []string
	for _, n := range c.nodes {
		if n.config.Data {
			seeds = append(seeds, n.config.AdvertisedExternal)
		}
	}
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seeds...)}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client
}

func (c *testCluster) createTopic(name string, partitions int32, replicas int16, configs map[string]*string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(30*time.Second))
	defer cancel()
	resp, err := kadm.NewClient(c.client()).CreateTopic(ctx, partitions, replicas, configs, name)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.Err != nil {
		c.t.Fatalf("create topic: %v %s", resp.Err, resp.ErrMessage)
	}
}

func (c *testCluster) produce(client *kgo.Client, topic string, from, to int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(60*time.Second))
	defer cancel()
	for i := from; i < to; i++ {
		record := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "record-%d", i)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			c.t.Fatalf("produce record %d: %v", i, err)
		}
	}
}

// consume reads the first n records of partition 0 and checks that they are there once and in order.
func (c *testCluster) consume(topic string, n int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(60*time.Second))
	defer cancel()
	client := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	for seen := 0; seen < n; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			c.t.Fatalf("after %d records: %v", seen, err)
		}
		for _, e := range fetches.Errors() {
			c.t.Logf("fetch: %v", e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprintf("record-%d", seen); string(r.Value) != want {
				c.t.Fatalf("offset %d holds %q, want %q", r.Offset, r.Value, want)
			}
			seen++
		})
	}
}

func TestOneVoterAndOneDataNodeServeAClient(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.waitReady(1000, 0)
	c.createTopic("orders", 1, 1, nil)
	c.produce(c.client(), "orders", 0, 100)
	c.consume("orders", 100)

	// A clean restart of everything keeps the records and continues.
	for _, id := range []ident.NodeID{0, 1000} {
		if err := c.stop(id); err != nil {
			t.Fatalf("node %d stopped with %v", id, err)
		}
	}
	for _, id := range []ident.NodeID{1000, 0} {
		c.start(id)
	}
	c.waitReady(1000, 0)
	c.produce(c.client(), "orders", 100, 150)
	c.consume("orders", 150)
}

// partition asks a node's metadata for partition 0 of a topic.
func (c *testCluster) partition(topic string) (kadm.PartitionDetail, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(5*time.Second))
	defer cancel()
	client := c.client()
	defer client.Close()
	details, err := kadm.NewClient(client).ListTopics(ctx, topic)
	if err != nil {
		return kadm.PartitionDetail{}, err
	}
	detail, ok := details[topic].Partitions[0]
	if !ok {
		return kadm.PartitionDetail{}, fmt.Errorf("no partition 0 of %s: %w", topic, details[topic].Err)
	}
	return detail, nil
}

func TestThreeVotersAndThreeDataNodesSurviveTheLossOfALeader(t *testing.T) {
	c := newCluster(t, 3, 3)
	c.waitReady(1000, 1001, 1002, 0, 1, 2)
	two := "2"
	c.createTopic("orders", 1, 3, map[string]*string{"min.insync.replicas": &two})
	client := c.client()
	c.produce(client, "orders", 0, 100)

	before, err := c.partition("orders")
	if err != nil {
		t.Fatal(err)
	}
	if len(before.ISR) != 3 {
		t.Fatalf("ISR %v, want three members", before.ISR)
	}
	// The leader leaves in order: another one leads at a higher epoch, and the ISR is without it.
	if err := c.stop(ident.NodeID(before.Leader)); err != nil {
		t.Fatalf("leader stopped with %v", err)
	}
	c.eventually("a new leader", func() error {
		now, err := c.partition("orders")
		if err != nil {
			return err
		}
		if now.Leader < 0 || now.Leader == before.Leader || now.LeaderEpoch <= before.LeaderEpoch || len(now.ISR) != 2 {
			return fmt.Errorf("leader %d epoch %d ISR %v", now.Leader, now.LeaderEpoch, now.ISR)
		}
		return nil
	})
	c.produce(client, "orders", 100, 200)

	// It comes back, catches up and is taken into the ISR again.
	c.start(ident.NodeID(before.Leader))
	c.eventually("the ISR is whole again", func() error {
		now, err := c.partition("orders")
		if err != nil {
			return err
		}
		if len(now.ISR) != 3 {
			return fmt.Errorf("ISR %v", now.ISR)
		}
		return nil
	})
	c.produce(client, "orders", 200, 250)

	// The quorum loses its leader and goes on.
	quorumLeader := ident.NoNode
	for id := range c.nodes {
		if c.nodes[id].config.Voter && c.quorumLeader(id) == id {
			quorumLeader = id
		}
	}
	if quorumLeader == ident.NoNode {
		t.Fatal("no voter says that it leads")
	}
	if err := c.stop(quorumLeader); err != nil {
		t.Fatalf("quorum leader stopped with %v", err)
	}
	c.createTopic("later", 3, 2, nil)
	c.consume("orders", 250)
}

func TestCombinedNodesVoteAndHoldData(t *testing.T) {
	c := newCombinedCluster(t, 3)
	c.waitReady(0, 1, 2)
	two := "2"
	c.createTopic("orders", 1, 3, map[string]*string{"min.insync.replicas": &two})
	client := c.client()
	c.produce(client, "orders", 0, 50)
	// The node that leads the quorum goes, and its replica with it; the other two carry both on.
	leader := c.quorumLeader(0)
	if err := c.stop(leader); err != nil {
		t.Fatalf("node %d stopped with %v", leader, err)
	}
	c.produce(client, "orders", 50, 100)
	c.start(leader)
	c.waitReady(leader)
	c.eventually("the ISR is whole again", func() error {
		now, err := c.partition("orders")
		if err == nil && len(now.ISR) != 3 {
			err = fmt.Errorf("ISR %v", now.ISR)
		}
		return err
	})
	c.consume("orders", 100)
}

// quorumLeader asks a voter who leads.
func (c *testCluster) quorumLeader(id ident.NodeID) ident.NodeID {
	c.t.Helper()
	return ident.NodeID(c.describeQuorum(id).Topics[0].Partitions[0].LeaderID)
}

// describeQuorum asks a voter; only the leader names the others.
func (c *testCluster) describeQuorum(id ident.NodeID) *kmsg.DescribeQuorumResponse {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(10*time.Second))
	defer cancel()
	conn, err := (&wire.Dialer{}).Dial(ctx, c.nodes[id].config.AdvertisedController)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = ident.MetadataTopic
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	resp, err := conn.Request(ctx, req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.(*kmsg.DescribeQuorumResponse)
}
