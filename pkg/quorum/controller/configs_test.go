package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/metadata"
)

const (
	opSet      = kmsg.IncrementalAlterConfigOpSet
	opDelete   = kmsg.IncrementalAlterConfigOpDelete
	opAppend   = kmsg.IncrementalAlterConfigOpAppend
	opSubtract = kmsg.IncrementalAlterConfigOpSubtract
)

func configOp(op kmsg.IncrementalAlterConfigOp, name string, value ...string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op = name, op
	if len(value) > 0 {
		c.Value = &value[0]
	}
	return c
}

func configRequest(topic string, ops ...kmsg.IncrementalAlterConfigsRequestResourceConfig) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.Version = 1
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName, resource.Configs = kmsg.ConfigResourceTypeTopic, topic, ops
	r.Resources = append(r.Resources, resource)
	return r
}

func (h *harness) alterConfigs(r *kmsg.IncrementalAlterConfigsRequest) []kmsg.IncrementalAlterConfigsResponseResource {
	h.t.Helper()
	d := h.c.IncrementalAlterConfigs(h.now, r)
	h.take(d)
	return d.Response.(*kmsg.IncrementalAlterConfigsResponse).Resources
}

func (h *harness) configs(topic string) string {
	var out []string
	for key, value := range h.committed.Config(metadata.ResourceTopic, topic).All() {
		out = append(out, key+"="+value)
	}
	return strings.Join(out, " ")
}

func TestIncrementalAlterConfigs(t *testing.T) {
	resource := func(kind kmsg.ConfigResourceType, name string) *kmsg.IncrementalAlterConfigsRequest {
		r := configRequest(name, configOp(opSet, "retention.ms", "1"))
		r.Resources[0].ResourceType = kind
		return r
	}
	twice := configRequest("a", configOp(opSet, "retention.ms", "1"))
	twice.Resources = append(twice.Resources, twice.Resources[0])
	validate := configRequest("a", configOp(opSet, "retention.ms", "1"))
	validate.ValidateOnly = true
	const before = "max.message.bytes=8 retention.bytes=9"
	for _, c := range []struct {
		what    string
		request *kmsg.IncrementalAlterConfigsRequest
		want    *kerr.Error
		message string
		after   string
	}{
		{"set", configRequest("a", configOp(opSet, "retention.ms", "1"), configOp(opSet, "retention.bytes", "2")), nil, "", "max.message.bytes=8 retention.bytes=2 retention.ms=1"},
		{"delete", configRequest("a", configOp(opDelete, "retention.bytes")), nil, "", "max.message.bytes=8"},
		{"delete what is not set", configRequest("a", configOp(opDelete, "retention.ms")), nil, "", before},
		{"set what is set", configRequest("a", configOp(opSet, "retention.bytes", "9")), nil, "", before},
		{"append", configRequest("a", configOp(opAppend, "cleanup.policy", "delete")), nil, "", "cleanup.policy=delete " + before},
		{"append what was not there", configRequest("a", configOp(opAppend, "cleanup.policy", "compact")), nil, "", "cleanup.policy=delete,compact " + before},
		{"append what can't be", configRequest("a", configOp(opAppend, "cleanup.policy", "compress")), kerr.InvalidConfig, "delete", before},
		{"lags that fit", configRequest("a", configOp(opSet, "min.compaction.lag.ms", "5"), configOp(opSet, "max.compaction.lag.ms", "5")), nil, "", "max.compaction.lag.ms=5 max.message.bytes=8 min.compaction.lag.ms=5 retention.bytes=9"},
		{"lags that don't", configRequest("a", configOp(opSet, "min.compaction.lag.ms", "6"), configOp(opSet, "max.compaction.lag.ms", "5")), kerr.InvalidConfig, "above", before},
		{"subtract all", configRequest("a", configOp(opSubtract, "cleanup.policy", "delete")), kerr.InvalidConfig, "must be one or more of", before},
		{"append to a number", configRequest("a", configOp(opAppend, "retention.bytes", "1")), kerr.InvalidConfig, "not LIST", before},
		{"append to what is unknown", configRequest("a", configOp(opAppend, "no.such", "1")), kerr.InvalidConfig, "unknown", before},
		{"one bad of two", configRequest("a", configOp(opSet, "retention.bytes", "1"), configOp(opSet, "max.message.bytes", "no")), kerr.InvalidConfig, "max.message.bytes", before},
		{"unknown key", configRequest("a", configOp(opSet, "no.such", "1")), kerr.InvalidConfig, "unknown", before},
		{"delete of an unknown key", configRequest("a", configOp(opDelete, "no.such")), kerr.InvalidConfig, "unknown", before},
		{"Kafka's key that is not here yet", configRequest("a", configOp(opSet, "remote.storage.enable", "true")), kerr.InvalidConfig, "not supported", before},
		{"null", configRequest("a", configOp(opSet, "retention.bytes")), kerr.InvalidRequest, "Null value", before},
		{"key twice", configRequest("a", configOp(opSet, "retention.bytes", "1"), configOp(opDelete, "retention.bytes")), kerr.InvalidRequest, "duplicate config keys", before},
		{"unknown operation", configRequest("a", configOp(7, "retention.bytes", "1")), kerr.InvalidRequest, "operation 7", before},
		{"unknown topic", configRequest("b", configOp(opSet, "retention.bytes", "1")), kerr.UnknownTopicOrPartition, "does not exist", before},
		{"no topic", configRequest("", configOp(opSet, "retention.bytes", "1")), kerr.InvalidRequest, "Default topic resources", before},
		{"broker", resource(kmsg.ConfigResourceTypeBroker, "1"), kerr.InvalidConfig, "ReplicaSet", before},
		{"all brokers", resource(kmsg.ConfigResourceTypeBroker, ""), kerr.InvalidConfig, "ReplicaSet", before},
		{"group", resource(kmsg.ConfigResourceTypeGroupConfig, "g"), kerr.InvalidRequest, "type 32", before},
		{"resource twice", twice, kerr.InvalidRequest, "at most once", before},
		{"validate only", validate, nil, "", before},
		{"value that no record can hold", configRequest("a", configOp(opSet, "cleanup.policy", "delete"+strings.Repeat(" ", 1<<20))), kerr.InvalidRequest, "", before},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := newHarness(t, testConfig())
			h.start(1)
			h.createTopics(createRequest(automatic("a", 1, 1, "retention.bytes", "9", "max.message.bytes", "8")))
			want := int16(0)
			if c.want != nil {
				want = c.want.Code
			}
			for _, got := range h.alterConfigs(c.request) {
				if got.ErrorCode != want || !strings.Contains(message(got.ErrorMessage), c.message) {
					t.Errorf("got %s %q, want %s %q", name(got.ErrorCode), message(got.ErrorMessage), name(want), c.message)
				}
			}
			if got := h.configs("a"); got != c.after {
				t.Errorf("configs %q, want %q", got, c.after)
			}
			if c.after == before && len(h.log) != 0 {
				t.Errorf("nothing changed, in %d records", len(h.log))
			}
		})
	}
}

func TestAllowingUncleanElectionsGivesLeaderlessPartitionsALeader(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	id := h.create("a", []int32{1, 2})
	h.create("b", []int32{1, 2})
	h.alter(h.proposal(1, id, 0, 1))
	h.run(3*time.Second, 2)
	h.want("a", 0, "leader -1 le 1 pe 2 isr [1]")
	h.run(10*time.Second, 2)
	h.want("a", 0, "leader -1 le 1 pe 2 isr [1]")
	h.alterConfigs(configRequest("a", configOp(opSet, "unclean.leader.election.enable", "true")))
	if h.c.NextDeadline() != h.now {
		t.Error("the election waits for nothing")
	}
	h.tick()
	h.want("a", 0, "leader 2 le 2 pe 3 isr [2] recovering")
	h.want("b", 0, "leader 2 le 1 pe 1 isr [2]")
	// Done recovering, it may be joined again, and not before.
	h.heartbeat(1, nil)
	if code := h.alter(h.proposal(2, id, 0, 2, 1)).ErrorCode; code != kerr.InvalidRequest.Code {
		t.Errorf("a second member while it recovers: %s", name(code))
	}
	if code := h.alter(h.proposal(2, id, 0, 2)).ErrorCode; code != 0 || len(h.log) != 0 {
		t.Errorf("what already is: %s", name(code))
	}
	r := h.proposal(2, id, 0, 2)
	r.Topics[0].Partitions[0].LeaderRecoveryState = metadata.Recovered
	h.alter(r)
	h.want("a", 0, "leader 2 le 2 pe 4 isr [2]")
}

func TestTopicsOfAClusterThatAllowsUncleanElectionsDoSoByDefault(t *testing.T) {
	cfg := testConfig()
	cfg.TopicDefaults = map[string]string{"unclean.leader.election.enable": "true"}
	h := newHarness(t, cfg)
	h.start(1, 2)
	a := h.create("a", []int32{1, 2})
	b := h.createTopics(createRequest(manualWith("b", "unclean.leader.election.enable", "false", []int32{1, 2})))[0].TopicID
	h.alter(h.proposal(1, a, 0, 1))
	h.alter(h.proposal(1, b, 0, 1))
	h.run(3*time.Second, 2)
	h.want("a", 0, "leader 2 le 1 pe 2 isr [2] recovering")
	h.want("b", 0, "leader -1 le 1 pe 2 isr [1]")
}

func manualWith(topic, key, value string, replicas ...[]int32) kmsg.CreateTopicsRequestTopic {
	t := manual(topic, replicas...)
	t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: &value})
	return t
}
