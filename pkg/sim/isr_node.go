package sim

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/topicconfig"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// isrNode is one data node: what the loops of pkg/node do, without goroutines and sockets.
type isrNode struct {
	s   *isrSim
	id  ident.NodeID
	fs  *vfs.Mem
	dir ident.UUID

	up      bool
	life    int
	paused  bool
	backlog []func() // what arrived while paused

	incarnation ident.UUID
	brokerEpoch int64 // -1 before the registration is answered
	image       *metadata.Image
	broken      bool         // the disk takes no more
	checkpoint  ident.Offset // the high watermark that was saved last
	// recoveryPoint is what was flushed of the log, as far as its checkpoint says.
	recoveryPoint ident.Offset
	logStart      ident.Offset // what its checkpoint says of the log's start
	clean         ident.Offset // and to where it is compacted
	passes        int          // scrubs of the whole log
	assigning     bool         // a directory is being told to the controller
	saidWhole     bool         // since it last said that records are damaged
	examining     bool         // a suspect segment will be looked at

	part     *exec.Partition
	out      exec.Output
	timer    *Timer
	fetchNo  int  // names the fetch under way
	fetching bool // one is under way
	// lastFetch delivers a copy of the fetch that was sent last, whatever has become of the sender.
	lastFetch func()
	alterNo   uint64 // names the connection that the AlterPartition under way uses

	token    replication.Token
	produces map[replication.Token]func(exec.Produced)
	deletes  map[replication.Token]ident.Offset // what DeleteRecords is to delete
	parked   map[replication.Token]isrParked
}

type isrParked struct {
	fetch exec.Fetch
	reply func(exec.FetchResult, []byte)
}

func newISRNode(s *isrSim, id ident.NodeID) *isrNode {
	n := &isrNode{s: s, id: id, fs: vfs.NewMem(), dir: ident.UUID{0: byte(id), 15: 200}}
	// The data directory is there before the node is, as a mounted volume is.
	if err := errors.Join(n.fs.MkdirAll("/data", 0o755), n.fs.SyncDir("/")); err != nil {
		s.fail("node %d: %v", id, err)
	}
	return n
}

// start begins a new life of the process.
func (n *isrNode) start() {
	n.up, n.paused, n.backlog = true, false, nil
	n.life++
	n.incarnation = ident.UUID{0: byte(n.id), 1: byte(n.life), 2: byte(n.life >> 8), 3: 1}
	n.brokerEpoch, n.image, n.part = -1, nil, nil
	n.fetching, n.broken, n.assigning, n.examining = false, false, false, false
	n.produces, n.parked = map[replication.Token]func(exec.Produced){}, map[replication.Token]isrParked{}
	n.deletes = map[replication.Token]ident.Offset{}
	n.s.w.Trace("node %d starts life %d", n.id, n.life)
	n.register()
	n.saveCheckpoint()
	n.scrub()
}

// kill ends the process; its page cache stays.
func (n *isrNode) kill() {
	n.up = false
	n.s.w.Trace("node %d killed", n.id)
	n.s.check.gone(n)
	n.part = nil
}

// loseMachine ends the process and takes from the disk what was not flushed.
func (n *isrNode) loseMachine(keepPercent int) {
	n.kill()
	n.fs = n.fs.CrashClone(n.s.w.Rand, keepPercent)
}

func (n *isrNode) resume() {
	backlog := n.backlog
	n.paused, n.backlog = false, nil
	for _, f := range backlog {
		f()
	}
}

// deliver runs f if the node still lives the given life; later, if it is paused.
func (n *isrNode) deliver(life int, f func()) {
	switch {
	case !n.up || n.life != life:
	case n.paused:
		n.backlog = append(n.backlog, func() { n.deliver(life, f) })
	default:
		f()
	}
}

func (n *isrNode) after(d time.Duration, f func()) {
	life := n.life
	n.s.w.After(d, func() { n.deliver(life, f) })
}

// ask sends a request to the controller; answer is called with the response, if it comes.
func (n *isrNode) ask(req kmsg.Request, admit func() bool, answer func(kmsg.Response)) {
	life := n.life
	n.s.control.Send(n.id, isrController, func() {
		if admit != nil && !admit() {
			return
		}
		resp := n.s.ctl.handle(req)
		n.s.control.Send(isrController, n.id, func() { n.deliver(life, func() { answer(resp) }) })
	})
}

// register repeats the registration until it is answered.
func (n *isrNode) register() {
	if n.brokerEpoch >= 0 {
		return
	}
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID = int32(n.id), "sim", n.incarnation
	req.LogDirs = [][16]byte{n.dir}
	feature := kmsg.NewBrokerRegistrationRequestFeature()
	feature.Name, feature.MinSupportedVersion, feature.MaxSupportedVersion = metadata.FeatureMetadataVersion, int16(metadata.Pinned), int16(metadata.Pinned)
	req.Features = append(req.Features, feature)
	n.ask(req, nil, func(r kmsg.Response) {
		if resp := r.(*kmsg.BrokerRegistrationResponse); resp.ErrorCode == 0 && n.brokerEpoch < 0 {
			n.brokerEpoch = resp.BrokerEpoch
			n.s.w.Trace("node %d has broker epoch %d", n.id, n.brokerEpoch)
			n.heartbeat()
		}
	})
	n.after(200*time.Millisecond, n.register)
}

func (n *isrNode) heartbeat() {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = int32(n.id), n.brokerEpoch, int64(n.known())
	life := n.life
	n.ask(req, nil, func(kmsg.Response) {})
	// Metadata comes by its own way, for whoever missed a push.
	n.s.control.Send(n.id, isrController, func() {
		if n.life == life {
			n.s.ctl.push(n)
		}
	})
	n.after(isrHeartbeat, n.heartbeat)
}

func (n *isrNode) saveCheckpoint() {
	if n.part != nil {
		n.checkpoint = n.part.HighWatermark()
	}
	n.after(2*time.Second, n.saveCheckpoint)
}

// known is the metadata offset that the node has applied.
func (n *isrNode) known() ident.Offset {
	if n.image == nil {
		return -1
	}
	o, _ := n.image.Position()
	return o
}

// Broker makes the node's image what the core asks about others.
func (n *isrNode) Broker(id ident.NodeID) (replication.Broker, bool) {
	b, ok := n.image.Broker(id)
	if !ok {
		return replication.Broker{}, false
	}
	return replication.Broker{Epoch: b.Epoch, Fenced: b.Fenced, ShuttingDown: b.InControlledShutdown}, true
}

// learn takes over a newer state. The partition's part waits until the node's own registration is in it: before
// that the node would act by what was true of its earlier life.
func (n *isrNode) learn(image *metadata.Image) {
	if o, _ := image.Position(); !n.up || o <= n.known() {
		return
	}
	n.image = image
	if b, ok := image.Broker(n.id); !ok || b.Incarnation != n.incarnation {
		return
	}
	p, ok := image.Partition(n.s.ctl.topic)
	if !ok {
		return
	}
	if n.part == nil && !n.open() {
		return
	}
	n.part.SetFlushPolicy(n.s.w.Now(), n.flushPolicy())
	n.settle() // the checker looks at what the old leadership has committed by it
	n.part.ApplyMetadata(n.s.w.Now(), metadataOf(p, isrMinISR(image)))
	n.settle()
	n.part.BrokersChanged(n.s.w.Now())
	n.settle()
}

func (n *isrNode) open() bool {
	part, recovery, err := exec.OpenPartition(exec.PartitionConfig{
		FS: vfs.Inject(n.fs, n.fault), Dir: "/data/" + isrTopic + "-0", Topic: isrTopic, ID: n.s.ctl.topic,
		Log: log.Config{
			RecoveryPoint: n.recoveryPoint, StartOffset: n.logStart, CleanOffset: n.clean, LowerCheckpoints: n.lower,
			ServeDamaged: n.s.opts.Mutant == replication.DamageServed,
			Settings:     log.Settings{SegmentBytes: 1024, SegmentMs: 2000, SegmentJitterMs: 500, Compaction: log.Compaction{Enabled: n.s.compact}},
		},
		FlushApart: n.s.flushApart,
		Flush:      n.flushPolicy(),
		Replication: replication.Config{
			Self: n.id, LagTimeMax: isrLagTime, FetchBackoff: 200 * time.Millisecond,
			HighWatermark: n.checkpoint, Mutant: n.s.opts.Mutant,
		},
		Cluster: n,
	})
	if err != nil {
		n.s.fail("node %d: %v", n.id, err)
		return false
	}
	n.part = part
	n.s.w.Trace("node %d opens its log: end %d, high watermark %d, cut %d bytes", n.id, n.end(), part.HighWatermark(), recovery.CutBytes)
	n.s.check.opened(n)
	return true
}

// lower is log.Config.LowerCheckpoints.
func (n *isrNode) lower(recoveryPoint, logStart ident.Offset) error {
	n.recoveryPoint, n.clean, n.logStart = min(n.recoveryPoint, recoveryPoint), min(n.clean, recoveryPoint), min(n.logStart, logStart)
	n.s.check.lowered(n)
	return nil
}

var errISRDisk = errors.New("input/output error")

// fault is asked before each operation on the disk.
func (n *isrNode) fault(op, _ string) error {
	if n.broken && (op == vfs.OpWrite || op == vfs.OpSync) {
		return errISRDisk
	}
	return nil
}

// isrMinISR is the topic's min.insync.replicas.
func isrMinISR(image *metadata.Image) int {
	value, _ := image.Config(metadata.ResourceTopic, isrTopic).Get(topicconfig.MinInsyncReplicas)
	n, err := strconv.Atoi(value)
	if err != nil {
		return 1
	}
	return n
}

func (n *isrNode) end() ident.Offset { return n.part.Log().EndOffset() }

// settle drains the executor and acts on what it says, until there is nothing more, as a loop does after each call.
func (n *isrNode) settle() {
	for range 100 {
		n.part.Drain(n.s.w.Now(), &n.out)
		l := n.part.Log()
		n.recoveryPoint, n.logStart, n.clean = l.FlushedOffset(), l.DurableStartOffset(), l.CleanOffset()
		n.s.check.stepped(n)
		if !n.act() {
			n.arm()
			return
		}
	}
	n.s.fail("node %d: its executor never comes to rest", n.id)
}

// act does what the executor wants; it says whether the executor was called again.
func (n *isrNode) act() bool {
	if err := n.out.Failed; err != nil {
		if !errors.Is(err, errISRDisk) {
			n.s.fail("node %d: log failed: %v", n.id, err)
		}
		n.s.w.Trace("node %d: log failed: %v", n.id, err)
		n.after(n.s.w.Between(0, 500*time.Millisecond), func() {
			n.kill()
			n.restartAfter(n.s.w.Between(10*time.Millisecond, time.Second))
		})
	}
	for _, c := range n.out.Completed {
		if reply := n.produces[c.Token]; reply != nil {
			delete(n.produces, c.Token)
			reply(c)
		}
	}
	for _, d := range n.out.Deleted {
		n.s.check.deleted(n, d, n.deletes[d.Token])
		delete(n.deletes, d.Token)
	}
	for _, f := range n.out.Facts {
		n.s.check.fact(n, f)
	}
	if n.out.Flush {
		n.flush()
	}
	for _, d := range n.out.Damage {
		n.s.counts.Damages++
		n.s.w.Trace("node %d: %s", n.id, d)
	}
	if q := n.out.Quarantined; q != nil {
		n.s.counts.Quarantines++
		n.s.w.Trace("node %d quarantines segments %v: %d to %d", n.id, q.Segments, q.From, q.To)
	}
	if q := n.out.Refilled; q != nil {
		n.s.counts.Refills++
		n.s.w.Trace("node %d is refilled: %d to %d", n.id, q.From, q.To)
	}
	n.assign()
	n.s.rotOver()
	if n.out.Proposal != nil {
		n.propose(*n.out.Proposal)
	}
	for _, token := range n.out.Wake {
		p := n.parked[token]
		delete(n.parked, token)
		p.fetch.Again = true
		n.answer(p.fetch, p.reply)
	}
	n.nextFetch()
	return len(n.out.Wake) > 0
}

// flush has the disk work for a while. A crash meanwhile leaves nothing of it.
func (n *isrNode) flush() {
	f, ok := n.part.BeginFlush(n.s.w.Now())
	if !ok {
		return
	}
	n.after(n.s.w.Between(0, 20*time.Millisecond), func() {
		n.part.EndFlush(n.s.w.Now(), f, f.Sync())
		n.settle()
	})
}

func (n *isrNode) arm() {
	if n.timer != nil {
		n.timer.Stop()
	}
	life := n.life
	n.timer = n.s.w.At(n.part.NextDeadline(), func() {
		n.deliver(life, func() {
			n.part.Tick(n.s.w.Now())
			n.settle()
		})
	})
}

// propose sends an AlterPartition. One is under way at a time; its answer or its time-out ends it. After a time-out
// the connection is another one: what was still on the old one is not taken any more once the new one was heard.
func (n *isrNode) propose(p replication.Proposal) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = 3, int32(n.id), n.brokerEpoch
	topic, part := kmsg.NewAlterPartitionRequestTopic(), kmsg.NewAlterPartitionRequestTopicPartition()
	topic.TopicID = n.s.ctl.topic.Topic
	part.LeaderEpoch, part.PartitionEpoch = int32(p.LeaderEpoch), p.PartitionEpoch
	for _, m := range p.ISR {
		member := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		member.BrokerID, member.BrokerEpoch = int32(m.ID), m.BrokerEpoch
		part.NewEpochISR = append(part.NewEpochISR, member)
	}
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	n.s.w.Trace("node %d proposes %v at le %d pe %d", n.id, p.ISR, p.LeaderEpoch, p.PartitionEpoch)

	n.alterNo++
	no := n.alterNo
	done := func(d replication.AlterPartitionDone) {
		if n.alterNo != no {
			return
		}
		n.alterNo++ // late answers of this one are not heard any more
		d.LeaderEpoch, d.PartitionEpoch = p.LeaderEpoch, p.PartitionEpoch
		n.s.w.Trace("node %d: proposal answered %d", n.id, d.Code)
		if d.Code == replication.IneligibleReplica {
			n.s.counts.Refusal++
		}
		n.part.AlterPartitionDone(n.s.w.Now(), d)
		n.settle()
	}
	connection := uint64(n.life)<<32 | no
	admit := func() bool {
		if connection < n.s.ctl.alters[n.id] {
			return false
		}
		n.s.ctl.alters[n.id] = connection
		return true
	}
	n.ask(req, admit, func(r kmsg.Response) { done(alterAnswer(r.(*kmsg.AlterPartitionResponse))) })
	n.after(time.Second, func() { done(replication.AlterPartitionDone{Code: replication.RequestTimedOut}) })
}

func alterAnswer(resp *kmsg.AlterPartitionResponse) replication.AlterPartitionDone {
	if resp.ErrorCode != 0 {
		return replication.AlterPartitionDone{Code: replication.Code(resp.ErrorCode)}
	}
	p := &resp.Topics[0].Partitions[0]
	d := replication.AlterPartitionDone{
		Code: replication.Code(p.ErrorCode), NowLeader: ident.NodeID(p.LeaderID), NowLeaderEpoch: ident.Epoch(p.LeaderEpoch),
		NowPartitionEpoch: p.PartitionEpoch,
	}
	for _, id := range p.ISR {
		d.NowISR = append(d.NowISR, ident.NodeID(id))
	}
	return d
}

func (n *isrNode) String() string { return fmt.Sprintf("node %d", n.id) }
