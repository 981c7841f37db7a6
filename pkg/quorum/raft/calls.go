package raft

import (
	"errors"

	"github.com/highwater-io/highwater/pkg/ident"
)

// result is how a voter answered a candidate.
type result int8

const (
	undecided result = iota
	granted
	refused
)

// call is what a node has under way to one other voter: a vote, or the news that an epoch begins or ends. One
// request at a time; an error or no answer is tried again after a pause.
type call struct {
	voter       ReplicaKey
	result      result
	done        bool
	correlation uint64        // of the request under way, 0 when there is none
	deadline    ident.Instant // when the request under way is given up
	retryAt     ident.Instant // not before
}

// openCalls starts over with all other voters.
func (n *Node) openCalls() {
	n.calls = n.calls[:0]
	for _, v := range n.Voters() {
		if v.Key != n.cfg.Self {
			n.calls = append(n.calls, call{voter: v.Key})
		}
	}
}

// due is when the call next needs a look.
func (n *Node) due(c *call) ident.Instant {
	switch {
	case c.done || c.result != undecided:
		return ident.Never
	case c.correlation != 0:
		return c.deadline
	case n.role == Leader:
		// A voter that fetches knows who leads (KAFKA-16530 in 4.2).
		if r := n.lead.find(c.voter); r != nil && r.fetched {
			return max(c.retryAt, r.lastFetch.Add(n.cfg.FetchTimeout/2))
		}
	}
	return c.retryAt
}

func (n *Node) callsDue() ident.Instant {
	next := ident.Never
	for i := range n.calls {
		next = min(next, n.due(&n.calls[i]))
	}
	return next
}

func (n *Node) sendCalls(request func(ReplicaKey) Message) {
	for i := range n.calls {
		if c := &n.calls[i]; n.now >= n.due(c) {
			c.correlation = n.send(c.voter.ID, request(c.voter))
			c.deadline = n.now.Add(n.cfg.RequestTimeout)
		}
	}
}

func (n *Node) onCallAnswered(c *call, r Response) {
	c.correlation = 0
	c.retryAt = n.retryAt()
	if r.Err != nil {
		if errors.Is(r.Err, ErrUnsupportedVersion) && n.role == Prospective {
			// The peer has no pre-vote; go on as if there were none (KIP-996).
			c.result = granted
			n.tally()
		}
		return
	}
	switch m := r.Msg.(type) {
	case *VoteResponse:
		n.onVoteResponse(c, m)
	case *BeginQuorumEpochResponse:
		if m.Code == None {
			c.retryAt = n.now.Add(n.cfg.FetchTimeout / 2)
		}
		n.learn(m.Current)
	case *EndQuorumEpochResponse:
		c.done = m.Code == None
		n.learn(m.Current)
	default:
		n.fatal("a %T came as the answer to a voter's call", r.Msg)
	}
}
