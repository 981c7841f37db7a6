package sim

import (
	"fmt"

	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// said is a message in a trace.
type said struct{ m raft.Message }

// mixInto feeds what tells messages apart into the hash.
func (s said) mixInto(w *World) {
	leader := func(l raft.LeaderInfo) { w.mix(uint64(l.Leader)<<32 | uint64(uint32(l.Epoch))) }
	switch m := s.m.(type) {
	case *raft.VoteRequest:
		w.mixAny(m.PreVote)
		w.mix(1 + uint64(m.Epoch)<<32)
		w.mix(uint64(m.EndOffset)<<20 ^ uint64(m.LastEpoch))
	case *raft.VoteResponse:
		w.mixAny(m.Granted)
		w.mix(2 + uint64(m.Code)<<32)
		leader(m.Current)
	case *raft.BeginQuorumEpochRequest:
		w.mix(3 + uint64(m.Epoch)<<32)
	case *raft.EndQuorumEpochRequest:
		w.mix(4 + uint64(m.Epoch)<<32)
		for _, k := range m.Successors {
			w.mix(uint64(k.ID))
		}
	case *raft.BeginQuorumEpochResponse:
		w.mix(5 + uint64(m.Code)<<32)
		leader(m.Current)
	case *raft.EndQuorumEpochResponse:
		w.mix(6 + uint64(m.Code)<<32)
		leader(m.Current)
	case *raft.FetchRequest:
		w.mix(7 + uint64(m.Epoch)<<32)
		w.mix(uint64(m.Offset)<<20 ^ uint64(m.LastEpoch))
		w.mix(uint64(m.HighWatermark))
	case *raft.FetchResponse:
		w.mix(8 + uint64(m.Code)<<32)
		leader(m.Current)
		w.mix(uint64(len(m.Records))<<32 ^ uint64(m.HighWatermark))
		if m.Diverging != nil {
			w.mix(uint64(m.Diverging.End)<<20 ^ uint64(m.Diverging.Epoch))
		}
		if m.Snapshot != nil {
			w.mix(uint64(m.Snapshot.End)<<20 ^ uint64(m.Snapshot.Epoch))
		}
	case *raft.FetchSnapshotRequest:
		w.mix(9 + uint64(m.Epoch)<<32)
		w.mix(uint64(m.Snapshot.End)<<20 ^ uint64(m.Position))
	case *raft.FetchSnapshotResponse:
		w.mix(10 + uint64(m.Code)<<32)
		w.mix(uint64(m.Snapshot.End)<<20 ^ uint64(m.Position))
		w.mix(uint64(m.Size)<<32 ^ uint64(len(m.Bytes)))
	case *raft.ChangeVotersResponse:
		w.mix(11 + uint64(m.Code)<<32)
		w.mixString(m.Message)
	default:
		w.mixString(fmt.Sprintf("%T", m))
	}
}

// String is for people.
func (s said) String() string {
	switch m := s.m.(type) {
	case *raft.VoteRequest:
		kind := "Vote"
		if m.PreVote {
			kind = "PreVote"
		}
		return fmt.Sprintf("%s epoch %d, log %d@%d", kind, m.Epoch, m.EndOffset, m.LastEpoch)
	case *raft.VoteResponse:
		return fmt.Sprintf("vote %v, code %d, leader %d epoch %d", m.Granted, m.Code, m.Current.Leader, m.Current.Epoch)
	case *raft.BeginQuorumEpochRequest:
		return fmt.Sprintf("BeginQuorumEpoch %d", m.Epoch)
	case *raft.EndQuorumEpochRequest:
		return fmt.Sprintf("EndQuorumEpoch %d to %v", m.Epoch, m.Successors)
	case *raft.BeginQuorumEpochResponse:
		return fmt.Sprintf("begin code %d, leader %d epoch %d", m.Code, m.Current.Leader, m.Current.Epoch)
	case *raft.EndQuorumEpochResponse:
		return fmt.Sprintf("end code %d, leader %d epoch %d", m.Code, m.Current.Leader, m.Current.Epoch)
	case *raft.FetchRequest:
		return fmt.Sprintf("Fetch %d@%d in epoch %d, hw %d", m.Offset, m.LastEpoch, m.Epoch, m.HighWatermark)
	case *raft.FetchResponse:
		text := fmt.Sprintf("fetched %d bytes, code %d, leader %d epoch %d, hw %d", len(m.Records), m.Code, m.Current.Leader, m.Current.Epoch, m.HighWatermark)
		if m.Diverging != nil {
			text += fmt.Sprintf(", diverges at %d@%d", m.Diverging.End, m.Diverging.Epoch)
		}
		if m.Snapshot != nil {
			text += fmt.Sprintf(", needs snapshot %s", m.Snapshot)
		}
		return text
	case *raft.FetchSnapshotRequest:
		return fmt.Sprintf("FetchSnapshot %s at %d in epoch %d", m.Snapshot, m.Position, m.Epoch)
	case *raft.FetchSnapshotResponse:
		return fmt.Sprintf("snapshot %s, %d bytes at %d of %d, code %d", m.Snapshot, len(m.Bytes), m.Position, m.Size, m.Code)
	case *raft.ChangeVotersResponse:
		return fmt.Sprintf("change of voters: code %d %s", m.Code, m.Message)
	}
	return fmt.Sprintf("%T", s.m)
}
