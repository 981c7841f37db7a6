package controller

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// proposal is what the leader of the partition would send now: the ISR by broker epochs.
func (h *harness) proposal(sender ident.NodeID, topic ident.UUID, index int32, isr ...ident.NodeID) *kmsg.AlterPartitionRequest {
	h.t.Helper()
	r := kmsg.NewPtrAlterPartitionRequest()
	r.Version, r.BrokerID = 3, int32(sender)
	if b, ok := h.committed.Broker(sender); ok {
		r.BrokerEpoch = b.Epoch
	}
	p, ok := h.committed.Partition(ident.TopicPartition{Topic: topic, Index: index})
	if !ok {
		h.t.Fatalf("no partition %s-%d", topic, index)
	}
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch, rp.LeaderRecoveryState = index, int32(p.LeaderEpoch), p.PartitionEpoch, p.RecoveryState
	for _, id := range isr {
		m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		m.BrokerID, m.BrokerEpoch = int32(id), -1
		if b, ok := h.committed.Broker(id); ok {
			m.BrokerEpoch = b.Epoch
		}
		rp.NewEpochISR = append(rp.NewEpochISR, m)
	}
	rt := kmsg.NewAlterPartitionRequestTopic()
	rt.TopicID, rt.Partitions = topic, append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	return r
}

// alterCode is the error of a request for one partition.
func alterCode(d Decision) int16 {
	r := d.Response.(*kmsg.AlterPartitionResponse)
	if r.ErrorCode != 0 {
		return r.ErrorCode
	}
	return r.Topics[0].Partitions[0].ErrorCode
}

func (h *harness) alter(r *kmsg.AlterPartitionRequest) kmsg.AlterPartitionResponseTopicPartition {
	h.t.Helper()
	d := h.c.AlterPartition(h.now, r)
	h.take(d)
	if code := d.Response.(*kmsg.AlterPartitionResponse).ErrorCode; code != 0 {
		h.t.Fatalf("AlterPartition: %s", name(code))
	}
	return d.Response.(*kmsg.AlterPartitionResponse).Topics[0].Partitions[0]
}

func TestProposalsAreCheckedInKafkasOrder(t *testing.T) {
	type partition = kmsg.AlterPartitionRequestTopicPartition
	isr := func(p *partition, ids ...int32) {
		p.NewEpochISR = nil
		for _, id := range ids {
			m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			m.BrokerID, m.BrokerEpoch = id, -1
			p.NewEpochISR = append(p.NewEpochISR, m)
		}
	}
	// Each row is wrong in its own way and in those of all rows after it, so that only the order tells them apart:
	// the edits from the row's own to the last are applied.
	rows := []struct {
		name string
		edit func(r *kmsg.AlterPartitionRequest)
		want *kerr.Error
	}{
		{"version 1", func(r *kmsg.AlterPartitionRequest) { r.Version = 1 }, kerr.UnsupportedVersion},
		{"stale broker epoch of the sender", func(r *kmsg.AlterPartitionRequest) { r.BrokerEpoch-- }, kerr.StaleBrokerEpoch},
		{"unknown topic id", func(r *kmsg.AlterPartitionRequest) { r.Topics[0].TopicID[3]++ }, kerr.UnknownTopicID},
		{"unknown partition", func(r *kmsg.AlterPartitionRequest) { r.Topics[0].Partitions[0].Partition = 9 }, kerr.UnknownTopicOrPartition},
		{"leader epoch of the future", func(r *kmsg.AlterPartitionRequest) { r.Topics[0].Partitions[0].LeaderEpoch = 99 }, kerr.NotController},
		{"partition epoch of the future", func(r *kmsg.AlterPartitionRequest) {
			r.Topics[0].Partitions[0].LeaderEpoch, r.Topics[0].Partitions[0].PartitionEpoch = 1, 99
		}, kerr.NotController},
		{"stale leader epoch", func(r *kmsg.AlterPartitionRequest) {
			r.Topics[0].Partitions[0].LeaderEpoch, r.Topics[0].Partitions[0].PartitionEpoch = 0, 0
		}, kerr.FencedLeaderEpoch},
		{"sender is not the leader", func(r *kmsg.AlterPartitionRequest) {
			r.Topics[0].Partitions[0].LeaderEpoch, r.Topics[0].Partitions[0].PartitionEpoch = 1, 0
			r.BrokerID = 3
		}, kerr.InvalidRequest},
		{"stale partition epoch", func(r *kmsg.AlterPartitionRequest) {
			r.BrokerID = 2
			r.Topics[0].Partitions[0].PartitionEpoch = 0
		}, kerr.InvalidUpdateVersion},
		{"member twice", func(r *kmsg.AlterPartitionRequest) {
			r.Topics[0].Partitions[0].PartitionEpoch = 1
			isr(&r.Topics[0].Partitions[0], 3, 3, 1)
		}, kerr.InvalidRequest},
		{"member is no replica", func(r *kmsg.AlterPartitionRequest) { isr(&r.Topics[0].Partitions[0], 4, 1) }, kerr.InvalidRequest},
		{"without the leader", func(r *kmsg.AlterPartitionRequest) { isr(&r.Topics[0].Partitions[0], 1, 3) }, kerr.InvalidRequest},
		{"empty", func(r *kmsg.AlterPartitionRequest) { isr(&r.Topics[0].Partitions[0]) }, kerr.InvalidRequest},
		{"unknown recovery state", func(r *kmsg.AlterPartitionRequest) {
			isr(&r.Topics[0].Partitions[0], 2, 1)
			r.Topics[0].Partitions[0].LeaderRecoveryState = 7
		}, kerr.InvalidRequest},
		{"recovering with two members", func(r *kmsg.AlterPartitionRequest) {
			r.Topics[0].Partitions[0].LeaderRecoveryState = metadata.Recovering
		}, kerr.InvalidRequest},
		{"recovering though it is recovered", func(r *kmsg.AlterPartitionRequest) {
			isr(&r.Topics[0].Partitions[0], 2)
			r.Topics[0].Partitions[0].LeaderRecoveryState = metadata.Recovering
		}, kerr.InvalidRequest},
		{"member is fenced", func(r *kmsg.AlterPartitionRequest) {
			r.Topics[0].Partitions[0].LeaderRecoveryState = metadata.Recovered
			isr(&r.Topics[0].Partitions[0], 2, 1)
		}, kerr.IneligibleReplica},
	}
	for i := range rows {
		t.Run(rows[i].name, func(t *testing.T) {
			h := newHarness(t, testConfig())
			h.start(1, 2, 3, 4)
			id := h.create("a", []int32{1, 2, 3})
			h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
			h.want("a", 0, "leader 2 le 1 pe 1 isr [2 3]")
			// The last row's request is refused for one reason alone; each row before it makes it worse.
			r := h.proposal(2, id, 0, 2, 3)
			var epochs [5]int64
			for b := range h.committed.Brokers() {
				epochs[b.ID] = b.Epoch
			}
			for j := len(rows) - 1; j >= i; j-- {
				rows[j].edit(r)
			}
			if i > 1 {
				r.BrokerEpoch = epochs[r.BrokerID]
			}
			d := h.c.AlterPartition(h.now, r)
			if code := alterCode(d); code != rows[i].want.Code {
				t.Errorf("got %s, want %s", name(code), rows[i].want.Message)
			}
			if len(d.Records) != 0 {
				t.Errorf("a refused proposal writes %s", kinds(d.Records))
			}
			h.take(d)
			h.want("a", 0, "leader 2 le 1 pe 1 isr [2 3]")
		})
	}
}

func TestIneligibleMembers(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(h *harness, r *kmsg.AlterPartitionRequest)
		want *kerr.Error
	}{
		{"registered and alive", func(*harness, *kmsg.AlterPartitionRequest) {}, nil},
		{"epoch not known to the leader", func(_ *harness, r *kmsg.AlterPartitionRequest) {
			r.Topics[0].Partitions[0].NewEpochISR[1].BrokerEpoch = -1
		}, nil},
		{"epoch of an earlier registration", func(_ *harness, r *kmsg.AlterPartitionRequest) {
			r.Topics[0].Partitions[0].NewEpochISR[1].BrokerEpoch--
		}, kerr.IneligibleReplica},
		{"fenced", func(h *harness, _ *kmsg.AlterPartitionRequest) {
			h.heartbeat(3, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
		}, kerr.IneligibleReplica},
		{"shutting down", func(h *harness, _ *kmsg.AlterPartitionRequest) {
			h.heartbeat(3, func(r *kmsg.BrokerHeartbeatRequest) { r.WantShutdown = true })
			if !h.broker(3).InControlledShutdown {
				h.t.Fatalf("3 leads something and should be in controlled shutdown")
			}
		}, kerr.IneligibleReplica},
		{"unregistered", func(h *harness, _ *kmsg.AlterPartitionRequest) {
			r := kmsg.NewPtrUnregisterBrokerRequest()
			r.BrokerID = 3
			h.take(h.c.UnregisterBroker(h.now, r))
		}, kerr.IneligibleReplica},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, testConfig())
			h.start(1, 2, 3)
			id := h.create("a", []int32{1, 2, 3})
			h.create("b", []int32{3, 1})
			h.alter(h.proposal(1, id, 0, 1, 2))
			r := h.proposal(1, id, 0, 1, 3)
			c.do(h, r)
			got := h.alter(r).ErrorCode
			if c.want == nil && got != 0 || c.want != nil && got != c.want.Code {
				t.Errorf("got %s", name(got))
			}
		})
	}
}

func TestAcceptedProposalKeepsTheLeaderEpoch(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	id := h.create("a", []int32{1, 2, 3})
	h.want("a", 0, "leader 1 le 0 pe 0 isr [1 2 3]")
	answer := h.alter(h.proposal(1, id, 0, 1, 3))
	h.want("a", 0, "leader 1 le 0 pe 1 isr [1 3]")
	if answer.LeaderID != 1 || answer.LeaderEpoch != 0 || answer.PartitionEpoch != 1 || len(answer.ISR) != 2 {
		t.Errorf("got %+v", answer)
	}
	h.alter(h.proposal(1, id, 0, 1, 2, 3))
	h.want("a", 0, "leader 1 le 0 pe 2 isr [1 2 3]")
}

func TestRetryOfAProposalThatWasTakenEndsWell(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	id := h.create("a", []int32{1, 2, 3})
	r := h.proposal(1, id, 0, 1, 2)
	h.alter(r)
	if code := h.alter(r).ErrorCode; code != kerr.InvalidUpdateVersion.Code {
		t.Errorf("the same request again: %s", name(code))
	}
	answer := h.alter(h.proposal(1, id, 0, 1, 2))
	if answer.ErrorCode != 0 || answer.PartitionEpoch != 1 || len(h.log) != 0 {
		t.Errorf("what already is: %+v, %d records", answer, len(h.log))
	}
	h.want("a", 0, "leader 1 le 0 pe 1 isr [1 2]")
}

func TestVersion2NamesMembersWithoutEpochs(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	id := h.create("a", []int32{1, 2, 3})
	r := h.proposal(1, id, 0)
	r.Version, r.Topics[0].Partitions[0].NewISR = 2, []int32{1, 2}
	if code := h.alter(r).ErrorCode; code != 0 {
		t.Error(name(code))
	}
	h.want("a", 0, "leader 1 le 0 pe 1 isr [1 2]")
}

func TestOneBadPartitionDoesNotSpoilTheOthers(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	id := h.create("a", []int32{1, 2, 3}, []int32{1, 2, 3}, []int32{1, 2, 3})
	r := h.proposal(1, id, 0, 1, 2)
	for _, other := range []*kmsg.AlterPartitionRequest{h.proposal(1, id, 1, 1, 9), h.proposal(1, id, 2, 1)} {
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, other.Topics[0].Partitions[0])
	}
	d := h.c.AlterPartition(h.now, r)
	h.take(d)
	var got []string
	for _, p := range d.Response.(*kmsg.AlterPartitionResponse).Topics[0].Partitions {
		got = append(got, name(p.ErrorCode))
	}
	if len(got) != 3 || got[0] != "NONE" || got[1] != "INVALID_REQUEST" || got[2] != "NONE" {
		t.Errorf("got %v", got)
	}
	h.want("a", 0, "leader 1 le 0 pe 1 isr [1 2]")
	h.want("a", 1, "leader 1 le 0 pe 0 isr [1 2 3]")
	h.want("a", 2, "leader 1 le 0 pe 1 isr [1]")
}

// linkedin/kafka#386: a controller that is slow, and a node that comes back to thousands of partitions.
func TestOneRequestTakesThousandsOfProposals(t *testing.T) {
	for _, c := range []struct{ records, rounds int }{{10_000, 1}, {1000, 3}} {
		cfg := testConfig()
		cfg.MaxRecords = c.records
		h := newHarness(t, cfg)
		h.start(1, 2)
		const topics, partitions = 20, 100
		var ids []ident.UUID
		for i := range topics {
			ids = append(ids, h.create(fmt.Sprintf("t%d", i), slices.Repeat([][]int32{{1, 2}}, partitions)...))
		}
		h.heartbeat(2, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
		h.tick()
		h.heartbeat(2, nil)
		h.tick()
		rounds := 0
		for left := -1; left != 0; rounds++ {
			if rounds > c.rounds {
				t.Fatalf("limit of %d records: %d partitions are left after %d rounds", c.records, left, rounds)
			}
			request := h.proposal(1, ids[0], 0, 1, 2)
			request.Topics = nil
			for _, id := range ids {
				topic := kmsg.NewAlterPartitionRequestTopic()
				topic.TopicID = id
				for i := range int32(partitions) {
					if p, _ := h.committed.Partition(ident.TopicPartition{Topic: id, Index: i}); len(p.ISR) == 1 {
						topic.Partitions = append(topic.Partitions, h.proposal(1, id, i, 1, 2).Topics[0].Partitions...)
					}
				}
				request.Topics = append(request.Topics, topic)
			}
			left = 0
			d := h.c.AlterPartition(h.now, request)
			h.take(d)
			for _, topic := range d.Response.(*kmsg.AlterPartitionResponse).Topics {
				for _, p := range topic.Partitions {
					switch name(p.ErrorCode) {
					case "NONE":
					case "REQUEST_TIMED_OUT": // its leader proposes it again
						left++
					default:
						t.Fatal(name(p.ErrorCode))
					}
				}
			}
		}
		if rounds != c.rounds {
			t.Errorf("limit of %d records: %d rounds, want %d", c.records, rounds, c.rounds)
		}
	}
}
