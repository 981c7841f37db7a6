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

// reassignRequest asks for the replicas of partition 0; nil cancels.
func reassignRequest(topic string, index int32, replicas []int32) *kmsg.AlterPartitionAssignmentsRequest {
	r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	r.Version = 1
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = topic
	p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	p.Partition, p.Replicas = index, replicas
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func (h *harness) reassign(r *kmsg.AlterPartitionAssignmentsRequest) (code, message string) {
	h.t.Helper()
	d := h.c.AlterPartitionReassignments(h.now, r)
	h.take(d)
	answer := d.Response.(*kmsg.AlterPartitionAssignmentsResponse)
	if answer.ErrorCode != 0 {
		return name(answer.ErrorCode), *answer.ErrorMessage
	}
	p := answer.Topics[0].Partitions[0]
	if p.ErrorMessage != nil {
		message = *p.ErrorMessage
	}
	return name(p.ErrorCode), message
}

// start5 has five brokers and topic a on 1 and 2, led by 1.
func start5(t *testing.T) (*harness, ident.UUID) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3, 4, 5)
	return h, h.create("a", []int32{1, 2})
}

func TestReassignmentErrors(t *testing.T) {
	fixed := reassignRequest("a", 0, []int32{1, 2, 3})
	fixed.AllowReplicationFactorChange = false
	for _, c := range []struct {
		request       *kmsg.AlterPartitionAssignmentsRequest
		want, message string
	}{
		{reassignRequest("b", 0, []int32{1}), "UNKNOWN_TOPIC_OR_PARTITION", "topic named b"},
		{reassignRequest("a", 9, []int32{1}), "UNKNOWN_TOPIC_OR_PARTITION", "a:9"},
		{reassignRequest("a", 0, nil), "NO_REASSIGNMENT_IN_PROGRESS", ""},
		{reassignRequest("a", 0, []int32{}), "INVALID_REPLICA_ASSIGNMENT", "empty"},
		{reassignRequest("a", 0, []int32{1, 9}), "INVALID_REPLICA_ASSIGNMENT", "no such broker"},
		{reassignRequest("a", 0, []int32{3, 3}), "INVALID_REPLICA_ASSIGNMENT", "more than once"},
		{fixed, "INVALID_REPLICATION_FACTOR", "from 2 to 3"},
	} {
		h, _ := start5(t)
		code, message := h.reassign(c.request)
		if code != c.want || !strings.Contains(message, c.message) || len(h.log) != 0 {
			t.Errorf("got %s %q and %d records, want %s %q", code, message, len(h.log), c.want, c.message)
		}
	}
}

func TestSwapOfAllReplicas(t *testing.T) {
	h, id := start5(t)
	if code, _ := h.reassign(reassignRequest("a", 0, []int32{3, 4})); code != "NONE" {
		t.Fatal(code)
	}
	h.want("a", 0, "leader 1 le 0 pe 1 isr [1 2] replicas [3 4 1 2] adding [3 4] removing [1 2]")
	if dir, _ := h.partition("a", 0).Directory(3); dir != dirOf(3) {
		t.Errorf("3 will keep it in %s", dir)
	}
	h.alter(h.proposal(1, id, 0, 1, 2, 3))
	h.want("a", 0, "leader 1 le 0 pe 2 isr [1 2 3] replicas [3 4 1 2] adding [3 4] removing [1 2]")
	if code := h.alter(h.proposal(1, id, 0, 1, 2, 3, 4)).ErrorCode; code != kerr.NewLeaderElected.Code {
		t.Error(name(code))
	}
	h.want("a", 0, "leader 3 le 1 pe 3 isr [3 4]")
}

func TestFewerReplicasTakeOneRecord(t *testing.T) {
	h, _ := start5(t)
	h.reassign(reassignRequest("a", 0, []int32{1}))
	h.want("a", 0, "leader 1 le 1 pe 1 isr [1]") // the epoch rises though the leader stays: 2 may still propose itself
	if p := h.partition("a", 0); !slices.Equal(p.Replicas, []ident.NodeID{1}) {
		t.Errorf("replicas %v", p.Replicas)
	}
}

func TestMoreReplicasKeepTheLeaderEpoch(t *testing.T) {
	h, id := start5(t)
	h.reassign(reassignRequest("a", 0, []int32{1, 2, 3}))
	h.want("a", 0, "leader 1 le 0 pe 1 isr [1 2] replicas [1 2 3] adding [3] removing []")
	h.alter(h.proposal(1, id, 0, 1, 2, 3))
	h.want("a", 0, "leader 1 le 0 pe 2 isr [1 2 3]")
}

func TestAnotherOrderMovesNobody(t *testing.T) {
	h, _ := start5(t)
	h.reassign(reassignRequest("a", 0, []int32{2, 1}))
	h.want("a", 0, "leader 1 le 0 pe 1 isr [1 2]")
	p := h.partition("a", 0)
	if !slices.Equal(p.Replicas, []ident.NodeID{2, 1}) || p.Directories[0] != dirOf(2) || p.Directories[1] != dirOf(1) {
		t.Errorf("got %v in %v", p.Replicas, p.Directories)
	}
	h.reassign(reassignRequest("a", 0, []int32{2, 1}))
	if len(h.log) != 0 {
		t.Errorf("what already is takes %d records", len(h.log))
	}
}

func TestCancelledReassignmentDropsWhatItAdded(t *testing.T) {
	h, id := start5(t)
	h.reassign(reassignRequest("a", 0, []int32{3, 2}))
	h.alter(h.proposal(1, id, 0, 1, 3))
	h.want("a", 0, "leader 1 le 0 pe 2 isr [1 3] replicas [3 2 1] adding [3] removing [1]")
	if code, _ := h.reassign(reassignRequest("a", 0, nil)); code != "NONE" {
		t.Fatal(code)
	}
	h.want("a", 0, "leader 1 le 1 pe 3 isr [1]")
	if p := h.partition("a", 0); !slices.Equal(p.Replicas, []ident.NodeID{2, 1}) {
		t.Errorf("replicas %v", p.Replicas)
	}
}

func TestCancelThatWouldLoseRecordsIsRefusedUnlessTheTopicAllowsIt(t *testing.T) {
	h, id := start5(t)
	h.reassign(reassignRequest("a", 0, []int32{3, 2}))
	h.alter(h.proposal(1, id, 0, 1, 3))
	h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
	h.want("a", 0, "leader 3 le 1 pe 3 isr [3] replicas [3 2 1] adding [3] removing [1]")
	code, message := h.reassign(reassignRequest("a", 0, nil))
	if code != "INVALID_REPLICA_ASSIGNMENT" || !strings.Contains(message, "unclean") || len(h.log) != 0 {
		t.Errorf("got %s %q", code, message)
	}
	h.alterConfigs(configRequest("a", configOp(opSet, "unclean.leader.election.enable", "true")))
	if code, _ := h.reassign(reassignRequest("a", 0, nil)); code != "NONE" {
		t.Error(code)
	}
	h.want("a", 0, "leader 2 le 2 pe 4 isr [2] recovering")
}

func TestNewTargetDropsWhatOnlyTheOldOneAdded(t *testing.T) {
	h, id := start5(t)
	h.reassign(reassignRequest("a", 0, []int32{3, 4}))
	h.alter(h.proposal(1, id, 0, 1, 2, 3))
	h.reassign(reassignRequest("a", 0, []int32{4, 5}))
	h.want("a", 0, "leader 1 le 1 pe 3 isr [1 2] replicas [4 5 1 2] adding [4 5] removing [1 2]")
	if code, _ := h.reassign(reassignRequest("a", 0, nil)); code != "NONE" {
		t.Error(code)
	}
	h.want("a", 0, "leader 1 le 2 pe 4 isr [1 2]")
}

func TestReassignmentsAreListed(t *testing.T) {
	h, _ := start5(t)
	h.create("b", []int32{1, 2}, []int32{1, 2})
	h.reassign(reassignRequest("a", 0, []int32{3, 2}))
	h.reassign(reassignRequest("b", 1, []int32{1, 2, 4}))
	list := func(topics ...kmsg.ListPartitionReassignmentsRequestTopic) string {
		r := kmsg.NewPtrListPartitionReassignmentsRequest()
		r.Topics = topics
		d := h.c.ListPartitionReassignments(h.now, r)
		var out []string
		for _, t := range d.Response.(*kmsg.ListPartitionReassignmentsResponse).Topics {
			for _, p := range t.Partitions {
				out = append(out, fmt.Sprintf("%s-%d %v +%v -%v", t.Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas))
			}
		}
		return strings.Join(out, "; ")
	}
	const a, b = "a-0 [3 2 1] +[3] -[1]", "b-1 [1 2 4] +[4] -[]"
	if got := list(); got != a+"; "+b {
		t.Errorf("all: %s", got)
	}
	topic := kmsg.NewListPartitionReassignmentsRequestTopic()
	topic.Topic, topic.Partitions = "b", []int32{0, 1, 7}
	unknown := topic
	unknown.Topic = "no"
	if got := list(topic, unknown); got != b {
		t.Errorf("some: %s", got)
	}
}

func TestTooManyReassignmentsAreRefusedWhole(t *testing.T) {
	cfg := testConfig()
	cfg.MaxRecords = 40
	h := newHarness(t, cfg)
	h.start(1, 2)
	r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	r.Version = 1
	for i := range 2 {
		topic := fmt.Sprintf("t%d", i)
		h.create(topic, slices.Repeat([][]int32{{1}}, 30)...)
		for j := range int32(30) {
			one := reassignRequest(topic, j, []int32{2})
			r.Topics = append(r.Topics, one.Topics...)
		}
	}
	if code, _ := h.reassign(r); code != "POLICY_VIOLATION" || len(h.log) != 0 {
		t.Errorf("got %s and %d records", code, len(h.log))
	}
	if r := h.partition("t0", 0); r.Reassigning() || r.RecoveryState != metadata.Recovered {
		t.Errorf("got %+v", r)
	}
}

func TestCancelRestoresAllOriginalReplicasThoughSomeAreDead(t *testing.T) { // KAFKA-14424
	for _, dead := range [][]ident.NodeID{nil, {1}, {1, 2}} {
		h, id := start5(t)
		h.reassign(reassignRequest("a", 0, []int32{3, 4, 5}))
		h.alter(h.proposal(1, id, 0, 1, 2, 3))
		for _, b := range dead {
			h.heartbeat(b, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
		}
		before := h.partition("a", 0)
		code, _ := h.reassign(reassignRequest("a", 0, nil))
		p := h.partition("a", 0)
		if len(dead) == 2 { // who is in sync is only what was being added
			if code != "INVALID_REPLICA_ASSIGNMENT" || p.PartitionEpoch != before.PartitionEpoch {
				t.Errorf("dead %v: %s, %s", dead, code, show(p))
			}
			continue
		}
		if code != "NONE" || !slices.Equal(p.Replicas, []ident.NodeID{1, 2}) || p.Reassigning() || p.Leader == ident.NoNode || slices.Contains(p.ISR, 3) || len(p.ISR) != 2-len(dead) {
			t.Errorf("dead %v: %s, replicas %v, %s", dead, code, p.Replicas, show(p))
		}
	}
}

// KAFKA-9089: what a reassignment has come to stands in the log alone. Whenever the controller is lost, with the decision
// that it has just made or after its commit, the next one goes on from there.
func TestReassignmentGoesOnUnderAnotherController(t *testing.T) {
	const steps = 5
	play := func(lost int, decided bool) string {
		h, id := start5(t)
		failover := func() {
			epoch := h.c.epoch + 1
			h.c.Resign()
			h.next++
			h.lead(epoch)
		}
		for i := range steps {
			step := func() Decision {
				switch i {
				case 0:
					return h.c.AlterPartitionReassignments(h.now, reassignRequest("a", 0, []int32{3, 4}))
				case 1:
					return h.c.AlterPartition(h.now, h.proposal(1, id, 0, 1, 2, 3))
				case 2: // another target while the first is under way
					return h.c.AlterPartitionReassignments(h.now, reassignRequest("a", 0, []int32{3, 5}))
				case 3:
					return h.c.AlterPartition(h.now, h.proposal(1, id, 0, 1, 2, 3, 5))
				}
				return h.c.AlterPartition(h.now, h.proposal(3, id, 0, 3)) // 5 falls behind
			}
			if i == lost && decided { // and never appended
				step()
				failover()
			}
			h.take(step())
			if i == lost && !decided {
				failover()
			}
		}
		p := h.partition("a", 0)
		return fmt.Sprintf("%s replicas %v directories %v", show(p), p.Replicas, p.Directories)
	}
	want := play(-1, false)
	if !strings.Contains(want, "leader 3 le 2 pe 5 isr [3] replicas [3 5]") {
		t.Fatal(want)
	}
	for i := range steps {
		for _, decided := range []bool{false, true} {
			if got := play(i, decided); got != want {
				t.Errorf("controller lost at step %d (decided and not committed: %t):\n  %s, want\n  %s", i, decided, got, want)
			}
		}
	}
}
