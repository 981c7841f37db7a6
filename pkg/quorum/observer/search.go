package observer

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/wire"
)

// leader is a node that answered a fetch as the quorum's leader.
type leader struct {
	addr  string
	conn  *wire.Conn
	first answer
}

// id is who leads by an answer of the leader itself.
func (l *leader) id(a answer) ident.NodeID {
	if a.leader != ident.NoNode {
		return a.leader
	}
	return l.first.leader
}

// result is what came of one address.
type result struct {
	addr   string
	conn   *wire.Conn // open when the node is the leader
	answer answer
	err    error // nothing was answered
}

// search asks all addresses at once, those too that answers point to, and returns the first that answers as
// leader; nil when none does, and then the state says why.
func (o *Observer) search(ctx context.Context) *leader {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan result)
	asked := map[string]bool{}
	running := 0
	ask := func(addr string) {
		if addr == "" || asked[addr] {
			return
		}
		asked[addr] = true
		running++
		at := o.follower.position()
		go func() { results <- o.attempt(ctx, addr, at) }()
	}
	defer func() {
		cancel()
		for ; running > 0; running-- {
			if r := <-results; r.conn != nil {
				r.conn.Close()
			}
		}
	}()

	for _, addr := range o.cfg.Bootstrap() {
		ask(addr)
	}
	state := State{Status: Disconnected, Leader: ident.NoNode, Epoch: o.follower.epoch}
	for running > 0 {
		r := <-results
		running--
		if r.conn != nil {
			o.follower.heard(r.answer.epoch)
			return &leader{r.addr, r.conn, r.answer}
		}
		a := Attempt{Addr: r.addr, Reached: r.err == nil, Err: r.err}
		if r.err == nil {
			a.Err = r.answer.err()
			state.Status = NoLeader
			if r.answer.leader != ident.NoNode && r.answer.epoch >= state.Epoch {
				state.Leader = r.answer.leader
			}
			// Knowing the newest epoch keeps us from a leader that was deposed and doesn't know it yet.
			state.Epoch = max(state.Epoch, r.answer.epoch)
			ask(r.answer.hint)
		}
		state.Attempts = append(state.Attempts, a)
	}
	if ctx.Err() != nil {
		return nil
	}
	o.follower.heard(state.Epoch)
	slices.SortFunc(state.Attempts, func(a, b Attempt) int { return strings.Compare(a.Addr, b.Addr) })
	o.setState(state)
	return nil
}

// attempt connects to one address and fetches without waiting. A node in a newer epoch tells it, and is asked
// again in that epoch.
func (o *Observer) attempt(ctx context.Context, addr string, at position) result {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.AttemptTimeout)
	defer cancel()
	conn, err := o.cfg.Dialer.Dial(ctx, addr)
	if err != nil {
		return result{addr: addr, err: err}
	}
	for range 3 {
		var a answer
		a, err = o.fetch(ctx, conn, at, 0, o.cfg.AttemptTimeout)
		if err != nil {
			break
		}
		if a.code == 0 {
			return result{addr: addr, conn: conn, answer: a}
		}
		if a.code != kerr.FencedLeaderEpoch.Code || a.epoch <= at.epoch {
			conn.Close()
			return result{addr: addr, answer: a}
		}
		at.epoch = a.epoch
	}
	conn.Close()
	return result{addr: addr, answer: answer{code: kerr.FencedLeaderEpoch.Code, leader: ident.NoNode, epoch: at.epoch}, err: err}
}
