package partition

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/indexes"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// siblings brings the other Partitions of a topic when one of them changes in a way that they are judged by. An ISR
// that changes is not one, or a topic with a thousand partitions would be judged a million times.
func (r *Reconciler) siblings() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.enqueueSiblings(ctx, e.Object, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.enqueueSiblings(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, isOld := e.ObjectOld.(*hwv1alpha1.Partition)
			after, isNew := e.ObjectNew.(*hwv1alpha1.Partition)
			if isOld && isNew && judgedBy(before) != judgedBy(after) {
				r.enqueueSiblings(ctx, after, q)
			}
		},
	}
}

// judged is what of a Partition its siblings are judged by.
type judged struct {
	generation int64
	deleted    bool
	origin     hwv1alpha1.Origin
	topicID    string
}

func judgedBy(p *hwv1alpha1.Partition) judged {
	return judged{p.Generation, !p.DeletionTimestamp.IsZero(), p.Status.Origin, p.Status.TopicID}
}

func (r *Reconciler) enqueueSiblings(ctx context.Context, object client.Object, q queue) {
	p, ok := object.(*hwv1alpha1.Partition)
	if !ok {
		return
	}
	topic := p.EffectiveTopic()
	r.enqueue(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.ReplicaSetRef.Name}, q, func(sibling *hwv1alpha1.Partition) bool {
		return sibling.UID != p.UID && sibling.EffectiveTopic() == topic
	})
}

// ofReplicaSet brings the Partitions of a ReplicaSet that comes, goes or changes its spec.
func (r *Reconciler) ofReplicaSet() handler.EventHandler {
	all := func(ctx context.Context, object client.Object, q queue) {
		r.enqueue(ctx, client.ObjectKeyFromObject(object), q, func(*hwv1alpha1.Partition) bool { return true })
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { all(ctx, e.Object, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { all(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
				!equality.Semantic.DeepEqual(e.ObjectOld.GetDeletionTimestamp(), e.ObjectNew.GetDeletionTimestamp()) {
				all(ctx, e.ObjectNew, q)
			}
		},
	}
}

// ofChange brings just the Partitions whose topics a step of the metadata log touched.
func (r *Reconciler) ofChange(changes <-chan event.TypedGenericEvent[cluster.Change]) source.Source {
	return source.TypedChannel(changes, handler.TypedFuncs[cluster.Change, reconcile.Request]{
		GenericFunc: func(ctx context.Context, e event.TypedGenericEvent[cluster.Change], q queue) {
			if !e.Object.Everything && len(e.Object.Topics) == 0 {
				return
			}
			r.enqueue(ctx, e.Object.ReplicaSet, q, func(p *hwv1alpha1.Partition) bool { return concerns(e.Object, p) })
		},
	})
}

func (r *Reconciler) enqueue(ctx context.Context, replicaSet types.NamespacedName, q queue, which func(*hwv1alpha1.Partition) bool) {
	all, err := indexes.PartitionsOf(ctx, r.Client, replicaSet)
	if err != nil {
		log.FromContext(ctx).Error(err, "Partitions not brought back")
		return
	}
	for i := range all {
		if which(&all[i]) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
		}
	}
}
