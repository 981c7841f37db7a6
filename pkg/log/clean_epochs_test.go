package log

import (
	"slices"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// A replica that was away keeps, of the epoch before, what nobody committed, unless the leader says where that epoch
// ended. A leader that has copied a compacted log has to know it, too, though the records that began the epoch are gone.
func TestCompactionKeepsWhereLeaderEpochsBegin(t *testing.T) {
	leader, _ := newLog(t, Config{Settings: cleanSettings(0)})
	for _, r := range []struct {
		key   string
		epoch ident.Epoch
	}{{"a", 1}, {"b", 2}, {"b", 2}, {"c", 2}, {"a", 3}, {"b", 3}} {
		if _, err := leader.AppendAsLeader(batch.NewBuilder(0, -1, 1000).Append([]byte(r.key), []byte("v")).Build(), r.epoch); err != nil {
			t.Fatal(err)
		}
	}
	mustRoll(t, leader)
	want := []epoch.Entry{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 1}, {Epoch: 3, Start: 4}}
	for run := range int64(2) {
		compact(t, leader, 2000+run)
		if got := len(keysAt(t, leader)); got != 3 {
			t.Fatalf("%d records are left", got)
		}
		follower, _ := newLog(t, Config{Settings: cleanSettings(0)})
		if _, err := follower.AppendAsFollower(readAll(t, leader, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if got := follower.Epochs(); !slices.Equal(got, want) {
			t.Errorf("run %d: the follower knows %v, want %v", run, got, want)
		}
		if e, end, ok := follower.EpochEndOffset(1); !ok || e != 1 || end != 1 {
			t.Errorf("run %d: epoch 1 ends at %d (%d, %v)", run, end, e, ok)
		}
		if _, err := leader.AppendAsLeader(batch.NewBuilder(0, -1, 1000).Append([]byte("c"), []byte("v")).Build(), 3); err != nil {
			t.Fatal(err)
		}
		mustRoll(t, leader)
	}
}
