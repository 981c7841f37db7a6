package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/internal/localkube/kubelet"
	"github.com/highwater-io/highwater/internal/procs"
)

type upOptions struct {
	dir, bin, config, audit string
	nodes                   int
	addresses               string
	noOperator, noProxies   bool
	apply                   []string
	operatorArgs            []string
}

func upCommand(dir *string) *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the local cluster and stay until Ctrl-C",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.dir = *dir
			return up(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.bin, "bin-dir", "", "directory with highwater-node and highwater-operator; default: where this program is")
	f.StringVar(&o.config, "config", "", "kustomize directory of the installation; default: the one built into this program")
	f.StringVar(&o.audit, "audit-log", "", "file for the API server's audit log")
	f.IntVar(&o.nodes, "nodes", 3, "number of Kubernetes Nodes")
	f.StringVar(&o.addresses, "address-mode", "", "own: each pod its own 127.x.y.z; shared: 127.0.0.1 and mapped ports; default: own where it works")
	f.BoolVar(&o.noOperator, "no-operator", false, "install the API and the rights, but run no operator")
	f.BoolVar(&o.noProxies, "no-fault-proxies", false, "let pods reach each other directly; highwater dev fault has no effect then")
	f.StringArrayVarP(&o.apply, "filename", "f", nil, "manifests to apply once the operator runs")
	f.StringArrayVar(&o.operatorArgs, "operator-arg", nil, "further argument for the operator, such as --log-level=debug")
	return cmd
}

func up(ctx context.Context, o upOptions, out io.Writer) (err error) {
	if o.bin == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w (use --bin-dir)", err)
		}
		o.bin = filepath.Dir(self)
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	needed := []string{"highwater-node"}
	if !o.noOperator {
		needed = append(needed, "highwater-operator")
	}
	for _, name := range needed {
		if _, err := os.Stat(filepath.Join(o.bin, name)); err != nil {
			return fmt.Errorf("%w: build it (make build) or name its directory by --bin-dir", err)
		}
	}
	if !procs.ChildrenEndWithParent {
		fmt.Fprintln(out, "on this system processes outlive a killed parent: if this program is killed, run highwater dev down")
	}
	log, err := runtimeLog(o.dir)
	if err != nil {
		return err
	}
	defer log.Close()
	logger := logr.FromSlogHandler(slog.NewTextHandler(log, nil))
	ctrllog.SetLogger(logger)
	klog.SetLogger(logger)

	cluster, err := localkube.Start(ctx, localkube.Options{
		Dir: o.dir, Nodes: o.nodes, AddressMode: kubelet.AddressMode(o.addresses), AuditLog: o.audit, DirectPeers: o.noProxies,
		Images: kubelet.Images{kubelet.AnyImage: {Dir: o.bin}}, Progress: out, Log: logger,
	})
	if err != nil {
		return err
	}
	defer func() {
		fmt.Fprintln(out, "stopping")
		cluster.Stop()
	}()
	operator, err := install(ctx, cluster, o)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "installed the API, the rights and namespace", operator.Namespace)
	if !o.noOperator {
		if _, err := cluster.StartChild(ctx, operator); err != nil {
			return fmt.Errorf("start the operator: %w", err)
		}
		fmt.Fprintf(out, "operator runs as ServiceAccount %s/%s; log: %s\n", operator.Namespace, operator.ServiceAccount,
			filepath.Join(cluster.Dir(), "logs", operator.Name+".log"))
	}
	for _, file := range o.apply {
		said, err := kubectl(ctx, cluster, nil, "apply", "-f", file)
		if err != nil {
			return err
		}
		fmt.Fprint(out, said)
	}
	fmt.Fprintf(out, "\nThe local cluster is up; Ctrl-C stops it and keeps its state in %s.\n"+
		"  export KUBECONFIG=%s\n  kubectl apply -f config/samples/\n  highwater dev bootstrap logs   # once its pods run\n\n",
		cluster.Dir(), cluster.Kubeconfig())
	return watch(ctx, cluster, out)
}

func runtimeLog(dir string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o755); err != nil {
		return nil, fmt.Errorf("make the local cluster's directory: %w", err)
	}
	return os.OpenFile(filepath.Join(dir, "logs", "runtime.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}

// watch stays until the end and says where clients connect to whenever that changes.
func watch(ctx context.Context, cluster *localkube.Cluster, out io.Writer) error {
	k, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return err
	}
	said := map[string]string{}
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-cluster.Done():
			return errors.New("the API server has ended; its log: " + filepath.Join(cluster.Dir(), "logs", "kube-apiserver.log"))
		case <-tick.C:
		}
		now, err := clientAddresses(ctx, k, cluster)
		if err != nil {
			continue // the API server is slow or stopped: the next round
		}
		for name, addresses := range now {
			if said[name] != addresses {
				fmt.Fprintf(out, "clients of ReplicaSet %s connect to %s\n", name, addresses)
			}
		}
		said = now
	}
}

func clientAddresses(ctx context.Context, k kubernetes.Interface, cluster *localkube.Cluster) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	pods, err := k.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: nameLabel + "=" + productName})
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if addr, ok := cluster.PodAddress(pod.Namespace, pod.Name, clientPort); ok && pod.DeletionTimestamp == nil {
			name := pod.Namespace + "/" + pod.Labels[instanceLabel]
			found[name] = append(found[name], addr)
		}
	}
	out := map[string]string{}
	for name, addresses := range found {
		out[name] = strings.Join(addresses, ",")
	}
	return out, nil
}
