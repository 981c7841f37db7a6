package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PartitionSpec is what is wanted of one partition of a topic.
//
// What belongs to the topic rather than to the partition (replication factor, minInSyncReplicas,
// uncleanLeaderElection, retention, config, deletionPolicy) is decided by the Partition with index 0; others
// inherit what they leave unset and may not say anything else.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicationFactor) && has(self.assignment))",message="set replicationFactor or assignment, not both"
// +kubebuilder:validation:XValidation:rule="self.index > 0 || has(self.replicationFactor) || has(self.assignment)",message="index 0 decides for the topic: set replicationFactor or assignment"
// +kubebuilder:validation:XValidation:rule="!has(self.minInSyncReplicas) || !has(self.replicationFactor) || self.minInSyncReplicas <= self.replicationFactor",message="minInSyncReplicas must not be above replicationFactor"
// +kubebuilder:validation:XValidation:rule="!has(self.minInSyncReplicas) || !has(self.assignment) || self.minInSyncReplicas <= size(self.assignment)",message="minInSyncReplicas must not be above the number of nodes in assignment"
// +kubebuilder:validation:XValidation:rule="has(self.topic) == has(oldSelf.topic) && (!has(self.topic) || self.topic == oldSelf.topic)",message="topic is immutable"
// +kubebuilder:validation:XValidation:rule="!has(self.config) || !has(self.retention) || !((has(self.retention.time) && 'retention.ms' in self.config) || (has(self.retention.size) && 'retention.bytes' in self.config))",message="set retention or its key in config, not both"
type PartitionSpec struct {
	// replicaSetRef names the ReplicaSet, in the same namespace, that holds the partition. Immutable.
	// +required
	ReplicaSetRef ReplicaSetReference `json:"replicaSetRef"`

	// topic is the Kafka topic that the partition belongs to; unset, it is the Partition's own name. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=249
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9._-]+$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('__')",message="topics that begin with __ are the cluster's own"
	// +kubebuilder:validation:XValidation:rule="self != '.' && self != '..'",message="a topic is not called . or .."
	Topic string `json:"topic,omitempty"`

	// index is the partition's number within its topic. Indexes have no gaps: one waits until the lower ones exist.
	// Immutable.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9999
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="index is immutable"
	Index int32 `json:"index"`

	// replicationFactor is the number of replicas; the cluster chooses the nodes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	ReplicationFactor *int32 `json:"replicationFactor,omitempty"`

	// assignment names the nodes that hold a replica; the first is the preferred leader.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=999
	// +kubebuilder:validation:XValidation:rule="self.all(n, self.exists_one(m, m == n))",message="assignment must name each node once"
	Assignment []int32 `json:"assignment,omitempty"`

	// minInSyncReplicas is how many replicas must be in sync for a write with acks=all; unset, it is the
	// ReplicaSet's default.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	MinInSyncReplicas *int32 `json:"minInSyncReplicas,omitempty"`

	// uncleanLeaderElection allows a replica that was not in sync to become leader when no other is left, which
	// loses records. Unset means false.
	// +optional
	UncleanLeaderElection *bool `json:"uncleanLeaderElection,omitempty"`

	// retention limits how long and how much the log keeps.
	// +optional
	Retention *Retention `json:"retention,omitempty"`

	// config has further topic keys of Kafka. Keys that have a field of their own here are refused. On a topic that
	// was made for its Partitions a key that is not here is set back to its default; on one that was adopted it is
	// left alone.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 128 && k.matches('^[a-z][a-z0-9.]*$'))",message="config keys are Kafka topic keys: small letters, digits and dots"
	// +kubebuilder:validation:XValidation:rule="!('min.insync.replicas' in self)",message="use spec.minInSyncReplicas instead of config key min.insync.replicas"
	// +kubebuilder:validation:XValidation:rule="!('unclean.leader.election.enable' in self)",message="use spec.uncleanLeaderElection instead of config key unclean.leader.election.enable"
	Config map[string]ConfigValue `json:"config,omitempty"`

	// deletionPolicy says what becomes of the topic when the last of its Partitions is deleted. Unset means Retain.
	// +optional
	DeletionPolicy *DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// ReplicaSetReference names a ReplicaSet of this group in the same namespace.
type ReplicaSetReference struct {
	// name of the ReplicaSet. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="replicaSetRef.name is immutable"
	Name string `json:"name"`
}

// ConfigValue is the value of a topic key, as Kafka's tools write it.
// +kubebuilder:validation:MaxLength=1024
type ConfigValue string

// Retention limits a log. What is unset is the cluster's default.
// +kubebuilder:validation:MinProperties=1
type Retention struct {
	// time after which a closed segment goes (retention.ms).
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="retention.time must be at least 1s"
	Time *Duration `json:"time,omitempty"`

	// size above which the oldest closed segments go (retention.bytes).
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="retention.size must be above 0"
	Size *resource.Quantity `json:"size,omitempty"`
}

// DeletionPolicy says what becomes of a topic when its Partitions are deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type DeletionPolicy string

const (
	// DeletionRetain keeps the topic and its records.
	DeletionRetain DeletionPolicy = "Retain"
	// DeletionDelete deletes the topic, with all its records, with its last Partition.
	DeletionDelete DeletionPolicy = "Delete"
)

// Origin says who made a partition.
// +kubebuilder:validation:Enum=Created;Adopted
type Origin string

const (
	// OriginCreated is a partition that was made for its Partition object.
	OriginCreated Origin = "Created"
	// OriginAdopted is a partition that was there before. Its topic is never deleted with its object.
	OriginAdopted Origin = "Adopted"
)

// ReplicaState is how a replica stands to its partition.
// +kubebuilder:validation:Enum=InSync;CatchingUp;Offline
type ReplicaState string

const (
	// ReplicaInSync is a member of the ISR.
	ReplicaInSync ReplicaState = "InSync"
	// ReplicaCatchingUp is outside the ISR on a node that serves.
	ReplicaCatchingUp ReplicaState = "CatchingUp"
	// ReplicaOffline is outside the ISR on a node that is fenced, shutting down or unknown.
	ReplicaOffline ReplicaState = "Offline"
)

// ReplicaStatus is one replica of a partition. It changes only when the replica's state does.
type ReplicaStatus struct {
	// id of the node.
	// +required
	ID int32 `json:"id"`

	// state of the replica.
	// +required
	State ReplicaState `json:"state"`

	// since is when the operator saw the replica come into this state.
	// +required
	Since metav1.Time `json:"since"`

	// reason is why the replica left the ISR.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// lagOffsets is how many records the replica was behind when it left the ISR.
	// +optional
	LagOffsets *int64 `json:"lagOffsets,omitempty"`

	// lagMillis is how long ago the replica was last caught up when it left the ISR, in milliseconds.
	// +optional
	LagMillis *int64 `json:"lagMillis,omitempty"`

	// damage is set while the replica's log is damaged: from when its node says so until it has refilled the log.
	// +optional
	Damage *ReplicaDamage `json:"damage,omitempty"`
}

// ReplicaDamage is what is known of a damaged replica. Its offsets don't move with the log.
type ReplicaDamage struct {
	// since is when the operator saw it.
	// +required
	Since metav1.Time `json:"since"`

	// fromOffset is the first offset that can't be read; unset when the node's report did not reach the operator.
	// +optional
	FromOffset *int64 `json:"fromOffset,omitempty"`

	// toOffset is the first offset behind all that can't be read; between the two there may be records that can.
	// +optional
	ToOffset *int64 `json:"toOffset,omitempty"`
}

// PartitionStatus is what the metadata quorum has committed about the partition.
type PartitionStatus struct {
	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Accepted, Ready, InSync, MinISRSatisfied, Intact.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// clusterId is the cluster that this status speaks of. A ReplicaSet that is deleted and made again has another one.
	// +optional
	// +kubebuilder:validation:MaxLength=22
	ClusterID string `json:"clusterId,omitempty"`

	// topic is the effective topic name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Topic string `json:"topic,omitempty"`

	// topicId is Kafka's id of the topic. A topic that is deleted and made again has another one.
	// +optional
	// +kubebuilder:validation:MaxLength=22
	TopicID string `json:"topicId,omitempty"`

	// origin says whether the partition was made for this object or was there before.
	// +optional
	Origin Origin `json:"origin,omitempty"`

	// leader is the node that leads; -1 when none does.
	// +optional
	Leader *int32 `json:"leader,omitempty"`

	// leaderEpoch rises with every election.
	// +optional
	LeaderEpoch *int32 `json:"leaderEpoch,omitempty"`

	// partitionEpoch rises with every change of the partition.
	// +optional
	PartitionEpoch *int32 `json:"partitionEpoch,omitempty"`

	// assignment is the nodes that hold a replica; the first is the preferred leader.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Assignment []int32 `json:"assignment,omitempty"`

	// isr is the replicas in sync.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	ISR []int32 `json:"isr,omitempty"`

	// minInSyncReplicas is the effective number: the setting, at most the replication factor.
	// +optional
	MinInSyncReplicas *int32 `json:"minInSyncReplicas,omitempty"`

	// flush is the effective policy: Always when the topic's flush.messages is 1, else the ReplicaSet's default.
	// +optional
	Flush FlushPolicy `json:"flush,omitempty"`

	// deletionPolicy is the effective policy of the topic.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// ownedPartitions is the number of partitions that the topic had when each of them had a Partition that made it.
	// Only a topic that still has this number is deleted with its last Partition.
	// +optional
	OwnedPartitions *int32 `json:"ownedPartitions,omitempty"`

	// replicas has one entry for each node of the assignment.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=32
	Replicas []ReplicaStatus `json:"replicas,omitempty"`

	// asOf is the position in the metadata log of the newest state that this status was made from. It moves only
	// when something of this object changes.
	// +optional
	AsOf *MetadataPosition `json:"asOf,omitempty"`
}

// Partition is one replicated log on a ReplicaSet.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=partitions,singular=partition,shortName=hwp,categories=highwater
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Topic",type=string,JSONPath=`.status.topic`
// +kubebuilder:printcolumn:name="Index",type=integer,JSONPath=`.spec.index`
// +kubebuilder:printcolumn:name="Leader",type=integer,JSONPath=`.status.leader`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.leaderEpoch`
// +kubebuilder:printcolumn:name="Replicas",type=string,JSONPath=`.status.assignment`
// +kubebuilder:printcolumn:name="ISR",type=string,JSONPath=`.status.isr`
// +kubebuilder:printcolumn:name="Min-ISR",type=integer,JSONPath=`.status.minInSyncReplicas`
// +kubebuilder:printcolumn:name="In-Sync",type=string,JSONPath=`.status.conditions[?(@.type=="InSync")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec.topic) || size(self.metadata.name) <= 249",message="a topic name has at most 249 characters: set spec.topic or a shorter name"
type Partition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +required
	Spec PartitionSpec `json:"spec"`

	// status is what is.
	// +optional
	Status PartitionStatus `json:"status,omitempty"`
}

// PartitionList is a list of Partitions.
//
// +kubebuilder:object:root=true
type PartitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Partition `json:"items"`
}
