package replication

import (
	"slices"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

func TestFetchAnswers(t *testing.T) {
	b := newBench(Config{})
	b.log.appendTo(3, 40)
	b.log.start = 10
	b.log.epochs.TruncateFromStart(10)
	b.lead(2, 1, 2)
	b.produce(1, 1, 20) // 10..40 of epoch 3, 40..60 of epoch 5
	b.fetch(2, 45)
	for _, c := range []struct {
		name  string
		f     Fetch
		code  Code
		below ident.Offset
		div   EpochEnd
	}{
		{"follower reads to the end", Fetch{Replica: 2, LeaderEpoch: 5, Offset: 45, LastFetchedEpoch: 5}, None, 60, NoEpochEnd},
		{"consumer reads to the high watermark", Fetch{Replica: -1, LeaderEpoch: -1, Offset: 10, LastFetchedEpoch: -1}, None, 45, NoEpochEnd},
		{"consumer above it gets nothing", Fetch{Replica: -1, LeaderEpoch: 5, Offset: 50, LastFetchedEpoch: -1}, None, 50, NoEpochEnd},
		{"old epoch", Fetch{Replica: 2, LeaderEpoch: 4, Offset: 45, LastFetchedEpoch: -1}, FencedLeaderEpoch, 45, NoEpochEnd},
		{"future epoch", Fetch{Replica: 2, LeaderEpoch: 6, Offset: 45, LastFetchedEpoch: -1}, UnknownLeaderEpoch, 45, NoEpochEnd},
		{"not assigned", Fetch{Replica: 9, LeaderEpoch: 5, Offset: 45, LastFetchedEpoch: -1}, UnknownLeaderEpoch, 45, NoEpochEnd},
		{"not assigned, no epoch", Fetch{Replica: 9, LeaderEpoch: -1, Offset: 45, LastFetchedEpoch: -1}, NotLeaderOrFollower, 45, NoEpochEnd},
		{"below the start", Fetch{Replica: 2, LeaderEpoch: 5, Offset: 9, LastFetchedEpoch: 3}, OffsetOutOfRange, 9, EpochEnd{5, 60}},
		{"beyond the end", Fetch{Replica: -1, LeaderEpoch: -1, Offset: 61, LastFetchedEpoch: -1}, OffsetOutOfRange, 61, EpochEnd{5, 60}},
		{"epoch nobody has", Fetch{Replica: 2, LeaderEpoch: 5, Offset: 45, LastFetchedEpoch: 8}, OffsetOutOfRange, 45, EpochEnd{5, 60}},
		{"longer in an old epoch", Fetch{Replica: 2, LeaderEpoch: 5, Offset: 45, LastFetchedEpoch: 3}, None, 45, EpochEnd{3, 40}},
		{"an epoch in between", Fetch{Replica: 2, LeaderEpoch: 5, Offset: 40, LastFetchedEpoch: 4}, None, 40, EpochEnd{3, 40}},
	} {
		before := *b.r.follower(2)
		c.f.Token, c.f.BrokerEpoch = 77, 102
		b.step(c.f)
		a := b.out.Answers[0]
		if a.Token != 77 || a.Code != c.code || a.Below != c.below || a.Diverging != c.div {
			t.Errorf("%s: %+v", c.name, a)
		}
		if (c.code != None || c.div != NoEpochEnd) && *b.r.follower(2) != before {
			t.Errorf("%s: changed the follower's progress", c.name)
		}
	}
}

func TestParkedFollowerIsWokenByAnAppendAndConsumerByTheHighWatermark(t *testing.T) {
	b := newBench(Config{})
	b.lead(2, 1, 2)
	follower := Fetch{Token: 1, Replica: 2, BrokerEpoch: 102, LeaderEpoch: 5, LastFetchedEpoch: -1}
	consumer := Fetch{Token: 2, Replica: -1, LeaderEpoch: -1, LastFetchedEpoch: -1}
	b.fetch(2, 0)
	b.step(ParkFetch{Fetch: follower, Seen: 0, Deadline: ident.Never})
	b.step(ParkFetch{Fetch: consumer, Seen: 0, Deadline: ident.Never})
	b.produce(9, -1, 10)
	if !slices.Equal(b.out.Wake, []Token{1}) {
		t.Fatalf("append woke %v", b.out.Wake)
	}
	progress := *b.r.follower(2)
	follower.Again = true
	if b.step(follower); b.out.Answers[0].Below != 10 || *b.r.follower(2) != progress {
		t.Fatal("evaluating again must read more and count as no progress")
	}
	if b.fetch(2, 10); !slices.Equal(b.out.Wake, []Token{2}) {
		t.Fatalf("high watermark woke %v", b.out.Wake)
	}
}

func TestParkingLateWakesAtOnce(t *testing.T) {
	b := newBench(Config{})
	b.lead(1, 1, 2)
	b.produce(9, 1, 10)
	b.step(ParkFetch{Fetch: Fetch{Token: 1, Replica: 2, LeaderEpoch: 5}, Seen: 0, Deadline: ident.Never})
	if !slices.Equal(b.out.Wake, []Token{1}) {
		t.Fatalf("woken %v: the append between answer and parking is missed", b.out.Wake)
	}
	b.step(ParkFetch{Fetch: Fetch{Token: 2, Replica: 2, LeaderEpoch: 4, Offset: 10}, Seen: 10, Deadline: ident.Never})
	if !slices.Equal(b.out.Wake, []Token{2}) {
		t.Fatalf("woken %v: the epoch between answer and parking is missed", b.out.Wake)
	}
}

func TestParkedFetchEndsAtItsDeadlineUnlessUnparked(t *testing.T) {
	b := newBench(Config{})
	b.lead(1, 1)
	for i := range Token(3) {
		b.step(ParkFetch{Fetch: Fetch{Token: i, Replica: -1, LeaderEpoch: -1}, Seen: 0, Deadline: b.now + second/2})
	}
	b.step(UnparkFetch{Token: 1})
	b.wait(499 * time.Millisecond)
	if len(b.out.Wake) != 0 {
		t.Fatalf("woken early: %v", b.out.Wake)
	}
	b.wait(time.Millisecond)
	if !slices.Equal(b.out.Wake, []Token{0, 2}) {
		t.Fatalf("woken %v", b.out.Wake)
	}
}

func TestEpochEnd(t *testing.T) {
	b := newBench(Config{})
	b.log.appendTo(3, 40)
	b.lead(1, 1)
	for _, c := range []struct {
		asked ident.Epoch
		want  EpochEnd
	}{{-1, NoEpochEnd}, {3, EpochEnd{3, 40}}, {4, EpochEnd{3, 40}}, {5, EpochEnd{5, 40}}, {6, NoEpochEnd}} {
		if got, code := b.r.EpochEnd(5, c.asked); got != c.want || code != None {
			t.Errorf("epoch %d: %v, code %d", c.asked, got, code)
		}
	}
	if _, code := b.r.EpochEnd(4, 3); code != FencedLeaderEpoch {
		t.Errorf("old leader epoch: code %d", code)
	}
}
