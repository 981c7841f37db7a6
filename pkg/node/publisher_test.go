package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// soleVoter is a node that is the only voter, opened over a disk, of which nothing runs: the test takes each step.
type soleVoter struct {
	*Node
	t *testing.T
}

func newSoleVoter(t *testing.T, fsys vfs.FS) *soleVoter {
	t.Helper()
	cfg := Config{
		NodeID: 1000, Voter: true, MetadataDir: "meta", DirectoryID: testUUID(9, 1000), AdvertisedController: "here:9093", Timing: DefaultTiming(),
		Shared: SharedConfig{
			ClusterID: testUUID(7, 1), Defaults: Defaults{MinInSyncReplicas: 1, ReplicationFactor: 1, Partitions: 1},
			Voters: []VoterConfig{{ID: 1000, DirectoryID: testUUID(9, 1000), Host: "here", Port: 9093}},
		},
	}
	voters, err := configuredVoters(cfg.Shared.Voters)
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.FormatQuorum(fsys, filepath.Join("meta", log.DirName(ident.MetadataTopic, 0)), voters, 0); err != nil {
		t.Fatal(err)
	}
	n, err := newNode(cfg, slog.New(slog.DiscardHandler), fsys, &probeBackoff{})
	if err == nil {
		err = n.open()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &soleVoter{n, t}
}

func (v *soleVoter) flush() { v.quorum.do(v.quorum.exec.Flush) }

// propose appends a batch and has it committed.
func (v *soleVoter) propose(raw []byte) {
	v.t.Helper()
	q := v.quorum
	if err := q.propose(q.exec.Core().Epoch(), q.exec.EndOffset(), raw); err != nil {
		v.t.Fatal(err)
	}
	v.flush()
}

func (v *soleVoter) publish() {
	v.t.Helper()
	if err := v.publisher.publish(); err != nil {
		v.t.Fatal(err)
	}
}

// work does what the controller's loop has queued.
func (v *soleVoter) work() { v.controller.workOff() }

// KAFKA-17333, KAFKA-15345, KAFKA-16286: the controller is told that it leads once, when everything from before its
// epoch, and the start of it, is committed and applied.
func TestControllerLeadsWhenAllBeforeItsEpochIsApplied(t *testing.T) {
	fsys := vfs.NewMem()
	v := newSoleVoter(t, fsys)
	v.quorum.do(v.quorum.exec.Start)
	v.flush()
	for n := range 3 {
		v.propose(metadata.EncodeBatch(0, 0, 1000, &metadata.TopicRecord{Name: fmt.Sprint("topic-", n), TopicID: testUUID(5, ident.NodeID(n))}))
	}
	end := v.quorum.exec.EndOffset()
	if err := v.quorum.close(); err != nil {
		t.Fatal(err)
	}

	v = newSoleVoter(t, fsys)
	v.quorum.do(v.quorum.exec.Start)
	if v.quorum.exec.Core().Role() != raft.Leader {
		t.Fatalf("%s", v.quorum.exec.Core().Role())
	}
	// The start of the epoch is not on the disk yet, so nothing is committed in it.
	v.publish()
	v.work()
	if v.controller.core.Active() {
		t.Fatal("active before anything of its epoch is committed")
	}
	v.flush()
	v.work()
	if v.controller.core.Active() || v.publisher.leading.Load() == nil {
		t.Fatal("active before what was committed is applied")
	}
	v.publish()
	v.work()
	image := v.controller.appended
	if !v.controller.core.Active() || image.NumTopics() != 3 || v.controller.core.NextOffset() <= end {
		t.Fatalf("active %v, %d topics, next offset %d, the epoch starts at %d", v.controller.core.Active(), image.NumTopics(), v.controller.core.NextOffset(), end)
	}
	// Once: another word of it would make it forget what it has decided since.
	decided := v.controller.core.NextOffset()
	v.flush()
	v.publish()
	v.publish()
	v.work()
	if v.controller.core.NextOffset() < decided || v.controller.epoch != v.quorum.exec.Core().Epoch() {
		t.Fatalf("next offset %d after %d", v.controller.core.NextOffset(), decided)
	}
	// A leadership whose start is not committed is not told either, whatever else is.
	v.publisher.lead(raft.EpochStart{Epoch: 99, Start: v.quorum.highWatermark()})
	v.publish()
	if v.publisher.leading.Load() == nil {
		t.Fatal("told of an epoch whose start is not committed")
	}
}

// KAFKA-14275: a record that this build does not know stops the node, leader or not; it never goes on with a hole in
// its state, and no controller leads with one.
func TestRecordThatIsNotKnownStopsTheNode(t *testing.T) {
	for name, value := range map[string][]byte{"unknown type": {1, 99, 0, 0}, "unknown version": {1, 2, 77, 0}, "not a record": {9}} {
		t.Run(name, func(t *testing.T) {
			v := newSoleVoter(t, vfs.NewMem())
			v.quorum.do(v.quorum.exec.Start)
			v.flush()
			raw := batch.NewBuilder(0, 0, 1000)
			raw.Append(nil, value)
			v.propose(raw.Build())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			v.publisher.run(ctx)
			select {
			case err := <-v.fatal:
				var unsupported *metadata.UnsupportedError
				if !strings.Contains(err.Error(), "the metadata log can't be followed") || name != "not a record" && !errors.As(err, &unsupported) {
					t.Fatal(err)
				}
			default:
				t.Fatal("goes on")
			}
			v.work()
			if v.controller.core.Active() {
				t.Fatal("a controller that could not replay the log leads")
			}
		})
	}
}

// KAFKA-14457: what others see of the metadata, metrics among it, is what is committed: a decision that is appended and
// then lost with the leadership was never seen.
func TestWhatIsAppendedIsSeenByNobodyBeforeItIsCommitted(t *testing.T) {
	v := newSoleVoter(t, vfs.NewMem())
	v.quorum.do(v.quorum.exec.Start)
	v.flush()
	v.publish()
	v.work()
	v.flush()
	v.publish()
	before := v.publisher.image()
	q := v.quorum
	if err := q.propose(q.exec.Core().Epoch(), q.exec.EndOffset(), metadata.EncodeBatch(0, 0, 1000, &metadata.TopicRecord{Name: "orders", TopicID: ordersID})); err != nil {
		t.Fatal(err)
	}
	v.publish()
	if v.publisher.image() != before || q.highWatermark() >= q.exec.EndOffset() {
		t.Fatalf("%d topics are seen, high watermark %d of %d", v.publisher.image().NumTopics(), q.highWatermark(), q.exec.EndOffset())
	}
	v.flush()
	v.publish()
	if v.publisher.image().NumTopics() != 1 {
		t.Fatal("a committed topic is not seen")
	}
}

// KAFKA-18920, KAFKA-18979: ApiVersions tells the kraft.version that is in use: none until the voters stand in the log.
func TestKRaftVersionInUseIsTold(t *testing.T) {
	v := newSoleVoter(t, vfs.NewMem())
	inUse := func() (level int16) {
		for _, f := range v.features().Finalized {
			if f.Name == metadata.FeatureKRaft {
				level = f.Max
			}
		}
		return level
	}
	if got := inUse(); got != 0 {
		t.Fatalf("%d before the first leader", got)
	}
	v.quorum.do(v.quorum.exec.Start)
	v.flush()
	v.publish()
	if got := inUse(); got != raft.KRaftVersion {
		t.Fatalf("%d, the voters are in the log", got)
	}
}
