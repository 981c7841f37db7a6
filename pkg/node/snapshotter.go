package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
)

// snapshotter takes snapshots of the metadata state of this node, beside everything else: after so many bytes of new
// metadata, or so long after the last one when there is something new (KIP-630, KIP-876). Each node takes its own.
type snapshotter struct {
	node   *Node
	limits *snapshotLimits
	jobs   chan exec.State
	busy   atomic.Bool

	// What the publisher has applied since the last snapshot, and when that was.
	bytes int64
	since time.Time
}

func newSnapshotter(n *Node) *snapshotter {
	return &snapshotter{node: n, limits: newSnapshotLimits(&n.cfg, n.logger), jobs: make(chan exec.State, 1), since: time.Now()}
}

// applied is told by the publisher of each piece of the log that it applied.
func (s *snapshotter) applied(bytes int) { s.bytes += int64(bytes) }

// restarted is told when the state was replaced by a snapshot.
func (s *snapshotter) restarted() { s.bytes, s.since = 0, time.Now() }

// due says whether it is time for a snapshot, or the disk has damaged the last one.
func (s *snapshotter) due() bool {
	limits := s.limits.now.Load()
	return s.bytes >= limits.MaxNewBytes || s.bytes > 0 && time.Since(s.since) >= time.Duration(limits.MaxInterval) || s.node.quorum.snapshotWanted.Load()
}

// consider takes a snapshot if it is due. The image has to stand at a batch's end outside of a transaction.
func (s *snapshotter) consider(loader *metadata.Loader) {
	if !s.due() || loader.InTransaction() || !s.busy.CompareAndSwap(false, true) {
		return
	}
	s.restarted()
	s.jobs <- exec.State{Image: loader.Image(), TimestampMs: loader.Timestamp()}
}

// run writes the snapshots until ctx ends.
func (s *snapshotter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case state := <-s.jobs:
			s.take(state)
			s.busy.Store(false)
		}
	}
}

func (s *snapshotter) take(state exec.State) {
	q := s.node.quorum
	q.mu.Lock()
	pending := q.exec.BeginSnapshot(state)
	q.mu.Unlock()
	if pending == nil {
		return
	}
	limits := s.limits.now.Load()
	began := time.Now()
	err := pending.Write()
	q.do(func(now ident.Instant) error {
		return q.exec.EndSnapshot(now, pending, err, exec.SnapshotLimits{
			Bytes:    limits.RetentionBytes,
			OldestMs: time.Now().Add(-time.Duration(limits.RetentionAge)).UnixMilli(),
		})
	})
	if err != nil {
		s.node.metrics.snapshots.failures.Inc()
		return // the quorum has stopped the node, and says why
	}
	took := time.Since(began)
	s.node.metrics.snapshots.seconds.Observe(took.Seconds())
	s.node.logger.Info("metadata snapshot taken", "id", pending.ID().String(), "bytes", pending.Size(), "took", took)
}
