package devcluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// Names of what config/samples makes; the topic is called as the Partition.
const (
	SampleReplicaSet = "logs"
	SamplePartition  = "orders"
)

// SamplePod is the name of a node's pod.
func SamplePod(id int32) string { return fmt.Sprintf("%s-%d", SampleReplicaSet, id) }

// Healthy is nil when every condition of the samples is as it should be, of their newest generation.
func (c *Cluster) Healthy(ctx context.Context) error {
	rs, err := c.ReplicaSet(ctx, SampleReplicaSet)
	if err != nil {
		return err
	}
	for _, kind := range []string{
		hwv1alpha1.ReplicaSetReady, hwv1alpha1.ReplicaSetQuorumAvailable, hwv1alpha1.ReplicaSetReplicasAvailable, hwv1alpha1.ReplicaSetPartitionsInSync,
	} {
		if err := isTrue("ReplicaSet", rs.Generation, rs.Status.Conditions, kind); err != nil {
			return err
		}
	}
	p, err := c.Partition(ctx, SamplePartition)
	if err != nil {
		return err
	}
	for _, kind := range []string{
		hwv1alpha1.PartitionAccepted, hwv1alpha1.PartitionReady, hwv1alpha1.PartitionInSync, hwv1alpha1.PartitionMinISRSatisfied,
		hwv1alpha1.PartitionIntact,
	} {
		if err := isTrue("Partition", p.Generation, p.Status.Conditions, kind); err != nil {
			return err
		}
	}
	if want := int(*p.Spec.ReplicationFactor); len(p.Status.ISR) != want {
		return fmt.Errorf("the ISR is %v, want %d members", p.Status.ISR, want)
	}
	return nil
}

func isTrue(object string, generation int64, conditions []metav1.Condition, kind string) error {
	c := meta.FindStatusCondition(conditions, kind)
	switch {
	case c == nil:
		return fmt.Errorf("%s has no condition %s yet", object, kind)
	case c.Status != metav1.ConditionTrue:
		return fmt.Errorf("%s %s is %s: %s (%s)", object, kind, c.Status, c.Reason, c.Message)
	case c.ObservedGeneration < generation:
		return fmt.Errorf("%s %s is of generation %d, want %d", object, kind, c.ObservedGeneration, generation)
	}
	return nil
}
