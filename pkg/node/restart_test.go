package node

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// closeInOrder stops a broker as a node that is told to stop does.
func (b *testBroker) closeInOrder(fsys vfs.FS) {
	b.t.Helper()
	if err := (&Node{cfg: b.cfg, fs: fsys, broker: b.broker}).closeBroker(); err != nil {
		b.t.Fatal(err)
	}
}

// setCheckpoint writes one offset of orders-0 over a checkpoint file; a negative one stands there as it is.
func setCheckpoint(t *testing.T, fsys vfs.FS, file, offset string) {
	t.Helper()
	if err := vfs.WriteFileAtomic(fsys, filepath.Join(testDataDir, file), []byte("0\n1\norders 0 "+offset+"\n")); err != nil {
		t.Fatal(err)
	}
}

// KAFKA-3978: a checkpointed high watermark that the log does not have.
func TestHighWatermarkIsWithinTheLogWhateverTheCheckpointSays(t *testing.T) {
	for offset, want := range map[string]ident.Offset{"-1": 2, "0": 2, "3": 3, "1000": 5} {
		fsys := vfs.NewMem()
		b := newTestBroker(t, fsys)
		b.register(1)
		b.apply(topicRecords("orders", ordersID, 1, nil)...)
		for range 5 {
			b.mustWrite("orders", 0, ordersID, "v")
		}
		if got := <-b.deleteRecords("orders", 0, 2, 0); got.ErrorCode != 0 {
			t.Fatalf("code %d", got.ErrorCode)
		}
		b.closeInOrder(fsys)
		setCheckpoint(t, fsys, log.HighWatermarkCheckpointFile, offset)
		b = newTestBroker(t, fsys)
		b.apply(append(b.registrations(1), topicRecords("orders", ordersID, 1, withNode1)...)...) // the follower was not heard of yet
		r := b.hostedReplica(ordersID, 0)
		if hw, l := r.partition.HighWatermark(), r.partition.Log(); hw != want || l.StartOffset() != 2 || l.EndOffset() != 5 {
			t.Errorf("checkpoint %s: high watermark %d of a log from %d to %d, want %d", offset, hw, l.StartOffset(), l.EndOffset(), want)
		}
	}
}

// KAFKA-16452: a follower without its high-watermark checkpoint, whose log starts above 0, becomes leader.
func TestLeaderWithoutHighWatermarkCheckpointServesItsFollowers(t *testing.T) {
	fsys := vfs.NewMem()
	b := newTestBroker(t, fsys)
	b.register(1)
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	for range 5 {
		b.mustWrite("orders", 0, ordersID, "v")
	}
	if got := <-b.deleteRecords("orders", 0, 2, 0); got.ErrorCode != 0 {
		t.Fatalf("code %d", got.ErrorCode)
	}
	b.closeInOrder(fsys)
	if err := fsys.Remove(filepath.Join(testDataDir, log.HighWatermarkCheckpointFile)); err != nil {
		t.Fatal(err)
	}
	b = newTestBroker(t, fsys)
	b.apply(append(b.registrations(1), topicRecords("orders", ordersID, 1, withNode1)...)...)
	r := b.hostedReplica(ordersID, 0)
	if hw := r.partition.HighWatermark(); hw != 2 {
		t.Fatalf("high watermark %d, want the log start", hw)
	}
	r.do(func(now ident.Instant, p *exec.Partition) {
		for offset := ident.Offset(2); offset <= 5; offset += 3 {
			res := p.Fetch(now, exec.Fetch{MaxBytes: 1 << 20, Fetch: replication.Fetch{
				Replica: 1, BrokerEpoch: 101, LeaderEpoch: 1, Offset: offset, LastFetchedEpoch: 1, LogStart: 2,
			}})
			if res.Code != 0 || res.Diverging != replication.NoEpochEnd {
				t.Errorf("fetch at %d: %+v", offset, res.FetchAnswer)
			}
			res.Records.Release()
		}
	})
	if hw := r.partition.HighWatermark(); hw != 5 {
		t.Fatalf("high watermark %d after the follower has all", hw)
	}
	b.wantListed(timestampLatest, 5, nil)
}

// KAFKA-9491: a follower that restarts at its leader's log start, and is leader at once.
func TestFollowerResetToTheLeadersLogStartCanLeadAtOnce(t *testing.T) {
	fsys := vfs.NewMem()
	b := newTestBroker(t, fsys)
	b.register(1)
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	for range 3 {
		b.mustWrite("orders", 0, ordersID, "v")
	}
	b.apply(&metadata.PartitionChangeRecord{PartitionID: 0, TopicID: ordersID, Leader: 1, Replicas: []ident.NodeID{0, 1}, ISR: []ident.NodeID{1}, Directories: []ident.UUID{testUUID(9, 0), testUUID(9, 1)}})
	r := b.hostedReplica(ordersID, 0)
	r.do(func(now ident.Instant, p *exec.Partition) {
		asked, ok := p.NextFetch()
		if !ok {
			t.Fatal("it does not fetch")
		}
		p.HandleFetchResponse(now, exec.FetchResponse{
			Asked: asked, Code: replication.OffsetOutOfRange, HighWatermark: -1, LeaderLogStart: 40,
			Diverging: replication.EpochEnd{Epoch: 2, End: 45},
		})
	})
	at := func(l *log.Log, hw ident.Offset) {
		t.Helper()
		if l.StartOffset() != 40 || l.EndOffset() != 40 || hw != 40 {
			t.Errorf("log from %d to %d, high watermark %d; want 40", l.StartOffset(), l.EndOffset(), hw)
		}
	}
	at(r.partition.Log(), r.partition.HighWatermark())
	b.apply(&metadata.PartitionChangeRecord{PartitionID: 0, TopicID: ordersID, Leader: 0, ISR: []ident.NodeID{0}})
	if got := b.write("orders", 0, ordersID, "v"); got.ErrorCode != 0 || got.BaseOffset != 40 || got.LogStartOffset != 40 {
		t.Fatalf("as leader: code %d, offset %d, log start %d", got.ErrorCode, got.BaseOffset, got.LogStartOffset)
	}
	// The checkpoints say so too.
	if err := b.checkpoint(); err != nil {
		t.Fatal(err)
	}
	again := newTestBroker(t, fsys)
	if start, hw := again.checkpoints.logStart("orders", 0), again.checkpoints.highWatermark("orders", 0); start != 40 || hw != 41 {
		t.Errorf("checkpoints: log start %d, high watermark %d", start, hw)
	}
}

// KAFKA-10471: killed while the logs are loaded, after a clean stop.
func TestKillWhileLogsAreLoadedIsNotClean(t *testing.T) {
	fsys := vfs.NewMem()
	b := newTestBroker(t, fsys)
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	b.mustWrite("orders", 0, ordersID, "v")
	b.lifecycle.brokerEpoch = 100
	b.closeInOrder(fsys)

	var killed atomic.Bool
	loading := newTestBroker(t, vfs.Inject(fsys, func(_, path string) error {
		if strings.HasSuffix(path, ".log") {
			killed.Store(true) // and here it ends
		}
		return nil
	}))
	if loading.lifecycle.previousEpoch != 100 || !loading.cleanStart {
		t.Fatalf("previous epoch %d, clean %v", loading.lifecycle.previousEpoch, loading.cleanStart)
	}
	loading.apply(append(loading.registrations(), topicRecords("orders", ordersID, 1, nil)...)...)
	if !killed.Load() {
		t.Fatal("no log was loaded")
	}

	b = newTestBroker(t, fsys)
	if b.lifecycle.previousEpoch != -1 || b.cleanStart {
		t.Fatalf("previous epoch %d, clean %v after a kill", b.lifecycle.previousEpoch, b.cleanStart)
	}
	b.apply(append(b.registrations(), topicRecords("orders", ordersID, 1, nil)...)...)
	if _, _, read := b.openings.progress.remaining(); read == 0 {
		t.Fatal("nothing was recovered")
	}
}

func TestIdleProducersAreForgottenByTheNode(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.cfg.Shared.Defaults.ProducerIDExpiration = Duration(time.Hour)
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	write := func(sequence int32) int16 {
		return b.writeBatch("orders", 0, ordersID, batch.NewBuilder(0, -1, 1000).Producer(7, 0, sequence).Append(nil, []byte("v")).Build()).ErrorCode
	}
	if code := write(0); code != 0 {
		t.Fatalf("code %d", code)
	}
	b.expireProducers(time.Now().Add(59 * time.Minute).UnixMilli())
	if code := write(5); code != kerr.OutOfOrderSequenceNumber.Code {
		t.Fatalf("code %d of a gap, the producer is forgotten too early", code)
	}
	b.expireProducers(time.Now().Add(61 * time.Minute).UnixMilli())
	if code := write(5); code != 0 {
		t.Fatalf("code %d of a producer that is not known any more", code)
	}
}

// The files of checkpoints name a deleted topic until they are written again. Kafka writes them as it deletes.
func TestNamesakeOfADeletedTopicDoesNotBeginWithItsOffsetsAfterACrash(t *testing.T) {
	fsys := vfs.NewMem()
	b := newTestBroker(t, fsys)
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	for range 5 {
		b.mustWrite("orders", 0, ordersID, "v")
	}
	if got := <-b.deleteRecords("orders", 0, 5, 0); got.ErrorCode != 0 {
		t.Fatalf("code %d", got.ErrorCode)
	}
	if err := b.checkpoint(); err != nil {
		t.Fatal(err)
	}
	again := ident.UUID{0: 5, 15: 5}
	b.apply(append([]metadata.Record{&metadata.RemoveTopicRecord{TopicID: ordersID}}, topicRecords("orders", again, 1, nil)...)...)
	b.mustWrite("orders", 0, again, "v")
	b.mustWrite("orders", 0, again, "v")
	// It is killed before the next checkpoint.
	b = newTestBroker(t, fsys)
	b.apply(append(b.registrations(), topicRecords("orders", again, 1, nil)...)...)
	if l := b.hostedReplica(again, 0).partition.Log(); l.StartOffset() != 0 || l.EndOffset() != 2 || len(l.Damage()) > 0 {
		t.Errorf("two records were acknowledged, the log goes from %d to %d, damage %v", l.StartOffset(), l.EndOffset(), l.Damage())
	}
}
