package localkube

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (e *env) evict(name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}}
	return e.k.SubResource("eviction").Create(e.Context(), pod, &policyv1.Eviction{})
}

func TestBudgetBlocksEviction(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(e.pod("a"))
	e.create(e.pod("b"))
	e.ready("a")
	e.ready("b")
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, MinAvailable: ptr.To(intstr.FromInt32(2))}}
	e.create(budget)
	allowed := func(want int32) {
		t.Helper()
		e.eventually(fmt.Sprintf("%d disruptions allowed", want), func() error {
			err := e.k.Get(t.Context(), client.ObjectKeyFromObject(budget), budget)
			if err == nil && (budget.Status.DisruptionsAllowed != want || budget.Status.ObservedGeneration != budget.Generation) {
				err = fmt.Errorf("%+v", budget.Status)
			}
			return err
		})
	}
	e.eventually("the budget to be computed", func() error {
		err := e.k.Get(t.Context(), client.ObjectKeyFromObject(budget), budget)
		if err == nil && (budget.Status.CurrentHealthy != 2 || budget.Status.DesiredHealthy != 2) {
			err = fmt.Errorf("%+v", budget.Status)
		}
		return err
	})
	if err := e.evict("a"); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("evict = %v, want refused", err)
	}
	budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
	e.must(e.k.Update(t.Context(), budget))
	allowed(1)
	pod, err := e.get("a")
	e.must(err)
	e.must(e.evict("a"))
	if err := e.evict("b"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second eviction = %v, want refused", err)
	}
	e.isGone(pod)
	allowed(0)
	e.create(e.pod("a"))
	e.ready("a")
	allowed(1)
}

// widgets is a kind with a scale subresource that owns pods, as a ReplicaSet of ours does.
func (e *env) widgets() func(name string, replicas int64) *unstructured.Unstructured {
	e.Helper()
	extensions := runtime.NewScheme()
	e.must(apiextensionsv1.AddToScheme(extensions))
	k, err := client.New(e.c.Config(), client.Options{Scheme: extensions})
	e.must(err)
	group := e.ns + ".example.com"
	preserve := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"spec":   {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"replicas": {Type: "integer"}}},
		"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"replicas": {Type: "integer"}}},
	}}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &preserve},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{
					SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"}}}},
		},
	}
	e.must(k.Create(e.Context(), crd))
	return func(name string, replicas int64) *unstructured.Unstructured {
		e.Helper()
		w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1", "kind": "Widget",
			"metadata": map[string]any{"name": name, "namespace": e.ns}, "spec": map[string]any{"replicas": replicas}}}
		e.eventually("widgets to be served", func() error { return e.k.Create(e.Context(), w) })
		return w
	}
}

func owned(o client.Object, owners ...*unstructured.Unstructured) client.Object {
	for i, owner := range owners {
		ref := metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: ptr.To(true)}
		if i == 0 {
			ref.Controller = ptr.To(true)
		}
		o.SetOwnerReferences(append(o.GetOwnerReferences(), ref))
	}
	return o
}

func TestMaxUnavailableCountsByTheOwnersScale(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	widget := e.widgets()("w", 3)
	e.create(owned(e.pod("a"), widget))
	e.create(owned(e.pod("b"), widget))
	e.ready("a")
	e.ready("b")
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, MaxUnavailable: ptr.To(intstr.FromInt32(1))}}
	e.create(budget)
	e.eventually("the third pod, which is missing, to count", func() error {
		err := e.k.Get(t.Context(), client.ObjectKeyFromObject(budget), budget)
		s := budget.Status
		if err == nil && (s.ExpectedPods != 3 || s.DesiredHealthy != 2 || s.CurrentHealthy != 2 || s.DisruptionsAllowed != 0) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	e.create(e.pod("stray")) // of no controller: the budget can't be computed any more, as in Kubernetes
	e.eventually("the budget to say why it allows nothing", func() error {
		err := e.k.Get(t.Context(), client.ObjectKeyFromObject(budget), budget)
		if c := meta.FindStatusCondition(budget.Status.Conditions, policyv1.DisruptionAllowedCondition); err == nil && (c == nil || c.Reason != policyv1.SyncFailedReason) {
			err = fmt.Errorf("%+v", budget.Status)
		}
		return err
	})
}

func TestOwnedObjectsAreCollected(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	makeWidget := e.widgets()
	one, two := makeWidget("one", 1), makeWidget("two", 1)
	pod := owned(e.pod("a"), one)
	both := owned(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "both"}}, one, two)
	free := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "free"}}
	for _, o := range []client.Object{pod, both, free} {
		e.create(o)
	}
	e.ready("a")
	e.must(e.k.Delete(t.Context(), one, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	e.isGone(one)
	e.isGone(pod)
	e.eventually("the shared object to lose one owner and stay", func() error {
		err := e.k.Get(t.Context(), client.ObjectKeyFromObject(both), both)
		if err == nil && (len(both.GetOwnerReferences()) != 1 || both.GetOwnerReferences()[0].Name != "two") {
			err = fmt.Errorf("owners %+v", both.GetOwnerReferences())
		}
		return err
	})
	late := owned(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, one) // its owner is gone already
	e.create(late)
	e.isGone(late)

	// Foreground: the owner stays until its dependents have gone.
	held := owned(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}, two)
	e.create(held)
	e.must(e.k.Delete(t.Context(), two, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	e.isGone(both)
	e.eventually("the held dependent to be terminating", func() error {
		err := e.k.Get(t.Context(), client.ObjectKeyFromObject(held), held)
		if err == nil && held.GetDeletionTimestamp() == nil {
			err = fmt.Errorf("it is not")
		}
		return err
	})
	e.must(e.k.Get(t.Context(), client.ObjectKeyFromObject(two), two))
	e.eventually("the dependent to be let go", func() error { // the collector changes it at the same time
		if err := e.k.Get(t.Context(), client.ObjectKeyFromObject(held), held); err != nil {
			return err
		}
		held.SetFinalizers(slices.DeleteFunc(held.GetFinalizers(), func(f string) bool { return f == "example.com/hold" }))
		return e.k.Update(t.Context(), held)
	})
	e.isGone(held)
	e.isGone(two)

	// Orphan: the dependents stay, without an owner.
	three := makeWidget("three", 1)
	left := owned(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "left"}}, three)
	e.create(left)
	e.must(e.k.Delete(t.Context(), three, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	e.isGone(three)
	e.must(e.k.Get(t.Context(), client.ObjectKeyFromObject(left), left))
	if len(left.GetOwnerReferences()) != 0 {
		t.Errorf("the orphan still names an owner: %+v", left.GetOwnerReferences())
	}
	e.must(e.k.Get(t.Context(), client.ObjectKeyFromObject(free), free))
}

func TestNamespaceEndsWithAllThatItHolds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	widget := e.widgets()("w", 1)
	claim := e.claim("data")
	e.create(claim)
	pod := withVolume(e.pod("a"), "/data", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
	e.create(pod)
	e.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
	e.ready("a")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}
	e.must(e.k.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	e.must(e.k.Delete(t.Context(), ns))
	e.isGone(ns)
	for _, o := range []client.Object{widget, claim, pod} {
		if err := e.k.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T after its namespace: %v", o, err)
		}
	}
}
