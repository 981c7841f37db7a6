package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/specs"
)

// Objects reads a ReplicaSet and a Partition on it.
func (c *Cluster) Objects(ctx context.Context, namespace, replicaSet, partition string) (*hwv1alpha1.ReplicaSet, *hwv1alpha1.Partition, error) {
	var rs hwv1alpha1.ReplicaSet
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: replicaSet}, &rs); err != nil {
		return nil, nil, err
	}
	var p hwv1alpha1.Partition
	return &rs, &p, c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: partition}, &p)
}

// Healthy returns nil when every condition of both is as it should be, on the spec as it is now, and every pod is Ready.
func (c *Cluster) Healthy(ctx context.Context, namespace, replicaSet, partition string) error {
	rs, p, err := c.Objects(ctx, namespace, replicaSet, partition)
	if err != nil {
		return err
	}
	for _, want := range []string{hwv1alpha1.ReplicaSetReady, hwv1alpha1.ReplicaSetQuorumAvailable,
		hwv1alpha1.ReplicaSetReplicasAvailable, hwv1alpha1.ReplicaSetPartitionsInSync} {
		if err := isTrue("ReplicaSet", rs.Generation, rs.Status.Conditions, want); err != nil {
			return err
		}
	}
	for _, want := range []string{hwv1alpha1.PartitionAccepted, hwv1alpha1.PartitionReady,
		hwv1alpha1.PartitionInSync, hwv1alpha1.PartitionMinISRSatisfied, hwv1alpha1.PartitionIntact} {
		if err := isTrue("Partition", p.Generation, p.Status.Conditions, want); err != nil {
			return err
		}
	}
	for _, node := range specs.Nodes(rs) {
		var pod corev1.Pod
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: specs.PodName(rs, node.ID)}, &pod); err != nil {
			return err
		}
		if !IsReady(&pod) || pod.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is not Ready", pod.Name)
		}
	}
	return nil
}

// IsReady says whether the kubelet calls the pod ready.
func IsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func isTrue(kind string, generation int64, conditions []metav1.Condition, want string) error {
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == want })
	switch {
	case i < 0:
		return fmt.Errorf("%s has no condition %s", kind, want)
	case conditions[i].Status != metav1.ConditionTrue:
		return fmt.Errorf("%s: %s=%s, %s: %s", kind, want, conditions[i].Status, conditions[i].Reason, conditions[i].Message)
	case conditions[i].ObservedGeneration != generation:
		return fmt.Errorf("%s: %s speaks of generation %d, the spec is %d", kind, want, conditions[i].ObservedGeneration, generation)
	}
	return nil
}
