package raft_test

import (
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// standing is node 1 of these voters, just gone from no leader to its pre-vote.
func standing(t *testing.T, voters raft.VoterSet) (*peer, ident.Instant) {
	t.Helper()
	p := newPeer(t, config(1), logOf(1), raft.VoteState{Epoch: 1, Leader: -1, Voted: raft.Nobody}, voters)
	now := ident.Instant(2 * raft.DefaultElectionTimeout)
	p.take()
	p.step(now, raft.Tick{})
	if p.node.Role() != raft.Prospective {
		t.Fatalf("%s", p.node.Role())
	}
	return p, now
}

func answerVotes(p *peer, now ident.Instant, granted func(ident.NodeID) bool) {
	p.answerAll(now, func(s raft.Send) raft.Message {
		m, ok := s.Msg.(*raft.VoteRequest)
		if !ok {
			return nil
		}
		return &raft.VoteResponse{Granted: granted(s.To), Current: raft.LeaderInfo{Leader: -1, Epoch: m.Epoch}}
	})
}

func nobody(ident.NodeID) bool    { return false }
func everybody(ident.NodeID) bool { return true }

// A pre-vote is lost as soon as those who have not answered can't make it a majority: of four voters two are enough.
func TestPreVoteIsLostAsSoonAsItCannotBeWon(t *testing.T) {
	p, now := standing(t, votersOf(1, 2, 3, 4))
	saves := p.saves
	p.answerAll(now, func(s raft.Send) raft.Message {
		if s.To == 4 {
			return nil
		}
		return &raft.VoteResponse{Current: raft.LeaderInfo{Leader: -1, Epoch: 1}}
	})
	if p.node.Role() != raft.Unattached || p.node.Epoch() != 1 || p.saves != saves {
		t.Fatalf("%s in epoch %d after two of three others refused", p.node.Role(), p.node.Epoch())
	}
	// One that had a leader goes back to it.
	f := newPeer(t, config(1), logOf(1), raft.VoteState{Epoch: 3, Leader: 2, Voted: raft.Nobody}, votersOf(1, 2, 3))
	f.take()
	f.step(ident.Instant(time.Second), raft.Tick{})
	answerVotes(f, ident.Instant(time.Second), nobody)
	if l := f.node.Leadership(); f.node.Role() != raft.Follower || l.Leader != 2 || l.Epoch != 3 {
		t.Fatalf("%s of %+v", f.node.Role(), l)
	}
}

func TestPreVoteThatNobodyAnswersEndsWithItsTime(t *testing.T) {
	p, now := standing(t, votersOf(1, 2, 3))
	p.step(now.Add(2*raft.DefaultElectionTimeout), raft.Tick{})
	if p.node.Role() != raft.Unattached || p.node.Epoch() != 1 {
		t.Fatalf("%s in epoch %d", p.node.Role(), p.node.Epoch())
	}
}

// KAFKA-18345: one that lost waits out its time and then asks anew whether it should stand; the epoch does not rise
// meanwhile.
func TestCandidateThatLostWaitsAndAsksAnew(t *testing.T) {
	p, now := standing(t, votersOf(1, 2, 3))
	answerVotes(p, now, everybody)
	if p.node.Role() != raft.Candidate || p.node.Epoch() != 2 || p.saved.Voted != keyOf(1) {
		t.Fatalf("%s in epoch %d", p.node.Role(), p.node.Epoch())
	}
	answerVotes(p, now, nobody)
	if p.node.Role() != raft.Candidate || p.node.Epoch() != 2 {
		t.Fatalf("%s in epoch %d at once after it lost", p.node.Role(), p.node.Epoch())
	}
	p.step(now.Add(raft.DefaultElectionTimeout-1), raft.Tick{})
	if p.node.Role() != raft.Candidate || len(p.take()) > 0 {
		t.Fatalf("%s before its time was over, or asks somebody twice", p.node.Role())
	}
	p.step(now.Add(2*raft.DefaultElectionTimeout), raft.Tick{})
	if p.node.Role() != raft.Prospective || p.node.Epoch() != 2 {
		t.Fatalf("%s in epoch %d", p.node.Role(), p.node.Epoch())
	}
	for _, s := range p.take() {
		if m := s.Msg.(*raft.VoteRequest); !m.PreVote || m.Epoch != 2 {
			t.Fatalf("%+v", m)
		}
	}
}

// KIP-595: the k-th of n successors waits (T >> (n-1)) << (k-1), at most T, the first not at all, one that is not
// named T at least.
func TestSuccessorsStandOneAfterTheOther(t *testing.T) {
	const longest = raft.DefaultElectionTimeout
	for _, c := range []struct {
		name       string
		successors []ident.NodeID
		wait, most time.Duration
	}{
		{"first", []ident.NodeID{1, 3, 4}, 0, 0},
		{"second of two", []ident.NodeID{3, 1}, longest / 2, longest / 2},
		{"second of three", []ident.NodeID{3, 1, 4}, longest / 4, longest / 4},
		{"third of three", []ident.NodeID{3, 4, 1}, longest / 2, longest / 2},
		{"last of four", []ident.NodeID{3, 4, 5, 1}, longest / 2, longest / 2},
		{"not named", []ident.NodeID{3, 4}, longest, 2 * longest},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t, config(1), logOf(1), raft.VoteState{Epoch: 1, Leader: 2, Voted: raft.Nobody}, votersOf(1, 2, 3, 4, 5))
			p.answerAll(1, func(raft.Send) raft.Message {
				return &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 2, Epoch: 1}, HighWatermark: 1}
			})
			m := &raft.EndQuorumEpochRequest{Leader: 2, Epoch: 1}
			for _, id := range c.successors {
				m.Successors = append(m.Successors, keyOf(id))
			}
			p.ask(2, m)
			if c.wait > 0 {
				p.step(ident.Instant(2).Add(c.wait-1), raft.Tick{})
				if p.node.Role() != raft.Follower {
					t.Fatalf("%s before %v", p.node.Role(), c.wait)
				}
			}
			p.step(ident.Instant(2).Add(c.most), raft.Tick{})
			if p.node.Role() != raft.Prospective {
				t.Fatalf("%s after %v", p.node.Role(), c.most)
			}
		})
	}
}

// KAFKA-16536: a restarted voter that knows of the others nothing but their ids follows as soon as the leader says where
// it is, without an election.
func TestRestartedVoterThatKnowsNoEndpointsFollowsTheLeaderThatCalls(t *testing.T) {
	var bare raft.VoterSet
	for _, v := range votersOf(1, 2, 3) {
		bare = append(bare, raft.Voter{Key: v.Key})
	}
	p := newPeer(t, config(2), logOf(1), raft.VoteState{Epoch: 5, Leader: -1, Voted: raft.Nobody}, bare)
	at := []raft.Endpoint{{Name: "CONTROLLER", Host: "here", Port: 1}}
	p.take()
	r := p.ask(1, &raft.BeginQuorumEpochRequest{ClusterID: "c", Voter: keyOf(2), Leader: 1, Epoch: 5, Endpoints: at}).(*raft.BeginQuorumEpochResponse)
	if l := p.node.Leadership(); r.Code != raft.None || p.node.Role() != raft.Follower || p.node.Epoch() != 5 || len(l.Endpoints) != 1 || l.Endpoints[0] != at[0] {
		t.Fatalf("code %d, %s, %+v", r.Code, p.node.Role(), l)
	}
	if s := p.take(); len(s) != 1 || s[0].To != 1 {
		t.Fatalf("sends %+v, want one fetch to the leader", s)
	}
}

// Time-outs and back-offs are drawn anew each time, within their bounds, and neighbours draw differently.
func TestTimeoutsAreDrawnWithinTheirBounds(t *testing.T) {
	elections, fetches, retries := map[ident.Instant]bool{}, map[ident.Instant]bool{}, map[ident.Instant]bool{}
	within := func(what string, at ident.Instant, least, most time.Duration) {
		t.Helper()
		if at < ident.Instant(least) || at > ident.Instant(most) {
			t.Fatalf("%s after %v, want %v to %v", what, time.Duration(at), least, most)
		}
	}
	roleAfter := func(p *peer, not raft.Role) ident.Instant {
		now := ident.Instant(0)
		for p.node.Role() == not {
			now = p.node.NextDeadline()
			p.step(now, raft.Tick{})
		}
		return now
	}
	for seed := range uint64(50) {
		cfg := config(1)
		cfg.Seed = seed
		at := roleAfter(newPeer(t, cfg, logOf(), raft.NoVote(), votersOf(1, 2, 3)), raft.Unattached)
		within("stands", at, raft.DefaultElectionTimeout, 2*raft.DefaultElectionTimeout)
		elections[at] = true
		following := raft.VoteState{Epoch: 1, Leader: 2, Voted: raft.Nobody}
		at = roleAfter(newPeer(t, cfg, logOf(1), following, votersOf(1, 2, 3)), raft.Follower)
		within("leaves its leader", at, raft.DefaultFetchTimeout, raft.DefaultFetchTimeout*3/2)
		fetches[at] = true
		p := newPeer(t, cfg, logOf(1), following, votersOf(1, 2, 3))
		s := p.take()[0]
		p.step(0, raft.Response{From: 2, Correlation: s.Correlation, Err: raft.ErrUnsupportedVersion})
		at = p.node.NextDeadline()
		within("tries again", at, raft.DefaultRetryBackoff, 2*raft.DefaultRetryBackoff)
		retries[at] = true
	}
	if len(elections) < 45 || len(fetches) < 45 || len(retries) < 45 {
		t.Fatalf("%d, %d and %d different ones of 50", len(elections), len(fetches), len(retries))
	}
}
