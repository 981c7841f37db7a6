package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/procs"
	"github.com/highwater-io/highwater/internal/testscale"
)

// ports of the one node, whoever runs it. The controller's stands in the metadata log.
type ports struct{ client, internal, controller, http string }

func freePorts() (p ports, err error) {
	for _, address := range []*string{&p.client, &p.internal, &p.controller, &p.http} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return p, err
		}
		defer l.Close()
		*address = l.Addr().String()
	}
	return p, nil
}

// server is a process, of ours or Kafka's, on a data directory.
type server struct {
	name    string
	process *procs.Process
	output  *os.File
	seed    string
}

func startServer(ctx context.Context, name, dir, seed string, spec procs.Spec) (*server, error) {
	output, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	spec.Stdout, spec.Stderr = output, output
	s := &server{name: name, output: output, seed: seed}
	if s.process, err = procs.Start(spec); err != nil {
		return nil, errors.Join(err, output.Close())
	}
	if err := s.waitReady(ctx); err != nil {
		s.process.Kill()
		return nil, fmt.Errorf("%s on its data directory: %w; %s says:\n%s", name, err, output.Name(), tail(output.Name()))
	}
	return s, nil
}

func tail(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// waitReady waits until the server answers and every partition has a leader.
func (s *server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(2*time.Minute))
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.seed), kgo.RetryTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := leaders(ctx, client)
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Done():
			_, code, _ := s.process.Ended()
			return fmt.Errorf("it ended with %d", code)
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", err)
		case <-ticker.C:
		}
	}
}

func leaders(ctx context.Context, client *kgo.Client) error {
	request := kmsg.NewPtrMetadataRequest() // all topics
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if len(response.Brokers) != 1 {
		return fmt.Errorf("%d brokers", len(response.Brokers))
	}
	for _, topic := range response.Topics {
		for _, p := range topic.Partitions {
			if p.ErrorCode != 0 || p.Leader < 0 {
				return fmt.Errorf("partition %s-%d has leader %d, error %d", *topic.Topic, p.Partition, p.Leader, p.ErrorCode)
			}
		}
	}
	return nil
}

// stop ends the server in order, by SIGTERM.
func (s *server) stop() error {
	s.process.Signal(syscall.SIGTERM)
	defer s.output.Close()
	select {
	case <-s.process.Done():
	case <-time.After(testscale.Duration(time.Minute)):
		s.process.Kill()
		return fmt.Errorf("%s did not stop; it says:\n%s", s.name, tail(s.output.Name()))
	}
	if _, code, _ := s.process.Ended(); code != 0 && code != 128+int(syscall.SIGTERM) {
		return fmt.Errorf("%s ended with %d; it says:\n%s", s.name, code, tail(s.output.Name()))
	}
	return nil
}

func (s *server) kill() {
	s.process.Kill()
	<-s.process.Done()
	_ = s.output.Close() // of which nothing is read any more
}

// identity is whose the directory is.
type identity struct{ clusterID, directoryID string }

const nodeID = 1

// startOurs runs highwater-node, voter and data node, on dir/data.
func startOurs(ctx context.Context, bin, dir string, id identity, p ports) (*server, error) {
	host, port, err := net.SplitHostPort(p.controller)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("clusterId: %s\nvoters: [{id: %d, directoryId: %s, host: %s, port: %s}]\n", id.clusterID, nodeID, id.directoryID, host, port)
	for name, content := range map[string]string{"node.yaml": config, "permit": id.directoryID} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	return startServer(ctx, "highwater", dir, p.client, procs.Spec{
		Path: filepath.Join(bin, "highwater-node"), Env: os.Environ(),
		Args: []string{"run", fmt.Sprintf("--node-id=%d", nodeID), "--roles=voter,data", "--config=" + filepath.Join(dir, "node.yaml"),
			"--directory-id=" + id.directoryID, "--data-dir=" + filepath.Join(dir, "data"), "--format-permit-file=" + filepath.Join(dir, "permit"),
			"--listener-controller=" + p.controller, "--advertised-controller=" + p.controller,
			"--listener-internal=" + p.internal, "--advertised-internal=" + p.internal,
			"--listener-external=" + p.client, "--advertised-external=" + p.client, "--listener-http=" + p.http},
	})
}

// properties are Kafka's for a node that is controller and broker at once.
func properties(dir string, p ports) error {
	return os.WriteFile(filepath.Join(dir, "server.properties"), []byte(fmt.Sprintf(`process.roles=broker,controller
node.id=%d
controller.quorum.bootstrap.servers=%s
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listeners=PLAINTEXT://%s,CONTROLLER://%s
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=%s
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=1
num.io.threads=2
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=1048577
log.initial.task.delay.ms=100
log.retention.check.interval.ms=500
`, nodeID, p.controller, p.client, p.controller, filepath.Join(dir, "data"))), 0o644)
}

// startKafka runs a real Kafka on dir/data.
func startKafka(ctx context.Context, dir string, p ports) (*server, error) {
	if err := properties(dir, p); err != nil {
		return nil, err
	}
	if err := os.Remove(filepath.Join(dir, "kafka.log")); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return startServer(ctx, "kafka", dir, p.client, procs.Spec{
		Path: "hack/kafka/run.sh", Args: []string{"kafka.Kafka", filepath.Join(dir, "server.properties")},
		Env: append(os.Environ(), "KAFKA_HEAP=400m"),
	})
}

// format has Kafka format an empty dir/data, with the feature levels at which our nodes work: both refuse a broker that
// knows less than what is finalized.
func format(ctx context.Context, dir string, clusterID string, p ports) error {
	if err := properties(dir, p); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "hack/kafka/run.sh", "kafka.tools.StorageTool", "format", "-t", clusterID,
		"-c", filepath.Join(dir, "server.properties"), "--standalone", "--release-version", "4.1-IV1",
		"--feature", "eligible.leader.replicas.version=0", "--feature", "transaction.version=0", "--feature", "group.version=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("format: %w: %s", err, out)
	}
	return nil
}

// complaints are what Kafka's log says of files that it could not take as they are.
func complaints(dir string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "kafka.log"))
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(raw)) {
		for _, word := range []string{" ERROR ", " FATAL ", "orrupt", "ebuilding", "Could not find", "unknown file", "Exception"} {
			if strings.Contains(line, word) {
				found = append(found, strings.TrimSpace(line))
				break
			}
		}
	}
	return found, nil
}
