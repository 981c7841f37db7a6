package partition

import (
	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// plan is what one pass asks of the cluster. At most one field is set.
type plan struct {
	create *cluster.NewTopic
	grow   *growth
	alter  *alteration
	// unready says that a Partition of what is to be made has not written its intent yet.
	unready bool
}

type growth struct {
	count       int32
	assignments [][]int32
}

type alteration struct {
	set    map[string]string
	remove []string
}

// planFor says what the pass over p does. Of a family, the Partition with the lowest index that is missing makes what
// can be made, all in one request, and the one with index 0 sets the topic's keys: nothing is asked for twice.
func (f family) planFor(p *hwv1alpha1.Partition, image *metadata.Image) plan {
	first := f.count()
	switch {
	case f.claims[p.Spec.Index] == nil || f.claims[p.Spec.Index].UID != p.UID:
		return plan{}
	case p.Spec.Index == first:
		return f.planMissing(first, image)
	case p.Spec.Index == 0:
		set, remove := configChange(image, f.topic, f.settings.configs, p.Status.Origin == hwv1alpha1.OriginCreated)
		if len(set) > 0 || len(remove) > 0 {
			return plan{alter: &alteration{set, remove}}
		}
	}
	return plan{}
}

// planMissing takes the Partitions that follow each other from the first that is missing. Kafka takes either all
// assignments in a request or none.
func (f family) planMissing(first int32, image *metadata.Image) plan {
	var assignments [][]int32
	explicit := len(f.claims[first].Spec.Assignment) > 0
	end := first
	for ; ; end++ {
		claim := f.claims[end]
		if claim == nil || (len(claim.Spec.Assignment) > 0) != explicit || !f.judge(claim, image).accepted() {
			break
		}
		if !intends(claim) {
			return plan{unready: true}
		}
		if explicit {
			assignments = append(assignments, claim.Spec.Assignment)
		}
	}
	if end == first {
		return plan{}
	}
	if first > 0 {
		return plan{grow: &growth{count: end, assignments: assignments}}
	}
	return plan{create: &cluster.NewTopic{
		Name: f.topic, Partitions: end, ReplicationFactor: f.settings.replicationFactor,
		Assignments: assignments, Configs: f.settings.configs,
	}}
}

// intends says whether it is on record that the partition is to be made for p. Without that record an operator that
// died after the request would take the partition for one that was there before.
func intends(p *hwv1alpha1.Partition) bool {
	return p.Status.Origin == hwv1alpha1.OriginCreated && p.Status.TopicID == ""
}
