package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// doomedSuffix marks the directories of replicas that are being deleted, as Kafka marks them.
const doomedSuffix = "-delete"

// Reasons of a removal, in nodefact.ReplicaDeleted.
const (
	topicDeleted = "TopicDeleted"
	reassigned   = "Reassigned"
)

// removeReplica ends a replica that the committed metadata no longer puts here, and has its directory deleted: the
// record that says so has been applied, so nobody will ask for it again. The directory gets its doomed name now, so
// that the partition may come back at once; deleting gigabytes takes its time elsewhere.
func (b *broker) removeReplica(r *replica, topicExists bool) {
	b.replicas.Delete(r.id)
	rest := r.discard()
	b.checkpoints.forget(r.topic, r.id.Index)
	reason := topicDeleted
	if topicExists {
		reason = reassigned
	}
	b.logger.Info("replica removed", "topic", r.topic, "index", r.id.Index, "reason", reason)
	if rest == nil {
		b.doomReplica(r, reason)
		return
	}
	// A flush is under way, which may take long, and metadata can't wait for it. Whoever wants the directory does.
	b.openings.occupy(r.topic, r.id, r.dir)
	b.removals.working.Go(func() {
		rest()
		b.applying.Lock()
		defer b.applying.Unlock()
		b.doomReplica(r, reason)
		delete(b.openings.underWay, r.dir)
		b.applyDirectory(b.image(), r.topic, r.id)
	})
}

// doomReplica has the directory of a replica deleted that is no more. broker.applying is held.
func (b *broker) doomReplica(r *replica, reason string) {
	if err := b.deleteDirectory(r.dir, r.topic, r.id, reason); err != nil {
		// What can't be renamed can't be written either.
		b.takeOffline(fmt.Errorf("remove the replica %s-%d: %w", r.topic, r.id.Index, err))
	}
}

// deleteDirectory renames a replica's directory, so that another may take its place, and has it deleted.
func (b *broker) deleteDirectory(dir, topic string, id ident.TopicPartition, reason string) error {
	name, err := b.doom(dir, id, doomedSuffix)
	if err == nil {
		b.removals.add(removal{name: name, topic: topic, id: id, reason: reason})
	}
	return err
}

// removeUnopened has a replica's directory deleted that a record takes from this node while it has no log open there:
// the data directory was full already when the node started. Deleting is what makes room for it to come back.
func (b *broker) removeUnopened(image *metadata.Image, topic string, id ident.TopicPartition) {
	failure := b.dir.offline()
	if failure == nil || !failure.allows(vfs.OpRename) {
		return
	}
	dir := filepath.Join(b.cfg.DataDir, log.DirName(topic, id.Index))
	if _, hosted := b.replica(id); hosted || b.openings.underWay[dir] != nil {
		return
	}
	if b.isAssigned(image, id) {
		return
	}
	reason := topicDeleted
	if _, exists := image.TopicByID(id.Topic); exists {
		reason = reassigned
	}
	if found, err := log.ReadPartitionMetadata(b.dir, dir); err != nil || found != id.Topic {
		return // it was never here
	}
	b.checkpoints.forget(topic, id.Index)
	b.logger.Info("replica removed", "topic", topic, "index", id.Index, "reason", reason)
	if err := b.deleteDirectory(dir, topic, id, reason); err != nil {
		b.logger.Error("the directory of a removed replica stays", "dir", dir, "error", err)
	}
}

// doom renames a replica's directory: <topic>-<index>.<topic id>-delete, or with a number behind the id while the
// copy of an earlier stay here is still being deleted.
func (b *broker) doom(dir string, id ident.TopicPartition, suffix string) (string, error) {
	for n := 0; ; n++ {
		name := doomedName(filepath.Base(dir), id.Topic, n, suffix)
		if _, err := b.dir.Stat(filepath.Join(b.cfg.DataDir, name)); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		return name, b.dir.Rename(dir, filepath.Join(b.cfg.DataDir, name))
	}
}

func doomedName(dir string, topic ident.UUID, n int, suffix string) string {
	number := ""
	if n > 0 {
		number = "~" + strconv.Itoa(n)
	}
	return dir + "." + topic.String() + number + suffix
}

// parseDoomed reads a doomed name. Others are refused: a topic of its own may have a name that ends so.
func parseDoomed(name, suffix string) (topic string, id ident.TopicPartition, ok bool) {
	stem, doomed := strings.CutSuffix(name, suffix)
	dot := strings.LastIndexByte(stem, '.')
	if !doomed || dot < 0 {
		return "", id, false
	}
	topic, index, err := log.ParseDirName(stem[:dot])
	if err != nil {
		return "", id, false
	}
	text, number, numbered := strings.Cut(stem[dot+1:], "~")
	if _, err := strconv.ParseUint(number, 10, 31); numbered && err != nil {
		return "", id, false
	}
	uuid, err := ident.ParseUUID(text)
	return topic, ident.TopicPartition{Topic: uuid, Index: index}, err == nil
}

// removal is one directory that is to be deleted.
type removal struct {
	name   string // of the directory, within the data directory
	topic  string
	id     ident.TopicPartition
	reason string
}

// removals deletes doomed directories, one after the other, in a goroutine that lives as long as there are any.
// What it does not get done is found by its name at the next start.
type removals struct {
	broker  *broker
	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu      sync.Mutex
	queue   []removal
	running bool
}

func newRemovals(b *broker) *removals {
	ctx, cancel := context.WithCancel(context.Background())
	return &removals{broker: b, ctx: ctx, cancel: cancel}
}

func (q *removals) add(r removal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, r)
	if !q.running && q.ctx.Err() == nil {
		q.running = true
		q.working.Go(q.run)
	}
}

// later adds directories after a while, but for those that metadata has given to this node by then.
func (q *removals) later(list []removal, after time.Duration) {
	if len(list) == 0 {
		return
	}
	q.working.Go(func() {
		select {
		case <-q.ctx.Done():
			return
		case <-time.After(after):
		}
		for _, r := range list {
			if q.broker.isAssigned(q.broker.image(), r.id) {
				q.broker.logger.Error("a directory was moved aside that belongs to a replica of this node, and stays", "dir", r.name)
				continue
			}
			q.add(r)
		}
	})
}

// stop leaves the rest to the next start. Nothing may be added any more.
func (q *removals) stop() {
	q.cancel()
	q.working.Wait()
}

func (q *removals) next() (removal, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 || q.ctx.Err() != nil {
		q.running = false
		return removal{}, false
	}
	r := q.queue[0]
	q.queue = q.queue[1:]
	return r, true
}

// Pauses between attempts to delete a directory.
const (
	removalRetryMin = time.Second
	removalRetryMax = time.Minute
)

func (q *removals) run() {
	b := q.broker
	pause := removalRetryMin
	for {
		r, ok := q.next()
		if !ok {
			return
		}
		err := q.delete(r.name)
		if err == nil {
			pause = removalRetryMin
			b.logger.Info("the directory of a removed replica is deleted", "dir", r.name)
			b.facts.add(nodefact.Fact{
				Kind: nodefact.ReplicaDeleted, Time: time.Now().UTC(), TopicID: r.id.Topic, Topic: r.topic, Index: r.id.Index,
				Replica: b.cfg.NodeID, Reason: r.reason,
			})
			continue
		}
		if q.ctx.Err() != nil {
			continue
		}
		if failure := b.dir.offline(); failure != nil && !failure.allows(vfs.OpRemove) {
			b.logger.Error("the directories of removed replicas are left to the next start", "error", err)
			q.mu.Lock()
			q.queue = nil // whoever takes the directory up again finds them by their names
			q.mu.Unlock()
			continue
		}
		b.logger.Error("the directory of a removed replica can't be deleted, trying again", "dir", r.name, "after", pause, "error", err)
		q.mu.Lock()
		q.queue = append(q.queue, r) // behind the others: they may fare better
		q.mu.Unlock()
		select {
		case <-q.ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, removalRetryMax)
	}
}

// delete removes a directory and what is in it, file by file so that a stop need not wait for all.
func (q *removals) delete(name string) error {
	b := q.broker
	dir := filepath.Join(b.cfg.DataDir, name)
	// First of all the new name has to last: what is half deleted must never be found under the old one.
	if err := b.dir.SyncDir(b.cfg.DataDir); err != nil {
		return err
	}
	entries, err := b.dir.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := q.ctx.Err(); err != nil {
			return err
		}
		if err := b.dir.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	if err := b.dir.RemoveAll(dir); err != nil {
		return err
	}
	return b.dir.SyncDir(b.cfg.DataDir)
}

// finishRemovals takes up the deletions that a stop or a crash cut short.
func (b *broker) finishRemovals() error {
	entries, err := b.dir.ReadDir(b.cfg.DataDir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		topic, id, ok := parseDoomed(entry.Name(), doomedSuffix)
		if !ok || !entry.IsDir() {
			continue
		}
		b.logger.Info("the deletion of a replica is finished", "dir", entry.Name())
		b.removals.add(removal{name: entry.Name(), topic: topic, id: id})
	}
	return nil
}
