package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeRole says what a node does.
// +kubebuilder:validation:Enum=Data;Voter;Combined
type NodeRole string

const (
	// RoleData holds partitions.
	RoleData NodeRole = "Data"
	// RoleVoter votes in the metadata quorum.
	RoleVoter NodeRole = "Voter"
	// RoleCombined does both.
	RoleCombined NodeRole = "Combined"
)

// HoldsData says whether nodes of the role hold partitions.
func (r NodeRole) HoldsData() bool { return r == RoleData || r == RoleCombined }

// Votes says whether nodes of the role vote in the metadata quorum.
func (r NodeRole) Votes() bool { return r == RoleVoter || r == RoleCombined }

// NodeState is what the metadata quorum holds of a data node.
// +kubebuilder:validation:Enum=Unregistered;Fenced;Unfenced;ShuttingDown
type NodeState string

const (
	// NodeUnregistered has not registered yet.
	NodeUnregistered NodeState = "Unregistered"
	// NodeFenced may not lead and is in no ISR.
	NodeFenced NodeState = "Fenced"
	// NodeUnfenced serves.
	NodeUnfenced NodeState = "Unfenced"
	// NodeShuttingDown is giving up its leaderships before it stops.
	NodeShuttingDown NodeState = "ShuttingDown"
)

// LogDirState says whether a node can use its data directory.
// +kubebuilder:validation:Enum=Online;Offline
type LogDirState string

const (
	// LogDirOnline is a directory that the node serves from.
	LogDirOnline LogDirState = "Online"
	// LogDirOffline is a directory that the node can't read or write. A data node is fenced until it can use it again,
	// and serves none of its replicas.
	LogDirOffline LogDirState = "Offline"
)

// NodeMetadata says whether a node follows the metadata.
// +kubebuilder:validation:Enum=Current;Behind
type NodeMetadata string

const (
	// MetadataCurrent has applied what it knows to be committed, and hears from the quorum's leader.
	MetadataCurrent NodeMetadata = "Current"
	// MetadataBehind installs a snapshot, or has not been able to follow the quorum's leader for some seconds.
	MetadataBehind NodeMetadata = "Behind"
)

// SnapshotInstallStatus is the install of a metadata snapshot that is under way on a node. How far it is stands in
// the condition SnapshotInstalling.
type SnapshotInstallStatus struct {
	// id of the install. It stays the same over restarts of the node and when it is given another snapshot on the way.
	// +required
	// +kubebuilder:validation:MaxLength=22
	ID string `json:"id"`

	// snapshotId is the snapshot that the node was given last: its end offset and epoch.
	// +required
	// +kubebuilder:validation:MaxLength=64
	SnapshotID string `json:"snapshotId"`

	// startedAt is when the node was given the first snapshot.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// lastFailure is why a download was last given up; unset while none was.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LastFailure string `json:"lastFailure,omitempty"`
}

// LastSnapshotInstallStatus is the install of a metadata snapshot that ended last on a node.
type LastSnapshotInstallStatus struct {
	// id of the install.
	// +required
	// +kubebuilder:validation:MaxLength=22
	ID string `json:"id"`

	// snapshotId is the snapshot that was installed.
	// +required
	// +kubebuilder:validation:MaxLength=64
	SnapshotID string `json:"snapshotId"`

	// bytes of the snapshot; 0 when in the end the node got what it lacked from the log.
	// +required
	Bytes int64 `json:"bytes"`

	// startedAt is when the node was given the first snapshot.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// endedAt is when the node had applied what was committed at startedAt.
	// +required
	EndedAt metav1.Time `json:"endedAt"`
}

// NodeStatus is one node. It changes only on transitions.
type NodeStatus struct {
	// id of the node in the cluster.
	// +required
	ID int32 `json:"id"`

	// pod that runs the node.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Pod string `json:"pod"`

	// role of the node.
	// +required
	Role NodeRole `json:"role"`

	// state of a data node in the committed metadata; unset for a node that only votes.
	// +optional
	State NodeState `json:"state,omitempty"`

	// logDir says whether the node can use its data directory, or a voter that of the metadata log; unset before it
	// first did.
	// +optional
	LogDir LogDirState `json:"logDir,omitempty"`

	// logDirReason is why the data directory is offline: DiskFull, ReadOnly, IOError or Unreadable.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LogDirReason string `json:"logDirReason,omitempty"`

	// metadata says whether the node follows the metadata, by its own word; unset before it was heard.
	// +optional
	Metadata NodeMetadata `json:"metadata,omitempty"`

	// snapshotInstall is the install of a metadata snapshot that is under way; unset while none is.
	// +optional
	SnapshotInstall *SnapshotInstallStatus `json:"snapshotInstall,omitempty"`

	// lastSnapshotInstall is the install that ended last.
	// +optional
	LastSnapshotInstall *LastSnapshotInstallStatus `json:"lastSnapshotInstall,omitempty"`

	// podReady says whether the kubelet calls the pod ready.
	// +required
	PodReady bool `json:"podReady"`

	// directoryId is the id of the volume that the node was given.
	// +optional
	// +kubebuilder:validation:MaxLength=22
	DirectoryID string `json:"directoryId,omitempty"`

	// formatted says whether the cluster has seen the node with this directory: from then on an empty volume is a
	// lost one.
	// +required
	Formatted bool `json:"formatted"`
}

// QuorumStatus is the metadata quorum.
type QuorumStatus struct {
	// leaderId is the voter that leads; -1 when none does.
	// +required
	LeaderID int32 `json:"leaderId"`

	// epoch of the leader.
	// +required
	Epoch int32 `json:"epoch"`

	// voters are the ids of the voters, as the newest committed voter set has them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Voters []int32 `json:"voters,omitempty"`

	// observers are the ids of the nodes that are to vote, or have voted, and are not in the voter set: they follow the
	// metadata log without a vote.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Observers []int32 `json:"observers,omitempty"`
}

// ListenerStatus is where clients connect.
type ListenerStatus struct {
	// name of the listener.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// bootstrap is the address, host:port, that a client is given.
	// +required
	// +kubebuilder:validation:MaxLength=300
	Bootstrap string `json:"bootstrap"`
}

// PartitionCounts counts the partitions of a ReplicaSet, those of topics that clients made included.
type PartitionCounts struct {
	// total of all partitions.
	// +required
	Total int32 `json:"total"`

	// underReplicated have an ISR smaller than their assignment.
	// +required
	UnderReplicated int32 `json:"underReplicated"`

	// underMinISR have an ISR smaller than the effective minInSyncReplicas.
	// +required
	UnderMinISR int32 `json:"underMinISR"`

	// offline have no leader.
	// +required
	Offline int32 `json:"offline"`

	// damaged have a replica whose log is damaged.
	// +optional
	Damaged int32 `json:"damaged"`

	// unmanaged have no Partition object: clients made their topics.
	// +required
	Unmanaged int32 `json:"unmanaged"`
}

// ReplicaSetStatus is what is.
type ReplicaSetStatus struct {
	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, QuorumAvailable, ReplicasAvailable, PartitionsInSync, Progressing, SnapshotInstalling.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// clusterId is Kafka's id of the cluster, drawn once.
	// +optional
	// +kubebuilder:validation:MaxLength=22
	ClusterID string `json:"clusterId,omitempty"`

	// replicas is the number of data nodes that exist.
	// +optional
	Replicas int32 `json:"replicas"`

	// selector finds the data nodes' pods.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Selector string `json:"selector,omitempty"`

	// listeners say where clients connect.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Listeners []ListenerStatus `json:"listeners,omitempty"`

	// nodes has one entry for each node.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=1024
	Nodes []NodeStatus `json:"nodes,omitempty"`

	// quorum is the metadata quorum.
	// +optional
	Quorum *QuorumStatus `json:"quorum,omitempty"`

	// partitions counts the partitions.
	// +optional
	Partitions *PartitionCounts `json:"partitions,omitempty"`

	// asOf is the position in the metadata log of the newest state that this status was made from. It moves only
	// when something of this object changes.
	// +optional
	AsOf *MetadataPosition `json:"asOf,omitempty"`
}

// ReplicaSet is a set of nodes that hold partitions. It is not the ReplicaSet of apps/v1.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=hwreplicasets,singular=hwreplicaset,shortName=hwrs,categories=highwater
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Voters",type=integer,JSONPath=`.spec.quorum.voters`
// +kubebuilder:printcolumn:name="Quorum-Leader",type=integer,JSONPath=`.status.quorum.leaderId`
// +kubebuilder:printcolumn:name="Partitions",type=integer,JSONPath=`.status.partitions.total`
// +kubebuilder:printcolumn:name="Under-Replicated",type=integer,JSONPath=`.status.partitions.underReplicated`
// +kubebuilder:printcolumn:name="Under-Min-ISR",type=integer,JSONPath=`.status.partitions.underMinISR`
// +kubebuilder:printcolumn:name="Quorum",type=string,JSONPath=`.status.conditions[?(@.type=="QuorumAvailable")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Bootstrap",type=string,priority=1,JSONPath=`.status.listeners[0].bootstrap`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="the name of a ReplicaSet becomes part of pod and Service names: at most 50 small letters, digits and dashes, beginning with a letter"
type ReplicaSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +required
	Spec ReplicaSetSpec `json:"spec"`

	// status is what is.
	// +optional
	Status ReplicaSetStatus `json:"status,omitempty"`
}

// ReplicaSetList is a list of ReplicaSets.
//
// +kubebuilder:object:root=true
type ReplicaSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ReplicaSet `json:"items"`
}
