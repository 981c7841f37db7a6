package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Defaults of a Dialer's fields.
const (
	DefaultDialTimeout      = 5 * time.Second
	DefaultMaxResponseBytes = 100 << 20
)

// Dialer makes connections. The zero Dialer works; a Dialer isn't changed once in use.
type Dialer struct {
	// Hosts maps addresses before each dial; names are resolved anew each time, since pods move.
	Hosts *HostTable
	// TLS, when not nil, is used for every connection; ServerName is set from the address when empty.
	TLS *tls.Config
	// Timeout bounds connecting, the TLS handshake and ApiVersions together.
	Timeout time.Duration
	// ClientID goes into every request's header.
	ClientID string
	// MaxResponseBytes bounds one response, checked before anything is allocated.
	MaxResponseBytes int32
	// SoftwareName and SoftwareVersion tell the server who speaks (KIP-511).
	SoftwareName, SoftwareVersion string
	// DialContext replaces the network, for tests.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Dial connects to addr (host:port) and asks which versions are spoken there. ctx bounds Dial only.
func (d *Dialer) Dial(ctx context.Context, addr string) (*Conn, error) {
	timeout := d.Timeout
	if timeout <= 0 {
		timeout = DefaultDialTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	target := d.Hosts.Dial(addr)
	dial := d.DialContext
	if dial == nil {
		dial = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	}
	nc, err := dial(ctx, "tcp", target)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", describeTarget(addr, target), err)
	}
	if d.TLS != nil {
		cfg := d.TLS
		if cfg.ServerName == "" {
			cfg = cfg.Clone()
			cfg.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secured := tls.Client(nc, cfg)
		if err := secured.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", describeTarget(addr, target), err)
		}
		nc = secured
	}
	c := newClientConn(nc, addr, d)
	if err := c.negotiate(ctx, d); err != nil {
		c.Close()
		return nil, fmt.Errorf("ApiVersions with %s: %w", describeTarget(addr, target), err)
	}
	return c, nil
}

func describeTarget(addr, target string) string {
	if addr == target {
		return addr
	}
	return fmt.Sprintf("%s (at %s)", addr, target)
}

// apiVersionsMax is the highest ApiVersions version that the client speaks.
const apiVersionsMax = 4

// negotiate fills the connection's table; it asks again in the version that a server names with
// UNSUPPORTED_VERSION.
func (c *Conn) negotiate(ctx context.Context, d *Dialer) error {
	version := int16(apiVersionsMax)
	for range 2 {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "highwater", "0.0.0"
		if d.SoftwareName != "" {
			req.ClientSoftwareName = d.SoftwareName
		}
		if d.SoftwareVersion != "" {
			req.ClientSoftwareVersion = d.SoftwareVersion
		}
		req.SetVersion(version)
		answer, err := c.roundTrip(ctx, req)
		if err != nil {
			return err
		}
		resp := answer.(*kmsg.ApiVersionsResponse)
		if resp.ErrorCode == kerr.UnsupportedVersion.Code && version > 0 {
			version = 0
			for _, k := range resp.ApiKeys {
				if k.ApiKey == int16(kmsg.ApiVersions) {
					version = max(0, min(k.MaxVersion, apiVersionsMax-1))
				}
			}
			continue
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
		rows := make([]KeyVersions, 0, len(resp.ApiKeys))
		for _, k := range resp.ApiKeys {
			rows = append(rows, KeyVersions{Key: k.ApiKey, Min: k.MinVersion, Max: k.MaxVersion, AdvertisedMin: k.MinVersion})
		}
		c.peer = NewVersionTable(rows...)
		c.features = Features{FinalizedEpoch: resp.FinalizedFeaturesEpoch}
		for _, f := range resp.SupportedFeatures {
			c.features.Supported = append(c.features.Supported, Feature{f.Name, f.MinVersion, f.MaxVersion})
		}
		for _, f := range resp.FinalizedFeatures {
			c.features.Finalized = append(c.features.Finalized, Feature{f.Name, f.MinVersionLevel, f.MaxVersionLevel})
		}
		return nil
	}
	return errors.New("the server supports no version of it that we do")
}
