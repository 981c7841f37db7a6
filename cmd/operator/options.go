package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// options are the flags of the operator.
type options struct {
	leaderElect             bool
	leaderElectionNamespace string
	metricsAddress          string
	healthAddress           string
	watchNamespaces         string
	hostsFile               string
	nodeImage               string
	logLevel                string
}

// bind declares the flags. --kubeconfig is declared by controller-runtime.
func (o *options) bind(flags *flag.FlagSet) {
	flags.BoolVar(&o.leaderElect, "leader-elect", true,
		"take the lease before acting; without it only one operator may run")
	flags.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", "",
		"namespace of the lease; empty means the namespace that the operator runs in")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of the metrics, 0 for none")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz, 0 for none")
	flags.StringVar(&o.watchNamespaces, "watch-namespaces", "", "namespaces to look after, separated by commas; empty means all")
	flags.StringVar(&o.hostsFile, "hosts-file", os.Getenv("HIGHWATER_HOSTS_FILE"),
		"file that says where the names of nodes are, read anew when it changes; empty means DNS alone")
	flags.StringVar(&o.nodeImage, "node-image", os.Getenv("HIGHWATER_NODE_IMAGE"),
		"image that nodes run when a ReplicaSet names none")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

// namespaces lists --watch-namespaces.
func (o *options) namespaces() []string {
	var all []string
	for name := range strings.SplitSeq(o.watchNamespaces, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all
}

func (o *options) level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return 0, fmt.Errorf("--log-level=%s: want debug, info, warn or error", o.logLevel)
	}
	return level, nil
}

func (o *options) check() error {
	if o.nodeImage == "" {
		return fmt.Errorf("--node-image (or HIGHWATER_NODE_IMAGE) is missing: nodes of a ReplicaSet without spec.image need it")
	}
	return nil
}
