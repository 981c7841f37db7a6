package raft_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// story is a quorum over a network that delivers everything after one millisecond, told as text: see testdata.
type story struct {
	t     *testing.T
	now   ident.Instant
	ids   []ident.NodeID
	peers map[ident.NodeID]*peer
	down  map[ident.NodeID]bool
	cuts  map[[2]ident.NodeID]bool
	queue []delivery
	token uint64
	// asked are requests that wait for their answer, by receiver and token.
	asked map[[2]uint64]origin
	text  strings.Builder
	quiet bool
}

type delivery struct {
	at       ident.Instant
	from, to ident.NodeID
	what     string
	ev       raft.Event
}

type origin struct {
	from        ident.NodeID
	correlation uint64
}

func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			s.text.Reset()
			s.do(d)
			if s.text.Len() == 0 {
				return "ok\n"
			}
			return s.text.String()
		})
	})
}

func (s *story) note(format string, args ...any) {
	if !s.quiet {
		fmt.Fprintf(&s.text, "%5d ms  ", int64(s.now)/1e6)
		fmt.Fprintf(&s.text, format+"\n", args...)
	}
}

func (s *story) do(d *datadriven.TestData) {
	var id, to int
	if d.HasArg("node") {
		d.ScanArgs(s.t, "node", &id)
	}
	if d.HasArg("to") {
		d.ScanArgs(s.t, "to", &to)
	}
	node, other := ident.NodeID(id), ident.NodeID(to)
	switch d.Cmd {
	case "new":
		s.create(d)
	case "log":
		// The epochs of the records that the node has when it starts.
		var epochs string
		d.ScanArgs(s.t, "epochs", &epochs)
		for _, f := range strings.Split(epochs, ",") {
			var e int
			if _, err := fmt.Sscan(f, &e); err != nil {
				s.t.Fatal(err)
			}
			s.peers[node].log.append(ident.Epoch(e), 1)
		}
	case "start":
		for _, id := range s.ids {
			s.start(id)
		}
	case "run":
		var ms int
		d.ScanArgs(s.t, "ms", &ms)
		s.quiet = d.HasArg("quiet")
		s.run(s.now.Add(time.Duration(ms) * time.Millisecond))
		s.quiet = false
	case "cut":
		s.cuts[[2]ident.NodeID{node, other}] = true
	case "isolate":
		for _, id := range s.ids {
			s.cuts[[2]ident.NodeID{node, id}], s.cuts[[2]ident.NodeID{id, node}] = true, true
		}
	case "heal":
		clear(s.cuts)
	case "kill":
		// What was not flushed is lost.
		s.down[node] = true
		p := s.peers[node]
		p.log.truncate(p.flushed)
	case "restart":
		s.start(node)
	case "hold-flush":
		s.peers[node].holdFlush = true
	case "flush":
		s.peers[node].holdFlush = false
		s.peers[node].flush(s.now)
		s.collect(node)
	case "propose":
		var count int
		d.ScanArgs(s.t, "count", &count)
		s.propose(node, count)
	case "snapshot":
		// Of all below the high watermark; the log is trimmed to it.
		p := s.peers[node]
		id := p.log.snapshot(p.node.HighWatermark(), p.node.Voters(), true)
		fmt.Fprintf(&s.text, "snapshot %s\n", id)
	case "chunk":
		// How many bytes of a snapshot the node asks for at a time.
		var bytes int
		d.ScanArgs(s.t, "bytes", &bytes)
		s.peers[node].cfg.SnapshotChunkBytes = int32(bytes)
	case "move":
		// The node listens elsewhere from its next start on.
		s.peers[node].cfg.Endpoints = []raft.Endpoint{{Name: "CONTROLLER", Host: d.CmdArgs[1].Vals[0], Port: 9093}}
	case "add-voter":
		v := raft.Voter{Key: keyOf(other), Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: fmt.Sprintf("node-%d", to), Port: 9093}}}
		s.change(node, &raft.AddVoterRequest{ClusterID: "c", Voter: v})
	case "remove-voter":
		s.change(node, &raft.RemoveVoterRequest{ClusterID: "c", Voter: keyOf(other)})
	case "resign":
		s.peers[node].step(s.now, raft.Resign{Epoch: s.peers[node].node.Epoch()})
		s.collect(node)
	case "state":
		for _, id := range s.ids {
			p := s.peers[id]
			if s.down[id] {
				fmt.Fprintf(&s.text, "%2d down; log %s\n", id, p.log)
				continue
			}
			fmt.Fprintf(&s.text, "%2d %s of %d in epoch %d; log %s; flushed %d, high watermark %d\n",
				id, p.node.Role(), p.node.Leadership().Leader, p.node.Epoch(), p.log, p.flushed, p.node.HighWatermark())
			if i := p.node.Install(); i.Active {
				fmt.Fprintf(&s.text, "   installs snapshot %s: %d of %d bytes, to be at %d\n", i.Snapshot, i.Bytes, i.Size, i.Target)
			}
			if d.HasArg("voters") {
				fmt.Fprintf(&s.text, "   voters")
				for _, v := range p.node.Voters() {
					fmt.Fprintf(&s.text, " %d at %s", v.Key.ID, v.Endpoints[0].Host)
				}
				fmt.Fprintln(&s.text)
			}
		}
	default:
		s.t.Fatalf("no command %q", d.Cmd)
	}
}

func (s *story) create(d *datadriven.TestData) {
	*s = story{
		t: s.t, peers: map[ident.NodeID]*peer{}, down: map[ident.NodeID]bool{},
		cuts: map[[2]ident.NodeID]bool{}, asked: map[[2]uint64]origin{},
	}
	var voters, observers int
	d.ScanArgs(s.t, "voters", &voters)
	if d.HasArg("observers") {
		d.ScanArgs(s.t, "observers", &observers)
	}
	var ids []ident.NodeID
	for i := range voters {
		ids = append(ids, ident.NodeID(i+1))
	}
	set := votersOf(ids...)
	for i := range observers {
		ids = append(ids, ident.NodeID(10+i))
	}
	s.ids = ids
	sets := voterSets{}
	for _, id := range ids {
		s.peers[id] = &peer{
			t: s.t, id: id, cfg: config(id), log: &fakeLog{}, saved: raft.NoVote(), sets: sets,
			voters: []raft.VotersAt{{Offset: raft.BootstrapOffset, Voters: set}},
			note:   func(format string, args ...any) { s.note("%d %s", id, fmt.Sprintf(format, args...)) },
		}
	}
}

func (s *story) start(id ident.NodeID) {
	p := s.peers[id]
	p.t = s.t
	s.down[id] = false
	p.last, p.holdFlush = "", false
	p.start(s.now)
	s.collect(id)
}

func (s *story) propose(id ident.NodeID, count int) {
	p := s.peers[id]
	if err := p.node.CheckPropose(p.node.Epoch(), count); err != nil {
		fmt.Fprintf(&s.text, "refused: %v\n", err)
		return
	}
	p.log.append(p.node.Epoch(), count)
	p.step(s.now, raft.AppendDone{End: p.log.EndOffset()})
	s.collect(id)
}

// change asks a node for a change of the voters; the answer is told when it comes.
func (s *story) change(id ident.NodeID, m raft.Message) {
	s.token++
	s.asked[[2]uint64{uint64(id), s.token}] = origin{from: ident.NoNode}
	s.peers[id].step(s.now, raft.Request{Token: s.token, Msg: m})
	s.collect(id)
}

// run lets time go by.
func (s *story) run(until ident.Instant) {
	for {
		next := until
		for _, d := range s.queue {
			next = min(next, d.at)
		}
		for _, id := range s.ids {
			if !s.down[id] {
				next = min(next, s.peers[id].node.NextDeadline())
			}
		}
		s.now = max(s.now, next)
		if i := slices.IndexFunc(s.queue, func(d delivery) bool { return d.at <= s.now }); i >= 0 {
			d := s.queue[i]
			s.queue = slices.Delete(s.queue, i, i+1)
			s.deliver(d)
			continue
		}
		ticked := false
		for _, id := range s.ids {
			if !s.down[id] && s.peers[id].node.NextDeadline() <= s.now {
				s.peers[id].step(s.now, raft.Tick{})
				s.collect(id)
				ticked = true
			}
		}
		if !ticked && s.now >= until {
			return
		}
	}
}

func (s *story) deliver(d delivery) {
	if s.down[d.to] || s.cuts[[2]ident.NodeID{d.from, d.to}] {
		return
	}
	if d.to == ident.NoNode {
		s.note("%d answers: %s", d.from, d.what)
		return
	}
	if d.what != "" {
		s.note("%d -> %d %s", d.from, d.to, d.what)
	}
	if r, ok := d.ev.(raft.Request); ok {
		s.token++
		s.asked[[2]uint64{uint64(d.to), s.token}] = origin{d.from, r.Token}
		r.Token = s.token
		d.ev = r
	}
	s.peers[d.to].step(s.now, d.ev)
	s.collect(d.to)
}

// collect puts what a node sends into the queue.
func (s *story) collect(id ident.NodeID) {
	p := s.peers[id]
	for _, r := range p.replies {
		to := s.asked[[2]uint64{uint64(id), r.Token}]
		delete(s.asked, [2]uint64{uint64(id), r.Token})
		s.queue = append(s.queue, delivery{s.now.Add(time.Millisecond), id, to.from, tell(r.Msg),
			raft.Response{From: id, Correlation: to.correlation, Msg: r.Msg}})
	}
	p.replies = nil
	for _, send := range p.take() {
		s.queue = append(s.queue, delivery{s.now.Add(time.Millisecond), id, send.To, tell(send.Msg),
			raft.Request{Token: send.Correlation, Msg: send.Msg}})
	}
	for _, hw := range p.hw {
		s.note("%d high watermark %d", id, hw)
	}
	p.hw = nil
	for _, l := range p.leading {
		s.note("%d leads epoch %d, which starts at %d", id, l.Epoch, l.Start)
	}
	p.leading = nil
}

// tell is a message as a reader wants to see it; fetches without news are left out.
func tell(m raft.Message) string {
	yes := map[bool]string{true: "yes", false: "no"}
	switch m := m.(type) {
	case *raft.VoteRequest:
		if m.PreVote {
			return fmt.Sprintf("would you vote for me? epoch %d, log end %d of epoch %d", m.Epoch, m.EndOffset, m.LastEpoch)
		}
		return fmt.Sprintf("vote for me! epoch %d, log end %d of epoch %d", m.Epoch, m.EndOffset, m.LastEpoch)
	case *raft.VoteResponse:
		return fmt.Sprintf("%s (code %d; leader %d, epoch %d)", yes[m.Granted], m.Code, m.Current.Leader, m.Current.Epoch)
	case *raft.BeginQuorumEpochRequest:
		return fmt.Sprintf("I lead epoch %d", m.Epoch)
	case *raft.EndQuorumEpochRequest:
		return fmt.Sprintf("I lead epoch %d no longer", m.Epoch)
	case *raft.FetchResponse:
		switch {
		case m.Diverging != nil:
			return fmt.Sprintf("your log diverges: epoch %d ends at %d", m.Diverging.Epoch, m.Diverging.End)
		case len(m.Records) > 0:
			return fmt.Sprintf("%d records, high watermark %d", len(m.Records), m.HighWatermark)
		case m.Code != raft.None && m.Current.Leader >= 0:
			return fmt.Sprintf("fetch: code %d; leader %d, epoch %d", m.Code, m.Current.Leader, m.Current.Epoch)
		case m.Snapshot != nil:
			return fmt.Sprintf("you need snapshot %s", m.Snapshot)
		}
	case *raft.FetchSnapshotRequest:
		return fmt.Sprintf("snapshot %s from byte %d on, %d bytes", m.Snapshot, m.Position, m.MaxBytes)
	case *raft.FetchSnapshotResponse:
		if m.Code != raft.None {
			return fmt.Sprintf("snapshot %s: code %d", m.Snapshot, m.Code)
		}
		return fmt.Sprintf("snapshot %s: %d bytes at %d of %d", m.Snapshot, len(m.Bytes), m.Position, m.Size)
	case *raft.UpdateVoterRequest:
		return fmt.Sprintf("%s is at %s now", m.Voter.Key.String()[:1], m.Voter.Endpoints[0].Host)
	case *raft.ChangeVotersResponse:
		if m.Code == raft.None {
			return "the voters are changed"
		}
		return fmt.Sprintf("code %d: %s", m.Code, m.Message)
	}
	return ""
}
