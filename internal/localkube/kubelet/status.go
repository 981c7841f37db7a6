package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writeStatus makes the pod's status say what is; it writes only a change.
func (w *worker) writeStatus(pod *corev1.Pod) {
	ctx := context.Background()
	for range 5 {
		before := pod.DeepCopy()
		w.fill(pod)
		if equality.Semantic.DeepEqual(before.Status, pod.Status) {
			return
		}
		err := w.k.client.Status().Update(ctx, pod)
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		if !apierrors.IsConflict(err) {
			w.k.log.Error(err, "write a pod's status", "pod", w.key)
			break
		}
		if err := w.k.o.Uncached.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || pod.UID != w.uid {
			return
		}
	}
	w.poke()
}

// fill sets all of the status that a kubelet owns.
func (w *worker) fill(pod *corev1.Pod) {
	s := &pod.Status
	now := metav1.Now()
	s.ObservedGeneration = pod.Generation
	if s.StartTime == nil {
		s.StartTime = &now
	}
	if w.address != nil {
		s.HostIP, s.HostIPs = w.k.o.Network.Host(), []corev1.HostIP{{IP: w.k.o.Network.Host()}}
		s.PodIP, s.PodIPs = w.address.ip, []corev1.PodIP{{IP: w.address.ip}}
	}
	s.InitContainerStatuses = w.statuses(pod, w.inits)
	s.ContainerStatuses = w.statuses(pod, w.mains)
	initialized := true
	for _, c := range w.inits {
		initialized = initialized && c.now == nil && c.last != nil && c.last.ExitCode == 0
	}
	s.Phase = w.phase(pod, initialized)

	var unready []string
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	setCondition := func(kind corev1.PodConditionType, ok bool, reason, message string) {
		status := corev1.ConditionTrue
		if ok {
			reason, message = "", ""
		} else {
			status = corev1.ConditionFalse
		}
		c := condition(s, kind)
		if c.Status != status {
			c.LastTransitionTime = now
		}
		c.Status, c.Reason, c.Message, c.ObservedGeneration = status, reason, message, pod.Generation
	}
	over := s.Phase == corev1.PodSucceeded
	notReady, message := "ContainersNotReady", fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	if over {
		notReady, message = "PodCompleted", ""
	}
	if c := condition(s, corev1.PodScheduled); c.Status == "" {
		c.Status, c.LastTransitionTime = corev1.ConditionTrue, now
	}
	setCondition(corev1.PodReadyToStartContainers, w.address != nil && w.mountErr == "", "NotMounted", w.mountErr)
	setCondition(corev1.PodInitialized, initialized, "ContainersNotInitialized", "init containers have not completed")
	setCondition(corev1.ContainersReady, len(unready) == 0, notReady, message)
	ready := len(unready) == 0
	if gate := unmetGate(pod); ready && gate != "" {
		ready, notReady, message = false, "ReadinessGatesNotReady", fmt.Sprintf("corresponding condition of pod readiness gate %q is not True", gate)
	}
	setCondition(corev1.PodReady, ready, notReady, message)
}

// unmetGate names a readiness gate whose condition is not True.
func unmetGate(pod *corev1.Pod) string {
	for _, gate := range pod.Spec.ReadinessGates {
		met := false
		for _, c := range pod.Status.Conditions {
			met = met || c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		}
		if !met {
			return string(gate.ConditionType)
		}
	}
	return ""
}

// condition returns the condition of a type, which it adds when it is missing.
func condition(s *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind})
	return &s.Conditions[len(s.Conditions)-1]
}

func (w *worker) phase(pod *corev1.Pod, initialized bool) corev1.PodPhase {
	ending := pod.DeletionTimestamp != nil && !w.running()
	for _, c := range w.inits {
		if c.finished(pod) && c.last.ExitCode != 0 {
			return corev1.PodFailed
		}
	}
	if !initialized && !ending {
		return corev1.PodPending
	}
	over, failed, begun := true, false, true
	for _, c := range w.mains {
		over = over && (c.finished(pod) || ending)
		failed = failed || c.last == nil || c.last.ExitCode != 0
		begun = begun && (c.now != nil || c.last != nil)
	}
	switch {
	case over && failed:
		return corev1.PodFailed
	case over:
		return corev1.PodSucceeded
	case begun:
		return corev1.PodRunning
	}
	return corev1.PodPending
}

func (w *worker) statuses(pod *corev1.Pod, containers []*container) []corev1.ContainerStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []corev1.ContainerStatus
	for _, c := range containers {
		s := corev1.ContainerStatus{
			Name: c.spec.Name, Image: c.spec.Image, ImageID: "process://" + filepath.Base(c.spec.Image),
			RestartCount: max(0, c.runs-1), Started: ptr.To(false),
		}
		switch {
		case c.now != nil:
			s.ContainerID = c.id()
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.now.proc.Started())}
			s.LastTerminationState.Terminated = c.last
			s.Started = ptr.To(c.now.started)
			s.Ready = c.now.ready && !c.now.ended()
		case c.message != "":
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.problem, Message: c.message}
			s.LastTerminationState.Terminated = c.last
		case c.last != nil && !c.finished(pod) && time.Until(c.due) > 0 && w.ending.IsZero():
			s.ContainerID = c.last.ContainerID
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
				Message: fmt.Sprintf("back-off %v restarting failed container=%s", c.due.Sub(c.last.FinishedAt.Time).Round(time.Millisecond), c.spec.Name)}
			s.LastTerminationState.Terminated = c.last
		case c.last != nil:
			s.ContainerID = c.last.ContainerID
			s.State.Terminated = c.last
			s.Ready = c.init && c.last.ExitCode == 0
		default:
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: w.mountErr}
			if len(w.inits) > 0 && !c.init && w.mountErr == "" {
				s.State.Waiting.Reason = "PodInitializing"
			}
		}
		out = append(out, s)
	}
	return out
}
