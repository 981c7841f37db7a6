package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/nodes"
)

// sessionTimeout is our controller's (pkg/node, DefaultTiming); Kafka's own of 9 s plays no part.
const sessionTimeout = 3 * time.Second

// stockBroker formats and starts a broker, and looks at it from both sides.
func (p *proof) stockBroker(ctx context.Context) error {
	var err error
	if p.broker, err = newBroker(ctx, p.ours, filepath.Join(p.dir, "kafka")); err != nil {
		return err
	}
	if err := p.broker.start(); err != nil {
		return err
	}
	if !p.check("it registers and is unfenced", func() (string, error) {
		began := time.Now()
		err := p.waitUnfenced(ctx)
		return fmt.Sprintf("%.1f s after its start", time.Since(began).Seconds()), err
	}) {
		return errors.New("the broker is not in service")
	}
	p.check("its own metrics: our metadata log is loaded and applied without an error", func() (string, error) { return p.loadErrors(ctx) })
	p.check("kafka-cluster list-endpoints through our node and through the broker", func() (string, error) {
		for _, server := range []string{p.ours.Node(0).External, p.broker.external} {
			if err := p.endpoints(ctx, "--bootstrap-server", server, "broker", 0, 1, kafkaID); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	p.check("kafka-metadata-quorum describe --status through the broker", func() (string, error) {
		return p.quorumStatus(ctx, "--bootstrap-server", p.broker.external)
	})
	return nil
}

// waitUnfenced waits until the broker is in service. The start of a Java machine takes most of it.
func (p *proof) waitUnfenced(ctx context.Context) error {
	return nodes.WaitFor(ctx, 90*time.Second, func(ctx context.Context) error {
		select {
		case <-p.broker.process.Done():
			_, code, _ := p.broker.process.Ended()
			return fmt.Errorf("its process has ended with %d, see %s", code, p.broker.log())
		default:
		}
		return p.unfenced(ctx, kafkaID)
	})
}

// waitFenced waits until our controller has fenced the broker and returns how long that took from a moment on.
func (p *proof) waitFenced(ctx context.Context, since time.Time) (time.Duration, error) {
	err := nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) error {
		fenced, err := p.isFenced(ctx, kafkaID)
		if err == nil && !fenced {
			err = fmt.Errorf("broker %d is not fenced", kafkaID)
		}
		return err
	})
	return time.Since(since), err
}

// loadErrors reads Kafka's metrics of its metadata log over JMX, and its log.
func (p *proof) loadErrors(ctx context.Context, expected ...string) (string, error) {
	host, port, err := net.SplitHostPort(p.broker.jmx)
	if err != nil {
		return "", err
	}
	out, err := tool(ctx, jmxTool, "--jmx-url", fmt.Sprintf("service:jmx:rmi:///jndi/rmi://%s:%s/jmxrmi", host, port),
		"--object-name", "kafka.server:type=broker-metadata-metrics", "--one-time", "--report-format", "properties")
	if err != nil {
		return "", err
	}
	values := map[string]float64{}
	for line := range strings.Lines(out) {
		at := strings.LastIndex(line, "broker-metadata-metrics:")
		if name, value, ok := strings.Cut(strings.TrimSpace(line[max(at, 0):]), "="); ok && at >= 0 {
			if values[strings.TrimPrefix(name, "broker-metadata-metrics:")], err = strconv.ParseFloat(value, 64); err != nil {
				return "", fmt.Errorf("%w in %q", err, line)
			}
		}
	}
	for _, name := range []string{"metadata-load-error-count", "metadata-apply-error-count"} {
		if value, ok := values[name]; !ok || value != 0 {
			return "", fmt.Errorf("%s is %v of %s", name, value, out)
		}
	}
	applied := values["last-applied-record-offset"]
	if applied < 1 {
		return "", fmt.Errorf("nothing is applied: %s", out)
	}
	return fmt.Sprintf("metadata-load-error-count 0, metadata-apply-error-count 0, applied up to %.0f", applied), p.broker.complaints(expected...)
}

// fencedInTime checks how long the fencing took after the broker's last heartbeat, which came within half a second.
func fencedInTime(took time.Duration) error {
	if limit := sessionTimeout + testscale.Duration(1500*time.Millisecond); took > limit {
		return fmt.Errorf("fenced after %s, the session is %s", took.Round(time.Millisecond), sessionTimeout)
	}
	return nil
}
