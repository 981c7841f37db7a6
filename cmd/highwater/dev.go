package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/internal/localkube/assets"
)

// dirVariable names the environment variable that holds the default of --dir.
const dirVariable = "HIGHWATER_DEV_DIR"

// devCommand is the local cluster. Without a subcommand it is `up`.
func devCommand() *cobra.Command {
	var dir string
	up := upCommand(&dir)
	dev := &cobra.Command{
		Use:   "dev",
		Short: "Run Highwater on this machine: a real API server, pods as processes, no container engine",
		Long: `Run Highwater on this machine: a real etcd and kube-apiserver, the operator, and pods as local processes.
Needs neither root nor a container engine. docs/local-cluster.md says what the local cluster plays and what not.`,
		Args: cobra.NoArgs,
		RunE: up.RunE,
	}
	dev.PersistentFlags().StringVar(&dir, "dir", defaultDir(), "where the cluster keeps its state; also "+dirVariable)
	dev.Flags().AddFlagSet(up.Flags())
	dev.AddCommand(up, downCommand(&dir), faultCommand(&dir), bootstrapCommand(&dir), kubectlCommand(&dir), envCommand(&dir), assetsCommand())
	dev.AddCommand(signalCommands(&dir)...)
	return dev
}

// defaultDir is ${XDG_STATE_HOME:-~/.local/state}/highwater/dev.
func defaultDir() string {
	if dir := os.Getenv(dirVariable); dir != "" {
		return dir
	}
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			home = os.TempDir()
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "highwater", "dev")
}

func downCommand(dir *string) *cobra.Command {
	var purge bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the local cluster; its objects and volumes stay",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ran, err := localkube.Down(*dir)
			if err != nil {
				return err
			}
			if !ran {
				fmt.Fprintln(cmd.OutOrStdout(), "no local cluster was up in", *dir)
			}
			if purge {
				return localkube.Purge(*dir)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "also delete its objects, volumes and logs")
	return cmd
}

func envCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: `Print shell lines that point kubectl at the local cluster: eval "$(highwater dev env)"`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kubectl, err := localkube.Connect(*dir).Kubectl(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%q\nexport PATH=%q:\"$PATH\"\n", localkube.Connect(*dir).Kubeconfig(), filepath.Dir(kubectl))
			return nil
		},
	}
}

func kubectlCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ARGS...",
		Short:              "Run kubectl against the local cluster (its directory can be given by " + dirVariable + " only)",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			remote := localkube.Connect(*dir)
			kubectl, err := remote.Kubectl(cmd.Context())
			if err != nil {
				return err
			}
			c := exec.Command(kubectl, args...)
			c.Env = append(os.Environ(), "KUBECONFIG="+remote.Kubeconfig())
			c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
			return c.Run()
		},
	}
}

func assetsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Print the directory with etcd, kube-apiserver and kubectl; downloads or builds them when there is none",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := assets.Dir(cmd.Context(), cmd.ErrOrStderr())
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), found)
			}
			return err
		},
	}
}
