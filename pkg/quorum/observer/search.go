package observer

import (
	"context"
	"maps"
	"slices"
	"time"

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
// leader; nil when none does, and then the state says why. While some addresses hang, those that answered are
// asked again: an election may end meanwhile.
func (o *Observer) search(ctx context.Context) *leader {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan result)
	asked := map[string]bool{}
	running, unheard := 0, 0
	ask := func(addr string, after time.Duration) {
		running++
		at := o.follower.position()
		go func() { results <- o.attempt(ctx, addr, at, after) }()
	}
	askFirst := func(addr string) {
		if addr == "" || asked[addr] {
			return
		}
		asked[addr] = true
		unheard++
		ask(addr, 0)
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
		askFirst(addr)
	}
	attempts := map[string]Attempt{}
	state := State{Status: Disconnected, Leader: ident.NoNode, Epoch: o.follower.epoch}
	for unheard > 0 {
		r := <-results
		running--
		if r.conn != nil {
			o.follower.heard(r.answer.epoch)
			return &leader{r.addr, r.conn, r.answer}
		}
		if _, again := attempts[r.addr]; !again {
			unheard--
		}
		a := Attempt{Addr: r.addr, Reached: r.err == nil, Err: r.err}
		if r.err == nil {
			a.Err = r.answer.err()
			state.Status = NoLeader
			switch {
			case r.answer.epoch > state.Epoch:
				// Knowing the newest epoch keeps us from a leader that was deposed and doesn't know it yet.
				state.Epoch, state.Leader = r.answer.epoch, r.answer.leader
				o.follower.heard(r.answer.epoch)
			case r.answer.epoch == state.Epoch && r.answer.leader != ident.NoNode:
				state.Leader = r.answer.leader
			}
			askFirst(r.answer.hint)
		}
		attempts[r.addr] = a
		if unheard > 0 {
			ask(r.addr, o.cfg.BackOffMax/2)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	for _, addr := range slices.Sorted(maps.Keys(attempts)) {
		state.Attempts = append(state.Attempts, attempts[addr])
	}
	o.setState(state)
	return nil
}

// attempt waits, connects to one address and fetches without waiting. A node in a newer epoch tells it, and is asked
// again in that epoch.
func (o *Observer) attempt(ctx context.Context, addr string, at position, after time.Duration) result {
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return result{addr: addr, err: ctx.Err()}
		}
	}
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
