package raft_test

import (
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

func endpointAt(host string) []raft.Endpoint {
	return []raft.Endpoint{{Name: "CONTROLLER", Host: host, Port: 9093}}
}

func votersAt(hosts map[ident.NodeID]string) raft.VoterSet {
	var vs []raft.Voter
	for id, host := range hosts {
		vs = append(vs, raft.Voter{Key: keyOf(id), Endpoints: endpointAt(host)})
	}
	s, err := raft.NewVoterSet(vs...)
	if err != nil {
		panic(err)
	}
	return s
}

// hosts are what there is to be reached: each answers as the leader, or says who leads. The leader calls its voter, so
// that it has no reason to stand.
type hosts struct {
	p      *peer
	info   raft.LeaderInfo
	up     map[string]ident.NodeID
	now    ident.Instant
	begin  ident.Instant // when the leader calls next
	coming []arrival
	asked  map[string]int // since the last run began
}

type arrival struct {
	at ident.Instant
	ev raft.Event
}

func (h *hosts) run(d time.Duration) {
	h.asked = map[string]int{}
	for until := h.now.Add(d); ; {
		for _, s := range h.p.take() {
			h.deliver(s)
		}
		next, which := min(h.p.node.NextDeadline(), h.begin), -1
		for i, a := range h.coming {
			if a.at <= next {
				next, which = a.at, i
			}
		}
		if next > until {
			h.now = until
			return
		}
		h.now = max(h.now, next)
		switch {
		case which >= 0:
			ev := h.coming[which].ev
			h.coming = append(h.coming[:which], h.coming[which+1:]...)
			h.p.step(h.now, ev)
		case h.now >= h.begin:
			h.begin = h.now.Add(raft.DefaultFetchTimeout / 2)
			if h.p.node.IsVoter() {
				h.call()
			}
		default:
			h.p.step(h.now, raft.Tick{})
		}
	}
}

func (h *hosts) call() {
	h.p.ask(h.now, &raft.BeginQuorumEpochRequest{Voter: raft.Nobody, Leader: h.info.Leader, Epoch: h.info.Epoch, Endpoints: h.info.Endpoints})
}

func (h *hosts) deliver(s raft.Send) {
	m, ok := s.Msg.(*raft.FetchRequest)
	if !ok {
		return
	}
	endpoints := s.Endpoints
	if len(endpoints) == 0 {
		endpoints = h.p.node.Endpoints(s.To)
	}
	host := endpoints[0].Host
	h.asked[host]++
	if h.up[host] != s.To {
		return // nobody answers
	}
	r, wait := &raft.FetchResponse{Current: h.info, HighWatermark: 1}, time.Millisecond
	switch {
	case s.To != h.info.Leader:
		r.Code = raft.NotLeaderOrFollower
	case m.Epoch < h.info.Epoch:
		r.Code = raft.FencedLeaderEpoch
	case m.HighWatermark >= 1:
		wait = m.MaxWait
	}
	h.coming = append(h.coming, arrival{h.now.Add(wait), raft.Response{From: s.To, Correlation: s.Correlation, Msg: r}})
}

// KAFKA-17030, KAFKA-19354, KAFKA-20514: a leader that is not reached where it says it is, is asked where the log and
// the configuration say; and the other way round. All of it in one epoch.
func TestLeaderIsFoundWhereverItIsReached(t *testing.T) {
	voters := votersAt(map[ident.NodeID]string{1: "log-1", 2: "log-2"})
	bootstrap := votersAt(map[ident.NodeID]string{1: "conf-1", 2: "conf-2"})
	info := raft.LeaderInfo{Leader: 2, Epoch: 5, Endpoints: endpointAt("advertised")}
	for _, c := range []struct {
		name string
		id   ident.NodeID
		up   map[string]ident.NodeID
		at   string
	}{
		{"where it says", 9, map[string]ident.NodeID{"advertised": 2}, "advertised"},
		{"where the log says", 9, map[string]ident.NodeID{"log-2": 2, "log-1": 1}, "log-2"},
		{"where the configuration says", 9, map[string]ident.NodeID{"conf-2": 2, "log-1": 1}, "conf-2"},
		{"by a voter", 1, map[string]ident.NodeID{"conf-2": 2}, "conf-2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(c.id)
			cfg.Bootstrap = bootstrap
			p := newPeer(t, cfg, logOf(1), raft.VoteState{Epoch: 5, Leader: -1, Voted: raft.Nobody}, voters)
			h := &hosts{p: p, info: info, up: c.up, now: 1, asked: map[string]int{}}
			h.call() // an observer hears it from whomever it asks; here it is told
			h.run(10 * time.Second)
			if p.node.HighWatermark() != 1 || p.node.Role() != raft.Follower || p.node.Epoch() != 5 {
				t.Fatalf("%s of epoch %d, high watermark %d, trouble %v", p.node.Role(), p.node.Epoch(), p.node.HighWatermark(), p.node.Trouble())
			}
			// From then on it goes there straight, and tells others what the leader says of itself.
			h.run(10 * time.Second)
			if len(h.asked) != 1 || h.asked[c.at] < 40 {
				t.Fatalf("asked %v", h.asked)
			}
			if l := p.node.Leadership(); l.Endpoints[0].Host != c.at {
				t.Fatalf("%+v", l)
			}
			if r := p.ask(h.now, fetch(3, 5, 0, 0)).(*raft.FetchResponse); r.Current.Endpoints[0].Host != "advertised" {
				t.Fatalf("tells %+v", r.Current)
			}
			// That way is closed and another one opens.
			h.up = map[string]ident.NodeID{"advertised": 2}
			if c.at == "advertised" {
				h.up = map[string]ident.NodeID{"conf-2": 2}
			}
			h.run(10 * time.Second)
			h.run(10 * time.Second)
			if p.node.Role() != raft.Follower || p.node.Epoch() != 5 || p.node.Trouble() != nil || len(h.asked) != 1 || h.asked[c.at] != 0 {
				t.Fatalf("asked %v, %s, trouble %v", h.asked, p.node.Role(), p.node.Trouble())
			}
		})
	}
}

// A node that was away while all voters were replaced knows from its log only those that are gone.
func TestNodeWhoseVotersAreAllGoneFindsTheQuorumByItsConfiguration(t *testing.T) {
	cfg := config(9)
	cfg.Bootstrap = votersAt(map[ident.NodeID]string{4: "conf-4", 5: "conf-5"})
	p := newPeer(t, cfg, logOf(1), raft.VoteState{Epoch: 5, Leader: 1, Voted: raft.Nobody}, votersAt(map[ident.NodeID]string{1: "log-1", 2: "log-2"}))
	h := &hosts{p: p, info: raft.LeaderInfo{Leader: 5, Epoch: 8, Endpoints: endpointAt("conf-5")}, up: map[string]ident.NodeID{"conf-4": 4, "conf-5": 5}}
	h.run(20 * time.Second)
	if l := p.node.Leadership(); l.Leader != 5 || l.Epoch != 8 || p.node.HighWatermark() != 1 {
		t.Fatalf("%+v, high watermark %d, trouble %v", l, p.node.HighWatermark(), p.node.Trouble())
	}
}
