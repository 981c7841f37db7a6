package specs

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func httpProbe(path string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: path, Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP,
	}}
}

// startupProbe gives a node ten minutes to come to life; it looks often, so that a start is seen at once.
func startupProbe() *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: httpProbe("/livez"), PeriodSeconds: 1, TimeoutSeconds: 2, SuccessThreshold: 1, FailureThreshold: 600,
	}
}

// livenessProbe restarts a node that hangs. It is slow to judge: a restart costs more than a pause.
func livenessProbe() *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: httpProbe("/livez"), PeriodSeconds: 10, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: 6,
	}
}

// readinessProbe says whether this node serves; it does not speak for the cluster.
func readinessProbe() *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: httpProbe("/readyz"), PeriodSeconds: 2, TimeoutSeconds: 2, SuccessThreshold: 1, FailureThreshold: 2,
	}
}
