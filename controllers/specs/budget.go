package specs

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// Budget builds the PodDisruptionBudget over all nodes: one pod may be evicted when the verdict is that the set can
// spare one, else none. It counts from the nodes that should exist, so a pod that is missing uses the budget up.
//
// It is minAvailable and not maxUnavailable because Kubernetes reckons the latter from the scale of the pods' owner,
// and that counts only data nodes. A node's readiness speaks of that node alone, so evicting an unready pod takes
// nothing away from the others: AlwaysAllow.
func Budget(rs *hwv1alpha1.ReplicaSet, nodes int, canSpareOne bool) *policyv1.PodDisruptionBudget {
	available := nodes
	if canSpareOne {
		available--
	}
	minAvailable := intstr.FromInt(available)
	policy := policyv1.AlwaysAllow
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: childMeta(rs, BudgetName(rs)),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable:               &minAvailable,
			Selector:                   &metav1.LabelSelector{MatchLabels: AllNodesSelector(rs)},
			UnhealthyPodEvictionPolicy: &policy,
		},
	}
}
