package replicaset

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/specs"
)

// owned is what belongs to a ReplicaSet, listed once in a pass.
type owned struct {
	// pods by node id, those under deletion included.
	pods map[int32]*corev1.Pod
	// claims by node id, those under deletion included.
	claims map[int32]claim
}

// claim is a PersistentVolumeClaim of the set and what it says of itself.
type claim struct {
	*corev1.PersistentVolumeClaim
	specs.Identity
}

// listOwned finds pods by their owner and claims by their identity. Whatever else carries the labels is not ours.
func listOwned(ctx context.Context, reader client.Reader, rs *hwv1alpha1.ReplicaSet) (owned, error) {
	found := owned{pods: map[int32]*corev1.Pod{}, claims: map[int32]claim{}}
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(rs.Namespace), client.MatchingLabels(specs.AllNodesSelector(rs))); err != nil {
		return owned{}, fmt.Errorf("list pods of ReplicaSet %s: %w", client.ObjectKeyFromObject(rs), err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		id, err := strconv.ParseInt(pod.Labels[specs.LabelNodeID], 10, 32)
		if err == nil && specs.IsOwner(rs, pod) && pod.Name == specs.PodName(rs, int32(id)) {
			found.pods[int32(id)] = pod
		}
	}
	var claims corev1.PersistentVolumeClaimList
	selector := client.MatchingLabels{specs.LabelReplicaSetUID: string(rs.UID)}
	if err := reader.List(ctx, &claims, client.InNamespace(rs.Namespace), selector); err != nil {
		return owned{}, fmt.Errorf("list claims of ReplicaSet %s: %w", client.ObjectKeyFromObject(rs), err)
	}
	for i := range claims.Items {
		pvc := &claims.Items[i]
		if identity, ok := specs.ClaimIdentity(rs, pvc); ok {
			found.claims[identity.NodeID] = claim{pvc, identity}
		}
	}
	return found, nil
}

// nodes are those that the spec wants and those that must go on without: a data node that the spec no longer wants may
// hold the only copy of a record, so it goes on until its replicas have been moved away (surplus); a voter goes on until
// it is out of the voter set, whose ids voters has. No ids mean that the set is not known: then none goes.
func (o owned) nodes(rs *hwv1alpha1.ReplicaSet, voters []int32) (all []specs.Node, surplus []int32) {
	all = specs.Nodes(rs)
	wanted := map[int32]bool{}
	for i := range all {
		wanted[all[i].ID] = true
		all[i].Role = roleWith(rs, all[i], voters)
	}
	for _, id := range sortedIDs(o.claims) {
		if wanted[id] || !o.claims[id].DeletionTimestamp.IsZero() {
			continue
		}
		node := specs.Node{ID: id, Role: specs.RoleOf(rs, id)}
		node.Role = roleWith(rs, node, voters)
		switch {
		case node.Role != hwv1alpha1.RoleVoter:
			surplus = append(surplus, id)
		case len(voters) > 0 && !slices.Contains(voters, id):
			continue
		}
		all = append(all, node)
	}
	return all, surplus
}

// roleWith is the role of a node whose id may be in the voter set although the spec no longer wants it there.
func roleWith(rs *hwv1alpha1.ReplicaSet, node specs.Node, voters []int32) hwv1alpha1.NodeRole {
	if rs.Spec.Quorum.Mode == hwv1alpha1.QuorumCombined && node.Role == hwv1alpha1.RoleData && slices.Contains(voters, node.ID) {
		return hwv1alpha1.RoleCombined
	}
	return node.Role
}
