package wire

import (
	"bytes"
	"context"
	"errors"
	"net"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRequestHeaderRoundTrip(t *testing.T) {
	id := "client"
	for _, clientID := range []*string{nil, &id} {
		for _, l := range []Listener{Controller, Internal, External} {
			for _, row := range TableFor(l) {
				for v := row.Min; v <= row.Max; v++ {
					req := kmsg.RequestForKey(row.Key)
					req.SetVersion(v)
					want := Header{Key: row.Key, Version: v, CorrelationID: 1234, ClientID: clientID}
					b := AppendRequest(nil, want, req)
					got, body, err := ParseRequest(append(b, "trailing"...), TableFor(l))
					if err != nil {
						t.Fatalf("%s version %d: %v", kmsg.NameForKey(row.Key), v, err)
					}
					if !reflect.DeepEqual(got, want) || body.GetVersion() != v {
						t.Fatalf("got %+v and body version %d, want %+v", got, body.GetVersion(), want)
					}
					if again := AppendRequest(nil, got, body); !bytes.Equal(again, b) {
						t.Fatalf("%s version %d: encoded again %x, want %x", kmsg.NameForKey(row.Key), v, again, b)
					}
				}
			}
		}
	}
}

func TestResponseHeaderRoundTrip(t *testing.T) {
	for _, row := range TableFor(External) {
		for v := row.Min; v <= row.Max; v++ {
			req := kmsg.RequestForKey(row.Key)
			req.SetVersion(v)
			b := AppendResponse(nil, Header{Key: row.Key, Version: v, CorrelationID: 99}, req.ResponseKind())
			resp := req.ResponseKind()
			resp.SetVersion(v)
			if got, err := ParseResponse(b, resp); err != nil || got != 99 {
				t.Fatalf("%s version %d: correlation id %d, %v", kmsg.NameForKey(row.Key), v, got, err)
			}
			if _, err := ParseResponse(b[:3], resp); err == nil {
				t.Fatal("three bytes were taken for a response")
			}
		}
	}
}

func TestTaggedFieldsOfTheHeaderAreSkipped(t *testing.T) {
	req := describeCluster()
	b := AppendRequest(nil, Header{CorrelationID: 5}, req)
	at := bytes.IndexByte(b[fixedHeaderSize:], 0) + fixedHeaderSize // behind the null client id
	tagged := append(append(bytes.Clone(b[:at]), 2, 0, 1, 'a', 200, 1, 0), b[at+1:]...)
	h, body, err := ParseRequest(tagged, TableFor(External))
	if err != nil || h.CorrelationID != 5 || body.Key() != int16(kmsg.DescribeCluster) {
		t.Fatalf("%+v, %v", h, err)
	}
}

func TestEnvelopeCarriesRequestAndPrincipal(t *testing.T) {
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.TimeoutMillis = 7, 1500
	id := "admin"
	want := Principal{Type: "User", Name: "alice"}
	env := NewEnvelope(Header{CorrelationID: 8, ClientID: &id}, create, want, &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)})
	if !bytes.Equal(env.ClientHostAddress, []byte{10, 1, 2, 3}) {
		t.Fatalf("client address %v", env.ClientHostAddress)
	}
	h, body, p, err := OpenEnvelope(env, TableFor(Controller))
	if err != nil {
		t.Fatal(err)
	}
	if p != want || h.CorrelationID != 8 || *h.ClientID != "admin" || body.(*kmsg.CreateTopicsRequest).TimeoutMillis != 1500 {
		t.Fatalf("%+v %+v %+v", h, p, body)
	}

	// The answer to the inner request goes into the envelope's.
	var data []byte
	inner := NewRequest(context.Background(), h, body, p, nil, func(b []byte, err error) {
		if err != nil {
			t.Error(err)
		}
		data = b
	})
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.ThrottleMillis = 3
	inner.Reply(resp)
	got := kmsg.NewPtrCreateTopicsResponse()
	got.Version = 7
	if correlation, err := ParseResponse(data, got); err != nil || correlation != 8 || got.ThrottleMillis != 3 {
		t.Fatalf("correlation id %d, %+v, %v", correlation, got, err)
	}

	for name, spoil := range map[string]func(*kmsg.EnvelopeRequest){
		"no principal":      func(e *kmsg.EnvelopeRequest) { e.RequestPrincipal = nil },
		"principal version": func(e *kmsg.EnvelopeRequest) { e.RequestPrincipal = []byte{0, 9, 1} },
		"torn principal":    func(e *kmsg.EnvelopeRequest) { e.RequestPrincipal = e.RequestPrincipal[:4] },
		"torn request":      func(e *kmsg.EnvelopeRequest) { e.RequestData = e.RequestData[:12] },
	} {
		bad := *env
		spoil(&bad)
		if _, _, _, err := OpenEnvelope(&bad, TableFor(Controller)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.Version = 9
	if _, _, _, err := OpenEnvelope(NewEnvelope(Header{}, produce, want, nil), TableFor(Controller)); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a forwarded Produce: %v", err)
	}
}

// The bytes are those that Apache Kafka 4.1's DefaultKafkaPrincipalBuilder writes and reads: the version once, then
// type, name, whether a token authenticated it, and no tags.
func TestEnvelopeHasThePrincipalAsKafkaWritesIt(t *testing.T) {
	kafkas := []byte("\x00\x00\x05User\x06alice\x00\x00")
	alice := Principal{Type: "User", Name: "alice"}
	describe := kmsg.NewPtrDescribeQuorumRequest()
	env := NewEnvelope(Header{CorrelationID: 1}, describe, alice, nil)
	if !bytes.Equal(env.RequestPrincipal, kafkas) {
		t.Errorf("written %q, want %q", env.RequestPrincipal, kafkas)
	}
	env.RequestPrincipal = kafkas
	if _, _, p, err := OpenEnvelope(env, TableFor(Controller)); err != nil || p != alice {
		t.Errorf("read %+v, %v", p, err)
	}
}

// FuzzParseRequest: whatever the bytes, no panic, and what is taken can be encoded again to something that
// decodes the same.
func FuzzParseRequest(f *testing.F) {
	for _, l := range []Listener{Controller, External} {
		for _, row := range TableFor(l) {
			for _, v := range []int16{row.Min, row.Max} {
				req := kmsg.RequestForKey(row.Key)
				req.SetVersion(v)
				f.Add(AppendRequest(nil, Header{CorrelationID: 1}, req), l == External)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, external bool) {
		table := TableFor(Controller)
		if external {
			table = TableFor(External)
		}
		h, body, err := ParseRequest(b, table)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnknownKey) && !errors.Is(err, ErrUnsupportedVersion) {
				t.Fatalf("error without a kind: %v", err)
			}
			return
		}
		again, _, err := ParseRequest(AppendRequest(nil, h, body), table)
		if err != nil || again.CorrelationID != h.CorrelationID || again.Key != h.Key {
			t.Fatalf("encoded again: %+v, %v; first %+v", again, err, h)
		}
	})
}

// FuzzParseResponse: whatever a server answers, no panic.
func FuzzParseResponse(f *testing.F) {
	for _, row := range TableFor(Controller) {
		req := kmsg.RequestForKey(row.Key)
		req.SetVersion(row.Max)
		f.Add(AppendResponse(nil, Header{Key: row.Key, Version: row.Max, CorrelationID: 1}, req.ResponseKind()), row.Key, row.Max)
	}
	f.Fuzz(func(t *testing.T, b []byte, key, version int16) {
		row, ok := TableFor(Controller).Lookup(key)
		if !ok || version < row.Min || version > row.Max {
			return
		}
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		resp := req.ResponseKind()
		resp.SetVersion(version)
		if _, err := ParseResponse(b, resp); err == nil && len(b) < 4 {
			t.Fatal("a response without a correlation id was taken")
		}
	})
}
