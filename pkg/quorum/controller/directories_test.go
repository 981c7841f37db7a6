package controller

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

func assignRequest(id ident.NodeID, epoch int64, dir ident.UUID, tps ...ident.TopicPartition) *kmsg.AssignReplicasToDirsRequest {
	r := kmsg.NewPtrAssignReplicasToDirsRequest()
	r.BrokerID, r.BrokerEpoch = int32(id), epoch
	d := kmsg.NewAssignReplicasToDirsRequestDirectory()
	d.ID = dir
	for _, tp := range tps {
		p := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
		p.Partition = tp.Index
		topic := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
		topic.TopicID, topic.Partitions = tp.Topic, append(topic.Partitions, p)
		d.Topics = append(d.Topics, topic)
	}
	r.Directories = append(r.Directories, d)
	return r
}

// assign has a broker name the directory of one replica and returns the error for it.
func (h *harness) assign(id ident.NodeID, dir ident.UUID, tp ident.TopicPartition) string {
	h.t.Helper()
	d := h.c.AssignReplicasToDirs(h.now, assignRequest(id, h.broker(id).Epoch, dir, tp))
	h.take(d)
	answer := d.Response.(*kmsg.AssignReplicasToDirsResponse)
	if answer.ErrorCode != 0 {
		return name(answer.ErrorCode)
	}
	if answer.Directories[0].ID != [16]byte(dir) || answer.Directories[0].Topics[0].TopicID != [16]byte(tp.Topic) {
		h.t.Fatalf("the answer is for something else: %+v", answer)
	}
	return name(answer.Directories[0].Topics[0].Partitions[0].ErrorCode)
}

func (h *harness) damaged(topic string, index int32) (ids []ident.NodeID) {
	p := h.partition(topic, index)
	for _, id := range p.Replicas {
		if damagedIn(p, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (h *harness) tp(topic string, index int32) ident.TopicPartition {
	t, _ := h.committed.Topic(topic)
	return ident.TopicPartition{Topic: t.ID, Index: index}
}

func TestAssignReplicasToDirsRefusesWithKafkasCodes(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	h.create("t", []int32{1, 2})
	tp := h.tp("t", 0)
	for _, c := range []struct {
		id   ident.NodeID
		tp   ident.TopicPartition
		want string
	}{
		{1, ident.TopicPartition{Topic: ident.UUID{0: 9}}, "UNKNOWN_TOPIC_ID"},
		{1, ident.TopicPartition{Topic: tp.Topic, Index: 7}, "UNKNOWN_TOPIC_OR_PARTITION"},
		{3, tp, name(kerr.NotLeaderForPartition.Code)},
	} {
		before := h.next
		if got := h.assign(c.id, ident.LostDirectory, c.tp); got != c.want || h.next != before {
			t.Errorf("%+v: %s, %d records", c, got, h.next-before)
		}
	}
	d := h.c.AssignReplicasToDirs(h.now, assignRequest(1, h.broker(1).Epoch-1, ident.LostDirectory, tp))
	if code := d.Response.(*kmsg.AssignReplicasToDirsResponse).ErrorCode; code != kerr.StaleBrokerEpoch.Code || len(d.Records) != 0 {
		t.Errorf("stale broker epoch: %s", name(code))
	}
	h.c.Resign()
	d = h.c.AssignReplicasToDirs(h.now, assignRequest(1, 5, ident.LostDirectory, tp))
	if code := d.Response.(*kmsg.AssignReplicasToDirsResponse).ErrorCode; code != kerr.NotController.Code {
		t.Errorf("inactive: %s", name(code))
	}
}

func TestDamagedReplicaLeavesTheISRUntilItHasRefilled(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	h.create("t", []int32{1, 2, 3})
	tp := h.tp("t", 0)
	if got := h.assign(2, ident.LostDirectory, tp); got != "NONE" { // a follower
		t.Fatal(got)
	}
	h.want("t", 0, "leader 1 le 0 pe 1 isr [1 3]")
	if got := h.assign(2, ident.LostDirectory, tp); got != "NONE" || len(h.log) != 0 { // said twice
		t.Fatal(got, kinds(h.log))
	}
	if got := h.alter(h.proposal(1, tp.Topic, 0, 1, 2, 3)); name(got.ErrorCode) != "INELIGIBLE_REPLICA" {
		t.Fatalf("a damaged replica joins: %s", name(got.ErrorCode))
	}
	if got := h.assign(1, ident.LostDirectory, tp); got != "NONE" { // the leader
		t.Fatal(got)
	}
	h.want("t", 0, "leader 3 le 1 pe 2 isr [3]")
	if got := h.assign(1, dirOf(1), tp); got != "NONE" {
		t.Fatal(got)
	}
	if got := h.alter(h.proposal(3, tp.Topic, 0, 1, 3)); got.ErrorCode != 0 {
		t.Fatalf("a refilled replica can't join: %s", name(got.ErrorCode))
	}
	if got := h.damaged("t", 0); len(got) != 1 || got[0] != 2 {
		t.Fatalf("damaged: %v", got)
	}
}

func TestLastInSyncReplicaLeadsOnThoughDamaged(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	h.create("t", []int32{1, 2})
	tp := h.tp("t", 0)
	h.alter(h.proposal(1, tp.Topic, 0, 1))
	h.assign(1, ident.LostDirectory, tp)
	h.want("t", 0, "leader 1 le 0 pe 2 isr [1]")

	// It comes back after a crash, with its disk: nobody else has what it has.
	h.run(20*time.Second, 2)
	h.want("t", 0, "leader -1 le 1 pe 3 isr [1]")
	h.register(registration(1, 2))
	h.heartbeat(1, nil)
	h.want("t", 0, "leader 1 le 2 pe 4 isr [1]")
	if got := h.damaged("t", 0); len(got) != 1 {
		t.Fatalf("damaged: %v", got)
	}

	// The other catches up: it has all that was acknowledged, so it takes over in the same record.
	if got := h.alter(h.proposal(1, tp.Topic, 0, 1, 2)); name(got.ErrorCode) != "NEW_LEADER_ELECTED" {
		t.Fatalf("answered %s", name(got.ErrorCode))
	}
	h.want("t", 0, "leader 2 le 3 pe 5 isr [2]")
}

func TestEmptyDiskIsNotTakenForADamagedOne(t *testing.T) {
	for _, how := range []string{"registered anew", "unregistered before"} {
		h := newHarness(t, testConfig())
		h.start(1, 2)
		h.create("t", []int32{1, 2})
		tp := h.tp("t", 0)
		h.alter(h.proposal(1, tp.Topic, 0, 1))
		h.assign(1, ident.LostDirectory, tp)
		h.run(20*time.Second, 2)
		if how == "unregistered before" {
			r := kmsg.NewPtrUnregisterBrokerRequest()
			r.BrokerID = 1
			h.take(h.c.UnregisterBroker(h.now, r))
		}
		r := registration(1, 2)
		r.LogDirs = [][16]byte{{0: 7}}
		h.register(r)
		h.heartbeat(1, nil)
		if p := h.partition("t", 0); p.Leader != ident.NoNode {
			t.Fatalf("%s: a node with an empty disk leads: %s", how, show(p))
		}
	}
}

func TestReassignmentKeepsTheOtherCopiesOfADamagedTarget(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	h.create("t", []int32{1, 2})
	tp := h.tp("t", 0)
	h.alter(h.proposal(1, tp.Topic, 0, 1))
	h.assign(1, ident.LostDirectory, tp)
	h.take(h.c.AlterPartitionReassignments(h.now, reassignRequest("t", 0, []int32{1})))
	if p := h.partition("t", 0); !p.Reassigning() || len(p.Replicas) != 2 {
		t.Fatalf("the copy on 2 is given up: %s", show(p))
	}
	h.assign(1, dirOf(1), tp)
	if p := h.partition("t", 0); p.Reassigning() || len(p.Replicas) != 1 {
		t.Fatalf("it does not go on: %s", show(p))
	}
}

func TestUncleanElectionTakesADamagedReplicaLast(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	h.create("t", []int32{1, 2, 3})
	tp := h.tp("t", 0)
	h.assign(2, ident.LostDirectory, tp)
	h.alter(h.proposal(1, tp.Topic, 0, 1))
	h.take(h.c.IncrementalAlterConfigs(h.now, configRequest("t", configOp(opSet, "unclean.leader.election.enable", "true"))))
	h.run(20*time.Second, 2, 3)
	if p := h.partition("t", 0); p.Leader != 3 || p.RecoveryState != metadata.Recovering {
		t.Fatalf("%s, want 3 before the damaged 2", show(p))
	}
	h.run(20*time.Second, 2)
	if p := h.partition("t", 0); p.Leader != 2 || !damagedIn(p, 2) {
		t.Fatalf("%s, want the damaged 2, still so", show(p))
	}
}

func TestUnknownDirectoryIsOffline(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	h.create("t", []int32{1, 2})
	if got := h.assign(1, ident.UUID{0: 8}, h.tp("t", 0)); got != "NONE" {
		t.Fatal(got)
	}
	h.want("t", 0, "leader 2 le 1 pe 1 isr [2]")
}
