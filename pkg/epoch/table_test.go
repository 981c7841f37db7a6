package epoch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/ident"
)

func table(t *testing.T, entries ...Entry) *Table {
	t.Helper()
	tab, err := New(entries)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func TestNewRefusesEntriesThatDoNotRise(t *testing.T) {
	for _, entries := range [][]Entry{{{1, 0}, {1, 5}}, {{1, 5}, {2, 5}}, {{2, 0}, {1, 5}}, {{-1, 0}}, {{0, -1}}} {
		if _, err := New(entries); err == nil {
			t.Errorf("%v accepted", entries)
		}
	}
}

func TestEndOffsetForAnswersAsKafka(t *testing.T) {
	tab := table(t, Entry{2, 10}, Entry{4, 20}, Entry{7, 35})
	for _, c := range []struct {
		asked, epoch ident.Epoch
		end          ident.Offset
		ok           bool
	}{
		{7, 7, 50, true},   // the latest ends where the log does
		{8, -1, -1, false}, // the future
		{-1, -1, -1, false},
		{4, 4, 35, true},
		{6, 4, 35, true}, // a gap: the epoch before it
		{3, 2, 20, true},
		{1, 1, 10, true}, // older than all: ends where the log's first begins
	} {
		e, end, ok := tab.EndOffsetFor(c.asked, 50)
		if e != c.epoch || end != c.end || ok != c.ok {
			t.Errorf("EndOffsetFor(%d) = %d, %d, %v; want %d, %d, %v", c.asked, e, end, ok, c.epoch, c.end, c.ok)
		}
	}
	if _, _, ok := new(Table).EndOffsetFor(0, 10); ok {
		t.Error("an empty table answered")
	}
}

func TestAssignDropsWhatContradictsIt(t *testing.T) {
	tab := table(t, Entry{1, 0}, Entry{2, 10}, Entry{3, 20})
	if tab.Assign(3, 25) {
		t.Error("an epoch that is known moved")
	}
	if !tab.Assign(5, 10) {
		t.Error("a new epoch changed nothing")
	}
	if diff := cmp.Diff([]Entry{{1, 0}, {5, 10}}, tab.Entries()); diff != "" {
		t.Error(diff)
	}
	tab.Assign(4, 30)
	if diff := cmp.Diff([]Entry{{1, 0}, {4, 30}}, tab.Entries()); diff != "" {
		t.Error(diff)
	}
	if tab.Assign(-1, 40) {
		t.Error("no epoch was assigned")
	}
}

func TestTruncationFromBothEnds(t *testing.T) {
	tab := table(t, Entry{0, 0}, Entry{2, 10}, Entry{3, 20})
	if !tab.TruncateFromEnd(20) || tab.TruncateFromEnd(11) {
		t.Error("an epoch without a record left must go, one with records stay")
	}
	if !tab.TruncateFromStart(5) {
		t.Error("the covering epoch must be moved to the start")
	}
	if diff := cmp.Diff([]Entry{{0, 5}, {2, 10}}, tab.Entries()); diff != "" {
		t.Error(diff)
	}
	if !tab.TruncateFromStart(50) {
		t.Error("all but the last must go")
	}
	if diff := cmp.Diff([]Entry{{2, 50}}, tab.Entries()); diff != "" {
		t.Error(diff)
	}
	if e, ok := tab.EpochAt(49); ok {
		t.Errorf("epoch %d before the start", e)
	}
	if e, ok := tab.EpochAt(60); !ok || e != 2 {
		t.Errorf("EpochAt(60) = %d, %v", e, ok)
	}
}

// A log is here the list of its records' epochs: record i was written in epoch log[i].
func tableOf(log []ident.Epoch) *Table {
	var t Table
	for i, e := range log {
		t.Assign(e, ident.Offset(i))
	}
	return &t
}

func drawLog(t *rapid.T, name string) []ident.Epoch {
	var log []ident.Epoch
	e := ident.Epoch(0)
	for _, step := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 30).Draw(t, name) {
		e += ident.Epoch(step)
		log = append(log, e)
	}
	return log
}

func TestEndOffsetForEqualsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog(t, "log")
		tab := tableOf(log)
		asked := ident.Epoch(rapid.IntRange(-1, 70).Draw(t, "asked"))
		e, end, ok := tab.EndOffsetFor(asked, ident.Offset(len(log)))
		wantOK := len(log) > 0 && asked >= 0 && asked <= log[len(log)-1]
		if ok != wantOK {
			t.Fatalf("ok = %v for %d in %v", ok, asked, log)
		}
		if !ok {
			return
		}
		wantEnd, wantEpoch := ident.Offset(0), asked
		for i, have := range log {
			if have <= asked {
				wantEnd, wantEpoch = ident.Offset(i+1), have
			}
		}
		if end != wantEnd || e != wantEpoch {
			t.Fatalf("EndOffsetFor(%d) = %d, %d; want %d, %d in %v", asked, e, end, wantEpoch, wantEnd, log)
		}
	})
}

// The search that leader and follower make together must end at the end of their longest common prefix, when
// the logs obey the rule that one epoch is written by one leader, and in no more rounds than there are epochs.
func TestDivergenceSearchFindsTheLongestCommonPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		common := drawLog(t, "common")
		next := ident.Epoch(0)
		if len(common) > 0 {
			next = common[len(common)-1]
		}
		extend := func(name string, parity ident.Epoch) []ident.Epoch {
			log := append([]ident.Epoch{}, common...)
			e := next
			for _, step := range rapid.SliceOfN(rapid.IntRange(0, 3), 0, 20).Draw(t, name) {
				e += ident.Epoch(step)
				// Even epochs were led in the one history, odd ones in the other.
				if e <= next || e%2 != parity {
					e = max(e, next) + 1
					if e%2 != parity {
						e++
					}
				}
				log = append(log, e)
			}
			return log
		}
		leader, follower := extend("leader", 0), extend("follower", 1)
		leaderTable, followerTable := tableOf(leader), tableOf(follower)
		for round := 0; len(follower) > 0; round++ {
			if round > 60 {
				t.Fatal("the search does not end")
			}
			last, _ := followerTable.Latest()
			e, end, ok := leaderTable.EndOffsetFor(last, ident.Offset(len(leader)))
			if !ok && len(leader) > 0 && last > leader[len(leader)-1] {
				// The leader would have been elected in a later epoch; let it be.
				leaderTable.Assign(last+1, ident.Offset(len(leader)))
				continue
			}
			if !ok {
				follower = follower[:0]
				break
			}
			if e == last && end >= ident.Offset(len(follower)) {
				break
			}
			ownEpoch, ownEnd, ownOK := followerTable.EndOffsetFor(e, ident.Offset(len(follower)))
			to := min(end, ident.Offset(len(follower)))
			if ownOK && ownEpoch != e {
				to = ownEnd
			} else if ownOK {
				to = min(to, ownEnd)
			}
			follower = follower[:to]
			followerTable.TruncateFromEnd(to)
		}
		if len(follower) > len(leader) {
			t.Fatalf("follower keeps %d records, leader has %d", len(follower), len(leader))
		}
		if !cmp.Equal(follower, leader[:len(follower)]) && len(follower) > 0 {
			t.Fatalf("follower %v, leader %v", follower, leader)
		}
		if len(follower) < min(len(common), len(leader)) && len(leader) > 0 {
			t.Fatalf("cut to %d, but %d are common", len(follower), len(common))
		}
	})
}
