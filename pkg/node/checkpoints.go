package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// checkpoints are the four files of a data directory that hold an offset for each partition. They are read once
// and then written from what the replicas say; a partition that is not opened keeps what the files said.
type checkpoints struct {
	fs  vfs.FS
	dir string
	// kick has the files written before their time.
	kick chan struct{}

	mu    sync.Mutex
	files map[string]map[log.TopicIndex]ident.Offset
	dirty map[string]bool // differs from the file
	// forgotten are the partitions that were dropped and that the file may still name, with the drop that was the last.
	forgotten map[string]map[log.TopicIndex]int
	drops     int

	writing sync.Mutex // one write at a time; never taken under mu
}

// checkpointFiles in the order in which they are written.
var checkpointFiles = []string{
	log.CleanerCheckpointFile, log.RecoveryPointCheckpointFile, log.LogStartCheckpointFile, log.HighWatermarkCheckpointFile,
}

// loadCheckpoints reads what there is. A file that is damaged counts as missing, with a warning: a log without
// recovery point is scanned whole, one without high watermark begins with its log start until the leader tells. With
// an error it returns what could be read, which is enough for a directory that is offline.
func loadCheckpoints(fsys vfs.FS, dir string, logger *slog.Logger) (*checkpoints, error) {
	c := &checkpoints{
		fs: fsys, dir: dir, kick: make(chan struct{}, 1),
		files: map[string]map[log.TopicIndex]ident.Offset{}, dirty: map[string]bool{},
		forgotten: map[string]map[log.TopicIndex]int{},
	}
	var failed error
	for _, name := range checkpointFiles {
		offsets, err := log.ReadOffsetCheckpoint(fsys, dir, name)
		switch {
		case errors.Is(err, log.ErrCorrupt):
			logger.Warn("a checkpoint file is damaged and counts as missing", "dir", dir, "error", err)
			offsets, c.dirty[name] = map[log.TopicIndex]ident.Offset{}, true
		case err != nil:
			offsets, failed = map[log.TopicIndex]ident.Offset{}, errors.Join(failed, err)
		}
		c.files[name], c.forgotten[name] = offsets, map[log.TopicIndex]int{}
	}
	return c, failed
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

func (c *checkpoints) cleanOffset(topic string, index int32) ident.Offset {
	return c.get(log.CleanerCheckpointFile, topic, index)
}

// noteClean takes over up to where a log is compacted.
func (c *checkpoints) noteClean(topic string, index int32, clean ident.Offset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if clean > 0 {
		c.set(log.CleanerCheckpointFile, topic, index, clean)
		return
	}
	// As Kafka has only those that were compacted.
	key := log.TopicIndex{Topic: topic, Index: index}
	if _, ok := c.files[log.CleanerCheckpointFile][key]; ok {
		delete(c.files[log.CleanerCheckpointFile], key)
		c.dirty[log.CleanerCheckpointFile] = true
	}
}

// forget drops a partition whose directory is gone: another topic of that name must not begin with its offsets. The
// files may name it until settleForgotten.
func (c *checkpoints) forget(topic string, index int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := log.TopicIndex{Topic: topic, Index: index}
	for _, name := range checkpointFiles {
		if _, ok := c.files[name][key]; ok {
			delete(c.files[name], key)
			c.dirty[name] = true
			c.drops++
			c.forgotten[name][key] = c.drops
		}
	}
}

// settleForgotten makes sure that no file names a partition that was forgotten, before a log begins in its place. After
// a crash the new log would be taken for the old one: what lies below that one's start would go.
func (c *checkpoints) settleForgotten(topic string, index int32) error {
	for _, name := range checkpointFiles {
		c.mu.Lock()
		_, named := c.forgotten[name][log.TopicIndex{Topic: topic, Index: index}]
		c.mu.Unlock()
		if !named {
			continue
		}
		if err := c.writeFile(name); err != nil {
			return err
		}
	}
	return nil
}

// noteReplica takes over where a replica stands. Its mutex is held, or it is closed.
func (c *checkpoints) noteReplica(r *replica) {
	l := r.partition.Log()
	c.note(r.topic, r.id.Index, r.partition.HighWatermark(), l.FlushedOffset(), l.DurableStartOffset())
	c.noteClean(r.topic, r.id.Index, l.CleanOffset())
}

// note takes over a replica's offsets.
func (c *checkpoints) note(topic string, index int32, highWatermark, recoveryPoint, logStart ident.Offset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(log.HighWatermarkCheckpointFile, topic, index, highWatermark)
	c.set(log.RecoveryPointCheckpointFile, topic, index, recoveryPoint)
	c.set(log.LogStartCheckpointFile, topic, index, logStart)
}

// lower is log.Config.LowerCheckpoints of a partition.
func (c *checkpoints) lower(topic string, index int32, recoveryPoint, logStart ident.Offset) error {
	for _, lowered := range []struct {
		file string
		to   ident.Offset
	}{{log.RecoveryPointCheckpointFile, recoveryPoint}, {log.CleanerCheckpointFile, recoveryPoint}, {log.LogStartCheckpointFile, logStart}} {
		c.mu.Lock()
		higher := c.files[lowered.file][log.TopicIndex{Topic: topic, Index: index}] > lowered.to
		if higher {
			c.set(lowered.file, topic, index, lowered.to)
		}
		c.mu.Unlock()
		if !higher {
			continue
		}
		if err := c.writeFile(lowered.file); err != nil {
			return err
		}
	}
	return nil
}

// noteLogStart takes over where a log starts by now, and durably so.
func (c *checkpoints) noteLogStart(topic string, index int32, logStart ident.Offset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(log.LogStartCheckpointFile, topic, index, logStart)
}

func (c *checkpoints) set(file, topic string, index int32, o ident.Offset) {
	key := log.TopicIndex{Topic: topic, Index: index}
	if old, ok := c.files[file][key]; !ok || old != o {
		c.files[file][key] = o
		c.dirty[file] = true
	}
}

// write writes the files that differ from what was noted.
func (c *checkpoints) write() error {
	for _, name := range checkpointFiles {
		if err := c.writeFile(name); err != nil {
			return err
		}
	}
	return nil
}

// writeFile makes durable what was noted for one file before the call. Those who want it at the same time share the
// write.
func (c *checkpoints) writeFile(name string) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	if !c.dirty[name] {
		c.mu.Unlock()
		return nil
	}
	offsets, drops := maps.Clone(c.files[name]), c.drops
	c.dirty[name] = false
	c.mu.Unlock()
	err := log.WriteOffsetCheckpoint(c.fs, c.dir, name, offsets)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.dirty[name] = true
		return err
	}
	maps.DeleteFunc(c.forgotten[name], func(_ log.TopicIndex, drop int) bool { return drop <= drops })
	return nil
}

// touch has all files written with the next write: a clean stop leaves them, changed or not.
func (c *checkpoints) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range checkpointFiles {
		c.dirty[name] = true
	}
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

// checkpointLoop writes the checkpoints every few seconds, and log starts soon after they moved: a follower's is as
// good as the leader's once it may be elected.
func (b *broker) checkpointLoop(ctx context.Context) {
	ticker := time.NewTicker(b.cfg.Timing.CheckpointInterval)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			b.dir.lookAgain()
			err = b.checkpoint()
		case <-b.checkpoints.kick:
			err = b.writeLogStarts()
		}
		if err != nil {
			b.takeOffline(fmt.Errorf("write the checkpoints: %w", err))
		}
	}
}

// writeLogStarts makes durable where the logs start by now.
func (b *broker) writeLogStarts() error {
	if b.dir.offline() != nil {
		return errOffline
	}
	return b.checkpoints.writeFile(log.LogStartCheckpointFile)
}

// sealedFlushLoop flushes logs whose last flush lies before their last segment, one after the other, so that the
// recovery points follow. Chores that had to wait, for a reader to let go of a dropped segment, come up again with it. It
// has a loop of its own: no checkpoint waits for the disk to write gigabytes.
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
