package controller

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

func TestFirstLeaderOfAnEmptyLogWritesTheBootstrapRecordsInATransaction(t *testing.T) {
	c, err := New(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := c.BecomeLeader(5, 1, metadata.Empty(), 1, false)
	if err != nil || len(decisions) != 1 {
		t.Fatalf("got %v, %v", decisions, err)
	}
	d := decisions[0]
	if got, want := kinds(d.Records), "BEGIN_TRANSACTION FEATURE_LEVEL END_TRANSACTION"; got != want || d.Offset != 1 || d.CommitOffset != 4 {
		t.Errorf("got %s at %d, to be committed to %d", got, d.Offset, d.CommitOffset)
	}
	if level := d.Image.Feature(metadata.FeatureMetadataVersion); level != 27 {
		t.Errorf("metadata.version is %d", level)
	}
	again, err := c.BecomeLeader(6, 2, d.Image, 5, false)
	if err != nil || len(again) != 0 {
		t.Errorf("a later leader writes %v, %v", again, err)
	}
}

func TestNewLeaderAbortsTheTransactionThatTheOldOneLeftOpen(t *testing.T) {
	h := newHarness(t, testConfig())
	decisions, err := h.c.BecomeLeader(h.now, 2, h.committed, 50, true)
	if err != nil || len(decisions) != 1 || kinds(decisions[0].Records) != "ABORT_TRANSACTION" {
		t.Errorf("got %v, %v", decisions, err)
	}
	c, _ := New(testConfig())
	decisions, err = c.BecomeLeader(h.now, 2, metadata.Empty(), 3, true)
	if err != nil || len(decisions) != 1 || kinds(decisions[0].Records) != "ABORT_TRANSACTION BEGIN_TRANSACTION FEATURE_LEVEL END_TRANSACTION" {
		t.Errorf("of an empty log: %v, %v", decisions, err)
	}
}

func TestLogsThatThisBuildCannotLeadAreRefused(t *testing.T) {
	for want, records := range map[string][]metadata.Record{
		"below 17": {&metadata.FeatureLevelRecord{Name: metadata.FeatureMetadataVersion, FeatureLevel: 16}},
		"eligible.leader.replicas.version is 1": {
			&metadata.FeatureLevelRecord{Name: metadata.FeatureMetadataVersion, FeatureLevel: 27},
			&metadata.FeatureLevelRecord{Name: metadata.FeatureELR, FeatureLevel: 1},
		},
	} {
		delta := metadata.NewDelta(metadata.Empty())
		for _, r := range records {
			if err := delta.Replay(r); err != nil {
				t.Fatal(err)
			}
		}
		c, _ := New(testConfig())
		if _, err := c.BecomeLeader(1, 1, delta.Image(3, 1), 4, false); err == nil || !strings.Contains(err.Error(), want) || c.Active() {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	for want, edit := range map[string]func(*Config){
		"Random is required": func(c *Config) { c.Random = nil },
		"SessionTimeout":     func(c *Config) { c.SessionTimeout = 100 * time.Millisecond },
		"MaxIdleInterval":    func(c *Config) { c.MaxIdleInterval = -1 },
		"at least 1":         func(c *Config) { c.DefaultReplicationFactor = -1 },
		"MaxRecords":         func(c *Config) { c.MaxRecords = 3 },
		"MaxBytes":           func(c *Config) { c.MaxBytes = 3 },
		"retention.ms":       func(c *Config) { c.TopicDefaults = map[string]string{"retention.ms": "long"} },
	} {
		cfg := testConfig()
		edit(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	c, err := New(testConfig())
	if err != nil || c.Config().SessionTimeout != 3*time.Second || c.Config().MaxRecords != 10_000 {
		t.Errorf("defaults: %+v, %v", c.Config(), err)
	}
}

// requests is one of every kind that the controller decides.
func requests() []kmsg.Request {
	topics := createRequest(automatic("a", 1, 1))
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "a", Count: 2}}
	drop := kmsg.NewPtrDeleteTopicsRequest()
	drop.Version = 6
	drop.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: kmsg.StringPtr("a")}}
	configs := kmsg.NewPtrIncrementalAlterConfigsRequest()
	configs.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "a"}}
	return []kmsg.Request{
		topics, grow, drop, configs, registration(1, 1), kmsg.NewPtrBrokerHeartbeatRequest(), kmsg.NewPtrAlterPartitionRequest(),
		kmsg.NewPtrAllocateProducerIDsRequest(), kmsg.NewPtrElectLeadersRequest(), kmsg.NewPtrUnregisterBrokerRequest(),
		kmsg.NewPtrAlterPartitionAssignmentsRequest(), kmsg.NewPtrListPartitionReassignmentsRequest(),
	}
}

func TestInactiveControllerAnswersNotControllerToEverything(t *testing.T) {
	c, err := New(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for _, r := range requests() {
			d, ok := c.Handle(1, r)
			if !ok || len(d.Records) > 0 || d.CommitOffset != 0 {
				t.Fatalf("%T: %+v, %v", r, d, ok)
			}
			var code int16
			switch a := d.Response.(type) {
			case *kmsg.CreateTopicsResponse:
				code = a.Topics[0].ErrorCode
			case *kmsg.CreatePartitionsResponse:
				code = a.Topics[0].ErrorCode
			case *kmsg.DeleteTopicsResponse:
				code = a.Topics[0].ErrorCode
			case *kmsg.IncrementalAlterConfigsResponse:
				code = a.Resources[0].ErrorCode
			case *kmsg.BrokerRegistrationResponse:
				code = a.ErrorCode
			case *kmsg.BrokerHeartbeatResponse:
				code = a.ErrorCode
			case *kmsg.AlterPartitionResponse:
				code = a.ErrorCode
			case *kmsg.AllocateProducerIDsResponse:
				code = a.ErrorCode
			case *kmsg.ElectLeadersResponse:
				code = a.ErrorCode
			case *kmsg.UnregisterBrokerResponse:
				code = a.ErrorCode
			case *kmsg.AlterPartitionAssignmentsResponse:
				code = a.ErrorCode
			case *kmsg.ListPartitionReassignmentsResponse:
				code = a.ErrorCode
			}
			if code != kerr.NotController.Code {
				t.Errorf("%T is answered %s", r, name(code))
			}
		}
		if c.NextDeadline() != ident.Never || c.Tick(1<<60) != nil {
			t.Error("an inactive controller waits for something")
		}
	}
	check()
	if _, err := c.BecomeLeader(1, 1, metadata.Empty(), 1, false); err != nil {
		t.Fatal(err)
	}
	c.Resign()
	check()
	if _, ok := c.Handle(1, kmsg.NewPtrFetchRequest()); ok {
		t.Error("a Fetch is none of the controller's requests")
	}
}

func TestIdleLogGetsANoOpEveryHalfSecond(t *testing.T) {
	h := newHarness(t, testConfig())
	begin := h.next
	for range 10 {
		at := h.c.NextDeadline()
		if got := at.Sub(h.now); got <= 0 || got > 500*time.Millisecond {
			t.Fatalf("the next deadline is in %s", got)
		}
		h.now = at
		if records := h.tick(); len(records) != 1 || records[0].RecordType() != metadata.TypeNoOp {
			t.Fatalf("got %v", records)
		}
	}
	if h.next != begin+10 {
		t.Errorf("%d records", h.next-begin)
	}
	// Other records put it off.
	h.now = h.now.Add(400 * time.Millisecond)
	h.start(1)
	h.now = h.now.Add(400 * time.Millisecond)
	if records := h.tick(); len(records) != 0 {
		t.Errorf("a NoOp 400 ms after other records: %v", records)
	}
}

func TestRequestsInFlightAreDecidedOnEachOthersRecords(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	// None of these is committed before the next is decided.
	first := h.c.CreateTopics(h.now, createRequest(manual("a", []int32{1, 2, 3})))
	second := h.c.CreateTopics(h.now, createRequest(manual("a", []int32{1, 2, 3})))
	if code := second.Response.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != kerr.TopicAlreadyExists.Code || len(second.Records) != 0 {
		t.Errorf("the second creation is answered %s with %d records", name(code), len(second.Records))
	}
	if second.CommitOffset != first.CommitOffset || first.CommitOffset != first.Offset+ident.Offset(len(first.Records)) {
		t.Errorf("the refusal rests on records up to %d and may be sent at %d", first.CommitOffset, second.CommitOffset)
	}
	h.take(first)
	id := first.Response.(*kmsg.CreateTopicsResponse).Topics[0].TopicID
	a := h.c.AlterPartition(h.now, h.proposal(1, id, 0, 1, 2))
	b := h.c.AlterPartition(h.now, h.proposal(1, id, 0, 1, 3))
	if code := alterCode(a); code != 0 {
		t.Errorf("the first proposal: %s", name(code))
	}
	if code := alterCode(b); code != kerr.InvalidUpdateVersion.Code || len(b.Records) != 0 {
		t.Errorf("both proposals of one partition epoch pass: %s", name(code))
	}
}

func TestLosingAppendsForgetsThem(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	h.create("kept", []int32{1, 2, 3})
	kept := h.c.CreateTopics(h.now, createRequest(manual("appended", []int32{1})))
	h.c.CreateTopics(h.now, createRequest(manual("lost", []int32{1})))
	h.c.BrokerRegistration(h.now, registration(4, 1))
	// The log took the first, then a control record, and not what was decided meanwhile.
	h.c.LoseAppends(kept.Image, kept.CommitOffset+1)
	again := h.c.CreateTopics(h.now, createRequest(manual("lost", []int32{1})))
	if code := again.Response.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 || again.Offset != kept.CommitOffset+1 {
		t.Errorf("decided again: %s at %d", name(code), again.Offset)
	}
	if _, ok := again.Image.Topic("appended"); !ok {
		t.Error("what the log holds was forgotten")
	}
	if _, ok := again.Image.Broker(4); ok {
		t.Error("a lost registration is still there")
	}
	h.c.Resign()
	if _, err := h.c.BecomeLeader(h.now, 2, h.committed, h.next, false); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.c.appended.image.Topic("appended"); ok {
		t.Error("what was not committed outlived the leadership")
	}
}

func TestDecisionsAreDeterministic(t *testing.T) {
	run := func() string {
		cfg := testConfig()
		cfg.Random = rand.NewPCG(7, 8)
		h := newHarness(t, cfg)
		h.start(1, 2, 3, 4, 5)
		var all []byte
		add := func(records []metadata.Record) {
			for _, r := range records {
				all = metadata.Encode(all, r)
			}
		}
		add(h.take(h.c.CreateTopics(h.now, createRequest(automatic("a", 20, 3, "retention.ms", "5", "retention.bytes", "7"), automatic("b", 3, 2)))))
		add(h.run(5*time.Second, 3, 5))
		add(h.run(5*time.Second, 1, 2, 3))
		return string(all)
	}
	if first, second := run(), run(); first != second {
		t.Error("the same requests gave other records")
	}
}
