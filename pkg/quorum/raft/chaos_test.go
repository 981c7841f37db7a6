package raft_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// draws has generators over small ranges, so that things meet.
type draws struct{ t *rapid.T }

func (d draws) id() ident.NodeID   { return ident.NodeID(rapid.IntRange(-1, 4).Draw(d.t, "id")) }
func (d draws) epoch() ident.Epoch { return ident.Epoch(rapid.IntRange(-1, 12).Draw(d.t, "epoch")) }
func (d draws) offset() ident.Offset {
	return ident.Offset(rapid.IntRange(-1, 12).Draw(d.t, "offset"))
}

func (d draws) key() raft.ReplicaKey {
	k := keyOf(d.id())
	if rapid.IntRange(0, 9).Draw(d.t, "wiped") == 0 {
		k.DirectoryID = dir(99)
	}
	return k
}

func (d draws) snapshot() raft.SnapshotID { return raft.SnapshotID{End: d.offset(), Epoch: d.epoch()} }

func (d draws) voter() raft.Voter {
	v := raft.Voter{Key: d.key()}
	if rapid.Bool().Draw(d.t, "endpoint") {
		v.Endpoints = []raft.Endpoint{{Name: "CONTROLLER", Host: "elsewhere", Port: 9093}}
	}
	return v
}

func (d draws) cluster() string {
	return rapid.SampledFrom([]string{"c", "", "x"}).Draw(d.t, "cluster")
}

func (d draws) request() raft.Message {
	switch rapid.IntRange(0, 7).Draw(d.t, "request") {
	case 0:
		return &raft.VoteRequest{
			ClusterID: d.cluster(), Voter: d.key(), Candidate: d.key(), Epoch: d.epoch(), LastEpoch: d.epoch(), EndOffset: d.offset(),
			PreVote: rapid.Bool().Draw(d.t, "pre"),
		}
	case 1:
		return &raft.BeginQuorumEpochRequest{ClusterID: d.cluster(), Voter: d.key(), Leader: d.id(), Epoch: d.epoch()}
	case 2:
		return &raft.EndQuorumEpochRequest{ClusterID: d.cluster(), Leader: d.id(), Epoch: d.epoch(), Successors: []raft.ReplicaKey{d.key(), d.key()}}
	case 3:
		return &raft.FetchSnapshotRequest{
			ClusterID: d.cluster(), Replica: d.key(), Epoch: d.epoch(), Snapshot: d.snapshot(),
			Position: int64(d.offset()), MaxBytes: int32(rapid.IntRange(-1, 9).Draw(d.t, "bytes")),
		}
	case 4:
		return &raft.AddVoterRequest{ClusterID: d.cluster(), Voter: d.voter(), AckAppended: rapid.Bool().Draw(d.t, "appended")}
	case 5:
		return &raft.RemoveVoterRequest{ClusterID: d.cluster(), Voter: d.key()}
	case 6:
		return &raft.UpdateVoterRequest{ClusterID: d.cluster(), Epoch: d.epoch(), Voter: d.voter()}
	}
	return &raft.FetchRequest{
		ClusterID: d.cluster(), Replica: d.key(), Epoch: d.epoch(), Offset: d.offset(), LastEpoch: d.epoch(), HighWatermark: d.offset(),
		MaxBytes: int32(rapid.IntRange(-1, 9).Draw(d.t, "bytes")), MaxWait: time.Duration(rapid.IntRange(-1, 500).Draw(d.t, "wait")) * time.Millisecond,
	}
}

func (d draws) response(to raft.Message) raft.Message {
	info := raft.LeaderInfo{Leader: d.id(), Epoch: d.epoch()}
	code := rapid.SampledFrom([]raft.Code{raft.None, raft.None, raft.None, raft.NotLeaderOrFollower, raft.FencedLeaderEpoch, raft.OffsetOutOfRange}).Draw(d.t, "code")
	switch to.(type) {
	case *raft.VoteRequest:
		return &raft.VoteResponse{Code: code, Granted: rapid.Bool().Draw(d.t, "granted"), Current: info}
	case *raft.BeginQuorumEpochRequest:
		return &raft.BeginQuorumEpochResponse{Code: code, Current: info}
	case *raft.EndQuorumEpochRequest:
		return &raft.EndQuorumEpochResponse{Code: code, Current: info}
	case *raft.UpdateVoterRequest:
		return &raft.ChangeVotersResponse{Code: code, Current: info}
	case *raft.KRaftVersionsRequest:
		return &raft.KRaftVersionsResponse{Code: code, Max: int16(rapid.IntRange(0, 1).Draw(d.t, "max"))}
	}
	if to, ok := to.(*raft.FetchSnapshotRequest); ok {
		r := &raft.FetchSnapshotResponse{Code: code, Current: info, Snapshot: to.Snapshot, Position: to.Position, Size: int64(d.offset())}
		for range rapid.IntRange(0, 4).Draw(d.t, "piece") {
			r.Bytes = append(r.Bytes, byte(rapid.IntRange(0, 3).Draw(d.t, "e")))
		}
		if rapid.IntRange(0, 9).Draw(d.t, "other") == 0 {
			r.Snapshot, r.Position = d.snapshot(), int64(d.offset())
		}
		return r
	}
	f := &raft.FetchResponse{Code: code, Current: info, HighWatermark: d.offset(), LogStartOffset: d.offset()}
	switch rapid.IntRange(0, 3).Draw(d.t, "what") {
	case 0:
		f.Diverging = &raft.EpochEnd{Epoch: d.epoch(), End: d.offset()}
	case 1:
		f.Snapshot = &raft.SnapshotID{Epoch: d.epoch(), End: d.offset()}
	case 2:
		for range rapid.IntRange(1, 4).Draw(d.t, "records") {
			f.Records = append(f.Records, byte(rapid.IntRange(0, 12).Draw(d.t, "e")))
		}
	}
	return f
}

// Whatever peers say, also what none that keeps the rules would say: a node answers each request once, votes once
// in an epoch, never goes back, never spins, and stops only when it is told to cut what is committed.
func TestNodeKeepsItsOwnRulesWhateverPeersSay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := draws{rt}
		cfg := config(1)
		cfg.Seed = rapid.Uint64().Draw(rt, "seed")
		log := logOf()
		for e := range rapid.IntRange(0, 3).Draw(rt, "epochs") {
			log.append(ident.Epoch(e), rapid.IntRange(1, 3).Draw(rt, "count"))
		}
		p := newPeer(t, cfg, log, raft.NoVote(), votersOf(1, 2, 3))
		now := ident.Instant(0)
		votes := map[ident.Epoch]raft.ReplicaKey{}
		open := map[uint64]bool{}
		token, epoch, hw := uint64(0), ident.Epoch(0), ident.UnknownOffset
		var sends []raft.Send
		check := func() {
			for _, r := range p.replies {
				if !open[r.Token] {
					rt.Fatalf("token %d answered twice", r.Token)
				}
				delete(open, r.Token)
			}
			p.replies = nil
			v := p.node.Vote()
			if p.fatal == nil && p.saves > 0 && v != p.saved {
				rt.Fatalf("in memory %+v, saved %+v", v, p.saved)
			}
			if v.Voted != raft.Nobody {
				if had, ok := votes[v.Epoch]; ok && had != v.Voted {
					rt.Fatalf("votes in epoch %d for %v and %v", v.Epoch, had, v.Voted)
				}
				votes[v.Epoch] = v.Voted
			}
			if p.node.Epoch() < epoch || p.node.HighWatermark() < hw || p.node.HighWatermark() > log.EndOffset() {
				rt.Fatalf("epoch %d to %d, high watermark %d to %d, log end %d", epoch, p.node.Epoch(), hw, p.node.HighWatermark(), log.EndOffset())
			}
			epoch, hw = p.node.Epoch(), p.node.HighWatermark()
			sends = append(sends, p.take()...)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(rt, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0, 1:
				token++
				open[token] = true
				p.step(now, raft.Request{Token: token, Msg: d.request()})
			case 2, 3:
				if len(sends) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(sends)-1).Draw(rt, "which")
				s := sends[i]
				r := raft.Response{From: s.To, Correlation: s.Correlation, Msg: d.response(s.Msg)}
				if rapid.IntRange(0, 9).Draw(rt, "fails") == 0 {
					r.Msg, r.Err = nil, errors.New("refused")
				}
				p.step(now, r) // perhaps not for the first time
			case 4:
				p.step(now, raft.Tick{})
			case 5:
				if p.node.CheckPropose(p.node.Epoch(), 1) == nil {
					log.append(p.node.Epoch(), 1)
					p.step(now, raft.AppendDone{End: log.EndOffset()})
				}
			}
			check()
			if p.fatal != nil {
				if !strings.Contains(p.fatal.Error(), "below the high watermark") {
					rt.Fatal(p.fatal)
				}
				return
			}
		}
		now = now.Add(raft.DefaultParkMax + time.Second)
		p.step(now, raft.Tick{})
		check()
		if len(open) > 0 {
			rt.Fatalf("%d requests never answered", len(open))
		}
	})
}
