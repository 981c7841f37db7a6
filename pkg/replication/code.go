package replication

// Code is a Kafka error code as a core names it; the protocol's edge writes it as it is.
type Code int16

// The codes that this package answers with or reacts to.
const (
	UnknownServerError           Code = -1
	None                         Code = 0
	OffsetOutOfRange             Code = 1
	UnknownTopicOrPartition      Code = 3
	NotLeaderOrFollower          Code = 6
	RequestTimedOut              Code = 7
	NetworkException             Code = 13
	NotEnoughReplicas            Code = 19
	NotEnoughReplicasAfterAppend Code = 20
	InvalidRequiredAcks          Code = 21
	NotController                Code = 41
	InvalidRequest               Code = 42
	OperationNotAttempted        Code = 55
	KafkaStorageError            Code = 56
	FencedLeaderEpoch            Code = 74
	UnknownLeaderEpoch           Code = 75
	OffsetNotAvailable           Code = 78
	InvalidUpdateVersion         Code = 95
	UnknownTopicID               Code = 100
	IneligibleReplica            Code = 107
	NewLeaderElected             Code = 108
)
