package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Config is what a node is started with: the flags of its own and the file that all nodes of a cluster share.
type Config struct {
	NodeID      ident.NodeID
	DirectoryID ident.UUID
	Voter       bool
	Data        bool

	// DataDir holds the partitions, MetadataDir the metadata log; they may be one directory, as in Kafka.
	DataDir     string
	MetadataDir string
	// MinFreeBytes is what the partitions leave free on the volume of DataDir: with less, the directory goes offline
	// as with a full disk. 0 means nothing is left; negative, a twentieth of the volume and at most 256 MiB.
	MinFreeBytes int64

	// ControllerListener and the rest are host:port to bind to; Advertised* what peers and clients are told.
	ControllerListener   string
	InternalListener     string
	ExternalListener     string
	HTTPListener         string
	AdvertisedController string
	AdvertisedInternal   string
	AdvertisedExternal   string

	Rack             string
	FormatPermitFile string
	// AwaitWithdrawal holds a voter back until its permit to format is withdrawn, so that it can't lose its volume
	// unnoticed once it has voted. Whoever gives permits has to withdraw them when the node has told of its directory.
	AwaitWithdrawal bool
	TerminationLog  string
	// RecoveryThreads is how many logs are opened at a time (num.recovery.threads.per.data.dir); 0 is 1.
	RecoveryThreads int
	// ScrubInterval is how long one check of the checksums of all sealed segments takes, and when the next begins; 0 is
	// never. Segments in which a look-up met damage are checked all the same.
	ScrubInterval time.Duration
	// CleanerIOBytes is how many bytes log compaction reads and writes in a second (log.cleaner.io.max.bytes.per.second);
	// 0 is no limit. CleanerMapBytes is the memory for the keys that it goes through (log.cleaner.dedupe.buffer.size);
	// 0 is DefaultCleanerMapBytes.
	CleanerIOBytes  int64
	CleanerMapBytes int64
	HostsFile       string

	Shared SharedConfig
	// SharedFile is where Shared was read from. It is read again while the node runs, for what may change then:
	// Snapshots. Empty: it is not.
	SharedFile string
	Timing     Timing
}

// SharedConfig is the file (--config) that is the same on all nodes of a cluster.
type SharedConfig struct {
	// ClusterID is the cluster's uuid, 22 characters.
	ClusterID ident.UUID `json:"clusterId"`
	// Voters are the first voter set and those that joined later. Only the formatting of an empty volume reads the
	// directory ids; after that the set stands in the metadata log, and this list serves to find it.
	Voters []VoterConfig `json:"voters"`
	// Defaults hold for topics that do not say otherwise.
	Defaults Defaults `json:"defaults"`
	// Snapshots say when a node takes a snapshot of the metadata and what it keeps.
	Snapshots Snapshots `json:"snapshots"`
}

// Snapshots are the limits of metadata snapshots and of the log behind them.
type Snapshots struct {
	// MaxNewBytes of metadata make a snapshot due (metadata.log.max.record.bytes.between.snapshots); 0 is 20 MiB.
	MaxNewBytes int64 `json:"maxNewBytes,omitempty"`
	// MaxInterval after the last one a snapshot is due, if there is anything new
	// (metadata.log.max.snapshot.interval.ms); 0 is an hour.
	MaxInterval Duration `json:"maxInterval,omitempty"`
	// RetentionBytes is how much snapshots and log may take together before the oldest go
	// (metadata.max.retention.bytes); 0 is 100 MiB. Two snapshots and the log behind the older are kept always.
	RetentionBytes int64 `json:"retentionBytes,omitempty"`
	// RetentionAge is how old a snapshot may become before it goes (metadata.max.retention.ms); 0 is a week.
	RetentionAge Duration `json:"retentionAge,omitempty"`
}

// withDefaults fills what is not set.
func (s Snapshots) withDefaults() Snapshots {
	if s.MaxNewBytes == 0 {
		s.MaxNewBytes = 20 << 20
	}
	if s.MaxInterval == 0 {
		s.MaxInterval = Duration(time.Hour)
	}
	if s.RetentionBytes == 0 {
		s.RetentionBytes = 100 << 20
	}
	if s.RetentionAge == 0 {
		s.RetentionAge = Duration(7 * 24 * time.Hour)
	}
	return s
}

// VoterConfig is a voter.
type VoterConfig struct {
	ID          ident.NodeID `json:"id"`
	DirectoryID ident.UUID   `json:"directoryId"`
	Host        string       `json:"host"`
	Port        int          `json:"port"`
	// Joins says that it is not one of the first voter set: it is made a voter by being added to the quorum (KIP-853).
	Joins bool `json:"joins,omitempty"`
}

// Address is host:port of the voter's CONTROLLER listener.
func (v VoterConfig) Address() string { return net.JoinHostPort(v.Host, strconv.Itoa(v.Port)) }

// Defaults are the cluster-wide defaults of topic and replication settings.
type Defaults struct {
	// ReplicaLagTimeMax is how long a follower may lag before the leader takes it out of the ISR
	// (replica.lag.time.max.ms).
	ReplicaLagTimeMax Duration `json:"replicaLagTimeMax,omitempty"`
	// MinInSyncReplicas is min.insync.replicas where the topic does not set it.
	MinInSyncReplicas int32 `json:"minInSyncReplicas,omitempty"`
	// Flush says when a record counts as written, where the topic does not say it.
	Flush FlushPolicy `json:"flush,omitempty"`
	// ReplicationFactor is used for topics created with -1.
	ReplicationFactor int16 `json:"replicationFactor,omitempty"`
	// ProducerIDExpiration is how long a partition remembers an idempotent producer that writes nothing
	// (producer.id.expiration.ms); a day when not set.
	ProducerIDExpiration Duration `json:"producerIdExpiration,omitempty"`
	// Partitions is used for topics created with -1.
	Partitions int32 `json:"partitions,omitempty"`
}

// FlushPolicy says what a replica has done with a record when it says that it has the record.
type FlushPolicy string

const (
	// FlushPageCache: it is written, and the operating system brings it to the disk in its own time. Replicas on
	// other machines are what keeps it when this one loses power. It is Kafka's way, and the default.
	FlushPageCache FlushPolicy = "PageCache"
	// FlushAlways: it is on the disk (fsync).
	FlushAlways FlushPolicy = "Always"
)

// Duration is a time.Duration written as Go and Kubernetes write one: "30s".
type Duration time.Duration

// UnmarshalJSON reads "30s"; a bare number is refused, since nobody can tell its unit.
func (d *Duration) UnmarshalJSON(b []byte) error {
	text, err := strconv.Unquote(string(b))
	if err != nil {
		return fmt.Errorf("duration %s: want a string with a unit, such as \"30s\"", b)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d Duration) MarshalJSON() ([]byte, error) {
	return []byte(strconv.Quote(time.Duration(d).String())), nil
}

// Timing has the product's periods and time-outs. Tests of the loops shorten none of them: they wait.
type Timing struct {
	HeartbeatInterval time.Duration
	SessionTimeout    time.Duration
	FetchMaxWait      time.Duration
	// RetryBackoff is the pause after a failed request to another node, with jitter on top.
	RetryBackoff time.Duration
	// RequestTimeout bounds one request to another node beyond what it asks the other to wait.
	RequestTimeout time.Duration
	// CheckpointInterval is the period of the high-watermark, recovery-point and log-start checkpoints.
	CheckpointInterval time.Duration
	// DirProbeInterval is the first pause before an offline directory is tried again; it doubles up to 30 s.
	DirProbeInterval time.Duration
	// CleanerInterval is the pause of log compaction when there is nothing to be compacted (log.cleaner.backoff.ms).
	CleanerInterval time.Duration
	// StrayDelay is how long the directory of a replica stays, moved aside, whose topic metadata does not have
	// (file.delete.delay.ms).
	StrayDelay time.Duration
	// ShutdownTimeout bounds the controlled shutdown; after it the node stops as it is.
	ShutdownTimeout time.Duration
}

// DefaultTiming is what nodes run with. Heartbeats are four times as frequent as Kafka's and sessions a third as
// long: fencing is always safe, and it decides how long a partition whose leader died stays without one.
func DefaultTiming() Timing {
	return Timing{
		HeartbeatInterval:  500 * time.Millisecond,
		SessionTimeout:     3 * time.Second,
		FetchMaxWait:       500 * time.Millisecond,
		RetryBackoff:       100 * time.Millisecond,
		RequestTimeout:     2 * time.Second,
		CheckpointInterval: 5 * time.Second,
		DirProbeInterval:   time.Second,
		CleanerInterval:    15 * time.Second,
		StrayDelay:         time.Minute,
		ShutdownTimeout:    20 * time.Second,
	}
}

// LoadSharedConfig reads the file of --config. Unknown fields are errors: a misspelt one would be ignored.
func LoadSharedConfig(path string) (SharedConfig, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return SharedConfig{}, fmt.Errorf("reading the cluster's configuration: %w", err)
	}
	var shared SharedConfig
	if err := yaml.UnmarshalStrict(raw, &shared); err != nil {
		return SharedConfig{}, fmt.Errorf("cluster configuration %s: %w", path, err)
	}
	if shared.Defaults.ReplicaLagTimeMax == 0 {
		shared.Defaults.ReplicaLagTimeMax = Duration(30 * time.Second)
	}
	if shared.Defaults.MinInSyncReplicas == 0 {
		shared.Defaults.MinInSyncReplicas = 1
	}
	if shared.Defaults.Flush == "" {
		shared.Defaults.Flush = FlushPageCache
	}
	if shared.Defaults.ReplicationFactor == 0 {
		shared.Defaults.ReplicationFactor = 1
	}
	if shared.Defaults.ProducerIDExpiration < 0 || shared.Defaults.ProducerIDExpiration > 0 && time.Duration(shared.Defaults.ProducerIDExpiration) < time.Millisecond {
		return SharedConfig{}, fmt.Errorf("cluster configuration %s: defaults.producerIdExpiration: want 1ms or more", path)
	}
	if shared.Defaults.Partitions == 0 {
		shared.Defaults.Partitions = 1
	}
	return shared, nil
}

// Validate says what is wrong with the configuration and what to do about it; all of it at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.NodeID < 0 {
		bad("--node-id: want an id of 0 or more, have %d", c.NodeID)
	}
	if !c.Voter && !c.Data {
		bad("--roles: want voter, data or voter,data")
	}
	if c.Shared.ClusterID.IsZero() {
		bad("--config: clusterId is missing")
	}
	if c.DirectoryID.IsReserved() {
		bad("--directory-id: %s is reserved; want the uuid that the volume was given", c.DirectoryID)
	}
	if c.RecoveryThreads < 0 {
		bad("--recovery-threads: want 1 or more, have %d", c.RecoveryThreads)
	}
	if c.ScrubInterval < 0 {
		bad("--scrub-interval: want 0 (never) or more, have %s", c.ScrubInterval)
	}
	if c.CleanerIOBytes < 0 {
		bad("--cleaner-io-bytes-per-second: want 0 (no limit) or more, have %d", c.CleanerIOBytes)
	}
	if c.CleanerMapBytes < 0 {
		bad("--cleaner-dedupe-buffer-bytes: want 0 (the default) or more, have %d", c.CleanerMapBytes)
	}
	if c.DataDir == "" {
		bad("--data-dir is missing")
	}
	if f := c.Shared.Defaults.Flush; f != "" && f != FlushPageCache && f != FlushAlways {
		bad("--config: defaults.flush: want %s or %s, have %q", FlushPageCache, FlushAlways, f)
	}
	if err := c.Shared.Snapshots.validate(); err != nil {
		bad("--config: %w", err)
	}
	if len(c.Shared.Voters) == 0 {
		bad("--config: voters is empty; a node finds its quorum through it")
	}
	if c.Voter && !slices.ContainsFunc(c.Shared.Voters, func(v VoterConfig) bool { return v.ID != c.NodeID || !v.Joins }) {
		bad("--config: voters names nobody but this node, which joins; it needs a voter to join")
	}
	seen := map[ident.NodeID]bool{}
	for i, v := range c.Shared.Voters {
		switch {
		case v.ID < 0 || v.Host == "" || v.Port <= 0 || v.Port > 65535:
			bad("--config: voters[%d]: want id, host and a port of 1 to 65535", i)
		case v.DirectoryID.IsReserved():
			bad("--config: voters[%d]: directoryId is missing or reserved", i)
		case seen[v.ID]:
			bad("--config: voters[%d]: id %d is there twice", i, v.ID)
		}
		seen[v.ID] = true
	}
	addresses := []struct{ flag, address string }{
		{"--listener-http", c.HTTPListener},
	}
	if c.Voter {
		addresses = append(addresses, []struct{ flag, address string }{
			{"--listener-controller", c.ControllerListener}, {"--advertised-controller", c.AdvertisedController}}...)
	}
	if c.Data {
		addresses = append(addresses, []struct{ flag, address string }{
			{"--listener-internal", c.InternalListener}, {"--advertised-internal", c.AdvertisedInternal},
			{"--listener-external", c.ExternalListener}, {"--advertised-external", c.AdvertisedExternal}}...)
	}
	for _, a := range addresses {
		if _, _, err := splitAddress(a.address); err != nil {
			bad("%s: %w", a.flag, err)
		}
	}
	return errors.Join(errs...)
}

// splitAddress reads host:port with a numeric port.
func splitAddress(address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: want host:port", address)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: want a port of 0 to 65535", address)
	}
	return host, uint16(number), nil
}
