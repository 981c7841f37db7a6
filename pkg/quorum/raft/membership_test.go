package raft_test

import (
	"errors"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

func newVoter(id ident.NodeID) raft.Voter {
	return raft.Voter{Key: keyOf(id), Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: "new", Port: 9093}}}
}

// leading is node 1 of three that has committed the start of its epoch with node 2; an observer 4 is caught up.
func leading(t *testing.T, cfg raft.Config) (p *peer, now ident.Instant, fetches func(ids ...ident.NodeID)) {
	t.Helper()
	p, now = elected(t, cfg, logOf())
	fetches = func(ids ...ident.NodeID) {
		t.Helper()
		for _, id := range ids {
			now++
			p.ask(now, fetch(id, p.node.Epoch(), p.log.EndOffset(), p.log.LatestEpoch()))
		}
	}
	fetches(2, 4)
	return p, now + 10, fetches
}

// change asks for a change under a token of its own, and returns the answer if there is one at once.
func change(t *testing.T, p *peer, now ident.Instant, m raft.Message) *raft.ChangeVotersResponse {
	t.Helper()
	p.sends = nil
	p.replies = nil
	p.step(now, raft.Request{Token: changeToken, Msg: m})
	p.answerAll(now, func(s raft.Send) raft.Message {
		if _, ok := s.Msg.(*raft.KRaftVersionsRequest); ok {
			return &raft.KRaftVersionsResponse{Max: raft.KRaftVersion}
		}
		return nil
	})
	return changed(p)
}

const changeToken = 500

func changed(p *peer) *raft.ChangeVotersResponse {
	r, _ := p.replyTo(changeToken).(*raft.ChangeVotersResponse)
	return r
}

func TestChangesOfTheVotersAreRefusedWithKafkasCodes(t *testing.T) {
	add := func(change func(*raft.AddVoterRequest)) raft.Message {
		m := &raft.AddVoterRequest{ClusterID: "c", Voter: newVoter(4)}
		change(m)
		return m
	}
	for name, c := range map[string]struct {
		m    raft.Message
		code raft.Code
	}{
		"another cluster":               {add(func(m *raft.AddVoterRequest) { m.ClusterID = "x" }), raft.InconsistentClusterID},
		"a voter of that id":            {add(func(m *raft.AddVoterRequest) { m.Voter = newVoter(2); m.Voter.Key.DirectoryID = dir(99) }), raft.DuplicateVoter},
		"no directory":                  {add(func(m *raft.AddVoterRequest) { m.Voter.Key.DirectoryID = ident.ZeroUUID }), raft.InvalidRequest},
		"no endpoint":                   {add(func(m *raft.AddVoterRequest) { m.Voter.Endpoints = nil }), raft.InvalidRequest},
		"one that never fetched":        {add(func(m *raft.AddVoterRequest) { m.Voter = newVoter(5) }), raft.RequestTimedOut},
		"another directory that did":    {add(func(m *raft.AddVoterRequest) { m.Voter.Key.DirectoryID = dir(99) }), raft.RequestTimedOut},
		"remove one that is not there":  {&raft.RemoveVoterRequest{ClusterID: "c", Voter: keyOf(4)}, raft.VoterNotFound},
		"remove with a wrong directory": {&raft.RemoveVoterRequest{ClusterID: "c", Voter: raft.ReplicaKey{ID: 2, DirectoryID: dir(99)}}, raft.VoterNotFound},
		"update of a stranger":          {&raft.UpdateVoterRequest{ClusterID: "c", Epoch: 1, Voter: newVoter(4)}, raft.VoterNotFound},
		"update in an old epoch":        {&raft.UpdateVoterRequest{ClusterID: "c", Epoch: 0, Voter: newVoter(2)}, raft.FencedLeaderEpoch},
		"update in a later epoch":       {&raft.UpdateVoterRequest{ClusterID: "c", Epoch: 2, Voter: newVoter(2)}, raft.UnknownLeaderEpoch},
		"update without endpoints":      {&raft.UpdateVoterRequest{ClusterID: "c", Epoch: 1, Voter: raft.Voter{Key: keyOf(2)}}, raft.InvalidRequest},
		"update that changes nothing":   {&raft.UpdateVoterRequest{ClusterID: "c", Epoch: 1, Voter: votersOf(1, 2, 3)[1]}, raft.None},
	} {
		p, now, _ := leading(t, config(1))
		end := p.log.EndOffset()
		r := change(t, p, now, c.m)
		if r == nil || r.Code != c.code || (r.Message == "") != (c.code == raft.None) || p.log.EndOffset() != end {
			t.Errorf("%s: %+v, want code %d; log end %d, was %d", name, r, c.code, p.log.EndOffset(), end)
		}
	}
	f, _ := follower(t, logOf(1))
	if r := change(t, f, 1, add(func(*raft.AddVoterRequest) {})); r.Code != raft.NotLeaderOrFollower || r.Current.Leader != 1 {
		t.Errorf("a follower answers %+v", r)
	}
	p, now := elected(t, config(1), logOf())
	if r := change(t, p, now, add(func(*raft.AddVoterRequest) {})); r.Code != raft.RequestTimedOut {
		t.Errorf("a leader that has committed nothing answers %+v", r)
	}
	sole := newPeer(t, config(1), logOf(), raft.NoVote(), votersOf(1))
	if r := change(t, sole, 1, &raft.RemoveVoterRequest{ClusterID: "c", Voter: keyOf(1)}); r.Code != raft.InvalidRequest {
		t.Errorf("the removal of the last voter: %+v", r)
	}
}

func TestOneWhoFellBehindIsNotMadeAVoter(t *testing.T) {
	p, now, fetches := leading(t, config(1))
	p.log.append(1, 1)
	p.step(now, raft.AppendDone{End: p.log.EndOffset()})
	for now < ident.Instant(20*time.Second) {
		now = now.Add(500 * time.Millisecond)
		fetches(2)
		p.step(now, raft.Tick{})
		p.ask(now, fetch(2, 1, p.log.EndOffset(), 1))
	}
	if r := change(t, p, now, &raft.AddVoterRequest{ClusterID: "c", Voter: newVoter(4)}); r == nil || r.Code != raft.RequestTimedOut {
		t.Fatalf("%+v", r)
	}
}

func TestAddedVoterCountsFromTheAppendOnAndTheAnswerComesWithTheCommit(t *testing.T) {
	for _, atAppend := range []bool{false, true} {
		p, now, _ := leading(t, config(1))
		r := change(t, p, now, &raft.AddVoterRequest{ClusterID: "c", Voter: newVoter(4), AckAppended: atAppend})
		if atAppend != (r != nil) || !p.node.Voters().Has(keyOf(4)) {
			t.Fatalf("answer %+v, voters %v", r, p.node.Voters().Keys())
		}
		// Of four, three must have it.
		end := p.log.EndOffset()
		p.ask(now+1, fetch(2, 1, end, 1))
		if p.node.HighWatermark() == end {
			t.Fatal("committed by two of four")
		}
		if r, _ := p.ask(now+2, &raft.RemoveVoterRequest{ClusterID: "c", Voter: keyOf(3)}).(*raft.ChangeVotersResponse); r == nil || r.Code != raft.RequestTimedOut {
			t.Fatalf("a second change: %+v", r)
		}
		p.step(now+3, raft.Request{Token: 7, Msg: fetch(4, 1, end, 1)})
		m := changed(p)
		if p.node.HighWatermark() != end || atAppend == (m != nil && m.Code == raft.None) {
			t.Fatalf("high watermark %d of %d, answer %+v", p.node.HighWatermark(), end, m)
		}
		begins := 0
		p.step(now.Add(raft.DefaultFetchTimeout), raft.Tick{}) // it has not fetched for a while
		for _, s := range p.take() {
			if _, ok := s.Msg.(*raft.BeginQuorumEpochRequest); ok && s.To == 4 {
				begins++
			}
		}
		if begins != 1 {
			t.Fatalf("the new voter is told of the epoch %d times", begins)
		}
	}
}

func TestLeaderThatRemovesItselfLeadsUntilThatIsCommitted(t *testing.T) {
	p, now, _ := leading(t, config(1))
	if r := change(t, p, now, &raft.RemoveVoterRequest{ClusterID: "c", Voter: keyOf(1)}); r != nil {
		t.Fatalf("answered at once: %+v", r)
	}
	end := p.log.EndOffset()
	p.step(now+1, raft.Request{Token: 5, Msg: fetch(2, 1, end, 1)})
	if p.node.Role() != raft.Leader || p.node.HighWatermark() == end {
		t.Fatalf("%s, high watermark %d: one of two is no majority, and this node is none of them", p.node.Role(), p.node.HighWatermark())
	}
	p.step(now+2, raft.Request{Token: 6, Msg: fetch(3, 1, end, 1)})
	m := changed(p)
	if m == nil || m.Code != raft.None || p.node.Role() != raft.Resigned || p.node.IsVoter() {
		t.Fatalf("answer %+v, %s", m, p.node.Role())
	}
	if f, _ := p.replyTo(6).(*raft.FetchResponse); f == nil || f.Code != raft.NotLeaderOrFollower {
		t.Fatalf("the fetch that committed it is answered %+v", f)
	}
}

// A change that is lost with its leader is answered, and undone where the next leader cuts it off.
func TestLostChangeIsAnsweredAndUndone(t *testing.T) {
	p, now, _ := leading(t, config(1))
	end := p.log.EndOffset()
	change(t, p, now, &raft.AddVoterRequest{ClusterID: "c", Voter: newVoter(4)})
	p.step(now+1, raft.Request{Token: 1, Msg: &raft.BeginQuorumEpochRequest{ClusterID: "c", Voter: keyOf(1), Leader: 2, Epoch: 2}})
	if m := changed(p); m == nil || m.Code != raft.NotLeaderOrFollower {
		t.Fatalf("answer %+v", m)
	}
	if !p.node.Voters().Has(keyOf(4)) {
		t.Fatal("the set counts while it is in the log")
	}
	p.answerAll(now+2, func(s raft.Send) raft.Message {
		if _, ok := s.Msg.(*raft.FetchRequest); !ok {
			return nil
		}
		return &raft.FetchResponse{Current: raft.LeaderInfo{Leader: 2, Epoch: 2}, HighWatermark: end, Diverging: &raft.EpochEnd{Epoch: 1, End: end}}
	})
	if p.fatal != nil || p.log.EndOffset() != end || p.node.Voters().Has(keyOf(4)) {
		t.Fatalf("log %s, voters %v; %v", p.log, p.node.Voters().Keys(), p.fatal)
	}
}

func TestChangeThatIsNotCommittedInTimeIsAnsweredAndGoesOn(t *testing.T) {
	p, now, fetches := leading(t, config(1))
	m := &raft.AddVoterRequest{ClusterID: "c", Voter: newVoter(4), Timeout: 300 * time.Millisecond}
	change(t, p, now, m)
	end := p.log.EndOffset()
	var r *raft.ChangeVotersResponse
	for limit := now.Add(time.Second); r == nil && now < limit; now = p.node.NextDeadline() {
		p.step(now, raft.Tick{})
		r = changed(p)
	}
	if r == nil || r.Code != raft.RequestTimedOut {
		t.Fatalf("answer %+v", r)
	}
	fetches(2, 3)
	if p.node.HighWatermark() != end || !p.node.Voters().Has(keyOf(4)) {
		t.Fatalf("high watermark %d of %d", p.node.HighWatermark(), end)
	}
	// It is over: the next one is taken.
	if r := change(t, p, now+5, &raft.RemoveVoterRequest{ClusterID: "c", Voter: keyOf(3)}); r != nil {
		t.Fatalf("%+v", r)
	}
}

// The voters in a snapshot count, and those of the log behind it as well (E-99: older configuration never replaces
// newer).
func TestVotersComeFromTheSnapshotAndTheLogBehindIt(t *testing.T) {
	log := trimmed(10, 10)
	log.snapshots[0].voters = votersOf(1, 2, 3, 4)
	p := newPeer(t, config(1), log, raft.NoVote(), votersOf(1))
	if got := p.node.Voters(); !got.Has(keyOf(4)) || len(got) != 4 {
		t.Fatalf("voters %v", got.Keys())
	}
	p.appendVoters(4, votersOf(1, 2, 3))
	p.start(1)
	if got := p.node.Voters(); got.Has(keyOf(4)) || len(got) != 3 {
		t.Fatalf("voters %v", got.Keys())
	}
}

// probed asks for voter 4 and returns the question that goes to it.
func probed(t *testing.T, p *peer, now ident.Instant) raft.Send {
	t.Helper()
	p.sends, p.replies = nil, nil
	p.step(now, raft.Request{Token: changeToken, Msg: &raft.AddVoterRequest{ClusterID: "c", Voter: newVoter(4), Timeout: time.Second}})
	for _, s := range p.take() {
		if _, ok := s.Msg.(*raft.KRaftVersionsRequest); ok {
			return s
		}
	}
	t.Fatalf("the new voter is not asked; answer %+v", changed(p))
	return raft.Send{}
}

// A new voter is asked, where the request says that it is, what it knows of the protocol (KIP-853), and nothing is
// appended before it has answered well.
func TestNewVoterIsAskedWhatItKnowsBeforeItIsAdded(t *testing.T) {
	for name, c := range map[string]struct {
		answer raft.Response
		code   raft.Code
	}{
		"knows it":                   {raft.Response{Msg: &raft.KRaftVersionsResponse{Min: 0, Max: 2}}, raft.None},
		"knows nothing of it":        {raft.Response{Msg: &raft.KRaftVersionsResponse{}}, raft.InvalidRequest},
		"knows only later ones":      {raft.Response{Msg: &raft.KRaftVersionsResponse{Min: 2, Max: 3}}, raft.InvalidRequest},
		"answers with an error":      {raft.Response{Msg: &raft.KRaftVersionsResponse{Code: raft.UnsupportedVersion}}, raft.RequestTimedOut},
		"does not answer at all":     {raft.Response{Err: errors.New("refused")}, raft.RequestTimedOut},
		"does not know the question": {raft.Response{Err: raft.ErrUnsupportedVersion}, raft.RequestTimedOut},
	} {
		p, now, fetches := leading(t, config(1))
		end := p.log.EndOffset()
		s := probed(t, p, now)
		if s.To != 4 || len(s.Endpoints) != 1 || s.Endpoints[0] != newVoter(4).Endpoints[0] || p.log.EndOffset() != end {
			t.Fatalf("%s: asked %+v; log end %d, was %d", name, s, p.log.EndOffset(), end)
		}
		if r, _ := p.ask(now+1, &raft.RemoveVoterRequest{ClusterID: "c", Voter: keyOf(3)}).(*raft.ChangeVotersResponse); r == nil || r.Code != raft.RequestTimedOut {
			t.Fatalf("%s: another change meanwhile: %+v", name, r)
		}
		c.answer.From, c.answer.Correlation = s.To, s.Correlation
		p.step(now+2, c.answer)
		if c.code != raft.None {
			if r := changed(p); r == nil || r.Code != c.code || r.Message == "" || p.log.EndOffset() != end || p.node.Voters().Has(keyOf(4)) {
				t.Errorf("%s: answer %+v, voters %v", name, r, p.node.Voters().Keys())
			}
			if r := change(t, p, now+3, &raft.RemoveVoterRequest{ClusterID: "c", Voter: keyOf(3)}); r != nil {
				t.Errorf("%s: it is not over: %+v", name, r)
			}
			continue
		}
		if !p.node.Voters().Has(keyOf(4)) || p.log.EndOffset() != end+1 {
			t.Fatalf("%s: voters %v", name, p.node.Voters().Keys())
		}
		// The same answer once more changes nothing.
		p.step(now+3, c.answer)
		fetches(2, 3, 4)
		if r := changed(p); p.log.EndOffset() != end+1 || r != nil && r.Code != raft.None {
			t.Fatalf("%s: log end %d, answer %+v", name, p.log.EndOffset(), r)
		}
	}
}

func TestNewVoterThatIsSilentOrTooLateIsNotAdded(t *testing.T) {
	p, now, _ := leading(t, config(1))
	end := p.log.EndOffset()
	s := probed(t, p, now)
	p.replies = nil
	for limit := now.Add(2 * time.Second); changed(p) == nil && now < limit; now = p.node.NextDeadline() {
		p.step(now, raft.Tick{})
	}
	if r := changed(p); r == nil || r.Code != raft.RequestTimedOut {
		t.Fatalf("answer %+v", r)
	}
	p.step(now, raft.Response{From: 4, Correlation: s.Correlation, Msg: &raft.KRaftVersionsResponse{Max: 1}})
	if p.log.EndOffset() != end || p.node.Voters().Has(keyOf(4)) {
		t.Fatalf("an answer that came too late added %v", p.node.Voters().Keys())
	}

	// By default a change may take half a minute; a question that is lost must not keep others away for as long.
	lasting := config(1)
	lasting.ChangeVotersTimeout = 0
	p, now, _ = leading(t, lasting)
	probed(t, p, now)
	p.replies = nil
	if p.step(now.Add(raft.DefaultRequestTimeout), raft.Tick{}); changed(p) == nil {
		t.Fatal("a lost question is still waited for")
	}

	// One that falls behind while it is asked is none either; and a leader that is deposed says so.
	p, now, _ = leading(t, config(1))
	s = probed(t, p, now)
	p.replies = nil
	p.step(now+1, raft.Request{Token: 1, Msg: &raft.BeginQuorumEpochRequest{ClusterID: "c", Voter: keyOf(1), Leader: 2, Epoch: 2}})
	if r := changed(p); r == nil || r.Code != raft.NotLeaderOrFollower {
		t.Fatalf("answer %+v", r)
	}
	p.step(now+2, raft.Response{From: 4, Correlation: s.Correlation, Msg: &raft.KRaftVersionsResponse{Max: 1}})
	if p.fatal != nil || p.node.Voters().Has(keyOf(4)) {
		t.Fatalf("%v, voters %v", p.fatal, p.node.Voters().Keys())
	}
}

// The answer that lets a change begin comes in the moment in which the leader finds that nobody fetches any more: it
// resigns and appends nothing.
func TestLeaderThatResignsAppendsNoVoters(t *testing.T) {
	p, now, _ := leading(t, config(1))
	end := p.log.EndOffset()
	s := probed(t, p, now)
	p.replies = nil
	p.step(now.Add(raft.DefaultCheckQuorumTimeout), raft.Response{From: 4, Correlation: s.Correlation, Msg: &raft.KRaftVersionsResponse{Max: 1}})
	if r := changed(p); p.node.Role() != raft.Resigned || r == nil || r.Code != raft.NotLeaderOrFollower || p.log.EndOffset() != end || p.node.Voters().Has(keyOf(4)) {
		t.Fatalf("%s, answer %+v, log %s", p.node.Role(), r, p.log)
	}
}

// A leader that moved writes it down itself, once nothing else is under way.
func TestLeaderThatMovedSaysSoInTheVoterSet(t *testing.T) {
	at := func(p *peer, id ident.NodeID) string {
		v, _ := p.node.Voters().Find(id)
		return v.Endpoints[0].Host
	}
	cfg := config(1)
	cfg.Endpoints = endpointAt("elsewhere")
	p := newPeer(t, cfg, logOf(), raft.NoVote(), votersOf(1))
	if at(p, 1) != "elsewhere" || p.node.HighWatermark() != 4 || p.node.Role() != raft.Leader {
		t.Fatalf("sole voter: %+v, high watermark %d, log %s", p.node.Voters(), p.node.HighWatermark(), p.log)
	}
	p.start(1)
	if p.log.EndOffset() != 5 {
		t.Fatalf("after a restart again: log %s, want only the leader change", p.log)
	}

	p, now := elected(t, cfg, logOf())
	if p.log.EndOffset() != 3 || at(p, 1) == "elsewhere" {
		t.Fatalf("log %s: before anything of its epoch is committed", p.log)
	}
	p.ask(now, fetch(2, 1, 3, 1))
	if p.log.EndOffset() != 4 || at(p, 1) != "elsewhere" || at(p, 2) != "node-2" {
		t.Fatalf("log %s, voters %+v", p.log, p.node.Voters())
	}
	r := p.ask(now, &raft.RemoveVoterRequest{ClusterID: "c", Voter: keyOf(3)}).(*raft.ChangeVotersResponse)
	if r.Code != raft.RequestTimedOut {
		t.Fatalf("%+v: that is a change like any other, and not committed yet", r)
	}
	p.ask(now, fetch(2, 1, 4, 1))
	p.step(now, raft.Request{Token: 100, Msg: &raft.RemoveVoterRequest{ClusterID: "c", Voter: keyOf(3)}})
	if r := p.replyTo(100); r != nil || len(p.node.Voters()) != 2 || at(p, 1) != "elsewhere" {
		t.Fatalf("%+v, voters %+v", r, p.node.Voters())
	}
}
