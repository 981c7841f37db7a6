package controllermanager

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// namespaces empties namespaces that are being deleted and then lets them go.
type namespaces struct {
	client.Client
	discovery discovery.DiscoveryInterface
	objects   metadata.Interface
}

// namespaceRetry is when a namespace that still holds objects is looked at again.
const namespaceRetry = 300 * time.Millisecond

func (n *namespaces) setup(m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).Named("namespaces").For(&corev1.Namespace{}).Complete(n)
}

func (n *namespaces) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var ns corev1.Namespace
	if err := n.Get(ctx, req.NamespacedName, &ns); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return ctrl.Result{}, nil
	}
	resources, err := deletable(n.discovery, func(r metav1.APIResource) bool { return r.Namespaced })
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("empty namespace %s: %w", ns.Name, err)
	}
	left := 0
	for _, resource := range resources {
		count, err := n.empty(ctx, resource, ns.Name)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("empty namespace %s of %s: %w", ns.Name, resource.Resource, err)
		}
		left += count
	}
	if left > 0 {
		return ctrl.Result{RequeueAfter: namespaceRetry}, nil
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	return ctrl.Result{}, ignoreRaces(n.SubResource("finalize").Update(ctx, &ns))
}

// empty deletes all objects of a resource and returns how many there were; they may take time to go.
func (n *namespaces) empty(ctx context.Context, resource schema.GroupVersionResource, namespace string) (int, error) {
	objects := n.objects.Resource(resource).Namespace(namespace)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, ignoreUnserved(err)
	}
	background := metav1.DeletePropagationBackground
	for i := range list.Items {
		item := &list.Items[i]
		if item.DeletionTimestamp != nil {
			continue
		}
		err := objects.Delete(ctx, item.Name, metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &item.UID}})
		if err := ignoreRaces(err); err != nil {
			return 0, err
		}
	}
	return len(list.Items), nil
}

// ignoreUnserved drops errors which mean that the resource is served no more.
func ignoreUnserved(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return err
}

// deletable returns the resources that can be listed, watched and deleted and that the caller wants, each in the
// version that the server prefers.
func deletable(d discovery.DiscoveryInterface, want func(metav1.APIResource) bool) ([]schema.GroupVersionResource, error) {
	lists, err := d.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	verbs := discovery.SupportsAllVerbs{Verbs: []string{"list", "watch", "delete"}}
	var out []schema.GroupVersionResource
	for _, list := range discovery.FilteredBy(verbs, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			// Events are served by two groups from one store.
			if want(r) && (r.Name != "events" || gv.Group == "") {
				out = append(out, gv.WithResource(r.Name))
			}
		}
	}
	return out, nil
}
