// Package devcluster runs `highwater dev` for the demo and for whole-system tests: real processes, a real API server,
// and kubectl.
package devcluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/internal/localkube/assets"
	"github.com/highwater-io/highwater/internal/procs"
	"github.com/highwater-io/highwater/internal/testscale"
)

// Namespace is where the samples go.
const Namespace = "default"

// Options of a cluster. Zero values are `highwater dev up`'s defaults.
type Options struct {
	Bin         string // directory of the binaries
	Dir         string // state directory; it must be empty
	AddressMode string
	AuditLog    string
	Out         io.Writer // progress
}

// Cluster is a running local cluster.
type Cluster struct {
	Dir        string
	Kubeconfig string
	// Client reads and writes objects with the administrator's rights.
	Client client.WithWatch

	bin     string
	kubectl string
	up      *procs.Process
}

// Start brings a cluster up and returns once it says that it is. Building the API server may take minutes when the
// caches are cold; Out shows how far it is.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	kubernetes, err := assets.Dir(ctx, o.Out)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: o.Dir, Kubeconfig: filepath.Join(o.Dir, "kubeconfig"), bin: o.Bin, kubectl: filepath.Join(kubernetes, "kubectl")}
	args := []string{"dev", "up", "--dir", o.Dir}
	if o.AddressMode != "" {
		args = append(args, "--address-mode="+o.AddressMode)
	}
	if o.AuditLog != "" {
		args = append(args, "--audit-log="+o.AuditLog)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	c.up, err = procs.Start(procs.Spec{
		Path: filepath.Join(o.Bin, "highwater"), Args: args, Stdout: write, Stderr: write,
		Env: append(os.Environ(), "KUBEBUILDER_ASSETS="+kubernetes),
	})
	if err != nil {
		_ = read.Close()
		return nil, err
	}
	ready := make(chan struct{})
	go c.follow(read, o.Out, ready)
	select {
	case <-ctx.Done():
		c.Stop()
		return nil, ctx.Err()
	case <-c.up.Done():
		return nil, errors.New("highwater dev up ended; its output says why")
	case <-ready:
	}
	if err := c.connect(); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// upMessage is what `highwater dev up` prints when everything runs.
const upMessage = "The local cluster is up"

// follow passes the program's output on and notices when it is up.
func (c *Cluster) follow(read *os.File, out io.Writer, ready chan<- struct{}) {
	defer read.Close()
	up := false
	for lines := bufio.NewScanner(read); lines.Scan(); {
		if !up && strings.Contains(lines.Text(), upMessage) {
			up = true
			close(ready)
		}
		if !up {
			fmt.Fprintln(out, "    "+lines.Text())
		}
	}
}

func (c *Cluster) connect() (err error) {
	c.Client, err = c.NewClient()
	return err
}

// NewClient makes one more client with the administrator's rights and without a cache.
func (c *Cluster) NewClient() (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, hwv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// Stop ends the cluster and everything that it started.
func (c *Cluster) Stop() { c.up.Stop(testscale.Duration(90 * time.Second)) }

// Done is closed when the cluster ended by itself.
func (c *Cluster) Done() <-chan struct{} { return c.up.Done() }

// Kubectl runs kubectl and returns what it printed.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	return c.run(ctx, c.kubectl, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
}

// Dev runs a subcommand of `highwater dev` on this cluster.
func (c *Cluster) Dev(ctx context.Context, args ...string) ([]byte, error) {
	return c.run(ctx, filepath.Join(c.bin, "highwater"), append([]string{"dev", "--dir", c.Dir}, args...)...)
}

func (c *Cluster) run(ctx context.Context, path string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, path, args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// Bootstrap returns the addresses that a Kafka client on this machine connects to.
func (c *Cluster) Bootstrap(ctx context.Context, replicaSet string) ([]string, error) {
	out, err := c.Dev(ctx, "bootstrap", replicaSet)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(out)), ","), nil
}

// Partition reads a Partition.
func (c *Cluster) Partition(ctx context.Context, name string) (*hwv1alpha1.Partition, error) {
	var p hwv1alpha1.Partition
	return &p, c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, &p)
}

// ReplicaSet reads a ReplicaSet.
func (c *Cluster) ReplicaSet(ctx context.Context, name string) (*hwv1alpha1.ReplicaSet, error) {
	var rs hwv1alpha1.ReplicaSet
	return &rs, c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, &rs)
}

// Events reads the events of the namespace, oldest first.
func (c *Cluster) Events(ctx context.Context) ([]eventsv1.Event, error) {
	out, err := c.Kubectl(ctx, "get", "events.events.k8s.io", "--namespace", Namespace, "--sort-by=.metadata.creationTimestamp", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list eventsv1.EventList
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("kubectl's events: %w", err)
	}
	return list.Items, nil
}

// Eventually calls check until it returns nil, which it must within the time, scaled by HIGHWATER_TEST_SCALE. The
// error of the last try says what was missing.
func (c *Cluster) Eventually(ctx context.Context, within time.Duration, check func(context.Context) error) error {
	within = testscale.Duration(within)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, last)
		case <-c.up.Done():
			return errors.New("the local cluster ended by itself")
		case <-ticker.C:
		}
	}
}
