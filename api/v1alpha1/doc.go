// Package v1alpha1 is the Kubernetes API of Highwater: Partition and ReplicaSet, their validation rules, condition
// types and reasons, and event reasons.
//
// Import it as hwv1alpha1. ReplicaSet shares its kind with apps/v1; its plural is hwreplicasets and every owner
// check compares group, kind and UID.
//
// +kubebuilder:object:generate=true
// +groupName=replication.highwater.dev
package v1alpha1
