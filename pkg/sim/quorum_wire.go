package sim

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/quorum/raft/rpc"
)

// In some runs every message goes through Kafka's encoding, as between real nodes.

func (s *quorumSim) wireRequest(m raft.Message) raft.Message {
	if !s.plan.traits[traitWire] {
		return m
	}
	req := encoded(rpc.ToRequest(m))
	back, refusal := rpc.FromRequest(req)
	if refusal != nil {
		s.check.fail("Wire: %T is refused by its own reader", m)
		return m
	}
	return back
}

func encoded(req kmsg.Request) kmsg.Request {
	req.SetVersion(rpc.Versions[req.Key()][1])
	copied := kmsg.RequestForKey(req.Key())
	copied.SetVersion(req.GetVersion())
	if err := copied.ReadFrom(req.AppendTo(nil)); err != nil {
		panic(err)
	}
	return copied
}

func (s *quorumSim) wireResponse(asked, m raft.Message) raft.Message {
	if !s.plan.traits[traitWire] {
		return m
	}
	resp, err := rpc.ToResponse(encoded(rpc.ToRequest(asked)), m)
	if err == nil {
		copied := kmsg.ResponseForKey(resp.Key())
		copied.SetVersion(resp.GetVersion())
		if err = copied.ReadFrom(resp.AppendTo(nil)); err == nil {
			m, err = rpc.FromResponse(copied)
		}
	}
	if err != nil {
		s.check.fail("Wire: %v", err)
	}
	return m
}
