package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/procs"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
)

const (
	firstVoter = 100
	voters     = 3
	dataNodes  = 2 // with the ids from 0 on
)

var clusterID = ident.UUID([]byte("a cluster of two"))

func directoryOf(id int32) ident.UUID { return ident.UUID(fmt.Appendf(nil, "directory-%06d", id)) }

// addresses are on a loopback address that no other run has.
type addresses struct {
	host string
	next int
}

func newAddresses() *addresses {
	return &addresses{host: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)), next: 20000}
}

// free is an address on which nobody listens.
func (a *addresses) free() (string, error) {
	for range 1000 {
		a.next++
		l, err := net.Listen("tcp", net.JoinHostPort(a.host, strconv.Itoa(a.next)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", fmt.Errorf("no free port on %s", a.host)
}

// node is one of our processes.
type node struct {
	id                                   int32
	voter                                bool
	dir                                  string
	controller, internal, external, http string
	process                              *procs.Process
}

// cluster is our nodes.
type cluster struct {
	bin, dir  string
	addresses *addresses
	nodes     map[int32]*node
	// client asks our data nodes alone.
	client *kgo.Client
}

// startCluster starts three voters and two data nodes whose metadata log is trimmed soon.
func startCluster(bin, dir string) (*cluster, error) {
	c := &cluster{bin: bin, dir: dir, addresses: newAddresses(), nodes: map[int32]*node{}}
	for i := range int32(voters) {
		if err := c.add(firstVoter+i, true); err != nil {
			return nil, err
		}
	}
	for i := range int32(dataNodes) {
		if err := c.add(i, false); err != nil {
			return nil, err
		}
	}
	config := fmt.Sprintf("clusterId: %s\nvoters:\n", clusterID)
	for i := range int32(voters) {
		n := c.nodes[firstVoter+i]
		host, port, err := net.SplitHostPort(n.controller)
		if err != nil {
			return nil, err
		}
		config += fmt.Sprintf("- {id: %d, directoryId: %s, host: %s, port: %s}\n", n.id, directoryOf(n.id), host, port)
	}
	config += "snapshots: {maxNewBytes: 4000, retentionBytes: 1}\n"
	if err := os.WriteFile(c.config(), []byte(config), 0o644); err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		if err := c.start(n); err != nil {
			return c, err
		}
	}
	var err error
	c.client, err = kgo.NewClient(kgo.SeedBrokers(c.nodes[0].external, c.nodes[1].external),
		kgo.RetryTimeout(testscale.Duration(10*time.Second)), kgo.MetadataMinAge(50*time.Millisecond))
	return c, err
}

func (c *cluster) config() string { return filepath.Join(c.dir, "node.yaml") }

func (c *cluster) add(id int32, voter bool) error {
	n := &node{id: id, voter: voter, dir: filepath.Join(c.dir, fmt.Sprintf("node-%d", id))}
	for _, address := range []*string{&n.controller, &n.internal, &n.external, &n.http} {
		var err error
		if *address, err = c.addresses.free(); err != nil {
			return err
		}
	}
	c.nodes[id] = n
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.dir, "permit"), []byte(directoryOf(id).String()), 0o644)
}

func (c *cluster) start(n *node) error {
	output, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer output.Close()
	args := []string{
		"run", fmt.Sprintf("--node-id=%d", n.id), "--config=" + c.config(), "--directory-id=" + directoryOf(n.id).String(),
		"--data-dir=" + n.data(), "--format-permit-file=" + filepath.Join(n.dir, "permit"), "--listener-http=" + n.http,
	}
	if n.voter {
		args = append(args, "--roles=voter", "--listener-controller="+n.controller, "--advertised-controller="+n.controller)
	} else {
		args = append(args, "--roles=data", "--listener-internal="+n.internal, "--advertised-internal="+n.internal,
			"--listener-external="+n.external, "--advertised-external="+n.external)
	}
	n.process, err = procs.Start(procs.Spec{
		Path: filepath.Join(c.bin, "highwater-node"), Args: args, Env: os.Environ(), Stdout: output, Stderr: output,
		PidFile: filepath.Join(n.dir, "node"+procs.Suffix),
	})
	return err
}

// data is the node's data directory.
func (n *node) data() string { return filepath.Join(n.dir, "data") }

// kill ends a node as kill -9 does.
func (n *node) kill() {
	n.process.Kill()
	<-n.process.Done()
}

// pause stops a node where it is, and resume lets it go on.
func (n *node) pause()  { n.process.Signal(syscall.SIGSTOP) }
func (n *node) resume() { n.process.Signal(syscall.SIGCONT) }

// shutDown stops the nodes in order, those that need a controller first.
func (c *cluster) shutDown() {
	for _, voter := range []bool{false, true} {
		for _, n := range c.nodes {
			if n.voter == voter {
				n.process.Stop(testscale.Duration(30 * time.Second))
			}
		}
	}
}

func (c *cluster) stop() {
	if c.client != nil {
		c.client.Close()
	}
	for _, n := range c.nodes {
		if n.process != nil {
			n.kill()
		}
	}
}

// controllers is what Kafka's --bootstrap-controller and controller.quorum.bootstrap.servers take.
func (c *cluster) controllers() string {
	var all []string
	for i := range int32(voters) {
		all = append(all, c.nodes[firstVoter+i].controller)
	}
	return strings.Join(all, ",")
}

// metric reads one of a node's metrics that have no labels.
func (n *node) metric(ctx context.Context, name string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.http+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			return int64(value), err
		}
	}
	return 0, fmt.Errorf("node %d has no metric %s", n.id, name)
}

// The metrics that are compared with what Kafka's tools say.
const (
	metricHighWatermark = "highwater_metadata_high_watermark"
	metricLogStart      = "highwater_metadata_log_start_offset"
	metricLogEnd        = "highwater_metadata_log_end_offset"
)

// start starts our nodes and waits until they serve.
func (p *proof) start(ctx context.Context) error {
	var err error
	if p.ours, err = startCluster(p.bin, p.dir); err != nil {
		return err
	}
	if !p.check("three voters and two data nodes run", func() (string, error) {
		return "on " + p.ours.addresses.host, waitFor(ctx, time.Minute, func(ctx context.Context) error {
			for id := range int32(dataNodes) {
				if err := p.unfenced(ctx, id); err != nil {
					return err
				}
			}
			return nil
		})
	}) {
		return errors.New("there is nothing to be a peer of")
	}
	return nil
}
