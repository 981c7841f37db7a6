package localkube

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/highwater-io/highwater/internal/localkube/assets"
	"github.com/highwater-io/highwater/internal/localkube/controllermanager"
	"github.com/highwater-io/highwater/internal/localkube/controlplane"
	"github.com/highwater-io/highwater/internal/localkube/fault"
	"github.com/highwater-io/highwater/internal/localkube/kubelet"
	"github.com/highwater-io/highwater/internal/procs"
)

// Options say what a cluster is like. The zero value is a cluster of three Nodes in a temporary directory.
type Options struct {
	// Dir keeps everything: objects, volumes, logs, kubeconfigs, pid files. A cluster that was stopped goes on in the
	// same directory. Empty is a temporary one, which Stop removes.
	Dir string
	// Assets is the directory with etcd, kube-apiserver and kubectl; empty is assets.Dir.
	Assets string
	// Nodes is how many Nodes there are; zero is three.
	Nodes int
	// AddressMode says how pods get addresses.
	AddressMode kubelet.AddressMode
	// Images stand in for container images.
	Images kubelet.Images
	// AuditLog is the API server's audit log; empty for none.
	AuditLog string
	// DirectPeers leaves the fault proxies out.
	DirectPeers bool
	// Backoff of containers that end.
	Backoff kubelet.Backoff
	// Progress gets a line for each step of the start; nil for none.
	Progress io.Writer
	// Log gets what goes wrong; the zero value drops it.
	Log logr.Logger
}

// Cluster is a running cluster.
type Cluster struct {
	dir       string
	temporary bool
	lock      *os.File
	assets    string
	log       logr.Logger
	network   *kubelet.Network
	faults    *fault.Table
	control   *controlplane.ControlPlane
	kubelet   *kubelet.Kubelet
	events    record.EventBroadcaster
	cancel    context.CancelFunc
	managed   chan error
	children  []*Child
	server    *controlServer
}

// Start runs a cluster and returns when pods can be made. Each of its processes ends when this process does.
func Start(ctx context.Context, o Options) (cluster *Cluster, err error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Log.GetSink() == nil {
		// Not logr.Discard, which controller-runtime takes for unset.
		o.Log = logr.FromSlogHandler(slog.DiscardHandler)
	}
	o.Nodes = cmp.Or(o.Nodes, 3)
	c := &Cluster{dir: o.Dir, temporary: o.Dir == "", assets: o.Assets, log: o.Log}
	if c.temporary {
		if c.dir, err = os.MkdirTemp("", "highwater-"); err != nil {
			return nil, err
		}
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.assets == "" {
		if c.assets, err = assets.Dir(ctx, o.Progress); err != nil {
			return nil, err
		}
	}
	for _, sub := range []string{"pods", "volumes", "pids", "logs"} {
		if err := os.MkdirAll(filepath.Join(c.dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("make the cluster's directory: %w", err)
		}
	}
	if c.lock, err = lock(c.dir); err != nil {
		return nil, err
	}
	if n, err := procs.KillLeftovers(c.pids("")); err != nil {
		return nil, err
	} else if n > 0 {
		fmt.Fprintf(o.Progress, "ended %d processes of an earlier run\n", n)
	}
	if c.network, err = kubelet.NewNetwork(o.AddressMode); err != nil {
		return nil, err
	}
	if o.AddressMode == kubelet.AddressAuto && c.network.Mode() == kubelet.AddressShared {
		fmt.Fprintln(o.Progress, "addresses of 127.0.0.0/8 can't be bound here: pods share 127.0.0.1 and get ports of their own")
	}
	c.faults = fault.NewTable(c.network.Host())
	began := time.Now()
	fmt.Fprintln(o.Progress, "starting etcd and kube-apiserver")
	c.control, err = controlplane.Start(ctx, controlplane.Options{
		Assets: c.assets, Dir: c.dir, AuditLog: o.AuditLog, KubeletHosts: []string{c.network.Host()},
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Progress, "API server ready after %.1f s\n", time.Since(began).Seconds())
	if err := c.startRuntime(ctx, o); err != nil {
		return nil, err
	}
	if c.server, err = serveControl(c); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Progress, "%d Nodes ready; pods on %s\n", o.Nodes, c.describeAddresses())
	return c, nil
}

func (c *Cluster) describeAddresses() string {
	if c.network.Mode() == kubelet.AddressShared {
		return "127.0.0.1 with mapped ports"
	}
	return strings.TrimSuffix(c.network.Host(), "1") + "0/24"
}

// startRuntime starts everything that is not the API server.
func (c *Cluster) startRuntime(ctx context.Context, o Options) error {
	m, err := manager.New(c.control.Config(), manager.Options{
		Scheme: scheme.Scheme, Logger: o.Log, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // several clusters in one test process
	})
	if err != nil {
		return fmt.Errorf("set up the cluster's controllers: %w", err)
	}
	if err := controllermanager.Setup(m, controllermanager.Options{VolumesDir: filepath.Join(c.dir, "volumes")}); err != nil {
		return fmt.Errorf("set up the cluster's controllers: %w", err)
	}
	uncached, err := client.New(c.control.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	if err := c.bootstrap(ctx, uncached); err != nil {
		return err
	}
	c.events = record.NewBroadcaster()
	eventClient, err := eventSink(c.control.Config())
	if err != nil {
		return err
	}
	c.events.StartRecordingToSink(eventClient)
	var running context.Context
	running, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.managed = make(chan error, 1)
	waiting, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	go func() {
		c.managed <- m.Start(running)
		stopWaiting()
	}()
	if !m.GetCache().WaitForCacheSync(waiting) {
		select {
		case err := <-c.managed:
			c.managed <- err // Stop waits for it
			return fmt.Errorf("run the cluster's controllers: %w", err)
		default:
			return fmt.Errorf("the cluster's caches were not filled: %w", ctx.Err())
		}
	}
	cert := c.control.Kubelet()
	c.kubelet, err = kubelet.Start(ctx, kubelet.Options{
		Client: m.GetClient(), Uncached: uncached, Cache: m.GetCache(), Log: o.Log.WithName("kubelet"),
		Recorder: c.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"}),
		Dir:      filepath.Join(c.dir, "pods"), PidDir: c.pids("pods"), Nodes: o.Nodes, Images: o.Images,
		Network: c.network, Faults: c.faults, DirectPeers: o.DirectPeers, Backoff: o.Backoff,
		Cert: cert.Cert, Key: cert.Key, ClientCA: c.control.CA(),
	})
	return err
}

// bootstrap makes what a cluster has from the start.
func (c *Cluster) bootstrap(ctx context.Context, admin client.Client) error {
	if err := admin.Create(ctx, controllermanager.StandardClass()); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make StorageClass %s: %w", controllermanager.StorageClass, err)
	}
	// The API server makes this namespace a moment after it is ready, and its first users should not have to wait.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}
	if err := admin.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace default: %w", err)
	}
	return nil
}

func (c *Cluster) pids(sub string) string { return filepath.Join(c.dir, "pids", sub) }

// Dir is where the cluster keeps everything.
func (c *Cluster) Dir() string { return c.dir }

// Host is the address of the Nodes, which belongs to this cluster alone unless it is 127.0.0.1.
func (c *Cluster) Host() string { return c.network.Host() }

// Kubectl is the path of a kubectl that fits the API server.
func (c *Cluster) Kubectl() string { return filepath.Join(c.assets, "kubectl") }

// Kubeconfig is the file with which kubectl is cluster admin.
func (c *Cluster) Kubeconfig() string { return c.control.Kubeconfig() }

// Config is a client configuration of a cluster admin; the caller may change it.
func (c *Cluster) Config() *rest.Config { return c.control.Config() }

// ServiceAccountKubeconfig writes a kubeconfig for a ServiceAccount to file.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name, file string) error {
	return c.control.ServiceAccountKubeconfig(ctx, namespace, name, file)
}

// Faults are the rules for traffic between participants; pods are named namespace/name.
func (c *Cluster) Faults() *fault.Table { return c.faults }

// PodAddress returns where a named port of a pod is reached from this machine, without a fault proxy.
func (c *Cluster) PodAddress(namespace, pod, port string) (string, bool) {
	return c.kubelet.PortAddress(namespace, pod, port)
}

// Done is closed when the API server ends, wanted or not.
func (c *Cluster) Done() <-chan struct{} { return c.control.Done() }

// Stop ends all of the cluster's processes and returns when they are gone. The directory stays unless it is a
// temporary one. Stopping twice is stopping once.
func (c *Cluster) Stop() {
	if c.server != nil {
		c.server.close()
		c.server = nil
	}
	for _, child := range slices.Backward(c.children) {
		child.Stop()
	}
	c.children = nil
	if c.kubelet != nil {
		c.kubelet.Stop()
		c.kubelet = nil
	}
	if c.cancel != nil {
		c.cancel()
		if err := <-c.managed; err != nil {
			c.log.Error(err, "the cluster's controllers")
		}
		c.cancel = nil
	}
	if c.events != nil {
		c.events.Shutdown()
	}
	if c.control != nil {
		c.control.Stop()
	}
	if c.faults != nil {
		c.faults.Close()
	}
	if c.network != nil {
		c.network.Close()
	}
	if c.lock != nil {
		unlock(c.dir, c.lock)
		c.lock = nil
	}
	if c.temporary {
		_ = os.RemoveAll(c.dir)
	}
}
