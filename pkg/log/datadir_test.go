package log

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func TestOffsetCheckpointIsKafkasText(t *testing.T) {
	m := vfs.NewMem()
	got, err := ReadOffsetCheckpoint(m, "/", HighWatermarkCheckpointFile)
	if err != nil || len(got) != 0 {
		t.Fatalf("without a file: %v, %v", got, err)
	}
	want := map[TopicIndex]ident.Offset{{"b.b", 1}: 7, {"a", 10}: 1 << 60, {"a", 2}: 0}
	if err := WriteOffsetCheckpoint(m, "/", HighWatermarkCheckpointFile, want); err != nil {
		t.Fatal(err)
	}
	text, _ := vfs.ReadFile(m, "/"+HighWatermarkCheckpointFile)
	if string(text) != "0\n3\na 2 0\na 10 1152921504606846976\nb.b 1 7\n" {
		t.Fatalf("%q", text)
	}
	if got, err = ReadOffsetCheckpoint(m, "/", HighWatermarkCheckpointFile); err != nil || !cmp.Equal(want, got) {
		t.Fatalf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "0", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "0\n1\na 0 -1\n", "0\n2\na 0 1\na 0 2\n", "0\n-1\n"} {
		if err := vfs.WriteFileAtomic(m, "/f", []byte(bad)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadOffsetCheckpoint(m, "/", "f"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestMetaPropertiesAsKafkaWritesThem(t *testing.T) {
	m := vfs.NewMem()
	if _, err := ReadMetaProperties(m, "/"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a file: %v", err)
	}
	kafka := "#\n#Tue Dec 01 04:00:00 UTC 2026\ncluster.id=4L6g3nShT-eMCtK--X86sw\ndirectory.id=3cHB6qKqQpSjkvZrXqHkqQ\nnode.id=7\nversion=1\n"
	if err := vfs.WriteFileAtomic(m, "/"+MetaPropertiesFile, []byte(kafka)); err != nil {
		t.Fatal(err)
	}
	got, err := ReadMetaProperties(m, "/")
	if err != nil || got.ClusterID != "4L6g3nShT-eMCtK--X86sw" || got.NodeID != 7 || got.DirectoryID.String() != "3cHB6qKqQpSjkvZrXqHkqQ" {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := WriteMetaProperties(m, "/", got); err != nil {
		t.Fatal(err)
	}
	if again, err := ReadMetaProperties(m, "/"); err != nil || again != got {
		t.Fatalf("%+v, %v", again, err)
	}
	for bad, word := range map[string]string{
		"version=0\nnode.id=1\ncluster.id=x\n":                     "version",
		"version=1\nnode.id=one\ncluster.id=x\n":                   "node.id",
		"version=1\nnode.id=1\n":                                   "cluster.id",
		"version=1\nnode.id=1\ncluster.id=x\ndirectory.id=short\n": "directory.id",
		"version\n": "key=value",
	} {
		if _, err := decodeMetaProperties([]byte(bad)); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v, want it to name %s", bad, err, word)
		}
	}
}

func TestCleanShutdownMarkIsTakenOnce(t *testing.T) {
	m := vfs.NewMem()
	if mark, ok, err := TakeCleanShutdown(m, "/"); ok || err != nil || mark.BrokerEpoch != -1 {
		t.Fatalf("without a mark: %+v, %v, %v", mark, ok, err)
	}
	if err := WriteCleanShutdown(m, "/", 42); err != nil {
		t.Fatal(err)
	}
	if text, _ := vfs.ReadFile(m, "/"+CleanShutdownFile); string(text) != `{"version":0,"brokerEpoch":42}` {
		t.Fatalf("%s", text)
	}
	if mark, ok, err := TakeCleanShutdown(m, "/"); !ok || err != nil || mark.BrokerEpoch != 42 {
		t.Fatalf("%+v, %v, %v", mark, ok, err)
	}
	afterCrash := m.CrashClone(nil, 0)
	if _, ok, _ := TakeCleanShutdown(afterCrash, "/"); ok {
		t.Fatal("a crash brought the mark back")
	}
	if err := vfs.WriteFileAtomic(m, "/"+CleanShutdownFile, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if mark, ok, err := TakeCleanShutdown(m, "/"); ok || err != nil || mark.BrokerEpoch != -1 {
		t.Fatalf("half a mark: %+v, %v, %v", mark, ok, err)
	}
}

func TestPartitionMetadataIsKafkasText(t *testing.T) {
	m := vfs.NewMem()
	id, _ := ident.ParseUUID("rbcPQ4CzRTKBF9cSNHHRkw")
	if err := WritePartitionMetadata(m, "/", id); err != nil {
		t.Fatal(err)
	}
	if text, _ := vfs.ReadFile(m, "/"+PartitionMetadataFile); string(text) != "version: 0\ntopic_id: rbcPQ4CzRTKBF9cSNHHRkw" {
		t.Fatalf("%q", text)
	}
	if got, err := ReadPartitionMetadata(m, "/"); err != nil || got != id {
		t.Fatalf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "version: 1\ntopic_id: rbcPQ4CzRTKBF9cSNHHRkw", "version: 0\n", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"} {
		if _, err := decodePartitionMetadata([]byte(bad)); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestDirNamesReadBackAndOthersAreRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topic := rapid.StringMatching(`[a-zA-Z0-9._-]{1,40}`).Draw(t, "topic")
		index := rapid.Int32Min(0).Draw(t, "index")
		gotTopic, gotIndex, err := ParseDirName(DirName(topic, index))
		if err != nil || gotTopic != topic || gotIndex != index {
			t.Fatalf("%s %d, %v", gotTopic, gotIndex, err)
		}
	})
	for _, bad := range []string{"a", "-1", "a-", "a-01", "a-x", "a-0.0123456789abcdef0123456789abcdef-delete", "a-99999999999"} {
		if _, _, err := ParseDirName(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func FuzzSmallFiles(f *testing.F) {
	f.Add([]byte("0\n1\na 0 1\n"))
	f.Add([]byte("0\n2\n0 0\n3 17\n"))
	f.Add([]byte("version=1\nnode.id=1\ncluster.id=x\\=y\n"))
	f.Add([]byte("version: 0\ntopic_id: rbcPQ4CzRTKBF9cSNHHRkw"))
	f.Fuzz(func(t *testing.T, data []byte) {
		offsets := map[TopicIndex]ident.Offset{}
		if decodeOffsetCheckpoint(data, offsets) == nil {
			again := map[TopicIndex]ident.Offset{}
			if err := decodeOffsetCheckpoint(encodeOffsetCheckpoint(offsets), again); err != nil || !cmp.Equal(offsets, again) {
				t.Fatalf("%v, then %v, %v", offsets, again, err)
			}
		}
		if table, err := decodeEpochs(data); err == nil {
			again, err := decodeEpochs(encodeEpochs(table.Entries()))
			if err != nil || !cmp.Equal(table.Entries(), again.Entries()) {
				t.Fatalf("%v, %v", table.Entries(), err)
			}
		}
		_, _, _ = decodeDamage(data)
		_, _ = decodeMetaProperties(data)
		_, _ = decodePartitionMetadata(data)
	})
}

func TestFilesOfALaterVersionAreNotTakenForDamagedOnes(t *testing.T) {
	for version, later := range map[string]bool{"0": false, "1": false, "2": true, "17": true, "": false, "x": false, "-1": false} {
		_, err := decodeMetaProperties([]byte("version=" + version + "\nnode.id=1\ncluster.id=c\n"))
		if errors.Is(err, ErrLaterVersion) != later || (err == nil) != (version == "1") {
			t.Errorf("meta.properties %q: %v", version, err)
		}
	}
	fsys := vfs.NewMem()
	if err := vfs.WriteFile(fsys, "/"+PartitionMetadataFile, []byte("version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"), true); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPartitionMetadata(fsys, "/"); !errors.Is(err, ErrLaterVersion) || errors.Is(err, ErrCorrupt) {
		t.Errorf("partition.metadata of version 1: %v", err)
	}
}

// FuzzCleanShutdown: whatever the mark says, it is gone once it is taken, and a mark that is not Kafka's is none.
func FuzzCleanShutdown(f *testing.F) {
	f.Add([]byte(`{"version":0,"brokerEpoch":7}`))
	f.Add([]byte(`{"version":1,"brokerEpoch":7}`))
	f.Add([]byte(``))
	f.Add([]byte(`{"version":0,"brokerEpoch":1e99}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := vfs.NewMem()
		if err := m.MkdirAll("/data", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(m, "/data/"+CleanShutdownFile, data, true); err != nil {
			t.Fatal(err)
		}
		mark, ok, err := TakeCleanShutdown(m, "/data")
		if err != nil || !ok && mark.BrokerEpoch != -1 || ok && mark.Version != 0 {
			t.Fatalf("%+v, %v, %v", mark, ok, err)
		}
		if _, ok, err := TakeCleanShutdown(m.CrashClone(nil, 0), "/data"); ok || err != nil {
			t.Fatalf("the mark is still there, %v", err)
		}
	})
}
