package metadata

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// The golden files are a real Apache Kafka's; hack/kafka/make-golden.sh makes them anew.
const golden = "testdata/kafka-4.1"

// goldenNodes are the folders of the nodes, each with a metadata log that goes back to offset 0.
func goldenNodes(t *testing.T) []string {
	t.Helper()
	nodes, err := filepath.Glob(golden + "/*/node*")
	if err != nil || len(nodes) != 3 {
		t.Fatalf("%d golden nodes in %s: %v", len(nodes), golden, err)
	}
	return nodes
}

func goldenFile(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func goldenSnapshots(t *testing.T, node string) (paths []string) {
	t.Helper()
	paths, err := filepath.Glob(node + "/__cluster_metadata-0/*.checkpoint")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no snapshots in %s: %v", node, err)
	}
	slices.Sort(paths)
	return paths
}

func goldenLog(t *testing.T, node string) []byte {
	return goldenFile(t, node+"/__cluster_metadata-0/00000000000000000000.log")
}

func TestKafkasRecordsAreWrittenAgainByteForByte(t *testing.T) {
	seen := map[string]int{}
	for _, node := range goldenNodes(t) {
		files := append(goldenSnapshots(t, node), node+"/bootstrap.checkpoint", node+"/__cluster_metadata-0/00000000000000000000.log")
		for _, path := range files {
			raw := goldenFile(t, path)
			for len(raw) > 0 {
				one, rest, h, err := batch.Next(raw)
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				raw = rest
				checkBatch(t, path, one, h, seen)
			}
		}
	}
	// What the golden files must hold, so that making them anew can't take the ground from under this test.
	for _, want := range []string{"REGISTER_BROKER_RECORD 3", "UNREGISTER_BROKER_RECORD 0", "TOPIC_RECORD 0", "PARTITION_RECORD 2",
		"CONFIG_RECORD 0", "PARTITION_CHANGE_RECORD 2", "REMOVE_TOPIC_RECORD 0", "DELEGATION_TOKEN_RECORD 0", "USER_SCRAM_CREDENTIAL_RECORD 0",
		"FEATURE_LEVEL_RECORD 0", "CLIENT_QUOTA_RECORD 0", "PRODUCER_IDS_RECORD 0", "BROKER_REGISTRATION_CHANGE_RECORD 0", "BROKER_REGISTRATION_CHANGE_RECORD 1",
		"ACCESS_CONTROL_ENTRY_RECORD 0", "REMOVE_ACCESS_CONTROL_ENTRY_RECORD 0", "NO_OP_RECORD 0", "REMOVE_USER_SCRAM_CREDENTIAL_RECORD 0",
		"BEGIN_TRANSACTION_RECORD 0", "END_TRANSACTION_RECORD 0", "REMOVE_DELEGATION_TOKEN_RECORD 0", "REGISTER_CONTROLLER_RECORD 0",
		"CLEAR_ELR_RECORD 0", "control 2", "control 3", "control 4", "control 5", "control 6"} {
		if seen[want] == 0 {
			t.Errorf("no %s in the golden files", want)
		}
	}
	t.Log(seen)
}

func checkBatch(t *testing.T, path string, one []byte, h batch.Header, seen map[string]int) {
	t.Helper()
	decoded, err := ReadBatch(one)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, c := range decoded.Control {
		seen["control "+string(rune('0'+c.Type))]++
	}
	i := 0
	for r, err := range batch.Records(one) {
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if h.IsControl() {
			continue
		}
		if again := Encode(nil, decoded.Records[i]); !bytes.Equal(again, r.Value) {
			t.Errorf("%s, offset %d, %T\ngot  %x\nwant %x", path, r.Offset, decoded.Records[i], again, r.Value)
		}
		name, _ := TypeName(decoded.Records[i].RecordType())
		seen[name+" "+string(rune('0'+decoded.Records[i].RecordVersion()))]++
		// Kafka writes each record in the version that the metadata.version asks for, and so do we.
		version := decoded.Records[i].RecordVersion()
		if Pinned.Stamp(decoded.Records[i]); decoded.Records[i].RecordVersion() != version {
			t.Errorf("%s, offset %d: version %d, we write %d", path, r.Offset, version, decoded.Records[i].RecordVersion())
		}
		i++
	}
	if !h.IsControl() {
		if again := EncodeBatch(h.BaseOffset, h.LeaderEpoch, h.MaxTimestamp, decoded.Records...); !bytes.Equal(again, one) {
			t.Errorf("%s: the batch at offset %d is another when written again\ngot  %x\nwant %x", path, h.BaseOffset, again, one)
		}
	}
}

// replay loads the log from where the loader stands up to the given offset (exclusive), or all of it for -1.
func replay(t *testing.T, l *Loader, log []byte, end ident.Offset) *Image {
	t.Helper()
	for b, err := range ReadBatches(log) {
		if err != nil {
			t.Fatal(err)
		}
		if b.BaseOffset < l.NextOffset() {
			continue
		}
		if end >= 0 && b.BaseOffset >= end {
			break
		}
		if err := l.Load(b); err != nil {
			t.Fatal(err)
		}
	}
	if l.InTransaction() {
		t.Fatal("the log ends in a transaction")
	}
	_, im := l.Publish()
	return im
}

func TestKafkasSnapshotsAndTailsGiveWhatFullReplayGives(t *testing.T) {
	for _, node := range goldenNodes(t) {
		log := goldenLog(t, node)
		full := replay(t, NewLoader(Empty(), -1), log, -1)
		compared := 0
		for _, path := range goldenSnapshots(t, node) {
			id, ok := ParseSnapshotName(filepath.Base(path))
			if !ok {
				t.Fatalf("%s is no snapshot's name", path)
			}
			raw := goldenFile(t, path)
			im, header, err := ReadSnapshot(raw, id)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if header.KRaftVersion != 1 || len(header.Voters.Voters) != 1 || header.Voters.Voters[0].ID != 1 {
				t.Errorf("%s: header %+v", path, header)
			}
			if id == BootstrapID {
				if ours := batchesOf(t, AppendBootstrap(nil, nil, header)); !im.Equal(Empty()) || !cmp.Equal(ours, batchesOf(t, raw)) {
					t.Errorf("%s is another when written again", path)
				}
				continue
			}
			loader := NewLoader(Empty(), -1)
			if replayed := replay(t, loader, log, id.EndOffset); !replayed.Equal(im) {
				t.Errorf("%s: replay of the log up to it gives another image:\n%s", path, difference(replayed, im))
			}
			if loader.Timestamp() != header.LastContainedLogTimestamp {
				t.Errorf("%s: timestamp %d, the log's is %d", path, header.LastContainedLogTimestamp, loader.Timestamp())
			}
			if tail := replay(t, NewLoader(im, -1), log, -1); !tail.Equal(full) {
				t.Errorf("%s and the log after it give another image than the whole log:\n%s", path, difference(tail, full))
			}
			if got, want := countTypes(t, AppendSnapshot(nil, im, header)), countTypes(t, raw); !slices.Equal(got, want) {
				t.Errorf("%s: our snapshot has records %v, Kafka's %v", path, got, want)
			}
			compared++
		}
		if compared == 0 {
			t.Errorf("%s has no snapshot of its log", node)
		}
	}
}

// batchesOf returns all batches of a snapshot without what depends on when they were written.
func batchesOf(t *testing.T, raw []byte) (all []Batch) {
	t.Helper()
	for b, err := range ReadBatches(raw) {
		if err != nil {
			t.Fatal(err)
		}
		b.Timestamp = 0
		all = append(all, b)
	}
	return all
}

// countTypes returns how many records of each type a snapshot has.
func countTypes(t *testing.T, raw []byte) []int {
	t.Helper()
	counts := make([]int, maxType+1)
	for b, err := range ReadBatches(raw) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Records {
			counts[r.RecordType()]++
		}
	}
	return counts
}

// difference lists the records that only one of the images has.
func difference(a, b *Image) string {
	var out strings.Builder
	for _, side := range []struct {
		sign   string
		im, in *Image
	}{{"-", a, b}, {"+", b, a}} {
		all := encodeSeq(side.in.Records())
		for r := range side.im.Records() {
			if raw := Encode(nil, r); !bytes.Contains(all, raw) {
				name, _ := TypeName(r.RecordType())
				out.WriteString(side.sign + " " + name + " " + string(raw) + "\n")
			}
		}
	}
	return out.String()
}

func TestBothNodesHaveTheSameImageOfTheSameLog(t *testing.T) {
	one := goldenLog(t, golden+"/features/node1")
	two := goldenLog(t, golden+"/features/node2")
	if !bytes.HasPrefix(one, two) {
		t.Error("node 2 followed node 1, but its log is no prefix")
	}
	im := replay(t, NewLoader(Empty(), -1), two, -1)
	if offset, _ := im.Position(); !replay(t, NewLoader(Empty(), -1), one, offset+1).Equal(im) {
		t.Error("the images differ")
	}
}
