package node

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/topicconfig"
)

// metadataChanged follows a committed image: replicas come, go, and learn their state.
//
// Until the image has this process's own registration it is history: what it says of leaders and epochs may be
// long over, and nobody is served yet. From then on every image is acted on, the first one as a whole.
func (b *broker) metadataChanged(delta *metadata.Delta, image *metadata.Image) {
	b.applying.Lock()
	defer b.applying.Unlock()
	b.current.Store(image)
	switch registered, ok := image.Broker(b.cfg.NodeID); {
	case b.following:
		b.applyDelta(delta, image)
	case ok && registered.Incarnation == b.incarnation:
		b.following = true
		b.applyAll(image)
	}
	b.lifecycle.metadataApplied(image, b.openings.firstDone())
}

func (b *broker) applyAll(image *metadata.Image) {
	for topic := range image.Topics() {
		for index := range topic.Partitions() {
			b.applyPartition(image, ident.TopicPartition{Topic: topic.ID, Index: index})
		}
	}
	b.openings.startFirst()
	if b.openings.firstDone() { // there are none
		b.clearStrays(image)
	}
}

func (b *broker) applyDelta(delta *metadata.Delta, image *metadata.Image) {
	for _, topic := range delta.DeletedTopics() {
		for index := range topic.Partitions() {
			id := ident.TopicPartition{Topic: topic.ID, Index: index}
			b.applyPartition(image, id)
			b.removeUnopened(image, topic.Name, id)
		}
	}
	changed := delta.ChangedPartitions()
	for _, id := range changed {
		b.applyPartition(image, id)
		if topic, ok := image.TopicByID(id.Topic); ok {
			b.removeUnopened(image, topic.Name, id)
		}
	}
	for _, resource := range delta.ChangedConfigs() {
		if resource.Type != metadata.ResourceTopic {
			continue
		}
		if topic, ok := image.Topic(resource.Name); ok {
			for index := range topic.Partitions() {
				b.applyPartition(image, ident.TopicPartition{Topic: topic.ID, Index: index})
			}
		}
	}
	if len(delta.ChangedBrokers()) > 0 {
		// Who may join an ISR has changed, and with it perhaps what holds a high watermark back.
		b.eachReplica(func(r *replica) {
			r.do(func(now ident.Instant, p *exec.Partition) { p.BrokersChanged(now) })
		})
	}
}

// isAssigned says whether the image puts a replica of the partition on this node.
func (b *broker) isAssigned(image *metadata.Image, id ident.TopicPartition) bool {
	state, ok := image.Partition(id)
	return ok && slices.Contains(state.Replicas, b.cfg.NodeID)
}

// applyPartition makes what this node does for one partition what the image says.
func (b *broker) applyPartition(image *metadata.Image, id ident.TopicPartition) {
	topic, exists := image.TopicByID(id.Topic)
	var state *metadata.Partition
	if exists {
		state, exists = topic.Partition(id.Index)
	}
	mine := exists && slices.Contains(state.Replicas, b.cfg.NodeID)
	r, hosted := b.replica(id)
	switch {
	case !mine && hosted:
		b.removeReplica(r, exists)
	case mine && !hosted && b.dir.offline() == nil: // else whoever asks for it is told KAFKA_STORAGE_ERROR
		b.openings.open(topic.Name, id)
	}
	if !mine || !hosted {
		return
	}
	values, err := b.defaults.Values(image.Config(metadata.ResourceTopic, topic.Name).Get)
	if err != nil {
		b.logger.Warn("a topic's configuration holds a value that is not valid", "topic", topic.Name, "error", err)
	}
	r.do(func(now ident.Instant, p *exec.Partition) {
		p.SetMaxMessageBytes(int(values.MaxMessageBytes))
		p.SetFlushPolicy(now, flushPolicy(values))
		p.SetTimestampAfterMax(values.TimestampAfterMaxMs)
		if err := p.Log().SetSettings(logSettings(values)); err != nil {
			b.logger.Warn("a topic's settings can't be used", "topic", topic.Name, "error", err)
		}
		p.ApplyMetadata(now, replication.MetadataChanged{
			Leader: state.Leader, LeaderEpoch: state.LeaderEpoch, PartitionEpoch: state.PartitionEpoch,
			Replicas: state.Replicas, ISR: state.ISR, Lost: lostReplicas(state), MinISR: int(values.MinInsyncReplicas),
		})
	})
}

// logSettings is what a topic's configuration says to the logs of its partitions.
func logSettings(values topicconfig.Values) log.Settings {
	maxLag := values.MaxCompactionLagMs
	if maxLag == math.MaxInt64 {
		maxLag = 0
	}
	return log.Settings{
		SegmentBytes:    int64(values.SegmentBytes),
		SegmentMs:       values.SegmentMs,
		SegmentJitterMs: values.SegmentJitterMs,
		IndexBytes:      max(int64(values.SegmentIndexBytes), log.MinIndexBytes),
		LogAppendTime:   values.LogAppendTime,
		Compaction: log.Compaction{
			Enabled:           values.Compact,
			DeleteRetentionMs: values.DeleteRetentionMs,
			MinDirtyRatio:     values.MinCleanableRatio,
			MinLagMs:          values.MinCompactionLagMs,
			MaxLagMs:          maxLag,
		},
		IndexIntervalBytes: max(int64(values.IndexIntervalBytes), 1), // with 0 every batch gets an entry, as with 1
	}
}

// claimDirectory makes sure that a partition's directory is this topic's: by its partition.metadata, or by being
// new, in which case it gets one. What the checkpoints say of another topic of that name goes: it may have been
// deleted while this node was down.
func (b *broker) claimDirectory(o *opening) error {
	dir := o.dir
	found, err := log.ReadPartitionMetadata(b.dir, dir)
	if err == nil && found == o.id.Topic {
		return nil
	}
	b.checkpoints.forget(o.topic, o.id.Index)
	if err := b.checkpoints.settleForgotten(o.topic, o.id.Index); err != nil {
		return fmt.Errorf("write the checkpoints: %w", err)
	}
	switch {
	case err == nil:
		stray, err := b.moveAside(o.topic, ident.TopicPartition{Topic: found, Index: o.id.Index})
		if err != nil {
			return err
		}
		b.removals.later([]removal{stray}, b.cfg.Timing.StrayDelay)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := b.dir.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := log.WritePartitionMetadata(b.dir, dir, o.id.Topic); err != nil {
		return err
	}
	return b.dir.SyncDir(filepath.Dir(dir))
}

// closeAll closes every replica in order, for a clean stop, and notes where they end.
func (b *broker) closeAll() error {
	var errs []error
	b.eachReplica(func(r *replica) {
		errs = append(errs, r.close())
		b.checkpoints.noteReplica(r)
	})
	return errors.Join(errs...)
}

// retain drops a leader's or follower's segments that are beyond its topic's limits and below the high watermark.
func (b *broker) retain(r *replica) {
	image := b.image()
	values, _ := b.defaults.Values(image.Config(metadata.ResourceTopic, r.topic).Get)
	limits := log.Limits{Ms: values.RetentionMs, Bytes: values.RetentionBytes}
	if !values.Delete {
		return // compaction alone decides what goes
	}
	r.do(func(now ident.Instant, p *exec.Partition) {
		segments, bytes, err := p.DeleteOldSegments(now, time.Now().UnixMilli(), limits)
		if err == nil && segments > 0 {
			b.logger.Info("old segments dropped", "topic", r.topic, "index", r.id.Index, "segments", segments, "bytes", bytes, "logStart", p.Log().StartOffset())
		}
	})
}
