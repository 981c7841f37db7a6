package replication

import (
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// A replica whose records are damaged says so to the controller, which notes it in the partition's directories
// (KIP-858's LOST): it leaves the ISR, and another member leads. Until that is committed it goes on as it is: it still
// has all the rest, so whatever it acknowledges anew it has. It serves what is whole, and nothing of what is not.
//
// Out of the ISR, under a live leader, it ends its log before the damage, fetches from there on, and says that it is
// whole when it has come to where it was. Only then may it join again. Never before it is out of the ISR: it would
// shorten what it answers for. And never as a leader: the only in-sync replica goes on with what is whole.

// damageState is what the executor has told of the log.
type damageState struct {
	DamageChanged
	quarantining bool // with the executor
	refilled     bool // the executor has been told
	wish         DirectoryWish
	// saidOnline: since metadata says LOST this replica has wished to be called whole again. The controller may have
	// taken that, and the leader may have taken the replica into the ISR, long before this node hears of it.
	saidOnline bool
}

// DirectoryWish is what a replica wants to have said to the controller by AssignReplicasToDirs.
type DirectoryWish uint8

// Wishes. What metadata has already is not wished for.
const (
	NoWish     DirectoryWish = iota
	WishLost                 // that records are damaged, or not yet refilled
	WishOnline               // that it is whole again, in the directory that it is in
)

// String names the wish.
func (w DirectoryWish) String() string { return [...]string{"none", "lost", "online"}[w] }

// DirectoryWish is what the node should tell the controller of this replica now. Effects.Directory says when to look
// again.
func (r *Replica) DirectoryWish() DirectoryWish { return r.damage.wish }

// Damage is what the replica knows of its log.
func (r *Replica) Damage() DamageChanged { return r.damage.DamageChanged }

func (r *Replica) directoryWish() DirectoryWish {
	if r.role == Failed || r.role == Gone || !slices.Contains(r.meta.Replicas, r.cfg.Self) {
		return NoWish
	}
	lost := r.damage.Damaged || r.damage.Refilling
	if r.cfg.Mutant == RejoinDamaged && !r.inISR() {
		lost = false
	}
	told := r.toldLost(r.cfg.Self)
	if !told {
		r.damage.saidOnline = false
	}
	switch {
	case told && r.damage.saidOnline:
		// Also when it is damaged anew by now: until the first word is known to have come true, what metadata says of
		// this replica may be long over. Then the damage is told, as of any member of the ISR.
		return WishOnline
	case lost && !told:
		return WishLost
	case !lost && told:
		r.damage.saidOnline = true
		return WishOnline
	}
	return NoWish
}

func (r *Replica) toldLost(id ident.NodeID) bool { return slices.Contains(r.meta.Lost, id) }

func (r *Replica) inISR() bool { return slices.Contains(r.meta.ISR, r.cfg.Self) }

// damageChanged takes over what the log is like now.
func (r *Replica) damageChanged(ev DamageChanged) {
	r.damage.DamageChanged = ev
	if !ev.Refilling {
		r.damage.refilled = false
	}
}

// repair does what follows from damage by now. It runs after every event.
func (r *Replica) repair(out *Effects) {
	if wish := r.directoryWish(); wish != r.damage.wish {
		r.damage.wish = wish
		out.Directory = true
	}
	if r.mayQuarantine() {
		r.damage.quarantining = true
		r.fetcher.state = truncating
		out.Quarantine = true
		out.Fetcher = true
	}
}

// mayQuarantine: the controller knows, and has taken this replica out of the ISR; and there is somebody to fetch from.
func (r *Replica) mayQuarantine() bool {
	if !r.damage.Damaged || r.damage.quarantining || r.role != Follower || r.fetcher.state == appending || r.fetcher.state == truncating {
		return false
	}
	if r.cfg.Mutant == QuarantineInISR {
		return true
	}
	leader, ok := r.cluster.Broker(r.meta.Leader)
	return ok && !leader.Fenced && r.toldLost(r.cfg.Self) && !r.damage.saidOnline && !r.inISR()
}

// quarantineDone: the log ends before what was damaged.
func (r *Replica) quarantineDone(out *Effects) {
	r.damage.quarantining = false
	r.truncateDone(out)
}

// maybeRefilled: what the leader has committed is here again, and the log has come to where it ended, or to where the
// leader's does: there is no more to be had.
func (r *Replica) maybeRefilled(atLeadersEnd bool, out *Effects) {
	d := &r.damage
	end := r.log.EndOffset()
	if !d.Refilling || d.Damaged || d.refilled || end < r.fetcher.leaderHW || end < d.RefillTo && !atLeadersEnd {
		return
	}
	d.refilled = true
	out.Refilled = true
}
