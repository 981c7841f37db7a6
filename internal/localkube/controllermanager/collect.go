package controllermanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

var errNotSynced = errors.New("not everything was seen yet")

// collect does what is due for one object.
func (c *collector) collect(ctx context.Context, uid types.UID) error {
	c.mu.Lock()
	o, ok := c.known[uid]
	c.mu.Unlock()
	if !ok {
		return nil
	}
	if o.deleting(metav1.FinalizerDeleteDependents) {
		return c.deleteDependents(ctx, o)
	}
	if o.deleting(metav1.FinalizerOrphanDependents) {
		return c.orphanDependents(ctx, o)
	}
	if o.DeletionTimestamp != nil || len(o.OwnerReferences) == 0 {
		return nil
	}
	return c.judge(ctx, o)
}

// judge deletes an object that no owner keeps, and takes owners that have gone out of one that another keeps.
func (c *collector) judge(ctx context.Context, o object) error {
	var solid, waiting, dangling []metav1.OwnerReference
	for _, ref := range o.OwnerReferences {
		c.mu.Lock()
		owner, known := c.known[ref.UID]
		absent := c.absent[ref.UID]
		c.mu.Unlock()
		switch {
		case known && owner.deleting(metav1.FinalizerDeleteDependents):
			waiting = append(waiting, ref)
		case known:
			solid = append(solid, ref)
		case absent:
			dangling = append(dangling, ref)
		default:
			exists, err := c.exists(ctx, ref, o.Namespace)
			if err != nil {
				return err
			}
			if exists {
				solid = append(solid, ref)
				continue
			}
			c.mu.Lock()
			c.absent[ref.UID] = true
			c.mu.Unlock()
			dangling = append(dangling, ref)
		}
	}
	switch {
	case len(dangling)+len(waiting) == 0:
		return nil
	case len(solid) > 0:
		return c.patch(ctx, o, map[string]any{"ownerReferences": solid})
	case len(waiting) > 0:
		return c.delete(ctx, o, metav1.DeletePropagationForeground)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return c.delete(ctx, o, policy)
}

// exists asks the API server for an owner that was not seen.
func (c *collector) exists(ctx context.Context, ref metav1.OwnerReference, namespace string) (bool, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return false, err
	}
	mapping, err := mapKind(c.mapper, gv.WithKind(ref.Kind))
	if err != nil {
		return false, fmt.Errorf("owner %s %s: %w", ref.Kind, ref.Name, err) // perhaps served later: nothing is deleted on a doubt
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	owner, err := c.in(mapping.Resource, namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && owner.UID == ref.UID, err
}

// deleteDependents carries out foreground deletion: the owner goes when no dependent is left that blocks it.
func (c *collector) deleteDependents(ctx context.Context, o object) error {
	if !c.synced() {
		return errNotSynced
	}
	blocking := 0
	for _, d := range c.dependentsOf(o.UID) {
		for _, ref := range d.OwnerReferences {
			if ref.UID == o.UID && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
				blocking++
			}
		}
		c.queue.Add(d.UID)
	}
	if blocking > 0 {
		return nil // the end of each of them comes back here
	}
	return c.dropFinalizer(ctx, o, metav1.FinalizerDeleteDependents)
}

func (c *collector) orphanDependents(ctx context.Context, o object) error {
	if !c.synced() {
		return errNotSynced
	}
	for _, d := range c.dependentsOf(o.UID) {
		rest := slices.DeleteFunc(slices.Clone(d.OwnerReferences), func(r metav1.OwnerReference) bool { return r.UID == o.UID })
		if err := c.patch(ctx, d, map[string]any{"ownerReferences": rest}); err != nil {
			return err
		}
	}
	return c.dropFinalizer(ctx, o, metav1.FinalizerOrphanDependents)
}

func (c *collector) dependentsOf(uid types.UID) []object {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []object
	for d := range c.dependents[uid] {
		out = append(out, c.known[d])
	}
	return out
}

func (c *collector) dropFinalizer(ctx context.Context, o object, finalizer string) error {
	rest := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == finalizer })
	return c.patch(ctx, o, map[string]any{"finalizers": rest})
}

func (c *collector) delete(ctx context.Context, o object, policy metav1.DeletionPropagation) error {
	err := c.in(o.resource, o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
	})
	if apierrors.IsConflict(err) {
		return err // it changed meanwhile: judged again by what it is now
	}
	return ignoreRaces(err)
}

// patch changes metadata of the object as it was seen; a conflict is an error, and the object is judged again.
func (c *collector) patch(ctx context.Context, o object, fields map[string]any) error {
	fields["uid"], fields["resourceVersion"] = o.UID, o.ResourceVersion
	data, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	_, err = c.in(o.resource, o.Namespace).Patch(ctx, o.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// in returns the objects of a resource in a namespace, cluster-wide ones when that is empty.
func (c *collector) in(resource schema.GroupVersionResource, namespace string) metadata.ResourceInterface {
	if namespace == "" {
		return c.objects.Resource(resource)
	}
	return c.objects.Resource(resource).Namespace(namespace)
}
