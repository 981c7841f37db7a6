package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/topicconfig"
)

// isrFlush is the flush policy of a FlushSwitched run: as committed, and who has taken it over.
type isrFlush struct {
	on bool
	at ident.Offset // of the image that has it
	// holds are the nodes that go by it and have flushed everything since: from then on they vouch for nothing else.
	holds map[ident.NodeID]bool
}

// flushPolicy is what a node goes by.
func (n *isrNode) flushPolicy() exec.FlushPolicy {
	if n.s.disk != FlushSwitched {
		return exec.FlushPolicy{Always: n.s.disk == FlushAlways}
	}
	value, _ := n.image.Config(metadata.ResourceTopic, isrTopic).Get(topicconfig.FlushMessages)
	return exec.FlushPolicy{Always: value == "1"}
}

// flushCounts says whether all that is committed is on the disks of the ISR, so that machines may lose the rest.
func (s *isrSim) flushCounts() bool {
	return s.disk == FlushAlways || s.disk == FlushSwitched && s.flush.on && len(s.flush.holds) == len(s.nodes)
}

func (s *isrSim) noteFlushed(n *isrNode) {
	if !s.flush.on || s.flush.holds[n.id] || n.known() < s.flush.at || n.part.Log().FlushedOffset() != n.end() {
		return
	}
	s.flush.holds[n.id] = true
	s.w.Trace("node %d has flushed all since the switch", n.id)
}

// switchFlush changes the topic's flush.messages.
func (s *isrSim) switchFlush() {
	on := !s.flush.on
	s.flush.on = false // until it is committed and taken over
	s.counts.Switches++
	s.w.Trace("flush always becomes %v", on)
	s.ctl.setFlushAlways(on)
	s.flush = isrFlush{on: on, holds: map[ident.NodeID]bool{}}
	s.flush.at, _ = s.ctl.image.Position()
}

// loseMachine has one machine lose its power.
func (s *isrSim) loseMachine(n *isrNode) {
	s.counts.Losses++
	n.loseMachine(s.w.IntN(100))
	n.restartAfter(s.w.Between(10*time.Millisecond, 4*time.Second))
}

// blackout has all of them lose it at once.
func (s *isrSim) blackout() {
	s.counts.Blackouts++
	s.w.Trace("blackout")
	for _, n := range s.nodes {
		if n.up {
			s.loseMachine(n)
		}
	}
}

// setFlushAlways changes the topic's configuration at the controller.
func (a *isrAuthority) setFlushAlways(on bool) {
	value := "1"
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource, config := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, isrTopic
	config.Name, config.Value, config.Op = topicconfig.FlushMessages, &value, kmsg.IncrementalAlterConfigOpSet
	if !on {
		config.Value, config.Op = nil, kmsg.IncrementalAlterConfigOpDelete
	}
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	if resp := a.handle(req).(*kmsg.IncrementalAlterConfigsResponse); resp.Resources[0].ErrorCode != 0 {
		a.s.fail("set flush.messages: code %d", resp.Resources[0].ErrorCode)
	}
}
