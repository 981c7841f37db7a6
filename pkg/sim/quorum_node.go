package sim

import (
	"errors"
	"fmt"
	"strings"
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
	s      *quorumSim
	id     ident.NodeID
	dice   Dice // for what is its own: how long its disk takes
	dirs   byte // counts the directories it had: a wiped disk is another one
	disk   *vfs.Mem
	rotten *rottenFile // snapshot that the disk has damaged last
	clock  nodeClock
	q      *exec.Quorum // nil while the process is down
	life   int          // counts the starts
	tick   *Timer
	out    exec.QuorumOutput

	paused   bool
	inbox    []func() // what arrives while paused
	failSync bool     // the next sync fails
	syncDead bool     // a sync has failed: the node must stop at once

	token    uint64
	requests map[uint64]quorumRequest
	asked    int         // changes of the voters that are not answered
	leads    ident.Epoch // the last epoch it was told to lead, -1 for none
	hw       ident.Offset
	epoch    ident.Epoch
	role     raft.Role
	terms    int // counts how often it came to lead
	shadow   quorumShadow
	start    ident.Offset // of its log, as far as the checker has seen
	from     downloadFrom
	contacts map[raft.ReplicaKey]ident.Instant // fetches of the epoch that it leads

	loader    *metadata.Loader // follows what is committed, as the node's publisher does
	applied   ident.Offset     // how far that is
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
	n := &quorumNode{s: s, id: id, disk: vfs.NewMem(), dice: NewDice(s.opts.Seed, 10+uint64(id))}
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

// configured are the voters that the node is told of from outside: the first ones, or, with a new disk, those of now.
func (n *quorumNode) configured() raft.VoterSet {
	if n.dirs > 0 {
		return n.s.check.voters()
	}
	return n.s.voters
}

// boot starts the process on the disk as it is.
func (n *quorumNode) boot() {
	s := n.s
	n.life++
	n.requests = map[uint64]quorumRequest{}
	n.leads, n.hw, n.epoch, n.role = -1, ident.UnknownOffset, -1, raft.Unattached
	n.paused, n.inbox, n.syncDead, n.asked, n.start = false, nil, false, 0, -1
	n.from = downloadFrom{}
	n.failSync = n.failSync && s.faulting
	n.loader, n.applied, n.newBytes, n.snapping, n.installed = metadata.NewLoader(metadata.Empty(), -1), 0, 0, false, 0
	q, recovery, err := exec.OpenQuorum(exec.QuorumConfig{
		FS: n.fs(), Dir: quorumDir, Voters: n.configured(),
		Log: log.Config{Settings: log.Settings{SegmentBytes: 4 << 10}},
		Raft: raft.Config{
			Self: n.key(), ClusterID: "sim", Seed: s.opts.Seed + uint64(n.life)<<32, FetchMaxBytes: s.plan.fetchMaxBytes,
			ElectionTimeout: s.electionTimeout(), Mutant: s.opts.Mutant, SnapshotChunkBytes: s.plan.snapshotChunk,
			Endpoints: n.endpoints(), Bootstrap: n.configured(), VoterLagMax: s.plan.voterLagMax,
		},
		WallMillis: n.wallMillis,
	})
	if err != nil && n.syncDead {
		s.counts.DiskErrors++
		n.disk = n.disk.CrashClone(n.dice.Rand, 0)
		n.restartLater(n.dice)
		return
	}
	if err != nil && n.replaced(err) {
		n.boot()
		return
	}
	if err != nil {
		s.check.fail("Starts: node %d does not start: %v", n.id, err)
		return
	}
	for _, repair := range recovery.Repairs {
		if strings.Contains(repair, "damaged snapshot") {
			s.counts.SetAside++
			s.w.Trace("%d: %s", n.id, repair)
		}
	}
	n.q = q
	s.w.Trace("%d starts: end %d, vote %+v", n.id, q.EndOffset(), q.Core().Vote())
	s.check.restarted(n)
	n.do("start", func(now ident.Instant) error { return q.Start(now) })
}

// kill ends the process. What the disk had not synced is kept wholly (the process died), or the machine lost power.
func (n *quorumNode) kill(d Dice, power bool) {
	if n.q == nil {
		return
	}
	s := n.s
	flushed := n.q.Log().FlushedOffset()
	keep := 100
	if power {
		s.counts.Losses++
		keep = 0
		if d.Chance(500) {
			keep = d.IntN(100)
		}
	} else {
		s.counts.Kills++
	}
	s.w.Trace("%d dies (power %v, keeps %d%%): end %d, flushed %d", n.id, power, keep, n.q.EndOffset(), flushed)
	n.disk = n.disk.CrashClone(d.Rand, keep)
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
	err := f(n.now())
	if n.q.Err() != nil && err == nil {
		n.s.check.fail("StopsForItsDisk: node %d goes on after %v", n.id, n.q.Err())
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
	if n.q == nil {
		return
	}
	if n.q.NextDeadline() <= n.now() {
		n.s.check.fail("Timers: node %d (%s) wants to be woken at once, again and again", n.id, n.q.Core().Role())
		return
	}
	n.arm()
}

// stopped: the executor said that the node must stop.
func (n *quorumNode) stopped(what string, err error) {
	if !n.syncDead {
		n.s.check.fail("StopsForItsDisk: node %d stops in %s: %v", n.id, what, err)
		return
	}
	if len(n.out.Replies)+len(n.out.Sends) > 0 {
		n.s.check.fail("StopsForItsDisk: node %d says something after its disk failed", n.id)
		return
	}
	n.s.counts.DiskErrors++
	n.s.w.Trace("%d: sync failed", n.id)
	n.kill(n.dice, true)
	n.restartLater(n.dice)
}

// carryOut sends what the executor wants sent and starts a flush when one is wanted.
func (n *quorumNode) carryOut() {
	s := n.s
	for _, r := range n.out.Replies {
		req, ok := n.requests[r.Token]
		if !ok {
			s.check.fail("AnswersOnce: node %d answers request %d twice or never got it", n.id, r.Token)
			return
		}
		delete(n.requests, r.Token)
		if req.from == ident.NoNode {
			s.changed(n, r.Msg)
			continue
		}
		s.check.replied(n, req, r.Msg)
		s.w.Trace("%d -> %d %s", n.id, req.from, said{r.Msg})
		msg := s.wireResponse(req.msg, r.Msg)
		s.net.Send(n.id, req.from, func() { s.node(req.from).respond(n.id, req.life, req.correlation, msg, nil) })
	}
	for _, send := range n.out.Sends {
		s.check.sent(n, send.To, send.Msg)
		s.w.Trace("%d -> %d %s", n.id, send.To, said{send.Msg})
		from, life, correlation, msg := n.id, n.life, send.Correlation, s.wireRequest(send.Msg)
		to := s.node(send.To)
		s.net.Send(from, send.To, func() { to.receive(from, life, correlation, msg) })
	}
	for _, d := range n.out.Damaged {
		s.counts.Found++
		s.w.Trace("%d finds a snapshot damaged: %s", n.id, d.Err.Error())
		if n.rotten == nil || n.rotten.id != d.ID {
			s.check.fail("SnapshotAsWritten: node %d takes snapshot %s for damaged, which it is not: %v", n.id, d.ID, d.Err)
		}
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
		n.s.check.fail("StopsForItsDisk: node %d: %v", n.id, err)
		return
	}
	w, life := n.s.w, n.life
	took := n.dice.Between(100*time.Microsecond, 3*time.Millisecond)
	if n.s.faulting && n.s.plan.traits[traitSlowDisk] && n.dice.Chance(50) {
		took = n.dice.Between(20*time.Millisecond, 700*time.Millisecond)
	}
	// The disk does it at some moment in between: at the first or at the last.
	var syncErr error
	early := n.dice.Chance(500)
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
	life := n.life
	n.tick = n.s.w.At(n.clock.when(n.q.NextDeadline()), func() {
		if n.life == life {
			n.do("tick", func(now ident.Instant) error { return n.q.Tick(now) })
		}
	})
}

func (n *quorumNode) receive(from ident.NodeID, life int, correlation uint64, msg raft.Message) {
	if n.q == nil {
		if n.dice.Chance(500) {
			// Connection refused.
			n.s.net.Send(n.id, from, func() { n.s.node(from).respond(n.id, life, correlation, nil, errors.New("refused")) })
		}
		return
	}
	n.do("request", func(now ident.Instant) error {
		n.token++
		n.requests[n.token] = quorumRequest{from, life, correlation, msg}
		n.s.check.received(n, now, msg)
		return n.q.HandleRequest(now, n.token, msg)
	})
}

func (n *quorumNode) respond(from ident.NodeID, life int, correlation uint64, msg raft.Message, err error) {
	if n.q == nil || n.life != life {
		return // the connection it would come over is gone
	}
	n.do("response", func(now ident.Instant) error { return n.q.HandleResponse(now, from, correlation, msg, err) })
}

func (n *quorumNode) propose(d Dice) {
	s := n.s
	n.do("propose", func(now ident.Instant) error {
		first, err := n.q.Propose(now, n.leads, metadata.EncodeBatch(0, 0, n.wallMillis(), s.someRecords(d)...))
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
		n.s.w.Trace("%d stands still", n.id)
		n.paused = true
	}
}

func (n *quorumNode) pauseFor(d time.Duration) {
	n.pause()
	n.s.w.After(d, n.resume)
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

func (n *quorumNode) restartLater(d Dice) {
	n.s.w.After(d.Between(10*time.Millisecond, 1500*time.Millisecond), func() {
		if n.q == nil && n.s.check.violation == "" {
			n.boot()
		}
	})
}

func (n *quorumNode) wallMillis() int64 { return int64(n.s.w.Now().Add(n.clock.wall)) / 1e6 }

func (s *quorumSim) electionTimeout() time.Duration {
	if s.plan.traits[traitMeeting] {
		return 15 * time.Millisecond
	}
	return 0
}
