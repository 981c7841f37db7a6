package topicconfig

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTableIsSortedWholeAndItsDefaultsAreValid(t *testing.T) {
	if !slices.IsSortedFunc(table, func(a, b Key) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("Lookup needs the table in the order of the names")
	}
	for _, k := range table {
		if err := Validate(k.Name, k.Default); err != nil {
			t.Errorf("the default: %v", err)
		}
		if k.Doc == "" || k.Synonym == "" {
			t.Errorf("%s lacks documentation or a synonym", k.Name)
		}
		if slices.Contains(notYet, k.Name) {
			t.Errorf("%s is both supported and not", k.Name)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{MinInsyncReplicas, "2", ""},
		{MinInsyncReplicas, " 2 ", ""},
		{MinInsyncReplicas, "0", "must be at least 1"},
		{MinInsyncReplicas, "2147483648", "must be at most 2147483647"},
		{MinInsyncReplicas, "two", "not a whole number"},
		{MinInsyncReplicas, "", "not a whole number"},
		{RetentionMs, "-1", ""},
		{RetentionMs, "-2", "must be at least -1"},
		{RetentionMs, "9223372036854775808", "not a whole number"},
		{RetentionBytes, "9223372036854775807", ""},
		{FlushMessages, "1", ""},
		{FlushMessages, "0", "must be at least 1"},
		{FlushMs, "0", ""},
		{FlushMs, "-1", "must be at least 0"},
		{SegmentBytes, "1048576", ""},
		{SegmentBytes, "1048575", "must be at least 1048576"},
		{SegmentMs, "1", ""},
		{SegmentMs, "0", "must be at least 1"},
		{SegmentJitterMs, "-1", "must be at least 0"},
		{SegmentIndexBytes, "4", ""},
		{SegmentIndexBytes, "3", "must be at least 4"},
		{IndexIntervalBytes, "0", ""},
		{IndexIntervalBytes, "-1", "must be at least 0"},
		{MaxMessageBytes, "0", ""},
		{MinInsyncReplicas, "0", "must be at least 1"},
		{UncleanLeaderElectionEnable, "TRUE", ""},
		{UncleanLeaderElectionEnable, "yes", "expected true or false"},
		{CleanupPolicy, "delete", ""},
		{CleanupPolicy, "compact", ""},
		{CleanupPolicy, "compact, delete", ""},
		{CleanupPolicy, "delete,compress", "must be one or more of: delete, compact"},
		{CleanupPolicy, "delete,delete", "twice"},
		{CleanupPolicy, "", "must be one or more of: delete, compact"},
		{DeleteRetentionMs, "0", ""},
		{DeleteRetentionMs, "-1", "must be at least 0"},
		{MinCleanableDirtyRatio, "0.75", ""},
		{MinCleanableDirtyRatio, "1", ""},
		{MinCleanableDirtyRatio, "0", ""},
		{MinCleanableDirtyRatio, "1.01", "must be between 0 and 1"},
		{MinCleanableDirtyRatio, "-0.1", "must be between 0 and 1"},
		{MinCleanableDirtyRatio, "NaN", "must be between 0 and 1"},
		{MinCleanableDirtyRatio, "half", "not a number"},
		{MinCompactionLagMs, "-1", "must be at least 0"},
		{MaxCompactionLagMs, "0", "must be at least 1"},
		{CompressionType, "gzip", "must be one of: producer"},
		{MessageTimestampType, "LogAppendTime", ""},
		{MessageTimestampType, "logappendtime", "must be one of: CreateTime, LogAppendTime"},
		{MessageTimestampAfterMaxMs, "-1", "must be at least 0"},
		{"message.timestamp.before.max.ms", "1000", "not supported here"},
		{"remote.storage.enable", "true", "not supported here"},
		{"retention.milliseconds", "1", "unknown topic config name"},
		{"", "", "unknown topic config name"},
	} {
		err := Validate(c.name, c.value)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s=%q: %v", c.name, c.value, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s=%q: got %v, want an error with %q", c.name, c.value, err, c.want)
		}
	}
}

func TestConfigsAreCheckedTogether(t *testing.T) {
	node := Defaults{MaxCompactionLagMs: "100"}
	for value, want := range map[string]string{"100": "", "101": "min.compaction.lag.ms (101) is above max.compaction.lag.ms (100)"} {
		err := node.ValidateTogether(func(name string) (string, bool) { return value, name == MinCompactionLagMs })
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v", value, err)
		}
	}
	if err := (Defaults{MaxCompactionLagMs: "100", MinCompactionLagMs: "101"}).Validate(); err == nil {
		t.Error("defaults that do not fit each other were taken")
	}
}

func TestRefusingALongValueDoesNotRepeatItWhole(t *testing.T) {
	if err := Validate(RetentionMs, strings.Repeat("9", 1<<20)); err == nil || len(err.Error()) > 300 {
		t.Errorf("got %d bytes of error", len(err.Error()))
	}
}

func TestValuesPreferTheTopicThenTheNodeThenKafka(t *testing.T) {
	node := Defaults{MinInsyncReplicas: "2", RetentionMs: "1000"}
	topic := map[string]string{RetentionMs: "-1", UncleanLeaderElectionEnable: "true"}
	got, err := node.Values(func(name string) (string, bool) { v, ok := topic[name]; return v, ok })
	want := Values{
		Delete: true, DeleteRetentionMs: 86_400_000, MaxCompactionLagMs: math.MaxInt64, MinCleanableRatio: 0.5,
		FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64,
		IndexIntervalBytes: 4096, MaxMessageBytes: 1048588, MinInsyncReplicas: 2,
		RetentionBytes: -1, RetentionMs: -1, SegmentBytes: 1 << 30, SegmentIndexBytes: 10 << 20, SegmentMs: 604800000, UncleanLeaderElection: true, TimestampAfterMaxMs: 3_600_000,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestAValueThatAnotherProgramWroteWronglyCountsAsNotSet(t *testing.T) {
	node := Defaults{MinInsyncReplicas: "2"}
	got, err := node.Values(func(name string) (string, bool) { return "compact", true })
	if err == nil {
		t.Error("nothing was reported")
	}
	if got.MinInsyncReplicas != 2 || got.RetentionMs != 604800000 || got.UncleanLeaderElection {
		t.Errorf("got %+v", got)
	}
}

func TestDefaultsAreCheckedAsTopicConfigsAre(t *testing.T) {
	if err := (Defaults{MinInsyncReplicas: "0"}).Validate(); err == nil || !strings.Contains(err.Error(), MinInsyncReplicas) {
		t.Errorf("got %v", err)
	}
	if err := (Defaults{MinInsyncReplicas: "3", RetentionMs: "5"}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestDescribeNamesSourceAndSynonyms(t *testing.T) {
	node := Defaults{MinInsyncReplicas: "2"}
	topic := func(name string) (string, bool) { return "3", name == MinInsyncReplicas }
	all := node.Describe(topic, nil, false, false)
	if len(all) != len(table) || all[0].ConfigSynonyms != nil || all[0].Documentation != nil {
		t.Fatalf("got %d configs, first %+v", len(all), all[0])
	}
	some := node.Describe(topic, []string{MinInsyncReplicas, "no.such.key"}, true, true)
	if len(some) != 1 {
		t.Fatalf("got %d configs", len(some))
	}
	c := some[0]
	if *c.Value != "3" || c.Source != kmsg.ConfigSourceDynamicTopicConfig || c.IsDefault || c.Documentation == nil || c.ConfigType != kmsg.ConfigTypeInt {
		t.Errorf("got %+v", c)
	}
	var got []string
	for _, s := range c.ConfigSynonyms {
		got = append(got, s.Name+"="+*s.Value+" "+s.Source.String())
	}
	want := []string{"min.insync.replicas=3 DYNAMIC_TOPIC_CONFIG", "min.insync.replicas=2 STATIC_BROKER_CONFIG", "min.insync.replicas=1 DEFAULT_CONFIG"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCreatedAnswersEveryKey(t *testing.T) {
	got := Defaults(nil).Created(nil)
	if len(got) != len(table) || got[0].Name != CleanupPolicy || *got[0].Value != "delete" || got[0].Source != int8(kmsg.ConfigSourceDefaultConfig) {
		t.Errorf("got %+v", got)
	}
}
