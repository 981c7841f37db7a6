package badinput

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/testscale"
)

// conn is a connection on which a test says byte for byte what is sent.
type conn struct {
	*testing.T
	net.Conn
	request kmsg.Request // the last one of exchange
	frame   []byte       // and its answer
}

func (n *node) dial(t *testing.T) *conn {
	t.Helper()
	c, err := net.Dial("tcp", n.client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(testscale.Duration(30 * time.Second)))
	return &conn{T: t, Conn: c}
}

func (c *conn) send(b []byte) {
	c.Helper()
	if _, err := c.Write(b); err != nil {
		c.Fatal(err)
	}
}

// exchange sends a request and reads the frame that answers it, without its length.
func (c *conn) exchange(req kmsg.Request) *conn {
	c.Helper()
	c.send(kmsg.NewRequestFormatter().AppendRequest(nil, req, 7))
	c.request, c.frame = req, c.read()
	return c
}

func (c *conn) read() []byte {
	c.Helper()
	size := make([]byte, 4)
	if _, err := io.ReadFull(c.Conn, size); err != nil {
		c.Fatal(err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size))
	if _, err := io.ReadFull(c.Conn, frame); err != nil {
		c.Fatal(err)
	}
	return frame
}

// into decodes the answer to the last exchange.
func (c *conn) into(resp kmsg.Response) (kmsg.Response, error) {
	resp.SetVersion(c.request.GetVersion())
	body := c.frame[4:]
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

// isClosed fails unless the node closes the connection without a word.
func (c *conn) isClosed() {
	c.Helper()
	got, err := io.ReadAll(c.Conn)
	var closed *net.OpError
	silent := err == nil || errors.As(err, &closed) && !closed.Timeout()
	if !silent || len(got) > 0 {
		c.Errorf("the node answered %q, %v; want a closed connection", got, err)
	}
}

func frame(b ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

func TestUnknownKeysAndOversizedRequestsCloseTheConnectionAndNothingElse(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("orders", nil)
	other := n.dial(t)
	closed := func(reason string) float64 {
		return n.metric(`highwater_connections_closed_total{listener="EXTERNAL",reason="` + reason + `"}`)
	}
	for name, test := range map[string]struct {
		bytes  []byte
		reason string
	}{
		"unknown api key":         {frame(0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff), "unsupported"},
		"key of other listeners":  {kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrVoteRequest(), 1), "unsupported"},
		"unknown version":         {frame(0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff), "unsupported"},
		"oversized":               {binary.BigEndian.AppendUint32(nil, 2_000_000_000), "oversized"},
		"http":                    {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "oversized"},
		"negative size":           {[]byte{0xff, 0xff, 0xff, 0xfe}, "malformed"},
		"body is cut off":         {frame(0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0), "malformed"},
		"array of 2^31 topics":    {frame(0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff), "malformed"},
		"nothing but a size of 0": {frame(), "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			before := closed(test.reason)
			c := n.dial(t)
			c.send(test.bytes)
			c.isClosed()
			n.eventually("the metric counts a connection closed because it was "+test.reason, func() error {
				if closed(test.reason) == before {
					return fmt.Errorf("still %v", before)
				}
				return nil
			})
		})
	}
	// Whoever was connected before is still served, and so is everybody else.
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	resp, err := other.exchange(req).into(kmsg.NewPtrMetadataResponse())
	if err != nil || len(resp.(*kmsg.MetadataResponse).Topics) != 1 {
		t.Errorf("another connection: %+v, %v", resp, err)
	}
	n.produce("orders", 0, 3)
}

// A client that begins with too new an ApiVersions is told the versions, in version 0 (KIP-511).
func TestUnknownVersionOfApiVersionsIsAnsweredWithWhatIsServed(t *testing.T) {
	n := newNode(t)
	n.start()
	c := n.dial(t)
	c.send(frame(0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff, 0))
	answer := c.read()
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(answer[4:]); err != nil {
		t.Fatal(err)
	}
	if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) == 0 {
		t.Errorf("answered code %d with %d keys, want UNSUPPORTED_VERSION and the keys", resp.ErrorCode, len(resp.ApiKeys))
	}
	if _, err := c.exchange(kmsg.NewPtrApiVersionsRequest()).into(kmsg.NewPtrApiVersionsResponse()); err != nil {
		t.Errorf("the connection can't be used after that: %v", err)
	}
}

func TestGroupsAndTransactionsAreRefusedWithAnErrorThatEndsTheClientsTries(t *testing.T) {
	n := newNode(t)
	n.start()
	for version := range int16(7) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKey, req.CoordinatorKeys = version, "g", []string{"g"}
		decoded, err := n.dial(t).exchange(req).into(kmsg.NewPtrFindCoordinatorResponse())
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		resp := decoded.(*kmsg.FindCoordinatorResponse)
		code, message := resp.ErrorCode, resp.ErrorMessage
		if version >= 4 {
			code, message = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].ErrorMessage
		}
		if code != kerr.UnsupportedVersion.Code || version > 0 && (message == nil || !strings.Contains(*message, "consumer groups are not served")) {
			t.Errorf("version %d: code %d, message %v", version, code, message)
		}
	}
	client := n.kgo()
	req := kmsg.NewPtrInitProducerIDRequest()
	id := "transfers"
	req.TransactionalID = &id
	if _, err := client.Request(n.context(), req); !errors.Is(err, kerr.UnsupportedVersion) {
		t.Errorf("a transactional id: %v, want UNSUPPORTED_VERSION", err)
	}
}
