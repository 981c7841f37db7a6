package node

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/wire"
)

// Timestamps with a meaning of their own in ListOffsets.
const (
	timestampLatest        = -1
	timestampEarliest      = -2
	timestampMax           = -3 // KIP-734
	timestampEarliestLocal = -4 // KIP-405: all of a log is local here
	timestampLatestTiered  = -5 // KIP-1005: nothing is tiered
)

// listOffsets answers where a partition begins, ends, or first has a record of some time.
func (b *broker) listOffsets(req *wire.Request) {
	body := req.Body.(*kmsg.ListOffsetsRequest)
	image := b.image()
	resp := kmsg.NewPtrListOffsetsResponse()
	for t := range body.Topics {
		asked := &body.Topics[t]
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = asked.Topic
		found, code := b.topicFor(req, wire.OpDescribe, image, false, asked.Topic, [16]byte{})
		for _, p := range asked.Partitions {
			part := kmsg.NewListOffsetsResponseTopicPartition()
			part.Partition, part.Offset, part.Timestamp, part.LeaderEpoch = p.Partition, -1, -1, -1
			if code != nil {
				part.ErrorCode = code.Code
			} else {
				part.ErrorCode = b.listOffset(found, p, body.ReplicaID < 0, &part)
			}
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	req.Reply(resp)
}

func (b *broker) listOffset(topic *metadata.Topic, asked kmsg.ListOffsetsRequestTopicPartition, consumer bool, part *kmsg.ListOffsetsResponseTopicPartition) int16 {
	r, code := b.hosted(topic, asked.Partition)
	if code != nil {
		return code.Code
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return kerr.NotLeaderForPartition.Code
	}
	core, l := r.partition.Core(), r.partition.Log()
	_, failure := r.partition.EpochEnd(ident.Epoch(asked.CurrentLeaderEpoch), ident.UnknownEpoch)
	first, _ := l.EpochAt(l.StartOffset())
	epoch, highWatermark, epochStart := core.LeaderEpoch(), core.HighWatermark(), core.EpochStart()
	r.mu.Unlock()
	switch {
	case failure != replication.None:
		return int16(failure)
	case consumer && highWatermark < epochStart && asked.Timestamp != timestampEarliest && asked.Timestamp != timestampEarliestLocal:
		// Until then the end that clients saw before the election may lie beyond it (KIP-207).
		return kerr.OffsetNotAvailable.Code
	}
	end := highWatermark
	if !consumer {
		end = l.EndOffset()
	}
	switch asked.Timestamp {
	case timestampLatest:
		part.Offset, part.LeaderEpoch = int64(end), int32(epoch)
	case timestampEarliest, timestampEarliestLocal:
		part.Offset, part.LeaderEpoch = int64(l.StartOffset()), int32(first)
	case timestampLatestTiered:
	case timestampMax:
		found, ok, err := l.MaxTimestamp()
		return b.timestampAnswer(r, found, ok, err, end, part)
	default:
		if asked.Timestamp < 0 {
			return kerr.UnsupportedVersion.Code
		}
		found, ok, err := l.OffsetForTimestamp(asked.Timestamp)
		return b.timestampAnswer(r, found, ok, err, end, part)
	}
	return 0
}

// timestampAnswer fills in a record that was found by time, if a consumer may see it already.
func (b *broker) timestampAnswer(r *replica, found log.TimestampOffset, ok bool, err error, end ident.Offset, part *kmsg.ListOffsetsResponseTopicPartition) int16 {
	switch {
	case err != nil:
		r.suspect(err)
		b.logger.Error("a look-up by time failed", "topic", r.topic, "index", r.id.Index, "error", err)
		return kerr.KafkaStorageError.Code
	case ok && found.Offset < end:
		part.Offset, part.Timestamp, part.LeaderEpoch = int64(found.Offset), found.Timestamp, int32(found.LeaderEpoch)
	}
	return 0
}
