package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

func TestRegistrationErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(r *kmsg.BrokerRegistrationRequest)
		want *kerr.Error
	}{
		{"fine", func(*kmsg.BrokerRegistrationRequest) {}, nil},
		{"other cluster", func(r *kmsg.BrokerRegistrationRequest) { r.ClusterID = "other" }, kerr.InconsistentClusterID},
		{"negative id", func(r *kmsg.BrokerRegistrationRequest) { r.BrokerID = -1 }, kerr.InvalidRequest},
		{"no incarnation", func(r *kmsg.BrokerRegistrationRequest) { r.IncarnationID = ident.ZeroUUID }, kerr.InvalidRequest},
		{"from ZooKeeper", func(r *kmsg.BrokerRegistrationRequest) { r.IsMigratingZkBroker = true }, kerr.BrokerIDNotRegistered},
		{"no directory", func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs = nil }, kerr.InvalidRegistration},
		{"reserved directory", func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs[0] = ident.UUID{15: 99} }, kerr.InvalidRegistration},
		{"directory twice", func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs = append(r.LogDirs, r.LogDirs[0]) }, kerr.InvalidRegistration},
		{"another broker's directory", func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs[0] = dirOf(1) }, kerr.InvalidRegistration},
		{"no metadata.version", func(r *kmsg.BrokerRegistrationRequest) { r.Features = nil }, kerr.InvalidRegistration},
		{"feature twice", func(r *kmsg.BrokerRegistrationRequest) { r.Features = append(r.Features, r.Features[0]) }, kerr.InvalidRegistration},
		{"too old", func(r *kmsg.BrokerRegistrationRequest) { r.Features[0].MaxSupportedVersion = 26 }, kerr.UnsupportedVersion},
		{"too new", func(r *kmsg.BrokerRegistrationRequest) { r.Features[0].MinSupportedVersion = 28 }, kerr.UnsupportedVersion},
		{"needs a feature that is off", func(r *kmsg.BrokerRegistrationRequest) {
			f := kmsg.NewBrokerRegistrationRequestFeature()
			f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = metadata.FeatureGroup, 1, 1
			r.Features = append(r.Features, f)
		}, kerr.UnsupportedVersion},
		{"large beyond reason", func(r *kmsg.BrokerRegistrationRequest) { r.Listeners[0].Host = string(make([]byte, 20_000)) }, kerr.InvalidRequest},
		{"a string that no record can hold", func(r *kmsg.BrokerRegistrationRequest) { r.Listeners[0].Host = string(make([]byte, 100_000)) }, kerr.InvalidRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, testConfig())
			h.start(1)
			r := registration(2, 1)
			c.edit(r)
			answer := h.register(r)
			if c.want == nil {
				if answer.ErrorCode != 0 || answer.BrokerEpoch != int64(h.next-1) {
					t.Errorf("got %+v, the registration stands at %d", answer, h.next-1)
				}
				b := h.broker(2)
				if !b.Fenced || b.Epoch != answer.BrokerEpoch || len(b.LogDirs) != 1 || len(b.Endpoints) != 1 || len(b.Features) != 1 {
					t.Errorf("registered %+v", b)
				}
				return
			}
			if answer.ErrorCode != c.want.Code || answer.BrokerEpoch != -1 || len(h.log) != 0 {
				t.Errorf("got %s, epoch %d and %d records, want %s", name(answer.ErrorCode), answer.BrokerEpoch, len(h.log), c.want.Message)
			}
		})
	}
}

// KAFKA-19047, KAFKA-19130.
func TestSecondProcessWithALiveIDIsADuplicateUntilTheSessionEnds(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1)
	epoch := h.broker(1).Epoch
	if code := h.register(registration(1, 2)).ErrorCode; code != kerr.DuplicateBrokerRegistration.Code {
		t.Errorf("while the first lives: %s", name(code))
	}
	if b := h.broker(1); b.Epoch != epoch || b.Fenced {
		t.Errorf("the first was touched: %+v", b)
	}
	h.run(2999 * time.Millisecond)
	if code := h.register(registration(1, 2)).ErrorCode; code != kerr.DuplicateBrokerRegistration.Code {
		t.Errorf("just before the session ends: %s", name(code))
	}
	h.run(time.Millisecond)
	if answer := h.register(registration(1, 2)); answer.ErrorCode != 0 || answer.BrokerEpoch <= epoch {
		t.Errorf("when it has ended: %+v", answer)
	}
}

func TestCleanlyStoppedBrokerMayReturnAtOnce(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	if answer := h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantShutdown = true }); !answer.ShouldShutdown {
		t.Fatalf("it leads nothing and may not stop: %+v", answer)
	}
	if answer := h.register(registration(1, 2)); answer.ErrorCode != 0 {
		t.Error(name(answer.ErrorCode))
	}
	if b := h.broker(1); !b.Fenced || b.InControlledShutdown {
		t.Errorf("it begins as %+v", b)
	}
}

// KAFKA-16952.
func TestAmendedRegistrationKeepsEpochAndState(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	h.create("a", []int32{1, 2})
	epoch := h.broker(1).Epoch
	r := registration(1, 1)
	r.Listeners[0].Port = 1234
	if answer := h.register(r); answer.ErrorCode != 0 || answer.BrokerEpoch != epoch {
		t.Errorf("got %+v, want epoch %d", answer, epoch)
	}
	if b := h.broker(1); b.Fenced || b.Endpoints[0].Port != 1234 {
		t.Errorf("got %+v", b)
	}
	h.want("a", 0, "leader 1 le 0 pe 0 isr [1 2]")
	r.LogDirs[0] = ident.UUID{0: 7}
	h.register(r)
	h.want("a", 0, "leader 2 le 1 pe 1 isr [2]") // what it had is not in the new directory
	h.create("b", []int32{1})
	r.LogDirs[0] = dirOf(1)
	h.register(r)
	h.want("b", 0, "leader -1 le 1 pe 1 isr [1]")
	r.LogDirs[0] = ident.UUID{0: 7}
	h.register(r)
	h.want("b", 0, "leader 1 le 2 pe 2 isr [1]") // and is there again when the directory is
	h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantShutdown = true })
	h.register(r)
	if b := h.broker(1); b.Fenced || !b.InControlledShutdown {
		t.Errorf("shutdown is forgotten: %+v", b)
	}
}

func TestNewIncarnationLeavesItsISRsInTheSameDecision(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	h.create("a", []int32{1, 2})
	h.create("b", []int32{1})
	// Its session has ended and no Tick has come yet.
	h.now = h.now.Add(3 * time.Second)
	h.c.Contact(h.now, 2, h.broker(2).Epoch)
	h.c.deadline = h.now // the loop was on time
	answer := h.register(registration(1, 2))
	if got, want := kinds(h.log), "PARTITION_CHANGE PARTITION_CHANGE REGISTER_BROKER"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if answer.BrokerEpoch != int64(h.next-1) {
		t.Errorf("broker epoch %d, the registration stands at %d", answer.BrokerEpoch, h.next-1)
	}
	h.want("a", 0, "leader 2 le 1 pe 1 isr [2]")
	h.want("b", 0, "leader -1 le 1 pe 1 isr [1]")
}

func TestHeartbeatErrors(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1)
	if answer := h.heartbeat(9, nil); answer.ErrorCode != kerr.BrokerIDNotRegistered.Code || !answer.IsFenced {
		t.Errorf("unknown id: %+v", answer)
	}
	if answer := h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.BrokerEpoch++ }); answer.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("other epoch: %+v", answer)
	}
	// A heartbeat of an earlier registration keeps nobody alive.
	h.now = h.now.Add(2900 * time.Millisecond)
	h.c.deadline = h.now
	h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.BrokerEpoch++ })
	h.run(100 * time.Millisecond)
	if !h.broker(1).Fenced {
		t.Error("it is still unfenced")
	}
}

// KAFKA-13959.
func TestBrokerIsUnfencedWhenItHasAppliedItsRegistration(t *testing.T) {
	h := newHarness(t, testConfig())
	epoch := h.register(registration(1, 1)).BrokerEpoch
	h.run(2 * time.Second) // the log has gone on
	behind := h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.CurrentMetadataOffset = epoch - 1 })
	if behind.IsCaughtUp || !behind.IsFenced {
		t.Errorf("behind its registration: %+v", behind)
	}
	unwilling := h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
	if !unwilling.IsCaughtUp || !unwilling.IsFenced || len(h.log) != 0 {
		t.Errorf("it asks to stay fenced: %+v", unwilling)
	}
	there := h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.CurrentMetadataOffset = epoch })
	if !there.IsCaughtUp || there.IsFenced || h.broker(1).Fenced {
		t.Errorf("at its registration: %+v", there)
	}
}

func TestSilentBrokerIsFencedAndItsLeadersMoveInOneDecision(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	h.create("a", []int32{1, 2, 3}, []int32{2, 1, 3}, []int32{3, 2, 1})
	h.create("b", []int32{1})
	h.run(2900*time.Millisecond, 2, 3)
	if h.broker(1).Fenced {
		t.Fatal("fenced too early")
	}
	h.now = h.now.Add(100 * time.Millisecond)
	decisions := h.c.Tick(h.now)
	if len(decisions) != 1 || kinds(decisions[0].Records) != "PARTITION_CHANGE PARTITION_CHANGE PARTITION_CHANGE PARTITION_CHANGE BROKER_REGISTRATION_CHANGE" {
		t.Fatalf("got %+v", decisions)
	}
	if decisions[0].Reason != "broker 1 is fenced: nothing was heard of it for 3s" {
		t.Errorf("reason %q", decisions[0].Reason)
	}
	h.take(decisions[0])
	h.want("a", 0, "leader 2 le 1 pe 1 isr [2 3]")
	h.want("a", 1, "leader 2 le 0 pe 1 isr [2 3]") // who only loses a follower keeps its epoch
	h.want("a", 2, "leader 3 le 0 pe 1 isr [3 2]")
	h.want("b", 0, "leader -1 le 1 pe 1 isr [1]") // the last one stays in the ISR
	if records := h.run(5*time.Second, 2, 3); kinds(records) != "" {
		t.Errorf("a fenced broker is fenced again: %s", kinds(records))
	}
	if answer := h.heartbeat(1, nil); answer.IsFenced {
		t.Errorf("it is back: %+v", answer)
	}
	h.want("b", 0, "leader 1 le 2 pe 2 isr [1]")
	h.want("a", 0, "leader 2 le 1 pe 1 isr [2 3]") // back in the ISR only when its leader says so
}

// KAFKA-13173.
func TestTwoBrokersThatExpireTogetherAreDecidedOneAfterTheOther(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	h.create("a", []int32{1, 2, 3})
	h.run(3*time.Second, 3)
	h.want("a", 0, "leader 3 le 2 pe 2 isr [3]")
	h.run(3 * time.Second)
	h.want("a", 0, "leader -1 le 3 pe 3 isr [3]")
	// Only the last member may lead now.
	h.heartbeat(1, nil)
	h.heartbeat(2, nil)
	h.want("a", 0, "leader -1 le 3 pe 3 isr [3]")
	h.heartbeat(3, nil)
	h.want("a", 0, "leader 3 le 4 pe 4 isr [3]")
}

// KAFKA-15019.
func TestStalledControllerRenewsAllSessionsBeforeItFencesAnybody(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	h.now = h.now.Add(7 * time.Second) // no call, no Tick: this controller did not run
	if records := h.tick(); kinds(records) != "" {
		t.Errorf("fenced after its own stall: %s", kinds(records))
	}
	if records := h.run(2900*time.Millisecond, 2); kinds(records) != "" {
		t.Errorf("the session it gave is shorter: %s", kinds(records))
	}
	h.run(100*time.Millisecond, 2)
	if !h.broker(1).Fenced || h.broker(2).Fenced {
		t.Error("whoever stays silent after the stall is fenced, and nobody else")
	}
}

func TestContactOfAHeartbeatThatStillWaitsCounts(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1)
	h.run(2900 * time.Millisecond)
	h.c.Contact(h.now, 1, h.broker(1).Epoch)
	h.c.Contact(h.now.Add(-time.Second), 1, h.broker(1).Epoch) // an older one takes nothing back
	h.run(2900 * time.Millisecond)
	if h.broker(1).Fenced {
		t.Error("fenced though it was heard of 2.9 s ago")
	}
	h.c.Contact(h.now, 1, h.broker(1).Epoch-1)
	h.run(100 * time.Millisecond)
	if !h.broker(1).Fenced {
		t.Error("a contact of another registration counted")
	}
}

func TestNewLeaderGivesEveryBrokerAFreshSession(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	h.run(2500*time.Millisecond, 2)
	h.c.Resign()
	h.next++ // the new leader's leader change record
	h.lead(2)
	h.run(2900*time.Millisecond, 2)
	if h.broker(1).Fenced {
		t.Error("fenced on the time of the old leader")
	}
	h.run(100*time.Millisecond, 2)
	if !h.broker(1).Fenced || h.broker(2).Fenced {
		t.Error("a broker that died with the old leader must be fenced by the new one")
	}
}

func shutdown(r *kmsg.BrokerHeartbeatRequest) { r.WantShutdown = true }

// KAFKA-14292.
func TestControlledShutdownMovesLeadersAndWaitsUntilAllHaveHeard(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2, 3)
	h.create("a", []int32{1, 2, 3}, []int32{2, 1, 3})
	h.create("b", []int32{1})
	answer := h.heartbeat(1, shutdown)
	if got, want := kinds(h.log), "BROKER_REGISTRATION_CHANGE PARTITION_CHANGE PARTITION_CHANGE PARTITION_CHANGE"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if answer.ShouldShutdown || answer.IsFenced {
		t.Errorf("at once: %+v", answer)
	}
	target := int64(h.next - 1)
	h.want("a", 0, "leader 2 le 1 pe 1 isr [2 3]")
	h.want("a", 1, "leader 2 le 0 pe 1 isr [2 3]")
	h.want("b", 0, "leader -1 le 1 pe 1 isr [1]")
	// Others go on writing; the target stays where it was.
	at := func(id ident.NodeID, offset int64) {
		t.Helper()
		h.heartbeat(id, func(r *kmsg.BrokerHeartbeatRequest) { r.CurrentMetadataOffset = offset })
	}
	h.create("c", []int32{2, 3})
	at(2, target)
	at(3, target-1)
	if answer := h.heartbeat(1, shutdown); answer.ShouldShutdown {
		t.Error("3 has not heard of it")
	}
	h.create("d", []int32{2, 3})
	at(3, target)
	if answer := h.heartbeat(1, shutdown); !answer.ShouldShutdown || !answer.IsFenced {
		t.Errorf("all have heard of it: %+v", answer)
	}
	if got, want := kinds(h.log), "BROKER_REGISTRATION_CHANGE"; got != want || !h.broker(1).Fenced {
		t.Errorf("got %s, want %s", got, want)
	}
	if answer := h.heartbeat(1, shutdown); !answer.ShouldShutdown || len(h.log) != 0 {
		t.Errorf("asked again: %+v, %d records", answer, len(h.log))
	}
}

func TestControlledShutdownGoesOnUnderANewController(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	h.create("a", []int32{1, 2})
	h.heartbeat(1, shutdown)
	h.c.Resign()
	h.next++
	h.lead(2)
	if answer := h.heartbeat(1, shutdown); answer.ShouldShutdown {
		t.Error("the new controller does not know what 2 has applied")
	}
	h.heartbeat(2, nil)
	if answer := h.heartbeat(1, shutdown); !answer.ShouldShutdown {
		t.Errorf("got %+v", answer)
	}
}

func TestWantFenceFencesAndWithShutdownStops(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	h.create("a", []int32{1, 2})
	answer := h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
	if !answer.IsFenced || answer.ShouldShutdown || !h.broker(1).Fenced {
		t.Errorf("got %+v", answer)
	}
	h.want("a", 0, "leader 2 le 1 pe 1 isr [2]")
	answer = h.heartbeat(2, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence, r.WantShutdown = true, true })
	if !answer.IsFenced || !answer.ShouldShutdown {
		t.Errorf("got %+v", answer)
	}
	h.want("a", 0, "leader -1 le 2 pe 2 isr [2]")
}

func TestBrokerThatCameBackWithAnotherDirectoryDoesNotLeadByItsOldMembership(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	id := h.create("a", []int32{1, 2})
	h.create("b", []int32{1})
	h.run(3*time.Second, 2)
	h.want("a", 0, "leader 2 le 1 pe 1 isr [2]")
	h.want("b", 0, "leader -1 le 1 pe 1 isr [1]")
	r := registration(1, 2)
	r.LogDirs[0] = ident.UUID{0: 7}
	h.register(r)
	h.heartbeat(1, nil)
	h.want("b", 0, "leader -1 le 1 pe 1 isr [1]") // its disk is empty
	// Once caught up on the new disk it is as good as any.
	h.alter(h.proposal(2, id, 0, 2, 1))
	h.want("a", 0, "leader 2 le 1 pe 2 isr [2 1]")
	if dir, _ := h.partition("a", 0).Directory(1); dir != r.LogDirs[0] {
		t.Errorf("its replica is in %s", dir)
	}
	h.run(3*time.Second, 1)
	h.want("a", 0, "leader 1 le 2 pe 3 isr [1]")
}

func TestOfflineDirectoryIsLeft(t *testing.T) {
	h := newHarness(t, testConfig())
	r := registration(1, 1)
	second := ident.UUID{0: 9}
	r.LogDirs = append(r.LogDirs, second)
	h.register(r)
	h.heartbeat(1, nil)
	h.start(2)
	id := h.create("a", []int32{1, 2}, []int32{1, 2}) // 1 will say where its replicas are
	for i, dir := range []ident.UUID{dirOf(1), second} {
		change := metadata.NewPartitionChange(2)
		change.TopicID, change.PartitionID, change.Directories = id, int32(i), []ident.UUID{dir, dirOf(2)}
		tx := h.c.begin()
		tx.add(change)
		h.take(tx.commit(nil))
	}
	h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.OfflineLogDirs = [][16]byte{second} })
	h.want("a", 0, "leader 1 le 0 pe 1 isr [1 2]")
	h.want("a", 1, "leader 2 le 1 pe 2 isr [2]")
	if b := h.broker(1); !slices.Equal(b.LogDirs, []ident.UUID{dirOf(1)}) {
		t.Errorf("directories %v", b.LogDirs)
	}
	h.heartbeat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.OfflineLogDirs = [][16]byte{second} })
	if len(h.log) != 0 {
		t.Errorf("said again: %s", kinds(h.log))
	}
}

func TestUnregisteredBrokerLeavesItsISRs(t *testing.T) {
	h := newHarness(t, testConfig())
	h.start(1, 2)
	h.create("a", []int32{1, 2})
	r := kmsg.NewPtrUnregisterBrokerRequest()
	r.BrokerID = 1
	d := h.c.UnregisterBroker(h.now, r)
	if got, want := kinds(h.take(d)), "PARTITION_CHANGE UNREGISTER_BROKER"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	h.want("a", 0, "leader 2 le 1 pe 1 isr [2]")
	again := h.c.UnregisterBroker(h.now, r).Response.(*kmsg.UnregisterBrokerResponse)
	if again.ErrorCode != kerr.BrokerIDNotRegistered.Code || again.ErrorMessage == nil {
		t.Errorf("got %+v", again)
	}
	if answer := h.heartbeat(1, nil); answer.ErrorCode != kerr.BrokerIDNotRegistered.Code {
		t.Errorf("got %+v", answer)
	}
	h.run(10*time.Second, 2) // nothing is left that could expire
}

// KAFKA-14204.
func TestBrokerWithMorePartitionsThanABatchHoldsIsFencedInSteps(t *testing.T) {
	cfg := testConfig()
	cfg.MaxRecords = 40
	h := newHarness(t, cfg)
	h.start(1, 2)
	for _, topic := range []string{"a", "b", "c"} {
		h.create(topic, slices.Repeat([][]int32{{1, 2}}, 30)...)
	}
	h.run(3*time.Second-1, 2)
	h.now++
	decisions := h.c.Tick(h.now)
	if len(decisions) < 3 {
		t.Fatalf("%d decisions", len(decisions))
	}
	for i, d := range decisions {
		if len(d.Records) > cfg.MaxRecords {
			t.Errorf("a decision of %d records", len(d.Records))
		}
		h.take(d)
		if i == 0 && !h.broker(1).Fenced {
			t.Error("it is not fenced first of all")
		}
	}
	for _, topic := range []string{"a", "b", "c"} {
		for i := range int32(30) {
			h.want(topic, i, "leader 2 le 1 pe 1 isr [2]")
		}
	}
	// Shutting down takes several decisions, and so does coming back to lead what nobody else can.
	for n := 0; !h.broker(2).Fenced; n++ {
		if n > 3 {
			t.Fatal("shutdown does not end")
		}
		h.heartbeat(2, shutdown)
		h.tick()
	}
	if n := len(h.c.appended.index.of(ident.NoNode)); n != 90 {
		t.Fatalf("%d partitions without a leader", n)
	}
	h.register(registration(2, 2))
	h.heartbeat(2, nil)
	if n := len(h.c.appended.index.of(ident.NoNode)); n == 0 || h.c.NextDeadline() != h.now {
		t.Errorf("%d partitions without a leader are left, and the next deadline is in %s", n, h.c.NextDeadline().Sub(h.now))
	}
	h.tick()
	if n := len(h.c.appended.index.of(ident.NoNode)); n != 0 {
		t.Errorf("%d partitions without a leader", n)
	}
}

func TestUnregisteringAndRegisteringGoInStepsToo(t *testing.T) {
	cfg := testConfig()
	cfg.MaxRecords = 40
	h := newHarness(t, cfg)
	h.start(1, 2)
	for _, topic := range []string{"a", "b"} {
		h.create(topic, slices.Repeat([][]int32{{1, 2}}, 30)...)
	}
	r := kmsg.NewPtrUnregisterBrokerRequest()
	r.BrokerID = 2
	h.take(h.c.UnregisterBroker(h.now, r))
	if _, ok := h.committed.Broker(2); ok || len(h.c.appended.index.of(2)) == 0 {
		t.Fatal("want 2 unregistered and in some ISRs")
	}
	h.tick()
	h.want("b", 29, "leader 1 le 0 pe 1 isr [1]")
	if left := h.c.appended.index.of(2); len(left) != 0 {
		t.Errorf("2 is still in %d ISRs", len(left))
	}
	h.now = h.now.Add(3 * time.Second)
	h.c.deadline = h.now
	if code := h.register(registration(1, 2)).ErrorCode; name(code) != "REQUEST_TIMED_OUT" {
		t.Error(name(code))
	}
	h.c.Resign() // a new leader finishes what the old one began
	h.next++
	h.lead(2)
	if code := h.register(registration(1, 2)).ErrorCode; code != 0 {
		t.Error(name(code))
	}
	for _, topic := range []string{"a", "b"} {
		for i := range int32(30) {
			h.want(topic, i, "leader -1 le 1 pe 2 isr [1]")
		}
	}
}

// A broker that has lost its page cache must not find itself the leader of a partition, or in its ISR, when it applies
// its registration. Where a batch can't hold all that follows from its return, it is registered after the last of them.
func TestReturnedBrokerIsRegisteredWhenItHasLeftAllISRs(t *testing.T) {
	for _, failover := range []bool{false, true} {
		cfg := testConfig()
		cfg.MaxRecords = 40
		h := newHarness(t, cfg)
		h.start(1, 2)
		topics := []string{"a", "b", "c"}
		for _, topic := range topics {
			h.create(topic, slices.Repeat([][]int32{{1, 2}}, 30)...)
		}
		old := h.broker(1).Epoch
		h.run(3*time.Second-1, 2)
		h.now++
		if code := h.register(registration(1, 2)).ErrorCode; name(code) != "REQUEST_TIMED_OUT" {
			t.Fatalf("got %s", name(code))
		}
		if b := h.broker(1); !b.Fenced || b.Epoch != old || h.c.NextDeadline() != h.now {
			t.Fatalf("after the first batch: %+v, next deadline in %s", b, h.c.NextDeadline().Sub(h.now))
		}
		if failover {
			h.c.Resign()
			h.next++
			if decisions, err := h.c.BecomeLeader(h.now, 2, h.committed, h.next, false); err != nil || len(decisions) != 0 {
				t.Fatal(decisions, err)
			}
			if code := h.register(registration(1, 2)).ErrorCode; name(code) != "REQUEST_TIMED_OUT" {
				t.Fatalf("a new controller: got %s", name(code))
			}
		}
		h.tick()
		if code := h.register(registration(1, 2)).ErrorCode; code != 0 {
			t.Fatalf("when all is settled: %s", name(code))
		}
		for _, topic := range topics {
			for i := range int32(30) {
				h.want(topic, i, "leader 2 le 1 pe 1 isr [2]")
			}
		}
		if answer := h.heartbeat(1, nil); answer.IsFenced {
			t.Fatal("it is not unfenced")
		}
	}
}
