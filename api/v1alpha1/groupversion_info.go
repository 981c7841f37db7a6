package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds of this group. They are written out, since TypeMeta is empty on objects that a typed client has read.
const (
	KindPartition  = "Partition"
	KindReplicaSet = "ReplicaSet"
)

var (
	// GroupVersion is the group and version of every type in this package.
	GroupVersion = schema.GroupVersion{Group: "replication.highwater.dev", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addTypes)

	// AddToScheme registers the types of this package.
	AddToScheme = schemeBuilder.AddToScheme
)

func addTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Partition{}, &PartitionList{}, &ReplicaSet{}, &ReplicaSetList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
