package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// unseenPatience is how long after its deletion a Partition waits for a topic that was perhaps asked for just before:
// a request lives no longer than its time-out, and the pass that made it may have read the cache a little earlier.
const unseenPatience = cluster.AdminTimeout + 2*time.Second

// mayHaveUnseen says whether a topic may have been made for p of which p's status does not tell, and that has to go
// with it: p was deleted between the request and the status that was to tell of it. The intent came before the request,
// at a moment when there was no such topic.
func mayHaveUnseen(p *hwv1alpha1.Partition) bool {
	return intends(p) && !refusedLast(p) && effectivePolicy(p) == hwv1alpha1.DeletionDelete
}

// deleteUnseen deletes such a topic, or finds that there is none. again is as in deleteTopic.
func (r *Reconciler) deleteUnseen(ctx context.Context, p *hwv1alpha1.Partition, set *hwv1alpha1.ReplicaSet, siblings []hwv1alpha1.Partition) (told []report.Event, again time.Duration) {
	topic := p.EffectiveTopic()
	since := time.Since(p.DeletionTimestamp.Time)
	if remaining(p, siblings) != nil {
		return nil, 0 // The topic, if it comes, is theirs.
	}
	var state cluster.State
	connection, connected := r.Clusters.Get(client.ObjectKeyFromObject(set))
	if connected {
		state = connection.State()
	}
	if state.Image == nil || state.Reach != cluster.Following {
		if since > deletePatience {
			return nil, 0
		}
		return nil, time.Second
	}
	made, found := state.Image.Topic(topic)
	if !found {
		if since < unseenPatience {
			return nil, unseenPatience - since
		}
		return nil, 0
	}
	id := made.ID.String()
	if !madeForThese(made, state.Image, p, siblings) {
		return []report.Event{keptEvent(topic, id, "not every partition of it was made for a Partition")}, 0
	}
	err := connection.Admin().DeleteTopic(ctx, made.ID)
	var refused *cluster.RefusedError
	switch {
	case errors.As(err, &refused):
		return []report.Event{keptEvent(topic, id, fmt.Sprintf("the cluster refused to delete it: %v", refused))}, 0
	case err != nil && since > deletePatience:
		return []report.Event{keptEvent(topic, id, fmt.Sprintf("its cluster could not be reached for %s", deletePatience))}, 0
	case err != nil:
		log.FromContext(ctx).Info("the topic could not be deleted yet", "topic", topic, "error", err.Error())
		return nil, time.Second
	default:
		return []report.Event{deletedEvent(topic, id)}, 0
	}
}

// madeForThese says whether the topic is what the operator would have made for p and its siblings, all of which go:
// each partition has one that intended it, and the topic has the keys that they say and no others.
func madeForThese(made *metadata.Topic, image *metadata.Image, p *hwv1alpha1.Partition, siblings []hwv1alpha1.Partition) bool {
	intended := map[int32]*hwv1alpha1.Partition{p.Spec.Index: p}
	for i := range siblings {
		s := &siblings[i]
		if s.EffectiveTopic() != p.EffectiveTopic() || s.Status.Origin != hwv1alpha1.OriginCreated || refusedLast(s) {
			continue
		}
		if s.Status.TopicID == "" || s.Status.TopicID == made.ID.String() {
			intended[s.Spec.Index] = s
		}
	}
	for index := range made.Partitions() {
		if intended[index] == nil {
			return false
		}
	}
	authority := intended[0]
	if authority == nil {
		return false
	}
	first, has := made.Partition(0)
	wanted := settingsOf(authority)
	set, remove := configChange(image, made.Name, wanted.configs, true)
	return has && len(first.Replicas) == int(wanted.replicationFactor) && len(set) == 0 && len(remove) == 0
}
