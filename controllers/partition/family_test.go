package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

func ptr[T any](v T) *T { return &v }

// member is a Partition of topic t with its intent on record, the older the lower its index.
func member(index int32, edit func(*hwv1alpha1.Partition)) hwv1alpha1.Partition {
	p := hwv1alpha1.Partition{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("t-", index), Namespace: "n", UID: types.UID(fmt.Sprint("uid-", index)),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(index), 0)),
		},
		Spec:   hwv1alpha1.PartitionSpec{ReplicaSetRef: hwv1alpha1.ReplicaSetReference{Name: "logs"}, Topic: "t", Index: index},
		Status: hwv1alpha1.PartitionStatus{Origin: hwv1alpha1.OriginCreated},
	}
	if index == 0 {
		p.Spec.ReplicationFactor = ptr(int32(3))
	}
	if edit != nil {
		edit(&p)
	}
	return p
}

var topicID = ident.UUID{0: 1}

// image is one in which topic t has n partitions on nodes 0, 1 and 2, and the keys.
func image(n int32, configs map[string]string) *metadata.Image {
	delta := metadata.NewDelta(metadata.Empty())
	add := func(record metadata.Record) {
		metadata.Pinned.Stamp(record)
		if err := delta.Replay(record); err != nil {
			panic(err)
		}
	}
	for id := range ident.NodeID(3) {
		add(&metadata.RegisterBrokerRecord{BrokerID: id, BrokerEpoch: 1, IncarnationID: ident.UUID{1}, LogDirs: []ident.UUID{{byte(id), 1}}})
	}
	if n > 0 {
		add(&metadata.TopicRecord{Name: "t", TopicID: topicID})
	}
	for index := range n {
		add(&metadata.PartitionRecord{TopicID: topicID, PartitionID: index, Replicas: []ident.NodeID{0, 1, 2}, ISR: []ident.NodeID{0, 1, 2}, Directories: make([]ident.UUID, 3)})
	}
	for key, value := range configs {
		add(&metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: "t", Name: key, Value: &value})
	}
	return delta.Image(10, 1)
}

func TestPlansOfAFamily(t *testing.T) {
	assigned := func(nodes ...int32) func(*hwv1alpha1.Partition) {
		return func(p *hwv1alpha1.Partition) { p.Spec.ReplicationFactor, p.Spec.Assignment = nil, nodes }
	}
	noIntent := func(p *hwv1alpha1.Partition) { p.Status.Origin = "" }
	made := func(p *hwv1alpha1.Partition) { p.Status.TopicID = topicID.String() }
	topic := func(n int32, assignments ...[]int32) plan {
		return plan{create: &cluster.NewTopic{Name: "t", Partitions: n, ReplicationFactor: 3, Assignments: assignments, Configs: map[string]string{}}}
	}
	for name, c := range map[string]struct {
		members []hwv1alpha1.Partition
		exist   int32
		configs map[string]string
		want    map[int32]plan // by index, of those that have one
	}{
		"all in one request, by the first": {
			[]hwv1alpha1.Partition{member(0, nil), member(1, nil), member(2, nil)}, 0, nil, map[int32]plan{0: topic(3)},
		},
		"a gap ends it": {
			[]hwv1alpha1.Partition{member(0, nil), member(2, nil)}, 0, nil, map[int32]plan{0: topic(1)},
		},
		"index 0 is missing": {
			[]hwv1alpha1.Partition{member(1, nil)}, 0, nil, map[int32]plan{},
		},
		"an intent is missing": {
			[]hwv1alpha1.Partition{member(0, nil), member(1, noIntent)}, 0, nil, map[int32]plan{0: {unready: true}},
		},
		"one that is not accepted ends it": {
			[]hwv1alpha1.Partition{member(0, nil), member(1, func(p *hwv1alpha1.Partition) { p.Spec.DeletionPolicy = ptr(hwv1alpha1.DeletionDelete) }), member(2, nil)},
			0, nil, map[int32]plan{0: topic(1)},
		},
		"assignments": {
			[]hwv1alpha1.Partition{member(0, assigned(1, 2, 0)), member(1, assigned(2, 0, 1)), member(2, nil)},
			0, nil, map[int32]plan{0: topic(2, []int32{1, 2, 0}, []int32{2, 0, 1})},
		},
		"growth": {
			[]hwv1alpha1.Partition{member(0, made), member(1, nil), member(2, nil)}, 1, nil, map[int32]plan{1: {grow: &growth{count: 3}}},
		},
		"growth by assignment": {
			[]hwv1alpha1.Partition{member(0, made), member(1, assigned(2, 1, 0)), member(2, nil)},
			1, nil, map[int32]plan{1: {grow: &growth{count: 2, assignments: [][]int32{{2, 1, 0}}}}},
		},
		"growth of a topic whose index 0 has no Partition": {
			[]hwv1alpha1.Partition{member(1, nil)}, 1, nil, map[int32]plan{1: {grow: &growth{count: 2}}},
		},
		"keys are set and removed": {
			[]hwv1alpha1.Partition{member(0, func(p *hwv1alpha1.Partition) { made(p); p.Spec.MinInSyncReplicas = ptr(int32(2)) }), member(1, made)},
			2, map[string]string{"segment.bytes": "1"},
			map[int32]plan{0: {alter: &alteration{set: map[string]string{"min.insync.replicas": "2"}, remove: []string{"segment.bytes"}}}},
		},
		"keys of an adopted topic are left alone": {
			[]hwv1alpha1.Partition{member(0, func(p *hwv1alpha1.Partition) { made(p); p.Status.Origin = hwv1alpha1.OriginAdopted })},
			1, map[string]string{"segment.bytes": "1"}, map[int32]plan{},
		},
		"nothing to do": {
			[]hwv1alpha1.Partition{member(0, made), member(1, made)}, 2, nil, map[int32]plan{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			im := image(c.exist, c.configs)
			f := newFamily("t", c.members, im)
			got := map[int32]plan{}
			for i := range c.members {
				if p := f.planFor(&c.members[i], im); p != (plan{}) {
					got[c.members[i].Spec.Index] = p
				}
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(plan{}, growth{}, alteration{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheOlderClaimWinsAndOfTwoOfOneSecondTheName(t *testing.T) {
	at := func(name string, second int64) hwv1alpha1.Partition {
		return member(0, func(p *hwv1alpha1.Partition) {
			p.Name, p.UID, p.CreationTimestamp = name, types.UID(name), metav1.NewTime(time.Unix(second, 0))
		})
	}
	deleted := at("a-deleted", 1)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
	for range 2 {
		all := []hwv1alpha1.Partition{at("z", 5), at("y", 5), at("x", 6), deleted}
		f := newFamily("t", all, image(0, nil))
		if winner := f.claims[0].Name; winner != "y" {
			t.Errorf("%s wins, want y", winner)
		}
		for i := range all {
			if _, outbid := f.outbid[all[i].UID]; outbid != (all[i].Name == "x" || all[i].Name == "z") {
				t.Errorf("%s outbid: %v", all[i].Name, outbid)
			}
		}
		all[0], all[1] = all[1], all[0]
	}
}

func TestFieldsBecomeTopicKeys(t *testing.T) {
	p := member(0, func(p *hwv1alpha1.Partition) {
		p.Spec.MinInSyncReplicas = ptr(int32(2))
		p.Spec.UncleanLeaderElection = ptr(false)
		p.Spec.Retention = &hwv1alpha1.Retention{Time: ptr(hwv1alpha1.Duration("1h30m")), Size: ptr(quantity("1Gi"))}
		p.Spec.Config = map[string]hwv1alpha1.ConfigValue{"segment.bytes": "7"}
	})
	want := map[string]string{
		"min.insync.replicas": "2", "unclean.leader.election.enable": "false", "retention.ms": "5400000",
		"retention.bytes": "1073741824", "segment.bytes": "7",
	}
	if diff := cmp.Diff(want, configsOf(&p)); diff != "" {
		t.Error(diff)
	}
}

func TestFlushIsWhatTheTopicSaysElseTheDefault(t *testing.T) {
	const pageCache, always = hwv1alpha1.FlushPageCache, hwv1alpha1.FlushAlways
	for _, c := range []struct {
		configs   map[string]string
		byDefault hwv1alpha1.FlushPolicy
		want      hwv1alpha1.FlushPolicy
	}{
		{nil, pageCache, pageCache},
		{nil, always, always},
		{map[string]string{"flush.messages": "1"}, pageCache, always},
		{map[string]string{"flush.messages": "1000"}, always, pageCache},
		{map[string]string{"flush.messages": "often"}, always, always},
		{map[string]string{"flush.ms": "5"}, pageCache, pageCache},
	} {
		if got := effectiveFlush(image(1, c.configs), "t", c.byDefault); got != c.want {
			t.Errorf("%v with %s by default: %s, want %s", c.configs, c.byDefault, got, c.want)
		}
	}
}
