package partition

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/indexes"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/controllers/specs"
)

// Reconciler brings Partitions to their clusters and what is committed back.
type Reconciler struct {
	// Client reads from the cache.
	Client client.Client
	// Events writes events, Statuses the status.
	Events   *report.Events
	Statuses *report.Statuses
	// Clusters are the connections to the clusters.
	Clusters *cluster.Registry

	shrinks shrinks
}

// +kubebuilder:rbac:groups=replication.highwater.dev,resources=hwreplicasets,verbs=get;list;watch
// +kubebuilder:rbac:groups=replication.highwater.dev,resources=partitions,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=replication.highwater.dev,resources=partitions/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

// SetUp registers the reconciler with the manager.
func (r *Reconciler) SetUp(mgr ctrl.Manager, changes <-chan event.TypedGenericEvent[cluster.Change]) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("partition").
		For(&hwv1alpha1.Partition{}).
		Watches(&hwv1alpha1.Partition{}, r.siblings()).
		Watches(&hwv1alpha1.ReplicaSet{}, r.ofReplicaSet()).
		WatchesRawSource(r.ofChange(changes)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, ReconciliationTimeout: time.Minute}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the Partition controller: %w", err)
	}
	return nil
}

// Reconcile is one pass over one Partition.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var p hwv1alpha1.Partition
	if err := r.Client.Get(ctx, request.NamespacedName, &p); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.Statuses.Behind(&p) {
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	set, err := r.replicaSet(ctx, &p)
	if err != nil {
		return ctrl.Result{}, err
	}
	siblings, err := indexes.PartitionsOf(ctx, r.Client, types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.ReplicaSetRef.Name})
	if err != nil {
		return ctrl.Result{}, err
	}
	var result ctrl.Result
	switch {
	case !p.DeletionTimestamp.IsZero():
		result, err = r.finish(ctx, &p, set, siblings)
	case !controllerutil.ContainsFinalizer(&p, finalizer):
		// The watch brings the object back with it.
		changed := p.DeepCopy()
		controllerutil.AddFinalizer(changed, finalizer)
		err = client.IgnoreNotFound(r.Client.Patch(ctx, changed, client.MergeFromWithOptions(&p, client.MergeFromWithOptimisticLock{})))
	default:
		result, err = r.keep(ctx, &p, set, siblings)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	return result, err
}

// replicaSet returns nil when there is none, or it is being deleted: neither holds a Partition up.
func (r *Reconciler) replicaSet(ctx context.Context, p *hwv1alpha1.Partition) (*hwv1alpha1.ReplicaSet, error) {
	var set hwv1alpha1.ReplicaSet
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.ReplicaSetRef.Name}, &set)
	if apierrors.IsNotFound(err) || err == nil && !set.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ReplicaSet of Partition %s: %w", client.ObjectKeyFromObject(p), err)
	}
	return &set, nil
}

// keep judges, asks, and tells.
func (r *Reconciler) keep(ctx context.Context, p *hwv1alpha1.Partition, set *hwv1alpha1.ReplicaSet, siblings []hwv1alpha1.Partition) (ctrl.Result, error) {
	f := facts{p: p, leftAfter: -1, defaultMinISR: 1, now: metav1.NewTime(time.Now().Truncate(time.Second)), told: cluster.NewFactBook()}
	var asked outcome
	connection, connected := cluster.Connection(nil), false
	if set != nil {
		f.defaultMinISR, f.defaultFlush = specs.MinInSyncReplicas(set), specs.Flush(set)
		f.clusterID = specs.ClusterID(set.UID).String()
		connection, connected = r.Clusters.Get(client.ObjectKeyFromObject(set))
	}
	if connected {
		f.state, f.told = connection.State(), connection.Facts()
	}
	f.judge(siblings, set != nil)
	if connected && f.verdict.accepted() && f.state.Image != nil && f.state.Reach == cluster.Following {
		asked = carryOut(ctx, connection.Admin(), f.family.topic, f.family.planFor(p, f.state.Image))
		f.refused, f.asked, f.foreign = asked.refused, asked.made, asked.exists
		if asked.made || asked.exists {
			// The answer came after the commit, which may be here already.
			f.state = connection.State()
			f.judge(siblings, true)
		}
	}
	if f.state.Image != nil && p.Status.AsOf != nil && !f.otherCluster() {
		if offset, _ := f.state.Image.Position(); int64(offset) < p.Status.AsOf.Offset {
			return ctrl.Result{}, nil // older than what the status tells already
		}
	}
	again := earliest(asked.again, f.checkAvailable(time.Now()))
	wait, err := r.tell(ctx, &f)
	return ctrl.Result{RequeueAfter: earliest(again, wait)}, err
}

func (f *facts) judge(siblings []hwv1alpha1.Partition, hasSet bool) {
	f.family = newFamily(f.p.EffectiveTopic(), siblings, f.state.Image)
	switch {
	case !hasSet:
		f.verdict = deny(hwv1alpha1.ReasonReplicaSetNotFound, "no ReplicaSet %s in namespace %s, or it is being deleted",
			f.p.Spec.ReplicaSetRef.Name, f.p.Namespace)
	case f.state.Image == nil:
		f.verdict = f.family.offline(f.p)
	default:
		f.verdict = f.family.judge(f.p, f.state.Image)
	}
}

// checkAvailable says when the quorum will have been away for so long that the Partition says so, and notes when that
// is now. Thousands of Partitions do so within two seconds, not at once.
func (f *facts) checkAvailable(now time.Time) time.Duration {
	if f.state.Reach == cluster.Following || f.state.Since.IsZero() {
		return 0
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(f.p.UID)) // never fails
	due := f.state.Since.Add(unavailableAfter + time.Duration(hash.Sum32()%2000)*time.Millisecond)
	f.unavailable = !now.Before(due)
	if f.unavailable {
		return 0
	}
	return due.Sub(now)
}

// tell writes events and then the status, when something changed. The status never waits; the event of a shrunk ISR
// may, for the leader's reason.
func (r *Reconciler) tell(ctx context.Context, f *facts) (wait time.Duration, err error) {
	p, now := f.p, time.Now()
	waiting, isWaiting := r.shrinks.get(p.UID)
	if isWaiting {
		f.leftAfter = waiting.after
	}
	next := status(*f)
	partition := f.committed()
	if partition != nil {
		if fresh, shrunk := newShrink(&p.Status, &next, now); shrunk {
			if isWaiting {
				if err := r.writeShrink(ctx, p, next.TopicID, waiting, p.Status.Replicas); err != nil {
					return 0, err
				}
			}
			waiting, isWaiting = fresh, true
			r.shrinks.put(p.UID, fresh)
		}
	}
	if isWaiting {
		if wait = factPatience - now.Sub(waiting.since); wait <= 0 || waiting.explained(next.Replicas) {
			if err := r.writeShrink(ctx, p, next.TopicID, waiting, next.Replicas); err != nil {
				return 0, err
			}
			wait = 0
		}
	}
	if equality.Semantic.DeepEqual(p.Status, next) {
		return wait, nil
	}
	if f.state.Image != nil {
		offset, epoch := f.state.Image.Position()
		next.AsOf = &hwv1alpha1.MetadataPosition{Epoch: int32(epoch), Offset: int64(offset)}
	}
	if err := r.Events.Write(ctx, hwv1alpha1.KindPartition, p, events(&p.Status, &next, partition, f.refilled)...); err != nil {
		return 0, err
	}
	return wait, r.Statuses.Apply(ctx, p, &next)
}

func (r *Reconciler) writeShrink(ctx context.Context, p *hwv1alpha1.Partition, topicID string, s shrink, replicas []hwv1alpha1.ReplicaStatus) error {
	if err := r.Events.Write(ctx, hwv1alpha1.KindPartition, p, shrinkEvent(topicID, s, replicas)); err != nil {
		return err
	}
	r.shrinks.drop(p.UID)
	return nil
}

// earliest of two durations of which 0 means never.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// concerns says whether a change of a cluster may change what is told of p.
func concerns(change cluster.Change, p *hwv1alpha1.Partition) bool {
	return change.Everything || slices.Contains(change.Topics, p.EffectiveTopic())
}
