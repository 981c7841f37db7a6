package observer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/wire"
)

// minFetchVersion is the first with topic ids; before 16 there are no endpoints in it, which are optional.
const minFetchVersion = 13

// answer is what a fetch of the metadata partition brought.
type answer struct {
	code   int16
	leader ident.NodeID // as the answering node knows it
	epoch  ident.Epoch
	hint   string // the leader's address, empty when not told

	highWatermark  ident.Offset
	records        []byte
	diverging      bool
	divergingEpoch ident.Epoch
	divergingEnd   ident.Offset
	needsSnapshot  bool
	snapshot       metadata.SnapshotID // zero when the leader named none
}

// err describes the code.
func (a answer) err() error {
	err := kerr.ErrorForCode(a.code)
	if a.leader != ident.NoNode {
		return fmt.Errorf("%w (node %d leads epoch %d)", err, a.leader, a.epoch)
	}
	return fmt.Errorf("%w (no leader in epoch %d)", err, a.epoch)
}

// fetch asks for what follows a position.
func (o *Observer) fetch(ctx context.Context, conn *wire.Conn, at position, wait, timeout time.Duration) (answer, error) {
	if v, ok := conn.Version(int16(kmsg.Fetch), 18); !ok || v < minFetchVersion {
		return answer{}, fmt.Errorf("%s serves Fetch up to version %d, the metadata log needs %d", conn.Addr(), v, minFetchVersion)
	}
	req := kmsg.NewPtrFetchRequest()
	wire.SetFetchReplica(req, int32(ident.NoNode), -1)
	if o.cfg.ClusterID != "" {
		req.ClusterID = &o.cfg.ClusterID
	}
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, o.cfg.MaxBytes
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = ident.MetadataTopic, ident.MetadataTopicID
	part := kmsg.NewFetchRequestTopicPartition()
	part.CurrentLeaderEpoch = int32(at.epoch)
	part.FetchOffset, part.LastFetchedEpoch = int64(at.offset), int32(at.lastEpoch)
	part.PartitionMaxBytes = o.cfg.MaxBytes
	part.HighWatermark = int64(at.highWatermark)
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := conn.RequestMax(ctx, req, 18)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(resp.(*kmsg.FetchResponse), at.offset)
}

// readAnswer takes a response to a fetch at offset apart.
func readAnswer(resp *kmsg.FetchResponse, offset ident.Offset) (answer, error) {
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return answer{}, err // INCONSISTENT_CLUSTER_ID among others: no word of our quorum.
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].TopicID != ident.MetadataTopicID || resp.Topics[0].Partitions[0].Partition != 0 {
		return answer{}, errors.New("the answer is not about the metadata partition")
	}
	p := &resp.Topics[0].Partitions[0]
	a := answer{
		code: p.ErrorCode, leader: max(ident.NodeID(p.CurrentLeader.LeaderID), ident.NoNode), epoch: ident.Epoch(p.CurrentLeader.LeaderEpoch),
		highWatermark: max(ident.Offset(p.HighWatermark), ident.UnknownOffset), records: p.RecordBatches,
	}
	for _, b := range resp.Brokers {
		if a.leader != ident.NoNode && ident.NodeID(b.NodeID) == a.leader && b.Port > 0 {
			a.hint = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		}
	}
	if d := p.DivergingEpoch; d.Epoch >= 0 {
		a.diverging, a.divergingEpoch, a.divergingEnd = true, ident.Epoch(d.Epoch), ident.Offset(d.EndOffset)
	}
	if s := p.SnapshotID; s.EndOffset >= 0 && s.Epoch >= 0 {
		a.needsSnapshot, a.snapshot = true, metadata.SnapshotID{EndOffset: ident.Offset(s.EndOffset), Epoch: ident.Epoch(s.Epoch)}
	}
	if a.code == kerr.OffsetOutOfRange.Code && offset < ident.Offset(p.LogStartOffset) {
		// A leader without a snapshot to name says it so.
		a.code, a.needsSnapshot = 0, true
	}
	switch a.code {
	case 0, kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code, kerr.UnknownLeaderEpoch.Code:
		return a, nil
	}
	return answer{}, a.err()
}
