package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/highwater-io/highwater/internal/scrape"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// metric reads one of a node's metrics, by what it serves.
func (c *testCluster) metric(id ident.NodeID, name string) (float64, error) {
	return scrape.Value(context.Background(), c.nodes[id].config.HTTPListener, name)
}

func (c *testCluster) wantMetric(id ident.NodeID, name string, want float64) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%s of node %d", name, id), func() error {
		got, err := c.metric(id, name)
		if err == nil && got != want {
			err = fmt.Errorf("is %v, want %v", got, want)
		}
		return err
	})
}

// Nodes that were away until everybody's log was trimmed get the state from a snapshot, and go on from there; a start
// needs the latest snapshot and the log behind it.
func TestNodesThatWereAwayInstallASnapshot(t *testing.T) {
	c := emptyCluster(t)
	c.shared.Snapshots = Snapshots{MaxNewBytes: 4000, RetentionBytes: 1}
	c.prepare(3, 2)
	c.startAll()
	c.waitReady(0, 1)
	c.createTopic("before", 1, 2, nil)
	leader := c.quorumLeader(1000)
	away := 1000 + (leader-1000+1)%3
	ends := map[ident.NodeID]float64{}
	for _, id := range []ident.NodeID{away, 1} {
		end, err := c.metric(id, "highwater_metadata_log_end_offset")
		if err != nil {
			t.Fatal(err)
		}
		ends[id] = end
		if err := c.stop(id); err != nil {
			t.Fatalf("node %d stopped with %v", id, err)
		}
	}
	topics := 1
	c.eventually("the leader's log is trimmed beyond those who are away", func() error {
		c.createTopic(fmt.Sprint("churn-", topics), 3, 1, nil)
		topics++
		start, err := c.metric(leader, "highwater_metadata_log_start_offset")
		if err == nil && start <= max(ends[away], ends[1]) {
			err = fmt.Errorf("starts at %v", start)
		}
		return err
	})
	for _, id := range []ident.NodeID{away, 1} {
		c.start(id)
	}
	c.waitReady(away, 1)
	for _, id := range []ident.NodeID{away, 1} {
		c.wantMetric(id, "highwater_metadata_snapshots_installed_total", 1)
		c.wantMetric(id, "highwater_metadata_snapshot_installing", 0)
	}
	sent, err := c.metric(leader, "highwater_metadata_snapshots_sent_total")
	if err != nil || sent < 2 {
		t.Errorf("the leader has sent %v snapshots: %v", sent, err)
	}
	for _, id := range []ident.NodeID{away, 1} {
		received, err := c.metric(id, "highwater_metadata_snapshot_received_bytes_total")
		if err != nil || received < 1000 {
			t.Errorf("node %d has received %v bytes of snapshots: %v", id, received, err)
		}
		if loads, err := c.metric(id, "highwater_metadata_snapshots_loaded_total"); err != nil || loads < 1 {
			t.Errorf("node %d has loaded %v snapshots: %v", id, loads, err)
		}
		if age, err := c.metric(id, "highwater_metadata_snapshot_age_seconds"); err != nil || age <= 0 || age > 300 {
			t.Errorf("the snapshot of node %d is %v s old: %v", id, age, err)
		}
		if margin, err := c.metric(leader, fmt.Sprintf(`highwater_quorum_replica_log_start_distance{node="%d"}`, id)); err != nil || margin < 0 {
			t.Errorf("node %d is %v from the log's start: %v", id, margin, err)
		}
	}
	installs := map[ident.NodeID]ident.UUID{}
	for _, id := range []ident.NodeID{away, 1} {
		installs[id] = c.installTold(id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(30*time.Second))
	defer cancel()
	for range 2 {
		found, err := kadm.NewClient(c.client()).ListTopics(ctx)
		if err != nil || len(found) != topics {
			t.Fatalf("%d topics, want %d; %v", len(found), topics, err)
		}
		// All of them again, from their own disks: the state is the same.
		c.stopAll()
		for id := range c.nodes {
			c.start(id)
		}
		c.waitReady(1000, 1001, 1002, 0, 1)
		for id := range c.nodes {
			c.wantMetric(id, "highwater_metadata_snapshots_installed_total", 0)
		}
		// What nobody has acknowledged is told again, as what it was.
		for id, install := range installs {
			if again := c.installTold(id); again != install {
				t.Fatalf("node %d tells of install %s after a restart, it was %s", id, again, install)
			}
		}
	}
	page := c.facts(away)
	resp, err := http.Post(fmt.Sprintf("http://%s/facts/acknowledged?incarnation=%s&upto=%d", c.nodes[away].config.HTTPListener,
		page.Incarnation, page.Facts[len(page.Facts)-1].Seq), "", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatal(resp.Status)
	}
	if err := c.stop(away); err != nil {
		t.Fatal(err)
	}
	c.start(away)
	c.waitReady(away)
	for _, f := range c.facts(away).Facts {
		if !f.Install.IsZero() {
			t.Fatalf("told again although it was acknowledged: %+v", f)
		}
	}
}

// facts reads what a node has to tell.
func (c *testCluster) facts(id ident.NodeID) nodefact.Page {
	c.t.Helper()
	resp, err := http.Get("http://" + c.nodes[id].config.HTTPListener + "/facts")
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var page nodefact.Page
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		c.t.Fatal(err)
	}
	return page
}

// installTold waits until a node tells of exactly one install, whole, and that it follows the metadata again.
func (c *testCluster) installTold(id ident.NodeID) ident.UUID {
	c.t.Helper()
	var install ident.UUID
	c.eventually(fmt.Sprintf("node %d tells of its install", id), func() error {
		count := map[string]int{}
		for _, f := range c.facts(id).Facts {
			count[f.Kind]++
			if f.Kind == nodefact.SnapshotInstallStarted {
				install = f.Install
			}
			if f.Kind == nodefact.SnapshotInstalled && (f.Install != install || f.Bytes == 0 || f.SnapshotID == "") {
				return fmt.Errorf("%+v after the start of %s", f, install)
			}
		}
		if count[nodefact.SnapshotInstallStarted] != 1 || count[nodefact.SnapshotInstalled] != 1 || count[nodefact.MetadataCurrent] != 1 {
			return fmt.Errorf("told %v", count)
		}
		return nil
	})
	return install
}

// KAFKA-17751, KAFKA-19605: an idle quorum's loops turn some tens of times a second, in each role, however long it
// stands. What passes is counted by the NoOps that the controller appends, one each half second.
func TestLoopsOfAnIdleQuorumTurnSeldom(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitReady(1000, 1001, 1002, 0)
	loops := []string{"timer", "flush", "publisher", "controller"}
	count := func(id ident.NodeID) (turns, committed float64) {
		t.Helper()
		for _, loop := range loops {
			n, err := c.metric(id, fmt.Sprintf("highwater_metadata_loop_turns_total{loop=%q}", loop))
			if err != nil {
				t.Fatal(err)
			}
			turns += n
		}
		committed, err := c.metric(id, "highwater_metadata_high_watermark")
		if err != nil {
			t.Fatal(err)
		}
		return turns, committed
	}
	const noOps = 6
	type reading struct{ turns, committed float64 }
	before := map[ident.NodeID]reading{}
	for id := range c.nodes {
		turns, committed := count(id)
		before[id] = reading{turns, committed}
	}
	for id := range c.nodes {
		var turns, committed float64
		c.eventually("the idle quorum goes on", func() error {
			turns, committed = count(id)
			if committed < before[id].committed+noOps {
				return fmt.Errorf("high watermark %v after %v", committed, before[id].committed)
			}
			return nil
		})
		each := (turns - before[id].turns) / (committed - before[id].committed)
		if t.Logf("node %d: %.0f turns for each half second", id, each); each > 150 || each < 1 {
			t.Errorf("node %d: its loops turn %.0f times for each half second", id, each)
		}
	}
}
