package exec

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// unsynced is the real file system without its syncs, which are most of what making thousands of logs costs.
type unsynced struct{ vfs.FS }

type unsyncedFile struct{ vfs.File }

func (unsynced) SyncDir(string) error { return nil }

func (u unsynced) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (unsyncedFile) Sync() error { return nil }

// idleFollowers opens so many partitions that follow and have some records in sealed segments, and returns what each
// costs in heap bytes and open files.
func idleFollowers(t testing.TB, n int) (heap, files float64) {
	dir := t.TempDir()
	shared := log.NewFiles(10, 1<<20)
	open := func(i int) *Partition {
		p, _, err := OpenPartition(PartitionConfig{
			FS: unsynced{vfs.OS()}, Dir: filepath.Join(dir, fmt.Sprintf("t-%d", i)), Topic: "t", ID: ident.TopicPartition{Index: int32(i)},
			Log:         log.Config{Settings: log.Settings{SegmentBytes: 250}, Files: shared, CleanShutdown: true},
			Replication: replication.Config{Self: 2}, Cluster: anyBroker{}, FlushApart: true, ChoresApart: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	follow := func(p *Partition) {
		var out Output
		p.ApplyMetadata(1, replication.MetadataChanged{
			Leader: 1, LeaderEpoch: 3, PartitionEpoch: 3, Replicas: []ident.NodeID{1, 2}, ISR: []ident.NodeID{1, 2}, MinISR: 1,
		})
		p.Drain(1, &out)
	}
	for i := range n {
		p := open(i)
		for range 3 {
			if _, err := p.Log().AppendAsLeader(records("some value that is not very short").Build(), 3); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(1); err != nil {
			t.Fatal(err)
		}
	}
	heapBefore, filesBefore := heapBytes(), openFiles(t)
	partitions := make([]*Partition, n)
	for i := range partitions {
		partitions[i] = open(i)
		follow(partitions[i])
	}
	if len(partitions[0].Log().Segments()) < 2 || partitions[0].Core().Role() != replication.Follower {
		t.Fatalf("segments %v, role %v", partitions[0].Log().Segments(), partitions[0].Core().Role())
	}
	heap = float64(heapBytes()-heapBefore) / float64(n)
	files = float64(openFiles(t)-filesBefore) / float64(n)
	for _, p := range partitions {
		if err := p.Close(1); err != nil {
			t.Fatal(err)
		}
	}
	return heap, files
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func openFiles(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// The budget of an idle follower: at most 4 KiB of heap and two files. A node has thousands.
func TestAnIdleFollowerCostsLittle(t *testing.T) {
	heap, files := idleFollowers(t, 200)
	t.Logf("%.0f bytes of heap, %.2f files", heap, files)
	if heap > 4096 || files > 2 {
		t.Errorf("%.0f bytes of heap and %.2f files for each; want at most 4096 and 2", heap, files)
	}
}

func BenchmarkIdleFollowers(b *testing.B) {
	for b.Loop() {
		heap, files := idleFollowers(b, 10_000)
		b.ReportMetric(heap, "heap-B/partition")
		b.ReportMetric(files, "files/partition")
	}
}
