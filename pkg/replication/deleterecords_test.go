package replication

import (
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// leaderOfTen leads ten committed records that all three replicas have.
func leaderOfTen(t *testing.T) *bench {
	t.Helper()
	b := newBench(Config{})
	b.lead(1, 1, 2, 3)
	b.produce(1, -1, 10)
	b.fetchAt(2, 10, 0)
	b.fetchAt(3, 10, 0)
	b.wantHW(t, 10)
	return b
}

// fetchAt is fetch by a follower that tells where its log starts.
func (b *bench) fetchAt(id ident.NodeID, offset, start ident.Offset) FetchAnswer {
	b.step(Fetch{Token: 1000 + Token(id), Replica: id, BrokerEpoch: 100 + int64(id), LeaderEpoch: b.r.LeaderEpoch(), Offset: offset,
		LastFetchedEpoch: -1, LogStart: start})
	return b.out.Answers[0]
}

func (b *bench) deleteRecords(token Token, before ident.Offset) []Deletion {
	b.step(DeleteRecords{Token: token, Before: before, Timeout: 5 * time.Second})
	return b.out.Deleted
}

func wantDeletion(t *testing.T, got []Deletion, want Deletion) {
	t.Helper()
	if len(got) != 1 || got[0] != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestDeletionIsAnsweredWhenEveryLiveReplicaHasFollowed(t *testing.T) {
	b := leaderOfTen(t)
	if got := b.deleteRecords(9, 4); len(got) != 0 || b.log.start != 4 {
		t.Fatalf("answered %+v, log starts at %d", got, b.log.start)
	}
	if a := b.fetchAt(2, 10, 0); a.LogStart != 4 || !a.TellsLogStart(Fetch{Replica: 2, LogStart: 0}) {
		t.Fatalf("answer %+v", a)
	}
	b.fetchAt(2, 10, 4)
	if len(b.out.Deleted) != 0 {
		t.Fatalf("answered %+v before replica 3 has followed", b.out.Deleted)
	}
	b.fetchAt(3, 10, 4)
	wantDeletion(t, b.out.Deleted, Deletion{Token: 9, LowWatermark: 4})
	// The same again asks nobody; all is there.
	wantDeletion(t, b.deleteRecords(10, 3), Deletion{Token: 10, LowWatermark: 4})
}

func TestDeletionWaitsForNoFencedReplicaAndUpToItsTimeout(t *testing.T) {
	b := leaderOfTen(t)
	b.deleteRecords(9, ident.UnknownOffset) // the high watermark
	if b.log.start != 10 {
		t.Fatalf("log starts at %d", b.log.start)
	}
	b.fetchAt(2, 10, 10)
	b.cluster[3] = Broker{Epoch: 103, Fenced: true}
	b.step(Tick{})
	wantDeletion(t, b.out.Deleted, Deletion{Token: 9, LowWatermark: 10})

	b = leaderOfTen(t)
	b.deleteRecords(9, 6)
	b.fetchAt(2, 10, 6)
	b.wait(5*time.Second - 1)
	if len(b.out.Deleted) != 0 {
		t.Fatalf("answered %+v before the time was over", b.out.Deleted)
	}
	b.wait(time.Millisecond)
	wantDeletion(t, b.out.Deleted, Deletion{Token: 9, Code: RequestTimedOut, LowWatermark: 0})
	if b.log.start != 6 {
		t.Fatalf("log starts at %d", b.log.start)
	}
}

func TestDeletionIsRefusedWithKafkasCodes(t *testing.T) {
	b := leaderOfTen(t)
	b.produce(2, 1, 5) // not committed
	for before, code := range map[ident.Offset]Code{11: OffsetOutOfRange, -2: OffsetOutOfRange, 10: None} {
		b.step(DeleteRecords{Token: 9, Before: before})
		if code == None {
			code = RequestTimedOut // with no time to wait
		}
		if len(b.out.Deleted) != 1 || b.out.Deleted[0].Code != code {
			t.Errorf("before %d: %+v, want code %d", before, b.out.Deleted, code)
		}
	}
	b.follow(6, 30)
	wantDeletion(t, b.deleteRecords(9, 1), Deletion{Token: 9, Code: NotLeaderOrFollower, LowWatermark: -1})
	b.step(DirFailed{})
	wantDeletion(t, b.deleteRecords(9, 1), Deletion{Token: 9, Code: KafkaStorageError, LowWatermark: -1})
}

func TestDeletionWithoutFollowersIsDoneWhateverTheTimeout(t *testing.T) {
	b := newBench(Config{})
	b.step(MetadataChanged{Leader: 1, LeaderEpoch: 5, PartitionEpoch: 20, Replicas: []ident.NodeID{1}, ISR: []ident.NodeID{1}, MinISR: 1})
	b.produce(1, -1, 10)
	b.step(DeleteRecords{Token: 9, Before: 7})
	wantDeletion(t, b.out.Deleted, Deletion{Token: 9, LowWatermark: 7})
}

func TestLosingLeadershipAnswersDeletions(t *testing.T) {
	b := leaderOfTen(t)
	b.deleteRecords(9, 4)
	b.follow(6, 30)
	wantDeletion(t, b.out.Deleted, Deletion{Token: 9, Code: NotLeaderOrFollower, LowWatermark: -1})
}

func TestParkedFollowerHearsOfANewLogStartAtOnce(t *testing.T) {
	b := leaderOfTen(t)
	park := func(token Token, start ident.Offset) {
		f := Fetch{Token: token, Replica: 2, BrokerEpoch: 102, LeaderEpoch: 5, Offset: 10, LastFetchedEpoch: -1, LogStart: start}
		b.step(ParkFetch{Fetch: f, Seen: 10, Deadline: b.now + 100*second})
	}
	park(50, 0)
	b.step(ParkFetch{Fetch: Fetch{Token: 51, Replica: -1, Offset: 10, LeaderEpoch: -1, LogStart: -1}, Seen: 10, Deadline: b.now + 100*second})
	b.deleteRecords(9, 4)
	if len(b.out.Wake) != 1 || b.out.Wake[0] != 50 {
		t.Fatalf("woken %v, want the follower", b.out.Wake)
	}
	// One that was asked before the deletion and parks after it must not miss it.
	park(52, 0)
	if len(b.out.Wake) != 1 || b.out.Wake[0] != 52 {
		t.Fatalf("woken %v", b.out.Wake)
	}
	park(53, 4)
	if len(b.out.Wake) != 0 {
		t.Fatalf("woken %v though it knows", b.out.Wake)
	}
}
