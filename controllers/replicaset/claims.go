package replicaset

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

// ensureClaims makes the claims that are missing, each with a directory id of its own. The ids are on the claims
// before any pod is made from them.
func (r *Reconciler) ensureClaims(ctx context.Context, rs *hwv1alpha1.ReplicaSet, found owned, nodes []specs.Node, state cluster.State, p *problems) error {
	clusterID := specs.ClusterID(rs.UID)
	for _, node := range nodes {
		existing, has := found.claims[node.ID]
		switch {
		case has && existing.ClusterID != clusterID:
			p.add(hwv1alpha1.ReasonVolumeIdentityMismatch,
				"claim %s says cluster %s, want %s", existing.Name, existing.ClusterID, clusterID)
			delete(found.claims, node.ID)
		case has && existing.DeletionTimestamp.IsZero():
			if err := r.ensureClaimOwner(ctx, rs, existing); err != nil {
				return err
			}
		case has:
			// Under deletion: neither there nor gone. A pod would wait for ever on it, and a new claim of the name
			// can't be made yet.
		case wasFormatted(rs, node.ID) && node.Role == hwv1alpha1.RoleVoter:
			if err := r.replaceVoter(ctx, rs, found, node, state, p); err != nil {
				return err
			}
		case wasFormatted(rs, node.ID):
			p.add(hwv1alpha1.ReasonVolumeLost,
				"claim %s of node %d is gone, and with it records that the cluster counts on; replacing the lost volume of a node that holds data is not supported by this version",
				specs.ClaimName(rs, node.ID), node.ID)
		case p.namespaceTerminating:
		default:
			made, err := r.createClaim(ctx, rs, node, clusterID, p)
			if err != nil {
				return err
			}
			if made != nil {
				found.claims[node.ID] = *made
			}
		}
	}
	return nil
}

// wasFormatted says whether the status knows that the cluster has seen the node on a volume.
func wasFormatted(rs *hwv1alpha1.ReplicaSet, id int32) bool {
	for _, node := range rs.Status.Nodes {
		if node.ID == id {
			return node.Formatted
		}
	}
	return false
}

// createClaim returns nil when the claim can't be had now.
func (r *Reconciler) createClaim(ctx context.Context, rs *hwv1alpha1.ReplicaSet, node specs.Node, clusterID ident.UUID, p *problems) (*claim, error) {
	firstVoters, err := r.firstVoters(ctx, rs, node)
	if err != nil {
		return nil, err
	}
	wanted := specs.Claim(rs, node, clusterID, drawDirectoryID(), firstVoters)
	err = r.Client.Create(ctx, wanted)
	if apierrors.IsAlreadyExists(err) {
		// Ours, and the cache is behind; or somebody's. The API server itself knows.
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(wanted), wanted); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		identity, ok := specs.ClaimIdentity(rs, wanted)
		if !ok || identity.ClusterID != clusterID {
			p.add(hwv1alpha1.ReasonVolumeIdentityMismatch,
				"claim %s is there and is not of this ReplicaSet: delete it or name the ReplicaSet otherwise", wanted.Name)
			return nil, nil
		}
		return &claim{wanted, identity}, nil
	}
	if err := p.tolerate(err); err != nil {
		return nil, fmt.Errorf("create claim %s: %w", wanted.Name, err)
	}
	if p.namespaceTerminating {
		return nil, nil
	}
	identity, ok := specs.ClaimIdentity(rs, wanted)
	if !ok {
		return nil, fmt.Errorf("claim %s lost its identity when it was made: does something change claims on the way?", wanted.Name)
	}
	return &claim{wanted, identity}, nil
}

// firstVoters is of how many first voters a node whose claim is made is one, 0 when it is none. Those form the quorum, so
// who they are is settled once, by the first claims: a voter that is wanted later must not believe in a voter set in which
// it has a say. While no claim of them is marked, none of them takes part, and there is no quorum that another could join.
func (r *Reconciler) firstVoters(ctx context.Context, rs *hwv1alpha1.ReplicaSet, node specs.Node) (int32, error) {
	if !node.Role.Votes() || rs.Status.Quorum != nil {
		return 0, nil
	}
	// The API server itself: the cache may not have the claims yet that this operator made.
	var claims corev1.PersistentVolumeClaimList
	selector := client.MatchingLabels{specs.LabelReplicaSetUID: string(rs.UID)}
	if err := r.Live.List(ctx, &claims, client.InNamespace(rs.Namespace), selector); err != nil {
		return 0, fmt.Errorf("list claims of ReplicaSet %s: %w", client.ObjectKeyFromObject(rs), err)
	}
	first := rs.Spec.Quorum.Voters
	for i := range claims.Items {
		identity, ok := specs.ClaimIdentity(rs, &claims.Items[i])
		switch {
		case !ok || !identity.First:
		case identity.Formatted:
			return 0, nil
		case identity.FirstVoters > 0:
			first = identity.FirstVoters
		}
	}
	if node.ID-specs.FirstID(rs) >= first {
		return 0, nil
	}
	return first, nil
}

// replaceVoter makes a claim for a voter whose claim somebody deleted: with a directory id of its own, under which the
// node joins the quorum once the old one is out of it. A quorum that does not go on without it can't be helped so.
func (r *Reconciler) replaceVoter(ctx context.Context, rs *hwv1alpha1.ReplicaSet, found owned, node specs.Node, state cluster.State, p *problems) error {
	name := specs.ClaimName(rs, node.ID)
	switch {
	case state.Reach != cluster.Following || len(state.Voters) == 0:
		p.add(hwv1alpha1.ReasonVolumeLost, "claim %s of voter %d is gone; it gets a new one when the quorum has a leader without it", name, node.ID)
		return nil
	case len(state.Voters) == 1 && state.Voters[0].ID == ident.NodeID(node.ID):
		p.add(hwv1alpha1.ReasonVolumeLost, "claim %s of node %d, the only voter, is gone, and with it the metadata: bring the volume back", name, node.ID)
		return nil
	case p.namespaceTerminating:
		return nil
	}
	made, err := r.createClaim(ctx, rs, node, specs.ClusterID(rs.UID), p)
	if err != nil || made == nil {
		return err
	}
	found.claims[node.ID] = *made
	return r.Events.Write(ctx, hwv1alpha1.KindReplicaSet, rs, report.Event{
		Reason: hwv1alpha1.EventVoterReplaced, Warning: true, Key: made.DirectoryID.String(),
		Message: fmt.Sprintf("claim %s of voter %d was deleted: it is made anew, and the node joins the quorum under another directory id", name, node.ID),
	})
}

// ensureClaimOwner follows spec.storage.retention.
func (r *Reconciler) ensureClaimOwner(ctx context.Context, rs *hwv1alpha1.ReplicaSet, existing claim) error {
	changed := existing.DeepCopy()
	if !specs.SetClaimOwner(rs, changed) {
		return nil
	}
	patch := client.MergeFromWithOptions(existing.PersistentVolumeClaim, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("owner of claim %s: %w", existing.Name, err)
	}
	return nil
}

// markFormatted writes onto the claim that the cluster has seen the node with this directory. That outlives the pod,
// the status and the operator.
func (r *Reconciler) markFormatted(ctx context.Context, c claim) (claim, error) {
	changed := c.DeepCopy()
	changed.Annotations[specs.AnnotationFormatted] = "true"
	patch := client.MergeFromWithOptions(c.PersistentVolumeClaim, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch); err != nil {
		return c, fmt.Errorf("mark claim %s as formatted: %w", c.Name, err)
	}
	c.PersistentVolumeClaim, c.Formatted = changed, true
	return c, nil
}

func drawDirectoryID() ident.UUID {
	for {
		var id ident.UUID
		if _, err := rand.Read(id[:]); err != nil {
			panic("no randomness: " + err.Error()) // crypto/rand never fails on the systems that Go supports
		}
		if specs.UsableID(id) {
			return id
		}
	}
}

// voterIdentities lists the voters' identities in the order of their ids. It is complete when the nodes' configuration
// can be made of it: it has every voter, or those that are missing were formatted once. One of the first voters that is
// yet to be formatted must find all of them.
func voterIdentities(nodes []specs.Node, claims map[int32]claim) (voters []specs.Identity, complete bool) {
	missing, formed := false, false
	var first, fresh int32
	for _, node := range nodes {
		if !node.Role.Votes() {
			continue
		}
		c, has := claims[node.ID]
		if !has {
			missing = true
			continue
		}
		voters = append(voters, c.Identity)
		formed = formed || c.Formatted
		if c.First {
			first++
		}
		if c.First && !c.Formatted {
			fresh = max(fresh, c.FirstVoters, 1)
		}
	}
	return voters, len(voters) > 0 && (!missing || formed) && first >= fresh
}
