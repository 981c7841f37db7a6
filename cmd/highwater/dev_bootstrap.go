package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/internal/localkube"
)

// Labels and the port by which the pods that serve clients are known.
const (
	nameLabel     = "app.kubernetes.io/name"
	instanceLabel = "app.kubernetes.io/instance"
	productName   = "highwater"
	clientPort    = "external"
)

func bootstrapCommand(dir *string) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "bootstrap REPLICASET",
		Short: "Print the addresses that a Kafka client on this machine connects to",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote := localkube.Connect(*dir)
			config, err := clientcmd.BuildConfigFromFlags("", remote.Kubeconfig())
			if err != nil {
				return fmt.Errorf("no local cluster in %s: %w", *dir, err)
			}
			k, err := client.New(config, client.Options{})
			if err != nil {
				return err
			}
			addresses, err := bootstrapOf(cmd.Context(), k, namespace, args[0], func(ctx context.Context, pod string) (string, error) {
				return remote.PodAddress(ctx, namespace, pod, clientPort)
			})
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), strings.Join(addresses, ","))
			return nil
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the ReplicaSet")
	return cmd
}

// bootstrapOf returns the client addresses of a ReplicaSet's data nodes.
func bootstrapOf(ctx context.Context, k client.Client, namespace, name string, address func(ctx context.Context, pod string) (string, error)) ([]string, error) {
	var pods corev1.PodList
	err := k.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{nameLabel: productName, instanceLabel: name})
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range pods.Items {
		if !servesClients(&pods.Items[i]) {
			continue
		}
		addr, err := address(ctx, pods.Items[i].Name)
		if err != nil {
			return nil, err
		}
		out = append(out, addr)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("ReplicaSet %s/%s has no pod that serves clients", namespace, name)
	}
	slices.Sort(out)
	return out, nil
}

func servesClients(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == clientPort {
				return true
			}
		}
	}
	return false
}
