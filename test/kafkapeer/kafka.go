package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/highwater-io/highwater/internal/procs"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/nodes"
)

// Node ids of Apache Kafka's processes.
const (
	kafkaID           = 10
	kafkaControllerID = 200
)

// kafka is a stock node of Apache Kafka's.
type kafka struct {
	dir                                 string
	internal, external, controller, jmx string
	process                             *procs.Process
}

// newBroker writes the configuration of a broker that finds its cluster through our voters, and formats its directory.
func newBroker(ctx context.Context, c *nodes.Cluster, dir string) (*kafka, error) {
	k, err := newKafka(c, dir)
	if err != nil {
		return nil, err
	}
	// It shares our listeners' names: each node reaches the others at the endpoint of the name that it calls INTERNAL.
	return k, k.format(ctx, c, fmt.Sprintf(`process.roles=broker
node.id=%d
inter.broker.listener.name=INTERNAL
listeners=INTERNAL://%s,EXTERNAL://%s
listener.security.protocol.map=CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT
broker.rack=kafka
auto.create.topics.enable=false
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=10000
num.network.threads=1
num.io.threads=2
log.cleaner.dedupe.buffer.size=1048577
`, kafkaID, k.internal, k.external))
}

// newController does the same for a controller, which is no voter at first.
func newController(ctx context.Context, c *nodes.Cluster, dir string) (*kafka, error) {
	k, err := newKafka(c, dir)
	if err != nil {
		return nil, err
	}
	return k, k.format(ctx, c, fmt.Sprintf(`process.roles=controller
node.id=%d
listeners=CONTROLLER://%s
advertised.listeners=CONTROLLER://%s
listener.security.protocol.map=CONTROLLER:PLAINTEXT
broker.session.timeout.ms=%d
`, kafkaControllerID, k.controller, k.controller, sessionTimeout.Milliseconds()))
}

func newKafka(c *nodes.Cluster, dir string) (*kafka, error) {
	k := &kafka{dir: dir}
	for _, address := range []*string{&k.internal, &k.external, &k.controller, &k.jmx} {
		var err error
		if *address, err = c.Free(); err != nil {
			return nil, err
		}
	}
	return k, os.MkdirAll(dir, 0o755)
}

// format completes the properties and formats the node's directory for our cluster.
func (k *kafka) format(ctx context.Context, c *nodes.Cluster, properties string) error {
	properties += fmt.Sprintf(`controller.quorum.bootstrap.servers=%s
controller.listener.names=CONTROLLER
log.dirs=%s
metadata.log.max.record.bytes.between.snapshots=1000
`, c.Controllers(), k.data())
	if err := os.WriteFile(k.properties(), []byte(properties), 0o644); err != nil {
		return err
	}
	_, err := tool(ctx, "kafka.tools.StorageTool", "format", "-t", nodes.ClusterID.String(), "-c", k.properties(),
		"--no-initial-controllers", "--release-version", "4.1-IV1")
	return err
}

func (k *kafka) properties() string { return filepath.Join(k.dir, "server.properties") }
func (k *kafka) data() string       { return filepath.Join(k.dir, "data") }
func (k *kafka) log() string        { return filepath.Join(k.dir, "log") }

// start starts the process; when it is part of the cluster the cluster says.
func (k *kafka) start() error {
	host, port, err := net.SplitHostPort(k.jmx)
	if err != nil {
		return err
	}
	output, err := os.OpenFile(k.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer output.Close()
	k.process, err = procs.Start(procs.Spec{
		Path: script("run.sh"), Args: []string{"kafka.Kafka", k.properties()}, Stdout: output, Stderr: output,
		PidFile: filepath.Join(k.dir, "kafka"+procs.Suffix),
		Env: append(os.Environ(), "KAFKA_HEAP=400m", "KAFKA_LOG_LEVEL=info", "KAFKA_JVM_ARGS="+strings.Join([]string{
			"-Dcom.sun.management.jmxremote.port=" + port, "-Dcom.sun.management.jmxremote.rmi.port=" + port,
			"-Dcom.sun.management.jmxremote.host=" + host, "-Djava.rmi.server.hostname=" + host,
			"-Dcom.sun.management.jmxremote.authenticate=false", "-Dcom.sun.management.jmxremote.ssl=false",
		}, " ")),
	})
	return err
}

// kill is kill -9.
func (k *kafka) kill() {
	if k.process != nil {
		k.process.Kill()
		<-k.process.Done()
	}
}

// pause stops it where it is, and resume lets it go on.
func (k *kafka) pause()  { k.process.Signal(syscall.SIGSTOP) }
func (k *kafka) resume() { k.process.Signal(syscall.SIGCONT) }

// stop is a controlled shutdown.
func (k *kafka) stop() error {
	k.process.Signal(syscall.SIGTERM)
	select {
	case <-k.process.Done():
		return nil
	case <-time.After(testscale.Duration(time.Minute)):
		k.kill()
		return errors.New("it did not stop within a minute of SIGTERM")
	}
}

// complaints are the errors in the node's log, but for those that a test expects.
func (k *kafka) complaints(expected ...string) error {
	raw, err := os.ReadFile(k.log())
	if err != nil {
		return err
	}
	var found []string
	lines := strings.Split(string(raw), "\n")
	for i, line := range lines {
		if !strings.Contains(line, " ERROR ") && !strings.Contains(line, " FATAL ") {
			continue
		}
		if i+1 < len(lines) {
			line += " " + lines[i+1] // the exception
		}
		if !slices.ContainsFunc(expected, func(words string) bool { return strings.Contains(line, words) }) {
			found = append(found, line)
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("%d errors in its log, the first: %s", len(found), found[0])
	}
	return nil
}

// said is nil when the node's log has the words.
func (k *kafka) said(words string) error {
	raw, err := os.ReadFile(k.log())
	if err == nil && !strings.Contains(string(raw), words) {
		err = fmt.Errorf("its log does not say %q", words)
	}
	return err
}

// toolTimeout bounds one of Kafka's command line tools, most of which is the start of a Java machine.
const toolTimeout = time.Minute

// tool runs one of Kafka's tools and returns what it printed.
func tool(ctx context.Context, class string, args ...string) (string, error) {
	return toolWith(ctx, nil, class, args...)
}

// toolWith also gives it something to read.
func toolWith(ctx context.Context, stdin []byte, class string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(toolTimeout))
	defer cancel()
	command := exec.CommandContext(ctx, script("run.sh"), append([]string{class}, args...)...)
	command.Env = append(os.Environ(), "KAFKA_HEAP=256m")
	command.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", class, strings.Join(args, " "), err, firstLines(stdout.String()+stderr.String(), 8))
	}
	return stdout.String(), nil
}

func firstLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[:min(n, len(lines))], " | ")
}
