package topicconfig

import (
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The names of the keys, as in Kafka.
const (
	CleanupPolicy               = "cleanup.policy"
	CompressionType             = "compression.type"
	DeleteRetentionMs           = "delete.retention.ms"
	FlushMessages               = "flush.messages"
	FlushMs                     = "flush.ms"
	IndexIntervalBytes          = "index.interval.bytes"
	MaxCompactionLagMs          = "max.compaction.lag.ms"
	MaxMessageBytes             = "max.message.bytes"
	MessageTimestampAfterMaxMs  = "message.timestamp.after.max.ms"
	MessageTimestampType        = "message.timestamp.type"
	MinCleanableDirtyRatio      = "min.cleanable.dirty.ratio"
	MinCompactionLagMs          = "min.compaction.lag.ms"
	MinInsyncReplicas           = "min.insync.replicas"
	RetentionBytes              = "retention.bytes"
	RetentionMs                 = "retention.ms"
	SegmentBytes                = "segment.bytes"
	SegmentIndexBytes           = "segment.index.bytes"
	SegmentJitterMs             = "segment.jitter.ms"
	SegmentMs                   = "segment.ms"
	UncleanLeaderElectionEnable = "unclean.leader.election.enable"
)

// The values of message.timestamp.type.
const (
	createTime    = "CreateTime"
	logAppendTime = "LogAppendTime"
)

// A Key is one topic config.
type Key struct {
	Name    string
	Type    kmsg.ConfigType
	Default string // Kafka's default, as text
	Synonym string // the broker config that gives the default in Kafka; DescribeConfigs names it
	Doc     string

	min, max int64    // of ConfigTypeInt and ConfigTypeLong, inclusive
	maxRatio float64  // of ConfigTypeDouble, inclusive; the least is 0
	only     []string // of ConfigTypeString and each member of ConfigTypeList: what is accepted
}

// table is sorted by name.
var table = []Key{
	{
		Name: CleanupPolicy, Type: kmsg.ConfigTypeList, Default: "delete", Synonym: "log.cleanup.policy", only: []string{"delete", "compact"},
		Doc: "What becomes of old segments. \"delete\" drops them by retention time or size. \"compact\" keeps the last record of each key, and refuses records without a key; those that a topic has from before it was compacted go. Both may be set.",
	},
	{
		Name: CompressionType, Type: kmsg.ConfigTypeString, Default: "producer", Synonym: "compression.type", only: []string{"producer"},
		Doc: "Batches are kept as the producer compressed them; \"producer\" is the only value.",
	},
	{
		Name: DeleteRetentionMs, Type: kmsg.ConfigTypeLong, Default: "86400000", Synonym: "log.cleaner.delete.retention.ms", min: 0, max: math.MaxInt64,
		Doc: "How long, in milliseconds, compaction keeps a tombstone (a record with a key and no value) after it removed what the tombstone deletes. A reader that takes longer than this from the beginning to the end may miss deletions.",
	},
	{
		Name: FlushMessages, Type: kmsg.ConfigTypeLong, Default: "9223372036854775807", Synonym: "log.flush.interval.messages", min: 1, max: math.MaxInt64,
		Doc: "1: records are acknowledged only when every in-sync replica has flushed them to its disk (flush: Always). More: a flush in the background after so many records, which nobody waits for. The default leaves it to the operating system.",
	},
	{
		Name: FlushMs, Type: kmsg.ConfigTypeLong, Default: "9223372036854775807", Synonym: "log.flush.interval.ms", min: 0, max: math.MaxInt64,
		Doc: "How long, in milliseconds, a record may stay unflushed before a flush in the background, which nobody waits for. The default leaves it to the operating system.",
	},
	{
		Name: IndexIntervalBytes, Type: kmsg.ConfigTypeInt, Default: "4096", Synonym: "log.index.interval.bytes", min: 0, max: math.MaxInt32,
		Doc: "How many bytes of a segment lie between two entries of its indexes. A change counts from the next segment on.",
	},
	{
		// Kafka's default for a topic, and that of the broker config that it comes from, is the largest number.
		Name: MaxCompactionLagMs, Type: kmsg.ConfigTypeLong, Default: "9223372036854775807", Synonym: "log.cleaner.max.compaction.lag.ms", min: 1, max: math.MaxInt64,
		Doc: "How long, in milliseconds, a record of a compacted topic may stay uncompacted, however little there is to be compacted: the segment that is being written is closed for it. The default is no limit.",
	},
	{
		Name: MaxMessageBytes, Type: kmsg.ConfigTypeInt, Default: "1048588", Synonym: "message.max.bytes", min: 0, max: math.MaxInt32,
		Doc: "The size in bytes of the largest record batch that the topic takes.",
	},
	{
		Name: MessageTimestampAfterMaxMs, Type: kmsg.ConfigTypeLong, Default: "3600000", Synonym: "log.message.timestamp.after.max.ms", min: 0, max: math.MaxInt64,
		Doc: "How far, in milliseconds, a record's timestamp may lie ahead of the leader's clock. Where message.timestamp.type is LogAppendTime it does not count.",
	},
	{
		Name: MessageTimestampType, Type: kmsg.ConfigTypeString, Default: createTime, Synonym: "log.message.timestamp.type", only: []string{createTime, logAppendTime},
		Doc: "Whether records keep the timestamp that the producer gave them (\"CreateTime\") or get the leader's when it appends them (\"LogAppendTime\").",
	},
	{
		Name: MinCleanableDirtyRatio, Type: kmsg.ConfigTypeDouble, Default: "0.5", Synonym: "log.cleaner.min.cleanable.ratio", maxRatio: 1,
		Doc: "How much of a compacted topic's log, from 0 to 1, has to be new since the last compaction for the next one to be worth it. Lower takes less room on the disk and more work.",
	},
	{
		Name: MinCompactionLagMs, Type: kmsg.ConfigTypeLong, Default: "0", Synonym: "log.cleaner.min.compaction.lag.ms", min: 0, max: math.MaxInt64,
		Doc: "How long, in milliseconds, every record of a compacted topic stays, also when its key comes again. At most max.compaction.lag.ms.",
	},
	{
		Name: MinInsyncReplicas, Type: kmsg.ConfigTypeInt, Default: "1", Synonym: "min.insync.replicas", min: 1, max: math.MaxInt32,
		Doc: "How many replicas must be in sync for a write with acks=all to be taken. More than there are replicas counts as all of them.",
	},
	{
		Name: RetentionBytes, Type: kmsg.ConfigTypeLong, Default: "-1", Synonym: "log.retention.bytes", min: -1, max: math.MaxInt64,
		Doc: "How large a partition may grow, in bytes, before its oldest segments are dropped; -1 for no limit.",
	},
	{
		Name: RetentionMs, Type: kmsg.ConfigTypeLong, Default: "604800000", Synonym: "log.retention.ms", min: -1, max: math.MaxInt64,
		Doc: "How old, in milliseconds, a segment's newest record may grow before the segment is dropped; -1 for no limit.",
	},
	{
		// KIP-1030 raised the minimum to 1 MiB.
		Name: SegmentBytes, Type: kmsg.ConfigTypeInt, Default: "1073741824", Synonym: "log.segment.bytes", min: 1 << 20, max: math.MaxInt32,
		Doc: "The size in bytes at which a segment is closed and the next one begun. Retention drops whole segments.",
	},
	{
		Name: SegmentIndexBytes, Type: kmsg.ConfigTypeInt, Default: "10485760", Synonym: "log.index.size.max.bytes", min: 4, max: math.MaxInt32,
		Doc: "How large, in bytes, a segment's offset index may grow before the segment is closed and the next one begun.",
	},
	{
		Name: SegmentJitterMs, Type: kmsg.ConfigTypeLong, Default: "0", Synonym: "log.roll.jitter.ms", min: 0, max: math.MaxInt64,
		Doc: "How many milliseconds sooner than segment.ms says a segment may be closed at most; each draws its own, so that not all close at once.",
	},
	{
		Name: SegmentMs, Type: kmsg.ConfigTypeLong, Default: "604800000", Synonym: "log.roll.ms", min: 1, max: math.MaxInt64,
		Doc: "How many milliseconds after a segment's first record a record may be written to it; a later one begins the next segment.",
	},
	{
		Name: UncleanLeaderElectionEnable, Type: kmsg.ConfigTypeBoolean, Default: "false", Synonym: "unclean.leader.election.enable",
		Doc: "Whether a replica that is not in sync may lead when no other can. It loses records that were acknowledged.",
	},
}

// notYet are Kafka's other topic keys, so that refusing one can say that the key is real.
//
// message.timestamp.before.max.ms is among them because it can't be kept exactly: a batch's header has the largest
// timestamp, and that of the first record, but not the smallest, and records are not decoded here.
var notYet = []string{
	"compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
	"file.delete.delay.ms", "follower.replication.throttled.replicas",
	"leader.replication.throttled.replicas", "local.retention.bytes", "local.retention.ms",
	"message.timestamp.before.max.ms",
	"preallocate", "remote.copy.disable", "remote.log.delete.on.disable",
	"remote.storage.enable",
}

// Keys returns the table, sorted by name. The caller must not change it.
func Keys() []Key { return table }

// Lookup returns the key of that name, and false when this engine has none.
func Lookup(name string) (Key, bool) {
	i, ok := slices.BinarySearchFunc(table, name, func(k Key, name string) int { return strings.Compare(k.Name, name) })
	if !ok {
		return Key{}, false
	}
	return table[i], true
}
