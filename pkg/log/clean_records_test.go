package log

import (
	"bytes"
	"maps"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

func TestTombstoneStaysForItsRetentionAfterTheRunThatRemovedWhatItDeletes(t *testing.T) {
	l, _ := newLog(t, Config{Settings: cleanSettings(500)})
	add := func(key, value string) {
		put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte(key), []byte(value)).Append([]byte(key+"'"), []byte(value)))
		mustRoll(t, l)
	}
	add("a", "1")
	put(t, l, batch.NewBuilder(0, -1, 1000).AppendAt(1003, []byte("a"), nil).AppendAt(1001, []byte("b"), []byte("2")))
	mustRoll(t, l)
	add("c", "3")
	compact(t, l, 10_000)
	if got := keysAt(t, l); got[0] != "" || got[2] != "a=" || got[1] != "a'=1" {
		t.Fatalf("%v", got)
	}
	at, ok, err := l.OffsetForTimestamp(1002) // timestamps are what they were
	if err != nil || !ok || at.Offset != 2 || at.Timestamp != 1003 {
		t.Fatalf("%+v, %v, %v", at, ok, err)
	}
	add("d", "4")
	compact(t, l, 10_499)
	if got := keysAt(t, l); got[2] != "a=" {
		t.Fatalf("%v", got)
	}
	add("e", "5")
	compact(t, l, 10_500)
	if got := keysAt(t, l); got[2] != "" || got[3] != "b=2" {
		t.Fatalf("%v", got)
	}
}

// A horizon that came with a batch from the leader does not let a follower drop the tombstone in the run that first
// removes what it deletes.
func TestTombstoneOfTheDirtySectionStays(t *testing.T) {
	leader, _ := newLog(t, Config{Settings: cleanSettings(500)})
	put(t, leader, batch.NewBuilder(0, -1, 1000).Append([]byte("a"), nil).Append([]byte("b"), []byte("1")))
	mustRoll(t, leader)
	put(t, leader, batch.NewBuilder(0, -1, 1000).Append([]byte("c"), []byte("1")))
	mustRoll(t, leader)
	compact(t, leader, 2000)
	l, _ := newLog(t, Config{Settings: cleanSettings(500)})
	if _, err := l.AppendAsFollower(readAll(t, leader, 1<<20)); err != nil {
		t.Fatal(err)
	}
	mustRoll(t, l)
	compact(t, l, 5000)
	if got := keysAt(t, l); got[0] != "a=" {
		t.Fatalf("%v", got)
	}
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("c"), []byte("2")))
	mustRoll(t, l)
	compact(t, l, 5000)
	if got := keysAt(t, l); len(got) != 2 || got[0] != "" {
		t.Fatalf("%v", got)
	}
}

func TestEmptiedBatchesHaveNoTimestampAndDoNotHoldUpRetention(t *testing.T) {
	l, _ := newLog(t, Config{Settings: cleanSettings(0)})
	put(t, l, batch.NewBuilder(0, -1, 9000).Append([]byte("k"), bytes.Repeat([]byte("v"), 1400)))
	mustRoll(t, l)
	put(t, l, batch.NewBuilder(0, -1, 5000).Append([]byte("k"), bytes.Repeat([]byte("v"), 1400)))
	mustRoll(t, l)
	compact(t, l, 10_000)
	if got := l.Segments(); len(got) != 3 {
		t.Fatalf("segments %v", got)
	}
	if at, ok, err := l.MaxTimestamp(l.EndOffset()); err != nil || !ok || at.Offset != 1 || at.Timestamp != 5000 {
		t.Fatalf("%+v, %v, %v", at, ok, err)
	}
	if n, _, err := l.DeleteOldSegments(6000, Limits{Ms: 2000, Bytes: -1}, 2); n != 1 || err != nil {
		t.Fatalf("%d segments dropped, %v", n, err)
	}
}

// An emptied batch keeps the largest timestamp of what was in it, which no entry of the time index tells of.
func TestTimeLookUpPassesOverAnEmptiedBatch(t *testing.T) {
	settings := cleanSettings(0)
	settings.SegmentBytes, settings.IndexIntervalBytes = 1<<20, 600
	l, _ := newLog(t, Config{Settings: settings})
	put(t, l, batch.NewBuilder(0, -1, 9000).Producer(7, 0, 0).Append([]byte("k"), []byte("v"))) // its producer's last
	mustRoll(t, l)
	put(t, l, batch.NewBuilder(0, -1, 4000).Append([]byte("k"), bytes.Repeat([]byte("v"), 1000)))
	put(t, l, batch.NewBuilder(0, -1, 3000).Append([]byte("c"), []byte("v")))
	put(t, l, batch.NewBuilder(0, -1, 5000).Append([]byte("d"), []byte("v")))
	mustRoll(t, l)
	compact(t, l, 10_000)
	if got := l.Segments(); len(got) != 2 {
		t.Fatalf("segments %v, want the two in one", got)
	}
	for ts, want := range map[int64]ident.Offset{3500: 1, 4000: 1, 4500: 3, 5000: 3} {
		if at, ok, err := l.OffsetForTimestamp(ts); err != nil || !ok || at.Offset != want {
			t.Errorf("time %d: %+v, %v, %v; want offset %d", ts, at, ok, err, want)
		}
	}
	if at, ok, err := l.OffsetForTimestamp(5001); err != nil || ok {
		t.Errorf("time 5001: %+v, %v, %v", at, ok, err)
	}
}

func TestProducerSurvivesTheLossOfItsRecords(t *testing.T) {
	l, m := newLog(t, Config{Settings: cleanSettings(0)})
	put(t, l, batch.NewBuilder(0, -1, 1000).Producer(7, 2, 0).Append([]byte("k"), []byte("1")).Append([]byte("k"), []byte("2")))
	mustRoll(t, l)
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("k"), []byte("3")))
	mustRoll(t, l)
	compact(t, l, 2000)
	if got := keysAt(t, l); len(got) != 1 || got[2] != "k=3" {
		t.Fatalf("%v", got)
	}
	again, _ := mustOpen(t, m.CrashClone(nil, 100), Config{Settings: cleanSettings(0)})
	again.producers.snapshots = nil // from the batches alone
	if err := again.rebuildProducers(nil); err != nil {
		t.Fatal(err)
	}
	dup := batch.NewBuilder(0, -1, 1000).Producer(7, 2, 0).Append([]byte("k"), nil).Append([]byte("k"), nil).Build()
	if info, err := again.AppendAsLeader(dup, 1); err != nil || !info.Duplicate || info.First != 0 || info.Last != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
}

// The records of transactions remove nothing, since they may be aborted; their markers stay.
func TestTransactionsOfKafkaStayReadable(t *testing.T) {
	l, _ := newLog(t, Config{Settings: cleanSettings(0)})
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("a"), []byte("old")).Append([]byte("b"), []byte("old")))
	put(t, l, batch.NewBuilder(0, -1, 1000).Producer(9, 0, 0).Transactional().Append([]byte("a"), []byte("in")).Append([]byte("b"), nil))
	put(t, l, batch.NewBuilder(0, -1, 1000).Producer(9, 0, -1).Transactional().AppendControl(batch.Abort, []byte{0, 0, 0, 0, 0, 1}))
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("c"), []byte("x")))
	mustRoll(t, l)
	compact(t, l, 2000)
	if got := keysAt(t, l); len(got) != 6 {
		t.Fatalf("%v", got)
	}
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("a"), []byte("new")).Append([]byte("b"), nil))
	mustRoll(t, l)
	compact(t, l, 3000)
	got := keysAt(t, l)
	if want := map[ident.Offset]string{4: got[4], 5: "c=x", 6: "a=new", 7: "b="}; !maps.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("d"), []byte("y")))
	mustRoll(t, l)
	compact(t, l, 9000)
	if got := keysAt(t, l); len(got) != 4 || got[7] != "" {
		t.Fatalf("%v", got)
	}
}

func TestKeylessRecordsGoAndUndecodableBatchesStay(t *testing.T) {
	l, _ := newLog(t, Config{Settings: cleanSettings(0)})
	put(t, l, batch.NewBuilder(0, -1, 1000).Append(nil, []byte("keyless")).Append([]byte("k"), []byte("v")))
	odd := batch.NewBuilder(0, -1, 1000).Append([]byte("k"), []byte("odd")).Build()
	odd[len(odd)-1] = 40 // headers that are not there
	if _, err := l.AppendAsLeader(rechecked(odd), 1); err != nil {
		t.Fatal(err)
	}
	put(t, l, batch.NewBuilder(0, -1, 1000).Append([]byte("k2"), []byte("v")))
	mustRoll(t, l)
	stats := compact(t, l, 2000).Stats
	if stats.Keyless != 1 || stats.Undecodable != 2 || stats.Removed != 1 {
		t.Fatalf("%+v", stats)
	}
	if !bytes.Contains(readAll(t, l, 1<<20), odd[batch.HeaderSize:]) {
		t.Fatal("the batch that can't be decoded is gone")
	}
}
