package exec_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

var errPowerCut = errors.New("simulated: power cut")

// told is what a node has said to others, and so must remember.
type told struct {
	epoch     ident.Epoch
	votes     map[ident.Epoch]raft.ReplicaKey
	fetchedTo ident.Offset
}

func (m *told) drain(q *exec.Quorum) []raft.Send {
	var out exec.QuorumOutput
	q.Drain(&out)
	for _, s := range out.Sends {
		switch r := s.Msg.(type) {
		case *raft.FetchRequest:
			m.epoch, m.fetchedTo = max(m.epoch, r.Epoch), r.Offset
		case *raft.VoteRequest:
			m.epoch = max(m.epoch, r.Epoch)
			if !r.PreVote {
				m.votes[r.Epoch] = r.Candidate
			}
		}
	}
	for _, r := range out.Replies {
		if v, ok := r.Msg.(*raft.VoteResponse); ok {
			m.epoch = max(m.epoch, v.Current.Epoch)
			if v.Granted {
				m.votes[v.Current.Epoch] = quorumKey(3)
			}
		}
	}
	return out.Sends
}

// voterLife is what happens to voter 2 of three: it votes for 3, follows 1, appends, is cut back by the leader of a
// later epoch, appends again, votes again, stands itself. It ends early, with the disk's error, when the disk fails.
func voterLife(fsys vfs.FS, m *told) (*exec.Quorum, error) {
	q, _, err := exec.OpenQuorum(quorumConfig(fsys, 2))
	if err != nil {
		return nil, err
	}
	var now ident.Instant
	var sends []raft.Send
	do := func(f func(now ident.Instant) error) {
		if err != nil {
			return
		}
		now++
		if err = f(now); err == nil {
			sends = append(sends, m.drain(q)...)
		}
	}
	flush := func() { do(q.Flush) }
	request := func(r raft.Message) {
		do(func(now ident.Instant) error { return q.HandleRequest(now, uint64(now), r) })
	}
	answer := func(from ident.NodeID, e ident.Epoch, r *raft.FetchResponse) {
		r.Current = raft.LeaderInfo{Leader: from, Epoch: e}
		do(func(now ident.Instant) error {
			for i := len(sends) - 1; i >= 0; i-- {
				if _, ok := sends[i].Msg.(*raft.FetchRequest); ok && sends[i].To == from {
					return q.HandleResponse(now, from, sends[i].Correlation, r, nil)
				}
			}
			return fmt.Errorf("no fetch from node %d among %+v", from, sends)
		})
	}
	do(q.Start)
	request(&raft.VoteRequest{Voter: raft.Nobody, Candidate: quorumKey(3), Epoch: 1})
	request(&raft.BeginQuorumEpochRequest{Voter: raft.Nobody, Leader: 1, Epoch: 5})
	answer(1, 5, &raft.FetchResponse{Records: append(batchAt(0, 4, "a", "b"), batchAt(2, 5, "c", "d")...)})
	flush()
	answer(1, 5, &raft.FetchResponse{HighWatermark: 2, Records: batchAt(4, 5, "e")})
	flush()
	request(&raft.BeginQuorumEpochRequest{Voter: raft.Nobody, Leader: 3, Epoch: 6})
	answer(3, 6, &raft.FetchResponse{HighWatermark: 2, Diverging: &raft.EpochEnd{Epoch: 4, End: 2}})
	answer(3, 6, &raft.FetchResponse{HighWatermark: 2, Records: batchAt(2, 6, "C", "D", "E", "F")})
	flush()
	request(&raft.VoteRequest{Voter: raft.Nobody, Candidate: quorumKey(3), Epoch: 7, LastEpoch: 6, EndOffset: 6})
	do(func(ident.Instant) error { return q.Tick(ident.Instant(5e9)) })
	return q, err
}

// A power cut at every operation on the disk, in turn: what was said before is remembered after, and the node starts.
func TestQuorumSurvivesAPowerCutAtEveryStep(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for cut := 0; ; cut++ {
		for _, keep := range []int{0, 50, 100} {
			fsys := formatted(t, 1, 2, 3)
			m := &told{votes: map[ident.Epoch]raft.ReplicaKey{}}
			ops, dead := 0, false
			_, err := voterLife(vfs.Inject(fsys, func(op, _ string) error {
				if dead || op != vfs.OpRead && op != vfs.OpStat && op != vfs.OpReadDir {
					if ops == cut || dead {
						dead = true
						return errPowerCut
					}
					ops++
				}
				return nil
			}), m)
			if dead != errors.Is(err, errPowerCut) {
				t.Fatalf("cut at %d: error %v", cut, err)
			}
			if err != nil && !dead {
				t.Fatal(err)
			}
			where := fmt.Sprintf("cut at operation %d, %d%% of the unsynced kept", cut, keep)
			q, _, err := exec.OpenQuorum(quorumConfig(fsys.CrashClone(rng, keep), 2))
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			v := q.Core().Vote()
			if v.Epoch < m.epoch {
				t.Fatalf("%s: is in epoch %d and has told of %d", where, v.Epoch, m.epoch)
			}
			if voted, ok := m.votes[v.Epoch]; ok && v.Voted != voted {
				t.Fatalf("%s: remembers %+v and voted for %v", where, v, voted)
			}
			if q.EndOffset() < min(m.fetchedTo, 2) {
				t.Fatalf("%s: log ends at %d, acknowledged to %d", where, q.EndOffset(), m.fetchedTo)
			}
			if err := q.Start(0); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			if !dead {
				if cut < 20 {
					t.Fatalf("only %d operations", cut)
				}
				if v.Epoch < 7 || m.epoch < 7 || m.fetchedTo != 6 || q.EndOffset() != 6 {
					t.Fatalf("whole life: vote %+v, told %+v, log end %d", v, m, q.EndOffset())
				}
				if keep == 100 {
					t.Logf("%d operations", cut)
					return
				}
			}
		}
	}
}
