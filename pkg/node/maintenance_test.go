package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// Segments roll by time, are sealed and unlinked beside those who write, and closed until somebody reads them.
func TestSegmentsAreSealedUnlinkedAndClosedInTheBackground(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.waitReady(1000, 0)
	hour := "3600000"
	c.createTopic("t", 1, 1, map[string]*string{"segment.ms": &hour})
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(60*time.Second))
	defer cancel()
	client := c.client()
	const records = 30
	begin := time.Now().Add(-2 * records * time.Hour)
	for i := range records { // each belongs into a segment of its own
		r := &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "record-%d", i), Timestamp: begin.Add(time.Duration(i) * 61 * time.Minute)}
		if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(c.nodes[0].config.DataDir, "t-0")
	files := func(suffix string) (n int) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), suffix) {
				n++
			}
		}
		return n
	}
	c.eventually("the sealed segments have their index files", func() error {
		if segments, indexes := files(".log"), files(".timeindex"); segments != records || indexes != records-1 {
			return fmt.Errorf("%d segments, %d indexes", segments, indexes)
		}
		return nil
	})
	c.consume("t", records)

	deleted, err := kadm.NewClient(client).DeleteRecords(ctx, kadm.Offsets{"t": {0: kadm.Offset{Topic: "t", At: 20}}})
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.eventually("the dropped segments are unlinked", func() error {
		if logs, waiting := files(".log"), files(".deleted"); logs != records-20 || waiting != 0 {
			return fmt.Errorf("%d segments, %d files to be unlinked", logs, waiting)
		}
		return nil
	})
	if n, err := c.metric(0, "highwater_log_chores_total"); err != nil || n < 1 {
		t.Errorf("chores run: %v, %v", n, err)
	}
	c.wantMetric(0, "highwater_log_chore_failures_total", 0)
	if n, err := c.metric(0, "highwater_log_open_segment_files"); err != nil || n < 1 || n > records {
		t.Errorf("open segment files: %v, %v", n, err)
	}
}

func TestReplicaQueueDoesOneReplicaAfterAnotherByAFewWorkers(t *testing.T) {
	const replicas, workers = 50, 3
	var mu sync.Mutex
	done, now, most := map[*replica]int{}, 0, 0
	release := make(chan struct{})
	q := newReplicaQueue(workers, func(r *replica) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		<-release
		mu.Lock()
		now--
		done[r]++
		mu.Unlock()
	})
	for range replicas {
		r := &replica{}
		for range 3 { // asking again before it has begun changes nothing
			q.want(r)
		}
	}
	close(release)
	for finished := false; !finished; {
		q.mu.Lock()
		finished = q.workers == 0
		q.mu.Unlock()
	}
	q.stop()
	q.want(&replica{})
	if len(done) != replicas || most > workers {
		t.Fatalf("%d replicas done, %d at once", len(done), most)
	}
	for _, times := range done {
		if times > 2 { // one that had begun may have asked once more
			t.Errorf("done %d times", times)
		}
	}
}

// Too many open files are no failure of the disk: what can be closed is closed, and a roll goes on.
func TestRunningOutOfOpenFilesDoesNotTakeTheDirectoryOffline(t *testing.T) {
	refused := 0
	dir := newLogDir(vfs.Inject(vfs.NewMem(), func(op, path string) error {
		if op == vfs.OpCreate && strings.HasSuffix(path, "00000000000000000003.log") && refused == 0 {
			refused++
			return syscall.EMFILE
		}
		return nil
	}), "/data", 0)
	l, _, err := log.Open(dir, "/data/t-0", log.Config{})
	for o := 0; o < 4 && err == nil; o++ {
		if err = l.Roll(); err == nil {
			_, err = l.AppendAsLeader(batch.NewBuilder(0, 0, 1).Append(nil, []byte("x")).Build(), 1)
		}
		if err == nil {
			_, err = l.Flush()
		}
	}
	if err != nil || refused != 1 || dir.offline() != nil {
		t.Fatalf("refused %d times, %v; offline: %v", refused, err, dir.offline())
	}
}
