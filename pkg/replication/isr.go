package replication

import (
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// pending is the one proposal in flight.
type pending struct {
	proposal Proposal
	isr      []ident.NodeID // what is proposed
	facts    []Fact         // told when it is committed
	since    ident.Instant
	retryAt  ident.Instant // Never while an answer is awaited, or metadata is
}

func (p *pending) committedFacts(partitionEpoch int32) []Fact {
	for i := range p.facts {
		p.facts[i].PartitionEpoch = partitionEpoch
	}
	return p.facts
}

// inMaximalISR: the maximal ISR is the committed one united with the proposed one. A shrink is never assumed to
// have succeeded, an expansion always is, so it contains what the controller may have committed by now.
func (r *Replica) inMaximalISR(id ident.NodeID) bool {
	p := r.leader.pending
	if r.cfg.Mutant == MinimalISR {
		return slices.Contains(r.meta.ISR, id) && (p == nil || slices.Contains(p.isr, id))
	}
	return slices.Contains(r.meta.ISR, id) || (p != nil && slices.Contains(p.isr, id))
}

func (r *Replica) maximalISRSize() int {
	n := len(r.meta.ISR)
	if p := r.leader.pending; p != nil {
		for _, id := range p.isr {
			if !slices.Contains(r.meta.ISR, id) {
				n++
			}
		}
	}
	return n
}

// effectiveMinISR is at least one and at most the number of replicas.
func (r *Replica) effectiveMinISR() int {
	return max(1, min(r.meta.MinISR, len(r.meta.Replicas)))
}

// maybeExpand proposes every assigned follower that may join now.
func (r *Replica) maybeExpand(now ident.Instant, out *Effects) {
	if r.leader.pending != nil || now < r.leader.refusedUntil {
		return
	}
	isr := r.meta.ISR[:len(r.meta.ISR):len(r.meta.ISR)]
	var facts []Fact
	for i := range r.leader.followers {
		f := &r.leader.followers[i]
		if slices.Contains(isr, f.id) || !slices.Contains(r.meta.Replicas, f.id) || !r.mayJoin(now, f) {
			continue
		}
		isr = append(isr, f.id)
		facts = append(facts, r.isrFact(now, ISRExpanded, CaughtUp, f))
	}
	if len(facts) > 0 {
		r.propose(now, isr, facts, out)
	}
}

// mayJoin: it keeps pace with the moving log end, it holds everything that was ever committed (below the high
// watermark, and below the start of this leader's epoch while the high watermark lags behind that: KAFKA-7128),
// and metadata lets it.
func (r *Replica) mayJoin(now ident.Instant, f *follower) bool {
	keepsPace := r.caughtUp(now, f) && f.end >= r.leader.epochStart
	return f.end >= r.hw && r.eligible(f) && (keepsPace || r.cfg.Mutant == ExpandOnHighWatermark)
}

// checkLaggards proposes, every half lag time, an ISR without the members that are behind for longer than the lag
// time. If this very check comes late by another half, the process stood still and the followers could not be
// heard; they get until the next one.
func (r *Replica) checkLaggards(now ident.Instant, out *Effects) {
	if r.role != Leader || now < r.leader.nextCheck {
		return
	}
	half := r.cfg.LagTimeMax / 2
	stalled := now.Sub(r.leader.nextCheck) > half
	r.leader.nextCheck = now.Add(half)
	if stalled {
		return
	}
	// A follower outside the ISR that is no longer caught up stops holding the high watermark back.
	r.advanceHighWatermark(now, out)
	if r.leader.pending != nil {
		return
	}
	isr := make([]ident.NodeID, 0, len(r.meta.ISR))
	var facts []Fact
	for _, id := range r.meta.ISR {
		if f := r.follower(id); f != nil && !r.caughtUp(now, f) {
			facts = append(facts, r.isrFact(now, ISRShrunk, LagTimeExceeded, f))
		} else {
			isr = append(isr, id)
		}
	}
	if len(facts) > 0 {
		r.propose(now, isr, facts, out)
	}
}

func (r *Replica) isrFact(now ident.Instant, kind FactKind, reason Reason, f *follower) Fact {
	offsets, since := f.lag(now, r.log.EndOffset())
	return Fact{
		Kind: kind, Replica: f.id, Reason: reason, LeaderEpoch: r.meta.LeaderEpoch,
		LagOffsets: offsets, LagTime: since, From: ident.UnknownOffset, To: ident.UnknownOffset,
	}
}

// propose puts a proposal in flight. There is none before.
func (r *Replica) propose(now ident.Instant, isr []ident.NodeID, facts []Fact, out *Effects) {
	p := &pending{isr: isr, facts: facts, since: now, retryAt: ident.Never, proposal: Proposal{
		LeaderEpoch: r.meta.LeaderEpoch, PartitionEpoch: r.meta.PartitionEpoch, ISR: make([]Member, 0, len(isr)),
	}}
	for _, id := range isr {
		p.proposal.ISR = append(p.proposal.ISR, Member{ID: id, BrokerEpoch: r.memberEpoch(id)})
	}
	r.leader.pending = p
	out.Proposal = &p.proposal
}

// memberEpoch is the broker epoch that vouches for a member: its fetches', so that the controller refuses one that
// has restarted since (KIP-903). A member that has not fetched yet in this leadership is known by -1.
func (r *Replica) memberEpoch(id ident.NodeID) int64 {
	if r.cfg.Mutant == StaleBrokerEpochAccepted {
		return -1
	}
	if id == r.cfg.Self {
		if b, ok := r.cluster.Broker(id); ok {
			return b.Epoch
		}
		return -1
	}
	if f := r.follower(id); f != nil {
		return f.brokerEpoch
	}
	return -1
}

// alterPartitionDone settles the proposal in flight, or not: the cases are below.
func (r *Replica) alterPartitionDone(now ident.Instant, ev AlterPartitionDone, out *Effects) {
	p := r.leader.pending
	if p == nil || ev.LeaderEpoch != p.proposal.LeaderEpoch || ev.PartitionEpoch != p.proposal.PartitionEpoch {
		return // metadata or a new leadership has settled it meanwhile
	}
	switch ev.Code {
	case None:
		p.retryAt = ident.Never
		if ev.NowLeaderEpoch == r.meta.LeaderEpoch && ev.NowPartitionEpoch >= r.meta.PartitionEpoch {
			r.commitISR(now, ev, p, out)
		}
	case IneligibleReplica, OperationNotAttempted:
		// Surely not applied. Not tried again by itself: a later fetch or check will, and not in a hot loop.
		out.Facts = append(out.Facts, r.refusedFact(ev, p))
		r.leader.refusedUntil = now.Add(min(r.cfg.FetchBackoff, r.cfg.LagTimeMax/2))
		r.settle(now, out)
	case UnknownTopicOrPartition, InvalidRequest, FencedLeaderEpoch, InvalidUpdateVersion, UnknownTopicID, NewLeaderElected:
		// The controller knows more than this leader; metadata will tell. Until then it stays pending.
		p.retryAt = ident.Never
		if r.cfg.Mutant == UnclearAnswerIsRefusal {
			r.settle(now, out)
		}
	default:
		p.retryAt = now.Add(r.cfg.ProposalRetry)
		if r.cfg.Mutant == UnclearAnswerIsRefusal {
			r.settle(now, out)
		}
	}
}

func (r *Replica) commitISR(now ident.Instant, ev AlterPartitionDone, p *pending, out *Effects) {
	if ev.NowPartitionEpoch == p.proposal.PartitionEpoch+1 && sameMembers(ev.NowISR, p.isr) {
		out.Facts = append(out.Facts, p.committedFacts(ev.NowPartitionEpoch)...)
	}
	r.meta.ISR = slices.Clone(ev.NowISR)
	r.meta.PartitionEpoch = ev.NowPartitionEpoch
	r.settle(now, out)
}

// settle ends the proposal in flight; the high watermark may move by it without any other traffic.
func (r *Replica) settle(now ident.Instant, out *Effects) {
	r.leader.pending = nil
	r.advanceHighWatermark(now, out)
	r.completeProduces(out)
}

func (r *Replica) refusedFact(ev AlterPartitionDone, p *pending) Fact {
	f := p.facts[0]
	f.Kind, f.Code, f.PartitionEpoch = ISRChangeRefused, ev.Code, ev.PartitionEpoch
	return f
}

func (r *Replica) retryProposal(now ident.Instant, out *Effects) {
	if p := r.leader.pending; p != nil && now >= p.retryAt {
		p.retryAt = ident.Never
		out.Proposal = &p.proposal
	}
}
