package metadata

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

func TestSnapshotAndTailGiveWhatFullReplayGives(t *testing.T) {
	voters := &batch.Voters{Voters: []batch.Voter{{ID: 1, DirectoryID: ident.UUID{1}, MaxKRaftVersion: 1,
		Endpoints: []batch.VoterEndpoint{{Name: "CONTROLLER", Host: "h", Port: 9093}}}}}
	rapid.Check(t, func(t *rapid.T) {
		records, images := drawLog(t, rapid.IntRange(1, 60).Draw(t, "records"))
		full := images[len(images)-1]
		at := rapid.IntRange(0, len(records)-1).Draw(t, "snapshot at")
		header := SnapshotHeader{LastContainedLogTimestamp: 17, KRaftVersion: 1, Voters: voters}
		raw := AppendSnapshot(nil, images[at], header)
		im, gotHeader, err := ReadSnapshot(raw, images[at].SnapshotID())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(header, gotHeader); d != "" {
			t.Fatal(d)
		}
		if !im.Equal(images[at]) {
			t.Fatalf("the image read from the snapshot is another")
		}
		if !bytes.Equal(raw, AppendSnapshot(nil, im, gotHeader)) {
			t.Fatal("the snapshot of the image that was read is another")
		}
		d := NewDelta(im)
		for i := at + 1; i < len(records); i++ {
			if err := d.Replay(records[i]); err != nil {
				t.Fatal(err)
			}
		}
		if offset, epoch := full.Position(); !d.Image(offset, epoch).Equal(full) {
			t.Fatal("snapshot and tail give another image than full replay")
		}
	})
}

func TestImagesNeverChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		im, saved := Empty(), [][]byte{}
		images := []*Image{}
		for i := range rapid.IntRange(1, 40).Draw(t, "records") {
			d := NewDelta(im)
			if err := d.Replay(drawFitting(t, im)); err != nil {
				t.Fatal(err)
			}
			im = d.Image(ident.Offset(i), 1)
			images, saved = append(images, im), append(saved, encodeSeq(im.Records()))
		}
		for i, im := range images {
			if !bytes.Equal(saved[i], encodeSeq(im.Records())) {
				t.Fatalf("image %d of %d is not what it was", i, len(images))
			}
		}
	})
}

func TestChangeSetsNameExactlyWhatDiffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records, images := drawLog(t, rapid.IntRange(2, 60).Draw(t, "records"))
		from := rapid.IntRange(0, len(records)-2).Draw(t, "from")
		d := NewDelta(images[from])
		for _, r := range records[from+1:] {
			if err := d.Replay(r); err != nil {
				t.Fatal(err)
			}
		}
		before, after := images[from], images[len(images)-1]
		deleted := d.DeletedTopics()
		for old := range before.Topics() {
			_, there := after.TopicByID(old.ID)
			listed := slices.ContainsFunc(deleted, func(t *Topic) bool { return t == old })
			if listed == there && !slices.Contains(d.ChangedTopics(), old.ID) {
				t.Fatalf("topic %s: still there %v, listed as deleted %v", old.Name, there, listed)
			}
		}
		changed := d.ChangedPartitions()
		for topic := range after.Topics() {
			for index, p := range topic.Partitions() {
				id := ident.TopicPartition{Topic: topic.ID, Index: index}
				if old, _ := before.Partition(id); old != p != slices.Contains(changed, id) {
					t.Fatalf("partition %s: is another: %v, listed: %v", id, old != p, slices.Contains(changed, id))
				}
			}
		}
		for _, id := range changed {
			if _, ok := after.Partition(id); !ok || !slices.Contains(d.ChangedTopics(), id.Topic) {
				t.Fatalf("changed partition %s: there %v", id, ok)
			}
		}
		for id := ident.NodeID(0); id < 6; id++ {
			old, _ := before.Broker(id)
			now, _ := after.Broker(id)
			if old != now && !slices.Contains(d.ChangedBrokers(), id) {
				t.Fatalf("broker %d changed but is not listed", id)
			}
		}
		for resource, config := range after.Configs() {
			same := cmp.Equal(slices.Collect(keysOf(config)), slices.Collect(keysOf(before.Config(resource.Type, resource.Name))))
			if !same && !slices.Contains(d.ChangedConfigs(), resource) {
				t.Fatalf("config of %v changed but is not listed", resource)
			}
		}
	})
}

func TestCompareFindsWhatADeltaOfTheRecordsFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records, images := drawLog(t, rapid.IntRange(2, 60).Draw(t, "records"))
		from := rapid.IntRange(0, len(records)-2).Draw(t, "from")
		before, after := images[from], images[len(images)-1]
		// A copy that shares nothing, as after a snapshot.
		copied, _, err := ReadSnapshot(AppendSnapshot(nil, after, SnapshotHeader{}), after.SnapshotID())
		if err != nil {
			t.Fatal(err)
		}
		d := Compare(before, copied)
		if offset, epoch := after.Position(); !d.Image(offset, epoch).Equal(after) || d.Base() != before {
			t.Fatal("the delta does not lead from base to next")
		}
		if d.Changed() == before.SameState(after) {
			t.Fatalf("changed: %v", d.Changed())
		}
		full := NewDelta(before)
		for _, r := range records[from+1:] {
			if err := full.Replay(r); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := d.DeletedTopics(), full.DeletedTopics(); !slices.Equal(got, want) {
			// A topic that was deleted and made again with the same id is none that is gone.
			for _, topic := range want {
				if _, again := after.TopicByID(topic.ID); !again && !slices.Contains(got, topic) {
					t.Fatalf("deleted %v, want %v", got, want)
				}
			}
		}
		// Every partition raises its epoch with each change, so what was replayed differs and the other way round,
		// but for a topic id that came back.
		for _, id := range d.ChangedPartitions() {
			if !slices.Contains(full.ChangedPartitions(), id) {
				t.Fatalf("partition %s did not change", id)
			}
		}
		for _, id := range full.ChangedPartitions() {
			now, _ := after.Partition(id)
			if old, ok := before.Partition(id); (!ok || !cmp.Equal(old, now)) && !slices.Contains(d.ChangedPartitions(), id) {
				t.Fatalf("partition %s changed", id)
			}
		}
		for _, id := range d.ChangedBrokers() {
			if !slices.Contains(full.ChangedBrokers(), id) {
				t.Fatalf("broker %d did not change", id)
			}
		}
		for _, id := range full.ChangedBrokers() {
			old, _ := before.Broker(id)
			now, _ := after.Broker(id)
			if !cmp.Equal(old, now) && !slices.Contains(d.ChangedBrokers(), id) {
				t.Fatalf("broker %d changed", id)
			}
		}
		for _, c := range d.ChangedConfigs() {
			if !slices.Contains(full.ChangedConfigs(), c) {
				t.Fatalf("config %v did not change", c)
			}
		}
	})
}

func keysOf(c Config) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k, v := range c.All() {
			if !yield(k + "=" + v) {
				return
			}
		}
	}
}

func partitionOf(t *testing.T, records ...Record) *Partition {
	t.Helper()
	d := NewDelta(Empty())
	for _, r := range records {
		if err := d.Replay(r); err != nil {
			t.Fatal(err)
		}
	}
	p, ok := d.Image(1, 1).Partition(ident.TopicPartition{Topic: ident.UUID{1}})
	if !ok {
		t.Fatal("the partition is not there")
	}
	return p
}

func TestPartitionChangeArithmetic(t *testing.T) {
	dir := func(b byte) ident.UUID { return ident.UUID{9, b} }
	base := []Record{&TopicRecord{Name: "t", TopicID: ident.UUID{1}},
		&PartitionRecord{Version: 1, TopicID: ident.UUID{1}, Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1, 2}, Leader: 1,
			LeaderEpoch: 10, PartitionEpoch: 20, Directories: []ident.UUID{dir(1), dir(2)}}}
	before := Partition{Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1, 2}, Leader: 1, LeaderEpoch: 10, PartitionEpoch: 20,
		Directories: []ident.UUID{dir(1), dir(2)}}
	for _, tc := range []struct {
		name   string
		change func(*PartitionChangeRecord)
		want   func(*Partition)
	}{
		{"nothing named", func(*PartitionChangeRecord) {}, func(p *Partition) { p.PartitionEpoch = 21 }},
		{"ISR shrinks: the leader epoch stays", func(r *PartitionChangeRecord) { r.ISR = []ident.NodeID{1} },
			func(p *Partition) { p.PartitionEpoch, p.ISR = 21, []ident.NodeID{1} }},
		{"leader set to the same", func(r *PartitionChangeRecord) { r.Leader = 1 },
			func(p *Partition) { p.PartitionEpoch, p.LeaderEpoch = 21, 11 }},
		{"no leader", func(r *PartitionChangeRecord) { r.Leader = ident.NoNode },
			func(p *Partition) { p.PartitionEpoch, p.LeaderEpoch, p.Leader = 21, 11, ident.NoNode }},
		{"lists emptied", func(r *PartitionChangeRecord) { r.ISR = []ident.NodeID{} },
			func(p *Partition) { p.PartitionEpoch, p.ISR = 21, nil }},
		{"replicas change, directories go along", func(r *PartitionChangeRecord) { r.Replicas = []ident.NodeID{2, 3} },
			func(p *Partition) {
				p.PartitionEpoch, p.Replicas = 21, []ident.NodeID{2, 3}
				p.Directories = []ident.UUID{dir(2), ident.UnassignedDirectory}
			}},
		{"directories named", func(r *PartitionChangeRecord) { r.Directories = []ident.UUID{dir(7), dir(8)} },
			func(p *Partition) { p.PartitionEpoch, p.Directories = 21, []ident.UUID{dir(7), dir(8)} }},
		{"recovering", func(r *PartitionChangeRecord) { r.LeaderRecoveryState = Recovering },
			func(p *Partition) { p.PartitionEpoch, p.RecoveryState = 21, Recovering }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := NewPartitionChange(2)
			r.TopicID = ident.UUID{1}
			tc.change(r)
			want := before
			tc.want(&want)
			if d := cmp.Diff(&want, partitionOf(t, append(slices.Clone(base), r)...)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestClearELRChangesOnlyPartitionsThatHaveSome(t *testing.T) {
	id := ident.UUID{1}
	d := NewDelta(Empty())
	for _, r := range []Record{&TopicRecord{Name: "t", TopicID: id},
		&PartitionRecord{Version: 2, TopicID: id, PartitionID: 0, LastKnownELR: []ident.NodeID{1}},
		&PartitionRecord{Version: 2, TopicID: id, PartitionID: 1}, &ClearELRRecord{}} {
		if err := d.Replay(r); err != nil {
			t.Fatal(err)
		}
	}
	topic, _ := d.Image(3, 1).Topic("t")
	if p, _ := topic.Partition(0); p.PartitionEpoch != 1 || p.LastKnownELR != nil {
		t.Errorf("partition 0: %+v", p)
	}
	if p, _ := topic.Partition(1); p.PartitionEpoch != 0 {
		t.Errorf("partition 1: %+v", p)
	}
}

func TestRemoveTopicTakesPartitionsAndConfigsAlong(t *testing.T) {
	id, value := ident.UUID{1}, "1"
	d := NewDelta(Empty())
	for _, r := range []Record{&TopicRecord{Name: "t", TopicID: id}, &PartitionRecord{TopicID: id},
		&ConfigRecord{ResourceType: ResourceTopic, ResourceName: "t", Name: "a", Value: &value},
		&ConfigRecord{ResourceType: ResourceBroker, ResourceName: "t", Name: "a", Value: &value},
		&RemoveTopicRecord{TopicID: id}} {
		if err := d.Replay(r); err != nil {
			t.Fatal(err)
		}
	}
	im := d.Image(4, 1)
	if _, ok := im.Topic("t"); ok || im.NumTopics() != 0 {
		t.Error("the topic is still there")
	}
	if im.Config(ResourceTopic, "t").Len() != 0 || im.Config(ResourceBroker, "t").Len() != 1 {
		t.Error("wrong configs were removed")
	}
	if len(d.ChangedPartitions())+len(d.ChangedTopics())+len(d.DeletedTopics()) != 0 {
		t.Error("a topic that came and went within the delta has left a trace")
	}
}

func TestRecordsThatDoNotFitAreRefusedAndChangeNothing(t *testing.T) {
	id := ident.UUID{1}
	d := NewDelta(Empty())
	for _, r := range []Record{&TopicRecord{Name: "t", TopicID: id}, &PartitionRecord{TopicID: id, Replicas: []ident.NodeID{1}},
		&RegisterBrokerRecord{BrokerID: 1, BrokerEpoch: 5}} {
		if err := d.Replay(r); err != nil {
			t.Fatal(err)
		}
	}
	before := d.Image(2, 1)
	unknownTopic := NewPartitionChange(0)
	unknownPartition := NewPartitionChange(0)
	unknownPartition.TopicID, unknownPartition.PartitionID = id, 1
	badState := NewPartitionChange(0)
	badState.TopicID, badState.LeaderRecoveryState = id, 7
	badDirectories := NewPartitionChange(1)
	badDirectories.TopicID, badDirectories.Directories = id, make([]ident.UUID, 2)
	for _, r := range []Record{
		&TopicRecord{Name: "t", TopicID: ident.UUID{2}}, &TopicRecord{Name: "u", TopicID: id},
		&PartitionRecord{TopicID: ident.UUID{2}}, &PartitionRecord{TopicID: id, PartitionID: -1}, &PartitionRecord{TopicID: id, LeaderRecoveryState: 3},
		&PartitionRecord{TopicID: id, Replicas: []ident.NodeID{1}, Directories: make([]ident.UUID, 2)},
		unknownTopic, unknownPartition, badState, badDirectories,
		&RemoveTopicRecord{TopicID: ident.UUID{2}}, &ClearELRRecord{TopicName: "u"},
		&FenceBrokerRecord{ID: 2}, &UnfenceBrokerRecord{ID: 1, Epoch: 4}, &BrokerRegistrationChangeRecord{BrokerID: 1, BrokerEpoch: 5, Fenced: 2},
		&BrokerRegistrationChangeRecord{BrokerID: 1, BrokerEpoch: 5, InControlledShutdown: -1},
		&RemoveAccessControlEntryRecord{}, &FeatureLevelRecord{Name: FeatureMetadataVersion, FeatureLevel: 28},
		&FeatureLevelRecord{Name: FeatureMetadataVersion}, &BeginTransactionRecord{}, &EndTransactionRecord{}, &AbortTransactionRecord{},
	} {
		if err := d.Replay(r); !errors.Is(err, ErrReplay) {
			t.Errorf("%T %+v: %v", r, r, err)
		}
	}
	if !d.Image(2, 1).Equal(before) {
		t.Error("a refused record has changed the delta")
	}
}

func TestSnapshotsOfOldLevelsAreWrittenInOldVersions(t *testing.T) {
	d := NewDelta(Empty())
	for _, r := range []Record{&FeatureLevelRecord{Name: FeatureMetadataVersion, FeatureLevel: 9},
		&RegisterBrokerRecord{Version: 2, BrokerID: 1, Fenced: true}, &TopicRecord{Name: "t", TopicID: ident.UUID{1}},
		&PartitionRecord{TopicID: ident.UUID{1}, Replicas: []ident.NodeID{1}, ISR: []ident.NodeID{1}, Leader: 1}} {
		if err := d.Replay(r); err != nil {
			t.Fatal(err)
		}
	}
	im := d.Image(3, 1)
	versions := map[int16]int16{}
	for r := range im.Records() {
		versions[r.RecordType()] = r.RecordVersion()
	}
	if want := map[int16]int16{TypeFeatureLevel: 0, TypeRegisterBroker: 2, TypeTopic: 0, TypePartition: 0}; !cmp.Equal(want, versions) {
		t.Errorf("versions %v, want %v", versions, want)
	}
	again, _, err := ReadSnapshot(AppendSnapshot(nil, im, SnapshotHeader{}), im.SnapshotID())
	if err != nil || !again.Equal(im) {
		t.Errorf("read again: %v", err)
	}
}
