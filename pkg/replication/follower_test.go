package replication

import (
	"slices"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// answer is the response to what the replica asks now.
func (b *bench) answer(t *testing.T) FetchResponse {
	t.Helper()
	p, ok := b.r.NextFetch()
	if !ok {
		t.Fatal("the follower asks nothing")
	}
	return FetchResponse{LeaderEpoch: p.LeaderEpoch, Offset: p.Offset, LastFetchedEpoch: p.LastFetchedEpoch, HighWatermark: 0, Diverging: NoEpochEnd}
}

func TestFollowerAppendsAndFollowsTheHighWatermark(t *testing.T) {
	b := newBench(Config{})
	b.follow(5, 20)
	p, ok := b.r.NextFetch()
	if want := (FetchPosition{Leader: 2, LeaderEpoch: 5, LastFetchedEpoch: -1}); !ok || p != want {
		t.Fatalf("asks %+v, want %+v", p, want)
	}
	r := b.answer(t)
	r.HighWatermark = 25
	r.Batches = []Batch{{0, 10, 4}, {10, 20, 5}}
	b.step(r)
	if b.log.end != 20 {
		t.Fatalf("log end %d", b.log.end)
	}
	b.wantHW(t, 20)
	if p, _ = b.r.NextFetch(); p.Offset != 20 || p.LastFetchedEpoch != 5 {
		t.Fatalf("asks %+v", p)
	}
	r = b.answer(t) // empty: the last fetched epoch stays (KAFKA-15510), an older high watermark is no news
	r.HighWatermark = 3
	b.step(r)
	b.wantHW(t, 20)
	if p, _ = b.r.NextFetch(); p.LastFetchedEpoch != 5 {
		t.Fatalf("asks %+v", p)
	}
}

func TestResponseToAnotherQuestionIsIgnored(t *testing.T) {
	for name, change := range map[string]func(*FetchResponse){
		"another epoch":              func(r *FetchResponse) { r.LeaderEpoch = 4 },
		"another offset":             func(r *FetchResponse) { r.Offset = 3 },
		"another last fetched epoch": func(r *FetchResponse) { r.LastFetchedEpoch = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(Config{})
			b.follow(5, 20)
			r := b.answer(t)
			r.Batches, r.HighWatermark = []Batch{{0, 10, 4}}, 10
			change(&r)
			b.step(r)
			if b.log.end != 0 || b.r.HighWatermark() != 0 {
				t.Fatalf("log end %d, high watermark %d", b.log.end, b.r.HighWatermark())
			}
		})
	}
}

func TestBatchesOfALaterEpochAreDropped(t *testing.T) { // KAFKA-18723
	b := newBench(Config{})
	b.follow(5, 20)
	r := b.answer(t)
	r.Batches = []Batch{{0, 10, 5}, {10, 20, 7}, {20, 30, 5}}
	if b.step(r); b.log.end != 10 {
		t.Fatalf("log end %d, want only the batch of epoch 5", b.log.end)
	}
}

func TestDivergenceTruncatesBeforeAnythingElse(t *testing.T) {
	b := newBench(Config{})
	b.log.appendTo(3, 30)
	b.follow(5, 20)
	r := b.answer(t)
	r.Diverging, r.HighWatermark, r.Batches = EpochEnd{3, 20}, 30, []Batch{{30, 40, 5}}
	b.step(r)
	if b.log.end != 20 || b.r.HighWatermark() != 0 {
		t.Fatalf("log end %d, high watermark %d; want 20 and 0", b.log.end, b.r.HighWatermark())
	}
}

func TestFollowerFindsTheCommonPrefixInSeveralRounds(t *testing.T) { // KAFKA-6361, KIP-279
	b := newBench(Config{})
	b.log.appendTo(1, 10)
	b.log.appendTo(2, 20)
	b.log.appendTo(4, 25)
	leader := &fakeLog{}
	leader.appendTo(1, 10)
	leader.appendTo(3, 15)
	leader.epochs.Assign(5, 15)
	b.follow(5, 20)
	rounds := 0
	for ; rounds < 5; rounds++ {
		r := b.answer(t)
		e, end, ok := leader.EpochEndOffset(r.LastFetchedEpoch)
		if !ok || e == r.LastFetchedEpoch && end >= r.Offset {
			break
		}
		r.Diverging = EpochEnd{e, end}
		b.step(r)
	}
	if p, _ := b.r.NextFetch(); p.Offset != 10 || p.LastFetchedEpoch != 1 {
		t.Fatalf("after %d rounds it asks %+v, want offset 10 of epoch 1", rounds, p)
	}
}

func TestEmptyEpochsAtTheSameEndConverge(t *testing.T) { // KAFKA-10706
	b := newBench(Config{})
	b.log.appendTo(1, 10)
	b.log.epochs.Assign(4, 10) // led epoch 4 without a record
	b.follow(5, 20)
	r := b.answer(t)
	if r.LastFetchedEpoch != 4 {
		t.Fatalf("asks with %d", r.LastFetchedEpoch)
	}
	r.Diverging = EpochEnd{1, 10}
	b.step(r)
	if p, _ := b.r.NextFetch(); p.Offset != 10 || p.LastFetchedEpoch != 1 {
		t.Fatalf("asks %+v", p)
	}
}

func TestOutOfRange(t *testing.T) {
	for name, c := range map[string]struct {
		leaderStart, leaderEnd ident.Offset
		start, end, hw         ident.Offset
		reset                  bool
	}{
		"leader's end is below: unclean election": {0, 20, 5, 20, 20, false},
		"leader's end is below this start":        {1, 3, 1, 1, 1, false},
		"leader's start is above: replica reset":  {100, 200, 100, 100, 100, true},
		"in range by now":                         {10, 200, 5, 30, 25, false},
		"leader does not say":                     {-1, -1, 5, 30, 25, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(Config{})
			b.log.appendTo(3, 30)
			b.log.start = 5
			b.r = New(Config{Self: 1, HighWatermark: 25}, b.log, b.cluster)
			b.follow(5, 20)
			r := b.answer(t)
			r.Code, r.LeaderLogStart, r.Diverging, r.HighWatermark = OffsetOutOfRange, c.leaderStart, EpochEnd{4, c.leaderEnd}, -1
			b.step(r)
			if b.log.start != c.start || b.log.end != c.end || b.r.HighWatermark() != c.hw {
				t.Fatalf("start %d, end %d, high watermark %d; want %d, %d, %d", b.log.start, b.log.end, b.r.HighWatermark(), c.start, c.end, c.hw)
			}
			reset := slices.ContainsFunc(b.out.Facts, func(f Fact) bool { return f.Kind == ReplicaReset && f.From == 30 && f.To == 100 })
			if reset != c.reset {
				t.Fatalf("facts %+v", b.out.Facts)
			}
			if _, asks := b.r.NextFetch(); asks != (c.end != 30) {
				t.Fatalf("asks again at once: %v", asks)
			}
		})
	}
}

func TestRecordsCutOffBelowTheHighWatermarkAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		start, end ident.Offset
		told       bool
	}{
		"records below it":                      {5, 30, true},
		"all below it was deleted":              {25, 30, false},
		"an empty log that begins further down": {25, 25, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(Config{})
			b.log.appendTo(3, c.end)
			b.log.start = c.start
			b.r = New(Config{Self: 1, HighWatermark: 25}, b.log, b.cluster)
			b.follow(5, 20)
			r := b.answer(t)
			r.Code, r.LeaderLogStart, r.Diverging, r.HighWatermark = OffsetOutOfRange, 10, EpochEnd{4, 20}, -1
			b.step(r)
			told := slices.ContainsFunc(b.out.Facts, func(f Fact) bool { return f.Kind == TruncatedBelowHW && f.From == 25 })
			if told != c.told || b.log.end > 20 {
				t.Fatalf("log ends at %d, facts %+v", b.log.end, b.out.Facts)
			}
		})
	}
}

func TestFencedFollowerWaitsForMetadataAndOthersBackOff(t *testing.T) {
	b := newBench(Config{})
	b.follow(5, 20)
	r := b.answer(t)
	r.Code = FencedLeaderEpoch
	b.step(r)
	b.wait(time.Minute)
	if _, ok := b.r.NextFetch(); ok {
		t.Fatal("a fenced follower asks again in the same epoch")
	}
	b.follow(6, 21)
	for _, code := range []Code{UnknownLeaderEpoch, NotLeaderOrFollower, KafkaStorageError, NetworkException, UnknownTopicID} {
		r = b.answer(t)
		r.Code = code
		b.step(r)
		if _, ok := b.r.NextFetch(); ok {
			t.Fatalf("code %d: asks again at once", code)
		}
		if b.wait(time.Second); !b.out.Fetcher {
			t.Fatalf("code %d: does not say that it asks again", code)
		}
	}
}

func TestNewEpochRunsTheDivergenceCheckAgain(t *testing.T) { // KAFKA-7164
	b := newBench(Config{})
	b.log.appendTo(3, 30)
	b.follow(5, 20)
	late := b.answer(t)
	b.follow(7, 22) // same leader, epoch 6 missed
	late.Batches = []Batch{{30, 40, 5}}
	if b.step(late); b.log.end != 30 {
		t.Fatal("used a response of the epoch before")
	}
	if p, _ := b.r.NextFetch(); p.LeaderEpoch != 7 || p.LastFetchedEpoch != 3 {
		t.Fatalf("asks %+v", p)
	}
}

func TestFollowerRaisesItsLogStartBelowTheHighWatermarkOnly(t *testing.T) {
	b := newBench(Config{})
	b.follow(5, 20)
	r := b.answer(t)
	r.Batches, r.HighWatermark, r.LeaderLogStart = []Batch{{0, 10, 5}}, 10, 7
	if b.step(r); b.log.start != 7 {
		t.Fatalf("log start %d", b.log.start)
	}
	r = b.answer(t)
	r.Batches, r.HighWatermark, r.LeaderLogStart = []Batch{{10, 20, 5}}, 10, 15
	if b.step(r); b.log.start != 7 {
		t.Fatalf("log start %d beyond the high watermark 10", b.log.start)
	}
}

func TestFlushAlwaysFollowerAsksAfterTheFlush(t *testing.T) {
	b := newBench(Config{FlushAlways: true})
	b.follow(5, 20)
	r := b.answer(t)
	r.Batches = []Batch{{0, 10, 5}}
	if b.step(r); !b.out.Flush {
		t.Fatal("wants no flush")
	}
	if p, ok := b.r.NextFetch(); ok {
		t.Fatalf("vouches for %d before the flush", p.Offset)
	}
	b.log.flushed = 10
	b.step(FlushDone{})
	if p, ok := b.r.NextFetch(); !ok || p.Offset != 10 || !b.out.Fetcher {
		t.Fatalf("asks %+v, %v", p, ok)
	}
}

func TestRefusedBatchesBackOff(t *testing.T) {
	b := newBench(Config{})
	b.follow(5, 20)
	r := b.answer(t)
	r.Batches = []Batch{{0, 10, 5}}
	var e Effects
	b.r.Step(b.now, r, &e)
	b.step(FetchedRefused{})
	if _, ok := b.r.NextFetch(); ok {
		t.Fatal("asks again at once")
	}
	b.wait(time.Second)
	b.answer(t)
}

func TestStaleMetadataIsIgnored(t *testing.T) {
	b := newBench(Config{})
	b.follow(5, 20)
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 4, PartitionEpoch: 25, Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1}})
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 6, PartitionEpoch: 19, Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1}})
	if b.r.Role() != Follower || b.r.LeaderEpoch() != 5 {
		t.Fatalf("role %v, epoch %d", b.r.Role(), b.r.LeaderEpoch())
	}
}

func TestFailedReplicaFollowsEpochsAndAnswersStorageError(t *testing.T) {
	b := newBench(Config{})
	b.follow(5, 20)
	b.step(DirFailed{})
	b.lead(1, 1, 2)
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 6, PartitionEpoch: 21, Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1}})
	if a := b.fetch(2, 0); b.r.Role() != Failed || a.Code != KafkaStorageError {
		t.Fatalf("role %v, code %d", b.r.Role(), a.Code)
	}
	if _, code := b.r.LatestOffset(); code != KafkaStorageError {
		t.Fatalf("latest offset: code %d", code)
	}
}

func TestHistoryBelowTheLeadersLogStartIsNotTrusted(t *testing.T) {
	// The leader's epoch 5 began at 43; retention has moved its log start to 45, so it can't tell any more.
	leader := newBench(Config{HighWatermark: 45})
	leader.log.appendTo(3, 43)
	leader.log.appendTo(5, 60)
	leader.log.start = 45
	leader.log.epochs.TruncateFromStart(45)
	leader.r = New(Config{Self: 1, HighWatermark: 45}, leader.log, leader.cluster)
	leader.lead(1, 1)
	for _, end := range []ident.Offset{52, 45} {
		f := Fetch{Replica: 2, BrokerEpoch: 102, LeaderEpoch: 5, Offset: end, LastFetchedEpoch: 3}
		if leader.step(f); leader.out.Answers[0].Diverging != (EpochEnd{3, 45}) || leader.out.Answers[0].LogStart != 45 {
			t.Fatalf("follower at %d: %+v", end, leader.out.Answers[0])
		}
		f.Replica = -1 // a consumer has read what was committed, and may go on where the log begins
		if leader.step(f); end == 45 && leader.out.Answers[0].Diverging != NoEpochEnd {
			t.Fatalf("consumer at %d: %+v", end, leader.out.Answers[0])
		}
		b := newBench(Config{})
		b.log.appendTo(3, end) // 43 and 44 are of another branch
		b.follow(5, 20)
		r := b.answer(t)
		r.Diverging, r.LeaderLogStart = EpochEnd{3, 45}, 45
		b.step(r)
		if b.log.start != 45 || b.log.end != 45 || b.r.HighWatermark() != 45 {
			t.Fatalf("log of %d: now %d to %d, high watermark %d", end, b.log.start, b.log.end, b.r.HighWatermark())
		}
		if p, ok := b.r.NextFetch(); !ok || p.Offset != 45 || p.LastFetchedEpoch != -1 {
			t.Fatalf("then asks %+v", p)
		}
	}
}

func TestFollowerThatIsAheadOfItsLeaderAsksAgainSoon(t *testing.T) {
	for _, code := range []Code{UnknownLeaderEpoch, NotLeaderOrFollower, UnknownTopicID} {
		b := newBench(Config{})
		b.follow(5, 20)
		var pauses []time.Duration
		ask := func() { // until it asks again
			r := b.answer(t)
			r.Code = code
			b.step(r)
			next := b.r.NextDeadline()
			pauses = append(pauses, next.Sub(b.now))
			b.now = next
			b.step(Tick{})
		}
		for range 9 {
			ask()
		}
		ms := time.Millisecond
		want := []time.Duration{20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, time.Second, time.Second, time.Second}
		if !slices.Equal(pauses, want) {
			t.Fatalf("code %d: pauses %v, want %v", code, pauses, want)
		}
		b.step(b.answer(t)) // it leads by now
		pauses = nil
		if ask(); pauses[0] != 20*ms {
			t.Fatalf("code %d: pause %s after a leader that answered", code, pauses[0])
		}
	}
}
