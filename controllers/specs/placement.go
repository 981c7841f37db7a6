package specs

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// topologySpread spreads nodes of one role among themselves: by what the spec says, or else over hosts as far as
// that can be.
func topologySpread(rs *hwv1alpha1.ReplicaSet, node Node) []corev1.TopologySpreadConstraint {
	wanted := []hwv1alpha1.TopologySpread{{TopologyKey: corev1.LabelHostname}}
	if p := rs.Spec.Pods; p != nil && len(p.TopologySpread) > 0 {
		wanted = p.TopologySpread
	}
	selector := AllNodesSelector(rs)
	selector[LabelRole] = component(node.Role)
	var constraints []corev1.TopologySpreadConstraint
	for _, w := range wanted {
		constraint := corev1.TopologySpreadConstraint{
			MaxSkew:           1,
			TopologyKey:       w.TopologyKey,
			WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector:     &metav1.LabelSelector{MatchLabels: selector},
		}
		if w.MaxSkew != nil {
			constraint.MaxSkew = *w.MaxSkew
		}
		if w.WhenUnsatisfiable != "" {
			constraint.WhenUnsatisfiable = w.WhenUnsatisfiable
		}
		constraints = append(constraints, constraint)
	}
	return constraints
}
