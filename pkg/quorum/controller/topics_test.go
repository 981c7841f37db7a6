package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

func (h *harness) createTopics(r *kmsg.CreateTopicsRequest) []kmsg.CreateTopicsResponseTopic {
	h.t.Helper()
	d := h.c.CreateTopics(h.now, r)
	h.take(d)
	return d.Response.(*kmsg.CreateTopicsResponse).Topics
}

func message(m *string) string {
	if m == nil {
		return ""
	}
	return *m
}

func TestCreateTopicsErrors(t *testing.T) {
	null := automatic("a", 1, 1)
	null.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
	both, counted, gap, twice := manual("a", []int32{1}), manual("a", []int32{1}), manual("a", []int32{1}, []int32{1}), manual("a", []int32{1}, []int32{1})
	both.ReplicationFactor, counted.NumPartitions = 1, 1
	gap.ReplicaAssignment[1].Partition = 2
	twice.ReplicaAssignment[1].Partition = 0
	for _, c := range []struct {
		topic   kmsg.CreateTopicsRequestTopic
		want    *kerr.Error
		message string
	}{
		{automatic("__cluster_metadata", 1, 1), kerr.TopicAuthorizationFailed, ""},
		{automatic("", 1, 1), kerr.InvalidTopicException, "empty"},
		{automatic("..", 1, 1), kerr.InvalidTopicException, "'..' is not allowed"},
		{automatic("a/b", 1, 1), kerr.InvalidTopicException, "ASCII alphanumerics"},
		{automatic("ä", 1, 1), kerr.InvalidTopicException, "ASCII alphanumerics"},
		{automatic(strings.Repeat("x", 250), 1, 1), kerr.InvalidTopicException, "249"},
		{automatic("there", 0, 0, "no.such", "1"), kerr.TopicAlreadyExists, "already exists"},
		{automatic("the.re_too", 1, 1), kerr.InvalidTopicException, "collides with existing topic: the_re.too"},
		{automatic("a", 0, 0, "no.such", "1"), kerr.InvalidConfig, "unknown topic config name"},
		{automatic("a", 1, 1, "retention.ms", "soon"), kerr.InvalidConfig, "retention.ms"},
		{automatic("a", 1, 1, "cleanup.policy", "compress"), kerr.InvalidConfig, "delete"},
		{automatic("a", 1, 1, "min.compaction.lag.ms", "6", "max.compaction.lag.ms", "5"), kerr.InvalidConfig, "above"},
		{automatic("a", 1, 1, "retention.ms", "1", "retention.ms", "2"), kerr.InvalidConfig, "twice"},
		{null, kerr.InvalidConfig, "Null value"},
		{both, kerr.InvalidRequest, "replication factor was not set to -1"},
		{counted, kerr.InvalidRequest, "numPartitions was not set to -1"},
		{gap, kerr.InvalidReplicaAssignment, "consecutive"},
		{twice, kerr.InvalidReplicaAssignment, "multiple manual partition assignments"},
		{manual("a", []int32{}), kerr.InvalidReplicaAssignment, "empty replica list"},
		{manual("a", []int32{1, 9}), kerr.InvalidReplicaAssignment, "no such broker is registered"},
		{manual("a", []int32{1, 2, 1}), kerr.InvalidReplicaAssignment, "more than once"},
		{manual("a", []int32{1, 2}, []int32{1}), kerr.InvalidReplicaAssignment, "not consistent with previous partitions"},
		{manual("a", []int32{4}), kerr.InvalidReplicaAssignment, "fenced or in controlled shutdown"},
		{automatic("a", 1, 0), kerr.InvalidReplicationFactor, "larger than 0"},
		{automatic("a", 1, -2), kerr.InvalidReplicationFactor, "larger than 0"},
		{automatic("a", 0, 1), kerr.InvalidPartitions, "non-positive"},
		{automatic("a", -2, 1), kerr.InvalidPartitions, "non-positive"},
		{automatic("a", 1, 5), kerr.InvalidReplicationFactor, "only 4 broker(s) are registered"},
		{automatic("a", 10_001, 1), kerr.PolicyViolation, "Excessively large"},
		{automatic("a", 1<<31-1, 1), kerr.PolicyViolation, "Excessively large"},
		{manual("a", []int32{1, 2}, []int32{2, 1}), nil, ""},
		{automatic("a", 1, 4), nil, ""}, // the fenced one is assigned too, last
	} {
		h := newHarness(t, testConfig())
		h.start(1, 2, 3)
		h.register(registration(4, 1))
		h.create("there", []int32{1})
		h.create("the_re.too", []int32{1})
		got := h.createTopics(createRequest(c.topic))
		what := fmt.Sprintf("%+.80v", c.topic)
		if len(got) != 1 || got[0].Topic != c.topic.Topic {
			t.Errorf("%s: answers %+v", what, got)
			continue
		}
		want := int16(0)
		if c.want != nil {
			want = c.want.Code
		}
		if got[0].ErrorCode != want || !strings.Contains(message(got[0].ErrorMessage), c.message) {
			t.Errorf("%s: %s %q, want %s %q", what, name(got[0].ErrorCode), message(got[0].ErrorMessage), name(want), c.message)
		}
		if (len(h.log) > 0) != (want == 0) {
			t.Errorf("%s: %s and %d records", what, name(want), len(h.log))
		}
	}
}

func TestCreateTopicAnswersWhatItMade(t *testing.T) {
	cfg := testConfig()
	cfg.DefaultNumPartitions, cfg.DefaultReplicationFactor = 4, 2
	cfg.TopicDefaults = map[string]string{"min.insync.replicas": "2"}
	h := newHarness(t, cfg)
	h.start(1, 2, 3)
	got := h.createTopics(createRequest(automatic("a", -1, -1, "retention.bytes", "7", "retention.ms", "5")))[0] // KIP-464
	if got.ErrorCode != 0 || got.NumPartitions != 4 || got.ReplicationFactor != 2 {
		t.Fatalf("got %+v", got)
	}
	if want := "TOPIC CONFIG CONFIG" + strings.Repeat(" PARTITION", 4); kinds(h.log) != want {
		t.Errorf("got %s, want %s", kinds(h.log), want)
	}
	if first := h.log[1].(*metadata.ConfigRecord); first.Name != "retention.bytes" {
		t.Errorf("configs begin with %s", first.Name)
	}
	topic, ok := h.committed.Topic("a")
	if !ok || topic.ID != got.TopicID || topic.NumPartitions() != 4 {
		t.Fatalf("topic %+v, answered id %s", topic, ident.UUID(got.TopicID))
	}
	for i, p := range topic.Partitions() {
		if len(p.Replicas) != 2 || !slices.Equal(p.ISR, p.Replicas) || p.Leader != p.Replicas[0] || p.LeaderEpoch != 0 || p.PartitionEpoch != 0 || p.RecoveryState != metadata.Recovered {
			t.Errorf("partition %d: %+v", i, p)
		}
		for j, dir := range p.Directories {
			if dir != dirOf(p.Replicas[j]) {
				t.Errorf("partition %d: directory of %d is %s", i, p.Replicas[j], dir)
			}
		}
	}
	configs := map[string]string{}
	for _, c := range got.Configs {
		configs[c.Name] = fmt.Sprintf("%s/%d", *c.Value, c.Source)
	}
	for key, want := range map[string]string{"retention.ms": "5/1", "retention.bytes": "7/1", "min.insync.replicas": "2/4", "max.message.bytes": "1048588/5"} {
		if configs[key] != want {
			t.Errorf("%s is answered %s, want %s", key, configs[key], want)
		}
	}
}

// KAFKA-13083: whoever is fenced is no member of the first ISR, neither of a new topic nor of a new partition.
func TestFencedReplicasAreNotInTheFirstISR(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	h.register(registration(4, 1))
	if got := h.createTopics(createRequest(manual("a", []int32{4, 1}), automatic("b", 1, 3))); got[0].ErrorCode != 0 || got[1].ErrorCode != 0 {
		t.Fatalf("got %+v", got)
	}
	h.want("a", 0, "leader 1 le 0 pe 0 isr [1]")
	d := h.c.CreatePartitions(h.now, growRequest("a", 2, []int32{2, 4}))
	h.take(d)
	h.want("a", 1, "leader 2 le 0 pe 0 isr [2]")
	topic, _ := h.committed.Topic("b")
	for _, p := range topic.Partitions() {
		if len(p.Replicas) != 3 || len(p.ISR) != 2 || slices.Contains(p.ISR, 4) {
			t.Errorf("%+v", p)
		}
	}
}

func TestValidateOnlyChangesNothing(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1)
	r := createRequest(automatic("a", 1, 1), automatic("b", 1, 7))
	r.ValidateOnly = true
	got := h.createTopics(r)
	if got[0].ErrorCode != 0 || got[1].ErrorCode != kerr.InvalidReplicationFactor.Code || len(h.log) != 0 {
		t.Errorf("got %+v and %d records", got, len(h.log))
	}
	if _, ok := h.c.appended.image.Topic("a"); ok {
		t.Error("it was created all the same")
	}
}

func TestOneBadTopicDoesNotSpoilTheOthers(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1)
	got := h.createTopics(createRequest(
		automatic("good", 1, 1), automatic("bad", 1, 9), automatic("twice", 1, 1), automatic("twice", 1, 1), automatic("x.y", 1, 1), automatic("x_y", 1, 1)))
	var codes []string
	for _, r := range got {
		codes = append(codes, r.Topic+"="+name(r.ErrorCode))
	}
	want := []string{"good=NONE", "bad=INVALID_REPLICATION_FACTOR", "twice=INVALID_REQUEST", "x.y=NONE", "x_y=INVALID_TOPIC_EXCEPTION"}
	if !slices.Equal(codes, want) {
		t.Errorf("got %v, want %v", codes, want)
	}
	if h.committed.NumTopics() != 2 {
		t.Errorf("%d topics", h.committed.NumTopics())
	}
}

// KAFKA-14204.
func TestCreationThatNoBatchHoldsIsRefusedWhole(t *testing.T) {
	for what, edit := range map[string]func(*Config){
		"records": func(c *Config) { c.MaxRecords = 100 },
		"bytes":   func(c *Config) { c.MaxBytes = minBytes },
	} {
		t.Run(what, func(t *testing.T) {
			cfg := testConfig()
			edit(&cfg)
			h := newHarness(t, cfg)
			h.start(1)
			var topics []kmsg.CreateTopicsRequestTopic
			for i := range 20 {
				topics = append(topics, automatic(fmt.Sprintf("t%d", i), 60, 1))
			}
			got := h.createTopics(createRequest(topics...))
			if len(got) != 20 || len(h.log) != 0 {
				t.Fatalf("%d answers, %d records", len(got), len(h.log))
			}
			for _, r := range got {
				if r.ErrorCode != kerr.PolicyViolation.Code || !strings.Contains(message(r.ErrorMessage), "excessively large batch") {
					t.Errorf("%s: %s %s", r.Topic, name(r.ErrorCode), message(r.ErrorMessage))
				}
			}
			if got := h.createTopics(createRequest(topics[0])); got[0].ErrorCode != 0 || !h.c.Active() {
				t.Errorf("one of them alone: %s", name(got[0].ErrorCode))
			}
		})
	}
}

func growRequest(topic string, count int32, replicas ...[]int32) *kmsg.CreatePartitionsRequest {
	r := kmsg.NewPtrCreatePartitionsRequest()
	r.Version = 3
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, count
	for _, ids := range replicas {
		t.Assignment = append(t.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: ids})
	}
	r.Topics = append(r.Topics, t)
	return r
}

func TestCreatePartitions(t *testing.T) {
	twice := growRequest("a", 3)
	twice.Topics = append(twice.Topics, twice.Topics[0])
	validate := growRequest("a", 3)
	validate.ValidateOnly = true
	for _, c := range []struct {
		what    string
		request *kmsg.CreatePartitionsRequest
		want    *kerr.Error
		message string
		now     int // partitions afterwards
	}{
		{"one more, placed", growRequest("a", 3), nil, "", 3},
		{"two more, assigned", growRequest("a", 4, []int32{2, 1}, []int32{1, 3}), nil, "", 4},
		{"validate only", validate, nil, "", 2},
		{"unknown topic", growRequest("b", 3), kerr.UnknownTopicOrPartition, "", 2},
		{"as many as there are", growRequest("a", 2), kerr.InvalidPartitions, "already has 2", 2},
		{"fewer", growRequest("a", 1), kerr.InvalidPartitions, "would not be an increase", 2},
		{"negative", growRequest("a", -1), kerr.InvalidPartitions, "would not be an increase", 2},
		{"too few assignments", growRequest("a", 4, []int32{1, 2}), kerr.InvalidReplicaAssignment, "only 1 assignment(s)", 2},
		{"too few replicas", growRequest("a", 3, []int32{1}), kerr.InvalidReplicaAssignment, "not consistent", 2},
		{"unknown broker", growRequest("a", 3, []int32{1, 9}), kerr.InvalidReplicaAssignment, "no such broker", 2},
		{"nobody alive", growRequest("a", 3, []int32{4, 5}), kerr.InvalidReplicaAssignment, "fenced", 2},
		{"too many", growRequest("a", 1<<31-1), kerr.PolicyViolation, "Excessively large", 2},
		{"topic twice", twice, kerr.InvalidRequest, "Duplicate", 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := newHarness(t, testConfig())
			h.start(1, 2, 3)
			h.register(registration(4, 1))
			h.register(registration(5, 1))
			h.create("a", []int32{1, 2}, []int32{2, 3})
			d := h.c.CreatePartitions(h.now, c.request)
			h.take(d)
			got := d.Response.(*kmsg.CreatePartitionsResponse).Topics
			want := int16(0)
			if c.want != nil {
				want = c.want.Code
			}
			if len(got) != 1 || got[0].ErrorCode != want || !strings.Contains(message(got[0].ErrorMessage), c.message) {
				t.Errorf("got %+v", got)
			}
			topic, _ := h.committed.Topic("a")
			if topic.NumPartitions() != c.now {
				t.Errorf("%d partitions, want %d", topic.NumPartitions(), c.now)
			}
			for i, p := range topic.Partitions() {
				if len(p.Replicas) != 2 || p.Leader != p.Replicas[0] || len(p.ISR) != 2 {
					t.Errorf("partition %d: %+v", i, p)
				}
			}
		})
	}
}

func TestDeleteTopics(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1)
	ids := map[string]ident.UUID{}
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		ids[n] = h.createTopics(createRequest(automatic(n, 2, 1, "retention.ms", "5")))[0].TopicID
	}
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.Version = 6
	add := func(name string, id ident.UUID) {
		topic := kmsg.NewDeleteTopicsRequestTopic()
		if name != "" {
			topic.Topic = &name
		}
		topic.TopicID = id
		r.Topics = append(r.Topics, topic)
	}
	add("a", ident.ZeroUUID)
	add("", ids["b"])
	add("no", ident.ZeroUUID)
	add("", ident.UUID{9})
	add("c", ids["c"])
	add("", ident.ZeroUUID)
	add("d", ident.ZeroUUID)
	add("", ids["d"])
	d := h.c.DeleteTopics(h.now, r)
	h.take(d)
	var got []string
	for _, a := range d.Response.(*kmsg.DeleteTopicsResponse).Topics {
		got = append(got, message(a.Topic)+"="+name(a.ErrorCode))
	}
	want := []string{"a=NONE", "b=NONE", "no=UNKNOWN_TOPIC_OR_PARTITION", "=UNKNOWN_TOPIC_ID", "c=INVALID_REQUEST", "=INVALID_REQUEST", "d=INVALID_REQUEST", "=INVALID_REQUEST"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if h.committed.NumTopics() != 3 || h.committed.Config(metadata.ResourceTopic, "a").Len() != 0 || len(h.c.appended.index.of(1)) != 6 {
		t.Errorf("%d topics, %d configs, %d partitions in the index", h.committed.NumTopics(), h.committed.Config(metadata.ResourceTopic, "a").Len(), len(h.c.appended.index.of(1)))
	}
	old := kmsg.NewPtrDeleteTopicsRequest()
	old.Version, old.TopicNames = 3, []string{"e", "a"}
	d = h.c.DeleteTopics(h.now, old)
	h.take(d)
	answers := d.Response.(*kmsg.DeleteTopicsResponse).Topics
	if len(answers) != 2 || answers[0].ErrorCode != 0 || *answers[0].Topic != "e" || answers[1].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("by version 3: %+v", answers)
	}
	// The same name again is another topic.
	if id := h.create("a", []int32{1}); id == ids["a"] {
		t.Error("a new topic has the id of a deleted one")
	}
}

func TestTopicIDsAreRandomUUIDs(t *testing.T) {
	h := newHarness(t, testConfig())
	seen := map[ident.UUID]bool{}
	for range 1000 {
		id := h.c.newTopicID(h.committed)
		if seen[id] || id.IsReserved() || id[6]>>4 != 4 || id[8]>>6 != 2 || id.String()[0] == '-' {
			t.Fatalf("id %s (%x)", id, id[:])
		}
		seen[id] = true
	}
}

func TestProducerIDBlocksNeverOverlap(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	r := kmsg.NewPtrAllocateProducerIDsRequest()
	ask := func(id ident.NodeID, epoch int64) *kmsg.AllocateProducerIDsResponse {
		r.BrokerID, r.BrokerEpoch = int32(id), epoch
		d := h.c.AllocateProducerIDs(h.now, r)
		h.take(d)
		return d.Response.(*kmsg.AllocateProducerIDsResponse)
	}
	for i := range int64(3) {
		for j, id := range []ident.NodeID{1, 2} {
			got := ask(id, h.broker(id).Epoch)
			if want := (2*i + int64(j)) * 1000; got.ErrorCode != 0 || got.ProducerIDStart != want || got.ProducerIDLen != 1000 {
				t.Errorf("got %+v, want a block from %d", got, want)
			}
		}
	}
	for what, got := range map[string]*kmsg.AllocateProducerIDsResponse{"stale epoch": ask(1, 0), "unknown broker": ask(9, 0)} {
		if got.ErrorCode != kerr.StaleBrokerEpoch.Code {
			t.Errorf("%s: %s", what, name(got.ErrorCode))
		}
	}
	tx := h.c.begin()
	tx.add(&metadata.ProducerIDsRecord{BrokerID: 1, NextProducerID: 1<<63 - 1000})
	h.take(tx.commit(nil))
	if got := ask(1, h.broker(1).Epoch); got.ErrorCode != kerr.UnknownServerError.Code {
		t.Errorf("they have run out: %+v", got)
	}
}
