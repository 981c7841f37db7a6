package raft

import (
	"fmt"
	"slices"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Voter is one member of the voter set.
type Voter struct {
	Key       ReplicaKey
	Endpoints []Endpoint
}

// VoterSet is the voters in the order of their ids. It is never changed in place.
type VoterSet []Voter

// NewVoterSet sorts the voters and refuses an id that is there twice.
func NewVoterSet(voters ...Voter) (VoterSet, error) {
	s := slices.Clone(voters)
	slices.SortFunc(s, func(a, b Voter) int { return a.Key.Compare(b.Key) })
	for i := range s {
		if s[i].Key.ID < 0 {
			return nil, fmt.Errorf("voter id %d: must not be negative", s[i].Key.ID)
		}
		if i > 0 && s[i].Key.ID == s[i-1].Key.ID {
			return nil, fmt.Errorf("voter id %d is there twice", s[i].Key.ID)
		}
	}
	return s, nil
}

// Find returns the voter with this id.
func (s VoterSet) Find(id ident.NodeID) (Voter, bool) {
	i, ok := slices.BinarySearchFunc(s, id, func(v Voter, id ident.NodeID) int { return int(v.Key.ID) - int(id) })
	if !ok {
		return Voter{}, false
	}
	return s[i], true
}

// Has says whether this very replica, id and directory, is a voter.
func (s VoterSet) Has(k ReplicaKey) bool {
	v, ok := s.Find(k.ID)
	return ok && v.Key == k
}

// Majority is the smallest number of voters that is more than half.
func (s VoterSet) Majority() int { return len(s)/2 + 1 }

// Keys returns the voters' keys in the order of their ids.
func (s VoterSet) Keys() []ReplicaKey {
	keys := make([]ReplicaKey, len(s))
	for i, v := range s {
		keys[i] = v.Key
	}
	return keys
}

// BootstrapOffset stands for the place of a voter set that is not in the log but in the 0-0 checkpoint.
const BootstrapOffset ident.Offset = -1

// VotersAt is a voter set together with the offset of the control record it came from.
type VotersAt struct {
	// Offset is BootstrapOffset for the set of the 0-0 checkpoint.
	Offset ident.Offset
	Voters VoterSet
}

// voterHistory holds the voter sets of the log by offset, the bootstrap set first. The last one counts even
// before it is committed (KIP-853); a truncation brings back the one before.
type voterHistory []VotersAt

func (h voterHistory) latest() VotersAt {
	if len(h) == 0 {
		return VotersAt{Offset: BootstrapOffset}
	}
	return h[len(h)-1]
}

func (h voterHistory) add(v VotersAt) voterHistory {
	return append(h.truncate(v.Offset), v)
}

// truncate drops the sets at and above the offset; the bootstrap set always stays.
func (h voterHistory) truncate(to ident.Offset) voterHistory {
	for len(h) > 0 && h[len(h)-1].Offset >= to && h[len(h)-1].Offset != BootstrapOffset {
		h = h[:len(h)-1]
	}
	return h
}

// behindSnapshot is the history once a snapshot is installed and the log goes from its end to the given one: the
// snapshot's set, and what the log still tells.
func (h voterHistory) behindSnapshot(s SnapshotID, voters VoterSet, logEnd ident.Offset) voterHistory {
	out := voterHistory{{Offset: s.End - 1, Voters: voters}}
	if len(voters) == 0 { // of a time when the voters were not in the log
		out = voterHistory{h.upTo(s.End)}
	}
	for _, v := range h {
		if v.Offset >= s.End && v.Offset < logEnd {
			out = append(out, v)
		}
	}
	return out
}

// upTo is the set that counts for the records below an offset.
func (h voterHistory) upTo(end ident.Offset) VotersAt { return slices.Clone(h).truncate(end).latest() }
