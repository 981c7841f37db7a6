package observer

import (
	"slices"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// The voter set is told when it is committed, and once; a set that another leader cuts off never is. A snapshot brings
// its own.
func TestVotersAreToldWhenTheyAreCommitted(t *testing.T) {
	var steps []Step
	f := newFollower(func(s Step) { steps = append(steps, s) })
	f.heard(1)
	record := func(ids ...ident.NodeID) []byte {
		var set batch.Voters
		for _, id := range ids {
			set.Voters = append(set.Voters, batch.Voter{ID: id, DirectoryID: ident.UUID{byte(id)}, MaxKRaftVersion: 1})
		}
		return batch.NewBuilder(f.end(), 1, 1000).AppendControl(batch.VotersType, set.Encode()).Build()
	}
	want := func(changed bool, ids ...ident.NodeID) {
		t.Helper()
		if len(steps) != 1 {
			t.Fatalf("%d steps", len(steps))
		}
		var got []ident.NodeID
		for _, v := range steps[0].Voters {
			got = append(got, v.ID)
			if v.DirectoryID != (ident.UUID{byte(v.ID)}) {
				t.Errorf("voter %d has directory %s", v.ID, v.DirectoryID)
			}
		}
		if steps[0].VotersChanged != changed || !slices.Equal(got, ids) {
			t.Fatalf("voters %v, changed %v; want %v, %v", got, steps[0].VotersChanged, ids, changed)
		}
		steps = nil
	}
	take := func(a answer) {
		t.Helper()
		a.epoch = 1
		if err := f.take(a); err != nil {
			t.Fatal(err)
		}
	}
	take(answer{records: record(1, 2), highWatermark: 0})
	if len(steps) != 0 {
		t.Fatalf("told before it is committed: %+v", steps)
	}
	take(answer{highWatermark: 1})
	want(true, 1, 2)
	take(answer{records: metadata.EncodeBatch(1, 1, 1000, &metadata.NoOpRecord{}), highWatermark: 2})
	want(false, 1, 2)
	take(answer{records: record(1, 2, 3), highWatermark: 2})
	take(answer{diverging: true})
	take(answer{records: metadata.EncodeBatch(2, 1, 1000, &metadata.NoOpRecord{}), highWatermark: 3})
	want(false, 1, 2)
	f.install(metadata.SnapshotID{EndOffset: 10, Epoch: 1}, metadata.Empty(),
		metadata.SnapshotHeader{Voters: &batch.Voters{Voters: []batch.Voter{{ID: 3, DirectoryID: ident.UUID{3}}}}}, 10)
	want(true, 3)
}
