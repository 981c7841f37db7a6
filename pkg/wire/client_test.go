package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func dialTest(t *testing.T, d *Dialer, addr string) *Conn {
	t.Helper()
	c, err := d.Dial(testContext(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// echo answers DescribeCluster with the correlation id as controller id.
var echo = HandlerFunc(func(r *Request) {
	resp := r.Body.ResponseKind()
	if d, ok := resp.(*kmsg.DescribeClusterResponse); ok {
		d.ControllerID = r.CorrelationID
	}
	r.Reply(resp)
})

func TestClientNegotiatesVersionsOnceAndPipelines(t *testing.T) {
	metrics := newCountingMetrics()
	_, addr := startServer(t, ServerConfig{Listener: Controller, Handler: echo, Metrics: metrics,
		Features: func() Features {
			return Features{Supported: []Feature{{"kraft.version", 0, 1}}, Finalized: []Feature{{"metadata.version", 7, 27}}, FinalizedEpoch: 5}
		}})
	c := dialTest(t, &Dialer{ClientID: "node-1"}, addr)
	if v, ok := c.Version(int16(kmsg.Fetch), 18); !ok || v != 18 {
		t.Fatalf("Fetch version %d %v", v, ok)
	}
	if f := c.Features(); f.FinalizedEpoch != 5 || f.Supported[0].Min != 0 || f.Finalized[0].Max != 27 {
		t.Fatalf("features %+v", f)
	}
	var all sync.WaitGroup
	var seen sync.Map
	for range 50 {
		all.Go(func() {
			resp, err := c.Request(testContext(t), kmsg.NewPtrDescribeClusterRequest())
			if err != nil {
				t.Error(err)
				return
			}
			if _, twice := seen.LoadOrStore(resp.(*kmsg.DescribeClusterResponse).ControllerID, true); twice {
				t.Error("two requests got the same answer")
			}
		})
	}
	all.Wait()
	metrics.mu.Lock()
	defer metrics.mu.Unlock()
	negotiations := 0
	for _, key := range metrics.done {
		if key == int16(kmsg.ApiVersions) {
			negotiations++
		}
	}
	if negotiations != 1 || metrics.opened != 1 {
		t.Fatalf("%d negotiations on %d connections", negotiations, metrics.opened)
	}
}

func TestClientRefusesWhatTheServerDoesNotList(t *testing.T) {
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: echo})
	c := dialTest(t, &Dialer{}, addr)
	if _, err := c.Request(testContext(t), kmsg.NewPtrVoteRequest()); !errors.Is(err, ErrNotServed) {
		t.Fatalf("Vote on External: %v", err)
	}
	if _, err := c.RequestMax(testContext(t), fetchRequest(0), 3); !errors.Is(err, ErrNotServed) {
		t.Fatalf("Fetch up to 3: %v", err)
	}
	req := fetchRequest(0)
	if _, err := c.RequestMax(testContext(t), req, 12); err != nil || req.Version != 12 {
		t.Fatalf("Fetch up to 12: version %d, %v", req.Version, err)
	}
}

func TestDeadlineClosesTheConnectionButCancellationDoesNot(t *testing.T) {
	park := make(parked, 10)
	_, addr := startServer(t, ServerConfig{Listener: Controller, Handler: park})
	c := dialTest(t, &Dialer{}, addr)

	ctx, cancel := context.WithCancel(testContext(t))
	failed := make(chan error, 1)
	go func() {
		_, err := c.Request(ctx, kmsg.NewPtrDescribeClusterRequest())
		failed <- err
	}()
	abandoned := park.next(t)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	answered := make(chan kmsg.Response, 1)
	go func() {
		resp, err := c.Request(testContext(t), kmsg.NewPtrDescribeClusterRequest())
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	later := park.next(t)
	abandoned.Reply(abandoned.Body.ResponseKind())
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ControllerID = 7
	later.Reply(resp)
	if got := (<-answered).(*kmsg.DescribeClusterResponse).ControllerID; got != 7 {
		t.Fatalf("got the abandoned request's answer: controller %d", got)
	}

	ctx, cancel = context.WithTimeout(testContext(t), 30*time.Millisecond)
	defer cancel()
	if _, err := c.Request(ctx, kmsg.NewPtrDescribeClusterRequest()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	<-c.Closed()
	if _, err := c.Request(testContext(t), kmsg.NewPtrDescribeClusterRequest()); !errors.Is(err, ErrConnClosed) {
		t.Fatalf("after a missed deadline: %v", err)
	}
}

// brokenServer answers each frame by what reply makes of it.
func brokenServer(t *testing.T, reply func(n int, frame []byte) []byte) *Dialer {
	var servers sync.WaitGroup
	t.Cleanup(servers.Wait)
	return &Dialer{MaxResponseBytes: 2000, DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		servers.Go(func() {
			defer server.Close()
			for n := 0; ; n++ {
				var size [4]byte
				if _, err := io.ReadFull(server, size[:]); err != nil {
					return
				}
				frame := make([]byte, binary.BigEndian.Uint32(size[:]))
				if _, err := io.ReadFull(server, frame); err != nil {
					return
				}
				answer := reply(n, frame)
				if answer == nil {
					return
				}
				if _, err := server.Write(answer); err != nil {
					return
				}
			}
		})
		return client, nil
	}}
}

// versionsFrame is a good answer to ApiVersions.
func versionsFrame(frame []byte) []byte {
	h, body, err := ParseRequest(frame, TableFor(External))
	if err != nil {
		panic(err)
	}
	resp := apiVersions(body.(*kmsg.ApiVersionsRequest), TableFor(External), Features{FinalizedEpoch: -1})
	b := AppendResponse([]byte{0, 0, 0, 0}, h, resp)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func TestClientBreaksOffOnAnswersOutOfPlace(t *testing.T) {
	for name, answer := range map[string][]byte{
		"wrong correlation id": {0, 0, 0, 9, 0, 0, 0, 77, 0, 0, 0, 0, 0},
		"too large":            {0x7f, 0xff, 0xff, 0xff},
		"too short":            {0, 0, 0, 3, 1, 2, 3},
		"torn body":            {0, 0, 0, 6, 0, 0, 0, 1, 0, 0},
		"closed":               nil,
	} {
		t.Run(name, func(t *testing.T) {
			d := brokenServer(t, func(n int, frame []byte) []byte {
				if n == 0 {
					return versionsFrame(frame)
				}
				return answer
			})
			c := dialTest(t, d, "somewhere:1")
			_, err := c.Request(testContext(t), kmsg.NewPtrDescribeClusterRequest())
			if !errors.Is(err, ErrConnClosed) {
				t.Fatal(err)
			}
			<-c.Closed()
		})
	}
}

func TestClientFallsBackToTheVersionOfApiVersionsThatAnOldServerNames(t *testing.T) {
	var asked []int16
	d := brokenServer(t, func(_ int, frame []byte) []byte {
		h := parseFixedHeader(frame)
		asked = append(asked, h.Version)
		if h.Version <= 2 {
			return versionsFrame(frame)
		}
		resp := unsupportedAPIVersions(VersionTable{{Key: int16(kmsg.ApiVersions), Max: 2}})
		b := AppendResponse([]byte{0, 0, 0, 0}, Header{CorrelationID: h.CorrelationID}, resp)
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		return b
	})
	c := dialTest(t, d, "old:1")
	if len(asked) != 2 || asked[0] != apiVersionsMax || asked[1] != 2 {
		t.Fatalf("asked in versions %v", asked)
	}
	if _, ok := c.Version(int16(kmsg.Produce), 13); !ok {
		t.Fatal("the table is empty")
	}
}

func TestPoolKeepsOneConnectionPerAddressAndLane(t *testing.T) {
	metrics := newCountingMetrics()
	park := make(parked, 10)
	_, addr := startServer(t, ServerConfig{Listener: Controller, Metrics: metrics, Handler: HandlerFunc(func(r *Request) {
		if r.Key == int16(kmsg.Fetch) {
			park.Handle(r)
			return
		}
		echo(r)
	})})
	pool := &Pool{}
	defer pool.Close()
	fetched := make(chan error, 1)
	go func() {
		_, err := pool.Request(testContext(t), addr, fetchRequest(0))
		fetched <- err
	}()
	fetch := park.next(t)
	var all sync.WaitGroup
	for range 20 {
		// Not held back by the parked fetch, which is on a lane of its own.
		all.Go(func() {
			if _, err := pool.Request(testContext(t), addr, kmsg.NewPtrDescribeClusterRequest()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	fetch.Reply(fetch.Body.ResponseKind())
	if err := <-fetched; err != nil {
		t.Fatal(err)
	}
	metrics.mu.Lock()
	defer metrics.mu.Unlock()
	if metrics.opened != 2 {
		t.Fatalf("%d connections for two lanes", metrics.opened)
	}
}

func TestPeerReconnectsWithBackOffAndNamesTheLastError(t *testing.T) {
	var refuse atomic.Bool
	var dials atomic.Int32
	refuse.Store(true)
	_, addr := startServer(t, ServerConfig{Listener: Controller, Handler: echo})
	pool := &Pool{BackOffMin: 20 * time.Millisecond, BackOffMax: 40 * time.Millisecond, Dialer: &Dialer{
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			dials.Add(1)
			if refuse.Load() {
				return nil, errors.New("refused by the test")
			}
			return (&net.Dialer{}).DialContext(ctx, network, to)
		}}}
	defer pool.Close()
	peer := pool.Peer(addr, LaneCall)
	begun := time.Now()
	for range 4 {
		if _, err := peer.Request(testContext(t), kmsg.NewPtrDescribeClusterRequest()); err == nil || !strings.Contains(err.Error(), "refused by the test") {
			t.Fatal(err)
		}
	}
	// Three waits of at least half of 20, 40 and 40 ms.
	if took := time.Since(begun); took < 50*time.Millisecond {
		t.Fatalf("four attempts within %v", took)
	}
	refuse.Store(false)
	for range 2 {
		if _, err := peer.Request(testContext(t), kmsg.NewPtrDescribeClusterRequest()); err != nil {
			t.Fatal(err)
		}
	}
	if n := dials.Load(); n != 5 {
		t.Fatalf("%d dials, want 4 refused and one kept", n)
	}
	conn, err := peer.Conn(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := peer.Request(testContext(t), kmsg.NewPtrDescribeClusterRequest()); err != nil {
		t.Fatalf("after the connection broke: %v", err)
	}
	pool.Drop(addr)
	if _, err := peer.Request(testContext(t), kmsg.NewPtrDescribeClusterRequest()); !errors.Is(err, ErrConnClosed) {
		t.Fatalf("after Drop: %v", err)
	}
}

func TestRequestDuringBackOffEndsWithItsContextAndSaysWhatFailedBefore(t *testing.T) {
	pool := &Pool{BackOffMin: time.Hour, BackOffMax: time.Hour, Dialer: &Dialer{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused by the test") }}}
	defer pool.Close()
	if _, err := pool.Request(testContext(t), "down:1", fetchRequest(0)); err == nil {
		t.Fatal("no error")
	}
	ctx, cancel := context.WithTimeout(testContext(t), time.Millisecond)
	defer cancel()
	if _, err := pool.Request(ctx, "down:1", fetchRequest(0)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused by the test") {
		t.Fatalf("during the back-off: %v", err)
	}
}

func TestPoolCloseInterruptsDialsAndWaits(t *testing.T) {
	dialing := make(chan struct{})
	pool := &Pool{BackOffMin: time.Hour, BackOffMax: time.Hour, Dialer: &Dialer{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			if addr == "slow:1" {
				close(dialing)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, errors.New("refused by the test")
		}}}
	errs := make(chan error, 2)
	ask := func(addr string) { _, err := pool.Request(testContext(t), addr, fetchRequest(0)); errs <- err }
	go ask("slow:1")
	<-dialing
	if _, err := pool.Request(testContext(t), "down:1", fetchRequest(0)); err == nil {
		t.Fatal("no error")
	}
	go ask("down:1")
	pool.Close()
	for range 2 {
		if err := <-errs; err == nil {
			t.Fatal("a request succeeded on a closed pool")
		}
	}
	if _, err := pool.Request(testContext(t), "new:1", fetchRequest(0)); !errors.Is(err, ErrConnClosed) {
		t.Fatalf("after Close: %v", err)
	}
}

func TestHostTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(`# made by the local runtime
hw-0.hw-nodes.default.svc 127.1.0.1
hw-1.hw-nodes.default.svc:9093 127.0.0.1:20093   # through a proxy
hw-1.hw-nodes.default.svc:9094 127.0.0.9
hw-2.hw-nodes.default.svc [::1]
hw-3.hw-nodes.default.svc ::1

listen CONTROLLER 127.1.0.1:19093
advertise EXTERNAL localhost:31000
`)
	table, err := OpenHostTable(path)
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{
		"hw-0.hw-nodes.default.svc:9094": "127.1.0.1:9094",
		"hw-1.hw-nodes.default.svc:9093": "127.0.0.1:20093",
		"hw-1.hw-nodes.default.svc:9094": "127.0.0.9:9094",
		"hw-1.hw-nodes.default.svc:9095": "hw-1.hw-nodes.default.svc:9095",
		"hw-2.hw-nodes.default.svc:9092": "[::1]:9092",
		"hw-3.hw-nodes.default.svc:9092": "[::1]:9092",
		"elsewhere:1":                    "elsewhere:1",
		"no-port":                        "no-port",
	} {
		if got := table.Dial(addr); got != want {
			t.Errorf("Dial(%q) = %q, want %q", addr, got, want)
		}
	}
	if addr, ok := table.Listen(Controller); !ok || addr != "127.1.0.1:19093" {
		t.Errorf("Listen = %q %v", addr, ok)
	}
	if addr, ok := table.Advertise(External); !ok || addr != "localhost:31000" {
		t.Errorf("Advertise = %q %v", addr, ok)
	}
	if _, ok := table.Listen(External); ok {
		t.Error("Listen(External) is not in the file")
	}

	write("hw-0.hw-nodes.default.svc 127.1.0.2\n")
	if got := table.Dial("hw-0.hw-nodes.default.svc:1"); got != "127.1.0.2:1" {
		t.Errorf("after a change: %q", got)
	}
	write("one two three four\n")
	if got := table.Dial("hw-0.hw-nodes.default.svc:1"); got != "127.1.0.2:1" || table.Err() == nil {
		t.Errorf("with a bad file: %q, %v; want the old entry and an error", got, table.Err())
	}
	write("listen NOWHERE 1.2.3.4:5\n")
	if _, err := OpenHostTable(path); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("unknown listener: %v", err)
	}
	var none *HostTable
	if none.Dial("a:1") != "a:1" || none.Err() != nil {
		t.Error("a nil table maps")
	}
	if _, err := OpenHostTable(path + ".missing"); err == nil {
		t.Error("a missing file went unnoticed")
	}
}

func TestFranzGoConnects(t *testing.T) {
	var addr string
	_, addr = startServer(t, ServerConfig{Listener: External, Handler: HandlerFunc(func(r *Request) {
		if r.Key != int16(kmsg.Metadata) {
			t.Errorf("unexpected %s", kmsg.NameForKey(r.Key))
			r.Fail(errors.New("unexpected"))
			return
		}
		host, port, _ := net.SplitHostPort(addr)
		resp := kmsg.NewPtrMetadataResponse()
		resp.ClusterID, resp.ControllerID = kmsg.StringPtr("cluster-of-one"), 3
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host = 3, host
		for _, c := range port {
			b.Port = 10*b.Port + c - '0'
		}
		resp.Brokers = append(resp.Brokers, b)
		r.Reply(resp)
	})})
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(testContext(t), cl)
	if err != nil {
		t.Fatal(err)
	}
	if *resp.ClusterID != "cluster-of-one" || len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 3 || resp.Version != 13 {
		t.Fatalf("%+v", resp)
	}
}
