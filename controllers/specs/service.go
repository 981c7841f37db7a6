package specs

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// NodesService builds the headless Service under which each pod has a DNS name. Pods that are not ready have one
// too: a node becomes ready by talking to others.
func NodesService(rs *hwv1alpha1.ReplicaSet) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: childMeta(rs, NodesServiceName(rs)),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			PublishNotReadyAddresses: true,
			Selector:                 AllNodesSelector(rs),
			Ports: []corev1.ServicePort{
				servicePort("controller", PortController),
				servicePort("internal", PortInternal),
				servicePort("external", PortExternal),
				servicePort("http", PortHTTP),
			},
		},
	}
}

// BootstrapService builds the Service that clients are given. It leads to any data node that is ready.
func BootstrapService(rs *hwv1alpha1.ReplicaSet) *corev1.Service {
	selector := AllNodesSelector(rs)
	// A Service selects by equality only, so the nodes that hold data carry a label of their own.
	selector[LabelServes] = "clients"
	return &corev1.Service{
		ObjectMeta: childMeta(rs, BootstrapServiceName(rs)),
		Spec: corev1.ServiceSpec{
			Selector: selector,
			Ports:    []corev1.ServicePort{servicePort("kafka", PortExternal)},
		},
	}
}

// LabelServes is on the pods of nodes that clients connect to.
const LabelServes = labelPrefix + "serves"

func servicePort(name string, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromInt32(port), Protocol: corev1.ProtocolTCP}
}

func childMeta(rs *hwv1alpha1.ReplicaSet, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:            name,
		Namespace:       rs.Namespace,
		Labels:          setLabels(rs),
		OwnerReferences: []metav1.OwnerReference{ownerReference(rs)},
	}
}
