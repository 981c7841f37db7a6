package raft

import (
	"fmt"

	"github.com/highwater-io/highwater/pkg/ident"
)

// fetcher is the one fetch that a follower or a node in search of the leader has under way.
type fetcher struct {
	correlation uint64 // 0 when there is none
	to          target
	epoch       ident.Epoch
	offset      ident.Offset
	sentAt      ident.Instant
	deadline    ident.Instant
	retryAt     ident.Instant
	// asked is how many bytes it asked for, pieceBytes how many the next one asks for at most; 0 is the limits of the
	// configuration. It follows what the link carries within the time that an answer has.
	asked, pieceBytes int32
	// appending: fetched records are on their way into the log; highWatermark is what came with them.
	appending     bool
	highWatermark ident.Offset
	// truncating: the log is about to be cut.
	truncating bool
	// storing: a piece of a snapshot is on its way to the disk, or the whole is being installed.
	storing bool
	// askOther: the last fetch from the leader failed, so the next one goes elsewhere (target.go).
	askOther bool
	rotation int
	// detour is where the leader was reached when it was not where it says it is.
	detour []Endpoint
}

// fetchDue is when maybeFetch has something to do.
func (n *Node) fetchDue() ident.Instant {
	f := &n.fetch
	switch {
	case f.correlation != 0:
		return f.deadline
	case n.fetchBlocked():
		return ident.Never
	}
	if _, ok := n.fetchTarget(); !ok {
		return ident.Never
	}
	return f.retryAt
}

// fetchBlocked: a fetch says that all below its offset is on disk, so it waits until that is so. Observers
// wait too: the leader may already count one that does not know yet that it became a voter.
func (n *Node) fetchBlocked() bool {
	if n.fetch.appending || n.fetch.truncating || n.fetch.storing {
		return true
	}
	if n.cfg.Mutant == MutateFetchUnflushed {
		return false
	}
	return n.flushed < n.log.EndOffset()
}

func (n *Node) maybeFetch() {
	f := &n.fetch
	if f.correlation != 0 && n.now >= f.deadline {
		f.correlation = 0
		n.askForLess()
		n.fetchLost(fmt.Errorf("node %d has not answered a fetch within %v", f.to.id, n.cfg.FetchMaxWait+n.cfg.RequestTimeout))
	}
	if f.correlation != 0 || n.fetchBlocked() || n.now < f.retryAt {
		return
	}
	to, ok := n.fetchTarget()
	if !ok {
		return
	}
	if to.other {
		f.rotation++
	}
	f.to, f.epoch, f.offset = to, n.vote.Epoch, n.log.EndOffset()
	f.sentAt, f.deadline = n.now, n.now.Add(n.cfg.FetchMaxWait+n.cfg.RequestTimeout)
	if n.download != nil && n.role == Follower && to.id == n.vote.Leader {
		f.asked = n.pieceBytes(n.cfg.SnapshotChunkBytes)
		f.correlation = n.sendTo(to.endpoints, to.id, n.fetchSnapshotRequest())
		return
	}
	f.asked = n.pieceBytes(n.cfg.FetchMaxBytes)
	f.correlation = n.sendTo(to.endpoints, to.id, &FetchRequest{
		ClusterID:     n.cfg.ClusterID,
		Replica:       n.cfg.Self,
		Epoch:         f.epoch,
		Offset:        f.offset,
		LastEpoch:     n.lastEpoch(),
		HighWatermark: n.highWatermark,
		MaxBytes:      f.asked,
		MaxWait:       n.cfg.FetchMaxWait,
	})
}

// pieceMinBytes is what a fetch asks for at least.
const pieceMinBytes = 16 << 10

func (n *Node) pieceBytes(limit int32) int32 {
	if n.fetch.pieceBytes == 0 {
		return limit
	}
	return min(limit, n.fetch.pieceBytes)
}

// askForLess follows a fetch that failed when much of its time was over: the link may be too slow for that much, and
// asking for as much again would get nowhere for ever.
func (n *Node) askForLess() {
	if f := &n.fetch; 2*n.now.Sub(f.sentAt) >= n.cfg.FetchMaxWait+n.cfg.RequestTimeout {
		f.pieceBytes = max(f.asked/2, min(pieceMinBytes, f.asked))
	}
}

// askForMore follows an answer that was as long as it might be and came so fast that one twice as long would have come
// in good time. A short one says nothing of the link.
func (n *Node) askForMore(length int) {
	f := &n.fetch
	if f.pieceBytes != 0 && 2*length >= int(f.asked) && 4*n.now.Sub(f.sentAt) <= n.cfg.FetchMaxWait+n.cfg.RequestTimeout {
		if f.pieceBytes *= 2; f.pieceBytes >= max(n.cfg.FetchMaxBytes, n.cfg.SnapshotChunkBytes) {
			f.pieceBytes = 0
		}
	}
}

// fetchFailed pauses before the next try.
func (n *Node) fetchFailed(why error) {
	n.trouble = why
	n.fetch.retryAt = n.retryAt()
	n.fetch.askOther = n.role == Follower && n.fetch.to.id == n.vote.Leader && !n.fetch.to.other
}

// fetchLost is fetchFailed for one that got no answer.
func (n *Node) fetchLost(why error) {
	n.fetchFailed(why)
	n.fetch.detour = nil
}

func (n *Node) onFetchResponse(r Response) {
	f := &n.fetch
	f.correlation = 0
	if r.Err != nil {
		n.askForLess()
		n.fetchLost(fmt.Errorf("fetch from node %d: %w", r.From, r.Err))
		return
	}
	epoch, offset, from := f.epoch, f.offset, f.to.id
	if m, ok := r.Msg.(*FetchSnapshotResponse); ok {
		n.askForMore(len(m.Bytes))
		n.onFetchSnapshotResponse(m, from, epoch)
		return
	}
	m, ok := r.Msg.(*FetchResponse)
	if !ok {
		n.fatal("a %T came as the answer to a fetch", r.Msg)
		return
	}
	n.askForMore(len(m.Records))
	role := n.role
	n.learn(m.Current)
	if m.Code != None {
		if n.role == role && n.vote.Epoch == epoch {
			n.fetchFailed(fmt.Errorf("fetch from node %d at offset %d, epoch %d: error %d", from, offset, epoch, m.Code))
		}
		if m.Code == OffsetOutOfRange {
			n.trouble = fmt.Errorf("the log of node %d starts at %d, beyond this node's end %d, and it offers no snapshot just now: it has lost one, and must take another",
				from, m.LogStartOffset, offset)
		}
		return
	}
	// Used only if it comes from the leader that is followed now, in the epoch and at the position that it
	// was asked for.
	if n.role != Follower || from != n.vote.Leader || epoch != n.vote.Epoch || offset != n.log.EndOffset() || n.fetchBlocked() {
		f.retryAt = n.retryAt()
		return
	}
	n.heardLeader()
	n.leaderHighWatermark = m.HighWatermark
	switch {
	case m.Diverging != nil:
		n.onDiverging(*m.Diverging)
	case m.Snapshot != nil:
		n.onSnapshotOffered(*m.Snapshot, m.HighWatermark)
	case len(m.Records) > 0:
		f.appending, f.highWatermark = true, m.HighWatermark
		n.out.Append = &FetchedRecords{Offset: offset, Epoch: epoch, Records: m.Records}
	default:
		n.raiseHighWatermark(min(m.HighWatermark, offset))
	}
}

// heardLeader notes that the leader answered, and lives.
func (n *Node) heardLeader() {
	n.fetchedFromLeader, n.leaderResigned = true, false
	n.leaderless = 0
	n.fetchDeadline = n.now.Add(n.fetchTimeout())
	n.fetch.askOther = false
	if n.fetch.to.other {
		n.fetch.detour = n.fetch.to.endpoints
	}
	n.trouble = nil
}

// onDiverging cuts the log to where it can still agree with the leader's. What is committed is never cut: if
// the leader lacks it, the quorum is broken and going on would make it worse (KAFKA-12460).
func (n *Node) onDiverging(d EpochEnd) {
	if n.cfg.Mutant == MutateIgnoreDivergence {
		n.fetch.retryAt = n.retryAt()
		return
	}
	end := n.log.EndOffset()
	to := n.log.StartOffset()
	if epoch, own, ok := n.epochEnd(d.Epoch); ok {
		to = own
		if epoch == d.Epoch {
			to = min(own, d.End)
		}
	}
	to = max(to, n.log.StartOffset())
	switch {
	case to < n.highWatermark:
		n.fatal("leader %d says that the logs diverge at epoch %d, offset %d; cutting to %d would lose records below the high watermark %d",
			n.vote.Leader, d.Epoch, d.End, to, n.highWatermark)
	case to >= end:
		n.fetchFailed(fmt.Errorf("leader %d says that the logs diverge at epoch %d, offset %d, but the log ends at %d", n.vote.Leader, d.Epoch, d.End, end))
	default:
		n.fetch.truncating = true
		n.out.Truncate = &to
	}
}
