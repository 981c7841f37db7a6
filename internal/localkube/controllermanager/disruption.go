package controllermanager

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/scale"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// evictionTimeout is how long an eviction that was granted counts as a missing pod while the pod is still there, as
// in the disruption controller of Kubernetes.
const evictionTimeout = 2 * time.Minute

// disruption computes the status of PodDisruptionBudgets by the rules of Kubernetes' disruption controller; the API
// server's eviction subresource obeys it.
type disruption struct {
	client.Client
	mapper meta.ResettableRESTMapper
	scales scale.ScalesGetter
}

func (d *disruption) setup(m manager.Manager) error {
	ofPod := func(ctx context.Context, o client.Object) []reconcile.Request {
		var budgets policyv1.PodDisruptionBudgetList
		if d.List(ctx, &budgets, client.InNamespace(o.GetNamespace())) != nil {
			return nil
		}
		var out []reconcile.Request
		for i := range budgets.Items {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&budgets.Items[i])})
		}
		return out
	}
	return ctrl.NewControllerManagedBy(m).Named("disruption").For(&policyv1.PodDisruptionBudget{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		Complete(d)
}

func (d *disruption) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var budget policyv1.PodDisruptionBudget
	if err := d.Get(ctx, req.NamespacedName, &budget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if budget.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return ctrl.Result{}, nil // the API server has checked it
	}
	if budget.Spec.Selector == nil {
		selector = labels.Nothing()
	}
	var pods corev1.PodList
	if err := d.List(ctx, &pods, client.InNamespace(budget.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return ctrl.Result{}, err
	}
	now := time.Now()
	want := budget.Status.DeepCopy()
	want.ObservedGeneration = budget.Generation
	again := disrupted(want, pods.Items, now)
	expected, desired, err := d.wanted(ctx, &budget, pods.Items)
	result := ctrl.Result{RequeueAfter: again}
	reason := policyv1.SufficientPodsReason
	message := ""
	if err != nil {
		// As Kubernetes does: a budget that can't be computed allows nothing.
		want.DisruptionsAllowed = 0
		reason, message = policyv1.SyncFailedReason, err.Error()
		result.RequeueAfter = 5 * time.Second
	} else {
		want.ExpectedPods, want.DesiredHealthy = expected, desired
		want.CurrentHealthy = healthy(pods.Items, want.DisruptedPods)
		want.DisruptionsAllowed = max(0, want.CurrentHealthy-desired)
		if expected <= 0 {
			want.DisruptionsAllowed = 0
		}
		if want.DisruptionsAllowed == 0 {
			reason = policyv1.InsufficientPodsReason
		}
	}
	status := metav1.ConditionFalse
	if want.DisruptionsAllowed > 0 {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&want.Conditions, metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: status,
		Reason: reason, Message: message, ObservedGeneration: budget.Generation})
	if equality.Semantic.DeepEqual(budget.Status, *want) {
		return result, nil
	}
	budget.Status = *want
	return result, ignoreRaces(d.Status().Update(ctx, &budget))
}

// disrupted drops the evictions whose pod has gone or that were not acted on, and returns when the next one of the
// latter is due.
func disrupted(s *policyv1.PodDisruptionBudgetStatus, pods []corev1.Pod, now time.Time) time.Duration {
	next := time.Duration(0)
	kept := map[string]metav1.Time{}
	for i := range pods {
		p := &pods[i]
		at, ok := s.DisruptedPods[p.Name]
		if !ok || p.DeletionTimestamp != nil {
			continue
		}
		if left := at.Add(evictionTimeout).Sub(now); left > 0 {
			kept[p.Name] = at
			if next == 0 || left < next {
				next = left
			}
		}
	}
	s.DisruptedPods = kept
	if len(kept) == 0 {
		s.DisruptedPods = nil
	}
	return next
}

func healthy(pods []corev1.Pod, disrupted map[string]metav1.Time) int32 {
	count := int32(0)
	for i := range pods {
		p := &pods[i]
		if _, going := disrupted[p.Name]; going || p.DeletionTimestamp != nil {
			continue
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				count++
			}
		}
	}
	return count
}

// wanted returns how many pods there should be and how many must stay healthy. For maxUnavailable and percentages the
// former is what the pods' controllers want by their scale subresource; for a number it is the pods that are there.
func (d *disruption) wanted(ctx context.Context, budget *policyv1.PodDisruptionBudget, pods []corev1.Pod) (expected, desired int32, err error) {
	if limit := budget.Spec.MaxUnavailable; limit != nil {
		if expected, err = d.scaleOf(ctx, budget.Namespace, pods); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(limit, int(expected), true)
		return expected, max(0, expected-int32(n)), err
	}
	if limit := budget.Spec.MinAvailable; limit != nil {
		if limit.Type == intstr.Int {
			return int32(len(pods)), limit.IntVal, nil
		}
		if expected, err = d.scaleOf(ctx, budget.Namespace, pods); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(limit, int(expected), true)
		return expected, int32(n), err
	}
	return int32(len(pods)), 0, nil
}

// scaleOf sums the scale of the pods' controllers. A pod without a controller makes the budget uncomputable, and so
// does a controller without a scale subresource.
func (d *disruption) scaleOf(ctx context.Context, namespace string, pods []corev1.Pod) (int32, error) {
	seen := map[types.UID]bool{}
	sum := int32(0)
	for i := range pods {
		owner := metav1.GetControllerOf(&pods[i])
		if owner == nil {
			return 0, fmt.Errorf("found no controller ref for pod %q", pods[i].Name)
		}
		if seen[owner.UID] {
			continue
		}
		seen[owner.UID] = true
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err != nil {
			return 0, err
		}
		mapping, err := mapKind(d.mapper, gv.WithKind(owner.Kind))
		if err != nil {
			return 0, err
		}
		got, err := d.scales.Scales(namespace).Get(ctx, mapping.Resource.GroupResource(), owner.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return 0, fmt.Errorf("%s %q of pod %q has gone or has no scale subresource", mapping.Resource.GroupResource(), owner.Name, pods[i].Name)
		case err != nil:
			return 0, err
		case got.UID != owner.UID:
			return 0, fmt.Errorf("the controller of pod %q has gone", pods[i].Name)
		}
		sum += got.Spec.Replicas
	}
	return sum, nil
}

// mapKind finds the resource of a kind; it asks the API server anew when it knows none.
func mapKind(mapper meta.ResettableRESTMapper, kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		mapper.Reset()
		mapping, err = mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	return mapping, err
}
