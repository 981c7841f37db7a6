package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// countingMetrics keeps what a listener tells.
type countingMetrics struct {
	mu     sync.Mutex
	opened int
	closed chan CloseReason
	done   []int16
}

func newCountingMetrics() *countingMetrics {
	return &countingMetrics{closed: make(chan CloseReason, 100)}
}

func (m *countingMetrics) ConnectionOpened() { m.mu.Lock(); m.opened++; m.mu.Unlock() }

func (m *countingMetrics) ConnectionClosed(r CloseReason) { m.closed <- r }

func (m *countingMetrics) RequestDone(key, _ int16, _, _ int64, _ time.Duration) {
	m.mu.Lock()
	m.done = append(m.done, key)
	m.mu.Unlock()
}

func (m *countingMetrics) expectClosed(t *testing.T, want CloseReason) {
	t.Helper()
	select {
	case got := <-m.closed:
		if got != want {
			t.Fatalf("connection closed for %q, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("connection stayed open, want it closed for %q", want)
	}
}

// startServer serves cfg on a loopback address until the test ends.
func startServer(t testing.TB, cfg ServerConfig) (*Server, string) {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return s, ln.Addr().String()
}

// rawClient writes and reads frames without any of this package's client.
type rawClient struct {
	t testing.TB
	net.Conn
	format *kmsg.RequestFormatter
}

func dialRaw(t testing.TB, addr string) *rawClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return &rawClient{t, nc, kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw"))}
}

func (c *rawClient) send(correlation int32, reqs ...kmsg.Request) {
	c.t.Helper()
	for i, req := range reqs {
		if _, err := c.Write(c.format.AppendRequest(nil, req, correlation+int32(i))); err != nil {
			c.t.Fatal(err)
		}
	}
}

// frame reads one answer: correlation id and what is behind it.
func (c *rawClient) frame() (int32, []byte) {
	c.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		c.t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		c.t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:]
}

func (c *rawClient) expectEOF() {
	c.t.Helper()
	b, err := io.ReadAll(c)
	if err != nil && !isReset(err) || len(b) > 0 {
		c.t.Fatalf("read %d bytes and %v, want the connection closed", len(b), err)
	}
}

func describeCluster() *kmsg.DescribeClusterRequest {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.Version = 1
	return req
}

func fetchRequest(version int16) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID = version, -1
	return req
}

// parked is a handler that keeps requests for the test to answer.
type parked chan *Request

func (p parked) Handle(r *Request) { p <- r }

func (p parked) next(t *testing.T) *Request {
	t.Helper()
	select {
	case r := <-p:
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("no request arrived")
		return nil
	}
}

func TestAnswersLeaveInRequestOrderWhateverOrderTheyAreGivenIn(t *testing.T) {
	park := make(parked, 10)
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: park})
	c := dialRaw(t, addr)
	c.send(100, describeCluster(), describeCluster(), describeCluster(), describeCluster())
	var reqs []*Request
	for range 4 {
		reqs = append(reqs, park.next(t))
	}
	for _, i := range []int{2, 3, 1, 0} {
		resp := kmsg.NewPtrDescribeClusterResponse()
		resp.ControllerID = int32(i)
		reqs[i].Reply(resp)
	}
	for want := range int32(4) {
		correlation, b := c.frame()
		resp := kmsg.NewPtrDescribeClusterResponse()
		resp.Version = 1
		if err := resp.ReadFrom(b[1:]); err != nil {
			t.Fatal(err)
		}
		if correlation != 100+want || resp.ControllerID != want {
			t.Fatalf("answer %d has correlation id %d and controller %d", want, correlation, resp.ControllerID)
		}
	}
	if *reqs[0].ClientID != "raw" || reqs[0].Principal != Anonymous || reqs[0].Listener != External {
		t.Fatalf("request is %+v", reqs[0])
	}
}

func TestProduceWithoutAcksGetsNoAnswerAndKeepsTheOrder(t *testing.T) {
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: HandlerFunc(func(r *Request) {
		if r.Key == int16(kmsg.Produce) {
			r.NoReply()
			return
		}
		r.Reply(r.Body.ResponseKind())
	})})
	c := dialRaw(t, addr)
	produce := kmsg.NewPtrProduceRequest()
	produce.Version = 9
	c.send(1, produce, describeCluster(), produce, describeCluster())
	for _, want := range []int32{2, 4} {
		if correlation, _ := c.frame(); correlation != want {
			t.Fatalf("correlation id %d, want %d", correlation, want)
		}
	}
}

func TestSecondAnswerIsABug(t *testing.T) {
	r := NewRequest(context.Background(), Header{Key: int16(kmsg.DescribeCluster)}, describeCluster(), Anonymous, nil, func([]byte, error) {})
	r.NoReply()
	defer func() {
		if recover() == nil {
			t.Fatal("answering twice went unnoticed")
		}
	}()
	r.NoReply()
}

func TestApiVersions(t *testing.T) {
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: HandlerFunc((*Request).NoReply), Features: func() Features {
		return Features{
			Supported:      []Feature{{"metadata.version", 7, 27}, {"kraft.version", 0, 1}},
			Finalized:      []Feature{{"metadata.version", 27, 27}},
			FinalizedEpoch: 42,
		}
	}})
	ask := func(version int16, name string) *kmsg.ApiVersionsResponse {
		c := dialRaw(t, addr)
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, name, "1.0"
		c.send(77, req)
		correlation, b := c.frame()
		if correlation != 77 {
			t.Fatalf("correlation id %d", correlation)
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		if version <= 4 {
			resp.Version = version
		}
		// No tagged fields in the response header, whatever the version.
		if err := resp.ReadFrom(b); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		return resp
	}
	for version := range int16(5) {
		resp := ask(version, "test-client")
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(TableFor(External)) {
			t.Fatalf("version %d: error %d, %d keys", version, resp.ErrorCode, len(resp.ApiKeys))
		}
		if first := resp.ApiKeys[0]; first.ApiKey != 0 || first.MinVersion != 0 || first.MaxVersion != 13 {
			t.Fatalf("Produce is advertised as %+v", first)
		}
		if version < 3 {
			continue
		}
		if resp.FinalizedFeaturesEpoch != 42 || resp.FinalizedFeatures[0].MaxVersionLevel != 27 {
			t.Fatalf("version %d: features %+v", version, resp)
		}
		wantMin := int16(0)
		if version == 3 {
			wantMin = 1
		}
		if got := resp.SupportedFeatures[1].MinVersion; got != wantMin {
			t.Fatalf("version %d: kraft.version from %d, want %d", version, got, wantMin)
		}
	}
	if resp := ask(3, "bad name!"); resp.ErrorCode != kerr.InvalidRequest.Code {
		t.Fatalf("bad client name: error %d", resp.ErrorCode)
	}
	resp := ask(5, "from-the-future")
	if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 4 {
		t.Fatalf("version 5: %+v", resp)
	}
}

func TestReaderStopsAtInFlightLimitAndGoesOnAfterAnswers(t *testing.T) {
	const limit, total = 3, 10
	park := make(parked, total)
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: park, MaxInFlight: limit})
	c := dialRaw(t, addr)
	for i := range int32(total) {
		c.send(i, describeCluster())
	}
	var waiting []*Request
	for range limit {
		waiting = append(waiting, park.next(t))
	}
	for answered := range total {
		if answered+limit <= total {
			select {
			case r := <-park:
				t.Fatalf("request %d was read with %d in flight", r.CorrelationID, len(waiting))
			case <-time.After(10 * time.Millisecond):
			}
		}
		waiting[0].Reply(waiting[0].Body.ResponseKind())
		waiting = waiting[1:]
		if got, _ := c.frame(); got != int32(answered) {
			t.Fatalf("answer to %d, want %d", got, answered)
		}
		if answered+limit < total {
			waiting = append(waiting, park.next(t))
		}
	}
}

func TestBufferedBytesHoldBackOtherConnectionsUntilBodyIsReleased(t *testing.T) {
	park := make(parked, 10)
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: park, MaxBufferedBytes: 1500})
	a, b := dialRaw(t, addr), dialRaw(t, addr)
	big := kmsg.NewPtrMetadataRequest()
	big.Version = 1
	for range 100 {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr("12345678")
		big.Topics = append(big.Topics, topic)
	}
	a.send(1, big)
	first := park.next(t)
	b.send(2, big)
	select {
	case <-park:
		t.Fatal("the second request was read while the first filled the budget")
	case <-time.After(50 * time.Millisecond):
	}
	first.ReleaseBody()
	first.ReleaseBody()
	second := park.next(t)
	second.Reply(kmsg.NewPtrMetadataResponse())
	first.Reply(kmsg.NewPtrMetadataResponse())
	a.frame()
	b.frame()
}

func TestShutdownLetsInFlightRequestsBeAnswered(t *testing.T) {
	park := make(parked, 10)
	metrics := newCountingMetrics()
	s, addr := startServer(t, ServerConfig{Listener: External, Handler: park, Metrics: metrics})
	c, idle := dialRaw(t, addr), dialRaw(t, addr)
	c.send(1, describeCluster())
	r := park.next(t)
	idle.send(1, fetchRequest(4))
	dropped := park.next(t)
	dropped.Reply(dropped.Body.ResponseKind())
	idle.frame()

	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	idle.expectEOF()
	metrics.expectClosed(t, ClosedShutdown)
	select {
	case err := <-done:
		t.Fatalf("Shutdown returned %v with a request in flight", err)
	default:
	}
	if r.Context().Err() != nil {
		t.Fatal("the request's context ended though its client is there")
	}
	r.Reply(r.Body.ResponseKind())
	if correlation, _ := c.frame(); correlation != 1 {
		t.Fatalf("correlation id %d", correlation)
	}
	c.expectEOF()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Fatal("a connection was accepted after Shutdown")
	}
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	park := make(parked, 10)
	s, addr := startServer(t, ServerConfig{Listener: External, Handler: park})
	c := dialRaw(t, addr)
	c.send(1, describeCluster())
	r := park.next(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Shutdown returned %v", err)
	}
	<-r.Context().Done()
	released := make(chan struct{})
	r.ReplyRaw(&Response{Release: func() { close(released) }})
	<-released
}

func TestClientThatLeavesEndsTheRequestContextAndReleasesAnswers(t *testing.T) {
	park := make(parked, 10)
	metrics := newCountingMetrics()
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: park, Metrics: metrics})
	c := dialRaw(t, addr)
	c.send(1, fetchRequest(11), fetchRequest(11))
	first, second := park.next(t), park.next(t)
	released := make(chan int, 2)
	second.ReplyRaw(&Response{Segments: []Segment{{Bytes: []byte("x")}}, Release: func() { released <- 2 }})
	c.Close()
	metrics.expectClosed(t, ClosedByClient)
	<-first.Context().Done()
	if got := <-released; got != 2 {
		t.Fatal("the waiting answer was not released")
	}
	first.ReplyRaw(&Response{Release: func() { released <- 1 }})
	if got := <-released; got != 1 {
		t.Fatal("the late answer was not released")
	}
}

func TestPanicInHandlerIsReported(t *testing.T) {
	panics := make(chan any, 1)
	metrics := newCountingMetrics()
	_, addr := startServer(t, ServerConfig{Listener: External, Metrics: metrics,
		Handler: HandlerFunc(func(*Request) { panic("log of t-0 is torn") }),
		OnPanic: func(_ *Request, v any, stack []byte) {
			if len(stack) == 0 {
				t.Error("no stack")
			}
			panics <- v
		}})
	c := dialRaw(t, addr)
	c.send(1, describeCluster())
	c.expectEOF()
	if got := <-panics; got != "log of t-0 is torn" {
		t.Fatalf("reported %v", got)
	}
	metrics.expectClosed(t, ClosedByHandler)
}

func TestFailClosesTheConnection(t *testing.T) {
	metrics := newCountingMetrics()
	_, addr := startServer(t, ServerConfig{Listener: External, Metrics: metrics,
		Handler: HandlerFunc(func(r *Request) { r.Fail(errors.New("acks=0 append failed")) })})
	c := dialRaw(t, addr)
	c.send(1, describeCluster())
	c.expectEOF()
	metrics.expectClosed(t, ClosedByHandler)
}

func TestIdleConnectionIsClosedButNotWhileARequestWaits(t *testing.T) {
	park := make(parked, 10)
	metrics := newCountingMetrics()
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: park, Metrics: metrics, IdleTimeout: 30 * time.Millisecond})
	c := dialRaw(t, addr)
	c.send(1, describeCluster())
	r := park.next(t)
	select {
	case reason := <-metrics.closed:
		t.Fatalf("closed for %q with a request in flight", reason)
	case <-time.After(120 * time.Millisecond):
	}
	r.Reply(r.Body.ResponseKind())
	c.frame()
	metrics.expectClosed(t, ClosedIdle)
}

func TestFileRangesArriveWhole(t *testing.T) {
	file, content := contentFile(t, 9<<20)
	rack := "r"
	park := make(parked, 10)
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: park})
	ranges := [][2]int{{0, 100}, {5, 40_000}, {100, 9 << 20}, {7, 7}, {1 << 20, 1<<20 + 32<<10}, {3, 300_000}}
	for _, open := range map[string]Segment{"os.File": {File: file}, "reader": {File: struct{ io.ReaderAt }{file}}} {
		c := dialRaw(t, addr)
		c.send(5, fetchRequest(16))
		r := park.next(t)
		result := &FetchResult{Topics: []FetchTopic{{TopicID: [16]byte{1}}}, Brokers: []kmsg.FetchResponseBroker{{Host: "h", Rack: &rack}}}
		released := make(chan struct{})
		for i, rg := range ranges {
			p := NewFetchPartition(int32(i))
			p.Records = []Segment{{Bytes: content[:3]}, {File: open.File, Offset: int64(rg[0]), Length: int64(rg[1] - rg[0])}}
			if i == 0 {
				p.Release = func() { close(released) }
			}
			result.Topics[0].Partitions = append(result.Topics[0].Partitions, p)
		}
		r.ReplyRaw(EncodeFetch(16, result))
		_, b := c.frame()
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = 16
		if err := resp.ReadFrom(b[1:]); err != nil {
			t.Fatal(err)
		}
		<-released
		for i, rg := range ranges {
			want := string(content[:3]) + string(content[rg[0]:rg[1]])
			if got := string(resp.Topics[0].Partitions[i].RecordBatches); got != want {
				t.Fatalf("range %v differs: %d bytes, want %d", rg, len(got), len(want))
			}
		}
		if resp.Brokers[0].Host != "h" {
			t.Fatal("what is behind the last range is lost")
		}
	}
}

func TestFileThatTurnsOutShorterBreaksTheConnection(t *testing.T) {
	file, content := contentFile(t, 100_000)
	metrics := newCountingMetrics()
	_, addr := startServer(t, ServerConfig{Listener: External, Metrics: metrics, Handler: HandlerFunc(func(r *Request) {
		p := NewFetchPartition(0)
		p.Records = []Segment{{File: file, Length: int64(len(content)) + 1}}
		r.ReplyRaw(EncodeFetch(r.Version, &FetchResult{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{p}}}}))
	})})
	c := dialRaw(t, addr)
	c.send(1, fetchRequest(11))
	b, err := io.ReadAll(c)
	if err != nil && !isReset(err) {
		t.Fatal(err)
	}
	if r := (kbin.Reader{Src: b}); len(b) > 0 && int(r.Int32()) <= len(b)-4 {
		t.Fatal("a whole answer arrived though the file was short")
	}
	metrics.expectClosed(t, ClosedWriteFailed)
}

func TestListenerTablesMatchWhatKmsgCanDecode(t *testing.T) {
	for _, l := range []Listener{Controller, Internal, External} {
		for i, row := range TableFor(l) {
			if i > 0 && TableFor(l)[i-1].Key >= row.Key {
				t.Errorf("%s: key %d is out of order", l, row.Key)
			}
			req := kmsg.RequestForKey(row.Key)
			if req == nil || row.Max > req.MaxVersion() || row.Min > row.Max || row.AdvertisedMin > row.Min {
				t.Errorf("%s: %+v", l, row)
			}
		}
	}
	for _, clusterAction := range []kmsg.Key{kmsg.Vote, kmsg.AlterPartition, kmsg.BrokerHeartbeat, kmsg.Envelope, kmsg.AllocateProducerIDs} {
		if _, ok := TableFor(External).Lookup(int16(clusterAction)); ok {
			t.Errorf("External lists %s", clusterAction.Name())
		}
		if _, ok := TableFor(Controller).Lookup(int16(clusterAction)); !ok {
			t.Errorf("Controller lacks %s", clusterAction.Name())
		}
	}
	if _, ok := TableFor(External).Without(1).Lookup(1); ok {
		t.Error("Without kept the key")
	}
}
