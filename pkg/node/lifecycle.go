package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/wire"
)

// lifecycle registers the broker and keeps its session by heartbeats, as KIP-631 describes: it asks to stay
// fenced until this node has applied its own registration, and asks to be let go before it stops.
type lifecycle struct {
	broker        *broker
	previousEpoch int64 // of the clean stop before this start, -1 when it was not clean

	// installing says whether the node fetches a snapshot of the metadata, since its log is too far behind.
	installing func() bool

	kick chan struct{}
	// caughtUpOnce is closed when this node has applied its own registration for the first time.
	caughtUpOnce chan struct{}

	mu          sync.Mutex
	brokerEpoch int64
	fenced      bool
	applied     ident.Offset // up to where this node has applied metadata, exclusive
	registered  bool         // the image has this incarnation's registration
	caughtUp    bool         // and the logs are open
	stopping    bool
	released    chan struct{} // closed when the controller lets a stopping broker go
	lastError   error
}

func newLifecycle(b *broker, previousEpoch int64) *lifecycle {
	return &lifecycle{
		broker: b, previousEpoch: previousEpoch, installing: func() bool { return false }, kick: make(chan struct{}, 1), caughtUpOnce: make(chan struct{}),
		brokerEpoch: -1, fenced: true, released: make(chan struct{}),
	}
}

func (l *lifecycle) epoch() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.brokerEpoch
}

// wake has the next heartbeat sent at once.
func (l *lifecycle) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// metadataApplied is told of every image that the replicas follow, and again once the logs are open that were there
// at the start: until then the node heartbeats, and asks to stay fenced.
func (l *lifecycle) metadataApplied(image *metadata.Image, opened bool) {
	l.mu.Lock()
	offset, _ := image.Position()
	l.applied = offset + 1
	before := l.caughtUp
	registered, ok := image.Broker(l.broker.cfg.NodeID)
	l.registered = ok && registered.Incarnation == l.broker.incarnation
	l.caughtUp = l.registered && opened
	changed := l.caughtUp != before
	if l.caughtUp {
		select {
		case <-l.caughtUpOnce:
		default:
			close(l.caughtUpOnce)
		}
	}
	l.mu.Unlock()
	if changed {
		l.wake()
	}
}

// ready says why clients should not come here yet, nil when they may.
func (l *lifecycle) ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broker.dir.offline() != nil:
		return l.broker.dir.offline()
	case l.stopping:
		return errors.New("the node is shutting down")
	case l.brokerEpoch < 0:
		return fmt.Errorf("the broker is not registered yet: %w", orUnknown(l.lastError))
	case l.registered && !l.caughtUp:
		return fmt.Errorf("the logs are being opened: %s", l.broker.openings.progress)
	case !l.caughtUp:
		return errors.New("the broker has not applied its own registration yet")
	case l.fenced:
		return fmt.Errorf("the broker is fenced: %w", orUnknown(l.lastError))
	}
	return nil
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("no answer of the controller yet")
	}
	return err
}

// run registers and sends heartbeats until ctx ends.
func (l *lifecycle) run(ctx context.Context) {
	timing := l.broker.cfg.Timing
	for ctx.Err() == nil {
		_, changed := l.broker.controllers.current()
		var err error
		if l.epoch() < 0 {
			err = l.register(ctx)
		} else {
			err = l.heartbeat(ctx)
		}
		l.mu.Lock()
		if err != nil && (l.lastError == nil || l.lastError.Error() != err.Error()) {
			l.broker.logger.Info("the controller did not take the broker's session", "error", err)
		}
		l.lastError = err
		l.mu.Unlock()
		pause := timing.HeartbeatInterval
		if err != nil {
			pause = timing.RetryBackoff + rand.N(timing.RetryBackoff)
		}
		select {
		case <-ctx.Done():
		case <-l.kick:
		case <-changed:
		case <-time.After(pause):
		}
	}
}

func (l *lifecycle) register(ctx context.Context) error {
	b := l.broker
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID = int32(b.cfg.NodeID)
	req.ClusterID = b.cfg.Shared.ClusterID.String()
	req.IncarnationID = b.incarnation
	req.PreviousBrokerEpoch = l.previousEpoch
	req.LogDirs = [][16]byte{b.cfg.DirectoryID}
	if b.cfg.Rack != "" {
		req.Rack = &b.cfg.Rack
	}
	for _, listener := range []struct {
		name    wire.Listener
		address string
	}{{wire.External, b.cfg.AdvertisedExternal}, {wire.Internal, b.cfg.AdvertisedInternal}} {
		host, port, err := splitAddress(listener.address)
		if err != nil {
			return err
		}
		e := kmsg.NewBrokerRegistrationRequestListener()
		e.Name, e.Host, e.Port = string(listener.name), host, port
		req.Listeners = append(req.Listeners, e)
	}
	for _, f := range supportedFeatures() {
		feature := kmsg.NewBrokerRegistrationRequestFeature()
		feature.Name, feature.MinSupportedVersion, feature.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, feature)
	}
	answer, err := b.controllers.request(ctx, laneHeartbeat, req)
	if err != nil {
		return fmt.Errorf("registration: %w", err)
	}
	resp, ok := answer.(*kmsg.BrokerRegistrationResponse)
	if !ok {
		return errors.New("registration: the controller answered with something else")
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		if errors.Is(err, kerr.InconsistentClusterID) {
			b.stop(fmt.Errorf("the quorum belongs to another cluster than %s: %w", b.cfg.Shared.ClusterID, err))
		}
		return fmt.Errorf("registration: %w", err)
	}
	l.mu.Lock()
	l.brokerEpoch, l.fenced = resp.BrokerEpoch, true
	l.mu.Unlock()
	b.logger.Info("registered", "brokerEpoch", resp.BrokerEpoch)
	l.wake()
	return nil
}

// heartbeatRequest says where this broker stands and what it wants.
func (l *lifecycle) heartbeatRequest() *kmsg.BrokerHeartbeatRequest {
	b := l.broker
	offline, installing := b.dir.offline() != nil, l.installing()
	l.mu.Lock()
	defer l.mu.Unlock()
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch = int32(b.cfg.NodeID), l.brokerEpoch
	req.CurrentMetadataOffset = int64(l.applied) - 1
	req.WantShutdown = l.stopping
	// Without its only directory a node has nothing left to serve: fenced, it leads nothing and is in no ISR.
	req.WantFence = (!l.caughtUp || offline || installing) && !l.stopping
	if offline {
		req.OfflineLogDirs = [][16]byte{b.cfg.DirectoryID}
	}
	return req
}

func (l *lifecycle) heartbeat(ctx context.Context) error {
	b := l.broker
	req := l.heartbeatRequest()
	answer, err := b.controllers.request(ctx, laneHeartbeat, req)
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	resp, ok := answer.(*kmsg.BrokerHeartbeatResponse)
	if !ok {
		return errors.New("heartbeat: the controller answered with something else")
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		if errors.Is(err, kerr.StaleBrokerEpoch) || errors.Is(err, kerr.BrokerIDNotRegistered) {
			// Somebody unregistered this broker or registered it anew; only a new registration counts.
			l.mu.Lock()
			l.brokerEpoch, l.fenced = -1, true
			l.mu.Unlock()
		}
		return fmt.Errorf("heartbeat: %w", err)
	}
	l.mu.Lock()
	if l.fenced != resp.IsFenced {
		b.logger.Info("fencing changed", "fenced", resp.IsFenced)
	}
	l.fenced = resp.IsFenced
	release := l.stopping && resp.ShouldShutdown
	if release {
		select {
		case <-l.released:
		default:
			close(l.released)
		}
	}
	l.mu.Unlock()
	return nil
}

// leave asks the controller to move leadership away and waits until it lets this broker go, or until ctx ends.
func (l *lifecycle) leave(ctx context.Context) error {
	l.mu.Lock()
	l.stopping = true
	registered := l.brokerEpoch >= 0
	l.mu.Unlock()
	if !registered {
		return nil
	}
	l.wake()
	select {
	case <-l.released:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the controller did not let the broker go in time: %w", ctx.Err())
	}
}

// supportedFeatures are the feature levels that this build can work at.
func supportedFeatures() []wire.Feature {
	return []wire.Feature{
		{Name: metadata.FeatureMetadataVersion, Min: int16(minimumMetadataVersion), Max: int16(metadata.Pinned)},
		{Name: metadata.FeatureKRaft, Min: 0, Max: raft.KRaftVersion},
	}
}

// minimumMetadataVersion is 3.7-IV2: registrations name directories. The controller leads from there on.
const minimumMetadataVersion = 17
