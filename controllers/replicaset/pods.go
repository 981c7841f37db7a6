package replicaset

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/controllers/specs"
)

// ensurePods makes the pods that are missing, all in this pass: the first quorum forms only when most voters run, and
// after a loss of all pods nobody is there to wait for. Pods that have ended are deleted, to be made anew.
// outdated are the nodes whose pods were made from an older spec.
func (r *Reconciler) ensurePods(ctx context.Context, rs *hwv1alpha1.ReplicaSet, found owned, nodes []specs.Node, p *problems) (outdated []int32, err error) {
	for _, node := range nodes {
		c, has := found.claims[node.ID]
		if !has {
			continue
		}
		pod := found.pods[node.ID]
		if pod == nil && (!c.DeletionTimestamp.IsZero() || p.namespaceTerminating) {
			continue
		}
		wanted, err := specs.Pod(rs, node, c.Identity, r.DefaultImage)
		if err != nil {
			return nil, err
		}
		switch {
		case pod == nil:
			if !c.Formatted {
				may, err := r.mayFormat(ctx, rs, c)
				if err != nil {
					return nil, err
				}
				if !may {
					continue
				}
			}
			if err := r.createPod(ctx, rs, wanted, p); err != nil {
				return nil, err
			}
		case !pod.DeletionTimestamp.IsZero():
		case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
			if err := r.deleteEndedPod(ctx, rs, pod); err != nil {
				return nil, err
			}
		default:
			if pod.Annotations[specs.AnnotationRevision] != wanted.Annotations[specs.AnnotationRevision] {
				outdated = append(outdated, node.ID)
			}
			if err := r.withdrawPermit(ctx, pod, c); err != nil {
				return nil, err
			}
			noteBadVolume(rs, node, pod, p)
		}
	}
	return outdated, nil
}

func (r *Reconciler) createPod(ctx context.Context, rs *hwv1alpha1.ReplicaSet, wanted *corev1.Pod, p *problems) error {
	err := r.Client.Create(ctx, wanted)
	if !apierrors.IsAlreadyExists(err) {
		return describe(p.tolerate(err), "create", wanted)
	}
	var existing corev1.Pod
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(wanted), &existing); err != nil {
		return describe(client.IgnoreNotFound(err), "read", wanted)
	}
	if !specs.IsOwner(rs, &existing) {
		p.add(hwv1alpha1.ReasonNameTaken, "pod %s is there and is not of this ReplicaSet: delete it or name the ReplicaSet otherwise", wanted.Name)
		return nil
	}
	// Ours: the cache is behind, or somebody took the labels away by which it finds pods.
	if changeLabels(&existing, wanted.Labels) {
		return describe(r.Client.Update(ctx, &existing), "put the labels back on", wanted)
	}
	return nil
}

// deleteEndedPod deletes a pod whose containers will not run again. It touches no pod that lives (deleteLivingPod does);
// the precondition keeps it from one that took the name since.
func (r *Reconciler) deleteEndedPod(ctx context.Context, rs *hwv1alpha1.ReplicaSet, pod *corev1.Pod) error {
	err := r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return describe(err, "delete", pod)
	}
	return r.Events.Write(ctx, hwv1alpha1.KindReplicaSet, rs, report.Event{
		Reason:  hwv1alpha1.EventPodReplaced,
		Warning: true,
		Message: fmt.Sprintf("pod %s had ended (%s) and is made anew", pod.Name, strings.TrimSpace(string(pod.Status.Phase)+" "+pod.Status.Reason)),
		Key:     string(pod.UID),
	})
}

// noteBadVolume tells of a node that stopped because its volume is not the one that it should have.
func noteBadVolume(rs *hwv1alpha1.ReplicaSet, node specs.Node, pod *corev1.Pod, p *problems) {
	message, refused := badVolume(pod)
	if !refused {
		return
	}
	if node.Role == hwv1alpha1.RoleVoter {
		message += fmt.Sprintf(". If the volume can't be brought back, delete claim %s: the voter then gets a new one, and joins the quorum again under another directory id",
			specs.ClaimName(rs, node.ID))
	}
	p.add(hwv1alpha1.ReasonVolumeLost, "pod %s: %s", pod.Name, message)
}

// badVolume is what a node said that stopped because of its volume.
func badVolume(pod *corev1.Pod) (message string, refused bool) {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name != specs.ContainerName || status.Ready {
			continue
		}
		for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
			if t := state.Terminated; t != nil && t.ExitCode == specs.ExitBadVolume {
				return strings.TrimSpace(t.Message), true
			}
		}
	}
	return "", false
}

// isReady is the kubelet's word.
func isReady(pod *corev1.Pod) bool {
	if pod == nil || !pod.DeletionTimestamp.IsZero() {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// stuckOn names what keeps a pod from running, empty when nothing is known to.
func stuckOn(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if w := status.State.Waiting; status.Name == specs.ContainerName && w != nil && w.Reason != "ContainerCreating" {
			return w.Reason
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Reason
		}
	}
	return ""
}
