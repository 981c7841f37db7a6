package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/pkg/ident"
)

// finalizer lets the operator delete the topic with its last Partition.
const finalizer = "replication.highwater.dev/topic"

// deletePatience bounds how long the deletion of a topic may hold up its last Partition. After that the topic is kept:
// a finalizer always ends.
const deletePatience = time.Minute

// finish lets a deleted Partition go: at once, unless it is the last of its topic and the topic goes with it.
func (r *Reconciler) finish(ctx context.Context, p *hwv1alpha1.Partition, set *hwv1alpha1.ReplicaSet, siblings []hwv1alpha1.Partition) (ctrl.Result, error) {
	r.shrinks.drop(p.UID)
	r.Statuses.Forget(p.UID)
	if !controllerutil.ContainsFinalizer(p, finalizer) {
		return ctrl.Result{}, nil
	}
	var told []report.Event
	var again time.Duration
	switch {
	case set == nil:
	case p.Status.TopicID != "":
		var event report.Event
		event, again = r.deleteTopic(ctx, p, set, siblings)
		told = append(told, event)
	case mayHaveUnseen(p):
		told, again = r.deleteUnseen(ctx, p, set, siblings)
	}
	if again > 0 {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	if err := r.Events.Write(ctx, hwv1alpha1.KindPartition, p, told...); err != nil {
		return ctrl.Result{}, err
	}
	changed := p.DeepCopy()
	controllerutil.RemoveFinalizer(changed, finalizer)
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}))
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// deleteTopic deletes the topic by its id when the rules say so, and tells what became of it. again, when not 0, says
// that the cluster could not be asked and when to try the next time.
func (r *Reconciler) deleteTopic(ctx context.Context, p *hwv1alpha1.Partition, set *hwv1alpha1.ReplicaSet, siblings []hwv1alpha1.Partition) (event report.Event, again time.Duration) {
	topic := p.EffectiveTopic()
	kept := func(format string, args ...any) (report.Event, time.Duration) {
		return keptEvent(topic, p.Status.TopicID, fmt.Sprintf(format, args...)), 0
	}
	if s := remaining(p, siblings); s != nil {
		return kept("Partition %s of the same topic remains, and Kafka has no way to remove one partition", s.Name)
	}
	switch {
	case effectivePolicy(p) != hwv1alpha1.DeletionDelete:
		return kept("its deletionPolicy is Retain")
	case p.Status.Origin != hwv1alpha1.OriginCreated || p.Status.OwnedPartitions == nil:
		return kept("not every partition of it was made for a Partition")
	}
	id, err := ident.ParseUUID(p.Status.TopicID)
	if err != nil {
		return kept("its id in status can't be read: %v", err)
	}
	if time.Since(p.DeletionTimestamp.Time) > deletePatience {
		return kept("its cluster could not be reached for %s", deletePatience)
	}
	connection, connected := r.Clusters.Get(client.ObjectKeyFromObject(set))
	if !connected {
		return report.Event{}, time.Second
	}
	state := connection.State()
	if state.Image == nil || state.Reach != cluster.Following {
		return report.Event{}, time.Second
	}
	made, found := state.Image.TopicByID(id)
	if found && made.NumPartitions() > int(*p.Status.OwnedPartitions) {
		return kept("somebody else gave it further partitions")
	}
	if found {
		err = connection.Admin().DeleteTopic(ctx, id)
	}
	var refused *cluster.RefusedError
	switch {
	case errors.As(err, &refused):
		return kept("the cluster refused to delete it: %v", refused)
	case err != nil:
		log.FromContext(ctx).Info("the topic could not be deleted yet", "topic", topic, "error", err.Error())
		return report.Event{}, time.Second
	default:
		return deletedEvent(topic, p.Status.TopicID), 0
	}
}

// remaining is a Partition of the same topic that stays, nil when there is none.
func remaining(p *hwv1alpha1.Partition, siblings []hwv1alpha1.Partition) *hwv1alpha1.Partition {
	for i := range siblings {
		if s := &siblings[i]; s.UID != p.UID && s.DeletionTimestamp.IsZero() && s.EffectiveTopic() == p.EffectiveTopic() {
			return s
		}
	}
	return nil
}

func keptEvent(topic, topicID, why string) report.Event {
	return report.Event{
		Reason: hwv1alpha1.EventTopicKept, Key: topicID, Message: fmt.Sprintf("topic %s is kept: %s", topic, why),
	}
}

func deletedEvent(topic, topicID string) report.Event {
	return report.Event{
		Reason: hwv1alpha1.EventTopicDeleted, Key: topicID,
		Message: fmt.Sprintf("topic %s and its records are deleted with its last Partition", topic),
	}
}

// effectivePolicy is the topic's: that of index 0, as it was copied to the status of each sibling.
func effectivePolicy(p *hwv1alpha1.Partition) hwv1alpha1.DeletionPolicy {
	if p.Spec.Index > 0 && p.Status.DeletionPolicy != "" {
		return p.Status.DeletionPolicy
	}
	return policyOf(p)
}
