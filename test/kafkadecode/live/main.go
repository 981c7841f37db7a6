// Command live runs a cluster, writes to it, stops it, and has Apache Kafka's own decoder read every file that its
// nodes left: metadata logs, the 0-0 checkpoint, segments, indexes and producer snapshots. It exits 3 with "NOT RUN:
// why" where Java or the jars are missing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/devcluster"
	"github.com/highwater-io/highwater/test/kafkajars"
)

func main() {
	p := &devcluster.Proof{Name: "kafka-decode", Ready: findDecoder}
	p.Run = func(ctx context.Context, p *devcluster.Proof) error {
		seeds, err := p.Bootstrap(ctx, devcluster.SampleReplicaSet)
		if err != nil {
			return err
		}
		for _, codec := range []kgo.CompressionCodec{
			kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
		} {
			if err := write(ctx, seeds, codec); err != nil {
				return err
			}
		}
		p.Say("2,500 records written with five codecs; stopping the cluster, for the files to be whole")
		p.Stop()
		return script(ctx, "hack/kafka/decode.sh", filepath.Join(p.Dir, "volumes"))
	}
	p.Main()
}

func findDecoder(ctx context.Context) error {
	err := kafkajars.Fetch(ctx)
	if errors.Is(err, kafkajars.ErrMissing) {
		return fmt.Errorf("%w: %w", devcluster.ErrNotRun, err)
	}
	return err
}

func script(ctx context.Context, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

func write(ctx context.Context, seeds []string, codec kgo.CompressionCodec) error {
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(time.Minute))
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ProducerBatchCompression(codec))
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, 500)
	for i := range records {
		records[i] = &kgo.Record{
			Topic: devcluster.SamplePartition, Key: fmt.Appendf(nil, "key-%d", i),
			Value: fmt.Appendf(nil, "value %d of a record that compresses", i),
		}
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}
