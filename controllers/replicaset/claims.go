package replicaset

import (
	"context"
	"crypto/rand"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

// ensureClaims makes the claims that are missing, each with a directory id of its own. The ids are on the claims
// before any pod is made from them.
func (r *Reconciler) ensureClaims(ctx context.Context, rs *hwv1alpha1.ReplicaSet, found owned, nodes []specs.Node, p *problems) error {
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
		case wasFormatted(rs, node.ID):
			p.add(hwv1alpha1.ReasonVolumeLost,
				"claim %s of node %d is gone, and with it records that the cluster counts on; replacing a lost volume is not supported by this version",
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
	wanted := specs.Claim(rs, node, clusterID, drawDirectoryID())
	err := r.Client.Create(ctx, wanted)
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

// voterIdentities lists the voters' identities in the order of their ids, and false when one is missing.
func voterIdentities(nodes []specs.Node, claims map[int32]claim) ([]specs.Identity, bool) {
	var voters []specs.Identity
	for _, node := range nodes {
		if !node.Role.Votes() {
			continue
		}
		c, has := claims[node.ID]
		if !has {
			return nil, false
		}
		voters = append(voters, c.Identity)
	}
	return voters, true
}
