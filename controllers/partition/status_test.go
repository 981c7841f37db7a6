package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// told is what nodes tell: that replica 2 lagged, whose directory is offline, and what of each damaged replica.
type told struct {
	offline []ident.NodeID
	damage  nodefact.Fact
}

func drawTold(t *rapid.T) told {
	return told{
		offline: rapid.SampledFrom([][]ident.NodeID{nil, {1}, {0, 2}}).Draw(t, "offline"),
		damage:  nodefact.Fact{From: 7, To: rapid.SampledFrom([]ident.Offset{0, 9}).Draw(t, "end of the damage")},
	}
}

func (told) Shrink(_ ident.TopicPartition, replica ident.NodeID, _, _ int32) (nodefact.Fact, bool) {
	return nodefact.Fact{Replica: replica, LagOffsets: 5, LagMillis: 6}, replica == 2
}

func (f told) LogDirOffline(_ *metadata.Image, node ident.NodeID) (nodefact.Fact, bool) {
	return nodefact.Fact{Reason: nodefact.DiskFull}, slices.Contains(f.offline, node)
}

func (f told) Damage(ident.TopicPartition, ident.NodeID) (nodefact.Fact, bool) {
	return f.damage, f.damage.To > 0
}

// drawFacts makes up a cluster, a family in it and what one pass over its first member has met.
func drawFacts(t *rapid.T) facts {
	exist := rapid.Int32Range(0, 2).Draw(t, "partitions")
	im := image(exist, nil)
	delta := metadata.NewDelta(im)
	change := func(record metadata.Record) {
		metadata.Pinned.Stamp(record)
		if err := delta.Replay(record); err != nil {
			t.Fatal(err)
		}
	}
	for id := range ident.NodeID(3) {
		if rapid.Bool().Draw(t, "fenced") {
			change(&metadata.BrokerRegistrationChangeRecord{BrokerID: id, BrokerEpoch: 1, Fenced: metadata.Fence})
		}
	}
	if exist > 0 {
		isr := rapid.SampledFrom([][]ident.NodeID{{0, 1, 2}, {0, 1}, {2}}).Draw(t, "isr")
		leader := rapid.SampledFrom([]ident.NodeID{isr[0], ident.NoNode}).Draw(t, "leader")
		directories := rapid.SampledFrom([][]ident.UUID{nil, {{0, 1}, {1, 1}, ident.LostDirectory}, {ident.LostDirectory, {1, 1}, {2, 1}}}).Draw(t, "directories")
		change(&metadata.PartitionChangeRecord{TopicID: topicID, ISR: isr, Leader: leader, Directories: directories, LeaderRecoveryState: metadata.NoLeaderRecoveryChanged})
	}
	members := []hwv1alpha1.Partition{member(0, nil), member(1, nil)}
	for i := range members {
		members[i].Status.Origin = rapid.SampledFrom([]hwv1alpha1.Origin{"", hwv1alpha1.OriginCreated}).Draw(t, "origin")
		members[i].Spec.MinInSyncReplicas = rapid.SampledFrom([]*int32{nil, ptr(int32(2))}).Draw(t, "min ISR")
	}
	if rapid.Bool().Draw(t, "known before") {
		members[0].Status.TopicID = rapid.SampledFrom([]ident.UUID{topicID, {9}}).Draw(t, "id").String()
		members[0].Status.Origin = hwv1alpha1.OriginCreated
	}
	f := facts{
		p: &members[0], leftAfter: -1, defaultMinISR: 1, now: metav1.NewTime(time.Unix(100, 0)),
		told:        drawTold(t),
		unavailable: rapid.Bool().Draw(t, "unavailable"),
	}
	if rapid.Bool().Draw(t, "image") {
		f.state.Image = delta.Image(20, 1)
	}
	if rapid.Bool().Draw(t, "refused") {
		f.refused = &cluster.RefusedError{Code: kerr.InvalidConfig}
	}
	f.foreign = rapid.Bool().Draw(t, "foreign")
	f.judge(members, rapid.Bool().Draw(t, "has ReplicaSet"))
	return f
}

// A status that is reckoned again from the same facts is the same: without that the operator would write for ever.
// And every combination is in the condition table, or NewConditions would panic.
func TestStatusIsAFixedPointOfTheFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		first := status(f)
		f.p.Status = first
		f.now = metav1.NewTime(time.Unix(200, 0))
		if second := status(f); !equality.Semantic.DeepEqual(first, second) {
			t.Fatalf("reckoned once:  %+v\nreckoned again: %+v", first, second)
		}
	})
}

func TestAPositionInTheLogGoesWithItsReplicaSet(t *testing.T) {
	p := member(0, func(p *hwv1alpha1.Partition) {
		p.Status.TopicID = topicID.String()
		p.Status.AsOf = &hwv1alpha1.MetadataPosition{Epoch: 7, Offset: 9000}
	})
	f := facts{p: &p, leftAfter: -1, defaultMinISR: 1, told: told{}, now: metav1.NewTime(time.Unix(100, 0))}
	f.judge([]hwv1alpha1.Partition{p}, true)
	if asOf := status(f).AsOf; asOf == nil || asOf.Offset != 9000 {
		t.Errorf("asOf %+v of a ReplicaSet whose metadata is not known for the moment, want it kept", asOf)
	}
	f.judge([]hwv1alpha1.Partition{p}, false)
	next := status(f)
	if next.AsOf != nil {
		t.Errorf("asOf %+v of a ReplicaSet that is gone, want none", next.AsOf)
	}
	if next.TopicID != topicID.String() {
		t.Errorf("topic id %q, want it kept: the topic went with the ReplicaSet and is not made again in another", next.TopicID)
	}
}

func TestAPositionInTheLogOfAnEarlierClusterIsForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		told string
		want bool // that the position stays
	}{
		"the same cluster":            {"now", true},
		"another cluster":             {"before", false},
		"by an operator that did not": {"", true},
	} {
		p := member(0, func(p *hwv1alpha1.Partition) {
			p.Status.ClusterID = c.told
			p.Status.AsOf = &hwv1alpha1.MetadataPosition{Epoch: 7, Offset: 9000}
		})
		f := facts{p: &p, clusterID: "now", leftAfter: -1, defaultMinISR: 1, told: told{}, now: metav1.NewTime(time.Unix(100, 0))}
		f.judge([]hwv1alpha1.Partition{p}, true)
		if next := status(f); (next.AsOf != nil) != c.want || next.ClusterID != "now" {
			t.Errorf("%s: asOf %+v, cluster %q", name, next.AsOf, next.ClusterID)
		}
	}
}

func TestStatusSaysWhatIsCommitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		next := status(f)
		committed := f.committed()
		if committed == nil {
			return
		}
		if *next.Leader != int32(committed.Leader) || len(next.ISR) != len(committed.ISR) || *next.PartitionEpoch != committed.PartitionEpoch {
			t.Fatalf("status %+v, committed %+v", next, committed)
		}
		for _, replica := range next.Replicas {
			inISR := false
			for _, id := range committed.ISR {
				inISR = inISR || int32(id) == replica.ID
			}
			damaged := isDamaged(committed, ident.NodeID(replica.ID))
			if damaged != (replica.Damage != nil) || damaged && (replica.Damage.FromOffset != nil) != (f.told.(told).damage.To > 0) {
				t.Fatalf("replica %+v, directories %v", replica, committed.Directories)
			}
			if inISR != (replica.State == hwv1alpha1.ReplicaInSync) || inISR && replica.Reason != "" {
				t.Fatalf("replica %+v, ISR %v", replica, committed.ISR)
			}
		}
		if slices.Contains(committed.Directories, ident.LostDirectory) != (conditionStatus(&next, hwv1alpha1.PartitionIntact) == metav1.ConditionFalse) {
			t.Fatalf("directories %v, conditions %+v", committed.Directories, next.Conditions)
		}
		short := len(next.ISR) < int(*next.MinInSyncReplicas)
		if short != (conditionStatus(&next, hwv1alpha1.PartitionMinISRSatisfied) == metav1.ConditionFalse) {
			t.Fatalf("ISR %v, min ISR %d, conditions %+v", next.ISR, *next.MinInSyncReplicas, next.Conditions)
		}
	})
}

// A client may make the topic between the intent and the request. It must not be taken for one of ours: with
// deletionPolicy Delete it would be deleted.
func TestATopicThatWasThereBeforeTheRequestIsAdopted(t *testing.T) {
	intended := func(p *hwv1alpha1.Partition) { p.Status.Origin = hwv1alpha1.OriginCreated }
	for _, row := range []struct {
		name    string
		exist   int32
		foreign bool
		want    hwv1alpha1.Origin
	}{
		{"seen, made by the request", 1, false, hwv1alpha1.OriginCreated},
		{"seen, there before the request", 1, true, hwv1alpha1.OriginAdopted},
		{"not seen yet, there before the request", 0, true, ""},
	} {
		p := member(0, intended)
		f := facts{p: &p, leftAfter: -1, defaultMinISR: 1, told: told{}, now: metav1.NewTime(time.Unix(100, 0)), foreign: row.foreign}
		f.state.Image = image(row.exist, nil)
		f.judge([]hwv1alpha1.Partition{p}, true)
		if got := status(f).Origin; got != row.want {
			t.Errorf("%s: origin %q, want %q", row.name, got, row.want)
		}
	}
}
