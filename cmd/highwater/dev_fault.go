package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/highwater-io/highwater/internal/localkube"
)

func faultCommand(dir *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fault",
		Short: "Cut, delay and heal the links between pods",
		Long: `Cut, delay and heal the links between pods of the local cluster.

FROM and TO are pods (NAME or NAMESPACE/NAME), the operator ("operator"), or * for all. LISTENER is a port's name,
such as INTERNAL, CONTROLLER or HTTP, or * for all. A link has two ways and connections in both directions: a rule
for FROM and TO holds for what either sends the other over connections to a listener of that name, whoever opened
them; with --one-way only for what FROM sends TO. As with a broken wire nobody is told: connections stay open, new
ones get no answer, and what was held back arrives when the link is healed.

"via" puts a program of yours into a link: what FROM opens to TO dials its address, and it dials TO itself.`,
	}
	add := func(use, short, action string, args int, delay func(args []string) (time.Duration, error)) {
		var oneWay bool
		sub := &cobra.Command{
			Use: use, Short: short, Args: cobra.ExactArgs(args),
			RunE: func(cmd *cobra.Command, args []string) error {
				d, err := delay(args)
				if err != nil {
					return err
				}
				return localkube.Connect(*dir).Fault(cmd.Context(), localkube.FaultRequest{
					Action: action, From: args[0], To: args[1], Listener: args[2], Delay: d, OneWay: oneWay,
				})
			},
		}
		sub.Flags().BoolVar(&oneWay, "one-way", false, "only what FROM sends TO")
		cmd.AddCommand(sub)
	}
	none := func([]string) (time.Duration, error) { return 0, nil }
	add("cut FROM TO LISTENER", "Let nothing through", "cut", 3, none)
	add("heal FROM TO LISTENER", "Let everything through again", "heal", 3, none)
	add("delay FROM TO LISTENER DURATION", "Let everything arrive later, such as 200ms; 0s for no delay", "delay", 4,
		func(args []string) (time.Duration, error) {
			d, err := time.ParseDuration(args[3])
			if err != nil {
				return 0, fmt.Errorf("%q is no duration such as 200ms or 2s", args[3])
			}
			return d, nil
		})
	cmd.AddCommand(&cobra.Command{
		Use: "via FROM TO LISTENER HOST:PORT", Short: "Have the connections that FROM opens to TO dial another address", Args: cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			return localkube.Connect(*dir).Fault(cmd.Context(), localkube.FaultRequest{
				Action: "via", From: args[0], To: args[1], Listener: args[2], Via: args[3],
			})
		},
	})
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "Print the rules that hold", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules, err := localkube.Connect(*dir).Faults(cmd.Context())
			for _, r := range rules {
				what := ""
				if r.Cut {
					what += " cut"
				}
				if r.Delay > 0 {
					what += fmt.Sprintf(" delay %v", r.Delay)
				}
				if r.Via != "" {
					what += " via " + r.Via
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s -> %s %s:%s\n", r.From, r.To, r.Listener, what)
			}
			return err
		},
	})
	return cmd
}

func signalCommands(dir *string) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range []struct {
		use, short, done string
		signal           syscall.Signal
	}{
		{"pause POD", "Stop a pod's processes (SIGSTOP), or those of operator, etcd or kube-apiserver", "paused", localkube.Pause},
		{"resume POD", "Let paused processes go on (SIGCONT)", "resumed", localkube.Resume},
		{"kill POD", "Kill a pod's processes (SIGKILL); they are started again", "killed", localkube.Kill},
	} {
		out = append(out, &cobra.Command{
			Use: c.use, Short: c.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				pids, err := localkube.Signal(*dir, args[0], c.signal)
				for _, pid := range pids {
					fmt.Fprintf(cmd.OutOrStdout(), "%s process %d of %s\n", c.done, pid, args[0])
				}
				return err
			},
		})
	}
	return out
}
