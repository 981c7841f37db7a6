package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/replication"
)

// ISROptions shape a run of the ISR protocol. What is left zero follows from the seed.
type ISROptions struct {
	Seed    uint64
	Mutant  replication.Mutant
	Verbose bool // keep the text of the trace
	// Disk: "" draws one of the first three.
	Disk DiskMode
}

// DiskMode says what is flushed when, and which crashes may happen under it.
type DiskMode string

// The modes of DESIGN's first invariant.
const (
	// PageCache with process crashes: the page cache survives each of them.
	PageCache DiskMode = "page-cache"
	// MachineLoss: page cache, and now and then one machine loses what was not flushed while the others are well.
	MachineLoss DiskMode = "machine-loss"
	// FlushAlways, and any machine may lose what was not flushed at any time.
	FlushAlways DiskMode = "flush-always"
	// FlushSwitched: flush: Always is switched on and off while the topic is used. Any machine may lose what was not
	// flushed at any time, from when all have taken it over until it is switched off.
	FlushSwitched DiskMode = "flush-switched"
)

// ISRReport is what a run came to.
type ISRReport struct {
	Violation string // empty when every invariant held and everything healed
	Hash      uint64
	Trace     string
	Steps     int
	Disk      DiskMode
	Counts    ISRCounts
}

// ISRCounts tells how much happened, so that a test can see that the runs were worth something.
type ISRCounts struct {
	Acked, Read, Refused, TimedOut       int // produces acknowledged with acks=all, records read, other outcomes
	Elections, Shrinks, Expands, Refusal int // leader epochs; ISR changes by leaders; proposals refused
	Kills, Losses, Pauses, Cuts          int
	Truncations, Resets                  int // of followers' logs: the end cut off; begun anew at the leader's start
	DiskErrors, Retentions, MinISRs      int // faults and changes of configuration
	Blackouts, Switches                  int // losses of all machines at once; of the flush policy
	Rots, Damages, Quarantines, Refills  int // bits flipped; found; logs cut for it; made whole again
	Compactions, Gone, Deletions         int // of logs; records found gone by it; DeleteRecords that succeeded
}

const (
	isrTopic        = "t"
	isrController   = ident.NodeID(1000)
	isrFaultTime    = 10 * time.Second
	isrHealTime     = 30 * time.Second
	isrLagTime      = time.Second
	isrSession      = 1500 * time.Millisecond
	isrHeartbeat    = 300 * time.Millisecond
	isrFetchWait    = 200 * time.Millisecond
	isrFetchTimeout = 800 * time.Millisecond
)

// isrSim is one cluster of three nodes and a controller with one partition.
type isrSim struct {
	opts    ISROptions
	disk    DiskMode
	w       *World
	net     *Network // fetches, produces: faulty
	control *Network // to and from the controller: TCP keeps it in order, and nothing arrives twice
	minISR  int
	// flushApart has flushes take time, with appends and truncations going on beside them.
	flushApart bool

	ctl       *isrAuthority
	nodes     []*isrNode
	producers []*isrProducer
	consumers []*isrConsumer
	check     *isrChecker
	counts    ISRCounts
	violation string
	faults    bool // the time of faults
	lastFault ident.Instant
	// quietUntil is when producers go on; they are not to write before.
	quietUntil ident.Instant
	flush      isrFlush
	rotten     *isrRot // nil: all records are whole
	// compact: the topic's records have keys, and its logs are compacted; deletes: clients delete records.
	compact, deletes bool
}

// RunISR plays one seed: three nodes with the shipping executors and cores on simulated disks, the shipping
// controller, clients and faults; then everything heals and must come to rest in order. Every invariant is checked
// after every step.
func RunISR(o ISROptions) ISRReport {
	w := NewWorld(o.Seed)
	w.Verbose = o.Verbose
	s := &isrSim{opts: o, w: w, minISR: 1 + w.IntN(2), compact: o.Seed%4 == 0, deletes: o.Seed%2 == 0}
	s.disk = []DiskMode{PageCache, MachineLoss, FlushAlways}[w.IntN(3)]
	if s.disk == MachineLoss {
		s.minISR = 2
	}
	if o.Disk != "" {
		if s.disk = o.Disk; s.disk == MachineLoss {
			s.minISR = 2
		}
	}
	s.flushApart = w.Chance(500)
	s.net = NewNetwork(w, Calm)
	s.control = NewNetwork(w, Calm)
	s.check = newISRChecker(s)
	w.Trace("seed %d disk %s min ISR %d mutant %d", o.Seed, s.disk, s.minISR, o.Mutant)
	s.run()
	return ISRReport{
		Violation: s.violation, Hash: w.Hash(), Trace: w.Text(), Steps: w.Steps(), Disk: s.disk, Counts: s.counts,
	}
}

func (s *isrSim) run() {
	s.ctl = newISRAuthority(s)
	for id := ident.NodeID(1); id <= 3; id++ {
		n := newISRNode(s, id)
		s.nodes = append(s.nodes, n)
		n.start()
	}
	if !s.until(5*time.Second, "the nodes register", s.ctl.allActive) {
		return
	}
	s.ctl.createTopic()
	for i := range 2 {
		s.producers = append(s.producers, newISRProducer(s, ident.NodeID(101+i), i == 0))
		s.consumers = append(s.consumers, newISRConsumer(s, ident.NodeID(201+i)))
	}
	s.faults = true
	s.net.Faults = Faults{
		DelayMin: 100 * time.Microsecond, DelayMax: s.w.Between(time.Millisecond, 20*time.Millisecond),
		Loss: s.w.IntN(30), Duplicate: s.w.IntN(50), Reorder: s.w.IntN(200),
	}
	s.control.Faults = Faults{DelayMin: 100 * time.Microsecond, DelayMax: s.w.Between(time.Millisecond, 100*time.Millisecond), Loss: s.w.IntN(50)}
	s.nextFault()
	s.nextUpkeep()
	end := s.w.Now().Add(isrFaultTime)
	s.w.RunUntil(end, func() bool { return s.violation != "" })
	if s.violation != "" {
		return
	}
	s.heal()
	s.until(isrHealTime, "healed: three in sync, a new record acknowledged, all logs and readers at the end", s.atRest)
}

// until runs until done, and says what was missing if that takes longer than limit.
func (s *isrSim) until(limit time.Duration, what string, done func() bool) bool {
	end := s.w.Now().Add(limit)
	s.w.RunUntil(end, func() bool { return s.violation != "" || done() })
	if s.violation == "" && !done() {
		s.fail("after %v not yet: %s%s", limit, what, s.describe())
	}
	return s.violation == ""
}

func (s *isrSim) fail(format string, args ...any) {
	if s.violation == "" {
		s.violation = fmt.Sprintf(format, args...)
		s.w.Trace("VIOLATION %s", s.violation)
	}
}

// heal ends all faults.
func (s *isrSim) heal() {
	s.faults = false
	s.w.Trace("heal")
	s.net.Heal()
	s.control.Heal()
	s.net.Faults, s.control.Faults = Calm, Calm
	for _, n := range s.nodes {
		n.resume()
		if !n.up {
			n.start()
		}
	}
	for _, p := range s.producers {
		p.stopAfter = p.acked + 3
	}
}

// atRest says whether everything is in order again.
func (s *isrSim) atRest() bool {
	p := s.ctl.partition()
	if p == nil || p.Leader == ident.NoNode || len(p.ISR) != 3 || s.rotten != nil || slices.Contains(p.Directories, ident.LostDirectory) {
		return false
	}
	for _, pr := range s.producers {
		if !pr.done() {
			return false
		}
	}
	end := s.nodes[p.Leader-1].end()
	for _, n := range s.nodes {
		if n.part == nil || n.end() != end || n.part.HighWatermark() != end || n.part.Core().LeaderEpoch() != p.LeaderEpoch {
			return false
		}
	}
	return !slices.ContainsFunc(s.consumers, func(c *isrConsumer) bool { return c.offset != end }) && (s.compact && s.sameValues() || !s.compact && s.identical())
}

func (s *isrSim) describe() string {
	text := ""
	if p := s.ctl.partition(); p != nil {
		text = fmt.Sprintf("; controller: leader %d le %d pe %d ISR %v", p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.ISR)
		text += fmt.Sprintf(" directories %v", p.Directories)
	}
	if s.rotten != nil {
		text += fmt.Sprintf("; node %d is rotten, known %v", s.rotten.node.id, s.rotten.known)
	}
	for _, n := range s.nodes {
		if text += fmt.Sprintf("; node %d up %v", n.id, n.up); n.part != nil {
			c := n.part.Core()
			text += fmt.Sprintf(" %v le %d end %d hw %d pending %v", c.Role(), c.LeaderEpoch(), n.end(), c.HighWatermark(), c.Pending())
		}
	}
	for _, p := range s.producers {
		text += fmt.Sprintf("; producer %d done %v", p.id, p.done())
	}
	for _, c := range s.consumers {
		text += fmt.Sprintf("; consumer %d at %d", c.id, c.offset)
	}
	return text
}

// metadataOf turns the controller's state into the event of the core.
func metadataOf(p *metadata.Partition, minISR int) replication.MetadataChanged {
	var lost []ident.NodeID
	for _, id := range p.Replicas {
		if lostIn(p, id) {
			lost = append(lost, id)
		}
	}
	return replication.MetadataChanged{
		Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
		Replicas: p.Replicas, ISR: p.ISR, Lost: lost, MinISR: minISR,
	}
}
