package specs_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

var update = flag.Bool("update", false, "write the golden files anew")

const image = "example.com/highwater:v1"

func set(change func(*hwv1alpha1.ReplicaSet)) *hwv1alpha1.ReplicaSet {
	rs := &hwv1alpha1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "logs", Namespace: "team", UID: "0b7b7d2c-5a8e-4d3c-9a55-1f0de4f3c001"},
		Spec: hwv1alpha1.ReplicaSetSpec{
			Replicas: 3,
			Quorum:   hwv1alpha1.QuorumSpec{Voters: 3, Mode: hwv1alpha1.QuorumDedicated},
			Storage:  hwv1alpha1.StorageSpec{Size: resource.MustParse("10Gi")},
		},
	}
	if change != nil {
		change(rs)
	}
	return rs
}

func directory(id int32) ident.UUID { return ident.UUID{0: 0xd1, 14: byte(id >> 8), 15: byte(id)} }

func identity(id int32, formatted bool) specs.Identity {
	return specs.Identity{ClusterID: ident.UUID{0: 0xc1}, DirectoryID: directory(id), NodeID: id, Formatted: formatted, First: true}
}

func ptr[T any](v T) *T { return &v }

func full(rs *hwv1alpha1.ReplicaSet) {
	rs.Spec.Image = "example.com/own:v2"
	rs.Spec.Storage.StorageClassName = ptr("fast")
	rs.Spec.Storage.Retention = ptr(hwv1alpha1.VolumesDelete)
	rs.Spec.Quorum.Storage = &hwv1alpha1.QuorumStorageSpec{Size: resource.MustParse("2Gi")}
	rs.Spec.Quorum.Snapshots = &hwv1alpha1.SnapshotsSpec{
		MaxNewRecordBytes: ptr(resource.MustParse("1Mi")), MaxInterval: ptr(hwv1alpha1.Duration("10m")),
		Retention: &hwv1alpha1.SnapshotRetention{Size: ptr(resource.MustParse("8Mi")), Age: ptr(hwv1alpha1.Duration("24h"))},
	}
	rs.Spec.Defaults = &hwv1alpha1.Defaults{ReplicaLagTimeMax: ptr(hwv1alpha1.Duration("4s")), MinInSyncReplicas: ptr(int32(2)), Flush: ptr(hwv1alpha1.FlushAlways)}
	rs.Spec.Resources = &hwv1alpha1.Resources{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
	rs.Spec.Pods = &hwv1alpha1.PodsSpec{
		Labels:         map[string]hwv1alpha1.LabelText{"team": "a"},
		Annotations:    map[string]hwv1alpha1.AnnotationText{"note": "b"},
		NodeSelector:   map[string]hwv1alpha1.LabelText{"disk": "ssd"},
		Tolerations:    []hwv1alpha1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
		TopologySpread: []hwv1alpha1.TopologySpread{{TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule}},
	}
}

func combined(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Quorum.Mode = hwv1alpha1.QuorumCombined }

func pod(t *testing.T, rs *hwv1alpha1.ReplicaSet, id int32, formatted bool) *corev1.Pod {
	t.Helper()
	built, err := specs.Pod(rs, specs.Node{ID: id, Role: specs.RoleOf(rs, id)}, identity(id, formatted), image)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func configMap(t *testing.T, rs *hwv1alpha1.ReplicaSet, voters ...int32) *corev1.ConfigMap {
	t.Helper()
	var identities []specs.Identity
	for _, id := range voters {
		identities = append(identities, identity(id, false))
	}
	built, err := specs.ConfigMap(rs, ident.UUID{0: 0xc1}, identities)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func TestGolden(t *testing.T) {
	claim := func(rs *hwv1alpha1.ReplicaSet, id int32) any {
		return specs.Claim(rs, specs.Node{ID: id, Role: specs.RoleOf(rs, id)}, ident.UUID{0: 0xc1}, directory(id), 3)
	}
	for name, object := range map[string]any{
		"pod-data":          pod(t, set(nil), 0, false),
		"pod-data-full":     pod(t, set(full), 2, true),
		"pod-voter":         pod(t, set(nil), 1000, false),
		"pod-combined":      pod(t, set(combined), 1, false),
		"claim-data":        claim(set(nil), 0),
		"claim-data-full":   claim(set(full), 0),
		"claim-voter":       claim(set(nil), 1000),
		"claim-voter-full":  claim(set(full), 1000),
		"service-nodes":     specs.NodesService(set(nil)),
		"service-bootstrap": specs.BootstrapService(set(nil)),
		"configmap":         configMap(t, set(nil), 1000, 1001, 1002),
		"configmap-full":    configMap(t, set(full), 1000, 1001, 1002),
		"budget":            specs.Budget(set(nil), 6, true),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("differs from %s (go test ./controllers/specs -update writes it anew):\n%s", file, diff)
			}
		})
	}
}

func TestNodesAreDataFromZeroAndVotersFromThousand(t *testing.T) {
	want := []specs.Node{
		{ID: 0, Role: hwv1alpha1.RoleData}, {ID: 1, Role: hwv1alpha1.RoleData}, {ID: 2, Role: hwv1alpha1.RoleData},
		{ID: 1000, Role: hwv1alpha1.RoleVoter}, {ID: 1001, Role: hwv1alpha1.RoleVoter}, {ID: 1002, Role: hwv1alpha1.RoleVoter},
	}
	if diff := cmp.Diff(want, specs.Nodes(set(nil))); diff != "" {
		t.Error(diff)
	}
	rs := set(combined)
	rs.Spec.Replicas = 4
	want = []specs.Node{
		{ID: 0, Role: hwv1alpha1.RoleCombined}, {ID: 1, Role: hwv1alpha1.RoleCombined}, {ID: 2, Role: hwv1alpha1.RoleCombined},
		{ID: 3, Role: hwv1alpha1.RoleData},
	}
	if diff := cmp.Diff(want, specs.Nodes(rs)); diff != "" {
		t.Error(diff)
	}
}

func TestPermitGoesWithTheFirstRegistrationAndLeavesTheRevision(t *testing.T) {
	before, after := pod(t, set(nil), 1, false), pod(t, set(nil), 1, true)
	if got := before.Annotations[specs.AnnotationFormatPermit]; got != directory(1).String() {
		t.Errorf("permit %q, want the directory id %s", got, directory(1))
	}
	if got, has := after.Annotations[specs.AnnotationFormatPermit]; has {
		t.Errorf("a formatted volume has the permit %q", got)
	}
	if before.Annotations[specs.AnnotationRevision] != after.Annotations[specs.AnnotationRevision] {
		t.Error("withdrawing the permit changes the revision")
	}
}

func TestScalingDoesNotChangeTheRevisionOfOtherNodes(t *testing.T) {
	more := set(func(rs *hwv1alpha1.ReplicaSet) { rs.Spec.Replicas = 5; rs.Generation = 7 })
	if pod(t, set(nil), 0, true).Annotations[specs.AnnotationRevision] != pod(t, more, 0, true).Annotations[specs.AnnotationRevision] {
		t.Error("node 0 has another revision because replicas rose")
	}
}

func TestClaimIdentityIsReadBackAndForeignClaimsAreNot(t *testing.T) {
	rs := set(nil)
	claim := specs.Claim(rs, specs.Node{ID: 2, Role: hwv1alpha1.RoleData}, ident.UUID{0: 0xc1}, directory(2), 0)
	data := identity(2, false)
	data.First = false
	if got, ok := specs.ClaimIdentity(rs, claim); !ok || got != data {
		t.Errorf("read %+v, %v", got, ok)
	}
	claim.Annotations[specs.AnnotationFormatted] = "true"
	if got, ok := specs.ClaimIdentity(rs, claim); !ok || !got.Formatted {
		t.Errorf("read %+v, %v, want formatted", got, ok)
	}
	for what, spoil := range map[string]func(*corev1.PersistentVolumeClaim){
		"another ReplicaSet's":    func(c *corev1.PersistentVolumeClaim) { c.Labels[specs.LabelReplicaSetUID] = "other" },
		"one without a node":      func(c *corev1.PersistentVolumeClaim) { delete(c.Labels, specs.LabelNodeID) },
		"one of another name":     func(c *corev1.PersistentVolumeClaim) { c.Name = "data-logs-1" },
		"one without a cluster":   func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, specs.AnnotationClusterID) },
		"one without a directory": func(c *corev1.PersistentVolumeClaim) { c.Annotations[specs.AnnotationDirectoryID] = "x" },
	} {
		spoiled := claim.DeepCopy()
		spoil(spoiled)
		if got, ok := specs.ClaimIdentity(rs, spoiled); ok {
			t.Errorf("%s claim was read as %+v", what, got)
		}
	}
}

func TestOnlyTheFirstVotersAreFirst(t *testing.T) {
	rs := set(nil)
	for name, c := range map[string]struct {
		role        hwv1alpha1.NodeRole
		firstVoters int32
		older       bool // a claim that an operator made which knew no others than first voters
		first       bool
	}{
		"one of the first three":      {hwv1alpha1.RoleVoter, 3, false, true},
		"one of the first, combined":  {hwv1alpha1.RoleCombined, 3, false, true},
		"one that joins":              {hwv1alpha1.RoleVoter, 0, false, false},
		"a data node that may":        {hwv1alpha1.RoleData, 0, false, false},
		"a voter of an older version": {hwv1alpha1.RoleVoter, 3, true, true},
	} {
		claim := specs.Claim(rs, specs.Node{ID: 1000, Role: c.role}, ident.UUID{0: 0xc1}, directory(1000), c.firstVoters)
		want := c.firstVoters
		if c.older {
			delete(claim.Annotations, specs.AnnotationFirstVoters)
			want = 0
		}
		if got, ok := specs.ClaimIdentity(rs, claim); !ok || got.First != c.first || got.FirstVoters != want {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

func TestClaimOwnerFollowsRetention(t *testing.T) {
	rs := set(full)
	claim := specs.Claim(rs, specs.Node{ID: 0, Role: hwv1alpha1.RoleData}, ident.UUID{0: 0xc1}, directory(0), 3)
	if !specs.IsOwner(rs, claim) {
		t.Error("under Delete the ReplicaSet owns the claim")
	}
	rs.Spec.Storage.Retention = nil
	if !specs.SetClaimOwner(rs, claim) || len(claim.OwnerReferences) != 0 {
		t.Errorf("under Retain the claim has no owner, got %v", claim.OwnerReferences)
	}
	if specs.SetClaimOwner(rs, claim) {
		t.Error("a claim that is right was changed")
	}
}

func TestAppsReplicaSetIsNotTheOwner(t *testing.T) {
	rs := set(nil)
	object := &metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: ptr(true)},
	}}
	if specs.IsOwner(rs, object) {
		t.Error("a ReplicaSet of apps/v1 was taken for ours")
	}
	object.OwnerReferences[0].APIVersion = "replication.highwater.dev/v1beta1"
	if !specs.IsOwner(rs, object) {
		t.Error("a reference of another version of the group was not taken for ours")
	}
}

func TestNoPodCarriesPodTemplateHash(t *testing.T) {
	for key := range pod(t, set(full), 0, false).Labels {
		if strings.Contains(key, "pod-template-hash") {
			t.Errorf("label %s", key)
		}
	}
}

func TestClusterIDIsTheSameForOneUIDAndNeverBeginsWithADash(t *testing.T) {
	seen := map[ident.UUID]bool{}
	for i := range 2000 {
		uid := types.UID(fmt.Sprintf("0b7b7d2c-5a8e-4d3c-9a55-%012d", i))
		id := specs.ClusterID(uid)
		if id != specs.ClusterID(uid) {
			t.Fatal("two ids for one UID")
		}
		if id.String()[0] == '-' || id.IsReserved() || seen[id] {
			t.Fatalf("id %s of UID %s", id, uid)
		}
		seen[id] = true
	}
}
