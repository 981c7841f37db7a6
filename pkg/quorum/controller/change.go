package controller

import (
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

type election int8

const (
	electOnline    election = iota // keep the leader while it is valid, else the first valid replica
	electPreferred                 // the first replica when it is valid, else as electOnline
	electUnclean                   // as electOnline, and when nobody is valid the first live replica, which may lose records
)

// A change is what a decision wants of one partition. record works out what must be written for it: the leader
// that follows from it, the end of a reassignment that it completes, the leader epoch.
//
// The rules are those of eligible.leader.replicas.version 0: the last member of the ISR stays in it when its
// broker goes, and the partition then has no leader.
type change struct {
	tp       ident.TopicPartition
	old      *metadata.Partition
	alive    func(ident.NodeID) bool // who is registered, unfenced and not shutting down
	online   func(ident.NodeID) bool // whose replica is in a directory that its broker has, and not damaged
	dir      func(ident.NodeID) ident.UUID
	election election

	// The targets. newChange sets them to what is.
	replicas, isr, adding, removing []ident.NodeID
	directories                     []ident.UUID
	recovery                        int8
}

// change begins a change of the partition. excluded may neither lead nor, where the caller drops it from isr, stay
// in sync: it is about to be fenced. ident.NoNode excludes nobody.
func (s *state) change(tp ident.TopicPartition, p *metadata.Partition, excluded ident.NodeID) *change {
	ch := &change{
		tp: tp, old: p,
		alive:    func(id ident.NodeID) bool { return id != excluded && s.active(id) },
		dir:      s.defaultDir,
		replicas: p.Replicas, isr: p.ISR, adding: p.Adding, removing: p.Removing,
		directories: p.Directories, recovery: p.RecoveryState,
	}
	ch.online = func(id ident.NodeID) bool {
		dir, ok := ch.directory(id)
		return ok && slices.Contains(p.Replicas, id) && s.hasDirectory(id, dir)
	}
	return ch
}

// lead says who may lead: somebody alive, with the directory that the replica is in.
func (ch *change) lead(id ident.NodeID) bool { return ch.alive(id) && ch.online(id) }

// leadDamaged says who may lead when nobody else can: a live replica that has reported damaged records (see
// AssignReplicasToDirs).
func (ch *change) leadDamaged(id ident.NodeID) bool { return ch.alive(id) && ch.damaged(id) }

func (ch *change) damaged(id ident.NodeID) bool {
	dir, ok := ch.directory(id)
	return ok && dir == ident.LostDirectory
}

// directory is where a replica is, by what is wanted.
func (ch *change) directory(id ident.NodeID) (ident.UUID, bool) {
	if i := slices.Index(ch.replicas, id); i >= 0 && i < len(ch.directories) {
		return ch.directories[i], true
	}
	return ident.UUID{}, false
}

// directoryOnline says whether the broker still has the directory that the partition's replica is in (KIP-858). One
// that came back with an empty disk has not, and must not lead by an old membership in the ISR.
func (s *state) directoryOnline(id ident.NodeID, p *metadata.Partition) bool {
	dir, ok := p.Directory(id)
	return ok && s.hasDirectory(id, dir)
}

func damagedIn(p *metadata.Partition, id ident.NodeID) bool {
	dir, ok := p.Directory(id)
	return ok && dir == ident.LostDirectory
}

// hasDirectory says whether the broker can use the directory.
func (s *state) hasDirectory(id ident.NodeID, dir ident.UUID) bool {
	b := s.broker(id)
	if b == nil {
		return false
	}
	switch {
	case dir == ident.LostDirectory:
		return false
	case dir.IsReserved() || len(b.LogDirs) == 0: // not known yet, or a broker that knows no directories
		return true
	}
	return slices.Contains(b.LogDirs, dir)
}

// record returns what must be written, nil when nothing changes. The partition and leader epochs follow from the
// record when it is replayed.
func (ch *change) record() *metadata.PartitionChangeRecord {
	r := metadata.NewPartitionChange(0)
	r.TopicID, r.PartitionID = ch.tp.Topic, ch.tp.Index
	ch.dropDamaged()
	ch.completeReassignment()
	leader, unclean := ch.elect()
	if leader != ch.old.Leader {
		r.Leader = leader
	}
	if unclean {
		ch.isr = []ident.NodeID{leader}
		ch.recovery = metadata.Recovering
		if !ch.online(leader) && !ch.damaged(leader) {
			ch.setDirectory(leader, ch.dir(leader))
		}
	}
	if len(ch.isr) > 0 && !slices.Equal(ch.isr, ch.old.ISR) {
		r.ISR = ch.isr
	}
	// Late fetches and proposals of a replica that leaves must fail on the leader epoch (KIP-455, KAFKA-1097).
	if r.Leader == metadata.NoLeaderChange && slices.ContainsFunc(ch.old.Replicas, func(id ident.NodeID) bool { return !slices.Contains(ch.replicas, id) }) {
		r.Leader = ch.old.Leader
	}
	if !slices.Equal(ch.replicas, ch.old.Replicas) {
		r.Replicas = ch.replicas
	}
	if !slices.Equal(ch.adding, ch.old.Adding) {
		r.AddingReplicas = orEmpty(ch.adding)
	}
	if !slices.Equal(ch.removing, ch.old.Removing) {
		r.RemovingReplicas = orEmpty(ch.removing)
	}
	if r.Replicas != nil || !slices.Equal(ch.directories, ch.old.Directories) {
		r.Directories = ch.directories
	}
	if ch.recovery != ch.old.RecoveryState {
		r.LeaderRecoveryState = ch.recovery
	}
	if r.ISR == nil && r.Leader == metadata.NoLeaderChange && r.Replicas == nil && r.AddingReplicas == nil && r.RemovingReplicas == nil &&
		r.Directories == nil && r.LeaderRecoveryState == metadata.NoLeaderRecoveryChanged {
		return nil
	}
	return r
}

// orEmpty makes a list that is to be emptied differ from one that does not change.
func orEmpty(ids []ident.NodeID) []ident.NodeID {
	if ids == nil {
		return []ident.NodeID{}
	}
	return ids
}

// elect returns who leads after the change and whether that may lose records.
func (ch *change) elect() (leader ident.NodeID, unclean bool) {
	valid := func(id ident.NodeID) bool { return slices.Contains(ch.isr, id) && ch.lead(id) }
	if ch.election == electPreferred && len(ch.replicas) > 0 && valid(ch.replicas[0]) {
		return ch.replicas[0], false
	}
	if slices.Contains(ch.replicas, ch.old.Leader) && valid(ch.old.Leader) {
		return ch.old.Leader, false
	}
	if i := slices.IndexFunc(ch.replicas, valid); i >= 0 {
		return ch.replicas[i], false
	}
	// A damaged member of the ISR still has more than anybody outside of it.
	valid = func(id ident.NodeID) bool { return slices.Contains(ch.isr, id) && ch.leadDamaged(id) }
	if slices.Contains(ch.replicas, ch.old.Leader) && valid(ch.old.Leader) {
		return ch.old.Leader, false
	}
	if i := slices.IndexFunc(ch.replicas, valid); i >= 0 {
		return ch.replicas[i], false
	}
	if ch.election == electUnclean {
		for _, may := range []func(ident.NodeID) bool{ch.lead, ch.leadDamaged, ch.alive} {
			if i := slices.IndexFunc(ch.replicas, may); i >= 0 {
				return ch.replicas[i], true
			}
		}
	}
	return ident.NoNode, false
}

// dropDamaged takes members whose records are damaged out of the ISR while a whole one that may lead is in it: they
// don't hold all that was acknowledged. Without such a one they stay, or the partition would have nobody to serve what
// is whole.
func (ch *change) dropDamaged() {
	if slices.ContainsFunc(ch.isr, ch.damaged) && slices.ContainsFunc(ch.isr, ch.lead) {
		ch.isr = slices.DeleteFunc(slices.Clone(ch.isr), ch.damaged)
	}
}

// completeReassignment ends a reassignment when every target replica is in the ISR. One record then does it all:
// the replica set shrinks, who leaves is out of the ISR, the leader epoch rises; there is no state in between in
// which a removed replica could be proposed again (KIP-455). While a target's records are damaged the copies that are
// to go may be all there is of them.
func (ch *change) completeReassignment() {
	if len(ch.adding) == 0 && len(ch.removing) == 0 {
		return
	}
	target, isr := without(ch.replicas, ch.removing), without(ch.isr, ch.removing)
	if len(target) == 0 || slices.ContainsFunc(target, func(id ident.NodeID) bool { return !slices.Contains(isr, id) || ch.damaged(id) }) {
		return
	}
	ch.setReplicas(target)
	ch.isr, ch.adding, ch.removing = isr, nil, nil
}

// setReplicas sets the replica set; a replica keeps its directory, a new one gets its broker's.
func (ch *change) setReplicas(replicas []ident.NodeID) {
	directories := make([]ident.UUID, len(replicas))
	for i, id := range replicas {
		if j := slices.Index(ch.replicas, id); j >= 0 {
			directories[i] = ch.directories[j]
		} else {
			directories[i] = ch.dir(id)
		}
	}
	ch.replicas, ch.directories = replicas, directories
}

// setDirectory notes where a replica is.
func (ch *change) setDirectory(replica ident.NodeID, dir ident.UUID) {
	ch.directories = slices.Clone(ch.directories)
	ch.directories[slices.Index(ch.replicas, replica)] = dir
}

// without returns the members of from that are not in drop, in order.
func without(from, drop []ident.NodeID) []ident.NodeID {
	out := make([]ident.NodeID, 0, len(from))
	for _, id := range from {
		if !slices.Contains(drop, id) {
			out = append(out, id)
		}
	}
	return out
}
