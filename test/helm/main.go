package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// env is what the steps share.
type env struct {
	*cluster.Cluster
	root, helm, chart string
	image             string
	scratch           string
	// pods by name, as they were when the ReplicaSet came up: the chart's life must not touch them.
	pods map[string]string
}

func main() {
	e := &env{}
	var static bool
	flag.StringVar(&e.root, "root", ".", "folder of the repository")
	flag.StringVar(&e.helm, "helm", "helm", "helm to try the chart with")
	flag.StringVar(&e.image, "image", "", "image of operator and nodes; empty means the chart's default")
	flag.String("client-image", "", "not used here: no client runs")
	flag.String("machine", "", "not used here: no machine is harmed")
	flag.BoolVar(&static, "static", false, "only what needs no cluster")
	flag.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := e.run(ctx, static); err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
	fmt.Println("PASS")
}

func (e *env) run(ctx context.Context, static bool) (err error) {
	e.chart = filepath.Join(e.root, "charts", "highwater")
	if e.scratch, err = os.MkdirTemp("", "highwater-helm-"); err != nil {
		return err
	}
	defer os.RemoveAll(e.scratch)
	if static {
		return cluster.Play(ctx, e.staticSteps())
	}
	if e.Cluster, err = cluster.Connect(); err != nil {
		return err
	}
	defer e.cleanUp(context.WithoutCancel(ctx))
	return cluster.Play(ctx, e.liveSteps())
}

// run helm and return what it prints.
func (e *env) runHelm(ctx context.Context, args ...string) (string, error) {
	return cluster.Run(ctx, "", e.helm, args...)
}
