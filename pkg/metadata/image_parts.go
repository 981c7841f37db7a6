package metadata

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Broker is a broker's registration.
type Broker struct {
	ID                   ident.NodeID
	Epoch                int64 // the offset of the record that registered it
	Incarnation          ident.UUID
	Endpoints            []Endpoint         // by name
	Features             []SupportedFeature // by name
	Rack                 *string
	Fenced               bool
	InControlledShutdown bool
	LogDirs              []ident.UUID // in order
	IsMigratingZkBroker  bool
}

// Active says whether the broker may be in an ISR and lead.
func (b *Broker) Active() bool { return !b.Fenced && !b.InControlledShutdown }

// Endpoint returns where the broker listens under that listener name.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) {
	return findEndpoint(b.Endpoints, listener)
}

// Controller is a controller's registration.
type Controller struct {
	ID               ident.NodeID
	Incarnation      ident.UUID
	ZkMigrationReady bool
	Endpoints        []Endpoint         // by name
	Features         []SupportedFeature // by name
}

// Endpoint returns where the controller listens under that listener name.
func (c *Controller) Endpoint(listener string) (Endpoint, bool) {
	return findEndpoint(c.Endpoints, listener)
}

func findEndpoint(endpoints []Endpoint, name string) (Endpoint, bool) {
	for _, e := range endpoints {
		if e.Name == name {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Topic is a topic and its partitions.
type Topic struct {
	Name       string
	ID         ident.UUID
	partitions sorted[int32, *Partition]
}

// Partition returns the partition of that index.
func (t *Topic) Partition(index int32) (*Partition, bool) { return t.partitions.get(index) }

// NumPartitions returns how many partitions there are.
func (t *Topic) NumPartitions() int { return t.partitions.len() }

// Partitions goes through the partitions by index.
func (t *Topic) Partitions() iter.Seq2[int32, *Partition] { return t.partitions.all() }

func (t *Topic) with(index int32, p *Partition) *Topic {
	return &Topic{Name: t.Name, ID: t.ID, partitions: t.partitions.set(index, p)}
}

// Partition is what the quorum says of a partition. Empty lists are nil.
type Partition struct {
	Replicas       []ident.NodeID // the first is the preferred leader
	Directories    []ident.UUID   // one per replica; the zero uuid is Kafka's MIGRATING, of logs older than KIP-858
	ISR            []ident.NodeID
	Adding         []ident.NodeID
	Removing       []ident.NodeID
	ELR            []ident.NodeID
	LastKnownELR   []ident.NodeID
	Leader         ident.NodeID // NoNode when there is none
	LeaderEpoch    ident.Epoch
	PartitionEpoch int32
	RecoveryState  int8 // Recovered or Recovering
}

// Directory returns the log directory that a replica of the partition is in.
func (p *Partition) Directory(replica ident.NodeID) (ident.UUID, bool) {
	if i := slices.Index(p.Replicas, replica); i >= 0 {
		return p.Directories[i], true
	}
	return ident.UUID{}, false
}

// Reassigning says whether replicas are being added or removed.
func (p *Partition) Reassigning() bool { return len(p.Adding) > 0 || len(p.Removing) > 0 }

// equal says whether both say the same.
func (p *Partition) equal(other *Partition) bool {
	return p.Leader == other.Leader && p.LeaderEpoch == other.LeaderEpoch && p.PartitionEpoch == other.PartitionEpoch &&
		p.RecoveryState == other.RecoveryState && slices.Equal(p.Replicas, other.Replicas) &&
		slices.Equal(p.Directories, other.Directories) && slices.Equal(p.ISR, other.ISR) &&
		slices.Equal(p.Adding, other.Adding) && slices.Equal(p.Removing, other.Removing) &&
		slices.Equal(p.ELR, other.ELR) && slices.Equal(p.LastKnownELR, other.LastKnownELR)
}

// ConfigResource is what a config is set for.
type ConfigResource struct {
	Type int8 // ResourceTopic, ResourceBroker, ...
	Name string
}

// Compare orders resources by type, then name.
func (r ConfigResource) Compare(other ConfigResource) int {
	return cmp.Or(cmp.Compare(r.Type, other.Type), strings.Compare(r.Name, other.Name))
}

// Config is what is set for one resource. The zero value is empty.
type Config struct{ values sorted[string, string] }

// Get returns the value of a key that is set.
func (c Config) Get(key string) (string, bool) {
	if c.values.m == nil {
		return "", false
	}
	return c.values.get(key)
}

// Len returns how many keys are set.
func (c Config) Len() int {
	if c.values.m == nil {
		return 0
	}
	return c.values.len()
}

// All goes through the keys in order.
func (c Config) All() iter.Seq2[string, string] {
	if c.values.m == nil {
		return func(func(string, string) bool) {}
	}
	return c.values.all()
}

func (c Config) with(key string, value *string) Config {
	if c.values.m == nil {
		c.values = ordered[string, string]()
	}
	if value == nil {
		return Config{c.values.delete(key)}
	}
	return Config{c.values.set(key, *value)}
}

// QuotaValue is one quota of an entity: consumer_byte_rate, producer_byte_rate and so on.
type QuotaValue struct {
	Key   string
	Value float64
}

type quota struct {
	entity []QuotaEntity
	values sorted[string, float64]
}

// quotaKey makes one string of an entity, the same whatever the order of its parts.
func quotaKey(entity []QuotaEntity) ([]QuotaEntity, string) {
	entity = slices.Clone(entity)
	slices.SortStableFunc(entity, func(a, b QuotaEntity) int { return strings.Compare(a.EntityType, b.EntityType) })
	c := coder{writing: true}
	for i := range entity {
		entity[i].UnknownTags = nil
		entity[i].code(&c)
	}
	return entity, string(c.buf)
}

type scramKey struct {
	mechanism int8
	user      string
}

func (k scramKey) compare(other scramKey) int {
	return cmp.Or(cmp.Compare(k.mechanism, other.mechanism), strings.Compare(k.user, other.user))
}
