package node

import (
	"slices"

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
	timestampLatest                = -1
	timestampEarliest              = -2
	timestampMax                   = -3 // KIP-734
	timestampEarliestLocal         = -4 // KIP-405: all of a log is local here
	timestampLatestTiered          = -5 // KIP-1005: nothing is tiered
	timestampEarliestPendingUpload = -6 // KIP-1023: nothing is to be uploaded
)

// timestampSince is the version of ListOffsets from which on each of them is known.
var timestampSince = map[int64]int16{
	timestampLatest: 1, timestampEarliest: 1, timestampMax: 7, timestampEarliestLocal: 8, timestampLatestTiered: 9,
	timestampEarliestPendingUpload: 11,
}

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
		for i, p := range asked.Partitions {
			part := kmsg.NewListOffsetsResponseTopicPartition()
			part.Partition, part.Offset, part.Timestamp, part.LeaderEpoch = p.Partition, -1, -1, -1
			since, special := timestampSince[p.Timestamp]
			switch {
			case code != nil:
				part.ErrorCode = code.Code
			case slices.ContainsFunc(asked.Partitions[:i], func(q kmsg.ListOffsetsRequestTopicPartition) bool { return q.Partition == p.Partition }):
				part.ErrorCode = kerr.InvalidRequest.Code
			case p.Timestamp < 0 && (!special || body.Version < since):
				part.ErrorCode = kerr.UnsupportedVersion.Code
			default:
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
	start := l.StartOffset()
	first, _ := l.EpochAt(start)
	epoch, highWatermark := core.LeaderEpoch(), core.HighWatermark()
	_, waiting := core.LatestOffset()
	r.mu.Unlock()
	if failure != replication.None {
		return int16(failure)
	}
	end, available := highWatermark, waiting == replication.None
	if !consumer {
		end, available = l.EndOffset(), true
	}
	var found log.TimestampOffset
	var ok bool
	var err error
	switch asked.Timestamp {
	case timestampLatest:
		found, ok = log.TimestampOffset{Timestamp: -1, Offset: end, LeaderEpoch: epoch}, available
	case timestampEarliest, timestampEarliestLocal:
		part.Offset, part.LeaderEpoch = int64(start), int32(first)
		return 0
	case timestampLatestTiered, timestampEarliestPendingUpload:
		return 0 // as Kafka without remote storage: no such offset
	case timestampMax:
		found, ok, err = l.MaxTimestamp(end)
		ok = ok && found.Offset < end && available
	default:
		found, ok, err = l.OffsetForTimestamp(asked.Timestamp)
		ok = ok && found.Offset < end
	}
	switch {
	case err != nil:
		r.suspect(err)
		b.logger.Error("a look-up by time failed", "topic", r.topic, "index", r.id.Index, "error", err)
		return kerr.KafkaStorageError.Code
	case ok:
		part.Offset, part.Timestamp, part.LeaderEpoch = int64(found.Offset), found.Timestamp, int32(found.LeaderEpoch)
	case !available:
		// Clients saw an end before the election that the high watermark has not reached again yet (KIP-207); what
		// is not found may lie between.
		return kerr.OffsetNotAvailable.Code
	}
	return 0
}
