package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// Cluster is a Kubernetes cluster that KUBECONFIG names.
type Cluster struct {
	client.WithWatch
}

// Connect reads KUBECONFIG.
func Connect() (*Cluster, error) {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		return nil, errors.New("KUBECONFIG names no cluster")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read KUBECONFIG %s: %w", path, err)
	}
	config.QPS = -1 // no limit of its own
	config.Timeout = 30 * time.Second
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, hwv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster of %s: %w", path, err)
	}
	return &Cluster{WithWatch: c}, nil
}

// Kubectl runs kubectl and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return Run(ctx, "", "kubectl", args...)
}

// Apply gives a manifest to kubectl apply. Server side, as a file or a kustomization.
func (c *Cluster) Apply(ctx context.Context, manifest string, args ...string) error {
	_, err := Run(ctx, manifest, "kubectl", append([]string{"apply", "--server-side", "-f", "-"}, args...)...)
	return err
}

// Run runs a program with text as its input and returns its standard output; what it says on standard error is part
// of the error when it fails.
func Run(ctx context.Context, input, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}
