package replication

import (
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
)

// damaged makes a follower of node 2 in epoch 5 with 40 records, of which those from 20 on can't be trusted.
func damaged(t *testing.T, mutant Mutant) *bench {
	t.Helper()
	b := newBench(Config{HighWatermark: 40, Mutant: mutant})
	b.log.append(5, 40)
	b.log.damagedFrom = 20
	b.r.hw = 40
	b.meta(1, []ident.NodeID{1, 2, 3})
	b.step(DamageChanged{Damaged: true})
	return b
}

// meta is a commit within leader epoch 5 of node 2.
func (b *bench) meta(partitionEpoch int32, isr []ident.NodeID, lost ...ident.NodeID) {
	b.step(MetadataChanged{Leader: 2, LeaderEpoch: 5, PartitionEpoch: partitionEpoch, Replicas: []ident.NodeID{1, 2, 3}, ISR: isr, Lost: lost, MinISR: 2})
}

// answer is what the leader, whose log ends at end, says to the next fetch.
func (b *bench) leaderSays(end, hw ident.Offset) {
	p, ok := b.r.NextFetch()
	if !ok {
		b.out = Effects{}
		return
	}
	ev := FetchResponse{LeaderEpoch: p.LeaderEpoch, Offset: p.Offset, LastFetchedEpoch: p.LastFetchedEpoch, HighWatermark: hw, Diverging: NoEpochEnd}
	if next := min(p.Offset+10, end); next > p.Offset {
		ev.Batches = []Batch{{Base: p.Offset, End: next, Epoch: 5}}
	}
	b.step(ev)
}

func TestDamagedFollowerLeavesThenCutsThenRefillsThenReturns(t *testing.T) {
	b := damaged(t, NoMutant)
	if !b.out.Directory || b.r.DirectoryWish() != WishLost || b.out.Quarantine {
		t.Fatalf("damaged in the ISR: %+v, wish %s", b.out, b.r.DirectoryWish())
	}
	b.leaderSays(50, 40) // it goes on with what it can vouch for
	if b.log.end != 50 || b.r.DirectoryWish() != WishLost {
		t.Fatalf("ends at %d", b.log.end)
	}
	b.meta(2, []ident.NodeID{2, 3}) // out for another reason: the controller does not know yet
	if b.out.Quarantine {
		t.Fatal("cut before its damage is known")
	}
	b.cluster[2] = Broker{Epoch: 102, Fenced: true}
	b.meta(3, []ident.NodeID{2, 3}, 1)
	if b.out.Quarantine {
		t.Fatal("cut with nobody to fetch from")
	}
	b.cluster[2] = Broker{Epoch: 102}
	b.step(Tick{})
	if !b.out.Quarantine || b.log.end != 20 || b.r.HighWatermark() != 20 || b.r.DirectoryWish() != NoWish {
		t.Fatalf("ends at %d, high watermark %d, wish %s, %+v", b.log.end, b.r.HighWatermark(), b.r.DirectoryWish(), b.out)
	}
	for b.log.end < 50 {
		b.leaderSays(60, 55)
		if b.out.Refilled {
			t.Fatalf("refilled at %d, below the leader's high watermark", b.log.end)
		}
	}
	b.leaderSays(60, 55)
	if !b.out.Refilled || b.r.DirectoryWish() != WishOnline || !b.out.Directory {
		t.Fatalf("at %d: %+v, wish %s", b.log.end, b.out, b.r.DirectoryWish())
	}
	b.meta(4, []ident.NodeID{2, 3})
	if b.r.DirectoryWish() != NoWish || b.r.Damage() != (DamageChanged{}) {
		t.Fatalf("wish %s", b.r.DirectoryWish())
	}
}

// A replica that said it is whole again may be in the ISR before it knows. What is damaged then is no reason to cut
// before the controller has been told anew.
func TestReplicaThatIsDamagedAgainBeforeItKnowsItReturnedDoesNotCut(t *testing.T) {
	b := damaged(t, NoMutant)
	b.meta(2, []ident.NodeID{2, 3}, 1)
	for range 10 {
		b.leaderSays(40, 40)
	}
	if b.r.DirectoryWish() != WishOnline {
		t.Fatalf("wish %s", b.r.DirectoryWish())
	}
	// The controller takes it, and the leader takes the replica back; metadata of that is still on its way here.
	b.log.damagedFrom = 10
	b.step(DamageChanged{Damaged: true})
	if b.out.Quarantine || b.log.end != 40 || b.r.DirectoryWish() != WishOnline {
		t.Fatalf("ends at %d, wish %s", b.log.end, b.r.DirectoryWish())
	}
	b.meta(4, []ident.NodeID{2, 3, 1})
	if b.out.Quarantine || b.r.DirectoryWish() != WishLost {
		t.Fatalf("ends at %d, wish %s", b.log.end, b.r.DirectoryWish())
	}
	b.meta(5, []ident.NodeID{2, 3}, 1)
	if !b.out.Quarantine || b.log.end != 10 {
		t.Fatalf("ends at %d, wish %s", b.log.end, b.r.DirectoryWish())
	}
}

func TestRefillEndsWhereTheLeadersLogDoes(t *testing.T) {
	b := damaged(t, NoMutant)
	b.meta(2, []ident.NodeID{2}, 1)
	b.leaderSays(30, 30) // an unclean leader has less
	if b.out.Refilled {
		t.Fatal("there may be more")
	}
	b.leaderSays(30, 30)
	if !b.out.Refilled || b.log.end != 30 {
		t.Fatalf("at %d: %+v", b.log.end, b.out)
	}
}

func TestDamagedLeaderNeverCuts(t *testing.T) {
	b := newBench(Config{HighWatermark: 40})
	b.log.append(5, 40)
	b.step(DamageChanged{Damaged: true}) // found when the log was opened
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 5, PartitionEpoch: 20, Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1}, Lost: []ident.NodeID{1}, MinISR: 1})
	if b.out.Quarantine || b.r.Role() != Leader || b.r.DirectoryWish() != NoWish {
		t.Fatalf("%+v, %s", b.out, b.r.DirectoryWish())
	}
	b.produce(1, 1, 1)
	if len(b.out.Completed) != 1 || b.out.Completed[0].Code != None {
		t.Fatalf("produce: %+v", b.out.Completed)
	}
	b.step(DamageChanged{}) // the log start has passed it
	if b.r.DirectoryWish() != WishOnline {
		t.Fatalf("wish %s", b.r.DirectoryWish())
	}
}

func TestFollowerThatReportedDamageIsNotProposed(t *testing.T) {
	b := newBench(Config{})
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 5, PartitionEpoch: 20, Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1}, Lost: []ident.NodeID{2}, MinISR: 1})
	fetch := Fetch{Token: 1, Replica: 2, BrokerEpoch: 102, LeaderEpoch: 5, LastFetchedEpoch: -1}
	b.step(fetch)
	if b.out.Proposal != nil {
		t.Fatalf("proposed %+v", b.out.Proposal)
	}
	b.produce(1, -1, 1)
	if b.r.HighWatermark() != 1 {
		t.Fatalf("high watermark %d: held back by a replica that can't join", b.r.HighWatermark())
	}
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 5, PartitionEpoch: 21, Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1}, MinISR: 1})
	fetch.Offset = 1
	b.step(fetch)
	if p := b.out.Proposal; p == nil || len(p.ISR) != 2 {
		t.Fatalf("proposed %+v", p)
	}
}

func TestMutantsOfDamageBreakTheirRule(t *testing.T) {
	if b := damaged(t, QuarantineInISR); !b.out.Quarantine {
		t.Error("QuarantineInISR does not cut")
	}
	b := damaged(t, RejoinDamaged)
	b.cluster[2] = Broker{Epoch: 102, Fenced: true}
	b.meta(2, []ident.NodeID{2, 3}, 1)
	if b.r.DirectoryWish() != WishOnline {
		t.Error("RejoinDamaged does not return")
	}
}
