package replication

import (
	"slices"
	"sort"

	"github.com/highwater-io/highwater/pkg/ident"
)

const acksAll = -1

// produceQueue holds the produces that were accepted and not yet answered.
type produceQueue struct {
	appending []waitingProduce // handed out for append
	// Appended, and waiting by required offset, so that completing is popping a prefix: acks=all for the high
	// watermark, the others for this replica's own flush.
	all, local []waitingProduce
	deadline   ident.Instant // not above the earliest deadline of those that wait
}

type waitingProduce struct {
	token    Token
	acks     int16
	base     ident.Offset
	required ident.Offset // the log end after its append
	deadline ident.Instant
}

// produce decides whether records may be appended at all.
func (r *Replica) produce(now ident.Instant, ev Produce, out *Effects) {
	refuse := func(code Code) {
		out.Completed = append(out.Completed, Completion{Token: ev.Token, Code: code, Base: -1, LogStart: -1})
	}
	switch {
	case ev.Acks < acksAll || ev.Acks > 1:
		refuse(InvalidRequiredAcks)
	case r.role == Failed:
		refuse(KafkaStorageError)
	case r.role != Leader:
		refuse(NotLeaderOrFollower)
	case ev.Acks == acksAll && len(r.meta.ISR) < r.effectiveMinISR():
		refuse(NotEnoughReplicas)
	default:
		r.produces.appending = append(r.produces.appending,
			waitingProduce{token: ev.Token, acks: ev.Acks, deadline: now.Add(ev.Timeout)})
		out.Append = append(out.Append, ev.Token)
	}
}

// take removes the produce that the executor reports on.
func (q *produceQueue) take(token Token) (waitingProduce, bool) {
	i := slices.IndexFunc(q.appending, func(w waitingProduce) bool { return w.token == token })
	if i < 0 {
		return waitingProduce{}, false
	}
	w := q.appending[i]
	q.appending = slices.Delete(q.appending, i, i+1)
	return w, true
}

func (r *Replica) appendDone(now ident.Instant, ev AppendDone, out *Effects) {
	w, ok := r.produces.take(ev.Token)
	if !ok {
		return
	}
	w.base, w.required = ev.Base, ev.End
	out.Flush = out.Flush || r.cfg.FlushAlways
	if r.role != Leader { // lost between the decision and the append; the next leader decides about the records
		code := NotLeaderOrFollower
		if r.role == Failed {
			code = KafkaStorageError
		}
		w.complete(code, r.log.StartOffset(), out)
		return
	}
	r.produces.park(w)
	r.wakeFollowers(out)
	r.advanceHighWatermark(now, out)
	r.completeProduces(out)
}

func (r *Replica) appendFailed(ev AppendFailed, out *Effects) {
	if _, ok := r.produces.take(ev.Token); ok {
		out.Completed = append(out.Completed, Completion{Token: ev.Token, Code: ev.Code, Base: -1, LogStart: r.log.StartOffset()})
	}
}

// park keeps a produce until completeProduces or expire answers it.
func (q *produceQueue) park(w waitingProduce) {
	if q.size() == 0 || w.deadline < q.deadline {
		q.deadline = w.deadline
	}
	if w.acks == acksAll {
		q.all = insertByRequired(q.all, w)
	} else {
		q.local = insertByRequired(q.local, w)
	}
}

// insertByRequired keeps the order. Appends come in it; a duplicate of an idempotent producer is the exception.
func insertByRequired(list []waitingProduce, w waitingProduce) []waitingProduce {
	i := len(list)
	if i > 0 && list[i-1].required > w.required {
		i = sort.Search(i, func(j int) bool { return list[j].required > w.required })
	}
	return slices.Insert(list, i, w)
}

func (q *produceQueue) size() int { return len(q.all) + len(q.local) }

// completeProduces answers what is due: acks=1 and 0 when this replica vouches for the records, acks=all when the
// high watermark has reached them, with an error if the ISR is too small by then (the records stay).
func (r *Replica) completeProduces(out *Effects) {
	if r.role != Leader || r.produces.size() == 0 {
		return
	}
	start, acked, committed := r.log.StartOffset(), r.acked(), r.hw
	code := None
	if r.maximalISRSize() < r.effectiveMinISR() {
		code = NotEnoughReplicasAfterAppend
	}
	if r.cfg.Mutant == AckOnAppend {
		committed = acked
	}
	r.produces.local = completePrefix(r.produces.local, acked, None, start, out)
	r.produces.all = completePrefix(r.produces.all, committed, code, start, out)
}

func completePrefix(list []waitingProduce, reached ident.Offset, code Code, logStart ident.Offset, out *Effects) []waitingProduce {
	n := 0
	for n < len(list) && list[n].required <= reached {
		list[n].complete(code, logStart, out)
		n++
	}
	return slices.Delete(list, 0, n)
}

// expire answers what has waited for too long. The records stay in the log and may well be committed later.
func (q *produceQueue) expire(now ident.Instant, logStart ident.Offset, out *Effects) {
	if q.size() == 0 || now < q.deadline {
		return
	}
	q.deadline = ident.Never
	late := func(w waitingProduce) bool {
		if now >= w.deadline {
			w.complete(RequestTimedOut, logStart, out)
			return true
		}
		q.deadline = min(q.deadline, w.deadline)
		return false
	}
	q.local = slices.DeleteFunc(q.local, late)
	q.all = slices.DeleteFunc(q.all, late)
}

func (q *produceQueue) next() ident.Instant {
	if q.size() == 0 {
		return ident.Never
	}
	return q.deadline
}

// failAll answers everything that waits. What is out for append is answered when its append is reported.
func (q *produceQueue) failAll(code Code, logStart ident.Offset, out *Effects) {
	for _, list := range [][]waitingProduce{q.local, q.all} {
		for _, w := range list {
			w.complete(code, logStart, out)
		}
	}
	q.local, q.all = q.local[:0], q.all[:0]
}

func (w waitingProduce) complete(code Code, logStart ident.Offset, out *Effects) {
	out.Completed = append(out.Completed, Completion{Token: w.token, Code: code, Base: w.base, LogStart: logStart})
}
