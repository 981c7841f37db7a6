// Package nodes runs highwater-node processes with nothing around them, for proofs and benchmarks that need neither
// Kubernetes nor an operator: a quorum of voters, and data nodes that follow it.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/highwater-io/highwater/internal/procs"
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

	addresses *Addresses
}

// New prepares a cluster with so many voters, of which none runs. Their ids are 1, 2 and so on.
func New(bin, dir string, voters int) (*Cluster, error) {
	c := &Cluster{Bin: bin, Dir: dir, addresses: NewAddresses()}
	for i := range voters {
		n, err := c.add(int32(i+1), true)
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
		if *address, err = c.addresses.Free(); err != nil {
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
func (c *Cluster) StartVoters() error {
	for _, n := range c.Voters {
		if err := n.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops every node that runs, the data nodes first, and waits for them.
func (c *Cluster) Stop() {
	for _, n := range append(append([]*Node{}, c.Data...), c.Voters...) {
		n.End()
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
		n.Stop(30 * time.Second)
		n.Process = nil
	}
}

// DataDir is the node's data directory, in which its metadata log lies too.
func (n *Node) DataDir() string { return filepath.Join(n.dir, "data") }

// MetadataDir is the directory of the node's metadata log and snapshots.
func (n *Node) MetadataDir() string { return filepath.Join(n.DataDir(), ident.MetadataTopic+"-0") }

// Log is the file with the output of all the node's processes.
func (n *Node) Log() string { return filepath.Join(n.dir, "log") }

// Eventually calls check until it gives no error, and gives up after a while or when ctx ends.
func Eventually(ctx context.Context, what string, within time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v: %w", what, within, errors.Join(err, context.Cause(ctx)))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
