package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/highwater-io/highwater/internal/buildinfo"
)

func main() {
	var o options
	o.bind(flag.CommandLine)
	flag.Parse()
	if err := run(ctrl.SetupSignalHandler(), o); err != nil {
		fmt.Fprintln(os.Stderr, "highwater-operator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	level, err := o.level()
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	log.Info("highwater-operator", "version", buildinfo.Version)

	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the Kubernetes cluster: %w", err)
	}
	mgr, err := newManager(ctx, config, o)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
