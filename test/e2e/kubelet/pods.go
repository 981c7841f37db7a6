package main

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// job is a pod of the client's image.
type job struct {
	name string
	args []string
	// claim to mount at /volume.
	claim string
	// group gives the pod the volumes' group; without it the pod sees what others made of the volume.
	group bool
	// machine is where to run, notMachine where not to.
	machine, notMachine string
}

// manifest builds the pod, restricted as the namespace demands.
func (j job) manifest(namespace, image string) *corev1.Pod {
	off, on, id, grace := false, true, int64(65532), int64(5)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: j.name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  &off,
			TerminationGracePeriodSeconds: &grace,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &on, RunAsUser: &id, RunAsGroup: &id,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "client", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: j.args,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &off, ReadOnlyRootFilesystem: &on,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	if j.group {
		pod.Spec.SecurityContext.FSGroup = &id
	}
	if j.claim != "" {
		pod.Spec.Volumes = []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: j.claim},
		}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "volume", MountPath: "/volume"}}
	}
	operator, machine := corev1.NodeSelectorOpIn, j.machine
	if j.notMachine != "" {
		operator, machine = corev1.NodeSelectorOpNotIn, j.notMachine
	}
	if machine != "" {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: operator, Values: []string{machine}}},
			}}},
		}}
	}
	return pod
}

// runOnce runs a job to its end and returns what it printed.
func (e *env) runOnce(ctx context.Context, f *fixture, j job) (string, error) {
	pod := j.manifest(f.namespace, e.clientImage)
	if err := e.Create(ctx, pod); err != nil {
		return "", err
	}
	phase, err := e.ended(ctx, pod)
	if err != nil {
		return "", err
	}
	out, err := e.Kubectl(ctx, "-n", f.namespace, "logs", j.name)
	if err != nil {
		return "", err
	}
	if phase != corev1.PodSucceeded {
		return "", fmt.Errorf("job %s %s: %s", j.name, phase, out)
	}
	return out, e.deletePod(ctx, pod)
}

// ended waits for a pod that runs to an end.
func (e *env) ended(ctx context.Context, pod *corev1.Pod) (corev1.PodPhase, error) {
	var phase corev1.PodPhase
	err := cluster.Eventually(ctx, "pod "+pod.Name+" has ended", func(ctx context.Context) error {
		now, err := e.pod(ctx, pod.Namespace, pod.Name)
		if err != nil {
			return err
		}
		if phase = now.Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			return fmt.Errorf("it is %s %v", phase, now.Status.ContainerStatuses)
		}
		return nil
	})
	return phase, err
}

// gone waits until the pod is no more.
func (e *env) gone(ctx context.Context, pod *corev1.Pod) error {
	return cluster.Eventually(ctx, "pod "+pod.Name+" is gone", func(ctx context.Context) error {
		now, err := e.pod(ctx, pod.Namespace, pod.Name)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && now.UID == pod.UID:
			return errors.New("it is there")
		}
		return err
	})
}

// running waits until the pod runs, and is Ready where that is asked.
func (e *env) running(ctx context.Context, namespace, name string) error {
	return cluster.Eventually(ctx, "pod "+name+" runs", func(ctx context.Context) error {
		pod, err := e.pod(ctx, namespace, name)
		if err != nil {
			return err
		}
		if !cluster.IsReady(pod) {
			return fmt.Errorf("it is %s %v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
}

// scaleOperator sets how many operators there are, and waits for it.
func (e *env) scaleOperator(ctx context.Context, replicas int32) error {
	var deployment appsv1.Deployment
	if err := e.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: operatorName}, &deployment); err != nil {
		return err
	}
	deployment.Spec.Replicas = &replicas
	if err := e.Update(ctx, &deployment); err != nil {
		return err
	}
	if replicas > 0 {
		return e.operatorReady(ctx)
	}
	return cluster.Eventually(ctx, "no operator runs", func(ctx context.Context) error {
		var pods corev1.PodList
		err := e.List(ctx, &pods, client.InNamespace(systemNamespace), client.MatchingLabels{"app.kubernetes.io/component": "operator"})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods", len(pods.Items))
		}
		return err
	})
}
