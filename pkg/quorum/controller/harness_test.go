package controller

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

const testClusterID = "4L6g3nShT-eMCtK--X86sw"

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A harness plays the loop: it appends what the controller decides, commits it at once, and replays it.
type harness struct {
	t         fataler
	c         *Controller
	now       ident.Instant
	committed *metadata.Image
	next      ident.Offset
	log       []metadata.Record // of the last decisions, for take's caller
}

func testConfig() Config {
	return Config{ClusterID: testClusterID, Random: rand.NewPCG(1, 2), BalanceInterval: -1}
}

// newHarness returns an active controller whose log is empty but for the leader change record at offset 0.
func newHarness(t testing.TB, cfg Config) *harness {
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, c: c, now: ident.Instant(time.Hour), committed: metadata.Empty(), next: 1}
	h.lead(1)
	return h
}

func (h *harness) lead(epoch ident.Epoch) {
	decisions, err := h.c.BecomeLeader(h.now, epoch, h.committed, h.next, false)
	if err != nil {
		h.t.Fatalf("become leader: %v", err)
	}
	for _, d := range decisions {
		h.take(d)
	}
	h.tick()
}

// wantRoom checks that the batch is no larger than what the controller has reckoned with: one that the quorum's log
// refuses would cost the leadership, and the next leader's as well (KAFKA-14204).
func (h *harness) wantRoom(d Decision) {
	h.t.Helper()
	reckoned := 0
	for _, r := range d.Records {
		reckoned += len(metadata.Encode(nil, r)) + recordOverhead
	}
	if raw := metadata.EncodeBatch(d.Offset, 1, 1<<40, d.Records...); len(d.Records) > 0 && len(raw) > batchHeaderBytes+reckoned {
		h.t.Fatalf("a batch of %d bytes was taken for %d", len(raw), reckoned)
	}
}

// batchHeaderBytes is a record batch's header (magic 2).
const batchHeaderBytes = 61

// take appends and commits a decision and checks that the controller's image is what replay of the log gives.
func (h *harness) take(d Decision) []metadata.Record {
	h.t.Helper()
	if len(d.Records) > 0 && d.Offset != h.next {
		h.t.Fatalf("decided for offset %d, the log ends at %d", d.Offset, h.next)
	}
	h.wantRoom(d)
	delta := metadata.NewDelta(h.committed)
	for _, r := range d.Records {
		b := metadata.Encode(nil, r)
		decoded, err := metadata.Decode(b)
		if err != nil {
			h.t.Fatalf("record %d of the decision: %v", h.next, err)
		}
		switch r.(type) {
		case *metadata.BeginTransactionRecord, *metadata.EndTransactionRecord, *metadata.AbortTransactionRecord:
		default:
			if err := delta.Replay(decoded); err != nil {
				h.t.Fatalf("record %d does not apply: %v", h.next, err)
			}
		}
		h.next++
	}
	if len(d.Records) > 0 {
		h.committed = delta.Image(h.next-1, h.c.epoch)
	}
	if h.c.active && !h.committed.Equal(d.Image) {
		h.t.Fatalf("the appended image at offset %d is not what replay gives", h.next)
	}
	h.log = d.Records
	return d.Records
}

func (h *harness) tick() []metadata.Record {
	h.t.Helper()
	var all []metadata.Record
	for _, d := range h.c.Tick(h.now) {
		all = append(all, h.take(d)...)
	}
	return all
}

// run lets time pass while the given brokers send heartbeats, and returns what was written meanwhile.
func (h *harness) run(d time.Duration, alive ...ident.NodeID) []metadata.Record {
	h.t.Helper()
	var all []metadata.Record
	for end := h.now.Add(d); h.now < end; {
		h.now = min(end, h.now.Add(250*time.Millisecond))
		for _, id := range alive {
			h.heartbeat(id, nil)
			all = append(all, h.log...)
		}
		all = append(all, h.tick()...)
	}
	return all
}

func registration(id ident.NodeID, incarnation byte) *kmsg.BrokerRegistrationRequest {
	r := kmsg.NewPtrBrokerRegistrationRequest()
	r.Version, r.BrokerID, r.ClusterID, r.PreviousBrokerEpoch = 4, int32(id), testClusterID, -1
	r.IncarnationID = ident.UUID{0: 1, 14: byte(id), 15: incarnation}
	r.LogDirs = [][16]byte{dirOf(id)}
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "EXTERNAL", fmt.Sprintf("b%d", id), 9092
	r.Listeners = append(r.Listeners, l)
	f := kmsg.NewBrokerRegistrationRequestFeature()
	f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = metadata.FeatureMetadataVersion, 7, 27
	r.Features = append(r.Features, f)
	return r
}

func dirOf(id ident.NodeID) ident.UUID { return ident.UUID{0: 2, 15: byte(id)} }

func (h *harness) register(r *kmsg.BrokerRegistrationRequest) *kmsg.BrokerRegistrationResponse {
	h.t.Helper()
	d := h.c.BrokerRegistration(h.now, r)
	h.take(d)
	return d.Response.(*kmsg.BrokerRegistrationResponse)
}

func (h *harness) broker(id ident.NodeID) *metadata.Broker {
	h.t.Helper()
	b, ok := h.committed.Broker(id)
	if !ok {
		h.t.Fatalf("broker %d is not registered", id)
	}
	return b
}

func (h *harness) heartbeat(id ident.NodeID, edit func(*kmsg.BrokerHeartbeatRequest)) *kmsg.BrokerHeartbeatResponse {
	h.t.Helper()
	r := kmsg.NewPtrBrokerHeartbeatRequest()
	r.Version, r.BrokerID, r.CurrentMetadataOffset = 1, int32(id), int64(h.next-1)
	if b, ok := h.committed.Broker(id); ok {
		r.BrokerEpoch = b.Epoch
	}
	if edit != nil {
		edit(r)
	}
	d := h.c.BrokerHeartbeat(h.now, r)
	h.take(d)
	return d.Response.(*kmsg.BrokerHeartbeatResponse)
}

// start registers brokers and unfences them.
func (h *harness) start(ids ...ident.NodeID) {
	h.t.Helper()
	for _, id := range ids {
		if code := h.register(registration(id, 1)).ErrorCode; code != 0 {
			h.t.Fatalf("registration of %d: %s", id, name(code))
		}
		if answer := h.heartbeat(id, nil); answer.IsFenced || answer.ErrorCode != 0 {
			h.t.Fatalf("broker %d is not unfenced: %+v", id, answer)
		}
	}
}

// create makes a topic with the given replicas per partition.
func (h *harness) create(topic string, replicas ...[]int32) ident.UUID {
	h.t.Helper()
	d := h.c.CreateTopics(h.now, createRequest(manual(topic, replicas...)))
	h.take(d)
	answer := d.Response.(*kmsg.CreateTopicsResponse).Topics[0]
	if answer.ErrorCode != 0 {
		h.t.Fatalf("create %s: %s %s", topic, name(answer.ErrorCode), *answer.ErrorMessage)
	}
	return answer.TopicID
}

func createRequest(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version, r.Topics = 7, topics
	return r
}

func manual(topic string, replicas ...[]int32) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, -1, -1
	for i, ids := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), ids
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	return t
}

func automatic(topic string, partitions int32, factor int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, partitions, factor
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

func (h *harness) partition(topic string, index int32) *metadata.Partition {
	h.t.Helper()
	t, ok := h.committed.Topic(topic)
	if !ok {
		h.t.Fatalf("no topic %s", topic)
	}
	p, ok := t.Partition(index)
	if !ok {
		h.t.Fatalf("no partition %s-%d", topic, index)
	}
	return p
}

// want compares a partition with what show prints.
func (h *harness) want(topic string, index int32, want string) {
	h.t.Helper()
	if got := show(h.partition(topic, index)); got != want {
		h.t.Fatalf("%s-%d is\n  %s, want\n  %s", topic, index, got, want)
	}
}

// show prints a partition: leader, leader epoch, partition epoch, ISR and what is unusual.
func show(p *metadata.Partition) string {
	var b strings.Builder
	fmt.Fprintf(&b, "leader %d le %d pe %d isr %v", p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.ISR)
	if p.RecoveryState != metadata.Recovered {
		b.WriteString(" recovering")
	}
	if p.Reassigning() {
		fmt.Fprintf(&b, " replicas %v adding %v removing %v", p.Replicas, p.Adding, p.Removing)
	}
	return b.String()
}

func name(code int16) string {
	if code == 0 {
		return "NONE"
	}
	return kerr.TypedErrorForCode(code).Message
}

// kinds prints the types of records, NoOps aside.
func kinds(records []metadata.Record) string {
	var out []string
	for _, r := range records {
		if _, ok := r.(*metadata.NoOpRecord); ok {
			continue
		}
		n, _ := metadata.TypeName(r.RecordType())
		out = append(out, strings.TrimSuffix(n, "_RECORD"))
	}
	return strings.Join(out, " ")
}
