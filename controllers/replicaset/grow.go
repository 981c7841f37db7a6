package replicaset

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/specs"
)

// afterGrowthRefusal is how long a claim is left alone that the API server did not let grow. Whoever changes the
// storage class is not seen here: the operator reads no storage classes.
const afterGrowthRefusal = time.Minute

// growth is what becomes of volumes that are smaller than the spec wants them.
type growth struct {
	// underway are the claims that grow, each with what it waits for when that is known.
	underway []string
	// refused are the claims that the API server did not let grow, and why is what it said of the first.
	refused []string
	why     string
}

// growthRefusals are what the API server refused. They live in memory only: an operator that starts asks once more.
type growthRefusals struct {
	mu  sync.Mutex
	all map[types.UID]growthRefusal
}

type growthRefusal struct {
	size resource.Quantity
	said string
	at   time.Time
}

// standing returns a refusal of the same size that is not old enough to ask again.
func (g *growthRefusals) standing(claim types.UID, size resource.Quantity, now time.Time) (said string, has bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	refusal, has := g.all[claim]
	if !has || refusal.size.Cmp(size) != 0 || now.Sub(refusal.at) >= afterGrowthRefusal {
		delete(g.all, claim)
		return "", false
	}
	return refusal.said, true
}

func (g *growthRefusals) note(claim types.UID, refusal growthRefusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = map[types.UID]growthRefusal{}
	}
	g.all[claim] = refusal
}

// growClaims asks for more where the spec wants larger volumes than the claims ask for. It never asks for less: a
// claim that somebody made larger than the spec says stays so, since a volume can't shrink.
func (r *Reconciler) growClaims(ctx context.Context, rs *hwv1alpha1.ReplicaSet, found owned, nodes []specs.Node) (growth, error) {
	var g growth
	for _, node := range nodes {
		c, has := found.claims[node.ID]
		if !has || !c.DeletionTimestamp.IsZero() {
			continue
		}
		wanted := specs.ClaimSize(rs, node)
		if requested := c.Spec.Resources.Requests[corev1.ResourceStorage]; wanted.Cmp(requested) <= 0 {
			if capacity, known := c.Status.Capacity[corev1.ResourceStorage]; known && capacity.Cmp(requested) < 0 {
				g.underway = append(g.underway, growing(c, requested, resizeState(c.PersistentVolumeClaim)))
			}
			continue
		}
		if c.Status.Phase != corev1.ClaimBound {
			// Kubernetes lets only a bound claim grow. The watch tells when it is.
			g.underway = append(g.underway, growing(c, wanted, "not bound to a volume yet"))
			continue
		}
		said, refused := r.refusals.standing(c.UID, wanted, time.Now())
		if !refused {
			var err error
			if said, refused, err = r.growClaim(ctx, &c, wanted); err != nil {
				return growth{}, err
			}
		}
		if refused {
			if g.refused = append(g.refused, c.Name); g.why == "" {
				g.why = said
			}
			continue
		}
		found.claims[node.ID] = c
		g.underway = append(g.underway, growing(c, wanted, resizeState(c.PersistentVolumeClaim)))
	}
	return g, nil
}

// growClaim raises the request of one claim.
func (r *Reconciler) growClaim(ctx context.Context, c *claim, wanted resource.Quantity) (said string, refused bool, err error) {
	changed := c.DeepCopy()
	changed.Spec.Resources.Requests[corev1.ResourceStorage] = wanted
	patch := client.MergeFromWithOptions(c.PersistentVolumeClaim, client.MergeFromWithOptimisticLock{})
	err = r.Client.Patch(ctx, changed, patch)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		// The storage class, or a quota, does not allow it. Asking again at once would change nothing.
		said = err.Error()
		r.refusals.note(c.UID, growthRefusal{size: wanted, said: said, at: time.Now()})
		return said, true, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("grow claim %s to %s: %w", c.Name, wanted.String(), err)
	}
	c.PersistentVolumeClaim = changed
	return "", false, nil
}

func growing(c claim, size resource.Quantity, state string) string {
	text := fmt.Sprintf("%s to %s", c.Name, size.String())
	if state != "" {
		text += " (" + state + ")"
	}
	return text
}

// resizeState is what Kubernetes says of a claim that grows: a condition's type, such as FileSystemResizePending.
func resizeState(claim *corev1.PersistentVolumeClaim) string {
	for _, condition := range claim.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && condition.Type != corev1.PersistentVolumeClaimVolumeModifyingVolume {
			return strings.TrimSuffix(string(condition.Type)+": "+condition.Message, ": ")
		}
	}
	return ""
}
