package metadata

import "github.com/highwater-io/highwater/pkg/ident"

// TopicRecord (type 2) creates a topic without partitions.
type TopicRecord struct {
	Version     int16
	Name        string
	TopicID     ident.UUID
	UnknownTags []Tag
}

// RecordType is 2.
func (*TopicRecord) RecordType() int16 { return TypeTopic }

// RecordVersion returns r.Version.
func (r *TopicRecord) RecordVersion() int16 { return r.Version }
func (r *TopicRecord) setVersion(v int16)   { r.Version = v }

func (r *TopicRecord) code(c *coder) {
	c.string(&r.Name)
	c.uuid(&r.TopicID)
	c.noTags(&r.UnknownTags)
}

// PartitionRecord (type 3) creates a partition, or replaces all that is known of it. Version 1 added Directories
// (KIP-858), one per replica; 2 the eligible leader replicas (KIP-966).
type PartitionRecord struct {
	Version                int16
	PartitionID            int32
	TopicID                ident.UUID
	Replicas               []ident.NodeID
	ISR                    []ident.NodeID
	RemovingReplicas       []ident.NodeID
	AddingReplicas         []ident.NodeID
	Leader                 ident.NodeID // NoNode when there is none
	LeaderRecoveryState    int8         // Recovered or Recovering
	LeaderEpoch            ident.Epoch
	PartitionEpoch         int32
	Directories            []ident.UUID
	EligibleLeaderReplicas []ident.NodeID // nil is null
	LastKnownELR           []ident.NodeID // nil is null
	UnknownTags            []Tag
}

// A partition's leader recovery state (KIP-704).
const (
	Recovered               int8 = 0
	Recovering              int8 = 1 // the leader was elected uncleanly and is not done yet
	NoLeaderRecoveryChanged int8 = -1
)

// RecordType is 3.
func (*PartitionRecord) RecordType() int16 { return TypePartition }

// RecordVersion returns r.Version.
func (r *PartitionRecord) RecordVersion() int16 { return r.Version }
func (r *PartitionRecord) setVersion(v int16)   { r.Version = v }

func (r *PartitionRecord) code(c *coder) {
	code32(c, &r.PartitionID)
	c.uuid(&r.TopicID)
	c.nodeIDs(&r.Replicas, false)
	c.nodeIDs(&r.ISR, false)
	c.nodeIDs(&r.RemovingReplicas, false)
	c.nodeIDs(&r.AddingReplicas, false)
	code32(c, &r.Leader)
	code32(c, &r.LeaderEpoch)
	code32(c, &r.PartitionEpoch)
	if c.since(1, len(r.Directories) > 0, "Directories") {
		c.uuids(&r.Directories, false)
	}
	tags(c, r, &r.UnknownTags, partitionTags)
}

var partitionTags = []knownTag[PartitionRecord]{
	{0, 0, func(r *PartitionRecord) bool { return r.LeaderRecoveryState != Recovered }, "LeaderRecoveryState", func(c *coder, r *PartitionRecord) { code8(c, &r.LeaderRecoveryState) }},
	{1, 2, func(r *PartitionRecord) bool { return r.EligibleLeaderReplicas != nil }, "EligibleLeaderReplicas", func(c *coder, r *PartitionRecord) { c.nodeIDs(&r.EligibleLeaderReplicas, true) }},
	{2, 2, func(r *PartitionRecord) bool { return r.LastKnownELR != nil }, "LastKnownELR", func(c *coder, r *PartitionRecord) { c.nodeIDs(&r.LastKnownELR, true) }},
}

// NoLeaderChange in a PartitionChangeRecord leaves the leader and its epoch as they are.
const NoLeaderChange ident.NodeID = -2

// PartitionChangeRecord (type 5) changes what it names and leaves the rest of a partition as it is: a nil list is
// no change, an empty one empties. Its zero value would make node 0 the leader: begin with NewPartitionChange.
// Versions as PartitionRecord's.
type PartitionChangeRecord struct {
	Version                int16
	PartitionID            int32
	TopicID                ident.UUID
	ISR                    []ident.NodeID
	Leader                 ident.NodeID // NoLeaderChange, NoNode or the leader; anything but NoLeaderChange raises the leader epoch
	Replicas               []ident.NodeID
	RemovingReplicas       []ident.NodeID
	AddingReplicas         []ident.NodeID
	LeaderRecoveryState    int8 // NoLeaderRecoveryChanged, Recovered or Recovering
	EligibleLeaderReplicas []ident.NodeID
	LastKnownELR           []ident.NodeID
	Directories            []ident.UUID // one per replica, in the order of Replicas
	UnknownTags            []Tag
}

// NewPartitionChange returns a record, of the given version, that changes nothing yet.
func NewPartitionChange(version int16) *PartitionChangeRecord {
	return &PartitionChangeRecord{Version: version, Leader: NoLeaderChange, LeaderRecoveryState: NoLeaderRecoveryChanged}
}

// RecordType is 5.
func (*PartitionChangeRecord) RecordType() int16 { return TypePartitionChange }

// RecordVersion returns r.Version.
func (r *PartitionChangeRecord) RecordVersion() int16 { return r.Version }
func (r *PartitionChangeRecord) setVersion(v int16)   { r.Version = v }

func (r *PartitionChangeRecord) code(c *coder) {
	code32(c, &r.PartitionID)
	c.uuid(&r.TopicID)
	tags(c, r, &r.UnknownTags, partitionChangeTags)
}

var partitionChangeTags = []knownTag[PartitionChangeRecord]{
	{0, 0, func(r *PartitionChangeRecord) bool { return r.ISR != nil }, "ISR", func(c *coder, r *PartitionChangeRecord) { c.nodeIDs(&r.ISR, true) }},
	{1, 0, func(r *PartitionChangeRecord) bool { return r.Leader != NoLeaderChange }, "Leader", func(c *coder, r *PartitionChangeRecord) { code32(c, &r.Leader) }},
	{2, 0, func(r *PartitionChangeRecord) bool { return r.Replicas != nil }, "Replicas", func(c *coder, r *PartitionChangeRecord) { c.nodeIDs(&r.Replicas, true) }},
	{3, 0, func(r *PartitionChangeRecord) bool { return r.RemovingReplicas != nil }, "RemovingReplicas", func(c *coder, r *PartitionChangeRecord) { c.nodeIDs(&r.RemovingReplicas, true) }},
	{4, 0, func(r *PartitionChangeRecord) bool { return r.AddingReplicas != nil }, "AddingReplicas", func(c *coder, r *PartitionChangeRecord) { c.nodeIDs(&r.AddingReplicas, true) }},
	{5, 0, func(r *PartitionChangeRecord) bool { return r.LeaderRecoveryState != NoLeaderRecoveryChanged }, "LeaderRecoveryState", func(c *coder, r *PartitionChangeRecord) { code8(c, &r.LeaderRecoveryState) }},
	{6, 2, func(r *PartitionChangeRecord) bool { return r.EligibleLeaderReplicas != nil }, "EligibleLeaderReplicas", func(c *coder, r *PartitionChangeRecord) { c.nodeIDs(&r.EligibleLeaderReplicas, true) }},
	{7, 2, func(r *PartitionChangeRecord) bool { return r.LastKnownELR != nil }, "LastKnownELR", func(c *coder, r *PartitionChangeRecord) { c.nodeIDs(&r.LastKnownELR, true) }},
	{8, 1, func(r *PartitionChangeRecord) bool { return r.Directories != nil }, "Directories", func(c *coder, r *PartitionChangeRecord) { c.uuids(&r.Directories, true) }},
}

// RemoveTopicRecord (type 9) deletes a topic with its partitions and its configs.
type RemoveTopicRecord struct {
	Version     int16
	TopicID     ident.UUID
	UnknownTags []Tag
}

// RecordType is 9.
func (*RemoveTopicRecord) RecordType() int16 { return TypeRemoveTopic }

// RecordVersion returns r.Version.
func (r *RemoveTopicRecord) RecordVersion() int16 { return r.Version }
func (r *RemoveTopicRecord) setVersion(v int16)   { r.Version = v }

func (r *RemoveTopicRecord) code(c *coder) {
	c.uuid(&r.TopicID)
	c.noTags(&r.UnknownTags)
}

// ClearELRRecord (type 28) empties the eligible leader replicas of a topic's partitions, or of all topics when
// TopicName is empty (KIP-966).
type ClearELRRecord struct {
	Version     int16
	TopicName   string
	UnknownTags []Tag
}

// RecordType is 28.
func (*ClearELRRecord) RecordType() int16 { return TypeClearELR }

// RecordVersion returns r.Version.
func (r *ClearELRRecord) RecordVersion() int16 { return r.Version }
func (r *ClearELRRecord) setVersion(v int16)   { r.Version = v }

func (r *ClearELRRecord) code(c *coder) {
	c.string(&r.TopicName)
	c.noTags(&r.UnknownTags)
}
