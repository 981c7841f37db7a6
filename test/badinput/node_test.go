package badinput

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/procs"
	"github.com/highwater-io/highwater/internal/scrape"
	"github.com/highwater-io/highwater/internal/testaddr"
	"github.com/highwater-io/highwater/internal/testenv"
	"github.com/highwater-io/highwater/internal/testscale"
)

// nodeBinary is highwater-node: that of HIGHWATER_BIN, as make test sets it, else one built here.
var nodeBinary = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("HIGHWATER_BIN"); dir != "" {
		return filepath.Join(dir, "highwater-node"), nil
	}
	dir, err := os.MkdirTemp("", "highwater-badinput-")
	if err != nil {
		return "", err
	}
	built = dir
	command := exec.Command("go", "build", "-o", dir, "./cmd/node")
	command.Dir = testenv.Root()
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the node: %w: %s", err, out)
	}
	return filepath.Join(dir, "node"), nil
})

// built is what to remove at the end.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// Identities of the one node, which is voter and data node.
const (
	clusterID   = "BwAAAAAAAAAAAAAAAAAAyA"
	directoryID = "CQAAAAAAAAAAAAAAAAABAQ"
	otherID     = "CAAAAAAAAAAAAAAAAAABAg"
)

// node is one node on its volume, of which one process runs at a time.
type node struct {
	*testing.T
	dir                                string
	controller, internal, client, http string
	output                             *os.File // of all its processes
	process                            *procs.Process
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, dir: t.TempDir()}
	for _, address := range []*string{&n.controller, &n.internal, &n.client, &n.http} {
		*address = testaddr.Free(t)
	}
	host, port, _ := net.SplitHostPort(n.controller)
	n.write("node.yaml", fmt.Sprintf("clusterId: %s\nvoters: [{id: 0, directoryId: %s, host: %s, port: %s}]\n", clusterID, directoryID, host, port))
	n.permit(directoryID)
	var err error
	if n.output, err = os.Create(filepath.Join(n.dir, "output")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n.process != nil {
			n.process.Kill()
			<-n.process.Done()
		}
		if t.Failed() {
			t.Logf("the node's output:\n%s", n.said())
		}
		n.output.Close()
	})
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(name, content string) {
	n.Helper()
	if err := os.WriteFile(n.path(name), []byte(content), 0o644); err != nil {
		n.Fatal(err)
	}
}

// permit lets the node format an empty volume for a directory id; "" withdraws it.
func (n *node) permit(directory string) { n.write("permit", directory) }

// run starts a process with further arguments.
func (n *node) run(args ...string) {
	n.Helper()
	path, err := nodeBinary()
	if err != nil {
		n.Fatal(err)
	}
	n.process, err = procs.Start(procs.Spec{
		Path: path, Env: os.Environ(), Stdout: n.output, Stderr: n.output,
		Args: append([]string{
			"run", "--node-id=0", "--roles=voter,data", "--config=" + n.path("node.yaml"), "--directory-id=" + directoryID,
			"--data-dir=" + n.path("data"), "--metadata-dir=" + n.path("metadata"), "--format-permit-file=" + n.path("permit"),
			"--termination-log=" + n.path("termination"),
			"--listener-controller=" + n.controller, "--advertised-controller=" + n.controller,
			"--listener-internal=" + n.internal, "--advertised-internal=" + n.internal,
			"--listener-external=" + n.client, "--advertised-external=" + n.client, "--listener-http=" + n.http,
		}, args...),
	})
	if err != nil {
		n.Fatal(err)
	}
}

// start runs a process and waits until it is ready.
func (n *node) start() {
	n.Helper()
	n.run()
	n.eventually("the node is ready", func() error {
		select {
		case <-n.process.Done():
			n.Fatalf("the node has ended:\n%s", n.said())
		default:
		}
		resp, err := http.Get("http://" + n.http + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			return errors.New(string(body))
		}
		return nil
	})
}

// unready waits until a node that runs says by its readiness probe why it is not ready, and checks that it lives.
func (n *node) unready(texts ...string) {
	n.Helper()
	get := func(path string) (int, string, error) {
		resp, err := http.Get("http://" + n.http + path)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
	n.eventually("the node says why it is not ready", func() error {
		code, body, err := get("/readyz")
		for _, text := range texts {
			if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(body, text)) {
				err = fmt.Errorf("%d %q, without %q", code, body, text)
			}
		}
		return err
	})
	if code, body, err := get("/livez"); code != http.StatusOK {
		n.Errorf("livez: %d %q, %v", code, body, err)
	}
}

// kill ends the process at once.
func (n *node) kill() {
	n.process.Kill()
	<-n.process.Done()
}

// ends waits until the process has ended by itself and returns its exit code.
func (n *node) ends() int {
	n.Helper()
	n.eventually("the node ends", func() error {
		select {
		case <-n.process.Done():
			return nil
		default:
			return errors.New("it runs")
		}
	})
	_, code, _ := n.process.Ended()
	return code
}

func (n *node) said() string {
	said, err := os.ReadFile(n.output.Name())
	if err != nil {
		return err.Error()
	}
	return string(said)
}

// says fails unless the output holds all texts.
func (n *node) says(texts ...string) {
	n.Helper()
	said := n.said()
	for _, text := range texts {
		if !strings.Contains(said, text) {
			n.Errorf("the node did not say %q", text)
		}
	}
}

func (n *node) eventually(what string, check func() error) {
	n.Helper()
	deadline := time.Now().Add(testscale.Duration(60 * time.Second))
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			n.Fatalf("%s: %v", what, err)
		}
		<-ticker.C
	}
}

func (n *node) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(60*time.Second))
	n.Cleanup(cancel)
	return ctx
}

func (n *node) kgo(opts ...kgo.Opt) *kgo.Client {
	n.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.client)}, opts...)...)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(client.Close)
	return client
}

func (n *node) createTopic(name string, configs map[string]*string) {
	n.Helper()
	resp, err := kadm.NewClient(n.kgo()).CreateTopic(n.context(), 1, 1, configs, name)
	if err = errors.Join(err, resp.Err); err != nil {
		n.Fatal(err)
	}
	// The topic is committed; that its leader has heard of it may take a moment longer, as in Kafka.
	client := kadm.NewClient(n.kgo())
	n.eventually("the node leads "+name, func() error {
		ends, err := client.ListEndOffsets(n.context(), name)
		return errors.Join(err, ends.Error())
	})
}

// produce writes records "0", "1", ... one batch each.
func (n *node) produce(topic string, from, to int) {
	n.Helper()
	client := n.kgo(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := from; i < to; i++ {
		if err := client.ProduceSync(n.context(), &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%d", i)}).FirstErr(); err != nil {
			n.Fatalf("produce record %d: %v", i, err)
		}
	}
}

// consume reads the whole partition.
func (n *node) consume(topic string) []string {
	n.Helper()
	ends, err := kadm.NewClient(n.kgo()).ListEndOffsets(n.context(), topic)
	if err != nil {
		n.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	return n.consumeFirst(topic, int(end.Offset))
}

// consumeFirst reads so many records of a partition.
func (n *node) consumeFirst(topic string, count int) []string {
	n.Helper()
	client := n.kgo(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	values := []string{}
	for len(values) < count {
		fetches := client.PollFetches(n.context())
		if err := fetches.Err0(); err != nil {
			n.Fatalf("after %d of %d records: %v", len(values), count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

func numbers(to int) []string {
	out := []string{}
	for i := range to {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// metric reads one of the node's metrics, 0 when nothing was counted for its labels yet.
func (n *node) metric(name string) float64 {
	n.Helper()
	value, err := scrape.Value(n.context(), n.http, name)
	if err != nil && !errors.Is(err, scrape.ErrAbsent) {
		n.Fatal(err)
	}
	return value
}
