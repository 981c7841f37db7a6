package specs

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/pkg/ident"
)

// defaultVoterSize is the volume of a dedicated voter when the spec says nothing. The metadata log and
// its snapshots stay at some 100 MiB, and more only while there is more metadata than that.
var defaultVoterSize = resource.MustParse("1Gi")

// Identity is what a claim says of the volume.
type Identity struct {
	ClusterID   ident.UUID
	DirectoryID ident.UUID
	NodeID      int32
	// Formatted says that the cluster has seen the node with this directory.
	Formatted bool
	// First says that the node is one of the first voters, which form the quorum, of FirstVoters in all; 0 is not known.
	// Every other voter joins: it has no vote before it was added.
	First       bool
	FirstVoters int32
}

// Claim builds a node's PersistentVolumeClaim. It carries the node's identity, and under Retain it has no owner, so
// that it stays when the ReplicaSet goes. firstVoters is of how many first voters a voter is one; 0 when it joins.
func Claim(rs *hwv1alpha1.ReplicaSet, node Node, clusterID, directoryID ident.UUID, firstVoters int32) *corev1.PersistentVolumeClaim {
	class := rs.Spec.Storage.StorageClassName
	if own := rs.Spec.Quorum.Storage; node.Role == hwv1alpha1.RoleVoter && own != nil && own.StorageClassName != nil {
		class = own.StorageClassName
	}
	labels := nodeLabels(rs, node)
	labels[LabelReplicaSetUID] = string(rs.UID)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:      ClaimName(rs, node.ID),
			Namespace: rs.Namespace,
			Labels:    labels,
			Annotations: map[string]string{
				AnnotationClusterID:   clusterID.String(),
				AnnotationDirectoryID: directoryID.String(),
			},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: ClaimSize(rs, node)},
			},
		},
	}
	switch {
	case node.Role.Votes() && firstVoters > 0:
		claim.Annotations[AnnotationFirstVoters] = strconv.Itoa(int(firstVoters))
	case node.Role.Votes():
		claim.Annotations[AnnotationJoins] = "true"
	}
	SetClaimOwner(rs, claim)
	return claim
}

// ClaimSize is how large the spec wants a node's volume.
func ClaimSize(rs *hwv1alpha1.ReplicaSet, node Node) resource.Quantity {
	switch {
	case node.Role != hwv1alpha1.RoleVoter:
		return rs.Spec.Storage.Size
	case rs.Spec.Quorum.Storage != nil:
		return rs.Spec.Quorum.Storage.Size
	default:
		return defaultVoterSize
	}
}

// SetClaimOwner gives the claim the owner that the retention wants, or none, and says whether that changed it.
func SetClaimOwner(rs *hwv1alpha1.ReplicaSet, claim *corev1.PersistentVolumeClaim) (changed bool) {
	wanted := rs.Spec.Storage.Retention != nil && *rs.Spec.Storage.Retention == hwv1alpha1.VolumesDelete
	if wanted == IsOwner(rs, claim) {
		return false
	}
	if wanted {
		claim.OwnerReferences = append(claim.OwnerReferences, ownerReference(rs))
		return true
	}
	var others []metav1.OwnerReference
	for _, ref := range claim.OwnerReferences {
		if ref.UID != rs.UID {
			others = append(others, ref)
		}
	}
	claim.OwnerReferences = others
	return true
}

// ClaimIdentity reads what Claim wrote. It is false for a claim that is not of this ReplicaSet, or whose identity
// can't be read.
func ClaimIdentity(rs *hwv1alpha1.ReplicaSet, claim *corev1.PersistentVolumeClaim) (Identity, bool) {
	id, err := strconv.ParseInt(claim.Labels[LabelNodeID], 10, 32)
	if err != nil || claim.Labels[LabelReplicaSetUID] != string(rs.UID) || claim.Name != ClaimName(rs, int32(id)) {
		return Identity{}, false
	}
	identity := Identity{NodeID: int32(id), Formatted: claim.Annotations[AnnotationFormatted] == "true"}
	if identity.ClusterID, err = ident.ParseUUID(claim.Annotations[AnnotationClusterID]); err != nil {
		return Identity{}, false
	}
	if identity.DirectoryID, err = ident.ParseUUID(claim.Annotations[AnnotationDirectoryID]); err != nil {
		return Identity{}, false
	}
	born := claim.Labels[LabelRole]
	identity.First = (born == component(hwv1alpha1.RoleVoter) || born == component(hwv1alpha1.RoleCombined)) && claim.Annotations[AnnotationJoins] != "true"
	if n, err := strconv.ParseInt(claim.Annotations[AnnotationFirstVoters], 10, 32); err == nil && identity.First {
		identity.FirstVoters = int32(n)
	}
	return identity, true
}
