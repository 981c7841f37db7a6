package raft_test

import (
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// A clock that runs before Start finds nothing due: the node has not taken up the role that its vote asks for, and asked
// the others whether it should stand although it knows whom to follow.
func TestNothingIsDueBeforeStart(t *testing.T) {
	for name, vote := range map[string]raft.VoteState{
		"follower":  {Epoch: 5, Leader: 1, Voted: raft.Nobody},
		"candidate": {Epoch: 5, Leader: ident.NoNode, Voted: keyOf(2)},
		"led":       {Epoch: 5, Leader: 2, Voted: keyOf(2)},
		"new":       {Leader: ident.NoNode, Voted: raft.Nobody},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := raft.New(config(2), logOf(1, 1), vote, []raft.VotersAt{{Offset: raft.BootstrapOffset, Voters: votersOf(1, 2, 3)}})
			if err != nil {
				t.Fatal(err)
			}
			var out raft.Effects
			n.Step(ident.Instant(0).Add(time.Hour), raft.Tick{}, &out)
			if n.NextDeadline() != ident.Never || n.Role() != raft.Unattached || len(out.Sends) > 0 || out.SaveVote != nil {
				t.Fatalf("%s, due at %v, sends %v, saves %v", n.Role(), n.NextDeadline(), out.Sends, out.SaveVote)
			}
			out.Reset()
			n.Step(ident.Instant(0).Add(time.Hour), raft.Start{}, &out)
			if n.NextDeadline() == ident.Never {
				t.Fatal("nothing is due after Start")
			}
		})
	}
}
