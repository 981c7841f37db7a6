// Command client is what runs inside the cluster for the end-to-end test: a Kafka client that remembers what was
// acknowledged, one that reads all of it back, and the few tools that an image without a shell lacks.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// commands by name. Each prints its result on stdout and everything else on stderr.
var commands = map[string]func(ctx context.Context, args []string) error{
	"load":    load,
	"verify":  verify,
	"wait":    func(ctx context.Context, _ []string) error { <-ctx.Done(); return nil },
	"stop":    stop,
	"resolve": resolve,
	"get":     get,
	"stat":    stat,
	"list":    list,
	"wipe":    wipe,
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if command, known := commands[args[0]]; known {
			return command(ctx, args[1:])
		}
	}
	names := make([]string, 0, len(commands))
	for name := range commands {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("want one of: %s", strings.Join(names, ", "))
}

// target is the partition that load and verify speak of.
type target struct {
	brokers   string
	topic     string
	partition int
	run       string
}

func (t *target) bind(flags *flag.FlagSet) {
	flags.StringVar(&t.brokers, "brokers", "", "host:port to begin at")
	flags.StringVar(&t.topic, "topic", "", "topic")
	flags.IntVar(&t.partition, "partition", 0, "partition")
	flags.StringVar(&t.run, "run", "", "name of this load: the key of its records")
}
