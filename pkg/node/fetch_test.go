package node

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/vfs"
)

var ordersID = ident.UUID{0: 3, 15: 1}

// newFetchTest is a broker that leads two partitions of a topic.
func newFetchTest(t *testing.T) *testBroker {
	b := newTestBroker(t, vfs.NewMem())
	b.register()
	b.apply(topicRecords("orders", ordersID, 2, nil)...)
	return b
}

func partitionBytes(answer kmsg.Response) (sizes []int) {
	for _, p := range answer.(*kmsg.FetchResponse).Topics[0].Partitions {
		sizes = append(sizes, len(p.RecordBatches))
	}
	return sizes
}

func TestFetchOfNothingIsAnsweredAtOnce(t *testing.T) {
	b := newFetchTest(t)
	answer := <-b.ask(t.Context(), b.fetch, fetchRequest(ordersID, time.Hour, 1))
	if code := answer.(*kmsg.FetchResponse).ErrorCode; code != 0 {
		t.Fatalf("code %d", code)
	}
}

func TestFetchWhoseConnectionIsGoneIsAnsweredOnce(t *testing.T) {
	b := newFetchTest(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		answers := b.ask(gone, b.fetch, fetchRequest(ordersID, time.Hour, 1, 0, 0))
		<-answers
		if len(answers) != 0 {
			t.Fatal("answered twice")
		}
	}
	for i := range int32(2) {
		r := b.hostedReplica(ordersID, i)
		eventually(t, "nothing is parked", func() bool { return r.parked() == 0 })
	}
}

func TestParkedFetchLeavesNothingWhenItsConnectionGoes(t *testing.T) {
	b := newFetchTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	answers := b.ask(ctx, b.fetch, fetchRequest(ordersID, time.Hour, 1, 0, 0))
	eventually(t, "the fetch waits at both partitions", func() bool {
		return b.hostedReplica(ordersID, 0).parked() == 1 && b.hostedReplica(ordersID, 1).parked() == 1
	})
	cancel()
	<-answers
	for i := range int32(2) {
		r := b.hostedReplica(ordersID, i)
		if r.parked() != 0 {
			t.Fatalf("partition %d keeps the fetch", i)
		}
		r.do(func(_ ident.Instant, p *exec.Partition) {
			if at := p.NextDeadline(); at != ident.Never {
				t.Errorf("partition %d keeps its deadline %v", i, at)
			}
		})
	}
}

func TestFetchWaitsForItsMinimumOverAllPartitions(t *testing.T) {
	b := newFetchTest(t)
	one := len(batch.NewBuilder(0, 1, 1000).Append(nil, []byte("v")).Build())
	answers := b.ask(t.Context(), b.fetch, fetchRequest(ordersID, time.Hour, int32(2*one), 0, 0))
	both := func() bool {
		return b.hostedReplica(ordersID, 0).parked() == 1 && b.hostedReplica(ordersID, 1).parked() == 1
	}
	eventually(t, "the fetch waits at both partitions", both)
	b.mustWrite("orders", 0, ordersID, "v")
	eventually(t, "half of it is not enough: it waits again", both)
	b.mustWrite("orders", 1, ordersID, "v")
	if sizes := partitionBytes(<-answers); sizes[0] != one || sizes[1] != one {
		t.Fatalf("got %v bytes, want %d of each", sizes, one)
	}
	if b.hostedReplica(ordersID, 0).parked()+b.hostedReplica(ordersID, 1).parked() != 0 {
		t.Fatal("the answered fetch is still parked")
	}
}

func TestFetchIsAnsweredWhenItsTimeIsOver(t *testing.T) {
	b := newFetchTest(t)
	b.runTimers()
	b.mustWrite("orders", 1, ordersID, "v")
	answer := <-b.ask(t.Context(), b.fetch, fetchRequest(ordersID, 50*time.Millisecond, 1<<19, 0, 0))
	if sizes := partitionBytes(answer); sizes[0] != 0 || sizes[1] == 0 {
		t.Fatalf("got %v bytes, want what there is", sizes)
	}
}

func TestFetchNeverWaitsForMoreThanItMayGet(t *testing.T) {
	b := newFetchTest(t)
	b.mustWrite("orders", 0, ordersID, "v")
	req := fetchRequest(ordersID, time.Hour, 1<<20, 0, 0)
	req.MaxBytes = 10
	if sizes := partitionBytes(<-b.ask(t.Context(), b.fetch, req)); sizes[0] == 0 {
		t.Fatal("no records")
	}
}

func TestParkedFetchHearsThatItsReplicaIsGone(t *testing.T) {
	b := newFetchTest(t)
	answers := b.ask(t.Context(), b.fetch, fetchRequest(ordersID, time.Hour, 1, 0, 0))
	eventually(t, "the fetch waits", func() bool { return b.hostedReplica(ordersID, 1).parked() == 1 })
	b.apply(&metadata.RemoveTopicRecord{TopicID: ordersID})
	for _, p := range (<-answers).(*kmsg.FetchResponse).Topics[0].Partitions {
		if p.ErrorCode != 0 && p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Fatalf("code %d", p.ErrorCode)
		}
	}
}

// The deadline, the leader and the proposal that a replica told last must be those that count, whoever was in the
// replica at the same time.
func TestNewestWordOfAReplicaIsTheOneThatStays(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register(1, 2)
	b.apply(topicRecords("orders", ordersID, 1, func(p *metadata.PartitionRecord) {
		p.Replicas, p.ISR, p.Leader = []ident.NodeID{0, 1, 2}, []ident.NodeID{0, 1, 2}, 1
		p.Directories = []ident.UUID{testUUID(9, 0), testUUID(9, 1), testUUID(9, 2)}
	})...)
	r := b.hostedReplica(ordersID, 0)
	for round := range 3000 {
		var all sync.WaitGroup
		for worker := range 4 {
			all.Go(func() {
				if worker == 0 {
					leader := ident.NodeID(1 + round%2)
					b.apply(&metadata.PartitionChangeRecord{PartitionID: 0, TopicID: ordersID, Leader: leader})
					return
				}
				// Answers of the leader make the replica back off, and so say whom it follows and when to call it.
				for range 20 {
					r.do(func(now ident.Instant, p *exec.Partition) {
						position, _ := p.NextFetch()
						p.HandleFetchResponse(now, exec.FetchResponse{Asked: position, Code: 6})
					})
				}
			})
		}
		all.Wait()
		r.mu.Lock()
		leader, deadline := r.partition.Core().CurrentLeader(), r.partition.NextDeadline()
		r.mu.Unlock()
		b.fetchers.mu.Lock()
		loop := b.fetchers.of[r]
		b.fetchers.mu.Unlock()
		if loop == nil || loop.leader != leader {
			t.Fatalf("round %d: the replica follows %d and is fetched for by %+v", round, leader, loop)
		}
		b.timers.mu.Lock()
		entry := b.timers.byRep[r]
		b.timers.mu.Unlock()
		if deadline == ident.Never && entry != nil || deadline != ident.Never && (entry == nil || entry.at != deadline) {
			t.Fatalf("round %d: the deadline is %v and the timer %+v", round, deadline, entry)
		}
	}
}
