package node

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// The leader's latest snapshot is damaged on its disk while it runs. A new node, which needs one, gets one all the same: the
// leader takes another of the state that it has, and the damaged one is gone.
func TestLeaderWhoseSnapshotIsDamagedTakesAnother(t *testing.T) {
	c := emptyCluster(t)
	c.shared.Snapshots = Snapshots{MaxNewBytes: 4000, RetentionBytes: 1}
	c.prepare(1, 2)
	late := c.nodes[1]
	delete(c.nodes, 1)
	c.startAll()
	c.waitReady(0)
	topics := 0
	c.eventually("the leader's log is trimmed", func() error {
		c.createTopic(fmt.Sprint("churn-", topics), 3, 1, nil)
		topics++
		start, err := c.metric(1000, "highwater_metadata_log_start_offset")
		if err == nil && start == 0 {
			err = fmt.Errorf("starts at %v", start)
		}
		return err
	})

	dir := filepath.Join(c.nodes[1000].config.MetadataDir, log.DirName(ident.MetadataTopic, 0))
	snapshots := func() map[string]error { // and what is wrong with them
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]error{}
		for _, e := range entries {
			id, ok := metadata.ParseSnapshotName(e.Name())
			if !ok || id.EndOffset == 0 {
				continue
			}
			raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if os.IsNotExist(err) {
				continue
			}
			if err == nil {
				_, _, err = metadata.ReadSnapshot(raw, id)
			}
			found[e.Name()] = err
		}
		return found
	}
	if names := slices.Sorted(maps.Keys(snapshots())); len(names) == 0 {
		t.Fatal("there is no snapshot to be damaged")
	} else {
		name := names[len(names)-1] // the one that is offered
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Seek(0, 2)
		if err == nil {
			_, err = f.WriteAt([]byte{0xff, 0xff, 0xff}, size/2)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}

	late.config.Shared = c.shared
	c.nodes[1] = late
	c.start(1)
	c.waitReady(1)
	c.wantMetric(1, "highwater_metadata_snapshots_installed_total", 1)
	c.eventually("the leader has whole snapshots alone", func() error {
		found := snapshots()
		if len(found) == 0 {
			return fmt.Errorf("there is none")
		}
		for name, err := range found {
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	// A start on them has everything.
	if err := c.stop(1000); err != nil {
		t.Fatal(err)
	}
	c.start(1000)
	c.waitReady(0, 1)
	c.createTopic("after", 1, 2, nil)
}
