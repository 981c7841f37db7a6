package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/benchload"
	"github.com/highwater-io/highwater/internal/bigcluster"
	"github.com/highwater-io/highwater/test/nodes"
)

// loadCommand is the first argument of the process that this program runs as its own load, as hack/etcdload is etcd's.
const loadCommand = "load"

// load is that process: each client, on a connection of its own, changes four configs of a topic of its own, again and
// again. That is one batch of about 300 bytes in the metadata log, answered when it is committed.
func load(ctx context.Context, args []string) error {
	var s benchload.Settings
	flags := flag.NewFlagSet(loadCommand, flag.ExitOnError)
	controller := flags.String("controller", "", "host:port of the active controller")
	settingsFlags(flags, &s)
	if err := flags.Parse(args); err != nil {
		return err
	}
	conns := make([]*nodes.Conn, s.Clients)
	for i := range conns {
		conn, err := nodes.Connect(*controller)
		if err != nil {
			return err
		}
		defer conn.Close()
		conns[i] = conn
		// The connection is made before the time runs.
		if err := alterConfigs(ctx, conn, i, -1); err != nil {
			return err
		}
	}
	result, err := benchload.Run(ctx, s, func(ctx context.Context, client, n int) error {
		return alterConfigs(ctx, conns[client], client, n)
	})
	if err != nil {
		return err
	}
	return result.Print(os.Stdout)
}

func settingsFlags(flags *flag.FlagSet, s *benchload.Settings) {
	flags.IntVar(&s.Clients, "clients", 1, "how many clients, with a connection each")
	flags.DurationVar(&s.Warmup, "warmup", 0, "not counted")
	flags.DurationVar(&s.For, "for", 0, "how long")
}

// changed are the configs that an operation sets, each to another value than before.
var changed = []string{"delete.retention.ms", "max.compaction.lag.ms", "retention.bytes", "segment.ms"}

func alterConfigs(ctx context.Context, conn *nodes.Conn, client, n int) error {
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, bigcluster.TopicName(client)
	for _, name := range changed {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, kmsg.StringPtr(strconv.Itoa(1_000_000_000_000+n))
		resource.Configs = append(resource.Configs, c)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, resource)
	answer, err := conn.Request(ctx, req)
	if err != nil {
		return err
	}
	resp := answer.(*kmsg.IncrementalAlterConfigsResponse)
	if len(resp.Resources) != 1 {
		return errors.New("the answer is about something else")
	}
	if err := kerr.ErrorForCode(resp.Resources[0].ErrorCode); err != nil {
		return fmt.Errorf("%w: %s", err, deref(resp.Resources[0].ErrorMessage))
	}
	return nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// runLoad runs a load program and returns what it measured.
func runLoad(ctx context.Context, s benchload.Settings, path string, args ...string) (benchload.Result, error) {
	command := exec.CommandContext(ctx, path, append(args,
		"-clients="+strconv.Itoa(s.Clients), "-warmup="+s.Warmup.String(), "-for="+s.For.String())...)
	command.Stderr = os.Stderr
	printed, err := command.Output()
	if err != nil {
		return benchload.Result{}, fmt.Errorf("%s %v: %w", path, args, err)
	}
	return benchload.ReadResult(printed)
}

// loadController runs the load against the active controller.
func loadController(ctx context.Context, s benchload.Settings, leader *nodes.Node) (benchload.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return benchload.Result{}, err
	}
	return runLoad(ctx, s, self, loadCommand, "-controller="+leader.Controller)
}
