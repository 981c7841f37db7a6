package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// testCertificate makes a self-signed certificate for 127.0.0.1 with a common name.
func testCertificate(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	template.Subject.CommonName = name
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

func TestTLSConnectionsCarryThePrincipalAndFileRanges(t *testing.T) {
	cert, roots := testCertificate(t, "node-7")
	file, content := contentFile(t, 300_000)
	metrics := newCountingMetrics()
	_, addr := startServer(t, ServerConfig{Listener: Internal, Metrics: metrics,
		TLS: &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, ClientCAs: roots},
		Principal: func(nc net.Conn) (Principal, error) {
			certs := nc.(*tls.Conn).ConnectionState().PeerCertificates
			if len(certs) == 0 {
				return Principal{}, errors.New("no certificate")
			}
			return Principal{Type: "User", Name: certs[0].Subject.CommonName}, nil
		},
		Handler: HandlerFunc(func(r *Request) {
			p := NewFetchPartition(0)
			if r.Principal.String() == "User:node-7" {
				p.Records = []Segment{{File: file, Length: int64(len(content))}}
			}
			r.ReplyRaw(EncodeFetch(r.Version, &FetchResult{Topics: []FetchTopic{{Partitions: []FetchPartition{p}}}}))
		})})
	c := dialTest(t, &Dialer{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots}}, addr)
	resp, err := c.Request(testContext(t), fetchRequest(0))
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches; string(got) != string(content) {
		t.Fatalf("%d bytes arrived, want %d", len(got), len(content))
	}
	if _, err := (&Dialer{TLS: &tls.Config{RootCAs: roots}}).Dial(testContext(t), addr); err == nil {
		t.Fatal("a client without certificate was let in")
	}
	metrics.expectClosed(t, ClosedAuthentication)
	if _, err := (&Dialer{Timeout: 5 * time.Second}).Dial(testContext(t), addr); err == nil {
		t.Fatal("a client without TLS was let in")
	}
	metrics.expectClosed(t, ClosedAuthentication)
}

func TestAuthorizerIsAskedWithTheConnectionsPrincipal(t *testing.T) {
	asked := make(chan string, 10)
	_, addr := startServer(t, ServerConfig{Listener: External,
		Principal: func(net.Conn) (Principal, error) { return Principal{"User", "bob"}, nil },
		Authorizer: authorizerFunc(func(p Principal, op Operation, on Resource) bool {
			asked <- p.String() + " " + on.Name
			return op == OpDescribe
		}),
		Handler: HandlerFunc(func(r *Request) {
			resp := r.Body.ResponseKind().(*kmsg.DescribeClusterResponse)
			if r.Authorize(OpDescribe, ClusterResource) && !r.Authorize(OpAlter, ClusterResource) {
				resp.ControllerID = 1
			}
			r.Reply(resp)
		})})
	resp, err := dialTest(t, &Dialer{}, addr).Request(testContext(t), kmsg.NewPtrDescribeClusterRequest())
	if err != nil {
		t.Fatal(err)
	}
	if resp.(*kmsg.DescribeClusterResponse).ControllerID != 1 || len(asked) != 2 {
		t.Fatalf("asked %d times, answered %+v", len(asked), resp)
	}
	if question := <-asked; question != "User:bob kafka-cluster" {
		t.Fatalf("asked about %q", question)
	}
}

type authorizerFunc func(Principal, Operation, Resource) bool

func (f authorizerFunc) Authorize(p Principal, op Operation, on Resource) bool { return f(p, op, on) }
