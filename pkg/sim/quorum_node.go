package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// quorumDir is where a node keeps its metadata log.
const quorumDir = "meta/__cluster_metadata-0"

// quorumNode is what a node's loop is in real life: it hands messages and time to the executor, carries out what
// comes of it, and runs flushes beside.
type quorumNode struct {
	s    *quorumSim
	id   ident.NodeID
	dirs byte // counts the directories it had: a wiped disk is another one
	disk *vfs.Mem
	q    *exec.Quorum // nil while the process is down
	life int          // counts the starts
	tick *Timer
	out  exec.QuorumOutput

	paused   bool
	pauses   int
	inbox    []func() // what arrives while paused
	failSync bool     // the next sync fails
	syncDead bool     // a sync has failed: the node must stop at once

	token    uint64
	requests map[uint64]quorumRequest
	leads    ident.Epoch // the last epoch it was told to lead, -1 for none
	hw       ident.Offset
	epoch    ident.Epoch
	role     raft.Role
	shadow   quorumShadow

	loader    *metadata.Loader // follows what is committed, as the node's publisher does
	newBytes  int              // applied since the last snapshot
	snapping  bool
	installed int64 // snapshots, as far as the checker has seen
}

// key is the node's identity: a wiped disk has another directory.
func (n *quorumNode) key() raft.ReplicaKey {
	return raft.ReplicaKey{ID: n.id, DirectoryID: ident.UUID{0: 0xd1, 14: n.dirs, 15: byte(n.id)}}
}

func (n *quorumNode) endpoints() []raft.Endpoint {
	return []raft.Endpoint{{Name: "CONTROLLER", Host: fmt.Sprintf("node-%d", n.id), Port: 9093}}
}

// quorumRequest is a request that is not yet answered.
type quorumRequest struct {
	from        ident.NodeID
	life        int
	correlation uint64
	msg         raft.Message
}

func newQuorumNode(s *quorumSim, id ident.NodeID) *quorumNode {
	n := &quorumNode{s: s, id: id, disk: vfs.NewMem()}
	if s.voters.Has(n.key()) {
		if err := exec.FormatQuorum(n.disk, quorumDir, s.voters, 0); err != nil {
			panic(err)
		}
	}
	return n
}

// errSimulatedSync is what a failing disk says.
var errSimulatedSync = errors.New("simulated: sync failed")

func (n *quorumNode) fs() vfs.FS {
	fsys := vfs.Inject(n.disk, func(op, _ string) error {
		if n.failSync && op == vfs.OpSync {
			n.failSync, n.syncDead = false, true
			return errSimulatedSync
		}
		return nil
	})
	return mutantDisk(fsys, n.s.opts.Mutant)
}

// boot starts the process on the disk as it is.
func (n *quorumNode) boot() {
	s := n.s
	n.life++
	n.requests = map[uint64]quorumRequest{}
	n.leads, n.hw, n.epoch, n.role = -1, ident.UnknownOffset, -1, raft.Unattached
	n.paused, n.inbox, n.syncDead = false, nil, false
	n.failSync = n.failSync && s.faulting
	n.loader, n.newBytes, n.snapping, n.installed = metadata.NewLoader(metadata.Empty(), -1), 0, false, 0
	mutant := s.opts.Mutant
	if slices.Contains(diskMutants, mutant) {
		mutant = ""
	}
	q, _, err := exec.OpenQuorum(exec.QuorumConfig{
		FS: n.fs(), Dir: quorumDir, Voters: s.voters,
		Log: log.Config{Settings: log.Settings{SegmentBytes: 4 << 10}},
		Raft: raft.Config{
			Self: n.key(), ClusterID: "sim", Seed: s.opts.Seed + uint64(n.life)<<32, FetchMaxBytes: s.fetchMaxBytes,
			ElectionTimeout: s.election, Mutant: mutant, SnapshotChunkBytes: s.snapshotChunk,
			Endpoints: n.endpoints(),
		},
		WallMillis: func() int64 { return int64(s.w.Now()) / 1e6 },
	})
	if err != nil && n.syncDead {
		s.counts.DiskErrors++
		n.disk = n.disk.CrashClone(s.w.Rand, 0)
		n.restartLater()
		return
	}
	if err != nil {
		s.check.fail("restart: node %d does not start: %v", n.id, err)
		return
	}
	n.q = q
	s.w.Trace("%d starts: end %d, vote %+v", n.id, q.EndOffset(), q.Core().Vote())
	s.check.restarted(n)
	n.do("start", func(now ident.Instant) error { return q.Start(now) })
}

// kill ends the process. What the disk had not synced is kept wholly (the process died), or the machine lost power.
func (n *quorumNode) kill(power bool) {
	if n.q == nil {
		return
	}
	s := n.s
	flushed := n.q.Log().FlushedOffset()
	keep := 100
	if power {
		s.counts.Losses++
		keep = 0
		if s.w.Chance(500) {
			keep = s.w.Rand.IntN(100)
		}
	} else {
		s.counts.Kills++
	}
	s.w.Trace("%d dies (power %v, keeps %d%%): end %d, flushed %d", n.id, power, keep, n.q.EndOffset(), flushed)
	n.disk = n.disk.CrashClone(s.w.Rand, keep)
	n.q = nil
	n.paused, n.inbox = false, nil
	if n.tick != nil {
		n.tick.Stop()
	}
	s.check.crashed(n, flushed)
}

// do is one turn of the node's loop.
func (n *quorumNode) do(what string, f func(now ident.Instant) error) {
	if n.q == nil || n.s.check.violation != "" {
		return
	}
	if n.paused {
		n.inbox = append(n.inbox, func() { n.do(what, f) })
		return
	}
	err := f(n.s.w.Now())
	if n.q.Err() != nil && err == nil {
		n.s.check.fail("stop: node %d goes on after %v", n.id, n.q.Err())
		return
	}
	n.q.Drain(&n.out)
	if err != nil {
		n.stopped(what, err)
		return
	}
	n.carryOut()
	n.s.check.after(n)
	n.publish()
	n.arm()
}

// stopped: the executor said that the node must stop.
func (n *quorumNode) stopped(what string, err error) {
	if !n.syncDead {
		n.s.check.fail("stop: node %d stops in %s: %v", n.id, what, err)
		return
	}
	if len(n.out.Replies)+len(n.out.Sends) > 0 {
		n.s.check.fail("stop: node %d says something after its disk failed", n.id)
		return
	}
	n.s.counts.DiskErrors++
	n.s.w.Trace("%d: sync failed", n.id)
	n.kill(true)
	n.restartLater()
}

// carryOut sends what the executor wants sent and starts a flush when one is wanted.
func (n *quorumNode) carryOut() {
	s := n.s
	for _, r := range n.out.Replies {
		req, ok := n.requests[r.Token]
		if !ok {
			s.check.fail("reply: node %d answers request %d twice or never got it", n.id, r.Token)
			return
		}
		delete(n.requests, r.Token)
		if req.from == ident.NoNode {
			s.changed(n, r.Msg)
			continue
		}
		s.check.replied(n, req, r.Msg)
		s.w.Trace("%d -> %d %s", n.id, req.from, describe(r.Msg))
		msg := s.wireResponse(req.msg, r.Msg)
		s.net.Send(n.id, req.from, func() { s.node(req.from).respond(n.id, req.life, req.correlation, msg, nil) })
	}
	for _, send := range n.out.Sends {
		s.check.sent(n, send.Msg)
		s.w.Trace("%d -> %d %s", n.id, send.To, describe(send.Msg))
		from, life, correlation, msg := n.id, n.life, send.Correlation, s.wireRequest(send.Msg)
		to := s.node(send.To)
		s.net.Send(from, send.To, func() { to.receive(from, life, correlation, msg) })
	}
	if n.out.Leading != nil {
		n.leads = n.out.Leading.Epoch
		s.w.Trace("%d leads epoch %d from offset %d", n.id, n.leads, n.out.Leading.Start)
	}
	n.flush()
}

func (n *quorumNode) flush() {
	if !n.q.FlushWanted() {
		return
	}
	f, err := n.q.BeginFlush()
	if err != nil {
		n.s.check.fail("flush: node %d: %v", n.id, err)
		return
	}
	w, life := n.s.w, n.life
	took := w.Between(100*time.Microsecond, 3*time.Millisecond)
	if w.Chance(n.s.slowDisk) {
		took = w.Between(20*time.Millisecond, 700*time.Millisecond)
	}
	// The disk does it at some moment in between: at the first or at the last.
	var syncErr error
	early := w.Chance(500)
	if early {
		syncErr = f.Sync()
	}
	w.After(took, func() {
		if n.life != life || n.q == nil {
			return
		}
		if !early {
			syncErr = f.Sync()
		}
		n.do("flush", func(now ident.Instant) error { return n.q.EndFlush(now, f, syncErr) })
	})
}

// arm sets the timer to the next deadline.
func (n *quorumNode) arm() {
	if n.tick != nil {
		n.tick.Stop()
	}
	at := n.q.NextDeadline()
	if at <= n.s.w.Now() {
		n.s.check.fail("timer: node %d (%s) wants to be woken at once, again and again", n.id, n.q.Core().Role())
		return
	}
	life := n.life
	n.tick = n.s.w.At(at, func() {
		if n.life == life {
			n.do("tick", func(now ident.Instant) error { return n.q.Tick(now) })
		}
	})
}

func (n *quorumNode) receive(from ident.NodeID, life int, correlation uint64, msg raft.Message) {
	if n.q == nil {
		if n.s.w.Chance(500) {
			// Connection refused.
			n.s.net.Send(n.id, from, func() { n.s.node(from).respond(n.id, life, correlation, nil, errors.New("refused")) })
		}
		return
	}
	n.do("request", func(now ident.Instant) error {
		n.token++
		n.requests[n.token] = quorumRequest{from, life, correlation, msg}
		return n.q.HandleRequest(now, n.token, msg)
	})
}

func (n *quorumNode) respond(from ident.NodeID, life int, correlation uint64, msg raft.Message, err error) {
	if n.q == nil || n.life != life {
		return // the connection it would come over is gone
	}
	n.do("response", func(now ident.Instant) error { return n.q.HandleResponse(now, from, correlation, msg, err) })
}

func (n *quorumNode) propose() {
	s := n.s
	n.do("propose", func(now ident.Instant) error {
		first, err := n.q.Propose(now, n.leads, metadata.EncodeBatch(0, 0, int64(now)/1e6, s.someRecords()...))
		if errors.Is(err, raft.ErrNotLeader) {
			return nil
		}
		if err != nil {
			return err
		}
		s.counts.Proposed++
		s.w.Trace("%d appends at %d in epoch %d", n.id, first, n.leads)
		s.check.proposed(n, n.q.EndOffset())
		return nil
	})
}

func (n *quorumNode) pause() {
	if n.q != nil && !n.paused {
		n.s.counts.Pauses++
		n.pauses++
		n.s.w.Trace("%d stands still", n.id)
		n.paused = true
	}
}

func (n *quorumNode) resume() {
	if !n.paused {
		return
	}
	n.paused = false
	n.s.w.Trace("%d goes on", n.id)
	inbox := n.inbox
	n.inbox = nil
	for _, f := range inbox {
		f()
	}
}

func (n *quorumNode) restartLater() {
	n.s.w.After(n.s.w.Between(10*time.Millisecond, 1500*time.Millisecond), func() {
		if n.q == nil && n.s.check.violation == "" {
			n.boot()
		}
	})
}

// describe is a message in a trace.
func describe(m raft.Message) string {
	switch m := m.(type) {
	case *raft.VoteRequest:
		kind := "Vote"
		if m.PreVote {
			kind = "PreVote"
		}
		return fmt.Sprintf("%s epoch %d, log %d@%d", kind, m.Epoch, m.EndOffset, m.LastEpoch)
	case *raft.VoteResponse:
		return fmt.Sprintf("vote %v, code %d, leader %d epoch %d", m.Granted, m.Code, m.Current.Leader, m.Current.Epoch)
	case *raft.BeginQuorumEpochRequest:
		return fmt.Sprintf("BeginQuorumEpoch %d", m.Epoch)
	case *raft.EndQuorumEpochRequest:
		return fmt.Sprintf("EndQuorumEpoch %d to %v", m.Epoch, m.Successors)
	case *raft.BeginQuorumEpochResponse:
		return fmt.Sprintf("begin code %d, leader %d epoch %d", m.Code, m.Current.Leader, m.Current.Epoch)
	case *raft.EndQuorumEpochResponse:
		return fmt.Sprintf("end code %d, leader %d epoch %d", m.Code, m.Current.Leader, m.Current.Epoch)
	case *raft.FetchRequest:
		return fmt.Sprintf("Fetch %d@%d in epoch %d, hw %d", m.Offset, m.LastEpoch, m.Epoch, m.HighWatermark)
	case *raft.FetchResponse:
		text := fmt.Sprintf("fetched %d bytes, code %d, leader %d epoch %d, hw %d", len(m.Records), m.Code, m.Current.Leader, m.Current.Epoch, m.HighWatermark)
		if m.Diverging != nil {
			text += fmt.Sprintf(", diverges at %d@%d", m.Diverging.End, m.Diverging.Epoch)
		}
		if m.Snapshot != nil {
			text += fmt.Sprintf(", needs snapshot %s", m.Snapshot)
		}
		return text
	case *raft.FetchSnapshotRequest:
		return fmt.Sprintf("FetchSnapshot %s at %d in epoch %d", m.Snapshot, m.Position, m.Epoch)
	case *raft.FetchSnapshotResponse:
		return fmt.Sprintf("snapshot %s, %d bytes at %d of %d, code %d", m.Snapshot, len(m.Bytes), m.Position, m.Size, m.Code)
	case *raft.ChangeVotersResponse:
		return fmt.Sprintf("change of voters: code %d %s", m.Code, m.Message)
	}
	return fmt.Sprintf("%T", m)
}
