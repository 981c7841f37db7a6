package replication

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

func proposed(p *Proposal) []ident.NodeID {
	if p == nil {
		return nil
	}
	var ids []ident.NodeID
	for _, m := range p.ISR {
		ids = append(ids, m.ID)
	}
	return ids
}

func (b *bench) wantProposal(t *testing.T, want ...ident.NodeID) {
	t.Helper()
	if got := proposed(b.out.Proposal); !slices.Equal(got, want) {
		t.Fatalf("proposed ISR %v, want %v", got, want)
	}
}

func TestLaggingFollowerIsProposedOutWithReasonAndLag(t *testing.T) {
	b := newBench(Config{})
	b.lead(2, 1, 2, 3)
	b.produce(1, -1, 10)
	b.fetch(2, 10)
	b.fetch(3, 4)
	for range 4 { // 2 keeps fetching, 3 does not
		b.wait(3 * time.Second)
		if b.out.Proposal != nil {
			t.Fatal("proposal within the lag time")
		}
		b.fetch(2, 10)
	}
	b.wait(4 * time.Second)
	b.wantProposal(t, 1, 2)
	if got := b.out.Proposal.ISR; got[0].BrokerEpoch != 101 || got[1].BrokerEpoch != 102 {
		t.Fatalf("members %v, want broker epochs 101 and 102", got)
	}
	b.wantHW(t, 4) // the shrink is not assumed to succeed
	b.accept()
	b.wantHW(t, 10)
	want := Fact{Kind: ISRShrunk, Replica: 3, Reason: LagTimeExceeded, LeaderEpoch: 5, PartitionEpoch: 21, LagOffsets: 6, LagTime: 15 * time.Second, From: -1, To: -1}
	if !reflect.DeepEqual(b.out.Facts, []Fact{want}) {
		t.Fatalf("facts %+v, want %+v", b.out.Facts, want)
	}
}

func TestIdleFollowerAtTheEndIsNeverALaggard(t *testing.T) { // KAFKA-7152
	b := newBench(Config{})
	b.lead(1, 1, 2, 3)
	b.produce(1, 1, 10)
	b.fetch(2, 10)
	b.fetch(3, 10)
	b.wait(100 * time.Second)
	if b.out.Proposal != nil {
		t.Fatalf("idle partition: proposed %v", proposed(b.out.Proposal))
	}
	b.produce(2, 1, 1)
	b.wait(16 * time.Second)
	b.wantProposal(t, 1)
}

func TestFollowerOneFetchBehindABusyLeaderJoins(t *testing.T) { // KAFKA-4485
	b := newBench(Config{})
	b.lead(1, 1, 2)
	joined := false
	for i := range ident.Offset(20) {
		b.produce(Token(i), 1, 100)
		b.fetch(2, (i+1)*100)
		b.fetch(3, i*100)
		joined = joined || b.out.Proposal != nil
		b.now += second
	}
	if !joined {
		t.Fatal("3 kept pace one fetch behind and was never proposed")
	}
}

func TestSlowFollowerThatReachesAnOldEndDoesNotJoin(t *testing.T) {
	b := newBench(Config{})
	b.lead(1, 1, 2)
	b.produce(1, 1, 100)
	b.fetch(3, 0)
	b.now += 20 * second
	b.produce(2, 1, 100)
	b.fetch(3, 100) // had everything of 20 s ago, beyond the high watermark, but does not keep pace
	if b.out.Proposal != nil {
		t.Fatalf("proposed %v", proposed(b.out.Proposal))
	}
}

func TestExpansionWaitsForTheEpochStart(t *testing.T) { // KAFKA-7128
	b := newBench(Config{HighWatermark: 60})
	b.log.appendTo(4, 100)
	b.r = New(Config{Self: 1, LagTimeMax: 10 * time.Second, HighWatermark: 60}, b.log, b.cluster)
	b.lead(2, 1, 2)
	b.fetch(3, 70)
	b.fetch(3, 99)
	if b.out.Proposal != nil {
		t.Fatal("joined below the epoch start")
	}
	b.wantHW(t, 60)
	b.fetch(3, 100)
	b.wantProposal(t, 1, 2, 3)
}

func TestIneligibleFollowersAreNotProposed(t *testing.T) { // KIP-841, KIP-903
	for name, broker := range map[string]*Broker{
		"fenced": {Epoch: 103, Fenced: true}, "shutting down": {Epoch: 103, ShuttingDown: true},
		"metadata behind": {Epoch: 90}, "unregistered": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(Config{})
			b.lead(1, 1, 2)
			b.produce(1, 1, 10)
			if delete(b.cluster, 3); broker != nil {
				b.cluster[3] = *broker
			}
			b.fetch(2, 10)
			if b.fetch(3, 10); b.out.Proposal != nil {
				t.Fatalf("proposed %v", proposed(b.out.Proposal))
			}
			b.produce(2, 1, 10)
			b.fetch(2, 20)
			b.wantHW(t, 20) // nor does it hold the high watermark back
		})
	}
}

func TestFetchWithAnOldOrUnknownBrokerEpochDoesNotCount(t *testing.T) {
	b := newBench(Config{})
	b.lead(1, 1, 2)
	ask := Fetch{Token: 9, Replica: 3, BrokerEpoch: 102, LeaderEpoch: 5, LastFetchedEpoch: -1}
	if b.step(ask); b.out.Answers[0].Code != NotLeaderOrFollower {
		t.Fatalf("old broker epoch: code %d", b.out.Answers[0].Code)
	}
	ask.BrokerEpoch = -1
	if b.step(ask); b.out.Answers[0].Code != None || b.out.Proposal != nil {
		t.Fatalf("unknown broker epoch: code %d, proposal %v", b.out.Answers[0].Code, b.out.Proposal)
	}
	// Restarted under 104, which metadata here has not: a late fetch of the earlier life is refused all the same.
	ask.BrokerEpoch = 104
	b.step(ask)
	ask.BrokerEpoch = 103
	if b.step(ask); b.out.Answers[0].Code != NotLeaderOrFollower || b.r.follower(3).brokerEpoch != 104 {
		t.Fatalf("fetch from before the restart: code %d", b.out.Answers[0].Code)
	}
}

func TestNewLeaderGivesTheISROneLagTimeOfGrace(t *testing.T) { // apache/fluss#3698
	b := newBench(Config{})
	b.log.appendTo(4, 50)
	b.lead(1, 1, 2, 3)
	b.produce(1, 1, 1)
	for range 4 {
		b.wait(2 * time.Second)
		b.lead(1, 1, 2, 3) // the same metadata again changes nothing
		if b.out.Proposal != nil {
			t.Fatal("shrunk within the grace")
		}
	}
	b.wait(10 * time.Second)
	b.wantProposal(t, 1)
}

func TestAnswersOfAlterPartition(t *testing.T) {
	for _, c := range []struct {
		code    Code
		pending bool
		retried bool
	}{
		{IneligibleReplica, false, false},
		{OperationNotAttempted, false, false},
		{UnknownTopicOrPartition, true, false},
		{UnknownTopicID, true, false},
		{FencedLeaderEpoch, true, false},
		{InvalidUpdateVersion, true, false},
		{InvalidRequest, true, false},
		{NewLeaderElected, true, false},
		{NotController, true, true},
		{NetworkException, true, true},
		{RequestTimedOut, true, true},
		{UnknownServerError, true, true},
	} {
		b := newBench(Config{})
		b.lead(1, 1, 2)
		b.produce(1, 1, 10)
		b.fetch(2, 10)
		b.fetch(3, 10)
		first := *b.out.Proposal
		b.refuse(c.code)
		if got := b.r.Pending(); got != c.pending {
			t.Errorf("code %d: pending %v, want %v", c.code, got, c.pending)
		}
		if got := slices.Contains(b.r.MaximalISR(), 3); got != c.pending {
			t.Errorf("code %d: 3 in the maximal ISR %v, want %v", c.code, got, c.pending)
		}
		b.wait(400 * time.Millisecond)
		if got := b.out.Proposal != nil; got != c.retried {
			t.Errorf("code %d: retried %v, want %v", c.code, got, c.retried)
		}
		if c.retried && !reflect.DeepEqual(*b.out.Proposal, first) {
			t.Errorf("code %d: retried as %v, was %v", c.code, *b.out.Proposal, first)
		}
		// Metadata settles it in any case, and the next expansion goes out at the new epoch.
		b.step(MetadataChanged{Leader: 1, LeaderEpoch: 5, PartitionEpoch: 22, Replicas: []ident.NodeID{1, 2, 3}, ISR: []ident.NodeID{1, 2}, MinISR: 1})
		if b.r.Pending() {
			t.Errorf("code %d: still pending after metadata", c.code)
		}
		if b.fetch(3, 10); b.out.Proposal == nil || b.out.Proposal.PartitionEpoch != 22 {
			t.Errorf("code %d: then proposed %v", c.code, b.out.Proposal)
		}
	}
}

func TestRefusedExpansionIsNotRetriedInAHotLoop(t *testing.T) { // KAFKA-13916
	b := newBench(Config{})
	b.lead(1, 1, 2)
	b.fetch(3, 0)
	b.refuse(IneligibleReplica)
	n := 0
	for range 100 {
		b.now += second / 50
		if b.fetch(3, 0); b.out.Proposal != nil {
			n++
			b.refuse(IneligibleReplica)
		}
	}
	if n == 0 || n > 3 {
		t.Fatalf("%d proposals in 2 s of refusals, want one or two", n)
	}
}

func TestLateAnswerOfAnEarlierLeadershipIsIgnored(t *testing.T) { // KAFKA-12686
	b := newBench(Config{})
	b.lead(1, 1, 2)
	b.fetch(3, 0)
	old := AlterPartitionDone{LeaderEpoch: 5, PartitionEpoch: 20, NowLeader: 1, NowLeaderEpoch: 5, NowPartitionEpoch: 21, NowISR: []ident.NodeID{1, 2, 3}}
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 6, PartitionEpoch: 22, Replicas: []ident.NodeID{1, 2, 3}, ISR: []ident.NodeID{1}, MinISR: 1})
	b.step(old)
	if m := b.r.Metadata(); m.PartitionEpoch != 22 || !slices.Equal(m.ISR, []ident.NodeID{1}) {
		t.Fatalf("state is %+v", m)
	}
}

func TestNoOpAnswerEndsTheProposal(t *testing.T) { // KAFKA-12751
	b := newBench(Config{})
	b.lead(1, 1, 2)
	b.fetch(3, 0)
	b.step(AlterPartitionDone{LeaderEpoch: 5, PartitionEpoch: 20, NowLeader: 1, NowLeaderEpoch: 5, NowPartitionEpoch: 20, NowISR: []ident.NodeID{1, 2}})
	if b.r.Pending() {
		t.Fatal("still pending")
	}
	if b.fetch(3, 0); b.out.Proposal == nil {
		t.Fatal("the next expansion does not go out")
	}
}

func TestTwoChangesInARowWithoutMetadata(t *testing.T) { // KAFKA-12367
	b := newBench(Config{})
	b.lead(1, 1)
	b.fetch(2, 0)
	b.accept()
	b.fetch(3, 0)
	b.wantProposal(t, 1, 2, 3)
	if b.out.Proposal.PartitionEpoch != 21 {
		t.Fatalf("second proposal at partition epoch %d, want 21", b.out.Proposal.PartitionEpoch)
	}
}

func TestNoShrinkWhileAnExpansionIsInFlight(t *testing.T) { // apache/kafka#9100
	b := newBench(Config{})
	b.lead(1, 1, 2)
	b.fetch(2, 0)
	b.fetch(3, 0)
	b.produce(1, -1, 10)
	for range 10 {
		b.fetch(2, 10)
		b.wait(5 * time.Second)
		b.wantHW(t, 0)
		if b.out.Proposal != nil {
			t.Fatalf("proposed %v beside the one in flight", proposed(b.out.Proposal))
		}
	}
}

func TestStalledLeaderHearsItsFollowersBeforeItShrinks(t *testing.T) {
	b := newBench(Config{})
	b.lead(1, 1, 2, 3)
	b.produce(1, 1, 10)
	b.fetch(2, 5)
	b.now += 60 * second // SIGSTOP
	b.step(Tick{})
	if b.out.Proposal != nil {
		t.Fatal("shrunk on waking up")
	}
	b.fetch(2, 10)
	b.wait(6 * time.Second)
	b.wantProposal(t, 1, 2)
}

func TestRemovedReplicaCannotComeBack(t *testing.T) { // KAFKA-1097
	b := newBench(Config{})
	b.lead(1, 1, 2, 3)
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 6, PartitionEpoch: 21, Replicas: []ident.NodeID{1, 3}, ISR: []ident.NodeID{1, 3}, MinISR: 1})
	if a := b.fetch(2, 0); a.Code != UnknownLeaderEpoch || b.out.Proposal != nil {
		t.Fatalf("fetch of a removed replica: code %d, proposal %v", a.Code, b.out.Proposal)
	}
	b.step(Fetch{Token: 7, Replica: 2, BrokerEpoch: 102, LeaderEpoch: 5, LastFetchedEpoch: -1})
	if code := b.out.Answers[0].Code; code != FencedLeaderEpoch {
		t.Fatalf("fetch in the old epoch: code %d", code)
	}
}

func TestFencedFollowerThatWasAboutToJoinNoLongerHoldsTheHighWatermark(t *testing.T) {
	b := newBench(Config{})
	b.lead(1, 1)
	b.produce(1, -1, 10)
	b.fetch(3, 10)
	b.refuse(IneligibleReplica) // the controller knows already that it is fenced
	b.produce(2, -1, 5)
	if b.wantHW(t, 10); len(b.out.Completed) != 0 {
		t.Fatal("acknowledged past a follower that may be about to join")
	}
	b.cluster[3] = Broker{Epoch: 103, Fenced: true}
	b.step(BrokersChanged{}) // nobody fetches
	if b.wantHW(t, 15); b.codeOf(t, 2) != None {
		t.Fatalf("completed %+v", b.out.Completed)
	}
}

func TestCaughtUpFollowerJoinsWhenItIsUnfenced(t *testing.T) { // KAFKA-13916, its second half
	b := newBench(Config{})
	b.cluster[3] = Broker{Epoch: 103, Fenced: true}
	b.lead(1, 1, 2)
	b.fetch(3, 0)
	if b.step(BrokersChanged{}); b.out.Proposal != nil {
		t.Fatalf("proposes a fenced replica: %v", b.out.Proposal)
	}
	b.cluster[3] = Broker{Epoch: 103}
	b.step(BrokersChanged{})
	b.wantProposal(t, 1, 2, 3)
	b.accept()
	if b.step(BrokersChanged{}); b.out.Proposal != nil {
		t.Fatalf("proposes again: %v", b.out.Proposal)
	}
}

func TestAgeOfAnISRChangeIsThatOfItsFirstProposal(t *testing.T) { // linkedin/kafka#386
	b := newBench(Config{})
	b.lead(1, 1, 2)
	if got := b.r.PendingFor(b.now); got != 0 {
		t.Fatalf("%s with nothing proposed", got)
	}
	b.fetch(3, 0)
	for range 3 { // the controller is slow, and the answers get lost
		b.wait(time.Second)
		b.refuse(NetworkException)
	}
	if got := b.r.PendingFor(b.now); got != 3*time.Second {
		t.Fatalf("in flight for %s, want 3 s", got)
	}
	b.accept()
	if got := b.r.PendingFor(b.now); got != 0 {
		t.Fatalf("in flight for %s after its answer", got)
	}
}

func TestReplicaThatIsBeingAddedIsNotMissed(t *testing.T) {
	b := newBench(Config{})
	b.lead(1, 1, 2)
	if !b.r.UnderReplicated(nil) || b.r.UnderReplicated([]ident.NodeID{3}) || !b.r.UnderReplicated([]ident.NodeID{2}) {
		t.Fatal("misses what is not missed, or the reverse")
	}
	b.fetch(3, 0)
	b.accept()
	if b.r.UnderReplicated(nil) {
		t.Fatal("misses a replica that is in sync")
	}
}
