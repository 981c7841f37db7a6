package replicaset

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

// settlePermits marks the claims of nodes that have their directory, after which no pod may format it any more: a data
// node that the cluster has seen with it, a voter that tells so itself, since it takes no part before its permit is
// gone. (A voter of an older image tells nothing: the quorum is asked whether it follows.) waiting says that voters are
// left which only another question to the quorum can tell of.
func (r *Reconciler) settlePermits(ctx context.Context, found owned, nodes []specs.Node, connection cluster.Connection) (waiting bool, err error) {
	state, told := connection.State(), connection.Facts()
	var quorum cluster.QuorumState
	asked := false
	for _, node := range nodes {
		c, has := found.claims[node.ID]
		if !has || c.Formatted {
			continue
		}
		seen := registered(state, c.Identity) || node.Role.Votes() && told.HasOpened(ident.NodeID(node.ID), c.DirectoryID)
		if !seen && node.Role.Votes() {
			if !asked && state.Reach == cluster.Following {
				if quorum, err = connection.Admin().Quorum(ctx); err != nil {
					log.FromContext(ctx).V(1).Info("the quorum was not described", "error", err.Error())
				}
				asked = true
			}
			seen = follows(quorum, c.Identity)
			waiting = waiting || !seen
		}
		if !seen {
			continue
		}
		if found.claims[node.ID], err = r.markFormatted(ctx, c); err != nil {
			return false, err
		}
	}
	return waiting, nil
}

// registered says whether the committed metadata has a registration of the node with this directory.
func registered(state cluster.State, identity specs.Identity) bool {
	if state.Image == nil {
		return false
	}
	broker, found := state.Image.Broker(ident.NodeID(identity.NodeID))
	return found && slices.Contains(broker.LogDirs, identity.DirectoryID)
}

// follows says whether the quorum's leader has heard of the voter with this directory. The first voter set names all
// voters, so being in it proves nothing; having a log does.
func follows(quorum cluster.QuorumState, identity specs.Identity) bool {
	return slices.ContainsFunc(slices.Concat(quorum.Voters, quorum.Observers), func(r cluster.ReplicaState) bool {
		return r.Voter == voterOf(identity) && r.LogEndOffset > 0
	})
}

// mayFormat asks the API server itself whether the claim is still as the pass read it, before a pod gets a permit: the
// cache may be older than the mark, and a voter that formats a second time may vote a second time. When it is not, the
// watch brings the newer claim.
func (r *Reconciler) mayFormat(ctx context.Context, rs *hwv1alpha1.ReplicaSet, c claim) (bool, error) {
	var now corev1.PersistentVolumeClaim
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(c.PersistentVolumeClaim), &now); err != nil {
		return false, describe(client.IgnoreNotFound(err), "read", c.PersistentVolumeClaim)
	}
	identity, ok := specs.ClaimIdentity(rs, &now)
	return ok && identity == c.Identity && now.DeletionTimestamp.IsZero(), nil
}

// withdrawPermit takes the permit from a pod whose claim is marked. The claim comes first: were the pod's permit
// withdrawn and the operator then died, the next pod would get one again.
func (r *Reconciler) withdrawPermit(ctx context.Context, pod *corev1.Pod, c claim) error {
	if _, has := pod.Annotations[specs.AnnotationFormatPermit]; !has || !c.Formatted {
		return nil
	}
	changed := pod.DeepCopy()
	delete(changed.Annotations, specs.AnnotationFormatPermit)
	return describe(client.IgnoreNotFound(r.Client.Patch(ctx, changed, client.MergeFrom(pod))), "withdraw the permit of", pod)
}
