package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ReplicaSetSpec is what is wanted of a set of nodes.
//
// +kubebuilder:validation:XValidation:rule="self.quorum.mode != 'Combined' || self.quorum.voters <= self.replicas",message="with quorum.mode Combined the voters are data nodes: replicas must not be below quorum.voters"
type ReplicaSetSpec struct {
	// replicas is the number of data nodes.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Replicas int32 `json:"replicas"`

	// quorum is the metadata quorum, which decides who leads and who is in sync.
	// +required
	Quorum QuorumSpec `json:"quorum"`

	// image that the nodes run; unset, it is the one that the operator was installed with. A node takes a new image
	// when its pod is next created.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\S+$`
	Image string `json:"image,omitempty"`

	// storage is the volume of each data node.
	// +required
	Storage StorageSpec `json:"storage"`

	// defaults of every partition that does not say otherwise.
	// +optional
	Defaults *Defaults `json:"defaults,omitempty"`

	// resources of each node's container. A node takes a change when its pod is next created.
	// +optional
	Resources *Resources `json:"resources,omitempty"`

	// pods says where the nodes' pods run and what they carry. A node takes a change when its pod is next created.
	// +optional
	Pods *PodsSpec `json:"pods,omitempty"`
}

// QuorumMode says which pods vote in the metadata quorum.
// +kubebuilder:validation:Enum=Dedicated;Combined
type QuorumMode string

const (
	// QuorumDedicated gives the quorum pods of its own, with ids from 1000 on.
	QuorumDedicated QuorumMode = "Dedicated"
	// QuorumCombined lets the first data nodes vote too. Losing most of them also stops the metadata that would
	// tell of it.
	QuorumCombined QuorumMode = "Combined"
)

// QuorumSpec is the metadata quorum.
//
// +kubebuilder:validation:XValidation:rule="self.mode == 'Dedicated' || !has(self.storage)",message="quorum.storage is for mode Dedicated: combined voters use the data nodes' volume"
// +kubebuilder:validation:XValidation:rule="has(self.storage) ? quantity(string(self.storage.size)).compareTo(has(oldSelf.storage) ? quantity(string(oldSelf.storage.size)) : quantity('1Gi')) >= 0 : !has(oldSelf.storage)",message="quorum.storage.size can't be made smaller (unset, it is 1Gi): a volume only grows"
// +kubebuilder:validation:XValidation:rule="self.?storage.storageClassName == oldSelf.?storage.storageClassName",message="quorum.storage.storageClassName is immutable"
type QuorumSpec struct {
	// voters is the number of voters: odd, since one more than an odd number survives no further loss. When it is
	// changed, voters are added to the running quorum, each once it has caught up, or taken out of it, those that are
	// behind first and the one that leads last, one at a time.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	// +kubebuilder:validation:XValidation:rule="self % 2 == 1",message="quorum.voters must be odd"
	Voters int32 `json:"voters"`

	// mode says which pods vote. Immutable.
	// +optional
	// +kubebuilder:default=Dedicated
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="quorum.mode is immutable"
	Mode QuorumMode `json:"mode,omitempty"`

	// storage is the volume of each dedicated voter; unset, it is 1Gi of the data nodes' storage class. Its size may
	// grow.
	// +optional
	Storage *QuorumStorageSpec `json:"storage,omitempty"`

	// snapshots says when each node takes a snapshot of the metadata, and what it keeps. Running nodes take a change
	// within a minute or two.
	// +optional
	Snapshots *SnapshotsSpec `json:"snapshots,omitempty"`
}

// SnapshotsSpec says when each node takes a snapshot of the metadata, and what it keeps of snapshots and of the log. A
// node that was away until the log no longer begins where it stopped installs a snapshot instead.
//
// +kubebuilder:validation:MinProperties=1
type SnapshotsSpec struct {
	// maxNewRecordBytes of metadata that came since the last snapshot make the next one due
	// (metadata.log.max.record.bytes.between.snapshots); unset, it is 20Mi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Ki')) >= 0 && quantity(string(self)).compareTo(quantity('1Gi')) <= 0",message="quorum.snapshots.maxNewRecordBytes must be between 1Ki and 1Gi"
	MaxNewRecordBytes *resource.Quantity `json:"maxNewRecordBytes,omitempty"`

	// maxInterval after the last snapshot the next one is due, if there is anything new
	// (metadata.log.max.snapshot.interval.ms); unset, it is 1h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="quorum.snapshots.maxInterval must be between 1s and 168h"
	MaxInterval *Duration `json:"maxInterval,omitempty"`

	// retention limits what is kept. Two snapshots, and the log from the end of the older one on, are kept always.
	// +optional
	Retention *SnapshotRetention `json:"retention,omitempty"`
}

// SnapshotRetention limits the metadata that a node keeps.
//
// +kubebuilder:validation:MinProperties=1
type SnapshotRetention struct {
	// size of snapshots and log together above which the oldest go (metadata.max.retention.bytes); unset, it is 100Mi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Ki')) >= 0 && quantity(string(self)).compareTo(quantity('1Ti')) <= 0",message="quorum.snapshots.retention.size must be between 1Ki and 1Ti"
	Size *resource.Quantity `json:"size,omitempty"`

	// age at which a snapshot goes (metadata.max.retention.ms); unset, it is 168h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="quorum.snapshots.retention.age must be between 1m and 8760h"
	Age *Duration `json:"age,omitempty"`
}

// QuorumStorageSpec is the volume of a dedicated voter.
type QuorumStorageSpec struct {
	// size of the volume.
	// +required
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="size must be above 0"
	Size resource.Quantity `json:"size"`

	// storageClassName of the volume; unset, it is that of the data nodes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// StorageSpec is the volume of a data node.
//
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="storage.storageClassName is immutable"
type StorageSpec struct {
	// size of the volume. It may grow, where the storage class allows the expansion of volumes; it never shrinks.
	// +required
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="size must be above 0"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",message="storage.size can't be made smaller: a volume only grows"
	Size resource.Quantity `json:"size"`

	// storageClassName of the volume; unset, it is the cluster's default class. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// retention says what becomes of the volumes, the voters' too, when the ReplicaSet is deleted, and of a voter's when it
	// leaves the quorum. Unset means Retain.
	// +optional
	Retention *VolumeRetention `json:"retention,omitempty"`
}

// VolumeRetention says what becomes of volumes when their ReplicaSet is deleted, or their voter leaves the quorum.
// +kubebuilder:validation:Enum=Retain;Delete
type VolumeRetention string

const (
	// VolumesRetain keeps the claims.
	VolumesRetain VolumeRetention = "Retain"
	// VolumesDelete deletes the claims, and with them the records.
	VolumesDelete VolumeRetention = "Delete"
)

// Defaults of partitions.
type Defaults struct {
	// replicaLagTimeMax is how long a follower may be behind before it leaves the ISR; unset means 30s. A node takes
	// a change when it next starts.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('500ms') && duration(self) <= duration('1h')",message="replicaLagTimeMax must be between 500ms and 1h"
	ReplicaLagTimeMax *Duration `json:"replicaLagTimeMax,omitempty"`

	// minInSyncReplicas is how many replicas must be in sync for a write with acks=all; unset means 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	MinInSyncReplicas *int32 `json:"minInSyncReplicas,omitempty"`

	// flush says when a replica counts a record as its own. Unset means PageCache. A topic key flush.messages=1 in a
	// Partition's config says Always for its topic. A node takes a change when it next starts.
	// +optional
	Flush *FlushPolicy `json:"flush,omitempty"`
}

// FlushPolicy says what a replica has done with a record when it counts it as its own, which is what an
// acknowledgement with acks=all rests on.
// +kubebuilder:validation:Enum=PageCache;Always
type FlushPolicy string

const (
	// FlushPageCache: the record is written, and the operating system brings it to the disk in its own time, as with
	// Kafka. An acknowledged record outlives any crashes of processes, and the loss of fewer machines at once than
	// minInSyncReplicas.
	FlushPageCache FlushPolicy = "PageCache"
	// FlushAlways: the record is on the disk. An acknowledged record outlives the loss of power of all machines, as
	// long as one replica that was in sync keeps its disk. Every write waits for a disk.
	FlushAlways FlushPolicy = "Always"
)

// Resources of a container.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.requests.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="resources are cpu, memory and ephemeral-storage"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || self.limits.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="resources are cpu, memory and ephemeral-storage"
type Resources struct {
	// requests that the scheduler sets aside.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// limits that the kubelet enforces.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// LabelText is the value of a label or node selector.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelText string

// AnnotationText is the value of an annotation.
// +kubebuilder:validation:MaxLength=4096
type AnnotationText string

// PodsSpec is the part of a pod template that the nodes' owner decides.
type PodsSpec struct {
	// labels to add to the pods.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && !k.startsWith('app.kubernetes.io/') && !k.startsWith('replication.highwater.dev/') && k != 'pod-template-hash')",message="labels app.kubernetes.io/*, replication.highwater.dev/* and pod-template-hash are not yours to set"
	Labels map[string]LabelText `json:"labels,omitempty"`

	// annotations to add to the pods.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && !k.startsWith('replication.highwater.dev/'))",message="annotations replication.highwater.dev/* are not yours to set"
	Annotations map[string]AnnotationText `json:"annotations,omitempty"`

	// nodeSelector that a Kubernetes node must match.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]LabelText `json:"nodeSelector,omitempty"`

	// tolerations of the pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Tolerations []Toleration `json:"tolerations,omitempty"`

	// topologySpread spreads data nodes, and dedicated voters, each among themselves.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +kubebuilder:validation:MaxItems=4
	TopologySpread []TopologySpread `json:"topologySpread,omitempty"`
}

// Toleration lets pods onto tainted nodes.
//
// +kubebuilder:validation:XValidation:rule="has(self.key) || self.?operator.orValue('Equal') == 'Exists'",message="a toleration without key needs operator Exists"
// +kubebuilder:validation:XValidation:rule="!has(self.value) || self.?operator.orValue('Equal') == 'Equal'",message="a toleration with operator Exists has no value"
type Toleration struct {
	// key of the taint; unset with operator Exists, every taint.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key,omitempty"`

	// operator that compares the value; unset means Equal.
	// +optional
	// +kubebuilder:validation:Enum=Exists;Equal
	Operator corev1.TolerationOperator `json:"operator,omitempty"`

	// value of the taint.
	// +optional
	Value LabelText `json:"value,omitempty"`

	// effect of the taint; unset, every effect.
	// +optional
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect,omitempty"`

	// tolerationSeconds is how long a pod stays under a NoExecute taint; unset means for ever.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}

// TopologySpread spreads pods over the values of a node label.
type TopologySpread struct {
	// topologyKey is the node label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	TopologyKey string `json:"topologyKey"`

	// maxSkew is by how many pods two values may differ; unset means 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxSkew *int32 `json:"maxSkew,omitempty"`

	// whenUnsatisfiable says whether a pod waits rather than break the rule; unset means ScheduleAnyway.
	// +optional
	// +kubebuilder:validation:Enum=DoNotSchedule;ScheduleAnyway
	WhenUnsatisfiable corev1.UnsatisfiableConstraintAction `json:"whenUnsatisfiable,omitempty"`
}
