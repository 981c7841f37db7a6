package metadata

import "github.com/highwater-io/highwater/pkg/ident"

// The resource types that configs are kept for.
const (
	ResourceTopic         int8 = 2
	ResourceBroker        int8 = 4
	ResourceClientMetrics int8 = 16
	ResourceGroup         int8 = 32
)

// ConfigRecord (type 4) sets or, with a nil value, removes one config of a resource.
type ConfigRecord struct {
	Version      int16
	ResourceType int8
	ResourceName string // empty: the default of all brokers
	Name         string
	Value        *string
	UnknownTags  []Tag
}

// RecordType is 4.
func (*ConfigRecord) RecordType() int16 { return TypeConfig }

// RecordVersion returns r.Version.
func (r *ConfigRecord) RecordVersion() int16 { return r.Version }
func (r *ConfigRecord) setVersion(v int16)   { r.Version = v }

func (r *ConfigRecord) code(c *coder) {
	code8(c, &r.ResourceType)
	c.string(&r.ResourceName)
	c.string(&r.Name)
	c.nullableString(&r.Value)
	c.noTags(&r.UnknownTags)
}

// The features whose levels stand in the metadata log as records. kraft.version has a control record of its own.
const (
	FeatureMetadataVersion = "metadata.version"
	FeatureELR             = "eligible.leader.replicas.version"
	FeatureTransaction     = "transaction.version"
	FeatureGroup           = "group.version"
	FeatureKRaft           = "kraft.version"
)

// FeatureLevelRecord (type 12) sets the level of a feature; level 0 removes it.
type FeatureLevelRecord struct {
	Version      int16
	Name         string
	FeatureLevel int16
	UnknownTags  []Tag
}

// RecordType is 12.
func (*FeatureLevelRecord) RecordType() int16 { return TypeFeatureLevel }

// RecordVersion returns r.Version.
func (r *FeatureLevelRecord) RecordVersion() int16 { return r.Version }
func (r *FeatureLevelRecord) setVersion(v int16)   { r.Version = v }

func (r *FeatureLevelRecord) code(c *coder) {
	c.string(&r.Name)
	code16(c, &r.FeatureLevel)
	c.noTags(&r.UnknownTags)
}

// ProducerIDsRecord (type 15) says that all producer ids below NextProducerID are given out.
type ProducerIDsRecord struct {
	Version        int16
	BrokerID       ident.NodeID // whom the block was for; NoNode in a snapshot
	BrokerEpoch    int64
	NextProducerID int64
	UnknownTags    []Tag
}

// RecordType is 15.
func (*ProducerIDsRecord) RecordType() int16 { return TypeProducerIDs }

// RecordVersion returns r.Version.
func (r *ProducerIDsRecord) RecordVersion() int16 { return r.Version }
func (r *ProducerIDsRecord) setVersion(v int16)   { r.Version = v }

func (r *ProducerIDsRecord) code(c *coder) {
	code32(c, &r.BrokerID)
	code64(c, &r.BrokerEpoch)
	code64(c, &r.NextProducerID)
	c.noTags(&r.UnknownTags)
}

// NoOpRecord (type 20) says nothing; it moves the log on while nothing happens (KIP-835).
type NoOpRecord struct {
	Version     int16
	UnknownTags []Tag
}

// RecordType is 20.
func (*NoOpRecord) RecordType() int16 { return TypeNoOp }

// RecordVersion returns r.Version.
func (r *NoOpRecord) RecordVersion() int16 { return r.Version }
func (r *NoOpRecord) setVersion(v int16)   { r.Version = v }

func (r *NoOpRecord) code(c *coder) {
	c.noTags(&r.UnknownTags)
}

// ZkMigrationStateRecord (type 21) is left from the days of ZooKeeper and still read.
type ZkMigrationStateRecord struct {
	Version          int16
	ZkMigrationState int8
	UnknownTags      []Tag
}

// RecordType is 21.
func (*ZkMigrationStateRecord) RecordType() int16 { return TypeZkMigrationState }

// RecordVersion returns r.Version.
func (r *ZkMigrationStateRecord) RecordVersion() int16 { return r.Version }
func (r *ZkMigrationStateRecord) setVersion(v int16)   { r.Version = v }

func (r *ZkMigrationStateRecord) code(c *coder) {
	code8(c, &r.ZkMigrationState)
	c.noTags(&r.UnknownTags)
}

// BeginTransactionRecord (type 23) begins a metadata transaction (KIP-868): what follows counts only from its end on.
type BeginTransactionRecord struct {
	Version     int16
	Name        *string // for people
	UnknownTags []Tag
}

// RecordType is 23.
func (*BeginTransactionRecord) RecordType() int16 { return TypeBeginTransaction }

// RecordVersion returns r.Version.
func (r *BeginTransactionRecord) RecordVersion() int16 { return r.Version }
func (r *BeginTransactionRecord) setVersion(v int16)   { r.Version = v }

func (r *BeginTransactionRecord) code(c *coder) {
	tags(c, r, &r.UnknownTags, beginTransactionTags)
}

var beginTransactionTags = []knownTag[BeginTransactionRecord]{
	{0, 0, func(r *BeginTransactionRecord) bool { return r.Name != nil }, "Name", func(c *coder, r *BeginTransactionRecord) { c.nullableString(&r.Name) }},
}

// EndTransactionRecord (type 24) makes what the running transaction holds count.
type EndTransactionRecord struct {
	Version     int16
	UnknownTags []Tag
}

// RecordType is 24.
func (*EndTransactionRecord) RecordType() int16 { return TypeEndTransaction }

// RecordVersion returns r.Version.
func (r *EndTransactionRecord) RecordVersion() int16 { return r.Version }
func (r *EndTransactionRecord) setVersion(v int16)   { r.Version = v }

func (r *EndTransactionRecord) code(c *coder) {
	c.noTags(&r.UnknownTags)
}

// AbortTransactionRecord (type 25) drops what the running transaction holds.
type AbortTransactionRecord struct {
	Version     int16
	Reason      *string // for people
	UnknownTags []Tag
}

// RecordType is 25.
func (*AbortTransactionRecord) RecordType() int16 { return TypeAbortTransaction }

// RecordVersion returns r.Version.
func (r *AbortTransactionRecord) RecordVersion() int16 { return r.Version }
func (r *AbortTransactionRecord) setVersion(v int16)   { r.Version = v }

func (r *AbortTransactionRecord) code(c *coder) {
	tags(c, r, &r.UnknownTags, abortTransactionTags)
}

var abortTransactionTags = []knownTag[AbortTransactionRecord]{
	{0, 0, func(r *AbortTransactionRecord) bool { return r.Reason != nil }, "Reason", func(c *coder, r *AbortTransactionRecord) { c.nullableString(&r.Reason) }},
}
