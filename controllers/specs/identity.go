package specs

import (
	"crypto/sha256"

	"k8s.io/apimachinery/pkg/types"

	"github.com/highwater-io/highwater/pkg/ident"
)

// ClusterID is the cluster id of the ReplicaSet with this UID. It is reckoned from the UID, which the API server drew
// and which no other ReplicaSet will ever have, so that an operator that died between two claims, or reads an old
// list of them, can't draw a second one.
func ClusterID(replicaSet types.UID) ident.UUID {
	for n := byte(0); ; n++ {
		sum := sha256.Sum256(append([]byte("highwater cluster id of ReplicaSet "+string(replicaSet)), n))
		if id := ident.UUID(sum[:16]); UsableID(id) {
			return id
		}
	}
}

// UsableID leaves out the ids that Kafka reserves and, as Kafka does, those that print with a dash in front, which
// tools take for an option.
func UsableID(id ident.UUID) bool { return !id.IsReserved() && id.String()[0] != '-' }
