package specs

import (
	"fmt"
	"strconv"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// Labels of what belongs to a ReplicaSet.
const (
	labelPrefix = "replication.highwater.dev/"

	// LabelReplicaSet has the name of the ReplicaSet.
	LabelReplicaSet = labelPrefix + "replicaset"
	// LabelReplicaSetUID has its UID; claims are found by it, since they have no owner under Retain.
	LabelReplicaSetUID = labelPrefix + "replicaset-uid"
	// LabelNodeID has the id of the node.
	LabelNodeID = labelPrefix + "node-id"
	// LabelRole has data, voter or combined.
	LabelRole = labelPrefix + "role"
)

// Annotations of claims and pods.
const (
	// AnnotationClusterID is, on a claim, the id of the cluster that the volume belongs to. (Ids may begin with a
	// dash or an underscore, which a label's value may not.)
	AnnotationClusterID = labelPrefix + "cluster-id"
	// AnnotationDirectoryID is, on a claim, the id of the directory on the volume.
	AnnotationDirectoryID = labelPrefix + "directory-id"
	// AnnotationFormatted stands on a claim once the cluster has seen the node with this directory. From then on
	// no pod on it is permitted to format an empty volume.
	AnnotationFormatted = labelPrefix + "formatted"
	// AnnotationFirstVoters has, on the claim of one of the first voters, how many those are. A voter without it joins:
	// it is added to the quorum that the first ones formed.
	AnnotationFirstVoters = labelPrefix + "first-voters"
	// AnnotationJoins stands on the claim of a voter that joins.
	AnnotationJoins = labelPrefix + "joins"
	// AnnotationFormatPermit has, on a pod, the directory id with which it may format an empty volume.
	AnnotationFormatPermit = labelPrefix + "format-permit"
	// AnnotationRevision has, on a pod, the revision of the spec that it was made from.
	AnnotationRevision = labelPrefix + "revision"
)

// ManagedBy is the value of app.kubernetes.io/managed-by on all that the operator makes.
const ManagedBy = "highwater-operator"

// Ports of a node.
const (
	PortExternal   int32 = 9092
	PortController int32 = 9093
	PortInternal   int32 = 9094
	PortHTTP       int32 = 9095
)

// FirstVoterID is the node id of the first dedicated voter; data nodes count from 0.
const FirstVoterID int32 = 1000

// Node is one node that a ReplicaSet wants.
type Node struct {
	ID   int32
	Role hwv1alpha1.NodeRole
}

// Nodes returns the nodes that the spec wants, in the order of their ids.
func Nodes(rs *hwv1alpha1.ReplicaSet) []Node {
	var nodes []Node
	combined := rs.Spec.Quorum.Mode == hwv1alpha1.QuorumCombined
	for id := range rs.Spec.Replicas {
		role := hwv1alpha1.RoleData
		if combined && id < rs.Spec.Quorum.Voters {
			role = hwv1alpha1.RoleCombined
		}
		nodes = append(nodes, Node{ID: id, Role: role})
	}
	if !combined {
		for i := range rs.Spec.Quorum.Voters {
			nodes = append(nodes, Node{ID: FirstVoterID + i, Role: hwv1alpha1.RoleVoter})
		}
	}
	return nodes
}

// FirstID is the id of the first voter.
func FirstID(rs *hwv1alpha1.ReplicaSet) int32 {
	if rs.Spec.Quorum.Mode == hwv1alpha1.QuorumCombined {
		return 0
	}
	return FirstVoterID
}

// RoleOf returns the role that a node of this id has in the ReplicaSet, also when the spec no longer wants it.
func RoleOf(rs *hwv1alpha1.ReplicaSet, id int32) hwv1alpha1.NodeRole {
	switch {
	case id >= FirstVoterID:
		return hwv1alpha1.RoleVoter
	case rs.Spec.Quorum.Mode == hwv1alpha1.QuorumCombined && id < rs.Spec.Quorum.Voters:
		return hwv1alpha1.RoleCombined
	default:
		return hwv1alpha1.RoleData
	}
}

// PodName is the name of a node's pod.
func PodName(rs *hwv1alpha1.ReplicaSet, id int32) string { return fmt.Sprintf("%s-%d", rs.Name, id) }

// ClaimName is the name of a node's PersistentVolumeClaim.
func ClaimName(rs *hwv1alpha1.ReplicaSet, id int32) string {
	return fmt.Sprintf("data-%s-%d", rs.Name, id)
}

// NodesServiceName is the name of the headless Service that gives each pod its DNS name.
func NodesServiceName(rs *hwv1alpha1.ReplicaSet) string { return rs.Name + "-nodes" }

// BootstrapServiceName is the name of the Service that clients connect to first.
func BootstrapServiceName(rs *hwv1alpha1.ReplicaSet) string { return rs.Name + "-bootstrap" }

// ConfigMapName is the name of the ConfigMap that all nodes share.
func ConfigMapName(rs *hwv1alpha1.ReplicaSet) string { return rs.Name + "-nodes" }

// BudgetName is the name of the PodDisruptionBudget.
func BudgetName(rs *hwv1alpha1.ReplicaSet) string { return rs.Name + "-nodes" }

// Host is the DNS name of a node's pod. It stays when the pod's address changes, which is why it may stand in the
// metadata log.
func Host(rs *hwv1alpha1.ReplicaSet, id int32) string {
	return fmt.Sprintf("%s.%s.%s.svc", PodName(rs, id), NodesServiceName(rs), rs.Namespace)
}

// BootstrapAddress is where clients of the same Kubernetes cluster connect.
func BootstrapAddress(rs *hwv1alpha1.ReplicaSet) string {
	return fmt.Sprintf("%s.%s.svc:%d", BootstrapServiceName(rs), rs.Namespace, PortExternal)
}

// component is the role as it stands in labels.
func component(role hwv1alpha1.NodeRole) string {
	switch role {
	case hwv1alpha1.RoleVoter:
		return "voter"
	case hwv1alpha1.RoleCombined:
		return "combined"
	default:
		return "data"
	}
}

// setLabels are on every object of a ReplicaSet.
func setLabels(rs *hwv1alpha1.ReplicaSet) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "highwater",
		"app.kubernetes.io/instance":   rs.Name,
		"app.kubernetes.io/managed-by": ManagedBy,
		LabelReplicaSet:                rs.Name,
	}
}

// nodeLabels are on the pod and the claim of a node.
func nodeLabels(rs *hwv1alpha1.ReplicaSet, node Node) map[string]string {
	labels := setLabels(rs)
	labels["app.kubernetes.io/component"] = component(node.Role)
	labels[LabelNodeID] = strconv.Itoa(int(node.ID))
	labels[LabelRole] = component(node.Role)
	return labels
}

// AllNodesSelector finds the pods of every node.
func AllNodesSelector(rs *hwv1alpha1.ReplicaSet) map[string]string {
	return map[string]string{"app.kubernetes.io/name": "highwater", LabelReplicaSet: rs.Name}
}

// DataNodesSelector finds the data nodes' pods; it is the selector of the scale subresource.
func DataNodesSelector(rs *hwv1alpha1.ReplicaSet) string {
	return fmt.Sprintf("%s=%s,%s in (data,combined)", LabelReplicaSet, rs.Name, LabelRole)
}
