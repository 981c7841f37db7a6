package report

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// ApplyStatus writes the whole status of an object by server-side apply; a field that status leaves out is deleted.
// The object's UID and resourceVersion go with it, so a status that was reckoned from an old copy, or for an object
// that was deleted and made again, is refused with a conflict.
func ApplyStatus(ctx context.Context, writer client.StatusClient, kind string, object client.Object, status any) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("status of %s %s/%s: %w", kind, object.GetNamespace(), object.GetName(), err)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	applied.SetAPIVersion(hwv1alpha1.GroupVersion.String())
	applied.SetKind(kind)
	applied.SetNamespace(object.GetNamespace())
	applied.SetName(object.GetName())
	applied.SetUID(object.GetUID())
	applied.SetResourceVersion(object.GetResourceVersion())
	err = writer.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied),
		client.FieldOwner(FieldOwner), client.ForceOwnership)
	if err != nil && !apierrors.IsNotFound(err) { // An object that is gone needs no status.
		return fmt.Errorf("write status of %s %s/%s: %w", kind, object.GetNamespace(), object.GetName(), err)
	}
	return nil
}
