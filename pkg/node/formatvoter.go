package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
)

// permitPoll is how often a voter looks whether its permit to format was withdrawn.
const permitPoll = 100 * time.Millisecond

// formatVoter gives a voter's metadata log its 0-0 checkpoint: one of the first voters gets the first voter set, one
// that joins a quorum gets none and learns from the log when it is a voter. It needs the permit: a voter whose metadata
// directory was emptied has forgotten whom it voted for. A data node that becomes a voter has followed the log already
// and has a vote file, which nobody ever asked for a vote.
func (n *Node) formatVoter() error {
	dir := n.metadataLogDir()
	exists := func(name string) (bool, error) {
		_, err := n.metadataDir.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	if there, err := exists(metadata.BootstrapID.FileName()); there || err != nil {
		return err
	}
	first, err := configuredVoters(slices.DeleteFunc(slices.Clone(n.cfg.Shared.Voters), func(v VoterConfig) bool { return v.Joins }))
	if err != nil {
		return err
	}
	isFirst := first.Has(n.self())
	observed, err := exists(exec.QuorumStateFile)
	if err != nil {
		return err
	}
	if isFirst || !observed {
		permitted, err := formatPermit(n.cfg.FormatPermitFile)
		if err == nil && permitted != n.cfg.DirectoryID {
			err = errors.New("no permit to format it")
		}
		if err != nil {
			lost := &VolumeError{VolumeLost, fmt.Sprintf("the metadata directory %s is gone: %v; this voter must be removed and join again under a new directory id", dir, err)}
			reportVolume(n.cfg.TerminationLog, lost)
			return lost
		}
	}
	now := time.Now().UnixMilli()
	if isFirst {
		return exec.FormatQuorum(n.metadataDir, dir, first, now)
	}
	return exec.FormatJoiner(n.metadataDir, dir, now)
}

// awaitWithdrawal holds a formatted voter back while its permit stands. With a permit, the loss of the volume would go
// unnoticed: the next start would format it again under the same identity, and the voter would have forgotten its votes
// and what it said that it holds. So it gives no vote and counts for nothing before that can't happen any more. It
// answers its probes meanwhile, alive and not ready, and tells at /facts which directory it has formatted. False means
// that ctx ended.
func (n *Node) awaitWithdrawal(ctx context.Context) (bool, error) {
	held := func() error {
		permitted, err := formatPermit(n.cfg.FormatPermitFile)
		if err == nil && permitted == n.cfg.DirectoryID {
			err = fmt.Errorf("directory %s is formatted; this voter takes part when its permit to format it is withdrawn (%s)", n.cfg.DirectoryID, n.cfg.FormatPermitFile)
		}
		return err
	}
	why := held()
	if why == nil {
		return true, nil
	}
	n.logger.Info("waiting for the permit to be withdrawn", "reason", why)
	listener, err := net.Listen("tcp", n.cfg.HTTPListener)
	if err != nil {
		return false, fmt.Errorf("--listener-http: %w", err)
	}
	serving, cancel := context.WithCancel(ctx)
	defer n.running.Wait()
	defer cancel()
	notReady := func() error { return cmp.Or(held(), errors.New("the node is starting")) }
	server := newHTTPServer(n.live, notReady, n.facts, n.metrics.registry)
	n.running.Go(func() {
		if err := server.serve(serving, listener); err != nil {
			n.logger.Error("probes can't be answered", "error", err)
		}
	})
	ticker := time.NewTicker(permitPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-ticker.C:
		}
		if held() == nil {
			return true, nil
		}
	}
}
