package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// snapshotLimits are the snapshotter's limits. The file that all nodes share is read again now and then, as Kubernetes
// brings a changed ConfigMap into a pod that runs: another threshold is no reason for a restart.
type snapshotLimits struct {
	file   string // empty: what the node was started with is all
	logger *slog.Logger
	now    atomic.Pointer[Snapshots]
	read   []byte // what the file had when it was last looked at
}

// snapshotLimitsInterval is how often the file is looked at.
const snapshotLimitsInterval = 15 * time.Second

func newSnapshotLimits(cfg *Config, logger *slog.Logger) *snapshotLimits {
	l := &snapshotLimits{file: cfg.SharedFile, logger: logger}
	limits := cfg.Shared.Snapshots.withDefaults()
	l.now.Store(&limits)
	return l
}

// run follows the file until ctx ends.
func (l *snapshotLimits) run(ctx context.Context) {
	if l.file == "" {
		return
	}
	for {
		l.look()
		select {
		case <-ctx.Done():
			return
		case <-time.After(snapshotLimitsInterval):
		}
	}
}

// look takes what the file says. What can't be read leaves the limits as they are, and is told once for each content.
func (l *snapshotLimits) look() {
	raw, err := os.ReadFile(l.file)
	if err != nil || bytes.Equal(raw, l.read) {
		return // it may be on its way; a node that starts without it says so
	}
	l.read = raw
	shared, err := LoadSharedConfig(l.file)
	if err == nil {
		err = shared.Snapshots.validate()
	}
	if err != nil {
		l.logger.Warn("the changed configuration can't be used; metadata snapshots are taken as before", "error", err)
		return
	}
	if limits := shared.Snapshots.withDefaults(); limits != *l.now.Load() {
		l.now.Store(&limits)
		l.logger.Info("metadata snapshots are taken by other limits", "maxNewBytes", limits.MaxNewBytes, "maxInterval", time.Duration(limits.MaxInterval),
			"retentionBytes", limits.RetentionBytes, "retentionAge", time.Duration(limits.RetentionAge))
	}
}

// validate says what is wrong with the limits.
func (s Snapshots) validate() error {
	if s.MaxNewBytes < 0 || s.MaxInterval < 0 || s.RetentionBytes < 0 || s.RetentionAge < 0 {
		return errors.New("snapshots: maxNewBytes, maxInterval, retentionBytes and retentionAge must not be negative")
	}
	return nil
}
