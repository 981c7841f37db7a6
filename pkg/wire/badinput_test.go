package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestBadInputClosesTheConnectionForAReason(t *testing.T) {
	frame := func(b ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }
	truncated := kmsg.NewRequestFormatter().AppendRequest(nil, fetchRequest(11), 1)
	truncated = frame(truncated[4 : len(truncated)-3]...)
	hugeArray := kmsg.NewPtrMetadataRequest()
	hugeArray.Version = 1
	huge := kmsg.NewRequestFormatter().AppendRequest(nil, hugeArray, 1)
	binary.BigEndian.PutUint32(huge[len(huge)-4:], 0x7fffffff)
	for name, test := range map[string]struct {
		bytes  []byte
		reason CloseReason
	}{
		"oversized":             {binary.BigEndian.AppendUint32(nil, 1001), ClosedOversized},
		"http":                  {[]byte("GET / HTTP/1.1\r\n"), ClosedOversized},
		"tls":                   {[]byte{0x16, 3, 1, 2, 0, 1}, ClosedOversized},
		"large without records": {append(binary.BigEndian.AppendUint32(nil, 600), 0, 3, 0, 9), ClosedOversized},
		"large with records":    {append(binary.BigEndian.AppendUint32(nil, 600), 0, 0, 0, 9), ClosedMalformed},
		"negative length":       {[]byte{0xff, 0xff, 0xff, 0xff}, ClosedMalformed},
		"no header":             {frame(0, 18, 0), ClosedMalformed},
		"unknown key":           {frame(0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff), ClosedUnsupported},
		"unknown version":       {frame(0, 1, 0, 99, 0, 0, 0, 1, 0xff, 0xff), ClosedUnsupported},
		"produce version 2":     {frame(0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xff), ClosedUnsupported},
		"cluster action":        {kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrVoteRequest(), 1), ClosedUnsupported},
		"truncated body":        {truncated, ClosedMalformed},
		"array of 2^31":         {huge, ClosedMalformed},
		"client id too long":    {frame(0, 60, 0, 0, 0, 0, 0, 1, 0x7f, 0xff, 'x'), ClosedMalformed},
		"half a length":         {[]byte{0, 0}, ClosedMalformed},
		"length without body":   {binary.BigEndian.AppendUint32(nil, 500), ClosedMalformed},
		"nothing":               {nil, ClosedByClient},
	} {
		t.Run(name, func(t *testing.T) {
			metrics := newCountingMetrics()
			_, addr := startServer(t, ServerConfig{Listener: External, MaxRequestBytes: 1000, MaxPlainBytes: 500, Metrics: metrics,
				Handler: HandlerFunc(func(r *Request) { t.Errorf("%s reached the handler", kmsg.NameForKey(r.Key)); r.NoReply() })})
			c := dialRaw(t, addr)
			if _, err := c.Write(test.bytes); err != nil {
				t.Fatal(err)
			}
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			c.expectEOF()
			metrics.expectClosed(t, test.reason)
		})
	}
}

func TestReplicaFetchOnExternalIsRefusedPerPartition(t *testing.T) {
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: HandlerFunc(func(r *Request) {
		t.Error("the fetch reached the handler")
		r.NoReply()
	})})
	for _, version := range []int16{4, 11, 12, 14, 15, 18} {
		c := dialRaw(t, addr)
		req := fetchRequest(version)
		SetFetchReplica(req, 3, 7)
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.TopicID = "t", [16]byte{9}
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition = 5
		topic.Partitions = append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		c.send(1, req)
		_, b := c.frame()
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = version
		if resp.IsFlexible() {
			b = b[1:]
		}
		if err := resp.ReadFrom(b); err != nil {
			t.Fatal(err)
		}
		if got := resp.Topics[0].Partitions[0]; got.Partition != 5 || got.ErrorCode != kerr.TopicAuthorizationFailed.Code {
			t.Fatalf("version %d: partition %d error %d", version, got.Partition, got.ErrorCode)
		}
	}
}

func TestClientThatDoesNotReadIsGivenUpAndItsAnswersReleased(t *testing.T) {
	file, content := contentFile(t, 1<<20)
	metrics := newCountingMetrics()
	released := make(chan struct{}, 100)
	_, addr := startServer(t, ServerConfig{Listener: External, Metrics: metrics, IdleTimeout: 100 * time.Millisecond,
		Handler: HandlerFunc(func(r *Request) {
			result := &FetchResult{Topics: []FetchTopic{{Topic: "t"}}}
			for i := range int32(32) { // more than the sockets' buffers hold
				p := NewFetchPartition(i)
				p.Records = []Segment{{File: file, Length: int64(len(content))}}
				p.Release = func() { released <- struct{}{} }
				result.Topics[0].Partitions = append(result.Topics[0].Partitions, p)
			}
			r.ReplyRaw(EncodeFetch(r.Version, result))
		})})
	c := dialRaw(t, addr)
	c.send(1, fetchRequest(11))
	metrics.expectClosed(t, ClosedWriteFailed)
	for range 32 {
		<-released
	}
}

func TestPanicInHandlerStopsTheProcessByDefaultAndSaysWhere(t *testing.T) {
	var log bytes.Buffer
	s, err := NewServer(ServerConfig{Listener: External, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Handler: HandlerFunc(func(*Request) { panic("broken invariant") })})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if v := recover(); v != "broken invariant" {
			t.Errorf("the panic was swallowed: %v", v)
		}
		for _, want := range []string{"broken invariant", "DescribeCluster", "badinput_test.go"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q: %s", want, log.String())
			}
		}
	}()
	s.call(NewRequest(context.Background(), Header{Key: int16(kmsg.DescribeCluster)}, describeCluster(), Anonymous, nil, func([]byte, error) {}))
}
