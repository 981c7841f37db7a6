package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/setup"
	"github.com/highwater-io/highwater/pkg/wire"
)

// The lease. An admin call of a node takes cluster.AdminTimeout at most, which is less than the time between the last
// renewal and the end of the lease: what a deposed operator began is over before another begins.
const (
	leaseName     = "highwater-operator"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// newManager puts the operator together.
func newManager(ctx context.Context, config *rest.Config, o options) (ctrl.Manager, error) {
	scheme, err := setup.Scheme()
	if err != nil {
		return nil, err
	}
	hosts, err := wire.OpenHostTable(o.hostsFile)
	if err != nil {
		return nil, fmt.Errorf("--hosts-file: %w", err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         setup.CacheOptions(o.namespaces()),
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.healthAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.leaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		RetryPeriod:                   new(retryPeriod),
	})
	if err != nil {
		return nil, fmt.Errorf("set up the manager: %w", err)
	}
	for _, add := range []func(string, healthz.Checker) error{mgr.AddHealthzCheck, mgr.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return nil, fmt.Errorf("health check: %w", err)
		}
	}
	open := cluster.OpenLive(hosts, ctrl.Log.WithName("cluster"))
	if err := setup.Controllers(ctx, mgr, open, o.nodeImage); err != nil {
		return nil, err
	}
	return mgr, nil
}
