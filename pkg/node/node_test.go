package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/testaddr"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/vfs"
	"github.com/highwater-io/highwater/pkg/wire"
)

// within fails the test when done is not closed in time.
func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(testscale.Duration(20 * time.Second)):
		t.Fatalf("%s: still waiting", what)
	}
}

func TestNodeWhoseListenerIsTakenEndsWithTheReason(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := &testCluster{t: t, dir: t.TempDir()}
	config := c.baseConfig(0)
	config.Voter, config.Data = true, true
	config.ControllerListener = testaddr.Free(t)
	config.InternalListener, config.ExternalListener = taken.Addr().String(), taken.Addr().String()
	config.AdvertisedController = config.ControllerListener
	config.AdvertisedInternal, config.AdvertisedExternal = config.InternalListener, config.ExternalListener
	host, port, err := splitAddress(config.ControllerListener)
	if err != nil {
		t.Fatal(err)
	}
	config.Shared = SharedConfig{
		ClusterID: ident.UUID{0: 7, 15: 200}, Defaults: Defaults{MinInSyncReplicas: 1, ReplicationFactor: 1, Partitions: 1},
		Voters: []VoterConfig{{ID: 0, DirectoryID: config.DirectoryID, Host: host, Port: int(port)}},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = Run(context.Background(), config, slog.New(slog.DiscardHandler))
	}()
	within(t, "the node that can't bind", done)
	if err == nil || !strings.Contains(err.Error(), "listener ") || !strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("got %v", err)
	}
}

func TestLogsThatNobodyLookedAtAreNotCalledClean(t *testing.T) {
	fsys := vfs.NewMem()
	mark := func() (log.CleanShutdown, bool) {
		t.Helper()
		m, ok, err := log.TakeCleanShutdown(fsys, testDataDir)
		if err != nil {
			t.Fatal(err)
		}
		return m, ok
	}
	stop := func(b *testBroker) {
		t.Helper()
		n := &Node{cfg: b.cfg, fs: fsys, broker: b.broker}
		if err := n.closeBroker(); err != nil {
			t.Fatal(err)
		}
	}
	// It was killed, came up while the quorum was away, and was stopped in order.
	stop(newTestBroker(t, fsys))
	if _, clean := mark(); clean {
		t.Fatal("logs are called clean that were not closed and never opened since")
	}
	// It followed an image: everything was opened and closed.
	b := newTestBroker(t, fsys)
	b.register()
	b.lifecycle.brokerEpoch = 100
	stop(b)
	// It came up while the quorum was away, and was stopped: nothing has changed since the last clean stop.
	stop(newTestBroker(t, fsys))
	if m, clean := mark(); !clean || m.BrokerEpoch != 100 {
		t.Fatalf("clean %v, broker epoch %d; want the epoch of the last session", clean, m.BrokerEpoch)
	}
}

func TestCleanStopRecordsThatEverythingIsFlushed(t *testing.T) {
	fsys := vfs.NewMem()
	b := newTestBroker(t, fsys)
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	b.mustWrite("orders", 0, ordersID, "v")
	n := &Node{cfg: b.cfg, fs: fsys, broker: b.broker}
	if err := n.closeBroker(); err != nil {
		t.Fatal(err)
	}
	if got := newTestBroker(t, fsys).checkpoints.recoveryPoint("orders", 0); got != 1 {
		t.Fatalf("recovery point %d, want the log's end", got)
	}
}

func TestLeavingTheQuorumWaitsOnlyForWhatIsUnderWay(t *testing.T) {
	goodbye, fetch := make(chan struct{}), make(chan struct{})
	p := &quorumPeers{flying: map[chan struct{}]bool{goodbye: true}}
	done := make(chan struct{})
	started := make(chan struct{})
	go func() {
		defer close(done)
		close(started)
		p.drain(context.Background())
	}()
	<-started
	// It lands when the next one is under way already, as a follower's fetches are: one always is.
	p.mu.Lock()
	land := func() { delete(p.flying, goodbye); close(goodbye) }
	land()
	p.mu.Unlock()
	within(t, "the requests of then", done)
	p.flying[fetch] = true
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.drain(ctx) // does not wait for ever either
}

func TestControllerDoesNotWaitForTheLogsOfItsNode(t *testing.T) {
	l := newLoopTest(t)
	b := newTestBroker(t, vfs.NewMem())
	n := &Node{broker: b.broker, controller: l.controllerLoop, installs: &installs{}, logger: slog.New(slog.DiscardHandler)}
	p := newPublisher(n)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); p.runBroker(ctx) }()
	defer func() { cancel(); <-ended }()

	b.applying.Lock() // the broker is in the middle of an image
	raw := metadata.EncodeBatch(0, 1, 1000, b.registrations()...)
	for batch, err := range metadata.ReadBatches(raw) {
		if err == nil {
			err = p.loader.Load(batch)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.hand(1)
		l.settle()
	}()
	within(t, "the publisher", done)
	if l.committedTo != 1 {
		t.Errorf("the controller knows of %d", l.committedTo)
	}
	b.applying.Unlock()
	eventually(t, "the broker follows", func() bool { _, ok := b.broker.image().Broker(0); return ok })
}

func TestProducerIDsAreUniqueAndOneBlockIsAskedForAtATime(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	asked, answer := make(chan struct{}, 100), make(chan int64)
	b.producerIDs.askBlock = func(context.Context) (int64, int32, error) {
		asked <- struct{}{}
		first, ok := <-answer
		if !ok {
			return 0, 0, errors.New("the controller is away")
		}
		return first, 3, nil
	}
	type result struct {
		id  int64
		err error
	}
	results := make(chan result)
	for range 6 {
		go func() {
			id, err := b.producerIDs.allocate(t.Context())
			results <- result{id, err}
		}()
	}
	seen := map[int64]bool{}
	for _, first := range []int64{1000, 5000} {
		<-asked
		answer <- first
		for range 3 {
			r := <-results
			if r.err != nil || seen[r.id] || r.id < first || r.id >= first+3 {
				t.Fatalf("id %d, %v after %v", r.id, r.err, seen)
			}
			seen[r.id] = true
		}
	}
	// All who wait share a failure; one whose client goes waits no longer.
	gone, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { _, err := b.producerIDs.allocate(gone); left <- err }()
	<-asked
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	go func() { _, err := b.producerIDs.allocate(t.Context()); left <- err }()
	close(answer)
	if err := <-left; err == nil {
		t.Fatal("an id without a block")
	}
}

func TestOfflineNodeAsksToBeFenced(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register()
	req := b.lifecycle.heartbeatRequest()
	if req.WantFence || len(req.OfflineLogDirs) != 0 {
		t.Fatalf("a healthy node: %+v", req)
	}
	b.takeOffline(errors.New("input/output error"))
	req = b.lifecycle.heartbeatRequest()
	if !req.WantFence || len(req.OfflineLogDirs) != 1 || req.OfflineLogDirs[0] != [16]byte(b.cfg.DirectoryID) {
		t.Fatalf("an offline node: %+v", req)
	}
	b.lifecycle.stopping = true
	if req = b.lifecycle.heartbeatRequest(); req.WantFence || !req.WantShutdown {
		t.Fatalf("a node that stops: %+v", req)
	}
}

// A node that installs a snapshot knows only an old state of the cluster: it serves nobody until it has caught up.
func TestInstallingNodeAsksToBeFenced(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register()
	installing := true
	b.lifecycle.installing = func() bool { return installing }
	if !b.lifecycle.heartbeatRequest().WantFence {
		t.Fatal("asks to serve while it installs")
	}
	installing = false
	if b.lifecycle.heartbeatRequest().WantFence {
		t.Fatal("asks to be fenced when it has installed")
	}
}

// What the router of a voter does not decide itself the controller decides; a key that it does not know would be
// answered with success and nothing in it.
func TestControllerKnowsWhateverIsPassedToIt(t *testing.T) {
	own := []kmsg.Key{kmsg.ApiVersions, kmsg.Fetch, kmsg.Vote, kmsg.BeginQuorumEpoch, kmsg.EndQuorumEpoch, kmsg.DescribeQuorum,
		kmsg.DescribeCluster, kmsg.DescribeConfigs, kmsg.Envelope, kmsg.FetchSnapshot, kmsg.AddRaftVoter, kmsg.RemoveRaftVoter, kmsg.UpdateRaftVoter}
	for _, row := range wire.TableFor(wire.Controller) {
		if slices.Contains(own, kmsg.Key(row.Key)) {
			continue
		}
		inactiveMu.Lock()
		_, ok := inactive.Handle(0, kmsg.RequestForKey(row.Key))
		inactiveMu.Unlock()
		if !ok {
			t.Errorf("nobody decides %s", kmsg.NameForKey(row.Key))
		}
	}
	for key := range forwarded {
		if _, ok := wire.TableFor(wire.Controller).Lookup(int16(key)); !ok {
			t.Errorf("%s is forwarded to a listener that does not take it", kmsg.NameForKey(int16(key)))
		}
	}
}

func TestEveryKeyOfAListenerHasAHandler(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.waitReady(1000, 0)
	for listener, address := range map[wire.Listener]string{
		wire.Controller: c.nodes[1000].config.ControllerListener, wire.Internal: c.nodes[0].config.InternalListener,
		wire.External: c.nodes[0].config.ExternalListener,
	} {
		for _, row := range wire.TableFor(listener) {
			answersEmptyRequest(t, listener, address, row)
		}
	}
}

// answersEmptyRequest wants an answer to a request of nothing, or of something that does not exist.
func answersEmptyRequest(t *testing.T, listener wire.Listener, address string, row wire.KeyVersions) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testscale.Duration(10*time.Second))
	defer cancel()
	conn, err := (&wire.Dialer{}).Dial(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req := kmsg.RequestForKey(row.Key)
	switch r := req.(type) {
	case *kmsg.EnvelopeRequest:
		r.RequestData = []byte{0}
	case *kmsg.ProduceRequest:
		r.Acks = 1
	case *kmsg.UnregisterBrokerRequest:
		r.BrokerID = 77
	}
	if _, err := conn.RequestMax(ctx, req, row.Max); err != nil {
		t.Errorf("%s at %s: %v", kmsg.NameForKey(row.Key), listener, err)
	}
}
