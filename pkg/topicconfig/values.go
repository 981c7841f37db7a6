package topicconfig

import (
	"fmt"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	configTypeBoolean = kmsg.ConfigTypeBoolean
	configTypeInt     = kmsg.ConfigTypeInt
	configTypeLong    = kmsg.ConfigTypeLong
	configTypeDouble  = kmsg.ConfigTypeDouble
	configTypeList    = kmsg.ConfigTypeList
)

// Defaults are what a node's own configuration gives for topics that set nothing: key to value. Nil leaves every
// key at Kafka's default. Every node of a cluster has the same, since the controller goes by them too.
type Defaults map[string]string

// Validate says which of the defaults may not be set, the first by name.
func (d Defaults) Validate() error {
	names := make([]string, 0, len(d))
	for name := range d {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := Validate(name, d[name]); err != nil {
			return err
		}
	}
	return d.ValidateTogether(nil)
}

// Get reads what a topic itself sets for a key; a method value or closure over a metadata image. Nil sets nothing.
type Get func(name string) (value string, ok bool)

// Value returns the key's value for a topic, and where it comes from: the topic, the node's defaults or Kafka's.
func (d Defaults) Value(key Key, topic Get) (string, kmsg.ConfigSource) {
	if topic != nil {
		if v, ok := topic(key.Name); ok {
			return v, kmsg.ConfigSourceDynamicTopicConfig
		}
	}
	if v, ok := d[key.Name]; ok {
		return v, kmsg.ConfigSourceStaticBrokerConfig
	}
	return key.Default, kmsg.ConfigSourceDefaultConfig
}

// Values are a topic's configs as numbers, for the code that acts on them.
type Values struct {
	Compact, Delete       bool // what cleanup.policy holds
	DeleteRetentionMs     int64
	MaxCompactionLagMs    int64 // math.MaxInt64: no limit
	MinCleanableRatio     float64
	MinCompactionLagMs    int64
	FlushMessages         int64 // 1: before each acknowledgement; math.MaxInt64: never
	FlushMs               int64 // math.MaxInt64: never
	IndexIntervalBytes    int32
	LogAppendTime         bool
	MaxMessageBytes       int32
	MinInsyncReplicas     int32 // as set; what counts is no more than the number of replicas
	RetentionBytes        int64 // -1: no limit
	RetentionMs           int64 // -1: no limit
	SegmentBytes          int32
	SegmentIndexBytes     int32
	SegmentJitterMs       int64
	SegmentMs             int64
	TimestampAfterMaxMs   int64
	UncleanLeaderElection bool
}

// Values returns what holds for a topic. A value that Validate refuses can stand in a metadata log that another
// program wrote; it counts as not set, and the error, which names it, is for the caller to report.
func (d Defaults) Values(topic Get) (Values, error) {
	var first error
	text := func(name string) string {
		key, _ := Lookup(name)
		v, source := d.Value(key, topic)
		err := key.check(v)
		if err == nil {
			return v
		}
		if first == nil {
			first = fmt.Errorf("it counts as not set: %w", err)
		}
		if source == kmsg.ConfigSourceDynamicTopicConfig {
			if v, _ = d.Value(key, nil); key.check(v) == nil {
				return v
			}
		}
		return key.Default
	}
	number := func(name string) int64 {
		n, err := parseNumber(text(name))
		if err != nil {
			panic(fmt.Sprintf("topicconfig: %s passed its check and is no number: %v", name, err))
		}
		return n
	}
	small := func(name string) int32 {
		n := number(name)
		if n > math.MaxInt32 {
			panic(fmt.Sprintf("topicconfig: %s passed its check and is %d", name, n))
		}
		return int32(n)
	}
	unclean, _ := parseBool(text(UncleanLeaderElectionEnable))
	ratio, err := parseRatio(text(MinCleanableDirtyRatio))
	if err != nil {
		panic(fmt.Sprintf("topicconfig: %s passed its check and is no number: %v", MinCleanableDirtyRatio, err))
	}
	policy := SplitList(text(CleanupPolicy))
	text(CompressionType)
	return Values{
		Compact:               slices.Contains(policy, "compact"),
		Delete:                slices.Contains(policy, "delete"),
		DeleteRetentionMs:     number(DeleteRetentionMs),
		MaxCompactionLagMs:    number(MaxCompactionLagMs),
		MinCleanableRatio:     ratio,
		MinCompactionLagMs:    number(MinCompactionLagMs),
		FlushMessages:         number(FlushMessages),
		FlushMs:               number(FlushMs),
		LogAppendTime:         text(MessageTimestampType) == logAppendTime,
		TimestampAfterMaxMs:   number(MessageTimestampAfterMaxMs),
		IndexIntervalBytes:    small(IndexIntervalBytes),
		MaxMessageBytes:       small(MaxMessageBytes),
		MinInsyncReplicas:     small(MinInsyncReplicas),
		RetentionBytes:        number(RetentionBytes),
		RetentionMs:           number(RetentionMs),
		SegmentBytes:          small(SegmentBytes),
		SegmentIndexBytes:     small(SegmentIndexBytes),
		SegmentJitterMs:       number(SegmentJitterMs),
		SegmentMs:             number(SegmentMs),
		UncleanLeaderElection: unclean,
	}, first
}
