package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/nodefact"
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
	b.lifecycle.metadataApplied(image)
}

func (b *broker) applyAll(image *metadata.Image) {
	for topic := range image.Topics() {
		for index := range topic.Partitions() {
			b.applyPartition(image, ident.TopicPartition{Topic: topic.ID, Index: index})
		}
	}
	b.reportStrays()
}

func (b *broker) applyDelta(delta *metadata.Delta, image *metadata.Image) {
	for _, topic := range delta.DeletedTopics() {
		for index := range topic.Partitions() {
			b.applyPartition(image, ident.TopicPartition{Topic: topic.ID, Index: index})
		}
	}
	changed := delta.ChangedPartitions()
	for _, id := range changed {
		b.applyPartition(image, id)
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
		b.eachReplica(func(r *replica) { r.tick() })
	}
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
	case mine && !hosted && b.offline.Load() != nil:
		return // whoever asks for it is told KAFKA_STORAGE_ERROR
	case mine && !hosted:
		var err error
		if r, err = b.openReplica(image, topic, id.Index); err != nil {
			b.takeOffline(nil, fmt.Errorf("open the replica %s-%d: %w", topic.Name, id.Index, err))
			return
		}
	}
	if !mine {
		return
	}
	values, err := b.defaults.Values(image.Config(metadata.ResourceTopic, topic.Name).Get)
	if err != nil {
		b.logger.Warn("a topic's configuration holds a value that is not valid", "topic", topic.Name, "error", err)
	}
	r.do(func(now ident.Instant, p *exec.Partition) {
		p.SetMaxMessageBytes(int(values.MaxMessageBytes))
		if err := p.Log().SetSettings(logSettings(values)); err != nil {
			b.logger.Warn("a topic's settings can't be used", "topic", topic.Name, "error", err)
		}
		p.ApplyMetadata(now, replication.MetadataChanged{
			Leader: state.Leader, LeaderEpoch: state.LeaderEpoch, PartitionEpoch: state.PartitionEpoch,
			Replicas: state.Replicas, ISR: state.ISR, MinISR: int(values.MinInsyncReplicas),
		})
	})
}

// logSettings is what a topic's configuration says to the logs of its partitions.
func logSettings(values topicconfig.Values) log.Settings {
	return log.Settings{
		SegmentBytes:       int64(values.SegmentBytes),
		SegmentMs:          values.SegmentMs,
		SegmentJitterMs:    values.SegmentJitterMs,
		IndexBytes:         max(int64(values.SegmentIndexBytes), log.MinIndexBytes),
		IndexIntervalBytes: max(int64(values.IndexIntervalBytes), 1), // with 0 every batch gets an entry, as with 1
	}
}

// openReplica opens the partition's log, or creates it. A directory of the same name that belongs to another topic
// (one that was deleted while this node was down) is moved aside first.
func (b *broker) openReplica(image *metadata.Image, topic *metadata.Topic, index int32) (*replica, error) {
	id := ident.TopicPartition{Topic: topic.ID, Index: index}
	dir := filepath.Join(b.cfg.DataDir, log.DirName(topic.Name, index))
	if err := b.claimDirectory(dir, topic, index); err != nil {
		return nil, err
	}
	values, _ := b.defaults.Values(image.Config(metadata.ResourceTopic, topic.Name).Get)
	partition, recovery, err := exec.OpenPartition(exec.PartitionConfig{
		FS: b.fs, Dir: dir, Topic: topic.Name, ID: id,
		Log: log.Config{
			Settings:      logSettings(values),
			WallMillis:    func() int64 { return time.Now().UnixMilli() },
			StartOffset:   b.checkpoints.logStart(topic.Name, index),
			RecoveryPoint: b.checkpoints.recoveryPoint(topic.Name, index),
			CleanShutdown: b.cleanStart,
		},
		Replication: replication.Config{
			Self: b.cfg.NodeID, LagTimeMax: time.Duration(b.cfg.Shared.Defaults.ReplicaLagTimeMax),
			HighWatermark: b.checkpoints.highWatermark(topic.Name, index),
		},
		Cluster: b, MaxMessageBytes: int(values.MaxMessageBytes),
	})
	if err != nil {
		return nil, err
	}
	r := newReplica(b, topic.Name, dir, partition)
	if recovery.Repaired() {
		for _, repair := range recovery.Repairs {
			b.logger.Warn("log recovery", "topic", topic.Name, "index", index, "repair", repair)
		}
		b.facts.add(nodefact.Fact{
			Kind: nodefact.LogRecovered, Time: time.Now().UTC(), TopicID: topic.ID, Topic: topic.Name, Index: index,
			Replica: b.cfg.NodeID, Message: fmt.Sprint(recovery.Repairs),
		})
	}
	b.replicas.Store(id, r)
	if message := b.offline.Load(); message != nil {
		r.failDir(errors.New(*message)) // that may have happened meanwhile, and not have found it
	}
	return r, nil
}

// claimDirectory makes sure that a partition's directory is this topic's: by its partition.metadata, or by being
// new, in which case it gets one. What the checkpoints say of another topic of that name goes: it may have been
// deleted while this node was down.
func (b *broker) claimDirectory(dir string, topic *metadata.Topic, index int32) error {
	found, err := log.ReadPartitionMetadata(b.fs, dir)
	if err == nil && found == topic.ID {
		return nil
	}
	b.checkpoints.forget(topic.Name, index)
	switch {
	case err == nil:
		aside := fmt.Sprintf("%s.%s-stray", dir, found)
		b.logger.Warn("a directory of a topic that is gone is moved aside", "dir", dir, "topicId", found, "to", aside)
		if err := b.fs.Rename(dir, aside); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := b.fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := log.WritePartitionMetadata(b.fs, dir, topic.ID); err != nil {
		return err
	}
	return b.fs.SyncDir(filepath.Dir(dir))
}

// removeReplica ends a replica that the committed metadata no longer puts here, and deletes its directory: the
// record that says so has been applied, so nobody will ask for it again.
func (b *broker) removeReplica(r *replica, topicExists bool) {
	b.replicas.Delete(r.id)
	if err := r.close(); err != nil {
		b.logger.Warn("closing a replica that goes", "topic", r.topic, "index", r.id.Index, "error", err)
	}
	b.checkpoints.forget(r.topic, r.id.Index)
	reason := "the topic was deleted"
	if topicExists {
		reason = "the replica was assigned elsewhere"
	}
	b.logger.Info("replica removed", "topic", r.topic, "index", r.id.Index, "reason", reason)
	doomed := fmt.Sprintf("%s.%s%s", r.dir, r.id.Topic, doomedSuffix)
	err := b.fs.RemoveAll(doomed) // of an earlier time that the replica was here
	if err == nil {
		err = b.fs.Rename(r.dir, doomed)
	}
	if err == nil {
		err = b.fs.RemoveAll(doomed)
	}
	if err != nil {
		b.logger.Error("a replica's directory can't be removed", "dir", r.dir, "error", err)
	}
}

// doomedSuffix marks the directories of replicas that are being deleted, as Kafka marks them.
const doomedSuffix = "-delete"

// removeDoomed finishes the deletions that a stop or a crash cut short.
func (b *broker) removeDoomed() error {
	entries, err := b.fs.ReadDir(b.cfg.DataDir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		stem, doomed := strings.CutSuffix(entry.Name(), doomedSuffix)
		// <topic>-<index>.<topic id>-delete: a topic of its own may have a name that ends so.
		dot := strings.LastIndexByte(stem, '.')
		if !doomed || dot < 0 || !entry.IsDir() {
			continue
		}
		if _, _, err := log.ParseDirName(stem[:dot]); err != nil {
			continue
		}
		if _, err := ident.ParseUUID(stem[dot+1:]); err != nil {
			continue
		}
		b.logger.Info("the deletion of a replica is finished", "dir", entry.Name())
		if err := b.fs.RemoveAll(filepath.Join(b.cfg.DataDir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// reportStrays names the partition directories that no topic of the image accounts for. They stay: somebody may
// want what is in them.
func (b *broker) reportStrays() {
	entries, err := b.fs.ReadDir(b.cfg.DataDir)
	if err != nil {
		b.logger.Error("the data directory can't be listed", "dir", b.cfg.DataDir, "error", err)
		return
	}
	known := map[string]bool{}
	b.eachReplica(func(r *replica) { known[filepath.Base(r.dir)] = true })
	for _, entry := range entries {
		name, _, err := log.ParseDirName(entry.Name())
		if err != nil || !entry.IsDir() || name == ident.MetadataTopic || known[entry.Name()] {
			continue
		}
		b.logger.Warn("a partition directory belongs to no replica of this node", "dir", entry.Name())
	}
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
	r.do(func(now ident.Instant, p *exec.Partition) {
		segments, bytes, err := p.DeleteOldSegments(now, time.Now().UnixMilli(), limits)
		if err == nil && segments > 0 {
			b.logger.Info("old segments dropped", "topic", r.topic, "index", r.id.Index, "segments", segments, "bytes", bytes, "logStart", p.Log().StartOffset())
		}
	})
}
