//go:build kafkadecode

package kafkadecode

import (
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/vfs"
)

var voters = batch.Voters{Voters: []batch.Voter{
	{ID: 1000, DirectoryID: ident.UUID{1, 2, 3}, MaxKRaftVersion: 1, Endpoints: []batch.VoterEndpoint{{Name: "CONTROLLER", Host: "v-0.nodes", Port: 9093}}},
	{ID: 1001, DirectoryID: ident.UUID{4, 5, 6}, MaxKRaftVersion: 1, Endpoints: []batch.VoterEndpoint{{Name: "CONTROLLER", Host: "v-1.nodes", Port: 65535}}},
}}

// compare checks that Kafka saw the very records that were written, at their offsets.
func compare(t *testing.T, seen []dumped, first int64, want []metadata.Record) {
	t.Helper()
	i := 0
	for _, d := range seen {
		if d.control != "" {
			continue
		}
		if i == len(want) {
			t.Fatalf("Kafka sees more records than the %d that were written: %s", len(want), d.raw)
		}
		r := want[i]
		name, _ := metadata.TypeName(r.RecordType())
		size := len(metadata.Encode(nil, r))
		if d.offset != first+int64(i) || d.kind != name || d.version != r.RecordVersion() || d.valueSize != size {
			t.Fatalf("record %d: we wrote %s version %d of %d bytes at offset %d, Kafka sees %s", i, name, r.RecordVersion(), size, first+int64(i), d.raw)
		}
		if err := same(reflect.ValueOf(r).Elem(), d.data); err != nil {
			t.Errorf("record %d, %s version %d: %v\nours  %+v\nKafka %s", i, name, r.RecordVersion(), err, r, d.raw)
		}
		i++
	}
	if i != len(want) {
		t.Fatalf("Kafka sees %d records of %d", i, len(want))
	}
}

func TestKafkaReadsEveryRecordOfOurMetadataLog(t *testing.T) {
	records := allRecords(rand.New(rand.NewSource(1)), 12)
	dir := filepath.Join(t.TempDir(), "__cluster_metadata-0")
	l, _, err := log.Open(vfs.OS(), dir, log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	// Kafka 4.1 writes version 0 of the leader change under kraft.version 1 too, and can't read version 1.
	control := batch.NewBuilder(0, 3, 1700000000000).
		AppendControl(batch.LeaderChangeType, batch.LeaderChange{LeaderID: 1000, Voters: []batch.VoterKey{{ID: 1000}, {ID: 1001}}, Granting: []batch.VoterKey{{ID: 1000}}}.Encode()).
		AppendControl(batch.KRaftVersionType, batch.KRaftVersion{KRaftVersion: 1}.Encode()).
		AppendControl(batch.VotersType, voters.Encode()).Build()
	if _, err := l.AppendAsLeader(control, 3); err != nil {
		t.Fatal(err)
	}
	for left := records; len(left) > 0; {
		n := min(7, len(left))
		if _, err := l.AppendAsLeader(metadata.EncodeBatch(0, 3, 1700000000001, left[:n]...), 3); err != nil {
			t.Fatal(err)
		}
		left = left[n:]
	}
	if _, err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mustDecode(t, filepath.Dir(dir))
	seen := dumpMetadata(t, filepath.Join(dir, "00000000000000000000.log"))
	compare(t, seen, 3, records)
	if len(seen) < 3 || seen[0].control != "LeaderChange" || seen[1].control != "KRaftVersion" || seen[2].control != "KRaftVoters" {
		t.Fatalf("control records: %+v", seen[:3])
	}
	if v := seen[2].data["voters"].([]any)[1].(map[string]any); v["voterDirectoryId"] != (ident.UUID{4, 5, 6}).String() {
		t.Errorf("voters: %s", seen[2].raw)
	}
}

// goldenImage is the image of a real Kafka's metadata log that has everything.
func goldenImage(t *testing.T) (*metadata.Image, int64) {
	t.Helper()
	raw, err := os.ReadFile(golden + "/features/node1/__cluster_metadata-0/00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	l := metadata.NewLoader(metadata.Empty(), -1)
	for b, err := range metadata.ReadBatches(raw) {
		if err == nil {
			err = l.Load(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, im := l.Publish()
	return im, l.Timestamp()
}

func TestKafkaReadsOurSnapshot(t *testing.T) {
	im, timestamp := goldenImage(t)
	dir := filepath.Join(t.TempDir(), "__cluster_metadata-0")
	path := filepath.Join(dir, im.SnapshotID().FileName())
	write(t, path, metadata.AppendSnapshot(nil, im, metadata.SnapshotHeader{LastContainedLogTimestamp: timestamp, KRaftVersion: 1, Voters: &voters}))
	boot := filepath.Join(dir, metadata.BootstrapID.FileName())
	write(t, boot, metadata.AppendBootstrap(nil, nil, metadata.SnapshotHeader{LastContainedLogTimestamp: timestamp, KRaftVersion: 1, Voters: &voters}))
	mustDecode(t, dir)

	var want []metadata.Record
	for r := range im.Records() {
		want = append(want, r)
	}
	seen := dumpMetadata(t, path)
	compare(t, seen, 3, want)
	controls := func(seen []dumped) (all []string) {
		for _, d := range seen {
			if d.control != "" {
				all = append(all, d.control)
			}
		}
		return all
	}
	expected := []string{"SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"}
	if got := controls(seen); !reflect.DeepEqual(got, expected) {
		t.Errorf("snapshot: %v", got)
	}
	if got := controls(dumpMetadata(t, boot)); !reflect.DeepEqual(got, expected) {
		t.Errorf("0-0 snapshot: %v", got)
	}
}

func TestKafkaReadsOurSegmentsAndIndexes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "orders-0")
	l, _, err := log.Open(vfs.OS(), dir, log.Config{Settings: log.Settings{SegmentBytes: 20000, IndexIntervalBytes: 500}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		b := batch.NewBuilder(0, 0, 1700000000000+int64(i)*10).Producer(int64(i%3), 0, int32(i/3*4))
		for range 4 {
			b.Append([]byte("key"), []byte(strings.Repeat("value ", i%20)))
		}
		if _, err := l.AppendAsLeader(b.Build(), ident.Epoch(i/100)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if segments, _ := filepath.Glob(dir + "/*.log"); len(segments) < 3 {
		t.Fatalf("%d segments", len(segments))
	}
	mustDecode(t, dir)
}

func TestTheJudgeIsNotBlind(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		raw        []byte
	}{
		{"unknown record type", "skipping", batch.NewBuilder(0, 1, 1).Append(nil, []byte{1, 29, 0, 0}).Build()},
		{"record cut short", "skipping", batch.NewBuilder(0, 1, 1).Append(nil, []byte{1, 2, 0, 9}).Build()},
		{"flipped bit", "isvalid: false", flip(metadata.EncodeBatch(0, 1, 1, &metadata.NoOpRecord{}))},
		{"half a batch", "invalid bytes", metadata.EncodeBatch(0, 1, 1, &metadata.NoOpRecord{})[:66]},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "__cluster_metadata-0", "00000000000000000000.log"), tc.raw)
		if status, out := decode(t, dir); status != 1 || !strings.Contains(out, tc.want) {
			t.Errorf("%s: status %d, want 1 and %q:\n%s", tc.name, status, tc.want, out)
		}
	}
	if status, out := decode(t, t.TempDir()); status != 1 {
		t.Errorf("nothing to read: status %d:\n%s", status, out)
	}
}

func flip(raw []byte) []byte {
	raw[len(raw)-1] ^= 1
	return raw
}
