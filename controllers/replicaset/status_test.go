package replicaset

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

func directory(id int32) ident.UUID { return ident.UUID{0: byte(id), 14: byte(id >> 8), 15: 200} }

// healthy is a set of three data nodes and three voters where all is well, with a topic of one partition.
func healthy() facts {
	rs := &hwv1alpha1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "logs", Namespace: "n", UID: "u", Generation: 3}}
	rs.Spec.Replicas = 3
	rs.Spec.Quorum = hwv1alpha1.QuorumSpec{Voters: 3, Mode: hwv1alpha1.QuorumDedicated}
	f := facts{
		rs: rs, nodes: specs.Nodes(rs), now: metav1.NewTime(time.Unix(100, 0)),
		found: owned{pods: map[int32]*corev1.Pod{}, claims: map[int32]claim{}},
		state: cluster.State{Reach: cluster.Following, Leader: 1000, Epoch: 1},
	}
	for _, node := range f.nodes {
		f.found.pods[node.ID] = &corev1.Pod{Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}}
		f.found.claims[node.ID] = claim{&corev1.PersistentVolumeClaim{}, specs.Identity{NodeID: node.ID, DirectoryID: directory(node.ID), Formatted: true}}
	}
	for id := range int32(3) {
		f.state.Voters = append(f.state.Voters, cluster.Voter{ID: ident.NodeID(1000 + id), DirectoryID: directory(1000 + id)})
	}
	f.state.Image = metadata.Empty()
	for id := range int32(3) {
		f.commit(&metadata.RegisterBrokerRecord{BrokerID: ident.NodeID(id), BrokerEpoch: 1, IncarnationID: ident.UUID{1}, LogDirs: []ident.UUID{directory(id)}})
	}
	f.commit(&metadata.TopicRecord{Name: "t", TopicID: ident.UUID{5}})
	f.commit(&metadata.PartitionRecord{TopicID: ident.UUID{5}, Replicas: []ident.NodeID{0, 1, 2}, ISR: []ident.NodeID{0, 1, 2}, Directories: make([]ident.UUID, 3)})
	return f
}

func (f *facts) commit(record metadata.Record) {
	metadata.Pinned.Stamp(record)
	delta := metadata.NewDelta(f.state.Image)
	if err := delta.Replay(record); err != nil {
		panic(err)
	}
	offset, _ := f.state.Image.Position()
	f.state.Image = delta.Image(offset+1, 1)
}

// troubles are what may befall a set.
var troubles = map[string]func(*facts){
	"a pod is missing": func(f *facts) { delete(f.found.pods, 1) },
	"a pod is not ready": func(f *facts) {
		f.found.pods[1001].Status.Conditions[0].Status = corev1.ConditionFalse
	},
	"a pod is being deleted": func(f *facts) {
		f.found.pods[2].DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	},
	"a node is fenced": func(f *facts) {
		f.commit(&metadata.BrokerRegistrationChangeRecord{BrokerID: 1, BrokerEpoch: 1, Fenced: metadata.Fence})
	},
	"a data directory is offline": func(f *facts) {
		f.offline = map[int32]nodefact.Fact{1: {Reason: nodefact.DiskFull}}
	},
	"a data directory is offline for a reason of a later version": func(f *facts) {
		f.offline = map[int32]nodefact.Fact{2: {Reason: "Melted"}}
	},
	"a node is behind": func(f *facts) {
		f.metadata = map[int32]cluster.NodeMetadata{1001: {Told: nodefact.MetadataBehind}}
	},
	"a node installs a snapshot": func(f *facts) {
		f.metadata = map[int32]cluster.NodeMetadata{1: {Installs: []cluster.Install{{ID: ident.UUID{1}, SnapshotID: "s", StartedAt: time.Unix(9, 7)}}}}
	},
	"a node installs a snapshot and fails": func(f *facts) {
		f.metadata = map[int32]cluster.NodeMetadata{1001: {Told: nodefact.MetadataBehind, Installs: []cluster.Install{{
			ID: ident.UUID{2}, SnapshotID: "s", StartedAt: time.Unix(9, 7), Bytes: 3, TotalBytes: 4, BytesPerSecond: 5,
			Failures: []cluster.InstallFailure{{Reason: nodefact.InstallWrongCRC}, {Reason: nodefact.InstallLeaderLost}},
		}}}}
	},
	"a node installed before, and an operator that starts has not heard that it is through": func(f *facts) {
		f.rs.Status.Nodes = []hwv1alpha1.NodeStatus{{
			ID: 2, Pod: "logs-2", Role: hwv1alpha1.RoleData, SnapshotInstall: &hwv1alpha1.SnapshotInstallStatus{ID: "x", SnapshotID: "s"},
		}}
	},
	"a node is not registered": func(f *facts) { f.commit(&metadata.UnregisterBrokerRecord{BrokerID: 2, BrokerEpoch: 1}) },
	"a replica is out of sync": func(f *facts) {
		f.commit(&metadata.PartitionChangeRecord{TopicID: ident.UUID{5}, ISR: []ident.NodeID{0, 1}, Leader: metadata.NoLeaderChange, LeaderRecoveryState: metadata.NoLeaderRecoveryChanged})
	},
	"the quorum has no leader":    func(f *facts) { f.state.Reach = cluster.NoLeader },
	"the quorum can't be reached": func(f *facts) { f.state.Reach = cluster.Disconnected },
	"the metadata is not known":   func(f *facts) { f.state.Image = nil },
	"there is one voter": func(f *facts) {
		f.rs.Spec.Quorum.Voters = 1
		f.nodes = specs.Nodes(f.rs)
		f.state.Voters = f.state.Voters[:1]
	},
	"the voters change": func(f *facts) {
		f.voters = voterStep{reason: hwv1alpha1.ReasonVoterCatchingUp, message: "voter 1003 is behind"}
	},
}

func TestASetInAnyTroubleCanNotSpareAPod(t *testing.T) {
	if !canSpareOne(healthy()) {
		t.Error("a healthy set can spare one")
	}
	for name, befall := range troubles {
		f := healthy()
		befall(&f)
		if canSpareOne(f) {
			t.Errorf("%s, and a pod may be evicted", name)
		}
	}
}

// As for Partitions: reckoned again from the same facts a status is the same, and every combination of condition,
// status and reason is in the table.
func TestStatusIsAFixedPointOfTheFacts(t *testing.T) {
	more := map[string]func(*facts){
		"installs ended": func(f *facts) {
			ended := &cluster.InstallEnd{At: time.Unix(12, 5), Bytes: 9, Duration: time.Second}
			f.metadata = map[int32]cluster.NodeMetadata{0: {Told: nodefact.MetadataCurrent, EndsUpTo: 4, Installs: []cluster.Install{
				{ID: ident.UUID{3}, SnapshotID: "s", StartedAt: time.Unix(9, 7), End: ended},
				{ID: ident.UUID{4}, SnapshotID: "t", StartedAt: time.Unix(9, 7), End: ended},
			}}}
		},
		"starting":        func(f *facts) { f.state = cluster.State{Leader: ident.NoNode} },
		"surplus":         func(f *facts) { f.surplus = []int32{2} },
		"outdated":        func(f *facts) { f.outdated = []int32{0, 1000} },
		"volumes grow":    func(f *facts) { f.growth.underway = []string{"data-logs-0 to 2Gi"} },
		"volumes may not": func(f *facts) { f.growth.refused, f.growth.why = []string{"data-logs-1"}, "no" },
		"namespace going": func(f *facts) { f.problems.namespaceTerminating = true },
		"volume lost":     func(f *facts) { f.problems.add(hwv1alpha1.ReasonVolumeLost, "lost") },
		"name taken":      func(f *facts) { f.problems.add(hwv1alpha1.ReasonNameTaken, "taken") },
		"foreign volume":  func(f *facts) { f.problems.add(hwv1alpha1.ReasonVolumeIdentityMismatch, "foreign") },
		"a node was never seen": func(f *facts) {
			c := f.found.claims[1]
			c.Formatted = false
			f.found.claims[1] = c
		},
	}
	rapid.Check(t, func(t *rapid.T) {
		f := healthy()
		if rapid.Bool().Draw(t, "healthy before") {
			f.rs.Status = status(f)
		}
		for _, all := range []map[string]func(*facts){troubles, more} {
			for _, name := range sortedIDs(all) {
				// A record can't be committed to metadata that is not known.
				if f.state.Image != nil && rapid.IntRange(0, 4).Draw(t, name) == 0 {
					all[name](&f)
				}
			}
		}
		first := status(f)
		f.rs.Status = first
		f.now = metav1.NewTime(time.Unix(200, 0))
		if second := status(f); !equality.Semantic.DeepEqual(first, second) {
			t.Fatalf("reckoned once:  %+v\nreckoned again: %+v", first, second)
		}
		if told := events(&first, &first, f.offline, f.metadata); len(told) > 0 {
			t.Fatalf("no difference, and events: %+v", told)
		}
	})
}

func TestAfterAStartOfTheOperatorTheStatusStaysAsItWas(t *testing.T) {
	f := healthy()
	f.rs.Status = status(f)
	f.state = cluster.State{Leader: ident.NoNode, Epoch: ident.UnknownEpoch}
	if again := status(f); !equality.Semantic.DeepEqual(f.rs.Status, again) {
		t.Errorf("before the metadata was read:\nwas %+v\nis  %+v", f.rs.Status, again)
	}
}

// Twenty nodes install at once: the message names some, and how many more.
func TestMessageOfManyInstallsNamesAFew(t *testing.T) {
	f := healthy()
	f.rs.Spec.Replicas = 20
	f.nodes = specs.Nodes(f.rs)
	f.metadata = map[int32]cluster.NodeMetadata{}
	for id := range int32(20) {
		f.metadata[id] = cluster.NodeMetadata{Installs: []cluster.Install{{
			ID: ident.UUID{byte(id)}, SnapshotID: "00000000000000000090-0000000002", Bytes: 5 << 20, TotalBytes: 40 << 20, BytesPerSecond: 1 << 20,
			Failures: []cluster.InstallFailure{{Reason: nodefact.InstallLeaderLost}},
		}}}
	}
	next := status(f)
	condition := meta.FindStatusCondition(next.Conditions, hwv1alpha1.ReplicaSetSnapshotInstalling)
	if condition.Status != metav1.ConditionTrue || !strings.HasPrefix(condition.Message, "node 0 (pod logs-0): snapshot 00000000000000000090-0000000002, 5.0 MiB of 40.0 MiB (12%), 1.0 MiB/s, begun anew after LeaderLost; ") ||
		!strings.HasSuffix(condition.Message, "; and 14 more") {
		t.Errorf("%+v", condition)
	}
	if told := events(&hwv1alpha1.ReplicaSetStatus{}, &next, nil, f.metadata); len(told) < 40 {
		t.Errorf("%d events of 20 installs that failed once", len(told))
	}
}
