package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// options of the run.
type options struct {
	root        string
	machine     string
	image       string
	clientImage string
	only        string
	keep        bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "folder of the repository")
	flag.StringVar(&o.machine, "machine", "",
		"folder of the scripts that made the cluster (hack/kubelet): with them nodes can be killed. Empty: not our machines")
	flag.StringVar(&o.image, "image", "", "image of operator and nodes; empty means the one that config/ names")
	flag.StringVar(&o.clientImage, "client-image", "registry.local/highwater-e2e-client:1", "image of test/e2e/kubelet/client")
	flag.StringVar(&o.only, "only", "", "single (one voter, one data node) or sample (config/samples); empty means both")
	flag.BoolVar(&o.keep, "keep", false, "leave everything as it is at the end, for a look")
	flag.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
	fmt.Println("PASS")
}

func run(ctx context.Context, o options) error {
	c, err := cluster.Connect()
	if err != nil {
		return err
	}
	e := &env{Cluster: c, options: o}
	steps := e.installSteps()
	switch o.only {
	case "":
		steps = append(steps, e.replicaSetSteps(single())...)
		steps = append(steps, e.replicaSetSteps(sample(o.root))...)
	case "single":
		steps = append(steps, e.replicaSetSteps(single())...)
	case "sample":
		steps = append(steps, e.replicaSetSteps(sample(o.root))...)
	default:
		return fmt.Errorf("--only=%s: want single or sample", o.only)
	}
	steps = append(steps, e.rbacSteps()...)
	err = cluster.Play(ctx, steps)
	if err != nil {
		e.dump(context.WithoutCancel(ctx))
	}
	if !o.keep {
		e.cleanUp(context.WithoutCancel(ctx))
	}
	return err
}
