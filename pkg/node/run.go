package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"

	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
	"github.com/highwater-io/highwater/pkg/wire"
)

// errComeBack ends a node that another one in the same process follows: its data directory can be used again.
var errComeBack = errors.New("the data directory can be used again: the node opens it anew")

// Run runs a node until ctx ends, and then stops it in order: leaders move away, logs are closed, the directory is
// marked clean. It returns early, with the reason, when the node can't go on: a *VolumeError when the volume is not
// the one that it should be.
//
// A directory that fails is no reason to end: with the data directory offline a voter votes on, and where nothing is
// left to do the process waits, alive but not ready, until the disk has room or takes writes again. What follows
// then is a start like any other, with an incarnation of its own and a recovery of the logs.
func Run(ctx context.Context, cfg Config, logger *slog.Logger) error {
	return runOn(ctx, cfg, logger, vfs.OS())
}

func runOn(ctx context.Context, cfg Config, logger *slog.Logger, disk vfs.FS) error {
	backoff := newProbeBackoff(cfg.Timing.DirProbeInterval)
	var lost *logDirFailure // a later life must not open what an earlier one lost: see wait
	for {
		n, err := newNode(cfg, logger, disk, backoff)
		if err != nil {
			return err
		}
		if lost != nil {
			n.dataDir.inherit(lost)
		}
		err = n.run(ctx)
		if n.dataDir.lost() {
			lost = n.dataDir.offline()
		}
		switch {
		case ctx.Err() != nil:
			return err
		case errors.Is(err, errComeBack):
			continue
		case n.blockedBy() == nil:
			return err
		}
		if err := n.wait(ctx, n.blockedBy()); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// run is one life of the node.
func (n *Node) run(ctx context.Context) error {
	var err error
	if n.hosts, err = wire.OpenHostTable(n.cfg.HostsFile); err != nil {
		return fmt.Errorf("--hosts-file: %w", err)
	}
	n.applyHostTable()
	unlock, err := n.openVolumes()
	if err != nil {
		var volume *VolumeError
		if errors.As(err, &volume) {
			reportVolume(n.cfg.TerminationLog, volume)
		}
		return err
	}
	defer unlock()
	if n.cfg.Voter && n.metadataDir.offline() == nil {
		if err := n.formatVoter(); err != nil {
			return err
		}
	}
	n.facts.opened(n.cfg.DirectoryID)
	if n.cfg.Voter && n.cfg.AwaitWithdrawal {
		if withdrawn, err := n.awaitWithdrawal(ctx); !withdrawn {
			return err
		}
	}
	if err := n.open(); err != nil {
		return errors.Join(err, n.close())
	}
	n.opened = true
	return n.serve(ctx)
}

// blockedBy is the directory without which the node can't go on, nil when there is none.
func (n *Node) blockedBy() *logDir {
	switch {
	case n.metadataDir.offline() != nil:
		return n.metadataDir
	case !n.opened && n.dataDir.offline() != nil:
		return n.dataDir
	}
	return nil
}

// openVolumes locks and checks the directories. One that is full or read-only is offline from the start. The data
// directory then waits for its return while the node does what it can without; without the metadata directory it
// can do nothing.
func (n *Node) openVolumes() (unlock func(), err error) {
	locks := &dirLocks{fs: n.fs}
	if err := n.openVolume(locks, n.metadataDir); err != nil {
		locks.release()
		return nil, err
	}
	if err := n.openVolume(locks, n.dataDir); err != nil {
		// Only with a directory that is known to be its own may a node register: the permit to format it is gone then.
		found, readErr := log.ReadMetaProperties(n.fs, n.dataDir.path)
		if readErr == nil {
			readErr = checkIdentity(n.dataDir.path, found, &n.cfg)
		}
		if n.dataDir.offline() == nil || readErr != nil {
			locks.release()
			return nil, err
		}
	}
	n.dataDir.minFreeBytes = keptFree(n.fs, n.dataDir.path, n.cfg.MinFreeBytes)
	if n.cfg.Data && n.dataDir.offline() == nil {
		if err := n.dataDir.takeRoom(n.dataDir.path, 0); err != nil {
			_ = n.dataDir.fail(vfs.OpWrite, err)
		}
	}
	return locks.release, nil
}

func (n *Node) openVolume(locks *dirLocks, d *logDir) error {
	err := n.fs.MkdirAll(d.path, 0o755)
	if err == nil {
		// What the directory will hold is durable only if the directory itself is.
		err = n.fs.SyncDir(filepath.Dir(d.path))
	}
	if err == nil {
		err = locks.take(d.path)
	}
	if err == nil {
		err = openVolume(n.fs, d.path, &n.cfg)
	}
	var refused *VolumeError
	switch {
	case err == nil, errors.As(err, &refused), errors.Is(err, errLocked):
		return err
	}
	// Full or read-only, it may come back; anything else is not the volume of a node that can start.
	if failure := (&logDirFailure{reason: offlineReason("", err)}); failure.comesBack() {
		return d.fail("", err)
	}
	return &VolumeError{VolumeUnreadable, fmt.Sprintf("%s can't be opened: %v; check the volume and who may write to it, or replace the node", d.path, err)}
}

// watchDataDir ends this life of the node when its data directory can be used again.
func (n *Node) watchDataDir(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-n.dataDir.down:
	}
	told := n.dataDir.offline() // by the broker
	if n.backoff.await(ctx, n.stillOffline, n.dataDir) {
		n.logger.Info("the data directory can be used again", "dir", n.dataDir.path)
		n.stop(errComeBack)
	} else {
		n.tellWorse(ctx, n.dataDir, told)
	}
}

// tellWorse tells that a directory of which people know that it is full or read-only is broken besides.
func (n *Node) tellWorse(ctx context.Context, d *logDir, told *logDirFailure) {
	if now := d.offline(); ctx.Err() == nil && now != told {
		tellOffline(n.logger, n.facts, n.cfg.NodeID, now)
	}
}

func (n *Node) stillOffline(err error) {
	n.logger.Info("a directory is still offline", "error", err)
}

// wait is what a node does that is not running, for want of a directory: it answers its probes, shows its
// metrics and what happened, and comes back when it can. After an I/O error it never does: a start would take for
// written what the page cache holds, and a voter that forgets what it promised is worse than one that is missing.
func (n *Node) wait(ctx context.Context, dir *logDir) error {
	told := dir.offline()
	tellOffline(n.logger, n.facts, n.cfg.NodeID, told)
	metrics := newMetrics()
	metrics.registry.MustRegister(logDirCollector{dir})
	listener, err := net.Listen("tcp", n.cfg.HTTPListener)
	if err != nil {
		return fmt.Errorf("--listener-http: %w", err)
	}
	serving, cancel := context.WithCancel(ctx)
	defer n.running.Wait()
	defer cancel()
	server := newHTTPServer(n.live, func() error { return dir.offline() }, n.facts, metrics.registry)
	n.running.Go(func() {
		if err := server.serve(serving, listener); err != nil {
			n.logger.Error("probes can't be answered", "error", err)
		}
	})
	if !n.backoff.await(ctx, n.stillOffline, dir) {
		n.tellWorse(ctx, dir, told)
		<-ctx.Done()
		return nil
	}
	n.logger.Info("the directories can be used again: the node starts anew", "dir", dir.path)
	return nil
}
