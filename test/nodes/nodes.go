// Package nodes runs highwater-node processes with nothing around them, for proofs and benchmarks that need neither
// Kubernetes nor an operator: a quorum of voters, and data nodes that follow it.
package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/highwater-io/highwater/internal/procs"
	"github.com/highwater-io/highwater/internal/scrape"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
)

// ClusterID of every such cluster.
var ClusterID = ident.UUID([]byte("bare node procs."))

// Directory is the directory id of a node.
func Directory(id int32) ident.UUID { return ident.UUID(fmt.Appendf(nil, "directory-%06d", id)) }

// Addresses are on one loopback address that no other run has, below the ports that the system gives to outgoing
// connections.
type Addresses struct {
	Host string
	next int
}

// NewAddresses draws the host.
func NewAddresses() *Addresses {
	return &Addresses{Host: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)), next: 20000}
}

// Free returns host:port where nobody listens.
func (a *Addresses) Free() (string, error) {
	for range 1000 {
		a.next++
		l, err := net.Listen("tcp", net.JoinHostPort(a.Host, strconv.Itoa(a.next)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", fmt.Errorf("no free port on %s", a.Host)
}

// Node is one node, of which one process runs at a time.
type Node struct {
	ID    int32
	Voter bool // else a data node
	// Addresses of its listeners, host:port; a voter has the first and the last.
	Controller, Internal, External, HTTP string

	cluster *Cluster
	dir     string
	*procs.Process
}

// Cluster is a quorum of voters and whatever data nodes are added.
type Cluster struct {
	// Bin is the directory with highwater-node.
	Bin string
	// Dir is where everything lies; it is the caller's to remove.
	Dir string
	// Voters and all other nodes.
	Voters, Data []*Node
	// Addresses are the nodes', and those of whoever else joins them.
	*Addresses
}

// New prepares a cluster with voters of these ids, of which none runs.
func New(bin, dir string, voters ...int32) (*Cluster, error) {
	c := &Cluster{Bin: bin, Dir: dir, Addresses: NewAddresses()}
	for _, id := range voters {
		n, err := c.add(id, true)
		if err != nil {
			return nil, err
		}
		c.Voters = append(c.Voters, n)
	}
	return c, nil
}

// AddData prepares a data node.
func (c *Cluster) AddData(id int32) (*Node, error) {
	n, err := c.add(id, false)
	if err == nil {
		c.Data = append(c.Data, n)
	}
	return n, err
}

func (c *Cluster) add(id int32, voter bool) (*Node, error) {
	n := &Node{ID: id, Voter: voter, cluster: c, dir: filepath.Join(c.Dir, fmt.Sprintf("node-%d", id))}
	for _, address := range []*string{&n.Controller, &n.Internal, &n.External, &n.HTTP} {
		var err error
		if *address, err = c.Free(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return nil, err
	}
	return n, os.WriteFile(filepath.Join(n.dir, "permit"), []byte(Directory(id).String()), 0o644)
}

// Configure writes the configuration that the nodes share, with further lines of YAML. It counts from the next start of
// a node on.
func (c *Cluster) Configure(more string) error {
	config := fmt.Sprintf("clusterId: %s\nvoters:\n", ClusterID)
	for _, n := range c.Voters {
		host, port, err := net.SplitHostPort(n.Controller)
		if err != nil {
			return err
		}
		config += fmt.Sprintf("- {id: %d, directoryId: %s, host: %s, port: %s}\n", n.ID, Directory(n.ID), host, port)
	}
	return os.WriteFile(c.config(), []byte(config+more), 0o644)
}

func (c *Cluster) config() string { return filepath.Join(c.Dir, "node.yaml") }

// StartVoters starts all voters.
func (c *Cluster) StartVoters() error { return start(c.Voters) }

// StartData starts all data nodes.
func (c *Cluster) StartData() error { return start(c.Data) }

func start(nodes []*Node) error {
	for _, n := range nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	return nil
}

// All are the data nodes and then the voters: in the order in which they stop, for a data node needs a controller for
// that.
func (c *Cluster) All() []*Node { return slices.Concat(c.Data, c.Voters) }

// Node is the one with an id, nil when there is none.
func (c *Cluster) Node(id int32) *Node {
	for _, n := range c.All() {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// Controllers are the voters' addresses, as Kafka's controller.quorum.bootstrap.servers takes them.
func (c *Cluster) Controllers() string {
	var all []string
	for _, n := range c.Voters {
		all = append(all, n.Controller)
	}
	return strings.Join(all, ",")
}

// Stop stops every node that runs, the data nodes first, and waits for them.
func (c *Cluster) Stop() {
	for _, n := range c.All() {
		n.End()
	}
}

// Crash ends every node that runs as kill -9 does.
func (c *Cluster) Crash() {
	for _, n := range c.All() {
		n.Crash()
	}
}

// Start starts the node's process. Its output goes to the file log in its directory.
func (n *Node) Start() error {
	output, err := os.OpenFile(n.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer output.Close()
	args := []string{
		"run", fmt.Sprintf("--node-id=%d", n.ID), "--config=" + n.cluster.config(), "--directory-id=" + Directory(n.ID).String(),
		"--data-dir=" + n.DataDir(), "--format-permit-file=" + filepath.Join(n.dir, "permit"), "--listener-http=" + n.HTTP,
	}
	if n.Voter {
		args = append(args, "--roles=voter", "--listener-controller="+n.Controller, "--advertised-controller="+n.Controller)
	} else {
		args = append(args, "--roles=data", "--listener-internal="+n.Internal, "--advertised-internal="+n.Internal,
			"--listener-external="+n.External, "--advertised-external="+n.External)
	}
	n.Process, err = procs.Start(procs.Spec{
		Path: filepath.Join(n.cluster.Bin, "highwater-node"), Args: args, Env: os.Environ(), Stdout: output, Stderr: output,
		PidFile: filepath.Join(n.dir, "node"+procs.Suffix),
	})
	return err
}

// End stops the node's process and waits for it; nothing happens when none runs.
func (n *Node) End() {
	if n.Process != nil {
		n.Stop(testscale.Duration(30 * time.Second))
		n.Process = nil
	}
}

// Crash ends the node's process as kill -9 does, also a paused one, and waits until it is gone.
func (n *Node) Crash() {
	if n.Process != nil {
		n.Kill()
		<-n.Done()
		n.Process = nil
	}
}

// Pause stops the node's process where it is.
func (n *Node) Pause() { n.Signal(syscall.SIGSTOP) }

// Resume lets a paused one go on.
func (n *Node) Resume() {
	if n.Process != nil { // it may have been killed meanwhile
		n.Signal(syscall.SIGCONT)
	}
}

// Metric reads one of the node's metrics (scrape.Value).
func (n *Node) Metric(ctx context.Context, name string) (float64, error) {
	return scrape.Value(ctx, n.HTTP, name)
}

// DataDir is the node's data directory, in which its metadata log lies too.
func (n *Node) DataDir() string { return filepath.Join(n.dir, "data") }

// MetadataDir is the directory of the node's metadata log and snapshots.
func (n *Node) MetadataDir() string { return filepath.Join(n.DataDir(), ident.MetadataTopic+"-0") }

// Log is the file with the output of all the node's processes.
func (n *Node) Log() string { return filepath.Join(n.dir, "log") }

// Eventually is WaitFor for what is waited for to be measured: it looks every 10 ms, and its error says what was missing.
func Eventually(ctx context.Context, what string, within time.Duration, check func(context.Context) error) error {
	if err := wait(ctx, within, 10*time.Millisecond, check); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// WaitFor calls check until it gives no error, and gives up with the last one of them after a while, which
// HIGHWATER_TEST_SCALE stretches, or when ctx ends.
func WaitFor(ctx context.Context, within time.Duration, check func(context.Context) error) error {
	return wait(ctx, within, 50*time.Millisecond, check)
}

func wait(ctx context.Context, within, every time.Duration, check func(context.Context) error) error {
	within = testscale.Duration(within)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // the end of ctx says nothing about what is missing
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", within, last)
		case <-time.After(every):
		}
	}
}
