package raft

import (
	"errors"
	"fmt"

	"github.com/highwater-io/highwater/pkg/ident"
)

// needsSnapshot says whether a fetcher at this position needs a snapshot first: the position lies below the log's start,
// or at it with another epoch than the snapshot that ends there, or in an epoch of which the log holds nothing any
// more; or the fetcher has nothing at all, and a snapshot is the shorter way (KIP-630, KAFKA-15078).
func (n *Node) needsSnapshot(offset ident.Offset, lastEpoch ident.Epoch) bool {
	oldest, ok := n.log.OldestSnapshot()
	if !ok {
		return false
	}
	start := n.log.StartOffset()
	if offset < start {
		return true
	}
	if offset == 0 {
		_, whole := n.log.WholeSnapshot()
		return whole
	}
	// Epochs from before the log's start are known only by the snapshot that ends there. One that ends within the
	// log says nothing that the log does not say better.
	return oldest.End <= start && (lastEpoch < oldest.Epoch || offset == start && lastEpoch != oldest.Epoch)
}

// onFetchSnapshot is the leader's side of a download. It counts as contact, since one that downloads does not fetch
// (KAFKA-15489).
func (n *Node) onFetchSnapshot(token uint64, m *FetchSnapshotRequest) {
	resp := &FetchSnapshotResponse{Current: n.leaderInfo(), Snapshot: m.Snapshot, Position: m.Position}
	switch {
	case n.clusterMismatch(m.ClusterID):
		resp.Code = InconsistentClusterID
	case n.role != Leader:
		resp.Code = NotLeaderOrFollower
	case m.Epoch < n.vote.Epoch:
		resp.Code = FencedLeaderEpoch
	case m.Epoch > n.vote.Epoch:
		resp.Code = UnknownLeaderEpoch
	case m.MaxBytes <= 0 || m.Replica.ID == n.cfg.Self.ID:
		resp.Code = InvalidRequest
	case m.Snapshot.End <= 0:
		resp.Code = SnapshotNotFound // the 0-0 checkpoint is each voter's own
	case m.Position < 0:
		resp.Code = PositionOutOfRange
	}
	if resp.Code != None {
		n.reply(token, resp)
		return
	}
	n.heardFrom(m.Replica)
	n.out.SnapshotReads = append(n.out.SnapshotReads, SnapshotRead{
		Token: token, Replica: m.Replica, MaxBytes: min(m.MaxBytes, n.cfg.FetchMaxBytes), Response: resp,
	})
}

// Install is a node's way to a state that its leader's log no longer tells: from the offer of a snapshot until the
// node has everything that was committed then. A change of the leader on the way makes it longer, not another one.
type Install struct {
	// Active says that one is under way; the rest is then of it, else of the last one.
	Active bool
	// Snapshot is the one that was offered last.
	Snapshot SnapshotID
	// Bytes of Size are here; Size is 0 until the leader has told it.
	Bytes, Size int64
	// Target is the high watermark at the first offer, at least the snapshot's end.
	Target ident.Offset
	// Since is when the first offer came.
	Since ident.Instant
	// Downloads counts how often a download was begun: more than one after a failure.
	Downloads int
	// Failures counts the downloads that were given up, Failure is why the last one was: it wraps one of the errors
	// below, or what the executor said of the snapshot (SnapshotRefused).
	Failures int
	Failure  error
}

// Why a download is given up; another one follows.
var (
	// ErrDownloadLeader: who sent it leads no more, or another epoch.
	ErrDownloadLeader = errors.New("the leader that sent the snapshot no longer leads the epoch")
	// ErrDownloadGone: the leader has a newer snapshot by now.
	ErrDownloadGone = errors.New("the leader no longer serves the snapshot")
	// ErrDownloadID: an answer to another question than the one that was asked.
	ErrDownloadID = errors.New("the leader sent another snapshot or another piece than it was asked for")
	// ErrDownloadSize: the pieces do not make up the snapshot's size.
	ErrDownloadSize = errors.New("the size of the snapshot is not what it was said to be")
)

// Install returns the state of the node's install.
func (n *Node) Install() Install { return n.install }

// download is a snapshot on its way here. What one leader sent in one epoch is continued with nobody else: two
// snapshots of one name hold the same state, not the same bytes.
type download struct {
	id       SnapshotID
	leader   ident.NodeID
	epoch    ident.Epoch
	position int64
	size     int64 // -1: not known yet
}

// onSnapshotOffered begins a download.
func (n *Node) onSnapshotOffered(id SnapshotID, highWatermark ident.Offset) {
	switch {
	case id.End <= 0 || id.Epoch < 0:
		n.fetchFailed(fmt.Errorf("leader %d offers a snapshot %s, which can't be", n.vote.Leader, id))
		return
	case id.End <= n.highWatermark && n.cfg.Mutant != MutateStaleSnapshot:
		// It would take back what this node has told others is committed. Such an offer is an old one, or wrong.
		n.fetchFailed(fmt.Errorf("leader %d offers snapshot %s, which holds less than the %d records that this node knows to be committed",
			n.vote.Leader, id, n.highWatermark))
		return
	}
	n.download = &download{id: id, leader: n.vote.Leader, epoch: n.vote.Epoch, size: -1}
	if !n.install.Active {
		n.install = Install{Active: true, Since: n.now}
	}
	n.install.Snapshot, n.install.Bytes, n.install.Size = id, 0, 0
	n.install.Target = max(n.install.Target, id.End, highWatermark)
	n.install.Downloads++
	n.out.DropSnapshot = true
	n.fetch.retryAt = n.now
}

// checkDownload gives a download up that can't be continued: another leader, another epoch, or this node leads.
func (n *Node) checkDownload() {
	d := n.download
	if d == nil || n.fetch.storing || n.cfg.Mutant == MutateResumeElsewhere && n.role != Leader {
		return
	}
	if d.epoch != n.vote.Epoch || n.role == Leader || n.role == Follower && n.vote.Leader != d.leader {
		n.dropDownload(fmt.Errorf("snapshot %s from leader %d in epoch %d: %w", d.id, d.leader, d.epoch, ErrDownloadLeader))
	}
}

func (n *Node) dropDownload(why error) {
	n.download = nil
	n.install.Bytes, n.install.Size = 0, 0
	n.install.Failures++
	n.install.Failure = why
	n.out.DropSnapshot = true
}

func (n *Node) fetchSnapshotRequest() Message {
	d := n.download
	return &FetchSnapshotRequest{
		ClusterID: n.cfg.ClusterID, Replica: n.cfg.Self, Epoch: n.vote.Epoch,
		Snapshot: d.id, Position: d.position, MaxBytes: n.fetch.asked,
	}
}

func (n *Node) onFetchSnapshotResponse(m *FetchSnapshotResponse, from ident.NodeID, epoch ident.Epoch) {
	n.learn(m.Current)
	n.checkDownload()
	d := n.download
	if d == nil || n.role != Follower || from != n.vote.Leader || epoch != n.vote.Epoch || n.fetchBlocked() {
		n.fetch.retryAt = n.retryAt()
		return
	}
	length := int64(len(m.Bytes))
	var wrong error
	switch {
	case m.Code == SnapshotNotFound || m.Code == PositionOutOfRange:
		// It has a newer one by now. The next fetch says which.
		wrong = fmt.Errorf("snapshot %s at byte %d from leader %d: %w: error %d", d.id, d.position, from, ErrDownloadGone, m.Code)
	case m.Code != None:
		n.fetchFailed(fmt.Errorf("fetch of snapshot %s from leader %d: error %d", d.id, from, m.Code))
		return
	case m.Snapshot != d.id || m.Position != d.position:
		wrong = fmt.Errorf("snapshot %s at byte %d from leader %d: %w: %s at byte %d", d.id, d.position, from, ErrDownloadID, m.Snapshot, m.Position)
	case m.Size <= 0 || d.size >= 0 && m.Size != d.size:
		wrong = fmt.Errorf("snapshot %s from leader %d: %w: %d bytes, before it was %d", d.id, from, ErrDownloadSize, m.Size, d.size)
	case length == 0 || d.position+length > m.Size:
		wrong = fmt.Errorf("snapshot %s from leader %d: %w: %d bytes came at byte %d of %d", d.id, from, ErrDownloadSize, length, d.position, m.Size)
	}
	n.heardLeader()
	if wrong != nil {
		n.dropDownload(wrong)
		n.fetchFailed(wrong)
		n.fetch.askOther = false
		return
	}
	d.size = m.Size
	n.install.Size = m.Size
	n.fetch.storing = true
	n.out.Chunk = &SnapshotChunk{Snapshot: d.id, Position: d.position, Bytes: m.Bytes}
}

func (n *Node) onChunkStored(ev ChunkStored) {
	n.fetch.storing = false
	d := n.download
	if d == nil || d.id != ev.Snapshot {
		return
	}
	d.position = ev.Position
	n.install.Bytes = ev.Position
	n.checkDownload()
	if n.download != nil && d.position == d.size {
		n.fetch.storing = true
		n.out.Install = &d.id
	}
}

// onSnapshotRefused starts over: the next fetch gets an offer again.
func (n *Node) onSnapshotRefused(ev SnapshotRefused) {
	n.fetch.storing = false
	if n.download != nil && n.download.id == ev.Snapshot {
		n.dropDownload(ev.Err)
	}
	n.fetchFailed(ev.Err)
	n.fetch.askOther = false
}

// onSnapshotInstalled goes on behind the snapshot.
func (n *Node) onSnapshotInstalled(ev SnapshotInstalled) {
	n.fetch.storing = false
	n.download = nil
	end := n.log.EndOffset()
	if n.log.StartOffset() != ev.Snapshot.End || end < ev.Snapshot.End {
		n.fatal("snapshot %s is installed, but the log goes from %d to %d", ev.Snapshot, n.log.StartOffset(), end)
		return
	}
	n.flushed = min(max(n.flushed, ev.Snapshot.End), end)
	n.setVoters(n.voters.behindSnapshot(ev.Snapshot, ev.Voters, end))
	n.raiseHighWatermark(ev.Snapshot.End)
	n.advanceHighWatermark()
	n.installed = true
}

// maybeInstalled ends an install once all is here that was committed when it began, by whatever way it came.
func (n *Node) maybeInstalled() {
	if n.install.Active && n.download == nil && n.highWatermark >= n.install.Target {
		n.install.Active = false
	}
}
