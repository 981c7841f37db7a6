package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/highwater-io/highwater/internal/buildinfo"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
	"github.com/highwater-io/highwater/pkg/wire"
)

// Node is one running node. Run makes it, drives it and ends it.
type Node struct {
	cfg         Config
	logger      *slog.Logger
	clock       clock
	fs          vfs.FS
	dataDir     *logDir // of a data node
	metadataDir *logDir
	backoff     *probeBackoff
	opened      bool // what open makes is there
	incarnation ident.UUID
	hosts       *wire.HostTable
	dialer      *wire.Dialer
	metrics     *nodeMetrics
	facts       *factStream

	quorum      *quorum
	controllers *controllerChannel
	controller  *controllerLoop // of a voter
	broker      *broker         // of a data node
	publisher   *publisher
	snapshotter *snapshotter
	installs    *installs

	servers []*wire.Server
	running sync.WaitGroup

	fatalOnce sync.Once
	fatal     chan error
}

// newNode makes one on a file system. Nothing is opened yet.
func newNode(cfg Config, logger *slog.Logger, fsys vfs.FS, backoff *probeBackoff) (*Node, error) {
	n := &Node{
		cfg: cfg, logger: logger.With("node", cfg.NodeID), clock: newClock(), fs: fsys, backoff: backoff,
		metrics: newMetrics(), fatal: make(chan error, 1),
	}
	if _, err := rand.Read(n.incarnation[:]); err != nil {
		return nil, fmt.Errorf("drawing an incarnation id: %w", err)
	}
	n.facts = newFactStream(n.incarnation)
	n.metadataDir = newLogDir(fsys, cfg.MetadataDir, 0)
	n.dataDir = newLogDir(fsys, cfg.DataDir, cfg.MinFreeBytes)
	return n, nil
}

// open makes everything; nothing runs yet.
func (n *Node) open() error {
	var err error
	n.dialer = &wire.Dialer{
		Hosts: n.hosts, Timeout: n.cfg.Timing.RequestTimeout, ClientID: fmt.Sprintf("highwater-node-%d", n.cfg.NodeID),
		SoftwareName: "highwater-node", SoftwareVersion: softwareVersion(),
	}
	n.controllers = newControllerChannel(&wire.Pool{Dialer: n.dialer}, n.cfg.Timing.RequestTimeout)
	if n.installs, err = openInstalls(n, time.Now()); err != nil {
		return err
	}
	if n.quorum, err = openQuorum(n); err != nil {
		return err
	}
	if n.cfg.Voter {
		n.controller, err = newControllerLoop(n.cfg, n.logger, n.clock, n.quorum, binary.BigEndian.Uint64(n.incarnation[:8]))
		if err != nil {
			return err
		}
		n.controller.turned = n.metrics.turns.controller.Inc
	}
	if n.cfg.Data {
		n.broker, err = newBroker(n.cfg, n.logger, n.clock, n.dataDir, n.incarnation, n.controllers, n.dialer, n.facts, n.metrics, n.stop)
		if err != nil {
			return err
		}
	}
	n.publisher = newPublisher(n)
	n.snapshotter = newSnapshotter(n)
	n.metrics.registry.MustRegister(quorumCollector{n.quorum, n.publisher})
	if n.broker != nil {
		n.broker.lifecycle.installing = n.installing
	}
	return nil
}

// installing says whether this node is on its way to a state that its metadata log no longer tells, and has not yet
// applied what was committed when that began. It asks to stay fenced meanwhile.
func (n *Node) installing() bool {
	install := n.quorum.install()
	applied, _ := n.publisher.image().Position()
	return install.Active || applied+1 < max(install.Target, n.installs.target())
}

// applyHostTable lets the local runtime's table override where the listeners bind and what they advertise.
func (n *Node) applyHostTable() {
	for _, l := range []struct {
		listener          wire.Listener
		bind, advertiseAs *string
	}{
		{wire.Controller, &n.cfg.ControllerListener, &n.cfg.AdvertisedController},
		{wire.Internal, &n.cfg.InternalListener, &n.cfg.AdvertisedInternal},
		{wire.External, &n.cfg.ExternalListener, &n.cfg.AdvertisedExternal},
		{wire.HTTP, &n.cfg.HTTPListener, new(string)},
	} {
		if address, ok := n.hosts.Listen(l.listener); ok {
			*l.bind = address
		}
		if address, ok := n.hosts.Advertise(l.listener); ok {
			*l.advertiseAs = address
		}
	}
}

// softwareVersion is the build's version in the form that KIP-511 asks for.
func softwareVersion() string {
	version := []byte(buildinfo.Version)
	for i, c := range version {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-'
		if !letter {
			version[i] = '-'
		}
	}
	return string(version)
}

// stop ends the node for a reason that it can't go on with.
func (n *Node) stop(err error) {
	n.fatalOnce.Do(func() { n.fatal <- err })
}

// serve binds the listeners, runs the loops, and stops in order when ctx ends.
func (n *Node) serve(ctx context.Context) (err error) {
	// The loops outlive ctx: a controlled shutdown needs them.
	loops, cancel := context.WithCancel(context.Background())
	defer func() {
		cancel()
		n.closeServers() // they run among the loops
		n.running.Wait()
		err = errors.Join(err, n.close())
	}()
	started := make(chan struct{})
	if err := n.listen(loops, started); err != nil {
		return err
	}
	n.quorum.start(loops, &n.running)
	close(started)
	if n.controller != nil {
		n.running.Go(func() { n.controller.run(loops) })
	}
	n.running.Go(func() { n.publisher.run(loops) })
	n.running.Go(func() { n.snapshotter.run(loops) })
	n.running.Go(func() { n.snapshotter.limits.run(loops) })
	n.running.Go(func() { n.installs.run(loops, n) })
	if n.broker != nil {
		n.broker.start(loops, &n.running)
		n.running.Go(func() { n.publisher.runBroker(loops) })
		n.running.Go(func() { n.watchDataDir(loops) })
	}
	n.logger.Info("started", "version", buildinfo.Version, "voter", n.cfg.Voter, "data", n.cfg.Data, "cluster", n.cfg.Shared.ClusterID)

	select {
	case err := <-n.fatal:
		if !errors.Is(err, errComeBack) {
			n.logger.Error("the node stops because it can't go on", "error", err)
			n.closeServers()
			return err
		}
		leaving, done := context.WithTimeout(context.Background(), n.cfg.Timing.RequestTimeout)
		defer done()
		n.quorum.leave(leaving)
		n.drainServers()
		return err
	case <-ctx.Done():
	}
	n.logger.Info("stopping")
	stopping, done := context.WithTimeout(context.Background(), n.cfg.Timing.ShutdownTimeout)
	defer done()
	if n.broker != nil {
		if err := n.broker.lifecycle.leave(stopping); err != nil {
			n.logger.Warn("stopping without having handed leadership over", "error", err)
		}
	}
	n.quorum.leave(stopping)
	n.drainServers()
	return nil
}

// drainTimeout is how long clients get to receive the answers that are under way when a node stops.
const drainTimeout = time.Second

// drainServers takes no more requests and lets those under way be answered. What still waits then, a fetch above
// all, loses its connection.
func (n *Node) drainServers() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	var draining sync.WaitGroup
	for _, server := range n.servers {
		draining.Go(func() { _ = server.Shutdown(ctx) })
	}
	draining.Wait()
}

// listen binds every listener. Clients and peers of a broker are served once it has applied its own registration:
// before, it would deny topics that exist. Peers of a voter are served once its quorum has started.
func (n *Node) listen(ctx context.Context, started <-chan struct{}) error {
	http, err := net.Listen("tcp", n.cfg.HTTPListener)
	if err != nil {
		return fmt.Errorf("--listener-http: %w", err)
	}
	server := newHTTPServer(n.live, n.ready, n.facts, n.metrics.registry)
	n.running.Go(func() {
		if err := server.serve(ctx, http); err != nil {
			n.stop(err)
		}
	})
	if n.cfg.Voter {
		router := &controllerRouter{cfg: n.cfg, quorum: n.quorum, controller: n.controller}
		if err := n.listenKafka(ctx, wire.Controller, n.cfg.ControllerListener, router, started); err != nil {
			return err
		}
	}
	if n.cfg.Data {
		router := &brokerRouter{broker: n.broker, quorum: n.quorum}
		for listener, address := range map[wire.Listener]string{wire.Internal: n.cfg.InternalListener, wire.External: n.cfg.ExternalListener} {
			if err := n.listenKafka(ctx, listener, address, router, n.broker.lifecycle.caughtUpOnce); err != nil {
				return err
			}
		}
	}
	return nil
}

// listenKafka binds now and accepts once open is closed. Connections wait in the backlog until then.
func (n *Node) listenKafka(ctx context.Context, listener wire.Listener, address string, handler wire.Handler, open <-chan struct{}) error {
	server, err := wire.NewServer(wire.ServerConfig{
		Listener: listener, Handler: handler, Features: n.features, Log: n.logger,
		Metrics: listenerMetrics{n.metrics, string(listener)},
	})
	if err != nil {
		return err
	}
	bound, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listener %s: %w", listener, err)
	}
	n.servers = append(n.servers, server)
	n.running.Go(func() {
		select {
		case <-ctx.Done():
			_ = bound.Close()
			return
		case <-open:
		}
		if err := server.Serve(bound); !errors.Is(err, wire.ErrServerClosed) {
			n.stop(err)
		}
	})
	return nil
}

// features is what ApiVersions says: what this build can do and what the cluster's metadata has.
func (n *Node) features() wire.Features {
	image := n.publisher.image()
	offset, _ := image.Position()
	f := wire.Features{Supported: supportedFeatures(), FinalizedEpoch: int64(offset)}
	for name, level := range image.Features() {
		f.Finalized = append(f.Finalized, wire.Feature{Name: name, Min: level, Max: level})
	}
	if n.quorum.votersInLog() {
		f.Finalized = append(f.Finalized, wire.Feature{Name: metadata.FeatureKRaft, Min: raft.KRaftVersion, Max: raft.KRaftVersion})
	}
	return f
}

// live is about the process alone; a node that waits for its peers, installs or recovers is alive.
func (n *Node) live() error { return nil }

// ready says whether this member does its part. It asks no peer to be ready first.
func (n *Node) ready() error {
	if n.installing() {
		install := n.quorum.install()
		return fmt.Errorf("a snapshot of the metadata is being installed: %d of %d bytes are here", install.Bytes, install.Size)
	}
	if n.broker != nil {
		if err := n.broker.lifecycle.ready(); err != nil {
			return err
		}
	}
	if n.cfg.Voter && n.quorum.leader() == ident.NoNode {
		return errors.New("no leader of the metadata quorum is known")
	}
	return nil
}

func (n *Node) closeServers() {
	for _, server := range n.servers {
		server.Close()
	}
}

// close ends what open made. The loops have ended.
func (n *Node) close() error {
	var errs []error
	n.closeServers()
	if n.broker != nil {
		errs = append(errs, n.closeBroker())
	}
	if n.controllers != nil {
		n.controllers.pool.Close()
	}
	if n.quorum != nil {
		errs = append(errs, n.quorum.close())
	}
	return errors.Join(errs...)
}

// closeBroker closes the logs and leaves the mark that they were: the next start then scans nothing, and tells the
// controller that this replica lost nothing.
func (n *Node) closeBroker() error {
	b := n.broker
	b.fetchers.pool.Close()
	b.openings.stop()
	b.removals.stop()
	b.flusher.stop()
	b.maintenance.stop()
	if b.dir.offline() != nil {
		_ = b.closeAll() // the files; there is nothing to be said of what is in them
		b.replies.Wait()
		return nil
	}
	err := b.closeAll()
	b.replies.Wait() // closing has answered the last ones
	b.checkpoints.touch()
	if err := errors.Join(err, b.checkpoint()); err != nil {
		return fmt.Errorf("closing the logs in %s: %w", filepath.Base(n.cfg.DataDir), err)
	}
	if !b.cleanStart && !b.openings.firstDone() {
		// The logs were not closed in order before this start, and not all of them were opened since: nobody has
		// looked at the others yet.
		return nil
	}
	epoch := b.epoch()
	if epoch < 0 {
		epoch = b.lifecycle.previousEpoch // it was not registered since
	}
	return log.WriteCleanShutdown(b.dir, n.cfg.DataDir, epoch)
}
