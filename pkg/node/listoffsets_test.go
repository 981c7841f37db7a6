package node

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// listed asks for offsets of orders-0 as a consumer, in a version of ListOffsets.
func (b *testBroker) listed(version int16, timestamps ...int64) []kmsg.ListOffsetsResponseTopicPartition {
	b.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = version, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = "orders"
	for _, ts := range timestamps {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.CurrentLeaderEpoch, p.Timestamp = -1, ts
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return (<-b.ask(b.t.Context(), b.broker.listOffsets, req)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions
}

// wantListed wants the answer to a time: an offset (-1: there is none) or an error.
func (b *testBroker) wantListed(ts, offset int64, code *kerr.Error) {
	b.t.Helper()
	want := int16(0)
	if code != nil {
		want = code.Code
	}
	if got := b.listed(11, ts)[0]; got.ErrorCode != want || got.Offset != offset {
		b.t.Errorf("time %d: code %d, offset %d; want %d, %d", ts, got.ErrorCode, got.Offset, want, offset)
	}
}

// followerFetches has node 1 read orders-0 from an offset on.
func (b *testBroker) followerFetches(offset ident.Offset) {
	b.t.Helper()
	b.hostedReplica(ordersID, 0).do(func(now ident.Instant, p *exec.Partition) {
		res := p.Fetch(now, exec.Fetch{Fetch: replication.Fetch{
			Replica: 1, BrokerEpoch: 101, LeaderEpoch: p.Core().LeaderEpoch(), Offset: offset, LastFetchedEpoch: -1,
		}})
		if res.Code != 0 {
			b.t.Errorf("fetch: code %d", res.Code)
		}
	})
}

func TestListOffsetsShowsNothingBeyondTheHighWatermarkAndNeverGoesBack(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register(1)
	b.apply(topicRecords("orders", ordersID, 1, withNode1)...)
	for _, ts := range []int64{1000, 3000, 2000, 4000} {
		if got := b.writeAt(ts); got.ErrorCode != 0 {
			t.Fatalf("code %d", got.ErrorCode)
		}
	}
	b.followerFetches(3)
	b.wantListed(timestampLatest, 3, nil)
	b.wantListed(timestampEarliest, 0, nil)
	b.wantListed(timestampMax, 1, nil)
	b.wantListed(1500, 1, nil)
	b.wantListed(3500, -1, nil) // there is one, but nobody may see it yet

	// A new epoch begins at 4. Until the high watermark is there, what an earlier leader showed may lie beyond it.
	b.apply(&metadata.PartitionChangeRecord{PartitionID: 0, TopicID: ordersID, Leader: 0})
	if e := b.hostedReplica(ordersID, 0).partition.Core().EpochStart(); e != 4 {
		t.Fatalf("the epoch starts at %d", e)
	}
	b.wantListed(timestampLatest, -1, kerr.OffsetNotAvailable)
	b.wantListed(timestampMax, -1, kerr.OffsetNotAvailable)
	b.wantListed(3500, -1, kerr.OffsetNotAvailable)
	b.wantListed(1500, 1, nil)
	b.wantListed(timestampEarliest, 0, nil)
	b.followerFetches(4)
	b.wantListed(timestampLatest, 4, nil)
	b.wantListed(3500, 3, nil)
	b.wantListed(timestampMax, 3, nil)
	b.wantListed(4001, -1, nil)

	// Records that were deleted are not found any more, nor is their time.
	b.deleteRecords("orders", 0, 2, 0) // in no time: it waits for no follower
	b.wantListed(timestampEarliest, 2, nil)
	b.wantListed(500, 2, nil)
	b.wantListed(2500, 3, nil)
	if got := b.listed(11, timestampEarliest)[0]; got.LeaderEpoch != 1 || got.Timestamp != -1 {
		t.Errorf("the log start: %+v", got)
	}
	if got := b.listed(11, timestampLatest)[0]; got.LeaderEpoch != 2 || got.Timestamp != -1 {
		t.Errorf("the end: %+v", got)
	}
	if got := b.listed(11, 3500)[0]; got.LeaderEpoch != 1 || got.Timestamp != 4000 {
		t.Errorf("a record: %+v", got)
	}
}

func TestListOffsetsOfSpecialTimesIsAnsweredAsByKafkaWithoutTiers(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	b.mustWrite("orders", 0, ordersID, "v")
	for _, c := range []struct {
		version int16
		ts      int64
		offset  int64
		code    *kerr.Error
	}{
		{6, timestampMax, -1, kerr.UnsupportedVersion}, {7, timestampMax, 0, nil},
		{7, timestampEarliestLocal, -1, kerr.UnsupportedVersion}, {8, timestampEarliestLocal, 0, nil},
		{8, timestampLatestTiered, -1, kerr.UnsupportedVersion}, {9, timestampLatestTiered, -1, nil},
		{10, timestampEarliestPendingUpload, -1, kerr.UnsupportedVersion}, {11, timestampEarliestPendingUpload, -1, nil},
		{11, -7, -1, kerr.UnsupportedVersion},
	} {
		want := int16(0)
		if c.code != nil {
			want = c.code.Code
		}
		if got := b.listed(c.version, c.ts)[0]; got.ErrorCode != want || got.Offset != c.offset {
			t.Errorf("version %d, time %d: code %d, offset %d; want %d, %d", c.version, c.ts, got.ErrorCode, got.Offset, want, c.offset)
		}
	}
	if got := b.listed(11, timestampLatest, timestampEarliest); got[0].ErrorCode != 0 || got[1].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("a partition that is asked for twice: %+v", got)
	}
}
