// Command demo runs the whole product on this machine, from an API server to a Kafka client, breaks it in the ways
// that a replicated log must survive, and narrates what the Partition's status says meanwhile. It exits non-zero
// when any step is not seen in time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/highwater-io/highwater/test/devcluster"
	"github.com/highwater-io/highwater/test/workload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory with highwater, highwater-node and highwater-operator")
	flag.StringVar(&o.samples, "samples", "config/samples", "manifests to apply")
	flag.StringVar(&o.addressMode, "address-mode", "", "own or shared; see highwater dev up --help")
	flag.StringVar(&o.events, "events", "events.json", "where to leave the events")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo failed: %v\n", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	bin, samples, addressMode, events string
}

// demo is one run.
type demo struct {
	options
	*devcluster.Cluster
	started  time.Time
	seeds    []string
	producer *workload.Producer
}

const (
	replicaSet = "logs"
	partition  = "orders"
)

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "highwater-demo-")
	if err != nil {
		return err
	}
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	d := &demo{options: o, started: time.Now()}
	d.say("starting a local cluster: etcd, kube-apiserver, the operator (state in %s)", dir)
	d.Cluster, err = devcluster.Start(ctx, devcluster.Options{
		Bin: bin, Dir: filepath.Join(dir, "cluster"), AddressMode: o.addressMode, Out: os.Stdout,
	})
	if err != nil {
		return err
	}
	defer func() {
		d.say("stopping the local cluster")
		d.Stop()
		if err == nil {
			err = os.RemoveAll(dir)
			return
		}
		fmt.Fprintf(os.Stderr, "logs and state are kept in %s\n", dir)
	}()
	for _, step := range []func(context.Context) error{
		d.apply, d.cutFollower, d.pauseDataNodes, d.killLeader, d.pauseVoters, d.readBack,
	} {
		if err := step(ctx); err != nil {
			return errors.Join(err, d.show(ctx))
		}
	}
	if err := d.show(ctx); err != nil {
		return err
	}
	if err := d.checkEvents(ctx); err != nil {
		return err
	}
	d.say("all of it was seen; the events are in %s", d.events)
	return nil
}

// say prints a line of the timeline.
func (d *demo) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(d.started).Seconds(), fmt.Sprintf(format, args...))
}

// wait says what it waits for, waits, and says how long that took and what was seen.
func (d *demo) wait(ctx context.Context, within time.Duration, what string, check func(context.Context) (string, error)) error {
	began := time.Now()
	var seen string
	err := d.Eventually(ctx, within, func(ctx context.Context) (err error) {
		seen, err = check(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	d.say("  %s after %.1f s: %s", what, time.Since(began).Seconds(), seen)
	return nil
}

// show prints what an operator on call would look at first.
func (d *demo) show(ctx context.Context) error {
	fmt.Println()
	for _, args := range [][]string{
		{"get", "hwp,hwrs"},
		{"get", "events.events.k8s.io", "--sort-by=.metadata.creationTimestamp", "--field-selector=reportingController!=kubelet",
			"-o", "custom-columns=TYPE:.type,REASON:.reason,KIND:.regarding.kind,NAME:.regarding.name,NOTE:.note"},
	} {
		fmt.Println("$ kubectl", args[0], args[1])
		out, err := d.Kubectl(ctx, args...)
		if err != nil {
			return err
		}
		fmt.Println(string(out))
	}
	return nil
}
