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
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/api/meta"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/devcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx)
	stop()
	os.Exit(code)
}

// exitNotRun is for what this machine can't run.
const exitNotRun = 3

func run(ctx context.Context) int {
	var exit *exec.ExitError
	if err := script(ctx, "hack/kafka/fetch.sh"); errors.As(err, &exit) && exit.ExitCode() == exitNotRun {
		return exitNotRun
	} else if err != nil {
		return failed(err)
	}
	dir, err := os.MkdirTemp("", "highwater-decode-")
	if err != nil {
		return failed(err)
	}
	if err := produce(ctx, filepath.Join(dir, "cluster")); err != nil {
		fmt.Fprintln(os.Stderr, "state is kept in", dir)
		return failed(err)
	}
	if err := script(ctx, "hack/kafka/decode.sh", filepath.Join(dir, "cluster", "volumes")); err != nil {
		fmt.Fprintln(os.Stderr, "state is kept in", dir)
		return failed(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return failed(err)
	}
	return 0
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "kafka-decode:", err)
	return 1
}

func script(ctx context.Context, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

// produce has the samples' cluster write records with every codec, and stops it.
func produce(ctx context.Context, dir string) error {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	fmt.Println("starting a local cluster")
	c, err := devcluster.Start(ctx, devcluster.Options{Bin: bin, Dir: dir, Out: os.Stdout})
	if err != nil {
		return err
	}
	defer c.Stop()
	if _, err := c.Kubectl(ctx, "apply", "-f", "config/samples"); err != nil {
		return err
	}
	err = c.Eventually(ctx, 2*time.Minute, func(ctx context.Context) error {
		p, err := c.Partition(ctx, "orders")
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionPresentAndEqual(p.Status.Conditions, hwv1alpha1.PartitionInSync, metav1.ConditionTrue) {
			return errors.New("the Partition orders is not in sync")
		}
		return nil
	})
	if err != nil {
		return err
	}
	seeds, err := c.Bootstrap(ctx, "logs")
	if err != nil {
		return err
	}
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		if err := write(ctx, seeds, codec); err != nil {
			return err
		}
	}
	fmt.Println("2,500 records written with five codecs; stopping the cluster")
	return nil
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
		records[i] = &kgo.Record{Topic: "orders", Key: fmt.Appendf(nil, "key-%d", i), Value: fmt.Appendf(nil, "value %d of a record that compresses", i)}
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}
