package controllermanager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// scheduler binds each pending pod to the fitting Node with the fewest pods. It honours spec.nodeName, nodeSelector,
// cordons and NoSchedule taints; affinity, topology spread and resources are not looked at.
type scheduler struct {
	client.Client
	// assumed is what was bound a moment ago and may not be in the cache yet. Reconcile runs one at a time.
	assumed map[types.UID]assumption
}

type assumption struct {
	node string
	at   time.Time
}

func (s *scheduler) setup(m manager.Manager) error {
	s.assumed = map[types.UID]assumption{}
	pending := func(ctx context.Context, _ client.Object) []reconcile.Request {
		var pods corev1.PodList
		if s.List(ctx, &pods) != nil {
			return nil
		}
		var out []reconcile.Request
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName == "" {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
			}
		}
		return out
	}
	return ctrl.NewControllerManagedBy(m).Named("scheduler").For(&corev1.Pod{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(pending)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(pending)).
		Complete(s)
}

func (s *scheduler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := s.Get(ctx, req.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 {
		return ctrl.Result{}, nil
	}
	node, why, err := s.pick(ctx, &pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	if node == "" {
		return ctrl.Result{}, s.unschedulable(ctx, &pod, why)
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	err = s.SubResource("binding").Create(ctx, &pod, binding)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // bound or gone meanwhile; the cache will say so
	}
	if err == nil {
		s.assumed[pod.UID] = assumption{node: node, at: time.Now()}
	}
	return ctrl.Result{}, err
}

// pick returns the Node for a pod, or why there is none.
func (s *scheduler) pick(ctx context.Context, pod *corev1.Pod) (node, why string, err error) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		name := v.PersistentVolumeClaim.ClaimName
		var claim corev1.PersistentVolumeClaim
		err := s.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, &claim)
		switch {
		case apierrors.IsNotFound(err):
			return "", fmt.Sprintf("persistentvolumeclaim %q not found", name), nil
		case err != nil:
			return "", "", err
		case claim.DeletionTimestamp != nil:
			return "", fmt.Sprintf("persistentvolumeclaim %q is being deleted", name), nil
		case claim.Status.Phase != corev1.ClaimBound:
			return "", fmt.Sprintf("pod has unbound immediate PersistentVolumeClaim %q", name), nil
		}
	}
	var nodes corev1.NodeList
	var pods corev1.PodList
	if err := s.List(ctx, &nodes); err != nil {
		return "", "", err
	}
	if err := s.List(ctx, &pods); err != nil {
		return "", "", err
	}
	load := map[string]int{}
	for i := range pods.Items {
		at := pods.Items[i].Spec.NodeName
		if at != "" {
			delete(s.assumed, pods.Items[i].UID)
			load[at]++
		}
	}
	for uid, a := range s.assumed {
		if time.Since(a.at) > time.Minute {
			delete(s.assumed, uid)
			continue
		}
		load[a.node]++
	}
	var refusals []string
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if refusal := refuses(n, pod); refusal != "" {
			refusals = append(refusals, n.Name+" "+refusal)
			continue
		}
		if node == "" || load[n.Name] < load[node] || load[n.Name] == load[node] && n.Name < node {
			node = n.Name
		}
	}
	slices.Sort(refusals)
	return node, fmt.Sprintf("0/%d nodes are available: %s", len(nodes.Items), strings.Join(refusals, ", ")), nil
}

// refuses says why a pod can't be on a Node.
func refuses(n *corev1.Node, pod *corev1.Pod) string {
	if n.Spec.Unschedulable {
		return "is unschedulable"
	}
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(n.Labels)) {
		return "doesn't match the pod's node selector"
	}
	for i := range n.Spec.Taints {
		taint := &n.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Effect == "" || t.Effect == taint.Effect) &&
				(t.Operator == corev1.TolerationOpExists && (t.Key == "" || t.Key == taint.Key) ||
					t.Operator != corev1.TolerationOpExists && t.Key == taint.Key && t.Value == taint.Value)
		})
		if !tolerated {
			return "has an untolerated taint " + taint.Key
		}
	}
	return ""
}

func (s *scheduler) unschedulable(ctx context.Context, pod *corev1.Pod, why string) error {
	now := metav1.Now()
	want := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: why, LastTransitionTime: now, ObservedGeneration: pod.Generation}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != corev1.PodScheduled {
			continue
		}
		if c.Status == want.Status && c.Message == want.Message {
			return nil
		}
		if c.Status == want.Status {
			want.LastTransitionTime = c.LastTransitionTime
		}
		*c = want
		return ignoreRaces(s.Status().Update(ctx, pod))
	}
	pod.Status.Conditions = append(pod.Status.Conditions, want)
	return ignoreRaces(s.Status().Update(ctx, pod))
}

// ignoreRaces drops errors which mean that the object has changed or gone: an event of the change follows.
func ignoreRaces(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
