package replicaset

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/indexes"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

// voterQuestion is how often the quorum is asked while voters are on their way into it or out of it.
const voterQuestion = time.Second

// Reconciler keeps the nodes of each ReplicaSet in being and its status true.
type Reconciler struct {
	// Client reads from the cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events writes events, Statuses the status.
	Events   *report.Events
	Statuses *report.Statuses
	// Clusters are the connections to the clusters.
	Clusters *cluster.Registry
	// DefaultImage is what nodes run when the spec names no image.
	DefaultImage string

	refusals growthRefusals
}

// +kubebuilder:rbac:groups=replication.highwater.dev,resources=hwreplicasets,verbs=get;list;watch
// +kubebuilder:rbac:groups=replication.highwater.dev,resources=hwreplicasets/status,verbs=patch
// +kubebuilder:rbac:groups=replication.highwater.dev,resources=hwreplicasets/finalizers,verbs=update
// +kubebuilder:rbac:groups=replication.highwater.dev,resources=partitions,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

// SetUp registers the reconciler with the manager.
func (r *Reconciler) SetUp(mgr ctrl.Manager, changes <-chan event.TypedGenericEvent[cluster.Change]) error {
	toReplicaSet := func(namespace, name string) []reconcile.Request {
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("replicaset").
		For(&hwv1alpha1.ReplicaSet{}).
		Owns(&corev1.Pod{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&policyv1.PodDisruptionBudget{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
			return toReplicaSet(object.GetNamespace(), object.GetLabels()[specs.LabelReplicaSet])
		})).
		Watches(&hwv1alpha1.Partition{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
			if partition, ok := object.(*hwv1alpha1.Partition); ok {
				return toReplicaSet(partition.Namespace, partition.Spec.ReplicaSetRef.Name)
			}
			return nil
		}), builder.WithPredicates(predicate.Funcs{
			// What a Partition's status says is not counted from it.
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		WatchesRawSource(source.TypedChannel(changes, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, change cluster.Change) []reconcile.Request {
				return toReplicaSet(change.ReplicaSet.Namespace, change.ReplicaSet.Name)
			}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, ReconciliationTimeout: time.Minute}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the ReplicaSet controller: %w", err)
	}
	return nil
}

// Reconcile makes what is missing and writes what is.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var rs hwv1alpha1.ReplicaSet
	if err := r.Client.Get(ctx, request.NamespacedName, &rs); err != nil {
		if apierrors.IsNotFound(err) {
			r.Clusters.Close(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !rs.DeletionTimestamp.IsZero() {
		// Its children go with it by their owner reference; what it leaves behind has none.
		r.Clusters.Close(request.NamespacedName)
		r.Statuses.Forget(rs.UID)
		return ctrl.Result{}, nil
	}
	if r.Statuses.Behind(&rs) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	f, again, err := r.keepInBeing(ctx, &rs)
	if err == nil {
		err = r.writeStatus(ctx, f)
	}
	if apierrors.IsConflict(err) {
		// Somebody, perhaps we, wrote the object after it was read. The watch brings the newer one.
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// keepInBeing is the existence duty: it creates and repairs, and deletes pods that have ended, and those of voters that
// left the quorum or lost their volume, with the claims that go with them. It returns what it saw, for the status, and when to look again at the latest, 0 for when something changes.
func (r *Reconciler) keepInBeing(ctx context.Context, rs *hwv1alpha1.ReplicaSet) (f facts, again time.Duration, err error) {
	f = facts{rs: rs, now: metav1.NewTime(time.Now().Truncate(time.Second))}
	if f.found, err = listOwned(ctx, r.Client, rs); err != nil {
		return f, 0, err
	}
	if connection, connected := r.Clusters.Get(client.ObjectKeyFromObject(rs)); connected {
		f.state = connection.State()
	}
	f.nodes, f.surplus = f.found.nodes(rs, knownVoters(rs, f.state))
	p := &f.problems
	if err := r.ensureServices(ctx, rs, p); err != nil {
		return f, 0, err
	}
	if err := r.ensureClaims(ctx, rs, f.found, f.nodes, f.state, p); err != nil {
		return f, 0, err
	}
	if f.growth, err = r.growClaims(ctx, rs, f.found, f.nodes); err != nil {
		return f, 0, err
	}
	if len(f.growth.refused) > 0 {
		again = afterGrowthRefusal
	}
	var configured bool
	if voters, complete := voterIdentities(f.nodes, f.found.claims); complete {
		configured, err = r.ensureConfigMap(ctx, rs, voters, p)
	} else {
		configured, err = r.hasConfigMap(ctx, rs)
	}
	if err != nil {
		return f, 0, err
	}
	connection, connected := r.connect(rs, f, configured)
	if connected {
		f.state = connection.State()
		f.book = connection.Facts()
		f.offline, f.metadata = offlineDirs(f, f.book), nodesMetadata(f, f.book)
		waiting, err := r.settlePermits(ctx, f.found, f.nodes, connection)
		if err != nil {
			return f, 0, err
		}
		f.voters = r.settleVoters(ctx, f, connection.Admin())
		if waiting || f.voters.reason != "" {
			again = voterQuestion
		}
	}
	// The budget comes before the pods: it closes while one is missing.
	if err := r.ensureBudget(ctx, rs, len(f.nodes), canSpareOne(f), p); err != nil {
		return f, 0, err
	}
	if configured {
		if f.outdated, err = r.ensurePods(ctx, rs, f.found, f.nodes, p); err != nil {
			return f, 0, err
		}
	}
	if connected {
		waits, err := r.retireVoters(ctx, f, connection.Admin())
		if err != nil {
			return f, 0, err
		}
		if waits.reason != "" {
			again = voterQuestion
			if f.voters.reason == "" {
				f.voters = waits
			}
		}
	}
	if err := r.releaseLostVoters(ctx, f); err != nil {
		return f, 0, err
	}
	partitions, err := indexes.PartitionsOf(ctx, r.Client, client.ObjectKeyFromObject(rs))
	if err != nil {
		return f, 0, err
	}
	f.managed = map[topicIndex]bool{}
	for i := range partitions {
		f.managed[topicIndex{partitions[i].EffectiveTopic(), partitions[i].Spec.Index}] = true
	}
	return f, again, nil
}

// connect makes the connection to the cluster once its nodes can be configured.
func (r *Reconciler) connect(rs *hwv1alpha1.ReplicaSet, f facts, configured bool) (cluster.Connection, bool) {
	voters, _ := voterIdentities(f.nodes, f.found.claims)
	if !configured || len(voters) == 0 {
		return r.Clusters.Get(client.ObjectKeyFromObject(rs))
	}
	target := cluster.Target{
		ReplicaSet: client.ObjectKeyFromObject(rs), UID: rs.UID, ClusterID: specs.ClusterID(rs.UID),
		Voters: map[ident.NodeID]string{}, Facts: map[ident.NodeID]string{},
	}
	for _, voter := range voters {
		target.Voters[ident.NodeID(voter.NodeID)] = address(rs, voter.NodeID, specs.PortController)
	}
	for _, node := range f.nodes {
		target.Facts[ident.NodeID(node.ID)] = address(rs, node.ID, specs.PortHTTP)
	}
	r.Clusters.Ensure(target)
	return r.Clusters.Get(target.ReplicaSet)
}

func address(rs *hwv1alpha1.ReplicaSet, id, port int32) string {
	return net.JoinHostPort(specs.Host(rs, id), strconv.Itoa(int(port)))
}

// writeStatus writes events and then the status, when something changed: events come from the difference to the
// status, so one that was not written is found again.
func (r *Reconciler) writeStatus(ctx context.Context, f facts) error {
	before := &f.rs.Status
	if f.state.Image != nil && before.AsOf != nil {
		if offset, _ := f.state.Image.Position(); int64(offset) < before.AsOf.Offset {
			return nil // older than what the status tells already
		}
	}
	next := status(f)
	if equality.Semantic.DeepEqual(*before, next) {
		writtenDown(f)
		return nil
	}
	if f.state.Image != nil {
		offset, epoch := f.state.Image.Position()
		next.AsOf = &hwv1alpha1.MetadataPosition{Epoch: int32(epoch), Offset: int64(offset)}
	}
	if err := r.Events.Write(ctx, hwv1alpha1.KindReplicaSet, f.rs, events(before, &next, f.offline, f.metadata)...); err != nil {
		return err
	}
	if err := r.Statuses.Apply(ctx, f.rs, &next); err != nil {
		return err
	}
	writtenDown(f)
	return nil
}
