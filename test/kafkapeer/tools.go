package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/highwater-io/highwater/test/nodes"
)

// The tools' classes, as the scripts in Kafka's bin/ name them.
const (
	metadataQuorum  = "org.apache.kafka.tools.MetadataQuorumCommand"
	features        = "org.apache.kafka.tools.FeatureCommand"
	clusterTool     = "org.apache.kafka.tools.ClusterTool"
	apiVersions     = "org.apache.kafka.tools.BrokerApiVersionsCommand"
	topics          = "org.apache.kafka.tools.TopicCommand"
	configs         = "kafka.admin.ConfigCommand"
	logDirs         = "org.apache.kafka.tools.LogDirsCommand"
	leaderElection  = "org.apache.kafka.tools.LeaderElectionCommand"
	deleteRecords   = "org.apache.kafka.tools.DeleteRecordsCommand"
	jmxTool         = "org.apache.kafka.tools.JmxTool"
	consoleProducer = "org.apache.kafka.tools.ConsoleProducer"
	consoleConsumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
)

// tools has Kafka's command line tools ask our voters and data nodes, and compares what they print.
func (p *proof) tools(ctx context.Context) error {
	server, controllers := p.ours.Node(0).External, p.ours.Controllers()
	p.check("kafka-metadata-quorum describe --status, of the controllers", func() (string, error) {
		return p.quorumStatus(ctx, "--bootstrap-controller", controllers)
	})
	p.check("kafka-metadata-quorum describe --status, of a data node", func() (string, error) {
		return p.quorumStatus(ctx, "--bootstrap-server", server)
	})
	p.check("kafka-metadata-quorum describe --replication, with a voter that stands still", func() (string, error) {
		return p.quorumReplication(ctx, "--bootstrap-server", server)
	})
	p.check("kafka-metadata-quorum remove-controller and add-controller", func() (string, error) { return p.changeVoters(ctx) })
	p.check("kafka-features describe", func() (string, error) {
		for _, bootstrap := range [][]string{{"--bootstrap-server", server}, {"--bootstrap-controller", controllers}} {
			out, err := tool(ctx, features, append(bootstrap, "describe")...)
			if err != nil {
				return "", err
			}
			for feature, level := range map[string]string{"metadata.version": "4.1-IV1", "kraft.version": "1"} {
				if !hasLine(out, "Feature: "+feature+"\t", "FinalizedVersionLevel: "+level+"\t") {
					return "", fmt.Errorf("%s at level %s is not in: %s", feature, level, out)
				}
			}
		}
		return "metadata.version 4.1-IV1, kraft.version 1", nil
	})
	p.check("kafka-cluster list-endpoints, of brokers and of controllers", func() (string, error) {
		if err := p.endpoints(ctx, "--bootstrap-server", server, "broker", 0, 1); err != nil {
			return "", err
		}
		return "", p.endpoints(ctx, "--bootstrap-controller", controllers, "controller", ourVoters...)
	})
	p.check("kafka-broker-api-versions", func() (string, error) {
		out, err := tool(ctx, apiVersions, "--bootstrap-server", server)
		if err == nil && (strings.Count(out, "Fetch(1): 4 to 18 [usable: 18]") != len(ourData) || strings.Contains(out, "-> ERROR")) {
			err = fmt.Errorf("not both nodes serve Fetch 18: %s", firstLines(out, 4))
		}
		return "", err
	})
	p.check("kafka-topics --create, --describe; kafka-configs --alter, --describe", func() (string, error) { return p.topicTools(ctx, server) })
	p.check("what is not served fails with Kafka's error", func() (string, error) { return p.notServed(ctx, server) })
	return nil
}

// hasLine says whether a line has all the words.
func hasLine(out string, words ...string) bool {
	for line := range strings.Lines(out) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return true
		}
	}
	return false
}

// steady runs a tool between two looks at the quorum that see the same leader in the same epoch; on a busy machine
// there may be an election in between, and then it is run again.
func (p *proof) steady(ctx context.Context, run func(context.Context) error) (before, after *quorum, err error) {
	err = nodes.WaitFor(ctx, time.Minute, func(ctx context.Context) error {
		if before, err = p.quorum(ctx); err != nil {
			return err
		}
		if err = run(ctx); err != nil {
			return err
		}
		if after, err = p.quorum(ctx); err != nil {
			return err
		}
		if before.leader != after.leader || before.epoch != after.epoch {
			return fmt.Errorf("leader %d of epoch %d was followed by %d of %d", before.leader, before.epoch, after.leader, after.epoch)
		}
		return nil
	})
	return before, after, err
}

// quorumStatus compares kafka-metadata-quorum's status with the leader's metrics, the configuration, and DescribeQuorum.
func (p *proof) quorumStatus(ctx context.Context, bootstrap ...string) (string, error) {
	var out string
	var low, high int64
	before, _, err := p.steady(ctx, func(ctx context.Context) (err error) {
		q, err := p.quorum(ctx)
		if err != nil {
			return err
		}
		leader := p.ours.Node(q.leader)
		if leader == nil {
			return fmt.Errorf("the leader is %d", q.leader)
		}
		if low, err = metric(ctx, leader, metricHighWatermark); err != nil {
			return err
		}
		if out, err = tool(ctx, metadataQuorum, append(bootstrap, "describe", "--status")...); err != nil {
			return err
		}
		high, err = metric(ctx, leader, metricHighWatermark)
		return err
	})
	if err != nil {
		return "", err
	}
	told := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			told[key] = strings.TrimSpace(value)
		}
	}
	for key, want := range map[string]string{
		"ClusterId": nodes.ClusterID.String(), "LeaderId": fmt.Sprint(before.leader), "LeaderEpoch": fmt.Sprint(before.epoch),
	} {
		if told[key] != want {
			return "", fmt.Errorf("%s is %q, want %s", key, told[key], want)
		}
	}
	committed, err := strconv.ParseInt(told["HighWatermark"], 10, 64)
	if err != nil || committed < low || committed > high {
		return "", fmt.Errorf("HighWatermark is %q; the leader's metric was %d before and %d after", told["HighWatermark"], low, high)
	}
	type member struct {
		ID          int32    `json:"id"`
		DirectoryID string   `json:"directoryId"`
		Endpoints   []string `json:"endpoints"`
	}
	var voters, observers []member
	if err := errors.Join(json.Unmarshal([]byte(told["CurrentVoters"]), &voters), json.Unmarshal([]byte(told["CurrentObservers"]), &observers)); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if len(voters) != len(before.voters) || len(observers) != len(before.observers) {
		return "", fmt.Errorf("voters %v and observers %v, want %v and %v", voters, observers, before.voters, before.observers)
	}
	for _, v := range voters {
		n := p.ours.Node(v.ID)
		if n == nil || v.DirectoryID != nodes.Directory(v.ID).String() || len(v.Endpoints) != 1 || v.Endpoints[0] != "CONTROLLER://"+n.Controller {
			return "", fmt.Errorf("voter %+v is not as it was configured", v)
		}
	}
	for _, o := range observers {
		if o.DirectoryID != before.observers[o.ID].directory || p.ours.Node(o.ID) != nil && o.DirectoryID != nodes.Directory(o.ID).String() {
			return "", fmt.Errorf("observer %+v, want %v", o, before.observers[o.ID])
		}
	}
	return fmt.Sprintf("leader %d of epoch %d, high watermark %d of %d to %d, %d voters with their directories, %d observers",
		before.leader, before.epoch, committed, low, high, len(voters), len(observers)), nil
}

// quorumReplication compares the lags that it prints with where the nodes are. One voter stands still meanwhile, so
// that one of them has a lag that is known.
func (p *proof) quorumReplication(ctx context.Context, bootstrap ...string) (string, error) {
	first, err := p.quorum(ctx)
	if err != nil {
		return "", err
	}
	still := p.ours.Node(ourVoters[(slices.Index(ourVoters, first.leader)+1)%len(ourVoters)])
	still.Pause()
	defer still.Resume()
	var stillAt int64
	if err := nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) error {
		q, err := p.quorum(ctx)
		if err != nil {
			return err
		}
		if stillAt = q.voters[still.ID].end; q.highWatermark < stillAt+5 {
			return fmt.Errorf("node %d is at %d of %d", still.ID, stillAt, q.highWatermark)
		}
		return nil
	}); err != nil {
		return "", err
	}
	var out string
	before, after, err := p.steady(ctx, func(ctx context.Context) (err error) {
		out, err = tool(ctx, metadataQuorum, append(bootstrap, "describe", "--replication")...)
		return err
	})
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if want := 1 + len(before.voters) + len(before.observers); len(lines) != want {
		return "", fmt.Errorf("%d lines, want %d: %s", len(lines), want, out)
	}
	leaderEnd := int64(-1)
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) != 7 {
			return "", fmt.Errorf("not seven columns: %s", line)
		}
		id, err1 := strconv.ParseInt(fields[0], 10, 32)
		end, err2 := strconv.ParseInt(fields[2], 10, 64)
		lag, err3 := strconv.ParseInt(fields[3], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return "", err
		}
		var want string
		from, to := before.voters[int32(id)], after.voters[int32(id)]
		switch _, voter := before.voters[int32(id)]; {
		case int32(id) == before.leader:
			want, leaderEnd = "Leader", end
		case voter:
			want = "Follower"
		default:
			want = "Observer"
			from, to = before.observers[int32(id)], after.observers[int32(id)]
		}
		if fields[6] != want || fields[1] != from.directory || end < from.end || end > to.end || lag != leaderEnd-end {
			return "", fmt.Errorf("%q, want a %s at %d to %d, behind the leader's %d", line, want, from.end, to.end, leaderEnd)
		}
		if int32(id) == still.ID && (end != stillAt || lag < 5) {
			return "", fmt.Errorf("%q, but node %d stands still at %d", line, id, stillAt)
		}
	}
	return fmt.Sprintf("voter %d is at %d, the leader at %d", still.ID, stillAt, leaderEnd), nil
}

// endpoints wants exactly these nodes to be listed, each where it listens.
func (p *proof) endpoints(ctx context.Context, flag, bootstrap, kind string, ids ...int32) error {
	out, err := tool(ctx, clusterTool, "list-endpoints", flag, bootstrap)
	if err != nil {
		return err
	}
	if n := strings.Count(strings.TrimSpace(out), "\n"); n != len(ids) {
		return fmt.Errorf("%d endpoints, want %d: %s", n, len(ids), out)
	}
	for _, id := range ids {
		var address string
		switch n := p.ours.Node(id); {
		case id == kafkaID:
			address = p.broker.external
		case n.Voter:
			address = n.Controller
		default:
			address = n.External
		}
		host, port, _ := strings.Cut(address, ":")
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			f := strings.Fields(line)
			return len(f) > 3 && f[0] == fmt.Sprint(id) && f[1] == host && f[2] == port && f[len(f)-1] == kind
		}) {
			return fmt.Errorf("%s %d at %s is not in: %s", kind, id, address, out)
		}
	}
	return nil
}

// topicTools creates, describes and configures a topic on our nodes.
func (p *proof) topicTools(ctx context.Context, server string) (string, error) {
	bootstrap := []string{"--bootstrap-server", server}
	if _, err := tool(ctx, topics, append(bootstrap, "--create", "--topic", "ours", "--partitions", "2", "--replication-factor", "2")...); err != nil {
		return "", err
	}
	if _, err := tool(ctx, configs, append(bootstrap, "--alter", "--entity-type", "topics", "--entity-name", "ours", "--add-config", "retention.ms=3600000")...); err != nil {
		return "", err
	}
	var described string
	for index := range int32(2) {
		if err := nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) error {
			part, err := p.partition(ctx, "ours", index)
			if err == nil {
				err = p.inSync(ctx, "ours", index, part.Replicas[0], 0, 1)
			}
			described = fmt.Sprintf("Partition: %d\tLeader: %d\t", index, part.Leader)
			return err
		}); err != nil {
			return "", err
		}
		out, err := tool(ctx, topics, append(bootstrap, "--describe", "--topic", "ours")...)
		if err == nil && (!hasLine(out, described) || !hasLine(out, "PartitionCount: 2", "ReplicationFactor: 2", "retention.ms=3600000")) {
			err = fmt.Errorf("not the topic that there is, %q: %s", described, out)
		}
		if err != nil {
			return "", err
		}
	}
	out, err := tool(ctx, configs, append(bootstrap, "--describe", "--entity-type", "topics", "--entity-name", "ours")...)
	if err == nil && !hasLine(out, "retention.ms=3600000", "DYNAMIC_TOPIC_CONFIG") {
		err = fmt.Errorf("retention.ms is not in: %s", out)
	}
	return "", err
}

// notServed has tools ask for what our nodes do not serve.
func (p *proof) notServed(ctx context.Context, server string) (string, error) {
	bootstrap := []string{"--bootstrap-server", server}
	var told []string
	for _, ask := range []struct {
		what, class string
		args        []string
		want        string
	}{
		{"log directories", logDirs, []string{"--describe"}, "UnsupportedVersionException: The node does not support DESCRIBE_LOG_DIRS"},
		{"changing features", features, []string{"upgrade", "--feature", "metadata.version=26"}, "does not support UPDATE_FEATURES"},
		{"broker configurations", configs, []string{"--describe", "--all", "--entity-type", "brokers", "--entity-name", "0"},
			"InvalidRequestException: broker configurations are not served: a node's settings come from its ReplicaSet"},
		{"ACLs", "org.apache.kafka.tools.AclCommand", []string{"--list"}, "does not support DESCRIBE_ACLS"},
	} {
		out, err := tool(ctx, ask.class, append(bootstrap, ask.args...)...)
		if err == nil {
			return "", fmt.Errorf("%s: no error: %s", ask.what, out)
		}
		if !strings.Contains(err.Error()+out, ask.want) {
			return "", fmt.Errorf("%s: want %q, have %w", ask.what, ask.want, err)
		}
		told = append(told, ask.what)
	}
	return strings.Join(told, ", "), nil
}
