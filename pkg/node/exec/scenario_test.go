package exec

import (
	"bytes"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/replication"
)

// KAFKA-7415: a leader that writes nothing leaves its epoch in the table, so that records of an epoch that was lost are
// found.
func TestElectionsWithoutWritesLeaveTheirEpochs(t *testing.T) {
	l, f := newRig(t, 1, false), newRig(t, 2, false)
	l.role(1, 3, 1, 2)
	f.role(1, 3, 1, 2)
	l.produce(1, records("a", "b").Build())
	pull(f, l)
	// The other led epoch 4 and wrote what nobody has; then this one was elected twice and wrote nothing.
	f.role(2, 4, 2)
	f.produce(1, records("lost").Build())
	l.role(1, 5, 1, 2)
	l.role(1, 6, 1, 2)
	if e, end, ok := l.Log().EpochEndOffset(4); l.Log().LatestEpoch() != 6 || !ok || e != 3 || end != 2 {
		t.Fatalf("latest epoch %d; up to epoch 4 the log ends at %d (epoch %d, %v)", l.Log().LatestEpoch(), end, e, ok)
	}
	f.role(1, 6, 1, 2)
	for range 4 {
		pull(f, l)
	}
	if f.Log().EndOffset() != 2 || !bytes.Equal(l.bytes(0), f.bytes(0)) {
		t.Fatalf("the follower's log ends at %d", f.Log().EndOffset())
	}
}

// KAFKA-15510: an empty answer takes nothing from what the next question is compared by.
func TestEmptyAnswerKeepsTheDivergenceCheck(t *testing.T) {
	l, f := newRig(t, 1, false), newRig(t, 2, false)
	l.role(1, 3, 1, 2)
	f.role(1, 3, 1, 2)
	l.produce(1, records("a").Build())
	for range 3 { // the last ones are empty
		pull(f, l)
		if asked, ok := f.NextFetch(); !ok || asked.LastFetchedEpoch != 3 {
			t.Fatalf("asks %+v, %v", asked, ok)
		}
	}
	other := newRig(t, 1, false)
	other.role(1, 2, 1, 2)
	other.produce(1, records("x", "y").Build())
	other.role(1, 4, 1, 2)
	f.role(1, 4, 1, 2)
	if res, ok := pull(f, other); !ok || res.Diverging == replication.NoEpochEnd {
		t.Fatalf("a leader of another history is taken for the same: %+v", res.FetchAnswer)
	}
}

// KAFKA-9196: what may be read ends at the high watermark also where a segment was sealed there.
func TestConsumerReadsNothingBeyondAHighWatermarkAtTheEndOfASegment(t *testing.T) {
	l, f := newRig(t, 1, false), newRig(t, 2, false)
	l.role(1, 3, 1, 2)
	f.role(1, 3, 1, 2)
	l.produce(1, records("a", "b").Build())
	pull(f, l)
	pull(f, l)
	if l.HighWatermark() != 2 {
		t.Fatalf("high watermark %d", l.HighWatermark())
	}
	if err := l.Log().Roll(); err != nil {
		t.Fatal(err)
	}
	l.produce(1, records("not committed").Build())
	for from, want := range map[ident.Offset]ident.Offset{0: 2, 2: 2} {
		res := l.Fetch(l.now, Fetch{MaxBytes: 1 << 20, MinOne: true, Fetch: replication.Fetch{
			Token: 1, Replica: -1, LeaderEpoch: -1, Offset: from, LastFetchedEpoch: -1,
		}})
		data, err := res.Records.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.Below != want || bytes.Contains(data, []byte("not committed")) || (len(data) > 0) != (from < want) {
			t.Errorf("from %d: up to %d, %d bytes", from, res.Below, len(data))
		}
		res.Records.Release()
		l.drain()
	}
}
