// Command highwater-node runs one node of a Highwater cluster: the replication engine, a voter of the metadata
// quorum, or both.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/highwater-io/highwater/internal/buildinfo"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/node"
)

// Exit codes. 78 is EX_CONFIG of sysexits.h: starting again changes nothing until somebody acts.
const (
	exitFailure = 1
	exitUsage   = 2
	exitVolume  = 78
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	root := &cobra.Command{
		Use:           "highwater-node",
		Short:         "One node of a Highwater cluster",
		Version:       buildinfo.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand())
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage *usageError
	var volume *node.VolumeError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &volume):
		fmt.Fprintln(os.Stderr, volume.Error())
		return exitVolume
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "highwater-node:", err)
		return exitUsage
	default:
		fmt.Fprintln(os.Stderr, "highwater-node:", err)
		return exitFailure
	}
}

// usageError marks what is wrong with the command line or the configuration file.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

type flags struct {
	node.Config
	config, roles, directoryID, logLevel string
	nodeID                               int32
}

func runCommand() *cobra.Command {
	var f flags
	command := &cobra.Command{
		Use:   "run",
		Short: "Run the node until it is told to stop (SIGTERM: controlled shutdown)",
		Long: "Run the node until it is told to stop (SIGTERM: controlled shutdown).\n\n" +
			"Each flag can also be set through the environment: --node-id is HIGHWATER_NODE_ID. A flag on the command line wins.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := fromEnvironment(command.Flags()); err != nil {
				return &usageError{err}
			}
			config, level, err := f.resolve()
			if err != nil {
				return &usageError{err}
			}
			logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			return node.Run(command.Context(), config, logger)
		},
	}
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	s := command.Flags()
	s.StringVar(&f.config, "config", "/etc/highwater/node.yaml", "configuration that all nodes of the cluster share (YAML)")
	s.Int32Var(&f.nodeID, "node-id", -1, "id of this node, never used again within the cluster")
	s.StringVar(&f.roles, "roles", "", "voter, data or voter,data")
	s.StringVar(&f.directoryID, "directory-id", "", "uuid that this node's volume was given")
	s.StringVar(&f.DataDir, "data-dir", "/var/lib/highwater/data", "directory of the partitions")
	s.StringVar(&f.MetadataDir, "metadata-dir", "", "directory of the metadata log (default: the data directory)")
	s.Int64Var(&f.MinFreeBytes, "min-free-bytes", -1, "bytes that are left free on the volume of the data directory: with less it is offline as with a full disk, and comes back with twice as many (-1: a twentieth of the volume, at most 256 MiB)")
	s.StringVar(&f.ControllerListener, "listener-controller", "0.0.0.0:9093", "address of the CONTROLLER listener (voters)")
	s.StringVar(&f.InternalListener, "listener-internal", "0.0.0.0:9094", "address of the INTERNAL listener (replication)")
	s.StringVar(&f.ExternalListener, "listener-external", "0.0.0.0:9092", "address of the EXTERNAL listener (clients)")
	s.StringVar(&f.HTTPListener, "listener-http", "0.0.0.0:9095", "address of probes, metrics and the fact stream")
	s.StringVar(&f.AdvertisedController, "advertised-controller", "", "host:port by which other nodes reach the CONTROLLER listener")
	s.StringVar(&f.AdvertisedInternal, "advertised-internal", "", "host:port by which other nodes reach the INTERNAL listener")
	s.StringVar(&f.AdvertisedExternal, "advertised-external", "", "host:port that clients are told")
	s.StringVar(&f.Rack, "rack", "", "failure domain of this node")
	s.StringVar(&f.FormatPermitFile, "format-permit-file", "", "file that holds the directory id while an empty volume may be formatted")
	s.BoolVar(&f.AwaitWithdrawal, "await-permit-withdrawal", false, "a voter takes part only when the permit to format its volume is withdrawn: else it could lose the volume unnoticed and vote a second time")
	s.StringVar(&f.TerminationLog, "termination-log", "", "file that receives one line when the volume is refused")
	s.IntVar(&f.RecoveryThreads, "recovery-threads", 2, "how many logs are opened, and after an unclean stop recovered, at a time")
	s.DurationVar(&f.ScrubInterval, "scrub-interval", 24*time.Hour, "how long one check of the checksums of all that is stored takes; the next begins then (0: never)")
	s.Int64Var(&f.CleanerIOBytes, "cleaner-io-bytes-per-second", node.DefaultCleanerIOBytes, "how many bytes log compaction reads and writes in a second, 0 for no limit")
	s.Int64Var(&f.CleanerMapBytes, "cleaner-dedupe-buffer-bytes", node.DefaultCleanerMapBytes, "memory for the keys that log compaction goes through at a time, 32 bytes for each")
	s.StringVar(&f.HostsFile, "hosts-file", "", "static table of names and addresses, asked before DNS")
	s.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return command
}

// fromEnvironment sets each flag that the command line left alone from HIGHWATER_<FLAG>.
func fromEnvironment(set *pflag.FlagSet) error {
	var errs []error
	set.VisitAll(func(flag *pflag.Flag) {
		name := "HIGHWATER_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || flag.Changed {
			return
		}
		if err := set.Set(flag.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment %s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

func (f *flags) resolve() (node.Config, slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return node.Config{}, 0, fmt.Errorf("--log-level: %w", err)
	}
	config := f.Config
	config.NodeID = ident.NodeID(f.nodeID)
	config.Timing = node.DefaultTiming()
	for role := range strings.SplitSeq(f.roles, ",") {
		switch strings.TrimSpace(role) {
		case "voter":
			config.Voter = true
		case "data":
			config.Data = true
		case "":
		default:
			return node.Config{}, 0, fmt.Errorf("--roles: unknown role %q: want voter, data or voter,data", role)
		}
	}
	directory, err := ident.ParseUUID(f.directoryID)
	if err != nil {
		return node.Config{}, 0, fmt.Errorf("--directory-id: %w", err)
	}
	config.DirectoryID = directory
	if config.MetadataDir == "" {
		config.MetadataDir = config.DataDir
	}
	if config.Shared, err = node.LoadSharedConfig(f.config); err != nil {
		return node.Config{}, 0, err
	}
	config.SharedFile = f.config
	return config, level, config.Validate()
}
