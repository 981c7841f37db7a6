package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// Shapes of what is told of an install.
const (
	// installStartPatience is how long a start waits for the snapshot's size, so that it can be told with it.
	installStartPatience = time.Second
	// installProgressInterval is how often progress is told at most.
	installProgressInterval = 2 * time.Second
	// installFailureInterval is how often the same reason for a failure is told at most.
	installFailureInterval = 10 * time.Second
	// metadataBehindAfter is how long a node that can't follow the metadata is still taken for current.
	metadataBehindAfter = 10 * time.Second
)

// installs tells, as facts, of the installs of snapshots and whether this node follows the metadata. It looks at what
// the quorum and the publisher have come to and holds up neither. Safe for concurrent use.
//
// What is told once per install, its start and its end, is on the disk before it is told, and stays until it was
// acknowledged (installrecords.go): a node that was killed goes on with the same install.
type installs struct {
	node    ident.NodeID
	facts   *factStream
	logger  *slog.Logger
	metrics snapshotMetrics
	kick    chan struct{}

	// goal is the target of the install that is under way, 0 when none is. For those who must not wait for the disk.
	goal atomic.Int64

	mu       sync.Mutex
	records  *installRecords
	ends     map[ident.UUID]int64 // number of the fact that told the end
	since    ident.Instant        // Since of the raft's install that was looked at last, -1 before the first
	current  installTelling
	metadata string // the kind that was told last
	behind   time.Time
}

// installTelling is what was told of the install that is under way.
type installTelling struct {
	start      bool
	seen       time.Time // when this process saw it first
	failures   int       // of the raft's count
	failedAt   map[string]time.Time
	size, here int64 // bytes: of the snapshot, and of it as far as it was here

	// Of the last progress.
	progressAt time.Time
	bytes      int64
	download   int
}

// installSeen is what there is to be seen at one moment.
type installSeen struct {
	install   raft.Install
	snapshots exec.SnapshotStats
	// follows says that the node leads the quorum or has all that its leader says is committed.
	follows bool
	// highWatermark is up to where that is, applied up to where the node has applied it; both exclusive.
	highWatermark, applied ident.Offset
}

// current says whether the node follows the metadata and has applied it.
func (s *installSeen) current() bool {
	return !s.install.Active && s.follows && s.highWatermark >= 0 && s.applied >= s.highWatermark
}

// openInstalls reads what an earlier life of the node left to be told.
func openInstalls(n *Node, now time.Time) (*installs, error) {
	records, err := readInstallRecords(n.metadataDir, n.cfg.MetadataDir)
	if errors.Is(err, errInstallRecords) {
		n.logger.Warn("snapshot installs of an earlier start are not told", "error", err)
	} else if err != nil {
		return nil, err
	}
	s := &installs{
		node: n.cfg.NodeID, facts: n.facts, logger: n.logger, metrics: n.metrics.snapshots, kick: make(chan struct{}, 1),
		records: records, ends: map[ident.UUID]int64{}, since: -1, behind: now,
	}
	for i := range records.all {
		r := &records.all[i]
		if r.End == nil {
			s.current = installTelling{seen: now}
			continue
		}
		s.tellStart(r, r.End.Bytes)
		s.tellEnd(r)
	}
	s.setGoal()
	s.facts.onAcknowledged = s.acknowledged
	return s, nil
}

// wake has the loop look.
func (s *installs) wake() { wakeUp(s.kick) }

// run looks until ctx ends: when something moved, and now and then, since some things are told only after a while.
func (s *installs) run(ctx context.Context, n *Node) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		case <-timer.C:
		}
		seen := n.installSeen()
		if err := s.look(time.Now(), seen); err != nil {
			n.stop(err)
			return
		}
		pause := metadataBehindAfter / 2
		if s.underWay() || !seen.current() {
			pause = installStartPatience / 2
		}
		timer.Reset(pause)
	}
}

// installSeen gathers what look wants. The raft's state is the oldest part, so what it says is over is over.
func (n *Node) installSeen() installSeen {
	q := n.quorum
	q.mu.Lock()
	seen := installSeen{
		install: q.exec.Core().Install(), snapshots: q.exec.Snapshots(), follows: q.exec.Core().Follows(), highWatermark: q.exec.HighWatermark(),
	}
	q.mu.Unlock()
	applied, _ := n.publisher.image().Position()
	seen.applied = applied + 1
	return seen
}

// target is up to where an install of this or of an earlier start wants to come; 0 when none is under way.
func (s *installs) target() ident.Offset { return ident.Offset(s.goal.Load()) }

// underWay says whether an install is.
func (s *installs) underWay() bool { return s.goal.Load() > 0 }

// setGoal follows the records.
func (s *installs) setGoal() {
	goal := ident.Offset(0)
	if r := s.records.active(); r != nil {
		goal = r.Target
	}
	s.goal.Store(int64(goal))
}

// look tells what is new. An error is of the disk: the node must stop.
func (s *installs) look(now time.Time, seen installSeen) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.setGoal()
	if err := s.lookForStart(now, seen); err != nil {
		return err
	}
	if r := s.records.active(); r != nil {
		over := !seen.install.Active && seen.applied >= r.Target
		s.lookAtProgress(now, r, seen, over)
		if over {
			if err := s.over(now, r, seen); err != nil {
				return err
			}
		}
	}
	s.lookWhetherCurrent(now, seen)
	return nil
}

// lookForStart records a new install, or what is new of the one that is under way.
func (s *installs) lookForStart(now time.Time, seen installSeen) error {
	i := seen.install
	if i.Downloads == 0 {
		return nil
	}
	name := snapshotName{EndOffset: i.Snapshot.End, Epoch: i.Snapshot.Epoch}
	r := s.records.active()
	another := i.Since != s.since
	switch {
	case r == nil && !another:
		return nil // it is over, and was told
	case r == nil:
		id, err := newUUID()
		if err != nil {
			return err
		}
		if err := s.records.begin(installRecord{ID: id, Snapshot: name, Target: i.Target, StartedAt: now}); err != nil {
			return err
		}
		s.current = installTelling{seen: now}
		s.facts.drop(func(f *nodefact.Fact) bool { return !f.Install.IsZero() && !s.records.has(f.Install) })
		s.logger.Info("a snapshot of the metadata is being installed: the leader's log no longer has what comes next",
			"install", id, "snapshot", name.String(), "target", i.Target)
	case r.Snapshot != name || r.Target < i.Target:
		if err := s.records.offered(name, i.Target); err != nil {
			return err
		}
	}
	if another {
		s.since, s.current.failures = i.Since, 0
	}
	return nil
}

// lookAtProgress tells of what is under way.
func (s *installs) lookAtProgress(now time.Time, r *installRecord, seen installSeen, over bool) {
	i, c := seen.install, &s.current
	if size := sizeOf(r, seen); size > 0 {
		c.size = size
	}
	if i.Bytes > 0 {
		c.here = i.Bytes
	}
	failed := i.Failures > c.failures
	if !c.start && (c.size > 0 || failed || over || now.Sub(c.seen) >= installStartPatience) {
		s.tellStart(r, c.size)
		c.start = true
	}
	if failed {
		reason := failureReason(i.Failure)
		s.metrics.downloadsFailed.WithLabelValues(reason).Add(float64(i.Failures - c.failures))
		c.failures = i.Failures
		s.tellFailure(now, r, reason, i.Failure)
	}
	if !i.Active || !c.start || i.Bytes == 0 || now.Sub(c.progressAt) < installProgressInterval {
		return
	}
	f := s.fact(now, nodefact.SnapshotInstallProgress, r)
	f.Bytes, f.TotalBytes, f.DurationMillis = i.Bytes, c.size, r.duration(now).Milliseconds()
	if took := now.Sub(c.progressAt); c.download == i.Downloads && i.Bytes > c.bytes {
		f.BytesPerSecond = int64(float64(i.Bytes-c.bytes) / took.Seconds())
	}
	moved := c.download != i.Downloads || c.bytes != i.Bytes
	c.download, c.bytes, c.progressAt = i.Downloads, i.Bytes, now
	if moved {
		s.facts.add(f)
	}
}

// sizeOf is how large the snapshot is that comes or was installed; 0 when that is not known, or none was.
func sizeOf(r *installRecord, seen installSeen) int64 {
	if seen.snapshots.Latest == metadata.SnapshotID(r.Snapshot) {
		return seen.snapshots.LatestBytes
	}
	return seen.install.Size
}

// over records and tells the end.
func (s *installs) over(now time.Time, r *installRecord, seen installSeen) error {
	end := installEnd{At: now, Bytes: sizeOf(r, seen)}
	if err := s.records.end(end); err != nil {
		return err
	}
	r = &s.records.all[len(s.records.all)-1]
	s.tellEnd(r)
	s.logger.Info("the snapshot of the metadata is installed, and what was committed then is applied",
		"install", r.ID, "snapshot", r.Snapshot.String(), "bytes", end.Bytes, "took", r.duration(now))
	return nil
}

func (s *installs) fact(at time.Time, kind string, r *installRecord) nodefact.Fact {
	return nodefact.Fact{Kind: kind, Time: at, Index: -1, Replica: s.node, Install: r.ID, SnapshotID: r.Snapshot.String()}
}

func (s *installs) tellStart(r *installRecord, size int64) {
	f := s.fact(r.StartedAt, nodefact.SnapshotInstallStarted, r)
	f.TotalBytes = size
	s.facts.add(f)
}

func (s *installs) tellEnd(r *installRecord) {
	f := s.fact(r.End.At, nodefact.SnapshotInstalled, r)
	f.Bytes, f.TotalBytes, f.DurationMillis = r.End.Bytes, r.End.Bytes, r.duration(r.End.At).Milliseconds()
	s.ends[r.ID] = s.facts.add(f)
}

func (s *installs) tellFailure(now time.Time, r *installRecord, reason string, err error) {
	c := &s.current
	if at, told := c.failedAt[reason]; told && now.Sub(at) < installFailureInterval {
		return
	}
	if c.failedAt == nil {
		c.failedAt = map[string]time.Time{}
	}
	c.failedAt[reason] = now
	f := s.fact(now, nodefact.SnapshotInstallFailed, r)
	f.Reason, f.Message = reason, err.Error()
	f.Bytes, f.TotalBytes, f.DurationMillis = c.here, c.size, r.duration(now).Milliseconds()
	s.facts.add(f)
	s.logger.Warn("the download of a snapshot was given up and begins anew", "install", r.ID, "snapshot", r.Snapshot.String(), "reason", reason, "error", err)
}

// diskFailed tells that an install can't go on for the disk's sake. It goes on when the node can.
func (s *installs) diskFailed(now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records.active(); r != nil {
		s.tellFailure(now, r, nodefact.InstallDisk, err)
	}
}

// failureReason is nodefact's word for why a download was given up.
func failureReason(err error) string {
	for _, known := range []struct {
		err    error
		reason string
	}{
		{raft.ErrDownloadLeader, nodefact.InstallLeaderLost},
		{raft.ErrDownloadGone, nodefact.InstallSnapshotGone},
		{raft.ErrDownloadID, nodefact.InstallWrongID},
		{raft.ErrDownloadSize, nodefact.InstallWrongSize},
		{batch.ErrTruncated, nodefact.InstallWrongSize},
		{batch.ErrCRC, nodefact.InstallWrongCRC},
		{metadata.ErrSnapshotHeader, nodefact.InstallWrongHeader},
		{metadata.ErrSnapshotFooter, nodefact.InstallWrongFooter},
	} {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	return nodefact.InstallWrongContent
}

// lookWhetherCurrent tells when the node follows the metadata and when it no longer does. A pause, an election above
// all, is none.
func (s *installs) lookWhetherCurrent(now time.Time, seen installSeen) {
	installing := s.records.active() != nil || seen.install.Active
	current := !installing && seen.current()
	if current {
		s.behind = now
	}
	kind := nodefact.MetadataCurrent
	switch {
	case current:
	case installing, now.Sub(s.behind) >= metadataBehindAfter:
		kind = nodefact.MetadataBehind
	default:
		return
	}
	if kind != s.metadata {
		s.metadata = kind
		s.facts.add(nodefact.Fact{Kind: kind, Time: now, Index: -1, Replica: s.node})
	}
}

// acknowledged is told that whatever was told up to a number has been written down. Ends among it are forgotten, and
// their starts with them.
func (s *installs) acknowledged(upTo int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := func(id ident.UUID) bool {
		seq, told := s.ends[id]
		return told && seq <= upTo
	}
	if err := s.records.forget(gone); err != nil {
		return err
	}
	s.facts.drop(func(f *nodefact.Fact) bool { return gone(f.Install) })
	maps.DeleteFunc(s.ends, func(_ ident.UUID, seq int64) bool { return seq <= upTo })
	return nil
}

func newUUID() (ident.UUID, error) {
	var id ident.UUID
	for id.IsReserved() {
		if _, err := rand.Read(id[:]); err != nil {
			return id, fmt.Errorf("drawing an id: %w", err)
		}
	}
	return id, nil
}
