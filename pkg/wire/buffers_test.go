package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/buffer"
)

func produceRequest(acks int16, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, acks, 1000
	topic, part := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	topic.Topic, part.Records = "t", records
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

func recordsOf(r *Request) []byte {
	return r.Body.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records
}

func TestProducedBytesAreLentUntilTheirRelease(t *testing.T) {
	handler := make(parked, 10)
	server, addr := startServer(t, ServerConfig{Listener: External, Handler: handler})
	before := buffer.Outstanding()
	c := dialRaw(t, addr)
	content := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 3000*(i+1)) }
	var waiting []*Request
	for i := range 4 {
		c.send(int32(i), produceRequest(-1, content(i)))
		waiting = append(waiting, handler.next(t))
	}
	for i, r := range waiting { // others came meanwhile
		if !bytes.Equal(recordsOf(r), content(i)) {
			t.Fatalf("request %d holds other bytes while it is owned", i)
		}
	}
	for _, r := range waiting {
		kept := recordsOf(r)
		r.ReleaseBody()
		r.ReleaseBody()
		if bytes.IndexByte(kept, 0xdb) != 0 {
			t.Fatal("the bytes are still there after their release: another request can't have them")
		}
	}
	for _, r := range waiting { // a produce that waited for its followers
		r.Reply(kmsg.NewPtrProduceResponse())
	}
	for range waiting {
		c.frame()
	}
	server.Close() // the last answer is released after it was read
	if n := buffer.Outstanding(); n != before {
		t.Errorf("%d buffers are lent, %d were before", n, before)
	}
}

func TestPooledAnswerIsLentUntilItsRelease(t *testing.T) {
	want := bytes.Repeat([]byte("record"), 400<<10)
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: HandlerFunc(func(r *Request) {
		p := NewFetchPartition(0)
		p.Records = []Segment{{Bytes: want}}
		r.ReplyRaw(EncodeFetch(r.Version, &FetchResult{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{p}}}}))
	})})
	c := dialTest(t, &Dialer{}, addr)
	records := func(resp kmsg.Response) []byte {
		return resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches
	}
	owned, err := c.Request(testContext(t), fetchRequest(12))
	if err != nil {
		t.Fatal(err)
	}
	var kept []byte
	for range 3 {
		resp, release, err := c.RequestPooled(testContext(t), fetchRequest(12))
		if err != nil {
			t.Fatal(err)
		}
		if kept = records(resp); !bytes.Equal(kept, want) {
			t.Fatal("the answer holds other bytes")
		}
		release()
		if bytes.IndexByte(kept, 0xdb) != 0 {
			t.Fatal("the bytes are still there after their release")
		}
	}
	if !bytes.Equal(records(owned), want) {
		t.Fatal("an answer that is not lent has changed")
	}
}

// pattern is a file of numbers, so that any shift or swap shows.
type pattern struct{}

func (pattern) ReadAt(b []byte, at int64) (int, error) {
	for i := range b {
		b[i] = byte((at + int64(i)) / 8 >> (8 * ((at + int64(i)) % 8)))
	}
	return len(b), nil
}

func TestSlowReaderGetsItsBytesWhileOthersUseThePool(t *testing.T) {
	const size = 24 << 20 // more than the sockets' buffers take
	_, addr := startServer(t, ServerConfig{Listener: External, Handler: HandlerFunc(func(r *Request) {
		if r.Key == int16(kmsg.Produce) {
			r.Reply(kmsg.NewPtrProduceResponse())
			return
		}
		p := NewFetchPartition(0)
		p.Records = []Segment{{File: pattern{}, Length: size}}
		r.ReplyRaw(EncodeFetch(r.Version, &FetchResult{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{p}}}}))
	})})
	slow, busy := dialRaw(t, addr), dialRaw(t, addr)
	slow.send(1, fetchRequest(4))
	var head [4]byte
	if _, err := io.ReadFull(slow, head[:]); err != nil { // so it is being written
		t.Fatal(err)
	}
	for i := range 200 {
		busy.send(int32(i), produceRequest(1, bytes.Repeat([]byte{0xff}, 60<<10)))
		busy.frame()
	}
	frame := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(slow, frame); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size)
	_, _ = pattern{}.ReadAt(want, 0)
	if got := frame[len(frame)-size:]; !bytes.Equal(got, want) {
		t.Fatal("the slow reader got other bytes")
	}
}
