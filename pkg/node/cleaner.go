package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/node/exec"
)

// DefaultCleaner is what nodes run with: the map is Kafka's (log.cleaner.dedupe.buffer.size), the pace leaves most of an
// ordinary disk to the data path.
const (
	DefaultCleanerMapBytes = 128 << 20
	DefaultCleanerIOBytes  = 64 << 20
)

// uncleanableRetry is how long a log that could not be compacted is left alone.
const uncleanableRetry = 5 * time.Minute

// cleaner compacts the logs of topics with cleanup.policy=compact, one after the other, the dirtiest first. It has one
// goroutine, and reads and writes no more than so many bytes in a second. A log that can't be compacted is left alone
// for a while; the others go on.
type cleaner struct {
	broker  *broker
	metrics *cleanerMetrics
	options log.CleanOptions
	rate    int64     // bytes in a second; 0 is no limit
	free    time.Time // when what was read and written is paid for

	mu          sync.Mutex
	uncleanable map[ident.TopicPartition]time.Time // since when
	maxRatio    float64
	lastRun     time.Time
}

func newCleaner(b *broker) *cleaner {
	mapBytes := b.cfg.CleanerMapBytes
	if mapBytes == 0 {
		mapBytes = DefaultCleanerMapBytes
	}
	c := &cleaner{
		broker: b, rate: b.cfg.CleanerIOBytes, uncleanable: map[ident.TopicPartition]time.Time{}, lastRun: time.Now(),
		options: log.CleanOptions{Map: log.NewOffsetMap(mapBytes), MinFreeBytes: b.dir.minFreeBytes},
	}
	c.metrics = newCleanerMetrics(c)
	return c
}

// run compacts until ctx ends.
func (c *cleaner) run(ctx context.Context) {
	c.options.Pace = func(bytes int) error { return c.pace(ctx, bytes) }
	every(ctx, c.broker.cfg.Timing.CleanerInterval, func() {
		for ctx.Err() == nil && c.cleanDirtiest() {
		}
	})
}

// pace waits until what has been read and written so far is within the rate.
func (c *cleaner) pace(ctx context.Context, bytes int) error {
	if c.rate > 0 {
		now := time.Now()
		if c.free.Before(now) {
			c.free = now
		}
		c.free = c.free.Add(time.Duration(float64(bytes) / float64(c.rate) * float64(time.Second)))
		timer := time.NewTimer(c.free.Sub(now))
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	if ctx.Err() != nil {
		return log.ErrCleanStopped
	}
	return nil
}

// cleanDirtiest compacts the log that needs it most. It says whether there was one and it came to something, so that
// looking for another is worth it.
func (c *cleaner) cleanDirtiest() bool {
	if c.broker.dir.offline() != nil {
		return false
	}
	r := c.dirtiest(time.Now())
	return r != nil && c.clean(r)
}

// dirtiest is the log with the largest dirty part among those where it exceeds min.cleanable.dirty.ratio; before them
// come those that max.compaction.lag.ms wants.
func (c *cleaner) dirtiest(now time.Time) *replica {
	var best *replica
	var bestState log.CleanState
	maxRatio := 0.0
	hosted := map[ident.TopicPartition]bool{}
	c.broker.eachReplica(func(r *replica) {
		hosted[r.id] = true
		if c.isUncleanable(r.id, now) {
			return
		}
		var state log.CleanState
		var minRatio float64
		var ok bool
		var err error
		r.do(func(at ident.Instant, p *exec.Partition) {
			state, ok, err = p.CleanState(at, now.UnixMilli())
			minRatio = p.Log().Settings().Compaction.MinDirtyRatio
		})
		if err != nil {
			c.markUncleanable(r, err)
		}
		if !ok || state.DirtyBytes == 0 {
			return
		}
		maxRatio = max(maxRatio, state.Ratio())
		if !state.Overdue && state.Ratio() <= minRatio {
			return
		}
		if best == nil || state.Overdue && !bestState.Overdue || state.Overdue == bestState.Overdue && state.Ratio() > bestState.Ratio() {
			best, bestState = r, state
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.maxRatio = maxRatio
	for id := range c.uncleanable {
		if !hosted[id] {
			delete(c.uncleanable, id)
		}
	}
	return best
}

// clean compacts one log and says whether that was done.
func (c *cleaner) clean(r *replica) bool {
	began := time.Now()
	var run *log.Clean
	var err error
	r.do(func(at ident.Instant, p *exec.Partition) { run, err = p.BeginClean(at, began.UnixMilli(), c.options) })
	if err != nil {
		c.markUncleanable(r, err)
	}
	if run == nil {
		return false
	}
	runErr := run.Run()
	var done bool
	r.whole(func(at ident.Instant, p *exec.Partition) { done, err = p.EndClean(at, run, runErr) })
	c.metrics.ran(run.Stats, done, err, time.Since(began))
	logger := c.broker.logger.With("topic", r.topic, "index", r.id.Index)
	switch {
	case errors.Is(err, log.ErrCleanStopped), errors.Is(err, log.ErrClosed):
		return false
	case err != nil:
		c.markUncleanable(r, err)
		return false
	case !done:
		logger.Info("a compaction was given up: the log changed meanwhile")
		return false
	}
	c.mu.Lock()
	c.lastRun = time.Now()
	delete(c.uncleanable, r.id)
	c.mu.Unlock()
	s := run.Stats
	logger.Info("log compacted", "from", s.From, "to", s.To, "records", s.Records, "removed", s.Removed, "keyless", s.Keyless,
		"segments", fmt.Sprintf("%d to %d", s.SegmentsBefore, s.SegmentsAfter), "bytes", fmt.Sprintf("%d to %d", s.BytesBefore, s.BytesAfter),
		"written", s.BytesWritten, "undecodableBatches", s.Undecodable, "mapFull", s.MapFull, "took", time.Since(began).Round(time.Millisecond))
	return true
}

func (c *cleaner) isUncleanable(id ident.TopicPartition, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, ok := c.uncleanable[id]
	return ok && now.Sub(since) < uncleanableRetry
}

// markUncleanable leaves a log alone for a while. The others must not wait for it.
func (c *cleaner) markUncleanable(r *replica, err error) {
	c.broker.logger.Error("a log can't be compacted and grows meanwhile", "topic", r.topic, "index", r.id.Index, "error", err, "nextTry", uncleanableRetry)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uncleanable[r.id] = time.Now()
}
