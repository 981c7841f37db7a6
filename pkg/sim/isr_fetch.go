package sim

import (
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/replication"
)

// nextFetch sends the follower's next question, if it has one and none is under way.
func (n *isrNode) nextFetch() {
	position, ok := n.part.NextFetch()
	if !ok || n.fetching {
		return
	}
	n.fetching = true
	n.fetchNo++
	no, life := n.fetchNo, n.life
	// A late response is used no less than one in time: the core has to tell whether it still fits.
	answered := func(r exec.FetchResponse) {
		n.deliver(life, func() {
			r.Asked = position
			if n.fetchNo == no {
				n.fetching = false
			}
			n.part.HandleFetchResponse(n.s.w.Now(), r)
			n.settle()
		})
	}
	leader := n.s.nodes[position.Leader-1]
	fetch := exec.Fetch{MaxBytes: 1 << 16, MinOne: true, Fetch: replication.Fetch{
		Replica: n.id, BrokerEpoch: n.brokerEpoch, LeaderEpoch: position.LeaderEpoch, Offset: position.Offset,
		LastFetchedEpoch: position.LastFetchedEpoch, LogStart: position.LogStart,
	}}
	n.lastFetch = func() {
		leader.deliver(leader.life, func() { leader.serveFetch(fetch, func(exec.FetchResult, []byte) {}) })
	}
	n.s.net.Send(n.id, leader.id, func() {
		leader.deliver(leader.life, func() {
			leader.serveFetch(fetch, func(res exec.FetchResult, records []byte) {
				n.s.net.Send(leader.id, n.id, func() {
					// Records are used in place: each copy of a doubled message has its own.
					answered(exec.FetchResponse{
						Code: res.Code, HighWatermark: res.HighWatermark, LeaderLogStart: res.LogStart,
						Diverging: res.Diverging, Records: append([]byte(nil), records...),
					})
				})
			})
		})
	})
	n.after(isrFetchTimeout, func() {
		if n.fetchNo == no && n.fetching {
			answered(exec.FetchResponse{
				Code: replication.NetworkException, HighWatermark: -1, LeaderLogStart: -1, Diverging: replication.NoEpochEnd,
			})
		}
	})
}

// serveFetch answers a fetch at once when there is something to say, else it parks it.
func (n *isrNode) serveFetch(f exec.Fetch, reply func(exec.FetchResult, []byte)) {
	if n.part == nil {
		reply(exec.FetchResult{FetchAnswer: replication.FetchAnswer{
			Code: replication.NotLeaderOrFollower, HighWatermark: -1, LogStart: -1, Diverging: replication.NoEpochEnd,
		}}, nil)
		return
	}
	n.token++
	f.Token = n.token
	if res := n.read(f); res.empty() && !res.TellsLogStart(f.Fetch) {
		n.parked[f.Token] = isrParked{fetch: f, reply: reply}
		n.part.Park(n.s.w.Now(), f, res.Below, n.s.w.Now().Add(isrFetchWait))
	} else {
		reply(res.FetchResult, res.records)
	}
	n.settle()
}

// answer evaluates a fetch that was woken and answers it in any case.
func (n *isrNode) answer(f exec.Fetch, reply func(exec.FetchResult, []byte)) {
	res := n.read(f)
	reply(res.FetchResult, res.records)
}

type isrRead struct {
	exec.FetchResult
	records []byte
}

func (r *isrRead) empty() bool {
	return r.Code == replication.None && r.Diverging == replication.NoEpochEnd && len(r.records) == 0
}

func (n *isrNode) read(f exec.Fetch) isrRead {
	res := isrRead{FetchResult: n.part.Fetch(n.s.w.Now(), f)}
	var err error
	if res.records, err = res.Records.AppendTo(nil); err != nil {
		n.s.fail("node %d: read at %d: %v", n.id, f.Offset, err)
	}
	res.Records.Release()
	return res
}

// serveProduce appends and answers when the core says so.
func (n *isrNode) serveProduce(ev replication.Produce, records []byte, reply func(exec.Produced)) {
	if n.part == nil {
		reply(exec.Produced{Code: replication.NotLeaderOrFollower, Base: ident.UnknownOffset})
		return
	}
	n.token++
	ev.Token = n.token
	n.produces[ev.Token] = reply
	n.part.Produce(n.s.w.Now(), ev, records)
	n.settle()
}
