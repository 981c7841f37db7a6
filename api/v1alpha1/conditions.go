package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a Partition. All of them stand on every Partition from the first pass on; healthy is True.
const (
	// PartitionAccepted says whether the object speaks for its partition and the partition is as the spec says.
	PartitionAccepted = "Accepted"
	// PartitionReady says that the partition is accepted and has a leader. It says nothing of the ISR.
	PartitionReady = "Ready"
	// PartitionInSync says whether every replica is in the ISR.
	PartitionInSync = "InSync"
	// PartitionMinISRSatisfied says whether enough replicas are in sync for a write with acks=all.
	PartitionMinISRSatisfied = "MinISRSatisfied"
	// PartitionIntact says whether every replica's log is whole, as far as anybody has read it.
	PartitionIntact = "Intact"
)

// Condition types of a ReplicaSet. All of them stand on every ReplicaSet from the first pass on; healthy is True,
// except Progressing and SnapshotInstalling, where True means that something is under way.
const (
	// ReplicaSetReady says that the quorum is available and every data node serves.
	ReplicaSetReady = "Ready"
	// ReplicaSetQuorumAvailable says whether the metadata quorum has a leader.
	ReplicaSetQuorumAvailable = "QuorumAvailable"
	// ReplicaSetReplicasAvailable says whether every data node that is wanted is registered and unfenced.
	ReplicaSetReplicasAvailable = "ReplicasAvailable"
	// ReplicaSetPartitionsInSync says whether every partition has all its replicas in sync.
	ReplicaSetPartitionsInSync = "PartitionsInSync"
	// ReplicaSetProgressing says whether the set is on its way to what the spec says, and what it waits for.
	ReplicaSetProgressing = "Progressing"
	// ReplicaSetSnapshotInstalling says whether nodes install a snapshot of the metadata, and how far they are: they were
	// away until the log no longer began where they stopped. They vote, and serve no partition until they are through.
	ReplicaSetSnapshotInstalling = "SnapshotInstalling"
)

// Reasons. Each is listed with the conditions and values that it goes with in ConditionTable.
const (
	// ReasonAccepted: the object speaks for its partition.
	ReasonAccepted = "Accepted"
	// ReasonPending: what was asked for is on its way.
	ReasonPending = "Pending"
	// ReasonNotAccepted: Accepted is False; see there.
	ReasonNotAccepted = "NotAccepted"
	// ReasonInvalidSpec: the spec can't be done as it is.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonReplicaSetNotFound: no ReplicaSet of that name in the namespace, or it is being deleted.
	ReasonReplicaSetNotFound = "ReplicaSetNotFound"
	// ReasonAlreadyClaimed: an older Partition claims the same topic and index.
	ReasonAlreadyClaimed = "AlreadyClaimed"
	// ReasonWaitingForLowerIndex: Kafka clients need indexes without a gap.
	ReasonWaitingForLowerIndex = "WaitingForLowerIndex"
	// ReasonConflictingConfig: a topic-level field says otherwise than the Partition with index 0.
	ReasonConflictingConfig = "ConflictingConfig"
	// ReasonTopicDeletedElsewhere: the topic vanished behind the object; it is not made again.
	ReasonTopicDeletedElsewhere = "TopicDeletedElsewhere"
	// ReasonAssignmentDiffers: the partition exists on other nodes than the spec says.
	ReasonAssignmentDiffers = "AssignmentDiffers"
	// ReasonRefused: the cluster's controller refused the change.
	ReasonRefused = "Refused"
	// ReasonMetadataUnavailable: the quorum has no leader or can't be reached, so what is committed is not known.
	ReasonMetadataUnavailable = "MetadataUnavailable"
	// ReasonLeaderElected: there is a leader.
	ReasonLeaderElected = "LeaderElected"
	// ReasonNoLeader: there is no leader.
	ReasonNoLeader = "NoLeader"
	// ReasonAllInSync: every replica is in sync.
	ReasonAllInSync = "AllInSync"
	// ReasonLagTimeExceeded: the leader found a follower further behind than replicaLagTimeMax.
	ReasonLagTimeExceeded = "LagTimeExceeded"
	// ReasonNodeFenced: the controller fenced the node of a replica.
	ReasonNodeFenced = "NodeFenced"
	// ReasonLogDirOffline: nodes can't use their data directory, such as for a full disk.
	ReasonLogDirOffline = "LogDirOffline"
	// ReasonNodeShuttingDown: the node of a replica is shutting down.
	ReasonNodeShuttingDown = "NodeShuttingDown"
	// ReasonOutOfSync: a replica is out of sync and the leader's reason did not reach the operator.
	ReasonOutOfSync = "OutOfSync"
	// ReasonAllReplicasIntact: no replica's log is known to be damaged.
	ReasonAllReplicasIntact = "AllReplicasIntact"
	// ReasonReplicaDamaged: records in the log of a replica can't be read as they were written.
	ReasonReplicaDamaged = "ReplicaDamaged"
	// ReasonEnoughInSync: the ISR has at least the effective minInSyncReplicas.
	ReasonEnoughInSync = "EnoughInSyncReplicas"
	// ReasonNotEnoughInSync: the ISR is smaller than the effective minInSyncReplicas.
	ReasonNotEnoughInSync = "NotEnoughInSyncReplicas"

	// ReasonStarting: nothing was heard of the quorum since the set was made.
	ReasonStarting = "Starting"
	// ReasonObserverDisconnected: the operator can't reach any voter.
	ReasonObserverDisconnected = "ObserverDisconnected"
	// ReasonVotersUnavailable: the quorum has a leader, but not all voters' pods are ready.
	ReasonVotersUnavailable = "VotersUnavailable"
	// ReasonAllUnfenced: every data node is unfenced.
	ReasonAllUnfenced = "AllUnfenced"
	// ReasonNodesUnregistered: data nodes have never registered.
	ReasonNodesUnregistered = "NodesUnregistered"
	// ReasonNodesFenced: data nodes are fenced or shutting down.
	ReasonNodesFenced = "NodesFenced"
	// ReasonUnderReplicated: partitions have replicas out of sync.
	ReasonUnderReplicated = "UnderReplicated"
	// ReasonUnderMinISR: partitions have too few replicas in sync to take writes with acks=all.
	ReasonUnderMinISR = "UnderMinISR"
	// ReasonOffline: partitions have no leader.
	ReasonOffline = "Offline"
	// ReasonAllServing: the quorum is available and every data node serves.
	ReasonAllServing = "AllServing"
	// ReasonQuorumUnavailable: see QuorumAvailable.
	ReasonQuorumUnavailable = "QuorumUnavailable"
	// ReasonReplicasUnavailable: see ReplicasAvailable.
	ReasonReplicasUnavailable = "ReplicasUnavailable"
	// ReasonVolumeIdentityMismatch: a claim of the name that a node needs belongs to somebody else.
	ReasonVolumeIdentityMismatch = "VolumeIdentityMismatch"
	// ReasonVolumeLost: the claim of a node that the cluster knows is gone, or its volume is empty.
	ReasonVolumeLost = "VolumeLost"
	// ReasonNameTaken: an object of the name that the set needs belongs to somebody else.
	ReasonNameTaken = "NameTaken"
	// ReasonSettled: the set is as the spec says.
	ReasonSettled = "Settled"
	// ReasonCreating: nodes are being made.
	ReasonCreating = "Creating"
	// ReasonScaleDownBlocked: nodes that the spec no longer wants still hold replicas.
	ReasonScaleDownBlocked = "ScaleDownBlocked"
	// ReasonVotersChanging: the voters of the metadata quorum are being changed to what the spec says, one at a time.
	ReasonVotersChanging = "VotersChanging"
	// ReasonVoterCatchingUp: a node that is to vote does not have all of the metadata log yet.
	ReasonVoterCatchingUp = "VoterCatchingUp"
	// ReasonVoterChangeBlocked: a change of the voters would leave the quorum without a majority that is caught up.
	ReasonVoterChangeBlocked = "VoterChangeBlocked"
	// ReasonVolumesGrowing: volumes are becoming as large as the spec says.
	ReasonVolumesGrowing = "VolumesGrowing"
	// ReasonVolumeExpansionRefused: Kubernetes does not let volumes grow as the spec says; they stay as large as they are.
	ReasonVolumeExpansionRefused = "VolumeExpansionRefused"
	// ReasonPodsOutdated: pods run an older revision of the spec and take the new one when next created.
	ReasonPodsOutdated = "PodsOutdated"
	// ReasonInstalling: nodes install a snapshot of the metadata.
	ReasonInstalling = "Installing"
	// ReasonNoInstall: no node installs a snapshot of the metadata.
	ReasonNoInstall = "NoInstall"
	// ReasonNamespaceTerminating: the namespace is being deleted; nothing is made any more.
	ReasonNamespaceTerminating = "NamespaceTerminating"
)

// ConditionRow is one combination that a condition may show.
type ConditionRow struct {
	// Kind is KindPartition or KindReplicaSet.
	Kind string
	// Type of the condition.
	Type string
	// Status of the condition.
	Status metav1.ConditionStatus
	// Reason of the condition.
	Reason string
}

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown
)

// ConditionTable has every combination of kind, condition, status and reason that the operator writes.
var ConditionTable = []ConditionRow{
	{KindPartition, PartitionAccepted, yes, ReasonAccepted},
	{KindPartition, PartitionAccepted, no, ReasonInvalidSpec},
	{KindPartition, PartitionAccepted, no, ReasonReplicaSetNotFound},
	{KindPartition, PartitionAccepted, no, ReasonAlreadyClaimed},
	{KindPartition, PartitionAccepted, no, ReasonWaitingForLowerIndex},
	{KindPartition, PartitionAccepted, no, ReasonConflictingConfig},
	{KindPartition, PartitionAccepted, no, ReasonTopicDeletedElsewhere},
	{KindPartition, PartitionAccepted, no, ReasonAssignmentDiffers},
	{KindPartition, PartitionAccepted, no, ReasonRefused},
	{KindPartition, PartitionAccepted, unknown, ReasonPending},
	{KindPartition, PartitionAccepted, unknown, ReasonMetadataUnavailable},

	{KindPartition, PartitionReady, yes, ReasonLeaderElected},
	{KindPartition, PartitionReady, no, ReasonNotAccepted},
	{KindPartition, PartitionReady, no, ReasonNoLeader},
	{KindPartition, PartitionReady, unknown, ReasonPending},
	{KindPartition, PartitionReady, unknown, ReasonMetadataUnavailable},

	{KindPartition, PartitionInSync, yes, ReasonAllInSync},
	{KindPartition, PartitionInSync, no, ReasonLagTimeExceeded},
	{KindPartition, PartitionInSync, no, ReasonLogDirOffline},
	{KindPartition, PartitionInSync, no, ReasonReplicaDamaged},
	{KindPartition, PartitionInSync, no, ReasonNodeFenced},
	{KindPartition, PartitionInSync, no, ReasonNodeShuttingDown},
	{KindPartition, PartitionInSync, no, ReasonOutOfSync},
	{KindPartition, PartitionInSync, unknown, ReasonNotAccepted},
	{KindPartition, PartitionInSync, unknown, ReasonPending},
	{KindPartition, PartitionInSync, unknown, ReasonMetadataUnavailable},

	{KindPartition, PartitionMinISRSatisfied, yes, ReasonEnoughInSync},
	{KindPartition, PartitionMinISRSatisfied, no, ReasonNotEnoughInSync},
	{KindPartition, PartitionMinISRSatisfied, unknown, ReasonNotAccepted},
	{KindPartition, PartitionMinISRSatisfied, unknown, ReasonPending},
	{KindPartition, PartitionMinISRSatisfied, unknown, ReasonMetadataUnavailable},

	{KindPartition, PartitionIntact, yes, ReasonAllReplicasIntact},
	{KindPartition, PartitionIntact, no, ReasonReplicaDamaged},
	{KindPartition, PartitionIntact, unknown, ReasonNotAccepted},
	{KindPartition, PartitionIntact, unknown, ReasonPending},
	{KindPartition, PartitionIntact, unknown, ReasonMetadataUnavailable},

	{KindReplicaSet, ReplicaSetReady, yes, ReasonAllServing},
	{KindReplicaSet, ReplicaSetReady, no, ReasonQuorumUnavailable},
	{KindReplicaSet, ReplicaSetReady, no, ReasonReplicasUnavailable},
	{KindReplicaSet, ReplicaSetReady, no, ReasonVolumeIdentityMismatch},
	{KindReplicaSet, ReplicaSetReady, no, ReasonVolumeLost},
	{KindReplicaSet, ReplicaSetReady, no, ReasonNameTaken},
	{KindReplicaSet, ReplicaSetReady, no, ReasonStarting},
	{KindReplicaSet, ReplicaSetReady, unknown, ReasonMetadataUnavailable},

	{KindReplicaSet, ReplicaSetQuorumAvailable, yes, ReasonLeaderElected},
	{KindReplicaSet, ReplicaSetQuorumAvailable, yes, ReasonVotersUnavailable},
	{KindReplicaSet, ReplicaSetQuorumAvailable, no, ReasonNoLeader},
	{KindReplicaSet, ReplicaSetQuorumAvailable, unknown, ReasonStarting},
	{KindReplicaSet, ReplicaSetQuorumAvailable, unknown, ReasonObserverDisconnected},

	{KindReplicaSet, ReplicaSetReplicasAvailable, yes, ReasonAllUnfenced},
	{KindReplicaSet, ReplicaSetReplicasAvailable, no, ReasonNodesUnregistered},
	{KindReplicaSet, ReplicaSetReplicasAvailable, no, ReasonLogDirOffline},
	{KindReplicaSet, ReplicaSetReplicasAvailable, no, ReasonNodesFenced},
	{KindReplicaSet, ReplicaSetReplicasAvailable, unknown, ReasonStarting},

	{KindReplicaSet, ReplicaSetPartitionsInSync, yes, ReasonAllInSync},
	{KindReplicaSet, ReplicaSetPartitionsInSync, no, ReasonUnderReplicated},
	{KindReplicaSet, ReplicaSetPartitionsInSync, no, ReasonUnderMinISR},
	{KindReplicaSet, ReplicaSetPartitionsInSync, no, ReasonOffline},
	{KindReplicaSet, ReplicaSetPartitionsInSync, unknown, ReasonStarting},

	{KindReplicaSet, ReplicaSetProgressing, no, ReasonSettled},
	{KindReplicaSet, ReplicaSetProgressing, no, ReasonNamespaceTerminating},
	{KindReplicaSet, ReplicaSetProgressing, yes, ReasonCreating},
	{KindReplicaSet, ReplicaSetProgressing, yes, ReasonScaleDownBlocked},
	{KindReplicaSet, ReplicaSetProgressing, yes, ReasonVotersChanging},
	{KindReplicaSet, ReplicaSetProgressing, yes, ReasonVoterCatchingUp},
	{KindReplicaSet, ReplicaSetProgressing, yes, ReasonVoterChangeBlocked},
	{KindReplicaSet, ReplicaSetProgressing, yes, ReasonVolumeExpansionRefused},
	{KindReplicaSet, ReplicaSetProgressing, yes, ReasonVolumesGrowing},
	{KindReplicaSet, ReplicaSetProgressing, yes, ReasonPodsOutdated},

	{KindReplicaSet, ReplicaSetSnapshotInstalling, no, ReasonNoInstall},
	{KindReplicaSet, ReplicaSetSnapshotInstalling, yes, ReasonInstalling},
}

// ConditionTypes returns the types that stand on every object of a kind, in the order of ConditionTable.
func ConditionTypes(kind string) []string {
	var types []string
	for _, row := range ConditionTable {
		if row.Kind == kind && (len(types) == 0 || types[len(types)-1] != row.Type) {
			types = append(types, row.Type)
		}
	}
	return types
}
