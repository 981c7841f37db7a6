package sim

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/controller"
	"github.com/highwater-io/highwater/pkg/topicconfig"
)

// isrAuthority is the shipping controller over a log that commits at once. How the quorum commits is another
// simulation's matter; here it may change hands, which ends sessions and pending answers.
type isrAuthority struct {
	s       *isrSim
	core    *controller.Controller
	epoch   ident.Epoch
	image   *metadata.Image
	topic   ident.TopicPartition
	timer   *Timer
	history []*metadata.Image // states in which the partition or a node changed, for nodes that lag behind
	alters  map[ident.NodeID]uint64
}

func newISRAuthority(s *isrSim) *isrAuthority {
	balance := time.Duration(-1)
	if s.w.Chance(500) {
		balance = time.Second // leadership goes back soon and often, with nobody failing
	}
	core, err := controller.New(controller.Config{
		ClusterID: "sim", Random: rand.NewPCG(s.opts.Seed, 1), SessionTimeout: isrSession, HeartbeatInterval: isrHeartbeat,
		BalanceInterval: balance, MaxIdleInterval: time.Second,
	})
	if err != nil {
		s.fail("controller: %v", err)
		return nil
	}
	a := &isrAuthority{s: s, core: core, image: metadata.Empty(), alters: map[ident.NodeID]uint64{}}
	a.lead()
	return a
}

// lead has the controller begin a new epoch on what is committed.
func (a *isrAuthority) lead() {
	a.epoch++
	offset, _ := a.image.Position()
	a.core.Resign()
	decisions, err := a.core.BecomeLeader(a.s.w.Now(), a.epoch, a.image, offset+2, false) // a leader change record lies between
	if err != nil {
		a.s.fail("controller: %v", err)
	}
	for _, d := range decisions {
		a.commit(d)
	}
	a.arm()
}

// handle decides a request, commits, and returns the response.
func (a *isrAuthority) handle(req kmsg.Request) kmsg.Response {
	d, ok := a.core.Handle(a.s.w.Now(), req)
	if !ok {
		a.s.fail("controller does not know request %d", req.Key())
		return nil
	}
	a.commit(d)
	a.arm()
	return d.Response
}

func (a *isrAuthority) arm() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.timer = a.s.w.At(a.core.NextDeadline(), func() {
		for _, d := range a.core.Tick(a.s.w.Now()) {
			a.commit(d)
		}
		a.arm()
	})
}

func (a *isrAuthority) commit(d controller.Decision) {
	if len(d.Records) == 0 {
		return
	}
	before := a.partition()
	a.image = d.Image
	if _, idle := d.Records[0].(*metadata.NoOpRecord); idle && len(d.Records) == 1 {
		return
	}
	a.history = append(a.history, a.image)
	if p := a.partition(); p != nil && (before == nil || before.PartitionEpoch != p.PartitionEpoch) {
		a.s.w.Trace("committed: leader %d le %d pe %d ISR %v", p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.ISR)
		a.s.check.committed(before, p)
	}
	for _, n := range a.s.nodes {
		a.push(n)
	}
}

// push sends a node a state that it does not know, mostly the newest.
func (a *isrAuthority) push(n *isrNode) {
	image := a.image
	if known := n.known(); a.s.w.Chance(300) {
		if i := slices.IndexFunc(a.history, func(im *metadata.Image) bool { o, _ := im.Position(); return o > known }); i >= 0 {
			image = a.history[i]
		}
	}
	life := n.life
	a.s.control.Send(isrController, n.id, func() { n.deliver(life, func() { n.learn(image) }) })
}

func (a *isrAuthority) partition() *metadata.Partition {
	p, ok := a.image.Partition(a.topic)
	if !ok {
		return nil
	}
	return p
}

func (a *isrAuthority) allActive() bool {
	for id := ident.NodeID(1); id <= 3; id++ {
		if b, ok := a.image.Broker(id); !ok || !b.Active() {
			return false
		}
	}
	return true
}

func (a *isrAuthority) createTopic() {
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = isrTopic, -1, -1
	assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	for _, i := range a.s.w.Perm(3) {
		assignment.Replicas = append(assignment.Replicas, int32(i+1))
	}
	topic.ReplicaAssignment = append(topic.ReplicaAssignment, assignment)
	minISR := strconv.Itoa(a.s.minISR)
	config := kmsg.NewCreateTopicsRequestTopicConfig()
	config.Name, config.Value = topicconfig.MinInsyncReplicas, &minISR
	topic.Configs = append(topic.Configs, config)
	req.Topics = append(req.Topics, topic)
	resp := a.handle(req).(*kmsg.CreateTopicsResponse)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		a.s.fail("create topic: code %d", code)
	}
	a.topic = ident.TopicPartition{Topic: resp.Topics[0].TopicID}
	a.s.check.committed(nil, a.partition())
	for _, n := range a.s.nodes {
		n.learn(a.image)
	}
}

// setMinISR changes the topic's min.insync.replicas.
func (a *isrAuthority) setMinISR() {
	low := 1
	if a.s.disk == MachineLoss {
		low = 2
	}
	value := strconv.Itoa(low + a.s.w.IntN(4-low))
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource, config := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, isrTopic
	config.Name, config.Value, config.Op = topicconfig.MinInsyncReplicas, &value, kmsg.IncrementalAlterConfigOpSet
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	a.s.counts.MinISRs++
	a.s.w.Trace("min ISR becomes %s", value)
	if resp := a.handle(req).(*kmsg.IncrementalAlterConfigsResponse); resp.Resources[0].ErrorCode != 0 {
		a.s.fail("set min ISR: code %d", resp.Resources[0].ErrorCode)
	}
}
