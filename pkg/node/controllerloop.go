package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/controller"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// metadataLog is what the controller loop needs of the quorum: an append at exactly the offset that was decided
// for, by the leader of exactly that epoch. It may call the loop's methods meanwhile: none of them waits.
type metadataLog interface {
	propose(epoch ident.Epoch, at ident.Offset, batches []byte) error
	resign(epoch ident.Epoch)
}

// errNotLeading says that a proposal was not appended since somebody else leads by now.
var errNotLeading = errors.New("this voter does not lead the epoch any more")

// otherOffsetError says that a proposal was not appended since the log ends elsewhere than it was decided for.
type otherOffsetError struct{ end ident.Offset }

func (e *otherOffsetError) Error() string {
	return fmt.Sprintf("the log ends at %d, elsewhere than the records were decided for", e.end)
}

// controllerLoop runs the controller core of a voter: one goroutine, requests in the order of their arrival. An
// answer leaves when what it rests on is committed.
type controllerLoop struct {
	logger *slog.Logger
	clock  clock
	log    metadataLog
	core   *controller.Controller
	turned func() // is called at each turn

	self ident.NodeID

	// The queue has no bound of its own, since the goroutine itself puts into it (by an append that tells that the
	// leadership is over): the listeners bound the requests in flight.
	queueMu sync.Mutex
	queue   []func()
	ended   bool
	kick    chan struct{}

	contactMu sync.Mutex
	contacts  map[contact]ident.Instant

	// The rest belongs to the goroutine.
	known       raft.Leadership // the newest
	stopped     bool
	epoch       ident.Epoch
	appended    *metadata.Image // with the last decision that is in the log
	end         ident.Offset    // where the log ends by what was proposed
	committedTo ident.Offset
	waiting     []answer // in the order of their offsets, all of them above committedTo
}

type contact struct {
	id          ident.NodeID
	brokerEpoch int64
}

// answer waits for its commit; NOT_CONTROLLER is sent in its place when the leadership ends before.
type answer struct {
	offset   ident.Offset
	response kmsg.Response
	send     func(kmsg.Response)
	request  kmsg.Request
}

func newControllerLoop(cfg Config, logger *slog.Logger, c clock, log metadataLog, seed uint64) (*controllerLoop, error) {
	core, err := controller.New(controller.Config{
		ClusterID:                cfg.Shared.ClusterID.String(),
		Random:                   rand.NewPCG(seed, uint64(cfg.NodeID)),
		SessionTimeout:           cfg.Timing.SessionTimeout,
		HeartbeatInterval:        cfg.Timing.HeartbeatInterval,
		DefaultReplicationFactor: cfg.Shared.Defaults.ReplicationFactor,
		DefaultNumPartitions:     cfg.Shared.Defaults.Partitions,
		TopicDefaults:            topicDefaults(cfg.Shared.Defaults),
	})
	if err != nil {
		return nil, err
	}
	return &controllerLoop{
		logger: logger, clock: c, log: log, core: core, turned: func() {}, self: cfg.NodeID,
		kick: make(chan struct{}, 1), contacts: map[contact]ident.Instant{},
		known: raft.Leadership{Leader: ident.NoNode, Epoch: ident.UnknownEpoch},
	}, nil
}

// run works until ctx ends; then everybody who waits is told NOT_CONTROLLER.
func (c *controllerLoop) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		c.turned()
		timer.Reset(max(0, c.clock.until(c.core.NextDeadline())))
		select {
		case <-ctx.Done():
			c.stop()
			return
		case <-c.kick:
			c.workOff()
		case <-timer.C:
			c.tick()
		}
	}
}

// enqueue hands work to the goroutine; false when it has ended.
func (c *controllerLoop) enqueue(work func()) bool {
	c.queueMu.Lock()
	defer c.queueMu.Unlock()
	if c.ended {
		return false
	}
	c.queue = append(c.queue, work)
	wakeUp(c.kick)
	return true
}

// workOff does what is queued. What time brings does not wait for the end of a long queue.
func (c *controllerLoop) workOff() {
	c.queueMu.Lock()
	queue := c.queue
	c.queue = nil
	c.queueMu.Unlock()
	for _, work := range queue {
		if c.clock.now() >= c.core.NextDeadline() {
			c.tick()
		}
		work()
	}
}

// stop answers all who wait, those in the queue too.
func (c *controllerLoop) stop() {
	c.resigned()
	c.stopped = true
	c.queueMu.Lock()
	c.ended = true
	c.queueMu.Unlock()
	c.workOff()
}

// handle decides a request; send gets the answer, once.
func (c *controllerLoop) handle(request kmsg.Request, send func(kmsg.Response)) {
	if heartbeat, ok := request.(*kmsg.BrokerHeartbeatRequest); ok {
		// It counts from now on, however long it waits in the queue.
		c.contactMu.Lock()
		c.contacts[contact{ident.NodeID(heartbeat.BrokerID), heartbeat.BrokerEpoch}] = c.clock.now()
		c.contactMu.Unlock()
	}
	queued := c.enqueue(func() {
		c.noteContacts()
		c.decide(request, send)
	})
	if !queued {
		send(notControllerAnswer(request))
	}
}

func (c *controllerLoop) decide(request kmsg.Request, send func(kmsg.Response)) {
	for {
		decision, ok := c.core.Handle(c.clock.now(), request)
		if !ok {
			send(notControllerAnswer(request))
			return
		}
		switch err := c.append(decision); {
		case err == nil:
			c.await(answer{offset: decision.CommitOffset, response: decision.Response, send: send, request: request})
			return
		case !c.decideAnew(err):
			send(notControllerAnswer(request))
			return
		}
	}
}

// tick decides what time alone brings.
func (c *controllerLoop) tick() {
	c.noteContacts()
	for _, decision := range c.core.Tick(c.clock.now()) {
		if err := c.append(decision); err != nil {
			// What follows was decided on top of it. The next tick decides all of it anew.
			c.decideAnew(err)
			return
		}
	}
}

// decideAnew takes back what could not be appended. False: the leadership is over. It must be, unless the log only
// ends elsewhere: a controller that can't append and a quorum that goes on following it would answer nobody.
func (c *controllerLoop) decideAnew(err error) bool {
	var other *otherOffsetError
	if errors.As(err, &other) {
		c.end = other.end
		c.core.LoseAppends(c.appended, c.end)
		return true
	}
	c.logger.Info("no longer the active controller: a decision was not appended", "epoch", c.epoch, "error", err)
	c.resigned()
	c.log.resign(c.epoch)
	return false
}

func (c *controllerLoop) noteContacts() {
	c.contactMu.Lock()
	contacts := c.contacts
	c.contacts = map[contact]ident.Instant{}
	c.contactMu.Unlock()
	for who, at := range contacts {
		c.core.Contact(at, who.id, who.brokerEpoch)
	}
}

// append puts a decision's records into the log, in one batch at the offset that they were decided for.
func (c *controllerLoop) append(decision controller.Decision) error {
	if len(decision.Records) == 0 {
		return nil
	}
	raw := metadata.EncodeBatch(decision.Offset, c.epoch, time.Now().UnixMilli(), decision.Records...)
	if err := c.log.propose(c.epoch, decision.Offset, raw); err != nil {
		return err
	}
	if decision.Reason != "" {
		c.logger.Info("controller", "decision", decision.Reason, "records", len(decision.Records), "offset", decision.Offset)
	}
	c.appended, c.end = decision.Image, decision.Offset+ident.Offset(len(decision.Records))
	return nil
}

// await sends the answer when what it rests on is committed: now, if nothing new is below it.
func (c *controllerLoop) await(a answer) {
	if !c.core.Active() || a.offset <= c.committedTo {
		a.send(a.response)
		return
	}
	c.waiting = append(c.waiting, a)
}

// committed releases the answers that rest on what lies below the high watermark.
func (c *controllerLoop) committed(highWatermark ident.Offset) {
	c.enqueue(func() {
		c.committedTo = max(c.committedTo, highWatermark)
		n := 0
		for n < len(c.waiting) && c.waiting[n].offset <= c.committedTo {
			c.waiting[n].send(c.waiting[n].response)
			c.waiting[n] = answer{}
			n++
		}
		c.waiting = c.waiting[n:]
	})
}

// becomeLeader makes the core active: image holds everything below next, the leader change record of the epoch
// included. It does nothing when that leadership is over by now.
func (c *controllerLoop) becomeLeader(epoch ident.Epoch, image *metadata.Image, next ident.Offset, openTransaction bool) {
	c.enqueue(func() {
		if c.stopped || c.known.Leader != c.self || c.known.Epoch != epoch {
			return
		}
		if c.core.Active() {
			c.resigned()
		}
		c.epoch, c.appended, c.end, c.committedTo = epoch, image, next, next
		decisions, err := c.core.BecomeLeader(c.clock.now(), epoch, image, next, openTransaction)
		if err != nil {
			c.logger.Error("this controller can't lead", "epoch", epoch, "error", err)
			c.log.resign(epoch)
			return
		}
		c.logger.Info("active controller", "epoch", epoch, "nextOffset", next)
		for _, d := range decisions {
			if err := c.append(d); err != nil {
				c.logger.Warn("the first records of the epoch were not appended", "epoch", epoch, "error", err)
				c.resigned()
				c.log.resign(epoch)
				return
			}
		}
	})
}

// leadership is told of every change in who leads the quorum, in order, and before anything that is committed after
// it: an answer that waits must not take the next leader's records for its own. The core becomes inactive unless
// this voter leads its epoch still.
func (c *controllerLoop) leadership(l raft.Leadership) {
	c.enqueue(func() {
		c.known = l
		if c.core.Active() && (l.Leader != c.self || l.Epoch != c.epoch) {
			c.logger.Info("no longer the active controller", "epoch", c.epoch, "leader", l.Leader, "newEpoch", l.Epoch)
			c.resigned()
		}
	})
}

func (c *controllerLoop) resigned() {
	c.core.Resign()
	for _, a := range c.waiting {
		a.send(notControllerAnswer(a.request))
	}
	c.waiting = nil
}

// inactive answers every kind of request that the controller knows with NOT_CONTROLLER, in the request's form.
var inactive = func() *controller.Controller {
	core, err := controller.New(controller.Config{Random: rand.NewPCG(0, 0)})
	if err != nil {
		panic(err)
	}
	return core
}()

// notControllerAnswer is safe from any goroutine: an inactive core keeps no state.
func notControllerAnswer(request kmsg.Request) kmsg.Response {
	inactiveMu.Lock()
	defer inactiveMu.Unlock()
	decision, ok := inactive.Handle(0, request)
	if !ok {
		return request.ResponseKind()
	}
	return decision.Response
}

var inactiveMu sync.Mutex
