package metadata

import (
	"errors"
	"fmt"
)

// A Record is one of the structs of this package that stand for Kafka's metadata records, always as a pointer.
type Record interface {
	// RecordType is the number that Kafka's schema gives the record (its apiKey).
	RecordType() int16
	// RecordVersion is the version of the schema that the record was read with or will be written with.
	RecordVersion() int16

	setVersion(int16)
	code(*coder)
}

// The record types. 6, 13 and 16 were never released.
const (
	TypeRegisterBroker            int16  = 0
	TypeUnregisterBroker          int16  = 1
	TypeTopic                     int16  = 2
	TypePartition                 int16  = 3
	TypeConfig                    int16  = 4
	TypePartitionChange           int16  = 5
	TypeFenceBroker               int16  = 7
	TypeUnfenceBroker             int16  = 8
	TypeRemoveTopic               int16  = 9
	TypeDelegationToken           int16  = 10
	TypeUserScramCredential       int16  = 11
	TypeFeatureLevel              int16  = 12
	TypeClientQuota               int16  = 14
	TypeProducerIDs               int16  = 15
	TypeBrokerRegistrationChange  int16  = 17
	TypeAccessControlEntry        int16  = 18
	TypeRemoveAccessControlEntry  int16  = 19
	TypeNoOp                      int16  = 20
	TypeZkMigrationState          int16  = 21
	TypeRemoveUserScramCredential int16  = 22
	TypeBeginTransaction          int16  = 23
	TypeEndTransaction            int16  = 24
	TypeAbortTransaction          int16  = 25
	TypeRemoveDelegationToken     int16  = 26
	TypeRegisterController        int16  = 27
	TypeClearELR                  int16  = 28
	maxType                              = TypeClearELR
	frameVersion                  uint32 = 1
)

// A schema says how a record type is called in Kafka, up to which version this code reads it, and how an empty
// one, with Kafka's defaults, is made.
type schema struct {
	name       string
	maxVersion int16
	make       func() Record
}

var schemas = [maxType + 1]schema{
	TypeRegisterBroker:            {"REGISTER_BROKER_RECORD", 3, func() Record { return &RegisterBrokerRecord{Fenced: true} }},
	TypeUnregisterBroker:          {"UNREGISTER_BROKER_RECORD", 0, func() Record { return &UnregisterBrokerRecord{} }},
	TypeTopic:                     {"TOPIC_RECORD", 0, func() Record { return &TopicRecord{} }},
	TypePartition:                 {"PARTITION_RECORD", 2, func() Record { return &PartitionRecord{} }},
	TypeConfig:                    {"CONFIG_RECORD", 0, func() Record { return &ConfigRecord{} }},
	TypePartitionChange:           {"PARTITION_CHANGE_RECORD", 2, func() Record { return NewPartitionChange(0) }},
	TypeFenceBroker:               {"FENCE_BROKER_RECORD", 0, func() Record { return &FenceBrokerRecord{} }},
	TypeUnfenceBroker:             {"UNFENCE_BROKER_RECORD", 0, func() Record { return &UnfenceBrokerRecord{} }},
	TypeRemoveTopic:               {"REMOVE_TOPIC_RECORD", 0, func() Record { return &RemoveTopicRecord{} }},
	TypeDelegationToken:           {"DELEGATION_TOKEN_RECORD", 0, func() Record { return &DelegationTokenRecord{} }},
	TypeUserScramCredential:       {"USER_SCRAM_CREDENTIAL_RECORD", 0, func() Record { return &UserScramCredentialRecord{} }},
	TypeFeatureLevel:              {"FEATURE_LEVEL_RECORD", 0, func() Record { return &FeatureLevelRecord{} }},
	TypeClientQuota:               {"CLIENT_QUOTA_RECORD", 0, func() Record { return &ClientQuotaRecord{} }},
	TypeProducerIDs:               {"PRODUCER_IDS_RECORD", 0, func() Record { return &ProducerIDsRecord{} }},
	TypeBrokerRegistrationChange:  {"BROKER_REGISTRATION_CHANGE_RECORD", 2, func() Record { return &BrokerRegistrationChangeRecord{} }},
	TypeAccessControlEntry:        {"ACCESS_CONTROL_ENTRY_RECORD", 0, func() Record { return &AccessControlEntryRecord{} }},
	TypeRemoveAccessControlEntry:  {"REMOVE_ACCESS_CONTROL_ENTRY_RECORD", 0, func() Record { return &RemoveAccessControlEntryRecord{} }},
	TypeNoOp:                      {"NO_OP_RECORD", 0, func() Record { return &NoOpRecord{} }},
	TypeZkMigrationState:          {"ZK_MIGRATION_STATE_RECORD", 0, func() Record { return &ZkMigrationStateRecord{} }},
	TypeRemoveUserScramCredential: {"REMOVE_USER_SCRAM_CREDENTIAL_RECORD", 0, func() Record { return &RemoveUserScramCredentialRecord{} }},
	TypeBeginTransaction:          {"BEGIN_TRANSACTION_RECORD", 0, func() Record { return &BeginTransactionRecord{} }},
	TypeEndTransaction:            {"END_TRANSACTION_RECORD", 0, func() Record { return &EndTransactionRecord{} }},
	TypeAbortTransaction:          {"ABORT_TRANSACTION_RECORD", 0, func() Record { return &AbortTransactionRecord{} }},
	TypeRemoveDelegationToken:     {"REMOVE_DELEGATION_TOKEN_RECORD", 0, func() Record { return &RemoveDelegationTokenRecord{} }},
	TypeRegisterController:        {"REGISTER_CONTROLLER_RECORD", 0, func() Record { return &RegisterControllerRecord{} }},
	TypeClearELR:                  {"CLEAR_ELR_RECORD", 0, func() Record { return &ClearELRRecord{} }},
}

// TypeName returns a record type's name as Kafka's log decoder prints it, and false for an unknown type.
func TypeName(recordType int16) (string, bool) {
	if recordType < 0 || recordType > maxType || schemas[recordType].make == nil {
		return "", false
	}
	return schemas[recordType].name, true
}

// ErrMalformed is wrapped by Decode's error when the bytes are not a record of the type and version they claim.
var ErrMalformed = errors.New("malformed metadata record")

// An UnsupportedError says that a record is of a type or version that this code does not know. The metadata log
// was then written at a higher metadata.version than this build reads; going on without the record would give a
// wrong image, so a node stops on it.
type UnsupportedError struct {
	FrameVersion  uint32
	RecordType    uint32
	RecordVersion uint32
}

// Error says what was met and what to do about it.
func (e *UnsupportedError) Error() string {
	const advice = "the metadata log was written by a newer version; run a build that knows it"
	if e.FrameVersion != frameVersion {
		return fmt.Sprintf("metadata record with frame version %d, this build reads only %d: %s", e.FrameVersion, frameVersion, advice)
	}
	if e.RecordType <= uint32(maxType) {
		if name, ok := TypeName(int16(e.RecordType)); ok {
			return fmt.Sprintf("metadata record %s (type %d) version %d, this build reads versions 0 to %d: %s",
				name, e.RecordType, e.RecordVersion, schemas[e.RecordType].maxVersion, advice)
		}
	}
	return fmt.Sprintf("metadata record of unknown type %d (version %d): %s", e.RecordType, e.RecordVersion, advice)
}

// Encode appends r to dst as the value of a record in the metadata log: frame version, type and version as
// varints, then the body in the version that the struct names. It panics when r can't be written in that version
// (a field is set that the version lacks, or a string is too long); records made from user input go through
// TryEncode first.
func Encode(dst []byte, r Record) []byte {
	out, err := TryEncode(dst, r)
	if err != nil {
		panic(err)
	}
	return out
}

// TryEncode is Encode with an error in place of the panic. On an error dst is returned as it was.
func TryEncode(dst []byte, r Record) ([]byte, error) {
	var c coder
	return c.encode(dst, r)
}

// encode is TryEncode. One coder may do it again and again, without allocating.
func (c *coder) encode(dst []byte, r Record) ([]byte, error) {
	recordType := r.RecordType()
	s := &schemas[recordType]
	if v := r.RecordVersion(); v < 0 || v > s.maxVersion {
		return dst, fmt.Errorf("%s version %d: this build writes versions 0 to %d", s.name, v, s.maxVersion)
	}
	*c = coder{buf: dst, writing: true, version: r.RecordVersion()}
	frame, t, v := frameVersion, uint32(recordType), uint32(c.version)
	c.uvarint(&frame)
	c.uvarint(&t)
	c.uvarint(&v)
	if r.code(c); c.err != nil {
		return dst, fmt.Errorf("%s version %d: %w", s.name, c.version, c.err)
	}
	return c.buf, nil
}

// Decode reads the value of a record of the metadata log. The result shares no memory with b. The error is an
// *UnsupportedError for a type or version that is not known, else it wraps ErrMalformed.
func Decode(b []byte) (Record, error) {
	var c coder
	return c.decode(b)
}

// decode is Decode. One coder may do it again and again.
func (c *coder) decode(b []byte) (Record, error) {
	*c = coder{buf: b}
	var frame, recordType, version uint32
	c.uvarint(&frame)
	if c.err == nil && frame != frameVersion {
		return nil, &UnsupportedError{FrameVersion: frame}
	}
	c.uvarint(&recordType)
	c.uvarint(&version)
	if c.err != nil {
		return nil, fmt.Errorf("%w: frame %w", ErrMalformed, c.err)
	}
	if recordType > uint32(maxType) || schemas[recordType].make == nil || version > uint32(schemas[recordType].maxVersion) {
		return nil, &UnsupportedError{FrameVersion: frame, RecordType: recordType, RecordVersion: version}
	}
	s := &schemas[recordType]
	r := s.make()
	r.setVersion(int16(version))
	c.version = int16(version)
	if r.code(c); c.err == nil && len(c.buf) > 0 {
		c.fail("%d bytes follow the end of the record", len(c.buf))
	}
	if c.err != nil {
		return nil, fmt.Errorf("%w: %s version %d: %w", ErrMalformed, s.name, version, c.err)
	}
	return r, nil
}
