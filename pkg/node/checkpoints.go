package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// checkpoints are the three files of a data directory that hold an offset for each partition. They are read once
// and then written from what the replicas say; a partition that is not opened keeps what the files said.
type checkpoints struct {
	fs  vfs.FS
	dir string

	mu    sync.Mutex
	files map[string]map[log.TopicIndex]ident.Offset
}

// loadCheckpoints reads what there is. A file that is damaged counts as missing, with a warning: a log without
// recovery point is scanned whole, one without high watermark begins with its log start until the leader tells.
func loadCheckpoints(fsys vfs.FS, dir string, logger *slog.Logger) (*checkpoints, error) {
	c := &checkpoints{fs: fsys, dir: dir, files: map[string]map[log.TopicIndex]ident.Offset{}}
	for _, name := range []string{log.HighWatermarkCheckpointFile, log.RecoveryPointCheckpointFile, log.LogStartCheckpointFile} {
		offsets, err := log.ReadOffsetCheckpoint(fsys, dir, name)
		switch {
		case errors.Is(err, log.ErrCorrupt):
			logger.Warn("a checkpoint file is damaged and counts as missing", "dir", dir, "error", err)
			offsets = map[log.TopicIndex]ident.Offset{}
		case err != nil:
			return nil, err
		}
		c.files[name] = offsets
	}
	return c, nil
}

func (c *checkpoints) get(file, topic string, index int32) ident.Offset {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.files[file][log.TopicIndex{Topic: topic, Index: index}]
}

func (c *checkpoints) highWatermark(topic string, index int32) ident.Offset {
	return c.get(log.HighWatermarkCheckpointFile, topic, index)
}

func (c *checkpoints) recoveryPoint(topic string, index int32) ident.Offset {
	return c.get(log.RecoveryPointCheckpointFile, topic, index)
}

// recoveryPointOf says also whether the file named the partition at all.
func (c *checkpoints) recoveryPointOf(topic string, index int32) (ident.Offset, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.files[log.RecoveryPointCheckpointFile][log.TopicIndex{Topic: topic, Index: index}]
	return o, ok
}

func (c *checkpoints) logStart(topic string, index int32) ident.Offset {
	return c.get(log.LogStartCheckpointFile, topic, index)
}

// forget drops a partition whose directory is gone: another topic of that name must not begin with its offsets.
func (c *checkpoints) forget(topic string, index int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, offsets := range c.files {
		delete(offsets, log.TopicIndex{Topic: topic, Index: index})
	}
}

// forgetRecoveryPoint has a log scanned whole before it is used again.
func (c *checkpoints) forgetRecoveryPoint(topic string, index int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.files[log.RecoveryPointCheckpointFile], log.TopicIndex{Topic: topic, Index: index})
}

// noteReplica takes over where a replica stands. Its mutex is held, or it is closed.
func (c *checkpoints) noteReplica(r *replica) {
	l := r.partition.Log()
	c.note(r.topic, r.id.Index, r.partition.HighWatermark(), l.FlushedOffset(), l.StartOffset())
}

// note takes over a replica's offsets.
func (c *checkpoints) note(topic string, index int32, highWatermark, recoveryPoint, logStart ident.Offset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := log.TopicIndex{Topic: topic, Index: index}
	c.files[log.HighWatermarkCheckpointFile][key] = highWatermark
	c.files[log.RecoveryPointCheckpointFile][key] = recoveryPoint
	c.files[log.LogStartCheckpointFile][key] = logStart
}

func (c *checkpoints) write() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range []string{log.RecoveryPointCheckpointFile, log.LogStartCheckpointFile, log.HighWatermarkCheckpointFile} {
		if err := log.WriteOffsetCheckpoint(c.fs, c.dir, name, c.files[name]); err != nil {
			return err
		}
	}
	return nil
}

// every calls do once an interval until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do()
		}
	}
}

// checkpointLoop writes the checkpoints every few seconds.
func (b *broker) checkpointLoop(ctx context.Context) {
	every(ctx, b.cfg.Timing.CheckpointInterval, func() {
		if err := b.checkpoint(); err != nil {
			b.takeOffline(fmt.Errorf("write the checkpoints: %w", err))
		}
	})
}

// sealedFlushLoop flushes logs whose last flush lies before their last segment, one after the other, so that the
// recovery points follow. It has a loop of its own: no checkpoint waits for the disk to write gigabytes.
func (b *broker) sealedFlushLoop(ctx context.Context) {
	every(ctx, b.cfg.Timing.CheckpointInterval, func() {
		b.eachReplica(func(r *replica) {
			if ctx.Err() == nil {
				r.flushSealed()
			}
		})
	})
}

// checkpoint notes where every replica stands and writes the files.
func (b *broker) checkpoint() error {
	if b.dir.offline() != nil {
		return nil
	}
	b.eachReplica(func(r *replica) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.closed { // else it may be forgotten already
			b.checkpoints.noteReplica(r)
		}
	})
	return b.checkpoints.write()
}

// retentionInterval is log.retention.check.interval.ms.
const retentionInterval = 5 * time.Minute

// retentionLoop drops old segments by the topics' limits.
func (b *broker) retentionLoop(ctx context.Context) {
	every(ctx, retentionInterval, func() { b.eachReplica(b.retain) })
}
