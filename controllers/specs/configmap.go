package specs

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/pkg/ident"
)

// configFile is the key of the ConfigMap and the name of the file.
const configFile = "node.yaml"

type nodeConfig struct {
	ClusterID ident.UUID    `json:"clusterId"`
	Voters    []voterConfig `json:"voters"`
	Defaults  nodeDefaults  `json:"defaults"`
	// Snapshots are left out where the spec says nothing, for the same reason as Flush.
	Snapshots *nodeSnapshots `json:"snapshots,omitempty"`
}

// nodeSnapshots has what the spec says; what it does not say is the node's to know.
type nodeSnapshots struct {
	MaxNewBytes    int64               `json:"maxNewBytes,omitempty"`
	MaxInterval    hwv1alpha1.Duration `json:"maxInterval,omitempty"`
	RetentionBytes int64               `json:"retentionBytes,omitempty"`
	RetentionAge   hwv1alpha1.Duration `json:"retentionAge,omitempty"`
}

type voterConfig struct {
	ID          int32      `json:"id"`
	DirectoryID ident.UUID `json:"directoryId"`
	Host        string     `json:"host"`
	Port        int32      `json:"port"`
	// Joins is left out for the first voters: a node of an older image shall start on them.
	Joins bool `json:"joins,omitempty"`
}

type nodeDefaults struct {
	ReplicaLagTimeMax string `json:"replicaLagTimeMax"`
	MinInSyncReplicas int32  `json:"minInSyncReplicas"`
	// Flush is left out when it is what nodes do anyway: a node refuses fields that it does not know, and one of an
	// older image shall start.
	Flush hwv1alpha1.FlushPolicy `json:"flush,omitempty"`
}

// ConfigMap builds the file that all nodes share. voters are the identities of the nodes that vote, in the order of
// their ids.
func ConfigMap(rs *hwv1alpha1.ReplicaSet, clusterID ident.UUID, voters []Identity) (*corev1.ConfigMap, error) {
	content := nodeConfig{
		ClusterID: clusterID,
		Defaults: nodeDefaults{
			ReplicaLagTimeMax: ReplicaLagTimeMax(rs),
			MinInSyncReplicas: MinInSyncReplicas(rs),
		},
	}
	if flush := Flush(rs); flush != hwv1alpha1.FlushPageCache {
		content.Defaults.Flush = flush
	}
	content.Snapshots = snapshots(rs.Spec.Quorum.Snapshots)
	for _, v := range voters {
		content.Voters = append(content.Voters, voterConfig{
			ID: v.NodeID, DirectoryID: v.DirectoryID, Host: Host(rs, v.NodeID), Port: PortController, Joins: !v.First,
		})
	}
	text, err := yaml.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("write %s of ReplicaSet %s/%s: %w", configFile, rs.Namespace, rs.Name, err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: childMeta(rs, ConfigMapName(rs)),
		Data:       map[string]string{configFile: string(text)},
	}, nil
}

func snapshots(s *hwv1alpha1.SnapshotsSpec) *nodeSnapshots {
	if s == nil {
		return nil
	}
	n := &nodeSnapshots{}
	if s.MaxNewRecordBytes != nil {
		n.MaxNewBytes = s.MaxNewRecordBytes.Value()
	}
	if s.MaxInterval != nil {
		n.MaxInterval = *s.MaxInterval
	}
	if r := s.Retention; r != nil {
		if r.Size != nil {
			n.RetentionBytes = r.Size.Value()
		}
		if r.Age != nil {
			n.RetentionAge = *r.Age
		}
	}
	return n
}

// ReplicaLagTimeMax is the effective default of the set.
func ReplicaLagTimeMax(rs *hwv1alpha1.ReplicaSet) string {
	if d := rs.Spec.Defaults; d != nil && d.ReplicaLagTimeMax != nil {
		return string(*d.ReplicaLagTimeMax)
	}
	return "30s"
}

// MinInSyncReplicas is the effective default of the set.
func MinInSyncReplicas(rs *hwv1alpha1.ReplicaSet) int32 {
	if d := rs.Spec.Defaults; d != nil && d.MinInSyncReplicas != nil {
		return *d.MinInSyncReplicas
	}
	return 1
}

// Flush is the effective default of the set.
func Flush(rs *hwv1alpha1.ReplicaSet) hwv1alpha1.FlushPolicy {
	if d := rs.Spec.Defaults; d != nil && d.Flush != nil {
		return *d.Flush
	}
	return hwv1alpha1.FlushPageCache
}
