package replicaset

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/specs"
)

// liveClaims is an API server that has claims.
type liveClaims struct {
	client.Reader
	claims map[string]*corev1.PersistentVolumeClaim
}

func (l liveClaims) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	l.claims[key.Name].DeepCopyInto(object.(*corev1.PersistentVolumeClaim))
	return nil
}

// madePods takes down which pods are made.
type madePods struct {
	client.Client
	permits map[string]string
}

func (m madePods) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	m.permits[object.GetName()] = object.GetAnnotations()[specs.AnnotationFormatPermit]
	return nil
}

func TestNoPermitOnTheWordOfACacheThatIsBehind(t *testing.T) {
	f := healthy()
	f.rs.Spec.Replicas, f.rs.Spec.Quorum.Voters = 1, 1
	f.nodes = specs.Nodes(f.rs)
	live := liveClaims{claims: map[string]*corev1.PersistentVolumeClaim{}}
	found := owned{claims: map[int32]claim{}}
	for _, node := range f.nodes {
		pvc := specs.Claim(f.rs, node, specs.ClusterID(f.rs.UID), directory(node.ID), 1)
		identity, ok := specs.ClaimIdentity(f.rs, pvc)
		if !ok {
			t.Fatalf("claim %s has no identity", pvc.Name)
		}
		found.claims[node.ID] = claim{pvc, identity}
		live.claims[pvc.Name] = pvc.DeepCopy()
	}
	// The voter's claim is marked, and the cache has not seen that yet.
	live.claims[specs.ClaimName(f.rs, 1000)].Annotations[specs.AnnotationFormatted] = "true"
	made := madePods{permits: map[string]string{}}
	r := &Reconciler{Client: made, Live: live, DefaultImage: "i"}
	if _, err := r.ensurePods(t.Context(), f.rs, found, f.nodes, &problems{}); err != nil {
		t.Fatal(err)
	}
	if len(made.permits) != 1 || made.permits[specs.PodName(f.rs, 0)] != directory(0).String() {
		t.Errorf("pods made, with their permits: %v; want only the data node's, with its own", made.permits)
	}

	// The cache has caught up.
	c := found.claims[1000]
	c.Formatted = true
	found.claims[1000] = c
	if _, err := r.ensurePods(t.Context(), f.rs, found, []specs.Node{{ID: 1000, Role: hwv1alpha1.RoleVoter}}, &problems{}); err != nil {
		t.Fatal(err)
	}
	if permit, has := made.permits[specs.PodName(f.rs, 1000)]; !has || permit != "" {
		t.Errorf("the voter's pod made: %v, with permit %q; want it made without one", has, permit)
	}
}
