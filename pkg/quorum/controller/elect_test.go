package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

func electRequest(kind int8, topic string, partitions ...int32) *kmsg.ElectLeadersRequest {
	r := kmsg.NewPtrElectLeadersRequest()
	r.Version, r.ElectionType = 2, kind
	t := kmsg.NewElectLeadersRequestTopic()
	t.Topic, t.Partitions = topic, partitions
	r.Topics = append(r.Topics, t)
	return r
}

func (h *harness) elect(r *kmsg.ElectLeadersRequest) []string {
	h.t.Helper()
	d := h.c.ElectLeaders(h.now, r)
	h.take(d)
	answer := d.Response.(*kmsg.ElectLeadersResponse)
	if answer.ErrorCode != 0 {
		return []string{name(answer.ErrorCode)}
	}
	var out []string
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s-%d=%s", t.Topic, p.Partition, name(p.ErrorCode)))
		}
	}
	return out
}

// KAFKA-13162: every kind of election on every state of a partition whose preferred replica is 1.
func TestElectLeaders(t *testing.T) {
	states := map[string]func(h *harness, id ident.UUID){
		"preferred leads": func(*harness, ident.UUID) {},
		"preferred in sync": func(h *harness, id ident.UUID) {
			h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
			h.heartbeat(1, nil)
			h.alter(h.proposal(2, id, 0, 1, 2))
		},
		"preferred out of sync": func(h *harness, id ident.UUID) {
			h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
			h.heartbeat(1, nil)
		},
		"in sync is dead": func(h *harness, id ident.UUID) {
			h.alter(h.proposal(1, id, 0, 1))
			h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
		},
		"all dead": func(h *harness, id ident.UUID) {
			h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
			h.heartbeat(2, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
		},
	}
	for _, c := range []struct {
		state string
		kind  int8
		want  string
		after string
	}{
		{"preferred leads", preferredElection, "ELECTION_NOT_NEEDED", "leader 1 le 0 pe 0 isr [1 2]"},
		{"preferred leads", uncleanElection, "ELECTION_NOT_NEEDED", "leader 1 le 0 pe 0 isr [1 2]"},
		{"preferred in sync", preferredElection, "NONE", "leader 1 le 2 pe 3 isr [1 2]"},
		{"preferred in sync", uncleanElection, "ELECTION_NOT_NEEDED", "leader 2 le 1 pe 2 isr [1 2]"},
		{"preferred out of sync", preferredElection, "PREFERRED_LEADER_NOT_AVAILABLE", "leader 2 le 1 pe 1 isr [2]"},
		{"preferred out of sync", uncleanElection, "ELECTION_NOT_NEEDED", "leader 2 le 1 pe 1 isr [2]"},
		{"in sync is dead", preferredElection, "PREFERRED_LEADER_NOT_AVAILABLE", "leader -1 le 1 pe 2 isr [1]"},
		{"in sync is dead", uncleanElection, "NONE", "leader 2 le 2 pe 3 isr [2] recovering"},
		{"all dead", preferredElection, "PREFERRED_LEADER_NOT_AVAILABLE", "leader -1 le 2 pe 2 isr [2]"},
		{"all dead", uncleanElection, "ELIGIBLE_LEADERS_NOT_AVAILABLE", "leader -1 le 2 pe 2 isr [2]"},
	} {
		t.Run(fmt.Sprintf("%s,%d", c.state, c.kind), func(t *testing.T) {
			h := newHarness(t, testConfig())
			h.start(1, 2)
			states[c.state](h, h.create("a", []int32{1, 2}))
			if got := h.elect(electRequest(c.kind, "a", 0)); !slices.Equal(got, []string{"a-0=" + c.want}) {
				t.Errorf("got %v, want %s", got, c.want)
			}
			h.want("a", 0, c.after)
		})
	}
}

func TestElectLeadersOfUnknownThingsAndOfAll(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	id := h.create("a", []int32{1, 2}, []int32{2, 1}, []int32{1, 2})
	h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
	h.heartbeat(1, nil)
	h.alter(h.proposal(2, id, 0, 1, 2))
	r := electRequest(preferredElection, "a", 7)
	r.Topics = append(r.Topics, electRequest(preferredElection, "b", 0).Topics[0])
	if got := h.elect(r); !slices.Equal(got, []string{"a-7=UNKNOWN_TOPIC_OR_PARTITION", "b-0=UNKNOWN_TOPIC_OR_PARTITION"}) {
		t.Errorf("got %v", got)
	}
	if got := h.elect(electRequest(3, "a", 0)); !slices.Equal(got, []string{"INVALID_REQUEST"}) {
		t.Errorf("unknown election type: %v", got)
	}
	all := electRequest(preferredElection, "a")
	all.Topics = nil
	if got := h.elect(all); !slices.Equal(got, []string{"a-0=NONE", "a-2=PREFERRED_LEADER_NOT_AVAILABLE"}) {
		t.Errorf("all: %v", got)
	}
	old := electRequest(uncleanElection, "a", 0) // version 0 has no type: it is preferred
	old.Version = 0
	if got := h.elect(old); !slices.Equal(got, []string{"a-0=ELECTION_NOT_NEEDED"}) {
		t.Errorf("version 0: %v", got)
	}
}

func TestUncleanElectionOfAReplicaOnANewDiskNotesTheDirectory(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1)
	h.create("a", []int32{1})
	h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
	r := registration(1, 2)
	r.LogDirs[0] = ident.UUID{0: 7}
	h.register(r)
	h.heartbeat(1, nil)
	h.want("a", 0, "leader -1 le 1 pe 1 isr [1]")
	if got := h.elect(electRequest(uncleanElection, "a", 0)); !slices.Equal(got, []string{"a-0=NONE"}) {
		t.Error(got)
	}
	h.want("a", 0, "leader 1 le 2 pe 2 isr [1] recovering")
	if dir, _ := h.partition("a", 0).Directory(1); dir != r.LogDirs[0] {
		t.Errorf("it is in %s", dir)
	}
}

// KAFKA-9866: what can't lead is not tried.
func TestLeadershipGoesBackToPreferredReplicasThatAreInSync(t *testing.T) {
	cfg := testConfig()
	cfg.BalanceInterval = time.Minute
	h := newHarness(t, cfg)
	h.start(1, 2)
	id := h.create("a", []int32{1, 2}, []int32{1, 2}, []int32{2, 1})
	h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
	h.heartbeat(1, nil)
	h.alter(h.proposal(2, id, 0, 2, 1))
	if records := h.run(59*time.Second, 1, 2); kinds(records) != "" {
		t.Errorf("before its time: %s", kinds(records))
	}
	if records := h.run(2*time.Second, 1, 2); kinds(records) != "PARTITION_CHANGE" {
		t.Errorf("got %s", kinds(records))
	}
	h.want("a", 0, "leader 1 le 2 pe 3 isr [2 1]")
	h.want("a", 1, "leader 2 le 1 pe 1 isr [2]")
	if records := h.run(time.Hour, 1, 2); kinds(records) != "" {
		t.Errorf("futile elections: %s", kinds(records))
	}
}

func TestBalancingIsPaced(t *testing.T) {
	cfg := testConfig()
	cfg.BalanceInterval, cfg.MaxRecords = time.Minute, 50
	h := newHarness(t, cfg)
	h.start(1, 2)
	var ids []ident.UUID
	for i := range 3 {
		ids = append(ids, h.create(fmt.Sprintf("t%d", i), slices.Repeat([][]int32{{1, 2}}, 30)...))
	}
	h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
	h.tick()
	h.heartbeat(1, nil)
	for _, id := range ids {
		for i := range int32(30) {
			if code := h.alter(h.proposal(2, id, i, 2, 1)).ErrorCode; code != 0 {
				t.Fatal(name(code))
			}
		}
	}
	h.run(h.c.nextBalance.Sub(h.now)-1, 1, 2)
	h.now++
	for _, d := range h.c.Tick(h.now) {
		if len(d.Records) > cfg.MaxRecords {
			t.Errorf("%d records", len(d.Records))
		}
		h.take(d)
	}
	if !h.c.appended.index.leads(2) {
		t.Error("all moved at once")
	}
	h.run(5*time.Second, 1, 2)
	if h.c.appended.index.leads(2) {
		t.Error("some never moved")
	}
}

// reassigning puts a reassignment into the metadata, as another controller may have left it.
func (h *harness) reassigning(id ident.UUID, replicas, adding, removing []ident.NodeID) {
	h.t.Helper()
	change := metadata.NewPartitionChange(2)
	change.TopicID, change.Replicas, change.AddingReplicas, change.RemovingReplicas = id, replicas, adding, removing
	tx := h.c.begin()
	tx.add(change)
	h.take(tx.commit(nil))
}

// KAFKA-1097.
func TestReassignmentCompletesInOneRecordThatRaisesTheLeaderEpoch(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	id := h.create("a", []int32{1, 2})
	h.reassigning(id, []ident.NodeID{1, 3, 2}, []ident.NodeID{3}, []ident.NodeID{2})
	late := h.proposal(1, id, 0, 1, 2, 3) // what a leader would say to put 2 back
	h.alter(h.proposal(1, id, 0, 1, 2, 3))
	h.want("a", 0, "leader 1 le 1 pe 2 isr [1 3]")
	if p := h.partition("a", 0); !slices.Equal(p.Replicas, []ident.NodeID{1, 3}) || len(p.Directories) != 2 || p.Directories[1] != ident.UnassignedDirectory {
		t.Errorf("got %+v", p)
	}
	for _, retry := range []struct {
		edit func(p *kmsg.AlterPartitionRequestTopicPartition)
		want *kerr.Error
	}{
		{func(*kmsg.AlterPartitionRequestTopicPartition) {}, kerr.FencedLeaderEpoch},
		{func(p *kmsg.AlterPartitionRequestTopicPartition) { p.LeaderEpoch = 1 }, kerr.InvalidUpdateVersion},
		{func(p *kmsg.AlterPartitionRequestTopicPartition) { p.LeaderEpoch, p.PartitionEpoch = 1, 2 }, kerr.InvalidRequest},
	} {
		retry.edit(&late.Topics[0].Partitions[0])
		if code := h.alter(late).ErrorCode; code != retry.want.Code {
			t.Errorf("the removed replica is proposed again: %s, want %s", name(code), retry.want.Message)
		}
	}
	h.want("a", 0, "leader 1 le 1 pe 2 isr [1 3]")
}

func TestReassignmentThatMovesTheLeaderAwayIsToldToItsSender(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	id := h.create("a", []int32{1, 2})
	h.reassigning(id, []ident.NodeID{3, 2, 1}, []ident.NodeID{3}, []ident.NodeID{1})
	if code := h.alter(h.proposal(1, id, 0, 1, 3)).ErrorCode; code != 0 {
		t.Errorf("not complete yet: %s", name(code))
	}
	h.want("a", 0, "leader 1 le 0 pe 2 isr [1 3] replicas [3 2 1] adding [3] removing [1]")
	if code := h.alter(h.proposal(1, id, 0, 1, 3, 2)).ErrorCode; code != kerr.NewLeaderElected.Code {
		t.Errorf("complete: %s", name(code))
	}
	h.want("a", 0, "leader 3 le 1 pe 3 isr [3 2]")
}
