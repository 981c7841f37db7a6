package wire

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Listener names one of the three doors of a node. Each has its own version table and its own trust.
type Listener string

// The listeners, by the names that Kafka configurations usually give them.
const (
	// Controller carries the metadata quorum and what data nodes ask of the active controller.
	Controller Listener = "CONTROLLER"
	// Internal carries replica fetches and the operator's calls between trusted parties.
	Internal Listener = "INTERNAL"
	// External is for clients.
	External Listener = "EXTERNAL"
	// HTTP is not Kafka's: probes, metrics and facts. It stands here because a HostTable names it like the others.
	HTTP Listener = "HTTP"
)

// KeyVersions says which versions of one api key a listener serves.
type KeyVersions struct {
	Key      int16
	Min, Max int16
	// AdvertisedMin is what ApiVersions says instead of Min. It differs only for Produce: older librdkafka
	// takes the compression types it may use from the advertised range and fails when 0 is missing
	// (KAFKA-18659), although bodies below Min are refused.
	AdvertisedMin int16
}

// VersionTable lists the keys of a listener in ascending order of key. It is not changed after it is made.
type VersionTable []KeyVersions

// Lookup returns the row of key.
func (t VersionTable) Lookup(key int16) (KeyVersions, bool) {
	i, ok := slices.BinarySearchFunc(t, key, func(row KeyVersions, key int16) int { return int(row.Key) - int(key) })
	if !ok {
		return KeyVersions{}, false
	}
	return t[i], true
}

// Without returns a table without the given keys: a listener must not list a key that nobody serves.
func (t VersionTable) Without(keys ...int16) VersionTable {
	return slices.DeleteFunc(slices.Clone(t), func(row KeyVersions) bool { return slices.Contains(keys, row.Key) })
}

// NewVersionTable sorts rows by key.
func NewVersionTable(rows ...KeyVersions) VersionTable {
	t := slices.Clone(rows)
	slices.SortFunc(t, func(a, b KeyVersions) int { return int(a.Key) - int(b.Key) })
	return t
}

func row(key kmsg.Key, minVersion, maxVersion int16) KeyVersions {
	return KeyVersions{Key: int16(key), Min: minVersion, Max: maxVersion, AdvertisedMin: minVersion}
}

// Minimums are those of Kafka 4.x (KIP-896 raised them), maximums those of Kafka 4.2 as far as kmsg knows them.
var (
	rowProduce = KeyVersions{Key: int16(kmsg.Produce), Min: 3, Max: 13, AdvertisedMin: 0}

	admin = []KeyVersions{
		row(kmsg.ApiVersions, 0, 4),
		row(kmsg.CreateTopics, 2, 7),
		row(kmsg.DeleteTopics, 1, 6),
		row(kmsg.CreatePartitions, 0, 3),
		row(kmsg.DescribeConfigs, 1, 4),
		row(kmsg.IncrementalAlterConfigs, 0, 1),
		row(kmsg.ElectLeaders, 0, 2),
		row(kmsg.DescribeQuorum, 0, 2),
		row(kmsg.DescribeCluster, 0, 2),
		row(kmsg.UnregisterBroker, 0, 0),
		row(kmsg.AddRaftVoter, 0, 1),
		row(kmsg.RemoveRaftVoter, 0, 0),
	}
	// records are the requests about records that clients and operators send to the leaders.
	records = []KeyVersions{
		row(kmsg.DeleteRecords, 0, 2),
		row(kmsg.ListOffsets, 1, 11),
		row(kmsg.Metadata, 0, 13),
		row(kmsg.OffsetForLeaderEpoch, 2, 4),
	}

	// Replicas and observers fetch with leader and last fetched epoch (KIP-595), so nothing below 12.
	replicaFetch = row(kmsg.Fetch, 12, 18)

	externalTable = NewVersionTable(slices.Concat(admin, records, []KeyVersions{
		rowProduce,
		row(kmsg.Fetch, 4, 18),
		row(kmsg.InitProducerID, 0, 5),
		row(kmsg.FindCoordinator, 0, 6),
	})...)
	internalTable   = NewVersionTable(slices.Concat(admin, records, []KeyVersions{replicaFetch})...)
	controllerTable = NewVersionTable(slices.Concat(admin, []KeyVersions{
		replicaFetch,
		row(kmsg.Vote, 0, 2),
		row(kmsg.BeginQuorumEpoch, 0, 1),
		row(kmsg.EndQuorumEpoch, 0, 1),
		row(kmsg.FetchSnapshot, 0, 1),
		row(kmsg.UpdateRaftVoter, 0, 0),
		row(kmsg.AlterPartition, 2, 3),
		row(kmsg.Envelope, 0, 0),
		row(kmsg.BrokerRegistration, 0, 4),
		row(kmsg.BrokerHeartbeat, 0, 1),
		row(kmsg.ControllerRegistration, 0, 0),
		row(kmsg.AllocateProducerIDs, 0, 0),
		row(kmsg.AssignReplicasToDirs, 0, 0),
	})...)
)

// TableFor returns the keys that a listener may serve, nil for an unknown name. External has no
// cluster-action key. A node that doesn't implement a key yet takes it out by Without.
func TableFor(l Listener) VersionTable {
	switch l {
	case Controller:
		return controllerTable
	case Internal:
		return internalTable
	case External:
		return externalTable
	}
	return nil
}
