package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/replication"
)

// opening is a replica whose log is being opened.
type opening struct {
	topic string
	id    ident.TopicPartition
	dir   string
	first bool  // one of those that the node waits for before it asks to be unfenced
	bytes int64 // that a recovery will read, as far as the sizes of the files tell
}

// openings opens logs, a few at a time (num.recovery.threads.per.data.dir), in goroutines that live as long as there
// are any to be opened. Nothing else waits for it: after an unclean stop a log may have to be read for minutes.
// Meanwhile metadata is followed; a replica that is not wanted any more goes as soon as it is open.
type openings struct {
	broker   *broker
	progress *recoveryProgress
	ctx      context.Context
	cancel   context.CancelFunc
	working  sync.WaitGroup

	// Guarded by broker.applying. The directory names the opening: a topic that is deleted and made again under the
	// same name waits for it.
	underWay map[string]*opening
	waiting  int  // of the first ones
	allFirst bool // they have all been named

	mu      sync.Mutex
	queue   []*opening
	workers int
}

func newOpenings(b *broker) *openings {
	ctx, cancel := context.WithCancel(context.Background())
	return &openings{broker: b, progress: newRecoveryProgress(), ctx: ctx, cancel: cancel, underWay: map[string]*opening{}}
}

// stop ends the workers, in the middle of a recovery too. Nothing may be opened any more.
func (q *openings) stop() {
	q.cancel()
	q.working.Wait()
}

// open has a partition's log opened, or created. broker.applying is held.
func (q *openings) open(topic string, id ident.TopicPartition) {
	o := &opening{topic: topic, id: id, dir: filepath.Join(q.broker.cfg.DataDir, log.DirName(topic, id.Index))}
	if q.underWay[o.dir] != nil {
		return // opened looks at what metadata says then
	}
	q.underWay[o.dir] = o
	if !q.allFirst {
		o.first = true
		q.waiting++
		return // startFirst
	}
	q.enqueue(o)
}

// occupy has openings of the directory wait; whoever frees it looks at what metadata says then. broker.applying is held.
func (q *openings) occupy(topic string, id ident.TopicPartition, dir string) {
	q.underWay[dir] = &opening{topic: topic, id: id, dir: dir}
}

// startFirst begins with the logs that are there when the node starts. After an unclean stop it measures first what
// is to be read, and takes the largest first, so that the last one does not keep everybody waiting. broker.applying
// is held.
func (q *openings) startFirst() {
	q.allFirst = true
	var first []*opening
	for _, o := range q.underWay {
		first = append(first, o)
	}
	if len(first) == 0 {
		return
	}
	q.working.Go(func() {
		q.measure(first)
		slices.SortFunc(first, func(a, b *opening) int {
			return cmp.Or(-cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.dir, b.dir))
		})
		q.enqueue(first...)
	})
}

func (q *openings) measure(first []*opening) {
	b := q.broker
	if b.cleanStart {
		q.progress.begin(len(first), 0)
		return
	}
	var total int64
	for _, o := range first {
		// Whatever is wrong with the files, opening the log will tell.
		o.bytes, _ = log.RecoveryBytes(b.dir, o.dir, b.checkpoints.recoveryPoint(o.topic, o.id.Index))
		total += o.bytes
	}
	q.progress.begin(len(first), total)
	if total > 0 {
		b.logger.Info("recovering the logs after an unclean stop", "logs", len(first), "bytes", total, "threads", b.cfg.RecoveryThreads)
	}
}

// firstDone says whether all logs are open that the node had to open when it started. broker.applying is held.
func (q *openings) firstDone() bool { return q.allFirst && q.waiting == 0 }

func (q *openings) enqueue(list ...*opening) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, list...)
	for q.workers < min(len(q.queue), max(1, q.broker.cfg.RecoveryThreads)) && q.ctx.Err() == nil {
		q.workers++
		q.working.Go(q.work)
	}
}

func (q *openings) next() *opening {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 || q.ctx.Err() != nil {
		q.workers--
		return nil
	}
	o := q.queue[0]
	q.queue = q.queue[1:]
	return o
}

func (q *openings) work() {
	for o := q.next(); o != nil; o = q.next() {
		var scanned int64
		var r *replica
		err := errOffline
		if q.broker.dir.offline() == nil {
			r, err = q.broker.openReplica(o, func(bytes int64) error {
				scanned += bytes
				q.progress.scanned(bytes)
				return q.ctx.Err()
			})
		}
		if q.ctx.Err() != nil && r == nil {
			return
		}
		if o.first {
			q.progress.done(o.bytes - scanned)
		}
		q.broker.opened(o, r, err)
	}
}

// errOffline says that nothing is opened in a directory that is offline.
var errOffline = errors.New("the data directory is offline")

// opened takes over a replica whose log is open, or why it can't be opened, and does what metadata says by now.
func (b *broker) opened(o *opening, r *replica, err error) {
	b.applying.Lock()
	defer b.applying.Unlock()
	q := b.openings
	delete(q.underWay, o.dir)
	if o.first {
		q.waiting--
	}
	image := b.image()
	switch {
	case r != nil:
		b.replicas.Store(o.id, r)
		if failure := b.dir.offline(); failure != nil {
			r.failDir(failure) // that may have happened meanwhile, and not have found it
		}
	case errors.Is(err, errOffline):
	default:
		b.takeOffline(fmt.Errorf("open the replica %s-%d: %w", o.topic, o.id.Index, err))
	}
	b.applyDirectory(image, o.topic, o.id)
	if r == nil {
		b.removeUnopened(image, o.topic, o.id)
	}
	if o.first && q.firstDone() {
		b.firstOpened(image)
	}
}

// applyDirectory does what the image says of a partition, and of another one of its name, whose directory was in use.
// broker.applying is held.
func (b *broker) applyDirectory(image *metadata.Image, topic string, id ident.TopicPartition) {
	b.applyPartition(image, id)
	if namesake, ok := image.Topic(topic); ok && namesake.ID != id.Topic {
		if _, ok := namesake.Partition(id.Index); ok {
			b.applyPartition(image, ident.TopicPartition{Topic: namesake.ID, Index: id.Index})
		}
	}
}

// firstOpened goes on when the logs are open that were there at the start. broker.applying is held.
func (b *broker) firstOpened(image *metadata.Image) {
	if logs, bytes, took := b.openings.progress.end(); bytes > 0 && b.dir.offline() == nil {
		b.logger.Info("the logs are recovered", "logs", logs, "bytes", bytes, "took", took.Round(time.Millisecond))
	}
	b.clearStrays(image)
	b.lifecycle.metadataApplied(image, true)
}

// openReplica opens the partition's log, or creates it. A directory of the same name that belongs to another topic
// (one that was deleted while this node was down) is moved aside first.
func (b *broker) openReplica(o *opening, progress func(bytes int64) error) (*replica, error) {
	if err := b.claimDirectory(o); err != nil {
		return nil, err
	}
	values, _ := b.defaults.Values(b.image().Config(metadata.ResourceTopic, o.topic).Get)
	recoveryPoint, known := b.checkpoints.recoveryPointOf(o.topic, o.id.Index)
	partition, recovery, err := exec.OpenPartition(exec.PartitionConfig{
		FS: b.dir, Dir: o.dir, Topic: o.topic, ID: o.id,
		Log: log.Config{
			Settings:             logSettings(values),
			WallMillis:           func() int64 { return time.Now().UnixMilli() },
			Files:                b.files,
			StartOffset:          b.checkpoints.logStart(o.topic, o.id.Index),
			RecoveryPoint:        recoveryPoint,
			ProducerExpirationMs: time.Duration(b.cfg.Shared.Defaults.ProducerIDExpiration).Milliseconds(),
			CleanOffset:          b.checkpoints.cleanOffset(o.topic, o.id.Index),
			// A clean stop leaves the recovery point of every log that it closed. One without was not open then, and
			// nobody knows how it was left.
			CleanShutdown: b.cleanStart && known,
			LowerCheckpoints: func(recoveryPoint, logStart ident.Offset) error {
				return b.checkpoints.lower(o.topic, o.id.Index, recoveryPoint, logStart)
			},
			Progress: progress,
		},
		Replication: replication.Config{
			Self: b.cfg.NodeID, LagTimeMax: time.Duration(b.cfg.Shared.Defaults.ReplicaLagTimeMax),
			HighWatermark: b.checkpoints.highWatermark(o.topic, o.id.Index),
		},
		Cluster: b, MaxMessageBytes: int(values.MaxMessageBytes), Flush: flushPolicy(values), FlushApart: true, ScrubApart: true,
		ChoresApart:         true,
		TimestampAfterMaxMs: values.TimestampAfterMaxMs,
	})
	if err != nil {
		return nil, err
	}
	if recovery.Repaired() {
		for _, repair := range recovery.Repairs {
			b.logger.Warn("log recovery", "topic", o.topic, "index", o.id.Index, "repair", repair)
		}
		b.facts.add(nodefact.Fact{
			Kind: nodefact.LogRecovered, Time: time.Now().UTC(), TopicID: o.id.Topic, Topic: o.topic, Index: o.id.Index,
			Replica: b.cfg.NodeID, Message: fmt.Sprint(recovery.Repairs),
		})
	}
	return newReplica(b, o.topic, o.dir, partition), nil
}
