package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// A Controller is one voter's controller. It decides while it is active, which is while its voter leads the quorum;
// otherwise every request is answered NOT_CONTROLLER. It is not safe for concurrent use.
//
// Its owner calls it from one loop: requests as they come, Tick when NextDeadline has come, and appends what they
// return in that order.
type Controller struct {
	cfg     Config
	scratch []byte

	active     bool
	epoch      ident.Epoch
	nextOffset ident.Offset
	appended   state

	now      ident.Instant // of the call that is being handled
	deadline ident.Instant // what NextDeadline promised after the last call

	sessions    map[ident.NodeID]*session
	lastRecord  ident.Instant // when a record was last decided
	nextBalance ident.Instant
	unsettled   bool // settle has something to look at
}

// New returns a controller that is not active.
func New(cfg Config) (*Controller, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	return &Controller{cfg: cfg, deadline: ident.Never}, nil
}

// Config returns the configuration with its defaults filled in.
func (c *Controller) Config() Config { return c.cfg }

// minimumLevel is the lowest metadata.version at which this controller decides, 3.7-IV2: from it on registrations
// and partitions name directories.
const minimumLevel metadata.Level = 17

// BecomeLeader makes the controller active. The voter leads the quorum in the given epoch, and committed is the
// image of everything before nextOffset, the leader change record of that epoch included: the loop waits until its
// high watermark has come so far. openTransaction says whether that ends inside a metadata transaction (Loader's
// InTransaction), which is then aborted.
//
// The decisions come first in the new epoch: the bootstrap records of an empty log. Every unfenced broker gets a
// fresh session, since what its last contact was nobody here knows. An error says that the log asks for what this
// build does not do; the voter must then give its leadership up.
func (c *Controller) BecomeLeader(now ident.Instant, epoch ident.Epoch, committed *metadata.Image, nextOffset ident.Offset, openTransaction bool) ([]Decision, error) {
	if level := committed.Level(); level < minimumLevel {
		return nil, fmt.Errorf("metadata.version %d of the log is below %d, from which on this build leads a quorum; finish the upgrade first", level, minimumLevel)
	}
	if level := committed.Feature(metadata.FeatureELR); level > 0 {
		return nil, fmt.Errorf("%s is %d in the log; this build keeps no eligible leader replicas and leads only at level 0", metadata.FeatureELR, level)
	}
	c.active, c.epoch, c.nextOffset = true, epoch, nextOffset
	c.appended = newState(committed, c.cfg.TopicDefaults)
	c.now, c.deadline = now, ident.Never
	c.lastRecord, c.unsettled, c.nextBalance = now, true, ident.Never
	if c.cfg.BalanceInterval > 0 {
		c.nextBalance = now.Add(c.cfg.BalanceInterval)
	}
	c.sessions = map[ident.NodeID]*session{}
	for b := range committed.Brokers() {
		c.startSession(b.ID)
	}
	defer c.plan()
	t := c.begin()
	if openTransaction {
		reason := "Controller failover"
		t.add(&metadata.AbortTransactionRecord{Reason: &reason})
	}
	if committed.Feature(metadata.FeatureMetadataVersion) == 0 {
		// As Kafka's controller does on an empty log, in a transaction since the level has them (KIP-868).
		name := "Bootstrap records"
		t.add(
			&metadata.BeginTransactionRecord{Name: &name},
			&metadata.FeatureLevelRecord{Name: metadata.FeatureMetadataVersion, FeatureLevel: int16(metadata.Pinned)},
			&metadata.EndTransactionRecord{},
		)
	}
	if len(t.records) == 0 {
		return nil, nil
	}
	d := t.commit(nil)
	d.Reason = "the first records of this leadership"
	return []Decision{d}, nil
}

// Resign makes the controller inactive and forgets what it appended. Requests whose decisions are not committed
// are to be answered NOT_CONTROLLER.
func (c *Controller) Resign() {
	*c = Controller{cfg: c.cfg, scratch: c.scratch, deadline: ident.Never}
}

// Active says whether the controller decides.
func (c *Controller) Active() bool { return c.active }

// NextOffset is the offset that the next decision is made for.
func (c *Controller) NextOffset() ident.Offset { return c.nextOffset }

// LoseAppends makes image, and nothing else, what was appended: the last one of which all records are in the log,
// or the committed one. nextOffset is where the log ends. It is called when a decision could not be appended, and
// when something else was, such as a control record. What was decided and is not in the log is as if it had never
// been asked; those requests are decided again.
func (c *Controller) LoseAppends(image *metadata.Image, nextOffset ident.Offset) {
	if !c.active {
		return
	}
	c.appended = newState(image, c.cfg.TopicDefaults)
	c.nextOffset = nextOffset
	c.unsettled = true
	for id, s := range c.sessions {
		b := c.appended.broker(id)
		if b == nil {
			delete(c.sessions, id)
			continue
		}
		if s.epoch != b.Epoch || !b.InControlledShutdown {
			s.shutdownOffset = ident.UnknownOffset
		}
		s.epoch = b.Epoch
	}
	for b := range image.Brokers() {
		if c.sessions[b.ID] == nil {
			c.startSession(b.ID)
		}
	}
	c.plan()
}

// Handle decides a request of any kind that the controller answers; false for other kinds.
func (c *Controller) Handle(now ident.Instant, request kmsg.Request) (Decision, bool) {
	switch r := request.(type) {
	case *kmsg.BrokerRegistrationRequest:
		return c.BrokerRegistration(now, r), true
	case *kmsg.BrokerHeartbeatRequest:
		return c.BrokerHeartbeat(now, r), true
	case *kmsg.ControllerRegistrationRequest:
		return c.ControllerRegistration(now, r), true
	case *kmsg.AlterPartitionRequest:
		return c.AlterPartition(now, r), true
	case *kmsg.AssignReplicasToDirsRequest:
		return c.AssignReplicasToDirs(now, r), true
	case *kmsg.AllocateProducerIDsRequest:
		return c.AllocateProducerIDs(now, r), true
	case *kmsg.CreateTopicsRequest:
		return c.CreateTopics(now, r), true
	case *kmsg.CreatePartitionsRequest:
		return c.CreatePartitions(now, r), true
	case *kmsg.DeleteTopicsRequest:
		return c.DeleteTopics(now, r), true
	case *kmsg.IncrementalAlterConfigsRequest:
		return c.IncrementalAlterConfigs(now, r), true
	case *kmsg.ElectLeadersRequest:
		return c.ElectLeaders(now, r), true
	case *kmsg.UnregisterBrokerRequest:
		return c.UnregisterBroker(now, r), true
	case *kmsg.AlterPartitionAssignmentsRequest:
		return c.AlterPartitionReassignments(now, r), true
	case *kmsg.ListPartitionReassignmentsRequest:
		return c.ListPartitionReassignments(now, r), true
	}
	return Decision{}, false
}

// enter begins a call: it takes the time and gives every broker a fresh session when this controller itself was
// stalled, since heartbeats may have waited meanwhile (KAFKA-15019): it was not called when it said it had to be.
func (c *Controller) enter(now ident.Instant) {
	c.now = max(now, c.now)
	if c.active && c.now > c.deadline.Add(c.cfg.HeartbeatInterval) {
		c.renewSessions()
	}
}

// plan ends a call: it works out when time alone will have something decided.
func (c *Controller) plan() {
	if !c.active {
		c.deadline = ident.Never
		return
	}
	if c.unsettled {
		c.deadline = c.now
		return
	}
	c.deadline = max(c.now, min(c.lastRecord.Add(c.cfg.MaxIdleInterval), c.nextBalance, c.nextExpiry()))
}

// NextDeadline returns when Tick is due, ident.Never while the controller is not active.
func (c *Controller) NextDeadline() ident.Instant { return c.deadline }

// Tick decides what time alone brings: brokers whose sessions ended are fenced, leadership goes where it is
// preferred, and a log that stands still gets a NoOp. It may be called early.
func (c *Controller) Tick(now ident.Instant) []Decision {
	if !c.active {
		return nil
	}
	c.enter(now)
	defer c.plan()
	decisions := c.expire()
	decisions = append(decisions, c.settle()...)
	decisions = append(decisions, c.balance()...)
	if c.now >= c.lastRecord.Add(c.cfg.MaxIdleInterval) {
		t := c.begin()
		t.add(&metadata.NoOpRecord{})
		decisions = append(decisions, t.commit(nil))
	}
	return decisions
}
