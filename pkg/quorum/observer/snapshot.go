package observer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/wire"
)

// snapshotChunkBytes is how much of a snapshot is asked for at a time.
const snapshotChunkBytes = 1 << 20

// loadSnapshot fetches the snapshot that the leader offers and goes on from it (KIP-630). It is checked as it comes
// and never kept whole. What ends it early ends the connection; the next leader makes its own offer.
func (o *Observer) loadSnapshot(ctx context.Context, l *leader, a answer) error {
	if a.snapshot.EndOffset <= 0 {
		return fmt.Errorf("the log of %s doesn't reach back to offset %d, and it names no snapshot", l.addr, o.follower.end())
	}
	id := a.snapshot
	if id.EndOffset <= o.follower.appliedEnd {
		return fmt.Errorf("%s offers snapshot %s, which holds less than the %d records that were applied", l.addr, id, o.follower.appliedEnd)
	}
	o.setState(State{Status: LoadingSnapshot, Leader: l.id(a), Epoch: o.follower.epoch, Addr: l.addr, Snapshot: id})
	reader := metadata.NewSnapshotReader(id)
	for position, size := int64(0), int64(-1); position != size; {
		piece, err := o.fetchSnapshot(ctx, l.conn, id, position)
		if err != nil {
			return fmt.Errorf("fetch snapshot %s of %s at byte %d: %w", id, l.addr, position, err)
		}
		n := int64(len(piece.Bytes))
		if n == 0 || piece.Position != position || size >= 0 && piece.Size != size || position+n > piece.Size ||
			(metadata.SnapshotID{EndOffset: ident.Offset(piece.SnapshotID.EndOffset), Epoch: ident.Epoch(piece.SnapshotID.Epoch)}) != id {
			return fmt.Errorf("%s was asked for snapshot %s at byte %d and sent %d bytes at %d of %d", l.addr, id, position, n, piece.Position, piece.Size)
		}
		if err := reader.Append(piece.Bytes); err != nil {
			return o.badSnapshot(err)
		}
		position, size = position+n, piece.Size
	}
	image, header, err := reader.Finish()
	if err != nil {
		return o.badSnapshot(err)
	}
	o.follower.install(id, image, header, a.highWatermark)
	return nil
}

// badSnapshot: one that was damaged on its way is fetched again; one with records that this build does not know will
// not be understood the next time either.
func (o *Observer) badSnapshot(err error) error {
	var unsupported *metadata.UnsupportedError
	if errors.As(err, &unsupported) {
		return &fatalError{err}
	}
	return err
}

func (o *Observer) fetchSnapshot(ctx context.Context, conn *wire.Conn, id metadata.SnapshotID, at int64) (*kmsg.FetchSnapshotResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchSnapshotRequest()
	req.ReplicaID = int32(ident.NoNode)
	if o.cfg.ClusterID != "" {
		req.ClusterID = &o.cfg.ClusterID
	}
	req.MaxBytes = snapshotChunkBytes
	part := kmsg.NewFetchSnapshotRequestTopicPartition()
	part.CurrentLeaderEpoch = int32(o.follower.epoch)
	part.SnapshotID.EndOffset, part.SnapshotID.Epoch = int64(id.EndOffset), int32(id.Epoch)
	part.Position = at
	topic := kmsg.NewFetchSnapshotRequestTopic()
	topic.Topic = ident.MetadataTopic
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)

	ctx, cancel := context.WithTimeout(ctx, o.cfg.MaxWait+o.cfg.RequestTimeout)
	defer cancel()
	answered, err := conn.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := answered.(*kmsg.FetchSnapshotResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Topic != ident.MetadataTopic {
		return nil, errors.New("the answer is not about the metadata partition")
	}
	p := &resp.Topics[0].Partitions[0]
	return p, kerr.ErrorForCode(p.ErrorCode)
}
