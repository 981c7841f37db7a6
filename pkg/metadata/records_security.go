package metadata

import "github.com/highwater-io/highwater/pkg/ident"

// DelegationTokenRecord (type 10) makes a delegation token known, or changes it (KIP-900). Timestamps are milliseconds since 1970.
type DelegationTokenRecord struct {
	Version             int16
	Owner               string
	Requester           string
	Renewers            []string
	IssueTimestamp      int64
	MaxTimestamp        int64
	ExpirationTimestamp int64
	TokenID             string
	UnknownTags         []Tag
}

// RecordType is 10.
func (*DelegationTokenRecord) RecordType() int16 { return TypeDelegationToken }

// RecordVersion returns r.Version.
func (r *DelegationTokenRecord) RecordVersion() int16 { return r.Version }
func (r *DelegationTokenRecord) setVersion(v int16)   { r.Version = v }

func (r *DelegationTokenRecord) code(c *coder) {
	c.string(&r.Owner)
	c.string(&r.Requester)
	array(c, &r.Renewers, 1, false, (*coder).string)
	code64(c, &r.IssueTimestamp)
	code64(c, &r.MaxTimestamp)
	code64(c, &r.ExpirationTimestamp)
	c.string(&r.TokenID)
	c.noTags(&r.UnknownTags)
}

// RemoveDelegationTokenRecord (type 26) forgets a delegation token.
type RemoveDelegationTokenRecord struct {
	Version     int16
	TokenID     string
	UnknownTags []Tag
}

// RecordType is 26.
func (*RemoveDelegationTokenRecord) RecordType() int16 { return TypeRemoveDelegationToken }

// RecordVersion returns r.Version.
func (r *RemoveDelegationTokenRecord) RecordVersion() int16 { return r.Version }
func (r *RemoveDelegationTokenRecord) setVersion(v int16)   { r.Version = v }

func (r *RemoveDelegationTokenRecord) code(c *coder) {
	c.string(&r.TokenID)
	c.noTags(&r.UnknownTags)
}

// UserScramCredentialRecord (type 11) sets what a user authenticates against (KIP-900).
type UserScramCredentialRecord struct {
	Version     int16
	Name        string
	Mechanism   int8 // 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
	Salt        []byte
	StoredKey   []byte
	ServerKey   []byte
	Iterations  int32
	UnknownTags []Tag
}

// RecordType is 11.
func (*UserScramCredentialRecord) RecordType() int16 { return TypeUserScramCredential }

// RecordVersion returns r.Version.
func (r *UserScramCredentialRecord) RecordVersion() int16 { return r.Version }
func (r *UserScramCredentialRecord) setVersion(v int16)   { r.Version = v }

func (r *UserScramCredentialRecord) code(c *coder) {
	c.string(&r.Name)
	code8(c, &r.Mechanism)
	c.bytes(&r.Salt)
	c.bytes(&r.StoredKey)
	c.bytes(&r.ServerKey)
	code32(c, &r.Iterations)
	c.noTags(&r.UnknownTags)
}

// RemoveUserScramCredentialRecord (type 22) removes a credential.
type RemoveUserScramCredentialRecord struct {
	Version     int16
	Name        string
	Mechanism   int8
	UnknownTags []Tag
}

// RecordType is 22.
func (*RemoveUserScramCredentialRecord) RecordType() int16 { return TypeRemoveUserScramCredential }

// RecordVersion returns r.Version.
func (r *RemoveUserScramCredentialRecord) RecordVersion() int16 { return r.Version }
func (r *RemoveUserScramCredentialRecord) setVersion(v int16)   { r.Version = v }

func (r *RemoveUserScramCredentialRecord) code(c *coder) {
	c.string(&r.Name)
	code8(c, &r.Mechanism)
	c.noTags(&r.UnknownTags)
}

// AccessControlEntryRecord (type 18) adds an ACL; the numbers are those of Kafka's admin protocol.
type AccessControlEntryRecord struct {
	Version        int16
	ID             ident.UUID
	ResourceType   int8
	ResourceName   string
	PatternType    int8
	Principal      string
	Host           string
	Operation      int8
	PermissionType int8
	UnknownTags    []Tag
}

// RecordType is 18.
func (*AccessControlEntryRecord) RecordType() int16 { return TypeAccessControlEntry }

// RecordVersion returns r.Version.
func (r *AccessControlEntryRecord) RecordVersion() int16 { return r.Version }
func (r *AccessControlEntryRecord) setVersion(v int16)   { r.Version = v }

func (r *AccessControlEntryRecord) code(c *coder) {
	c.uuid(&r.ID)
	code8(c, &r.ResourceType)
	c.string(&r.ResourceName)
	code8(c, &r.PatternType)
	c.string(&r.Principal)
	c.string(&r.Host)
	code8(c, &r.Operation)
	code8(c, &r.PermissionType)
	c.noTags(&r.UnknownTags)
}

// RemoveAccessControlEntryRecord (type 19) removes an ACL.
type RemoveAccessControlEntryRecord struct {
	Version     int16
	ID          ident.UUID
	UnknownTags []Tag
}

// RecordType is 19.
func (*RemoveAccessControlEntryRecord) RecordType() int16 { return TypeRemoveAccessControlEntry }

// RecordVersion returns r.Version.
func (r *RemoveAccessControlEntryRecord) RecordVersion() int16 { return r.Version }
func (r *RemoveAccessControlEntryRecord) setVersion(v int16)   { r.Version = v }

func (r *RemoveAccessControlEntryRecord) code(c *coder) {
	c.uuid(&r.ID)
	c.noTags(&r.UnknownTags)
}

// QuotaEntity is one part of what a quota is for: a user, a client id or an ip. A nil name is the default for all.
type QuotaEntity struct {
	EntityType  string
	EntityName  *string
	UnknownTags []Tag
}

const minQuotaEntitySize = 3

func (e *QuotaEntity) code(c *coder) {
	c.string(&e.EntityType)
	c.nullableString(&e.EntityName)
	c.noTags(&e.UnknownTags)
}

// ClientQuotaRecord (type 14) sets or removes a quota of clients (KIP-546).
type ClientQuotaRecord struct {
	Version     int16
	Entity      []QuotaEntity
	Key         string
	Value       float64
	Remove      bool
	UnknownTags []Tag
}

// RecordType is 14.
func (*ClientQuotaRecord) RecordType() int16 { return TypeClientQuota }

// RecordVersion returns r.Version.
func (r *ClientQuotaRecord) RecordVersion() int16 { return r.Version }
func (r *ClientQuotaRecord) setVersion(v int16)   { r.Version = v }

func (r *ClientQuotaRecord) code(c *coder) {
	array(c, &r.Entity, minQuotaEntitySize, false, func(c *coder, e *QuotaEntity) { e.code(c) })
	c.string(&r.Key)
	c.float64(&r.Value)
	c.bool(&r.Remove)
	c.noTags(&r.UnknownTags)
}
