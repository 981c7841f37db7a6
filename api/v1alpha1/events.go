package v1alpha1

// Event reasons. Events are written on transitions, seen as a difference to the object's status, so a restart of the
// operator repeats none.
const (
	// EventISRShrunk (Partition, Warning): replicas left the ISR; the message tells which, why and how far behind.
	EventISRShrunk = "ISRShrunk"
	// EventISRExpanded (Partition, Normal): replicas joined the ISR.
	EventISRExpanded = "ISRExpanded"
	// EventUnderMinISR (Partition, Warning): writes with acks=all are refused from here on.
	EventUnderMinISR = "UnderMinISR"
	// EventMinISRRestored (Partition, Normal): writes with acks=all are taken again.
	EventMinISRRestored = "MinISRRestored"
	// EventLeaderElected (Partition, Normal): another leader, or a leader again.
	EventLeaderElected = "LeaderElected"
	// EventUncleanLeaderElected (Partition, Warning): the new leader was not in the ISR; records may be lost.
	EventUncleanLeaderElected = "UncleanLeaderElected"
	// EventLeaderLost (Partition, Warning): no leader.
	EventLeaderLost = "LeaderLost"
	// EventReplicaDamaged (Partition, Warning): records in the log of a replica can't be read as they were written; the
	// message tells which, and what goes on.
	EventReplicaDamaged = "ReplicaDamaged"
	// EventReplicaRefilled (Partition, Normal): a damaged replica is whole again.
	EventReplicaRefilled = "ReplicaRefilled"
	// EventPartitionCreated (Partition, Normal): the partition was made.
	EventPartitionCreated = "PartitionCreated"
	// EventPartitionAdopted (Partition, Normal): the partition was there before its object.
	EventPartitionAdopted = "PartitionAdopted"
	// EventTopicKept (Partition, Normal): the object goes, its topic stays; the message says why.
	EventTopicKept = "TopicKept"
	// EventTopicDeleted (Partition, Normal): the topic was deleted with its last object.
	EventTopicDeleted = "TopicDeleted"
	// EventQuorumLeaderChanged (ReplicaSet, Normal): another voter leads the metadata quorum.
	EventQuorumLeaderChanged = "QuorumLeaderChanged"
	// EventQuorumLeaderLost (ReplicaSet, Warning): no voter leads the metadata quorum.
	EventQuorumLeaderLost = "QuorumLeaderLost"
	// EventVoterAdded (ReplicaSet, Normal): the metadata quorum has another voter.
	EventVoterAdded = "VoterAdded"
	// EventVoterRemoved (ReplicaSet, Normal): a voter was taken out of the metadata quorum.
	EventVoterRemoved = "VoterRemoved"
	// EventVoterReplaced (ReplicaSet, Warning): a voter whose volume is gone gets a new one, and votes again once it has
	// caught up.
	EventVoterReplaced = "VoterReplaced"
	// EventNodeRetired (ReplicaSet, Normal): the pod of a node that the spec no longer wants was deleted.
	EventNodeRetired = "NodeRetired"
	// EventNodeFenced (ReplicaSet, Warning): the controller lost a node's heartbeats.
	EventNodeFenced = "NodeFenced"
	// EventNodeUnfenced (ReplicaSet, Normal): a node serves, for the first time or again.
	EventNodeUnfenced = "NodeUnfenced"
	// EventLogDirOffline (ReplicaSet, Warning): a node can't use its data directory; the message tells why and what to do.
	EventLogDirOffline = "LogDirOffline"
	// EventLogDirOnline (ReplicaSet, Normal): a node serves from its data directory again.
	EventLogDirOnline = "LogDirOnline"
	// EventSnapshotInstallStarted (ReplicaSet, Normal): a node's metadata log ends before its leader's begins, so it
	// fetches and installs a snapshot. One for each install, however often the node or the operator restarts.
	EventSnapshotInstallStarted = "SnapshotInstallStarted"
	// EventSnapshotInstalled (ReplicaSet, Normal): the node has applied what was committed when its install began; the
	// message tells the snapshot, its bytes and how long it took. One for each install.
	EventSnapshotInstalled = "SnapshotInstalled"
	// EventSnapshotInstallFailed (ReplicaSet, Warning): the download of a snapshot was given up; the message tells why. The
	// install goes on with another one, unless it says otherwise. One for each install and reason.
	EventSnapshotInstallFailed = "SnapshotInstallFailed"
	// EventPodReplaced (ReplicaSet, Warning): a pod that had failed was deleted and is made anew.
	EventPodReplaced = "PodReplaced"
)
