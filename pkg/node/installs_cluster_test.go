package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// A node in the middle of an install, however long it takes, is alive, so that nobody kills it, and not ready: a data
// node is fenced, leads nothing and is in no ISR, and a voter counts for nothing that needs one that has caught up. When
// it is through, it serves by itself.
func TestInstallingNodeIsAliveAndNotReadyUntilItIsThrough(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.waitReady(1000, 1001, 1002, 0, 1)
	c.createTopic("orders", 1, 2, map[string]*string{})
	ctx, cancel := context.WithTimeout(t.Context(), testscale.Duration(60*time.Second))
	defer cancel()
	fenced := func(id ident.NodeID) error {
		brokers, err := kadm.NewClient(c.client()).ListBrokers(ctx)
		if err != nil {
			return err
		}
		for _, b := range brokers {
			if b.NodeID == int32(id) {
				return fmt.Errorf("clients are sent to node %d", id)
			}
		}
		return nil
	}
	for _, id := range []ident.NodeID{1, 1001} {
		if err := c.stop(id); err != nil {
			t.Fatal(err)
		}
		// It was killed with this install under way, and what was committed then is far off.
		metadata := c.nodes[id].config.MetadataDir
		records, err := readInstallRecords(vfs.OS(), metadata)
		if err != nil {
			t.Fatal(err)
		}
		far := ident.Offset(1 << 40)
		install := testUUID(8, id)
		if err := records.begin(installRecord{ID: install, Snapshot: snapshotName{EndOffset: 5, Epoch: 1}, Target: far, StartedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
		c.start(id)
		c.eventually("it has had time to be unfenced, and tells of its install", func() error {
			if code, body := c.probe(id, "/livez"); code == 0 {
				return errors.New(body) // it does not listen yet
			} else if code != http.StatusOK {
				t.Fatalf("/livez: %d %s", code, body)
			}
			if code, body := c.probe(id, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "snapshot of the metadata is being installed") {
				return fmt.Errorf("/readyz: %d %s", code, body)
			}
			for _, f := range c.facts(id).Facts {
				if f.Kind == nodefact.SnapshotInstallStarted && f.Install == install {
					return nil
				}
			}
			return errors.New("not told yet")
		})
		if id == 1 {
			// It follows, registers, heartbeats, and stays fenced; what it leaves is led by the other.
			c.eventually("it is registered and applies metadata", func() error {
				mine, err := c.metric(id, "highwater_metadata_high_watermark")
				if err != nil {
					return err
				}
				theirs, err := c.metric(0, "highwater_metadata_high_watermark")
				if err == nil && mine+5 < theirs {
					err = fmt.Errorf("has %v of %v", mine, theirs)
				}
				return err
			})
			c.createTopic("meanwhile", 1, 1, nil)
			if err := fenced(id); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.stop(id); err != nil {
			t.Fatal(err)
		}
		if records, err = readInstallRecords(vfs.OS(), metadata); err != nil {
			t.Fatal(err)
		}
		// The same, but what was committed then is near: the quorum writes twice a second.
		end, err := c.metric(0, "highwater_metadata_high_watermark")
		if err != nil {
			t.Fatal(err)
		}
		records.all[0].Target = 0
		if err := records.offered(records.all[0].Snapshot, ident.Offset(end)+4); err != nil {
			t.Fatal(err)
		}
		c.start(id)
		c.waitReady(id)
		c.eventually("its end is told", func() error {
			for _, f := range c.facts(id).Facts {
				if f.Kind == nodefact.SnapshotInstalled && f.Install == install {
					return nil
				}
			}
			return errors.New("not told yet")
		})
	}
	c.eventually("the data node is back in the ISR", func() error {
		p, err := c.partition("orders")
		if err == nil && len(p.ISR) != 2 {
			err = fmt.Errorf("ISR is %v", p.ISR)
		}
		return err
	})
}
