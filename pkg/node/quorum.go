package node

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/quorum/raft/rpc"
	"github.com/highwater-io/highwater/pkg/wire"
)

// quorum is this node's member of the metadata quorum, voter or observer: the executor under its mutex, the calls
// to the other members (quorumpeers.go), and the fsync that runs beside it.
type quorum struct {
	node  *Node
	peers *quorumPeers

	mu        sync.Mutex
	exec      *exec.Quorum
	output    exec.QuorumOutput
	nextToken uint64
	waiting   map[uint64]func(raft.Message)
	// installing: a snapshot was on its way here when the executor was last looked at.
	installing bool
	latency    quorumLatency

	committed atomic.Int64 // the high watermark
	// snapshotWanted: the disk has damaged the last snapshot, and there is none in its place yet.
	snapshotWanted atomic.Bool
	timerKick      chan struct{}
	flushKick      chan struct{}
	choresKick     chan struct{}
}

func (n *Node) metadataLogDir() string {
	return filepath.Join(n.cfg.MetadataDir, log.DirName(ident.MetadataTopic, 0))
}

func (n *Node) self() raft.ReplicaKey {
	return raft.ReplicaKey{ID: n.cfg.NodeID, DirectoryID: n.cfg.DirectoryID}
}

// openQuorum opens the metadata log.
func openQuorum(n *Node) (*quorum, error) {
	dir, self := n.metadataLogDir(), n.self()
	voters, err := configuredVoters(n.cfg.Shared.Voters)
	if err != nil {
		return nil, err
	}
	config := raft.Config{Self: self, ClusterID: n.cfg.Shared.ClusterID.String(), Bootstrap: voters, Seed: uint64(n.incarnation[0])<<32 | uint64(uint32(n.cfg.NodeID))}
	if n.cfg.Voter {
		endpoint, err := controllerEndpoint(n.cfg.AdvertisedController)
		if err != nil {
			return nil, err
		}
		config.Endpoints = []raft.Endpoint{endpoint}
	}
	q := &quorum{
		node: n, waiting: map[uint64]func(raft.Message){},
		timerKick: make(chan struct{}, 1), flushKick: make(chan struct{}, 1), choresKick: make(chan struct{}, 1),
		latency: newQuorumLatency(n.metrics, n.clock.now()),
	}
	q.committed.Store(int64(ident.UnknownOffset))
	q.peers = newQuorumPeers(q)
	opened, recovery, err := exec.OpenQuorum(exec.QuorumConfig{
		FS: n.metadataDir, Dir: dir, Raft: config, Voters: voters, ChoresApart: true,
		WallMillis: func() int64 { return time.Now().UnixMilli() },
	})
	if err != nil {
		return nil, err
	}
	for _, repair := range recovery.Repairs {
		n.logger.Warn("metadata log recovery", "repair", repair)
	}
	q.exec = opened
	return q, nil
}

func controllerEndpoint(address string) (raft.Endpoint, error) {
	host, port, err := splitAddress(address)
	return raft.Endpoint{Name: string(wire.Controller), Host: host, Port: port}, err
}

// configuredVoters are the voters that the configuration names.
func configuredVoters(configured []VoterConfig) (raft.VoterSet, error) {
	voters := make([]raft.Voter, 0, len(configured))
	for _, v := range configured {
		voters = append(voters, raft.Voter{
			Key:       raft.ReplicaKey{ID: v.ID, DirectoryID: v.DirectoryID},
			Endpoints: []raft.Endpoint{{Name: string(wire.Controller), Host: v.Host, Port: uint16(v.Port)}},
		})
	}
	return raft.NewVoterSet(voters...)
}

// do calls f under the mutex and acts on what it brought about once the mutex is free.
func (q *quorum) do(f func(now ident.Instant) error) {
	q.mu.Lock()
	err := f(q.node.clock.now())
	q.settle(err)
}

// settle drains the executor, frees the mutex, which the caller holds, and acts.
func (q *quorum) settle(err error) {
	if err == nil {
		err = q.exec.Err()
	}
	q.exec.Drain(&q.output)
	out := q.output
	sends := make([]outgoingCall, 0, len(out.Sends))
	for _, send := range out.Sends {
		endpoints := send.Endpoints
		if len(endpoints) == 0 {
			endpoints = q.exec.Core().Endpoints(send.To)
		}
		sends = append(sends, outgoingCall{send, endpoints})
	}
	answers := make([]func(), 0, len(out.Replies))
	for _, reply := range out.Replies {
		if answer, ok := q.waiting[reply.Token]; ok {
			delete(q.waiting, reply.Token)
			answers = append(answers, func() { answer(reply.Msg) })
		}
	}
	// Under the mutex, so that the newest leadership is the last that is told, and told before anything that is
	// committed after it. None of those who are told waits or calls back.
	var changed bool
	now := q.node.clock.now()
	if err == nil && out.Leadership != nil {
		changed = q.leadershipChanged(*out.Leadership)
		q.latency.leadership(now, *out.Leadership, q.node.cfg.NodeID)
	}
	if err == nil && out.Leading != nil {
		q.node.publisher.lead(*out.Leading)
	}
	if out.HighWatermark {
		q.committed.Store(int64(q.exec.HighWatermark()))
		q.latency.committed(now, q.exec.HighWatermark())
	}
	flush := q.exec.FlushWanted()
	q.snapshotWanted.Store(q.exec.SnapshotWanted())
	install := q.installing
	q.installing = q.exec.Core().Install().Active
	install = install || q.installing
	q.mu.Unlock()

	if changed {
		q.node.logger.Info("quorum leadership", "leader", out.Leadership.Leader, "epoch", out.Leadership.Epoch)
	}
	if err != nil {
		if q.node.metadataDir.offline() != nil {
			q.node.installs.diskFailed(time.Now(), err)
		}
		q.node.stop(err)
		return
	}
	if install {
		q.node.installs.wake()
	}
	if flush {
		wakeUp(q.flushKick)
	}
	wakeUp(q.timerKick)
	for _, d := range out.Damaged {
		q.node.metrics.snapshots.damaged.Inc()
		q.node.logger.Error("a metadata snapshot on this node's disk is damaged: it is served to nobody any more, and one of the state in memory "+
			"takes its place; look after the disk", "id", d.ID.String(), "error", d.Err)
	}
	if out.HighWatermark || len(out.Damaged) > 0 {
		q.node.publisher.wake()
	}
	for _, answer := range answers {
		answer()
	}
	for _, call := range sends {
		q.peers.send(call)
	}
}

// wakeUp tells a loop that there is something to look at.
func wakeUp(kick chan struct{}) {
	select {
	case kick <- struct{}{}:
	default:
	}
}

// kicked waits for a wakeUp. It says false when ctx has ended.
func kicked(ctx context.Context, kick <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-kick:
		return true
	}
}

// leadershipChanged tells who has to know; the mutex is held. It says whether there is news.
func (q *quorum) leadershipChanged(l raft.Leadership) bool {
	before, _ := q.node.controllers.current()
	q.node.controllers.setLeader(l)
	if q.node.controller != nil {
		q.node.controller.leadership(l)
	}
	return before.Leader != l.Leader || before.Epoch != l.Epoch
}

// start takes up the role that the vote asks for and runs the loops until ctx ends. Nothing may ask the quorum before.
func (q *quorum) start(ctx context.Context, running *sync.WaitGroup) {
	q.peers.start(ctx, running)
	q.do(q.exec.Start)
	running.Go(func() { q.timerLoop(ctx) })
	running.Go(func() { q.flushLoop(ctx) })
	running.Go(func() { q.choresLoop(ctx) })
}

func (q *quorum) timerLoop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		q.node.metrics.turns.timer.Inc()
		q.mu.Lock()
		deadline := q.exec.NextDeadline()
		q.mu.Unlock()
		timer.Reset(max(0, q.node.clock.until(deadline)))
		select {
		case <-ctx.Done():
			return
		case <-q.timerKick:
		case <-timer.C:
			q.do(q.exec.Tick)
		}
	}
}

// flushLoop syncs the log beside everything else: what is appended during one fsync goes with the next (group
// commit without linger).
func (q *quorum) flushLoop(ctx context.Context) {
	for kicked(ctx, q.flushKick) {
		q.node.metrics.turns.flush.Inc()
		q.mu.Lock()
		if !q.exec.FlushWanted() {
			q.mu.Unlock()
			continue
		}
		pending, err := q.exec.BeginFlush()
		q.mu.Unlock()
		if err != nil {
			q.node.stop(err)
			return
		}
		syncErr := pending.Sync()
		q.do(func(now ident.Instant) error { return q.exec.EndFlush(now, pending, syncErr) })
		wakeUp(q.choresKick)
	}
}

// choresLoop does what flushes have found that the log has left to be done. No vote and no acknowledgement waits for it:
// the next fsync may begin meanwhile.
func (q *quorum) choresLoop(ctx context.Context) {
	for kicked(ctx, q.choresKick) {
		q.mu.Lock()
		chores := q.exec.BeginChores()
		q.mu.Unlock()
		if chores == nil {
			continue
		}
		err := chores.Run()
		q.do(func(ident.Instant) error { return q.exec.EndChores(chores, err) })
	}
}

// call answers a request of another member of the quorum; a Fetch now or when there is news.
func (q *quorum) call(req *wire.Request) { q.ask(req.Body, req.Reply, req.Fail) }

// ask is call for a request that came in an envelope, too: either function is called once.
func (q *quorum) ask(body kmsg.Request, answered func(kmsg.Response), failed func(error)) {
	message, refusal := rpc.FromRequest(body)
	if refusal != nil {
		answered(refusal)
		return
	}
	q.mu.Lock()
	q.nextToken++
	token := q.nextToken
	q.waiting[token] = func(answer raft.Message) {
		resp, err := rpc.ToResponse(body, answer)
		if err != nil {
			failed(err)
			return
		}
		answered(resp)
	}
	q.settle(q.exec.HandleRequest(q.node.clock.now(), token, message))
}

// describe answers DescribeQuorum.
func (q *quorum) describe(body *kmsg.DescribeQuorumRequest) kmsg.Response {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.node.clock.now()
	description, leads := q.exec.Core().Describe(now)
	return rpc.DescribeQuorum(body, description, leads, q.exec.Core().Voters(), now, q.node.clock.wall(now))
}

// install is how far the node's last install of a snapshot is.
func (q *quorum) install() raft.Install {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.exec.Core().Install()
}

// leader is who leads the quorum as far as this node knows.
func (q *quorum) leader() ident.NodeID {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.exec.Core().Leadership().Leader
}

// votersInLog says whether the voter set is committed in the log, which is kraft.version 1 (KIP-853): a level that no
// metadata record tells.
func (q *quorum) votersInLog() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.exec.Core().VotersBelow(q.exec.HighWatermark()).Offset != raft.BootstrapOffset
}

// voterEndpoints lists where the voters listen.
func (q *quorum) voterEndpoints() []endpoint {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []endpoint
	for _, v := range q.exec.Core().Voters() {
		if len(v.Endpoints) > 0 {
			out = append(out, endpoint{id: v.Key.ID, host: v.Endpoints[0].Host, port: int32(v.Endpoints[0].Port)})
		}
	}
	return out
}

// highWatermark is the exclusive end of what is known to be committed.
func (q *quorum) highWatermark() ident.Offset { return ident.Offset(q.committed.Load()) }

// readBytes is how much of the metadata log is read in one piece.
const readBytes = 1 << 20

// readCommitted returns whole batches from an offset on, all of them committed; or the state that a snapshot brought,
// once, which comes first.
func (q *quorum) readCommitted(from ident.Offset) (*exec.State, []byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s, ok := q.exec.TakeState(); ok {
		return &s, nil, nil
	}
	raw, _, err := q.exec.ReadCommitted(nil, from, readBytes)
	return nil, raw, err
}

// propose is metadataLog's.
func (q *quorum) propose(epoch ident.Epoch, at ident.Offset, batches []byte) error {
	q.mu.Lock()
	if err := q.exec.CheckPropose(epoch, len(batches)); err != nil {
		q.mu.Unlock()
		if errors.Is(err, raft.ErrNotLeader) {
			return errNotLeading
		}
		return err
	}
	if end := q.exec.EndOffset(); end != at {
		q.mu.Unlock()
		return &otherOffsetError{end}
	}
	now := q.node.clock.now()
	_, err := q.exec.Propose(now, epoch, batches)
	if err == nil {
		q.latency.appended(now, q.exec.EndOffset())
	}
	q.settle(err)
	return err
}

// resign is metadataLog's.
func (q *quorum) resign(epoch ident.Epoch) {
	q.do(func(now ident.Instant) error { return q.exec.Resign(now, epoch) })
}

// leave gives up leadership in favour of the voter that is furthest, and lets the news of it go out.
func (q *quorum) leave(ctx context.Context) {
	q.mu.Lock()
	leadership := q.exec.Core().Leadership()
	q.mu.Unlock()
	if leadership.Leader != q.node.cfg.NodeID {
		return
	}
	q.resign(leadership.Epoch)
	q.peers.drain(ctx)
}

func (q *quorum) close() error {
	q.peers.close()
	return q.exec.Close()
}
