package metadata

import "github.com/highwater-io/highwater/pkg/ident"

// Endpoint is where a node listens, as its registration says.
type Endpoint struct {
	Name             string // the listener's name
	Host             string
	Port             uint16
	SecurityProtocol int16 // Kafka's SecurityProtocol ids: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
	UnknownTags      []Tag
}

func (e *Endpoint) code(c *coder) {
	c.string(&e.Name)
	c.string(&e.Host)
	code16(c, &e.Port)
	code16(c, &e.SecurityProtocol)
	c.noTags(&e.UnknownTags)
}

// SupportedFeature is a range of levels of a feature that a node can run at.
type SupportedFeature struct {
	Name                string
	MinSupportedVersion int16
	MaxSupportedVersion int16
	UnknownTags         []Tag
}

func (f *SupportedFeature) code(c *coder) {
	c.string(&f.Name)
	code16(c, &f.MinSupportedVersion)
	code16(c, &f.MaxSupportedVersion)
	c.noTags(&f.UnknownTags)
}

// The least bytes that one of them takes, for bounding what an array's length may claim.
const (
	minEndpointSize = 7
	minFeatureSize  = 6
)

// RegisterBrokerRecord (type 0) makes a broker known, or replaces its registration. Version 1 added
// InControlledShutdown, 2 IsMigratingZkBroker, 3 LogDirs (KIP-858).
type RegisterBrokerRecord struct {
	Version              int16
	BrokerID             ident.NodeID
	IsMigratingZkBroker  bool
	IncarnationID        ident.UUID
	BrokerEpoch          int64 // the offset of this record in the log
	EndPoints            []Endpoint
	Features             []SupportedFeature
	Rack                 *string
	Fenced               bool
	InControlledShutdown bool
	LogDirs              []ident.UUID
	UnknownTags          []Tag
}

// RecordType is 0.
func (*RegisterBrokerRecord) RecordType() int16 { return TypeRegisterBroker }

// RecordVersion returns r.Version.
func (r *RegisterBrokerRecord) RecordVersion() int16 { return r.Version }
func (r *RegisterBrokerRecord) setVersion(v int16)   { r.Version = v }

func (r *RegisterBrokerRecord) code(c *coder) {
	code32(c, &r.BrokerID)
	if c.since(2, r.IsMigratingZkBroker, "IsMigratingZkBroker") {
		c.bool(&r.IsMigratingZkBroker)
	}
	c.uuid(&r.IncarnationID)
	code64(c, &r.BrokerEpoch)
	array(c, &r.EndPoints, minEndpointSize, false, func(c *coder, e *Endpoint) { e.code(c) })
	array(c, &r.Features, minFeatureSize, false, func(c *coder, f *SupportedFeature) { f.code(c) })
	c.nullableString(&r.Rack)
	c.bool(&r.Fenced)
	if c.since(1, r.InControlledShutdown, "InControlledShutdown") {
		c.bool(&r.InControlledShutdown)
	}
	tags(c, r, &r.UnknownTags, registerBrokerTags)
}

var registerBrokerTags = []knownTag[RegisterBrokerRecord]{
	{0, 3, func(r *RegisterBrokerRecord) bool { return len(r.LogDirs) > 0 }, "LogDirs", func(c *coder, r *RegisterBrokerRecord) { c.uuids(&r.LogDirs, false) }},
}

// UnregisterBrokerRecord (type 1) forgets a broker.
type UnregisterBrokerRecord struct {
	Version     int16
	BrokerID    ident.NodeID
	BrokerEpoch int64
	UnknownTags []Tag
}

// RecordType is 1.
func (*UnregisterBrokerRecord) RecordType() int16 { return TypeUnregisterBroker }

// RecordVersion returns r.Version.
func (r *UnregisterBrokerRecord) RecordVersion() int16 { return r.Version }
func (r *UnregisterBrokerRecord) setVersion(v int16)   { r.Version = v }

func (r *UnregisterBrokerRecord) code(c *coder) {
	code32(c, &r.BrokerID)
	code64(c, &r.BrokerEpoch)
	c.noTags(&r.UnknownTags)
}

// FenceBrokerRecord (type 7) is the old way to fence a broker; BrokerRegistrationChangeRecord took its place with
// metadata.version 3.3-IV2.
type FenceBrokerRecord struct {
	Version     int16
	ID          ident.NodeID
	Epoch       int64
	UnknownTags []Tag
}

// RecordType is 7.
func (*FenceBrokerRecord) RecordType() int16 { return TypeFenceBroker }

// RecordVersion returns r.Version.
func (r *FenceBrokerRecord) RecordVersion() int16 { return r.Version }
func (r *FenceBrokerRecord) setVersion(v int16)   { r.Version = v }

func (r *FenceBrokerRecord) code(c *coder) {
	code32(c, &r.ID)
	code64(c, &r.Epoch)
	c.noTags(&r.UnknownTags)
}

// UnfenceBrokerRecord (type 8) is the old way to unfence a broker.
type UnfenceBrokerRecord struct {
	Version     int16
	ID          ident.NodeID
	Epoch       int64
	UnknownTags []Tag
}

// RecordType is 8.
func (*UnfenceBrokerRecord) RecordType() int16 { return TypeUnfenceBroker }

// RecordVersion returns r.Version.
func (r *UnfenceBrokerRecord) RecordVersion() int16 { return r.Version }
func (r *UnfenceBrokerRecord) setVersion(v int16)   { r.Version = v }

func (r *UnfenceBrokerRecord) code(c *coder) {
	code32(c, &r.ID)
	code64(c, &r.Epoch)
	c.noTags(&r.UnknownTags)
}

// What BrokerRegistrationChangeRecord's Fenced and InControlledShutdown say.
const (
	Unfence            int8 = -1 // Fenced
	NoFencingChange    int8 = 0  // Fenced
	Fence              int8 = 1  // Fenced
	NoShutdownChange   int8 = 0  // InControlledShutdown
	ControlledShutdown int8 = 1  // InControlledShutdown
)

// BrokerRegistrationChangeRecord (type 17) changes parts of a registration. Its zero value changes nothing.
// Version 1 added InControlledShutdown, 2 LogDirs.
type BrokerRegistrationChangeRecord struct {
	Version              int16
	BrokerID             ident.NodeID
	BrokerEpoch          int64
	Fenced               int8 // Fence, Unfence or NoFencingChange
	InControlledShutdown int8 // ControlledShutdown or NoShutdownChange
	LogDirs              []ident.UUID
	UnknownTags          []Tag
}

// RecordType is 17.
func (*BrokerRegistrationChangeRecord) RecordType() int16 { return TypeBrokerRegistrationChange }

// RecordVersion returns r.Version.
func (r *BrokerRegistrationChangeRecord) RecordVersion() int16 { return r.Version }
func (r *BrokerRegistrationChangeRecord) setVersion(v int16)   { r.Version = v }

func (r *BrokerRegistrationChangeRecord) code(c *coder) {
	code32(c, &r.BrokerID)
	code64(c, &r.BrokerEpoch)
	tags(c, r, &r.UnknownTags, brokerRegistrationChangeTags)
}

var brokerRegistrationChangeTags = []knownTag[BrokerRegistrationChangeRecord]{
	{0, 0, func(r *BrokerRegistrationChangeRecord) bool { return r.Fenced != 0 }, "Fenced", func(c *coder, r *BrokerRegistrationChangeRecord) { code8(c, &r.Fenced) }},
	{1, 1, func(r *BrokerRegistrationChangeRecord) bool { return r.InControlledShutdown != 0 }, "InControlledShutdown", func(c *coder, r *BrokerRegistrationChangeRecord) { code8(c, &r.InControlledShutdown) }},
	{2, 2, func(r *BrokerRegistrationChangeRecord) bool { return len(r.LogDirs) > 0 }, "LogDirs", func(c *coder, r *BrokerRegistrationChangeRecord) { c.uuids(&r.LogDirs, false) }},
}

// RegisterControllerRecord (type 27) makes a controller's listeners and features known (KIP-919).
type RegisterControllerRecord struct {
	Version          int16
	ControllerID     ident.NodeID
	IncarnationID    ident.UUID
	ZkMigrationReady bool
	EndPoints        []Endpoint
	Features         []SupportedFeature
	UnknownTags      []Tag
}

// RecordType is 27.
func (*RegisterControllerRecord) RecordType() int16 { return TypeRegisterController }

// RecordVersion returns r.Version.
func (r *RegisterControllerRecord) RecordVersion() int16 { return r.Version }
func (r *RegisterControllerRecord) setVersion(v int16)   { r.Version = v }

func (r *RegisterControllerRecord) code(c *coder) {
	code32(c, &r.ControllerID)
	c.uuid(&r.IncarnationID)
	c.bool(&r.ZkMigrationReady)
	array(c, &r.EndPoints, minEndpointSize, false, func(c *coder, e *Endpoint) { e.code(c) })
	array(c, &r.Features, minFeatureSize, false, func(c *coder, f *SupportedFeature) { f.code(c) })
	c.noTags(&r.UnknownTags)
}
