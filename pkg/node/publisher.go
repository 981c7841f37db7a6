package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// publisher follows the committed metadata log of this node and hands every new image to those who act on it: the
// broker, and the controller, to which it also tells when it leads.
type publisher struct {
	node   *Node
	loader *metadata.Loader
	// replaced says that a snapshot took the place of what was handed out last.
	replaced bool
	kick     chan struct{}

	latest  atomic.Pointer[metadata.Image]
	applied atomic.Int64 // when the last record of it was appended, in ms since 1970
	leading atomic.Pointer[raft.EpochStart]

	// For the broker, which opens and closes logs by what it is told and may take its time.
	mu         sync.Mutex
	changes    []change
	brokerKick chan struct{}
}

// change is an image and what is new in it.
type change struct {
	delta *metadata.Delta
	image *metadata.Image
}

func newPublisher(n *Node) *publisher {
	p := &publisher{node: n, loader: metadata.NewLoader(metadata.Empty(), -1), kick: make(chan struct{}, 1), brokerKick: make(chan struct{}, 1)}
	p.latest.Store(metadata.Empty())
	return p
}

// image is the newest committed image.
func (p *publisher) image() *metadata.Image { return p.latest.Load() }

// wake has the publisher look at the log: the high watermark moved.
func (p *publisher) wake() { wakeUp(p.kick) }

// lead notes that this node's raft leads; the controller is told once everything below has been applied.
func (p *publisher) lead(start raft.EpochStart) {
	p.leading.Store(&start)
	p.wake()
}

func (p *publisher) run(ctx context.Context) {
	for {
		p.node.metrics.turns.publisher.Inc()
		if err := p.publish(); err != nil {
			p.node.stop(fmt.Errorf("the metadata log can't be followed: %w", err))
			return
		}
		if !kicked(ctx, p.kick) {
			return
		}
	}
}

// publish applies what was committed since the last time.
func (p *publisher) publish() error {
	highWatermark := p.node.quorum.highWatermark()
	for p.loader.NextOffset() < highWatermark {
		state, raw, err := p.node.quorum.readCommitted(p.loader.NextOffset())
		if err != nil {
			return err
		}
		if state != nil {
			p.loader, p.replaced = metadata.NewLoader(state.Image, state.TimestampMs), true
			p.node.snapshotter.restarted()
			p.node.metrics.snapshots.loads.Inc()
			continue
		}
		p.node.snapshotter.applied(len(raw))
		before := p.loader.NextOffset()
		for b, err := range metadata.ReadBatches(raw) {
			if err == nil {
				err = p.loader.Load(b)
			}
			if err != nil {
				return err
			}
		}
		if p.loader.NextOffset() == before {
			return errors.New("the log ends below its high watermark")
		}
	}
	p.hand(highWatermark)
	p.node.snapshotter.consider(p.loader)
	return nil
}

// hand tells the controller first, and never waits for the broker: the cluster's answers must not wait for the logs
// of one node.
func (p *publisher) hand(highWatermark ident.Offset) {
	n := p.node
	old := p.latest.Load()
	before, _ := old.Position()
	delta, image := p.loader.Publish()
	if p.replaced {
		delta, p.replaced = metadata.Compare(old, image), false
	}
	if n.controller != nil {
		if start := p.leading.Load(); start != nil && start.Start < highWatermark && p.leading.CompareAndSwap(start, nil) {
			n.controller.becomeLeader(start.Epoch, image, highWatermark, p.loader.InTransaction())
		}
		n.controller.committed(highWatermark)
	}
	if after, _ := image.Position(); after == before {
		return
	}
	p.latest.Store(image)
	p.applied.Store(p.loader.Timestamp())
	if n.installs.underWay() {
		n.installs.wake()
	}
	if n.broker != nil {
		p.mu.Lock()
		p.changes = append(p.changes, change{delta, image})
		p.mu.Unlock()
		wakeUp(p.brokerKick)
	}
}

// runBroker hands the changes to the broker, each and in order.
func (p *publisher) runBroker(ctx context.Context) {
	for kicked(ctx, p.brokerKick) {
		p.mu.Lock()
		changes := p.changes
		p.changes = nil
		p.mu.Unlock()
		for _, c := range changes {
			started := time.Now()
			p.node.broker.metadataChanged(c.delta, c.image)
			if took := time.Since(started); took > time.Second {
				offset, _ := c.image.Position()
				p.node.logger.Warn("following a metadata change took long", "took", took, "offset", offset)
			}
			if ctx.Err() != nil {
				return
			}
		}
	}
}
