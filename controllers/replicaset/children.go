package replicaset

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/specs"
)

// ensureServices makes both Services and puts right what somebody changed.
func (r *Reconciler) ensureServices(ctx context.Context, rs *hwv1alpha1.ReplicaSet, p *problems) error {
	for _, wanted := range []*corev1.Service{specs.NodesService(rs), specs.BootstrapService(rs)} {
		err := ensure(ctx, r, rs, wanted, &corev1.Service{}, p, func(existing *corev1.Service) bool {
			selector := change(&existing.Spec.Selector, wanted.Spec.Selector)
			publish := change(&existing.Spec.PublishNotReadyAddresses, wanted.Spec.PublishNotReadyAddresses)
			ports := changePorts(existing, wanted)
			return selector || publish || ports
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// changePorts compares what we set of the ports; the rest, such as a node port, is the API server's.
func changePorts(existing, wanted *corev1.Service) bool {
	same := len(existing.Spec.Ports) == len(wanted.Spec.Ports)
	for i := 0; same && i < len(wanted.Spec.Ports); i++ {
		same = existing.Spec.Ports[i].Name == wanted.Spec.Ports[i].Name &&
			existing.Spec.Ports[i].Port == wanted.Spec.Ports[i].Port &&
			existing.Spec.Ports[i].TargetPort == wanted.Spec.Ports[i].TargetPort
	}
	if !same {
		existing.Spec.Ports = wanted.Spec.Ports
	}
	return !same
}

// ensureConfigMap makes the nodes' configuration, and says whether it is there.
func (r *Reconciler) ensureConfigMap(ctx context.Context, rs *hwv1alpha1.ReplicaSet, voters []specs.Identity, p *problems) (bool, error) {
	wanted, err := specs.ConfigMap(rs, specs.ClusterID(rs.UID), voters)
	if err != nil {
		return false, err
	}
	before := len(p.all)
	err = ensure(ctx, r, rs, wanted, &corev1.ConfigMap{}, p, func(existing *corev1.ConfigMap) bool {
		return change(&existing.Data, wanted.Data)
	})
	return err == nil && len(p.all) == before && !p.namespaceTerminating, err
}

// hasConfigMap says whether the nodes' configuration is there, whatever it says.
func (r *Reconciler) hasConfigMap(ctx context.Context, rs *hwv1alpha1.ReplicaSet) (bool, error) {
	key := client.ObjectKey{Namespace: rs.Namespace, Name: specs.ConfigMapName(rs)}
	var existing corev1.ConfigMap
	if err := r.Client.Get(ctx, key, &existing); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return specs.IsOwner(rs, &existing), nil
}

// ensureBudget makes the disruption budget.
func (r *Reconciler) ensureBudget(ctx context.Context, rs *hwv1alpha1.ReplicaSet, nodes int, canSpareOne bool, p *problems) error {
	wanted := specs.Budget(rs, nodes, canSpareOne)
	return ensure(ctx, r, rs, wanted, &policyv1.PodDisruptionBudget{}, p, func(existing *policyv1.PodDisruptionBudget) bool {
		if equality.Semantic.DeepEqual(existing.Spec, wanted.Spec) {
			return false
		}
		existing.Spec = wanted.Spec
		return true
	})
}

// ensure creates wanted, or lets adjust put an existing object of ours right. adjust says whether it changed
// something; what it does not look at stays as it is.
func ensure[T client.Object](ctx context.Context, r *Reconciler, rs *hwv1alpha1.ReplicaSet, wanted, existing T, p *problems, adjust func(T) bool) error {
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(wanted), existing)
	if apierrors.IsNotFound(err) {
		if p.namespaceTerminating {
			return nil
		}
		err = r.Client.Create(ctx, wanted)
		if !apierrors.IsAlreadyExists(err) {
			return describe(p.tolerate(err), "create", wanted)
		}
		err = r.Live.Get(ctx, client.ObjectKeyFromObject(wanted), existing)
	}
	if err != nil {
		return describe(client.IgnoreNotFound(err), "read", wanted)
	}
	if !specs.IsOwner(rs, existing) {
		p.add(hwv1alpha1.ReasonNameTaken, "%T %s is there and is not of this ReplicaSet: delete it or name the ReplicaSet otherwise",
			wanted, wanted.GetName())
		return nil
	}
	if !existing.GetDeletionTimestamp().IsZero() {
		return nil
	}
	changed := adjust(existing)
	if changeLabels(existing, wanted.GetLabels()) {
		changed = true
	}
	if !changed {
		return nil
	}
	return describe(r.Client.Update(ctx, existing), "put right", wanted)
}

func describe(err error, doing string, object client.Object) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %T %s/%s: %w", doing, object, object.GetNamespace(), object.GetName(), err)
}

func change[T any](existing *T, wanted T) bool {
	if equality.Semantic.DeepEqual(*existing, wanted) {
		return false
	}
	*existing = wanted
	return true
}

// changeLabels puts our labels back and leaves others alone.
func changeLabels(object client.Object, wanted map[string]string) bool {
	labels := maps.Clone(object.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, wanted)
	if maps.Equal(labels, object.GetLabels()) {
		return false
	}
	object.SetLabels(labels)
	return true
}
