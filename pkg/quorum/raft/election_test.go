package raft_test

import (
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

func vote(from ident.NodeID, e ident.Epoch, lastEpoch ident.Epoch, end ident.Offset) *raft.VoteRequest {
	return &raft.VoteRequest{ClusterID: "c", Voter: keyOf(1), Candidate: keyOf(from), Epoch: e, LastEpoch: lastEpoch, EndOffset: end}
}

func preVote(from ident.NodeID, e ident.Epoch, lastEpoch ident.Epoch, end ident.Offset) *raft.VoteRequest {
	v := vote(from, e, lastEpoch, end)
	v.PreVote = true
	return v
}

func TestVoteIsRefusedWithKafkasCode(t *testing.T) {
	other := func(m *raft.VoteRequest, change func(*raft.VoteRequest)) *raft.VoteRequest { change(m); return m }
	for _, c := range []struct {
		name string
		m    *raft.VoteRequest
		code raft.Code
		yes  bool
	}{
		{"up to date", vote(2, 4, 3, 3), raft.None, true},
		{"longer log", vote(2, 4, 3, 9), raft.None, true},
		{"shorter log", vote(2, 4, 3, 2), raft.None, false},
		{"later last epoch beats length", vote(2, 5, 4, 1), raft.None, true},
		{"earlier last epoch", vote(2, 4, 2, 9), raft.None, false},
		{"earlier epoch", vote(2, 2, 1, 9), raft.FencedLeaderEpoch, false},
		{"last epoch not below a candidate's", vote(2, 4, 4, 9), raft.InvalidRequest, false},
		{"pre-vote in the epoch of the log", preVote(2, 3, 3, 3), raft.None, true},
		{"pre-vote with a last epoch above", preVote(2, 3, 4, 3), raft.InvalidRequest, false},
		{"other cluster", other(vote(2, 4, 3, 3), func(m *raft.VoteRequest) { m.ClusterID = "x" }), raft.InconsistentClusterID, false},
		{"no cluster named", other(vote(2, 4, 3, 3), func(m *raft.VoteRequest) { m.ClusterID = "" }), raft.None, true},
		{"meant for another directory", other(vote(2, 4, 3, 3), func(m *raft.VoteRequest) { m.Voter.DirectoryID = dir(9) }), raft.InvalidVoterKey, false},
		{"meant for another node", other(vote(2, 4, 3, 3), func(m *raft.VoteRequest) { m.Voter = keyOf(3) }), raft.InvalidVoterKey, false},
		{"voter not named", other(vote(2, 4, 3, 3), func(m *raft.VoteRequest) { m.Voter = raft.Nobody }), raft.None, true},
		{"negative end", vote(2, 4, 3, -1), raft.InvalidRequest, false},
		{"from nobody", vote(-1, 4, 3, 3), raft.InvalidRequest, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t, config(1), logOf(1, 1, 3), raft.NoVote(), votersOf(1, 2, 3))
			r := p.ask(1, c.m).(*raft.VoteResponse)
			if r.Code != c.code || r.Granted != c.yes {
				t.Fatalf("code %d, granted %v; want %d, %v", r.Code, r.Granted, c.code, c.yes)
			}
			if voted := p.saved.Voted == c.m.Candidate; voted != (c.yes && !c.m.PreVote) {
				t.Fatalf("saved %+v", p.saved)
			}
		})
	}
}

func TestVoteIsGivenOncePerEpochAlsoAfterRestart(t *testing.T) {
	p := newPeer(t, config(1), logOf(1), raft.NoVote(), votersOf(1, 2, 3))
	if !p.ask(1, vote(2, 5, 1, 1)).(*raft.VoteResponse).Granted {
		t.Fatal("first vote refused")
	}
	p.start(2)
	if p.ask(3, vote(3, 5, 1, 9)).(*raft.VoteResponse).Granted {
		t.Fatal("voted for another in the same epoch after a restart")
	}
	wiped := vote(2, 5, 1, 9)
	wiped.Candidate.DirectoryID = dir(77)
	if p.ask(3, wiped).(*raft.VoteResponse).Granted {
		t.Fatal("voted for the same id with another directory: that is another voter")
	}
	if !p.ask(3, vote(2, 5, 1, 1)).(*raft.VoteResponse).Granted {
		t.Fatal("the same candidate asked again and was refused")
	}
	if !p.ask(3, vote(3, 6, 1, 1)).(*raft.VoteResponse).Granted {
		t.Fatal("no vote in the next epoch")
	}
}

func TestPreVoteChangesNothingOnDisk(t *testing.T) {
	p := newPeer(t, config(1), logOf(1), raft.NoVote(), votersOf(1, 2, 3))
	saves := p.saves
	for _, from := range []ident.NodeID{2, 3} {
		if !p.ask(1, preVote(from, 1, 1, 1)).(*raft.VoteResponse).Granted {
			t.Fatalf("pre-vote of %d refused", from)
		}
	}
	if p.saves != saves {
		t.Fatalf("a pre-vote was saved: %+v", p.saved)
	}
}

func TestFollowerThatHearsItsLeaderRefusesPreVotes(t *testing.T) {
	p := newPeer(t, config(1), logOf(1), raft.NoVote(), votersOf(1, 2, 3))
	p.step(1, raft.Request{Token: 1, Msg: &raft.BeginQuorumEpochRequest{Voter: keyOf(1), Leader: 2, Epoch: 1}})
	if p.node.Role() != raft.Follower {
		t.Fatalf("role %s", p.node.Role())
	}
	if !p.ask(2, preVote(3, 1, 1, 1)).(*raft.VoteResponse).Granted {
		t.Fatal("before the first fetch a pre-vote is granted (KIP-996)")
	}
	p.answerAll(3, func(raft.Send) raft.Message {
		return &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 2, Epoch: 1}, HighWatermark: 1}
	})
	if p.ask(4, preVote(3, 1, 1, 1)).(*raft.VoteResponse).Granted {
		t.Fatal("pre-vote granted while the leader answers")
	}
	p.step(5, raft.Request{Token: 2, Msg: &raft.EndQuorumEpochRequest{Leader: 2, Epoch: 1, Successors: []raft.ReplicaKey{keyOf(3), keyOf(1)}}})
	if !p.ask(6, preVote(3, 1, 1, 1)).(*raft.VoteResponse).Granted {
		t.Fatal("pre-vote refused after the leader resigned")
	}
}

// A voter whose log is behind the record that makes it one takes itself for an observer.
func TestFollowerThatIsNoVoterYetLetsGoOfASilentLeader(t *testing.T) {
	p := newPeer(t, config(1), logOf(1), raft.NoVote(), votersOf(2, 3, 4))
	p.step(1, raft.Request{Token: 1, Msg: &raft.BeginQuorumEpochRequest{Voter: keyOf(1), Leader: 2, Epoch: 1}})
	heard := ident.Instant(3)
	p.answerAll(heard, func(raft.Send) raft.Message {
		return &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 2, Epoch: 1}, HighWatermark: 1}
	})
	if p.node.Role() != raft.Follower || p.ask(4, preVote(3, 1, 1, 1)).(*raft.VoteResponse).Granted {
		t.Fatalf("%s, and a pre-vote is granted while the leader answers", p.node.Role())
	}
	silent := heard.Add(2 * raft.DefaultFetchTimeout)
	for now := heard; now < silent; now = max(now+1, p.node.NextDeadline()) {
		p.step(now, raft.Tick{})
		p.take()
	}
	if !p.ask(silent, preVote(3, 1, 1, 1)).(*raft.VoteResponse).Granted {
		t.Fatal("pre-vote refused for a leader that has not answered for two fetch time-outs")
	}
}

func TestRestartedLeaderNeitherVotesNorLeadsInItsEpoch(t *testing.T) {
	p := newPeer(t, config(1), logOf(1, 5), raft.VoteState{Epoch: 5, Leader: 1, Voted: keyOf(1)}, votersOf(1, 2, 3))
	if p.node.Role() != raft.Resigned {
		t.Fatalf("role %s, want Resigned", p.node.Role())
	}
	if p.ask(1, vote(2, 5, 4, 9)).(*raft.VoteResponse).Granted {
		t.Fatal("voted in the epoch it led")
	}
	if err := p.node.CheckPropose(5, 1); err == nil {
		t.Fatal("may append in the epoch it led")
	}
	p.step(p.node.NextDeadline().Add(time.Second), raft.Tick{})
	if p.node.Epoch() != 6 || p.node.Role() == raft.Resigned {
		t.Fatalf("%s in epoch %d; want to have gone on to epoch 6", p.node.Role(), p.node.Epoch())
	}
}

func TestRestartTakesUpTheRoleThatWasSaved(t *testing.T) {
	for _, c := range []struct {
		name  string
		vote  raft.VoteState
		log   *fakeLog
		role  raft.Role
		epoch ident.Epoch
	}{
		{"nothing", raft.NoVote(), logOf(), raft.Unattached, 0},
		{"voted for another", raft.VoteState{Epoch: 3, Leader: -1, Voted: keyOf(2)}, logOf(1), raft.Unattached, 3},
		{"voted for itself", raft.VoteState{Epoch: 3, Leader: -1, Voted: keyOf(1)}, logOf(1), raft.Candidate, 3},
		{"voted for itself with another disk", raft.VoteState{Epoch: 3, Leader: -1, Voted: raft.ReplicaKey{ID: 1, DirectoryID: dir(9)}}, logOf(1), raft.Unattached, 3},
		{"had a leader", raft.VoteState{Epoch: 3, Leader: 2, Voted: keyOf(2)}, logOf(1), raft.Follower, 3},
		{"had a leader that is no voter", raft.VoteState{Epoch: 3, Leader: 8, Voted: raft.Nobody}, logOf(1), raft.Unattached, 3},
		{"log ahead of the vote", raft.VoteState{Epoch: 3, Leader: 2, Voted: keyOf(2)}, logOf(1, 4), raft.Unattached, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t, config(1), c.log, c.vote, votersOf(1, 2, 3))
			if p.node.Role() != c.role || p.node.Epoch() != c.epoch || p.saved.Epoch != c.epoch {
				t.Fatalf("%s in epoch %d, saved %+v; want %s in %d", p.node.Role(), p.node.Epoch(), p.saved, c.role, c.epoch)
			}
		})
	}
}

func TestSoleVoterLeadsAtOnceAndForGood(t *testing.T) {
	p := newPeer(t, config(1), logOf(), raft.NoVote(), votersOf(1))
	if p.node.Role() != raft.Leader || p.node.HighWatermark() != 3 || len(p.leading) != 1 {
		t.Fatalf("%s, high watermark %d, leading %v", p.node.Role(), p.node.HighWatermark(), p.leading)
	}
	p.step(ident.Instant(10*time.Minute), raft.Tick{})
	if p.node.Role() != raft.Leader || p.node.Epoch() != 1 {
		t.Fatalf("after 10 idle minutes %s in epoch %d (KAFKA-16144)", p.node.Role(), p.node.Epoch())
	}
	p.start(ident.Instant(11 * time.Minute))
	if p.node.Role() != raft.Leader || p.node.Epoch() != 2 {
		t.Fatalf("after a restart %s in epoch %d", p.node.Role(), p.node.Epoch())
	}
}

func TestLeaderWithoutMajorityResigns(t *testing.T) {
	p, now := elected(t, config(1), logOf())
	cut := now.Add(raft.DefaultCheckQuorumTimeout - 50*time.Millisecond)
	p.step(cut, raft.Tick{})
	if p.ask(cut, fetch(2, 1, 0, 0)) == nil || p.node.Role() != raft.Leader {
		t.Fatalf("role %s before the time-out", p.node.Role())
	}
	p.step(cut.Add(raft.DefaultCheckQuorumTimeout-1), raft.Tick{})
	if p.node.Role() != raft.Leader {
		t.Fatal("resigned although one follower, so a majority, fetched in time")
	}
	p.step(cut.Add(raft.DefaultCheckQuorumTimeout), raft.Tick{})
	if p.node.Role() != raft.Resigned {
		t.Fatalf("role %s, want Resigned (KAFKA-15489)", p.node.Role())
	}
}

func TestResigningLeaderNamesTheLongestLogFirst(t *testing.T) {
	p, now := elected(t, config(1), logOf())
	p.ask(now, fetch(2, 1, 1, 1))
	p.ask(now, fetch(3, 1, 3, 1))
	p.take()
	p.step(now, raft.Resign{Epoch: 1})
	named := 0
	for _, s := range p.take() {
		if m, ok := s.Msg.(*raft.EndQuorumEpochRequest); ok {
			named++
			if len(m.Successors) != 2 || m.Successors[0] != keyOf(3) || m.Successors[1] != keyOf(2) {
				t.Fatalf("successors %v", m.Successors)
			}
		}
	}
	if named != 2 {
		t.Fatalf("told %d voters, want 2", named)
	}
}

func TestFirstSuccessorStandsAtOnceOthersWait(t *testing.T) {
	follower := func() *peer {
		p := newPeer(t, config(1), logOf(1), raft.VoteState{Epoch: 1, Leader: 2, Voted: raft.Nobody}, votersOf(1, 2, 3))
		p.answerAll(1, func(raft.Send) raft.Message {
			return &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 2, Epoch: 1}, HighWatermark: 1}
		})
		return p
	}
	p := follower()
	p.step(2, raft.Request{Token: 1, Msg: &raft.EndQuorumEpochRequest{Leader: 2, Epoch: 1, Successors: []raft.ReplicaKey{keyOf(1), keyOf(3)}}})
	if p.node.Role() != raft.Prospective {
		t.Fatalf("first successor is %s", p.node.Role())
	}
	p = follower()
	p.step(2, raft.Request{Token: 1, Msg: &raft.EndQuorumEpochRequest{Leader: 2, Epoch: 1, Successors: []raft.ReplicaKey{keyOf(3), keyOf(1)}}})
	if p.node.Role() != raft.Follower {
		t.Fatalf("second successor is %s at once", p.node.Role())
	}
	p.step(ident.Instant(2).Add(raft.DefaultElectionTimeout), raft.Tick{})
	if p.node.Role() != raft.Prospective {
		t.Fatalf("second successor is %s after the election time-out", p.node.Role())
	}
}

func TestFollowerOfADeadConnectionDoesNotWaitOutItsTimeout(t *testing.T) {
	p := newPeer(t, config(1), logOf(1), raft.VoteState{Epoch: 1, Leader: 2, Voted: raft.Nobody}, votersOf(1, 2, 3))
	p.step(1, raft.Unreachable{Node: 3})
	p.step(ident.Instant(200*time.Millisecond), raft.Tick{})
	if p.node.Role() != raft.Follower {
		t.Fatalf("role %s though its leader is reachable", p.node.Role())
	}
	p.step(ident.Instant(201*time.Millisecond), raft.Unreachable{Node: 2})
	p.step(ident.Instant(302*time.Millisecond), raft.Tick{})
	if p.node.Role() != raft.Prospective {
		t.Fatalf("role %s 0.1 s after its leader refused connections", p.node.Role())
	}
}

func TestProspectiveWhosePeersHaveALeaderFollowsIt(t *testing.T) {
	p := newPeer(t, config(1), logOf(1), raft.VoteState{Epoch: 1, Leader: -1, Voted: raft.Nobody}, votersOf(1, 2, 3))
	now := ident.Instant(2 * raft.DefaultElectionTimeout)
	p.take()
	p.step(now, raft.Tick{})
	if p.node.Role() != raft.Prospective {
		t.Fatalf("role %s", p.node.Role())
	}
	p.answerAll(now, func(s raft.Send) raft.Message {
		return &raft.VoteResponse{Current: raft.LeaderInfo{Leader: 3, Epoch: 4}}
	})
	if l := p.node.Leadership(); p.node.Role() != raft.Follower || l.Leader != 3 || l.Epoch != 4 {
		t.Fatalf("%s, %+v", p.node.Role(), l)
	}
}

func TestPeerWithoutPreVoteCountsAsAYes(t *testing.T) {
	p := newPeer(t, config(1), logOf(1), raft.NoVote(), votersOf(1, 2, 3))
	now := ident.Instant(2 * raft.DefaultElectionTimeout)
	p.take()
	p.step(now, raft.Tick{})
	s := p.take()[0]
	p.step(now, raft.Response{From: s.To, Correlation: s.Correlation, Err: raft.ErrUnsupportedVersion})
	if p.node.Role() != raft.Candidate || p.node.Epoch() != 2 || p.saved.Voted != keyOf(1) {
		t.Fatalf("%s in epoch %d, saved %+v", p.node.Role(), p.node.Epoch(), p.saved)
	}
}

func TestNodeThatIsToldItLedAForgottenEpochResigns(t *testing.T) {
	p := newPeer(t, config(1), logOf(1), raft.NoVote(), votersOf(1, 2, 3))
	p.answerAll(1, func(raft.Send) raft.Message {
		return &raft.FetchResponse{Code: raft.NotLeaderOrFollower, Current: raft.LeaderInfo{Leader: 1, Epoch: 8}}
	})
	if p.node.Role() != raft.Resigned || p.saved.Epoch != 8 {
		t.Fatalf("%s in epoch %d", p.node.Role(), p.node.Epoch())
	}
}

func TestObserverNeverStands(t *testing.T) {
	p := newPeer(t, config(10), logOf(), raft.NoVote(), votersOf(1, 2, 3))
	asked := map[ident.NodeID]bool{}
	for now := ident.Instant(0); now < ident.Instant(20*time.Second); now = max(now+1, p.node.NextDeadline()) {
		p.step(now, raft.Tick{})
		for _, s := range p.take() {
			asked[s.To] = true
			if _, ok := s.Msg.(*raft.FetchRequest); !ok {
				t.Fatalf("an observer sends a %T", s.Msg)
			}
		}
	}
	if p.node.Role() != raft.Unattached || len(asked) != 3 {
		t.Fatalf("%s, asked %v; want to have asked each voter for the leader", p.node.Role(), asked)
	}
}

func TestObserverThatCannotReachItsLeaderAsksOthersInTurn(t *testing.T) {
	p := newPeer(t, config(10), logOf(), raft.NoVote(), votersOf(1, 2, 3))
	info := raft.LeaderInfo{Leader: 2, Epoch: 3}
	asked := map[ident.NodeID]int{}
	for now := ident.Instant(0); now < ident.Instant(20*time.Second); now = max(now+1, p.node.NextDeadline()) {
		p.step(now, raft.Tick{})
		for _, s := range p.take() {
			asked[s.To]++
			if s.To != 2 {
				p.step(now, raft.Response{From: s.To, Correlation: s.Correlation, Msg: &raft.FetchResponse{Code: raft.NotLeaderOrFollower, Current: info}})
			}
		}
	}
	if asked[1] < 5 || asked[2] < 5 || asked[3] < 5 {
		t.Fatalf("asked %v; want the leader and the others in turn (KAFKA-17030)", asked)
	}
	// The leader answers again.
	for now := ident.Instant(20 * time.Second); p.node.HighWatermark() < 0 && now < ident.Instant(30*time.Second); now = max(now+1, p.node.NextDeadline()) {
		p.step(now, raft.Tick{})
		for _, s := range p.take() {
			if s.To == 2 {
				p.step(now, raft.Response{From: 2, Correlation: s.Correlation, Msg: &raft.FetchResponse{Current: info, HighWatermark: 0}})
			}
		}
	}
	if p.node.HighWatermark() != 0 || p.node.Trouble() != nil {
		t.Fatalf("high watermark %d, trouble %v", p.node.HighWatermark(), p.node.Trouble())
	}
}
