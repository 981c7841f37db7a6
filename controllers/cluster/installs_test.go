package cluster_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

var life, nextLife = ident.UUID{0: 1}, ident.UUID{0: 2}

func installFact(kind string, id byte, seq int64) nodefact.Fact {
	return nodefact.Fact{Kind: kind, Seq: seq, Install: ident.UUID{0: id}, SnapshotID: "s", Time: time.Unix(1000+seq, 0)}
}

func TestInstallsOfANodeAreReadInOrderAndForgottenWhenWrittenDown(t *testing.T) {
	book := cluster.NewFactBook()
	var acknowledged []int64
	book.OnWrittenDown(func(node ident.NodeID, incarnation ident.UUID, upTo int64) {
		if node != 3 || incarnation != life {
			t.Errorf("node %d, incarnation %v", node, incarnation)
		}
		acknowledged = append(acknowledged, upTo)
	})
	book.Add(3, life, installFact(nodefact.SnapshotInstallStarted, 1, 1))
	if book.Add(3, life, installFact(nodefact.SnapshotInstallStarted, 1, 2)) {
		t.Error("one start is news twice")
	}
	if underWay := book.Metadata(3); underWay.UnderWay() == nil || underWay.EndsUpTo != 0 {
		t.Errorf("%+v", underWay)
	}
	book.WrittenDown(3, book.Metadata(3))
	end := installFact(nodefact.SnapshotInstalled, 1, 3)
	end.Bytes, end.DurationMillis = 7, 1500
	book.Add(3, life, end)
	read := book.Metadata(3)
	book.Add(3, life, installFact(nodefact.SnapshotInstallStarted, 2, 4))
	book.Add(3, life, installFact(nodefact.SnapshotInstalled, 2, 5))
	book.WrittenDown(3, read) // what came meanwhile was not
	left := book.Metadata(3)
	if len(left.Installs) != 1 || left.Installs[0].ID != (ident.UUID{0: 2}) || left.EndsUpTo != 5 {
		t.Fatalf("left %+v", left)
	}
	book.WrittenDown(3, left)
	book.WrittenDown(3, left)
	if diff := cmp.Diff([]int64{3, 5}, acknowledged); diff != "" {
		t.Error(diff)
	}
	if read.Installs[0].End == nil || read.Installs[0].End.Duration != 1500*time.Millisecond || read.Installs[0].End.Bytes != 7 {
		t.Errorf("end %+v", read.Installs[0].End)
	}
	if book.Add(3, life, installFact(nodefact.SnapshotInstallProgress, 1, 9)) || len(book.Metadata(3).Installs) != 0 {
		t.Error("what is over begins again with its progress")
	}
}

func TestAnotherIncarnationTellsAnew(t *testing.T) {
	book := cluster.NewFactBook()
	book.OnWrittenDown(func(ident.NodeID, ident.UUID, int64) { t.Error("acknowledged to another incarnation") })
	book.Add(3, life, installFact(nodefact.SnapshotInstallStarted, 1, 1))
	book.Add(3, life, installFact(nodefact.SnapshotInstalled, 1, 2))
	book.Add(3, life, nodefact.Fact{Kind: nodefact.MetadataCurrent})
	old := book.Metadata(3)
	book.Began(3, nextLife)
	if now := book.Metadata(3); now.Told != "" || len(now.Installs) != 0 {
		t.Errorf("%+v", now)
	}
	book.WrittenDown(3, old)
	book.Add(3, nextLife, installFact(nodefact.SnapshotInstallStarted, 1, 1))
	book.Add(3, nextLife, installFact(nodefact.SnapshotInstalled, 1, 2))
	book.WrittenDown(3, old)
	if now := book.Metadata(3); len(now.Installs) != 1 {
		t.Errorf("%+v", now)
	}
}

// Each fact that counts is a write of a status: by tenths, and not too often, and now and then in between.
func TestProgressCountsByTenthsAndNotTooOften(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		steps int64 // from nothing to all
		want  int
	}{
		"slow, an hour":         {2 * time.Second, 1800, 231},              // every 15 s, at the fact that comes then, and by tenths
		"two minutes":           {2 * time.Second, 60, 11},                 // by tenths
		"fast, ten seconds":     {2 * time.Second, 5, 3},                   // at least 3 s apart
		"more often than nodes": {10 * time.Millisecond, 1000, 4},          // 10 s
		"stalled":               {2 * time.Second, 1 << 40, 1800 * 2 / 16}, // 1 byte a step, for an hour
	} {
		t.Run(name, func(t *testing.T) {
			book := cluster.NewFactBook()
			at := time.Unix(1000, 0)
			book.Add(3, life, installFact(nodefact.SnapshotInstallStarted, 1, 1))
			counted := 0
			for step := int64(1); step <= min(c.steps, 1800); step++ {
				f := installFact(nodefact.SnapshotInstallProgress, 1, step+1)
				f.Bytes, f.TotalBytes, f.Time = step, c.steps, at
				if book.Add(3, life, f) {
					counted++
					if shown := book.Metadata(3).Installs[0]; shown.Bytes != step {
						t.Fatalf("shows %d, want %d", shown.Bytes, step)
					}
				}
				at = at.Add(c.every)
			}
			if counted != c.want {
				t.Errorf("%d changes, want %d", counted, c.want)
			}
		})
	}
}

func TestFailuresAreKeptByReasonTheNewestLast(t *testing.T) {
	book := cluster.NewFactBook()
	book.Add(3, life, installFact(nodefact.SnapshotInstallStarted, 1, 1))
	for i, reason := range []string{"a", "b", "a"} {
		f := installFact(nodefact.SnapshotInstallFailed, 1, int64(i)+2)
		f.Reason, f.Message = reason, reason
		book.Add(3, life, f)
	}
	want := []cluster.InstallFailure{{Reason: "b", Message: "b"}, {Reason: "a", Message: "a"}}
	if diff := cmp.Diff(want, book.Metadata(3).Installs[0].Failures, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}
