package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/nodes"
)

// The ids of our nodes.
var (
	ourVoters = []int32{100, 101, 102}
	ourData   = []int32{0, 1}
)

// The metrics that are compared with what Kafka's tools say.
const (
	metricHighWatermark = "highwater_metadata_high_watermark"
	metricLogStart      = "highwater_metadata_log_start_offset"
)

// metric reads one of them.
func metric(ctx context.Context, n *nodes.Node, name string) (int64, error) {
	value, err := n.Metric(ctx, name)
	return int64(value), err
}

// start starts three voters and two data nodes whose metadata log is trimmed soon, and waits until they serve.
func (p *proof) start(ctx context.Context) error {
	var err error
	if p.ours, err = nodes.New(p.bin, p.dir, ourVoters...); err != nil {
		return err
	}
	var external []string
	for _, id := range ourData {
		n, err := p.ours.AddData(id)
		if err != nil {
			return err
		}
		external = append(external, n.External)
	}
	if err := errors.Join(p.ours.Configure("snapshots: {maxNewBytes: 4000, retentionBytes: 1}\n"), p.ours.StartVoters(), p.ours.StartData()); err != nil {
		return err
	}
	p.client, err = kgo.NewClient(kgo.SeedBrokers(external...),
		kgo.RetryTimeout(testscale.Duration(10*time.Second)), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return err
	}
	if !p.check("three voters and two data nodes run", func() (string, error) {
		return "on " + p.ours.Host, nodes.WaitFor(ctx, time.Minute, func(ctx context.Context) error {
			for _, id := range ourData {
				if err := p.unfenced(ctx, id); err != nil {
					return err
				}
			}
			return nil
		})
	}) {
		return errors.New("there is nothing to be a peer of")
	}
	return nil
}
