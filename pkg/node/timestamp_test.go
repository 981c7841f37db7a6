package node

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// configure commits one topic config.
func (b *testBroker) configure(topic, name, value string) {
	b.t.Helper()
	b.apply(&metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: topic, Name: name, Value: &value})
}

// writeAt produces one record of a time to orders-0.
func (b *testBroker) writeAt(ms int64) kmsg.ProduceResponseTopicPartition {
	b.t.Helper()
	return b.writeBatch("orders", 0, ordersID, batch.NewBuilder(0, -1, ms).Append(nil, []byte("v")).Build())
}

func TestTopicsConfigurationDecidesAboutTimestamps(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	b.register()
	b.apply(topicRecords("orders", ordersID, 1, nil)...)
	if got := b.writeAt(1000); got.ErrorCode != 0 || got.LogAppendTime != -1 {
		t.Fatalf("with the producer's time: %+v", got)
	}
	ahead := time.Now().Add(2 * time.Hour).UnixMilli()
	if got := b.writeAt(ahead); got.ErrorCode != kerr.InvalidTimestamp.Code || got.BaseOffset != -1 || got.ErrorMessage == nil {
		t.Fatalf("two hours ahead: %+v", got)
	}
	b.configure("orders", "message.timestamp.after.max.ms", "9000000")
	if got := b.writeAt(ahead); got.ErrorCode != 0 {
		t.Fatalf("two hours ahead, where two and a half are allowed: %+v", got)
	}
	b.configure("orders", "message.timestamp.after.max.ms", "0")
	b.configure("orders", "message.timestamp.type", "LogAppendTime")
	before := time.Now().UnixMilli()
	got := b.writeAt(ahead)
	if got.ErrorCode != 0 || got.LogAppendTime < before || got.LogAppendTime > time.Now().UnixMilli() {
		t.Fatalf("with the leader's time, %d: %+v", before, got)
	}
	b.configure("orders", "message.timestamp.type", "CreateTime")
	if got := b.writeAt(2000); got.ErrorCode != 0 || got.LogAppendTime != -1 {
		t.Fatalf("with the producer's time again: %+v", got)
	}
}
