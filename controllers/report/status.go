package report

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// Statuses writes the status of objects of one kind. It is safe for concurrent use.
type Statuses struct {
	kind   string
	writer client.StatusClient

	mu      sync.Mutex
	written map[types.UID]string // resource version of the last status written that the cache has not shown yet
}

// NewStatuses returns a writer of the status of a kind.
func NewStatuses(kind string, writer client.StatusClient) *Statuses {
	return &Statuses{kind: kind, writer: writer, written: map[types.UID]string{}}
}

// Behind says whether a copy from the cache is older than the last status that was written. What is derived from the
// difference to such a copy, events above all, would be derived twice.
func (s *Statuses) Behind(object client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, has := s.written[object.GetUID()]
	if !has {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), last)
	if err == nil && order < 0 {
		return true
	}
	delete(s.written, object.GetUID())
	return false
}

// Forget is for an object that is gone.
func (s *Statuses) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, uid)
}

// Apply writes the whole status of an object by server-side apply; a field that status leaves out is deleted. The
// object's UID and resourceVersion go with it, so a status that was reckoned from an old copy, or for an object that
// was deleted and made again, is refused with a conflict.
func (s *Statuses) Apply(ctx context.Context, object client.Object, status any) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("status of %s %s/%s: %w", s.kind, object.GetNamespace(), object.GetName(), err)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	applied.SetAPIVersion(hwv1alpha1.GroupVersion.String())
	applied.SetKind(s.kind)
	applied.SetNamespace(object.GetNamespace())
	applied.SetName(object.GetName())
	applied.SetUID(object.GetUID())
	applied.SetResourceVersion(object.GetResourceVersion())
	err = s.writer.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied),
		client.FieldOwner(FieldOwner), client.ForceOwnership)
	if apierrors.IsNotFound(err) {
		return nil // An object that is gone needs no status.
	}
	if err != nil {
		return fmt.Errorf("write status of %s %s/%s: %w", s.kind, object.GetNamespace(), object.GetName(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[object.GetUID()] = applied.GetResourceVersion()
	return nil
}
