package specs

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// ownerReference makes an object a child of the ReplicaSet.
func ownerReference(rs *hwv1alpha1.ReplicaSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(rs, hwv1alpha1.GroupVersion.WithKind(hwv1alpha1.KindReplicaSet))
}

// IsOwner says whether the ReplicaSet controls the object. Group, kind and UID decide: an apps/v1 ReplicaSet has the
// same kind, and the version of a reference may be an older one of ours.
func IsOwner(rs *hwv1alpha1.ReplicaSet, object metav1.Object) bool {
	ref := metav1.GetControllerOf(object)
	return ref != nil && IsReplicaSetReference(ref) && ref.UID == rs.UID
}

// IsReplicaSetReference says whether the owner is a ReplicaSet of this group.
func IsReplicaSetReference(ref *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == hwv1alpha1.GroupVersion.Group && ref.Kind == hwv1alpha1.KindReplicaSet
}
