package replication

import (
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

func TestAcksAllWaitsForTheWholeISR(t *testing.T) {
	b := newBench(Config{})
	b.lead(2, 1, 2, 3)
	b.produce(1, -1, 10)
	if len(b.out.Completed) != 0 {
		t.Fatal("completed before anybody fetched")
	}
	b.fetch(2, 10)
	b.fetch(3, 9)
	if b.wantHW(t, 9); len(b.out.Completed) != 0 {
		t.Fatal("completed one record short")
	}
	b.fetch(3, 10)
	if c := b.out.Completed; len(c) != 1 || c[0] != (Completion{Token: 1, Base: 0, LogStart: 0}) {
		t.Fatalf("completed %+v", c)
	}
}

func TestAcksOneAndZeroAreDoneOnAppend(t *testing.T) {
	b := newBench(Config{})
	b.lead(2, 1) // below min ISR: that concerns acks=all only
	for i, acks := range []int16{1, 0} {
		b.produce(Token(i), acks, 1)
		if code := b.codeOf(t, Token(i)); code != None {
			t.Fatalf("acks=%d: code %d", acks, code)
		}
	}
	b.wantHW(t, 0) // but nothing is committed below min ISR
}

func TestProduceRefusedBeforeAppend(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*bench)
		acks    int16
		want    Code
	}{
		"acks 2":               {func(b *bench) { b.lead(1, 1, 2) }, 2, InvalidRequiredAcks},
		"no metadata":          {func(*bench) {}, -1, NotLeaderOrFollower},
		"follower":             {func(b *bench) { b.follow(5, 20) }, 1, NotLeaderOrFollower},
		"too few in sync":      {func(b *bench) { b.lead(2, 1) }, -1, NotEnoughReplicas},
		"min ISR above the RF": {func(b *bench) { b.lead(9, 1, 2) }, -1, NotEnoughReplicas},
		"log dir failed":       {func(b *bench) { b.lead(1, 1, 2); b.step(DirFailed{}) }, 1, KafkaStorageError},
		"removed":              {func(b *bench) { b.lead(1, 1, 2); b.step(Removed{}) }, 1, NotLeaderOrFollower},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(Config{})
			c.prepare(b)
			b.produce(1, c.acks, 5)
			if code := b.codeOf(t, 1); code != c.want || b.log.end != 0 {
				t.Fatalf("code %d, log end %d; want %d and nothing appended", code, b.log.end, c.want)
			}
		})
	}
}

func TestEffectiveMinISRIsAtMostTheReplicationFactor(t *testing.T) {
	b := newBench(Config{})
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []ident.NodeID{1}, ISR: []ident.NodeID{1}, MinISR: 3})
	b.produce(1, -1, 1)
	if code := b.codeOf(t, 1); code != None {
		t.Fatalf("code %d on a single replica with min ISR 3", code)
	}
}

func TestProduceTimesOutAndTheRecordsStay(t *testing.T) {
	b := newBench(Config{})
	b.lead(2, 1, 2)
	b.produce(1, -1, 10)
	b.wait(4999 * time.Millisecond)
	if len(b.out.Completed) != 0 {
		t.Fatal("completed early")
	}
	b.wait(2 * time.Millisecond)
	if code := b.codeOf(t, 1); code != RequestTimedOut || b.log.end != 10 {
		t.Fatalf("code %d, log end %d", code, b.log.end)
	}
}

func TestFallingUnderMinISRWhileWaitingTimesOut(t *testing.T) {
	b := newBench(Config{LagTimeMax: 2 * time.Second})
	b.lead(2, 1, 2)
	b.produce(1, -1, 10)
	b.wait(3500 * time.Millisecond)
	b.wantProposal(t, 1)
	b.accept()
	if b.wantHW(t, 0); len(b.out.Completed) != 0 { // frozen: min ISR 2, one in sync
		t.Fatalf("completed %+v", b.out.Completed)
	}
	b.wait(2 * time.Second)
	if code := b.codeOf(t, 1); code != RequestTimedOut {
		t.Fatalf("code %d", code)
	}
}

// An append that is reported late, or a duplicate that was committed long ago, is the case where the high watermark
// is there and the replicas are not.
func TestCommittedButUnderMinISRSaysSo(t *testing.T) {
	b := newBench(Config{})
	b.lead(2, 1, 2)
	b.produce(1, -1, 10)
	b.fetch(2, 10)
	var e Effects
	b.r.Step(b.now, Produce{Token: 2, Acks: -1, Timeout: time.Second}, &e)
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 5, PartitionEpoch: 21, Replicas: []ident.NodeID{1, 2, 3}, ISR: []ident.NodeID{1}, MinISR: 2})
	b.step(AppendDone{Token: 2, Base: 0, End: 10})
	if code := b.codeOf(t, 2); code != NotEnoughReplicasAfterAppend {
		t.Fatalf("code %d", code)
	}
}

func TestLosingLeadershipAnswersEverybody(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*bench)
		want Code
	}{
		"to another": {func(b *bench) { b.follow(6, 21) }, NotLeaderOrFollower},
		"to nobody": {func(b *bench) {
			b.step(MetadataChanged{Leader: -1, LeaderEpoch: 6, PartitionEpoch: 21, Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1}})
		}, NotLeaderOrFollower},
		"disk":    {func(b *bench) { b.step(DirFailed{}) }, KafkaStorageError},
		"removed": {func(b *bench) { b.step(Removed{}) }, NotLeaderOrFollower},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(Config{})
			b.lead(2, 1, 2)
			b.produce(1, -1, 10)
			var e Effects
			b.r.Step(b.now, Produce{Token: 2, Acks: -1, Timeout: time.Second}, &e) // with the executor
			b.step(ParkFetch{Fetch: Fetch{Token: 3, Replica: -1, LeaderEpoch: -1}, Seen: 0, Deadline: ident.Never})
			b.step(ParkFetch{Fetch: Fetch{Token: 4, Replica: 2, LeaderEpoch: 5, Offset: 10}, Seen: 10, Deadline: ident.Never})
			c.lose(b)
			if code := b.codeOf(t, 1); code != c.want {
				t.Fatalf("waiting produce: code %d", code)
			}
			if len(b.out.Wake) != 2 {
				t.Fatalf("woken %v", b.out.Wake)
			}
			b.step(AppendDone{Token: 2, Base: 10, End: 20})
			if code := b.codeOf(t, 2); code != c.want {
				t.Fatalf("produce out for append: code %d", code)
			}
			if b.r.NextDeadline() != ident.Never {
				t.Fatalf("still waits for %d", b.r.NextDeadline())
			}
		})
	}
}

func TestReelectionKeepsProducesAndForgetsPositions(t *testing.T) {
	b := newBench(Config{})
	b.lead(2, 1, 2)
	b.produce(1, -1, 10)
	b.fetch(2, 9)
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 7, PartitionEpoch: 23, Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1, 2}, MinISR: 2})
	if len(b.out.Completed) != 0 || b.r.follower(2).end != -1 {
		t.Fatalf("completed %v, follower's end %d", b.out.Completed, b.r.follower(2).end)
	}
	if b.r.EpochStart() != 10 {
		t.Fatalf("epoch starts at %d", b.r.EpochStart())
	}
	if b.fetch(2, 10); b.codeOf(t, 1) != None {
		t.Fatal("not acknowledged in the new epoch")
	}
}

func TestFlushAlwaysCountsWhatIsFlushed(t *testing.T) {
	b := newBench(Config{FlushAlways: true})
	b.lead(1, 1, 2)
	b.produce(1, 1, 10)
	b.produce(2, -1, 10)
	b.fetch(2, 20)
	if b.wantHW(t, 0); !b.r.acksPending(2) {
		t.Fatal("acknowledged without a flush")
	}
	b.log.flushed = 10
	if b.step(FlushDone{}); b.codeOf(t, 1) != None || !b.r.acksPending(1) {
		t.Fatalf("after flush to 10: %+v", b.out.Completed)
	}
	b.log.flushed = 20
	if b.step(FlushDone{}); b.codeOf(t, 2) != None {
		t.Fatal("after flush to 20")
	}
}

func (r *Replica) acksPending(n int) bool { return r.produces.size() == n }

func TestHighWatermarkMovesOnAnswerWithoutTraffic(t *testing.T) {
	b := newBench(Config{LagTimeMax: 2 * time.Second})
	b.lead(1, 1, 2)
	b.produce(1, -1, 10)
	b.wait(3500 * time.Millisecond)
	if b.accept(); b.codeOf(t, 1) != None {
		t.Fatal("not completed by the accepted shrink")
	}
	b.wantHW(t, 10)
}

func TestPendingExpansionHoldsTheHighWatermark(t *testing.T) {
	b := newBench(Config{LagTimeMax: 2 * time.Second})
	b.lead(1, 1, 2)
	b.fetch(2, 0)
	b.fetch(3, 0) // proposed, no answer yet
	b.produce(1, -1, 10)
	b.fetch(2, 10)
	b.wait(4 * time.Second) // 3 is not caught up any more, but may be in the ISR by now
	b.wantHW(t, 0)
	b.refuse(IneligibleReplica)
	b.wantHW(t, 10)
}

func TestMinISRChangeIsTakenFromTheSameMetadata(t *testing.T) {
	b := newBench(Config{})
	b.lead(2, 1)
	b.produce(1, 1, 10)
	b.wantHW(t, 0)
	b.lead(1, 1)
	b.wantHW(t, 10)
}

func TestLatestOffsetWaitsForTheEpochStart(t *testing.T) { // redpanda#10885
	b := newBench(Config{})
	b.log.appendTo(4, 50)
	if _, code := b.r.LatestOffset(); code != NotLeaderOrFollower {
		t.Fatalf("no leader: code %d", code)
	}
	b.lead(2, 1, 2)
	if _, code := b.r.LatestOffset(); code != OffsetNotAvailable {
		t.Fatalf("code %d", code)
	}
	b.fetch(2, 50)
	if o, code := b.r.LatestOffset(); o != 50 || code != None {
		t.Fatalf("latest %d, code %d", o, code)
	}
}

func TestHighWatermarkStandsWhileTheISRIsBelowItsMinimum(t *testing.T) { // KAFKA-15583
	b := newBench(Config{})
	b.lead(2, 1)
	b.produce(1, 1, 10)
	if b.wantHW(t, 0); b.codeOf(t, 1) != None {
		t.Fatal("acks=1 is not done on append")
	}
	b.step(Fetch{Token: 7, Replica: -1, LeaderEpoch: -1, LastFetchedEpoch: -1})
	if a := b.out.Answers[0]; a.Below != 0 {
		t.Fatalf("a consumer reads %+v", a)
	}
	b.step(ParkFetch{Fetch: Fetch{Token: 7, Replica: -1, LeaderEpoch: -1}, Deadline: ident.Never})
	b.fetch(2, 10) // it joins
	if b.wantHW(t, 0); b.out.Proposal == nil {
		t.Fatal("nobody is proposed")
	}
	b.accept()
	if b.wantHW(t, 10); len(b.out.Wake) != 1 {
		t.Fatalf("woken %v", b.out.Wake)
	}
}
