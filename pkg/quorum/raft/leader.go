package raft

import (
	"fmt"
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// leadership is what only a leader has.
type leadership struct {
	// epochStart is the offset of the leader-change record.
	epochStart ident.Offset
	// begun: the high watermark is beyond the epoch's start.
	begun bool
	// replicas are the other voters and the observers with a log, in the order of their keys.
	replicas []replica
	// change of the voters that is under way.
	change *voterChange
}

// replica is what the leader knows of one that fetches.
type replica struct {
	key ReplicaKey
	// end is the offset of its last valid fetch, UnknownOffset before; all below is on its disk.
	end ident.Offset
	// contact is its last fetch of this epoch, valid or not, or the start of the leadership.
	contact ident.Instant
	// fetched, lastFetch, caughtUp: there was a valid fetch, when, and when it last had all that the leader had.
	fetched             bool
	lastFetch, caughtUp ident.Instant
	everCaughtUp        bool
	// leaderEnd is the leader's log end at its last valid fetch.
	leaderEnd ident.Offset
}

// maxObservers bounds what a leader remembers; a fetch of one more is served all the same.
const maxObservers = 4096

func (l *leadership) search(k ReplicaKey) (int, bool) {
	return slices.BinarySearchFunc(l.replicas, k, func(r replica, k ReplicaKey) int { return r.key.Compare(k) })
}

func (l *leadership) find(k ReplicaKey) *replica {
	if i, ok := l.search(k); ok {
		return &l.replicas[i]
	}
	return nil
}

func (l *leadership) add(k ReplicaKey, now ident.Instant) *replica {
	i, ok := l.search(k)
	if !ok {
		l.replicas = slices.Insert(l.replicas, i, replica{key: k, end: ident.UnknownOffset, contact: now})
	}
	return &l.replicas[i]
}

// syncReplicas makes sure that every other voter is known.
func (n *Node) syncReplicas() {
	for _, v := range n.Voters() {
		if v.Key != n.cfg.Self {
			n.lead.add(v.Key, n.now)
		}
	}
}

// heardFrom notes a fetch of this epoch and returns the replica; nil for one without a log.
func (n *Node) heardFrom(k ReplicaKey) *replica {
	if k.ID < 0 {
		return nil
	}
	r := n.lead.find(k)
	if r == nil {
		n.forgetObservers()
		if len(n.lead.replicas) >= maxObservers {
			return nil
		}
		r = n.lead.add(k, n.now)
	}
	r.contact = n.now
	return r
}

// fetchedUpTo notes a valid fetch: the replica holds all below the offset.
func (n *Node) fetchedUpTo(r *replica, offset ident.Offset) {
	end := n.log.EndOffset()
	switch {
	case offset >= end:
		r.caughtUp, r.everCaughtUp = n.now, true
	case r.fetched && offset >= r.leaderEnd:
		// It had at this fetch what the leader had at the one before.
		r.caughtUp, r.everCaughtUp = max(r.caughtUp, r.lastFetch), true
	}
	r.end, r.leaderEnd = offset, end
	r.lastFetch, r.fetched = n.now, true
	n.advanceHighWatermark()
}

func (n *Node) forgetObservers() {
	n.lead.replicas = slices.DeleteFunc(n.lead.replicas, func(r replica) bool {
		return n.now >= r.contact.Add(n.cfg.ObserverTimeout) && !n.Voters().Has(r.key)
	})
}

// advanceHighWatermark moves the high watermark to what a majority of the voters has on disk, never back, and
// only when that is beyond the start of the epoch: entries of earlier epochs are not safe by being on a
// majority, only below one of this epoch that is. The leader counts itself only when it is a voter and only
// with what it has fsynced (KAFKA-10533).
func (n *Node) advanceHighWatermark() {
	if n.role != Leader {
		return
	}
	voters := n.Voters()
	if len(voters) == 0 {
		return
	}
	ends := make([]ident.Offset, 0, len(voters))
	for _, v := range voters {
		end := ident.UnknownOffset
		if v.Key == n.cfg.Self {
			end = n.flushed
			if n.cfg.Mutant == MutateCountUnflushed {
				end = n.log.EndOffset()
			}
		} else if r := n.lead.find(v.Key); r != nil {
			end = r.end
		}
		ends = append(ends, end)
	}
	ends = n.mutantEnds(ends)
	slices.Sort(ends)
	held := ends[len(ends)-voters.Majority()]
	if n.cfg.Mutant == MutateMinorityCommit && len(ends) > 1 {
		held = ends[len(ends)-voters.Majority()+1]
	}
	if held > n.log.EndOffset() {
		n.fatal("a majority fetches from %d, beyond the log's end %d", held, n.log.EndOffset())
		return
	}
	if held <= n.lead.epochStart && n.cfg.Mutant != MutateCommitOldEpoch {
		return
	}
	before := n.highWatermark
	n.raiseHighWatermark(held)
	if !n.lead.begun && held > n.lead.epochStart {
		n.lead.begun, n.leaderless = true, 0
		n.out.Leading = &EpochStart{Epoch: n.vote.Epoch, Start: n.lead.epochStart}
	}
	if n.highWatermark != before {
		n.wakeParked()
		n.changeCommitted()
	}
}

// mutantEnds adds those that must not be counted, when that is the rule to be broken.
func (n *Node) mutantEnds(ends []ident.Offset) []ident.Offset {
	switch {
	case n.cfg.Mutant == MutateCountRemovedLeader && !n.IsVoter():
		return append(ends, n.flushed)
	case n.cfg.Mutant == MutateCountObservers:
		for _, r := range n.lead.replicas {
			if !n.Voters().Has(r.key) {
				ends = append(ends, r.end)
			}
		}
	}
	return ends
}

// checkQuorumDeadline is when this leader resigns unless a majority fetches.
func (n *Node) checkQuorumDeadline() ident.Instant {
	voters := n.Voters()
	need := voters.Majority()
	contacts := make([]ident.Instant, 0, len(voters))
	for _, v := range voters {
		if v.Key == n.cfg.Self {
			need--
		} else if r := n.lead.find(v.Key); r != nil {
			contacts = append(contacts, r.contact)
		}
	}
	if need <= 0 || need > len(contacts) || n.cfg.Mutant == MutateNoCheckQuorum {
		return ident.Never
	}
	slices.Sort(contacts)
	return contacts[len(contacts)-need].Add(n.cfg.CheckQuorumTimeout)
}

// preferredSuccessors are the other voters, the one with the longest log first.
func (n *Node) preferredSuccessors() []ReplicaKey {
	var rs []replica
	for _, v := range n.Voters() {
		if r := n.lead.find(v.Key); r != nil && v.Key != n.cfg.Self {
			rs = append(rs, *r)
		}
	}
	slices.SortStableFunc(rs, func(a, b replica) int { return int(b.end - a.end) })
	keys := make([]ReplicaKey, len(rs))
	for i, r := range rs {
		keys[i] = r.key
	}
	return keys
}

// CheckPropose says whether records of this size can be appended now by the leader of this epoch. The caller
// appends them at once and reports AppendDone.
func (n *Node) CheckPropose(epoch ident.Epoch, sizeBytes int) error {
	switch {
	case n.role != Leader || n.vote.Epoch != epoch:
		return fmt.Errorf("append in epoch %d: node %d is %s in epoch %d: %w", epoch, n.cfg.Self.ID, n.role, n.vote.Epoch, ErrNotLeader)
	case sizeBytes > int(n.cfg.ProposeMaxBytes):
		return fmt.Errorf("append of %d bytes, at most %d: %w", sizeBytes, n.cfg.ProposeMaxBytes, ErrTooLarge)
	}
	return nil
}
