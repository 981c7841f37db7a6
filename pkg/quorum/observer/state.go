package observer

import (
	"fmt"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// Status says how the observer stands with the quorum.
type Status int

const (
	// Searching is the state before the first round of attempts has ended.
	Searching Status = iota
	// Connected: a leader answers fetches.
	Connected
	// NoLeader: nodes answer, but none of them is or leads to a leader that answers.
	NoLeader
	// Disconnected: no address answers.
	Disconnected
	// LoadingSnapshot: the leader's log doesn't reach back to where the observer stands, so it fetches a snapshot.
	// What was seen before stays as it is until that is here.
	LoadingSnapshot
	// Failed: the log can't be understood or contradicts what was committed; Run has ended with Err.
	Failed
)

// String is for logs.
func (s Status) String() string {
	switch s {
	case Searching:
		return "Searching"
	case Connected:
		return "Connected"
	case NoLeader:
		return "NoLeader"
	case Disconnected:
		return "Disconnected"
	case LoadingSnapshot:
		return "LoadingSnapshot"
	case Failed:
		return "Failed"
	}
	return fmt.Sprintf("Status(%d)", int(s))
}

// Attempt is one address of the last round and what came of it.
type Attempt struct {
	Addr string
	// Reached says whether a node answered a fetch there, be it with an error code.
	Reached bool
	// Err says why it is not the leader for us.
	Err error
}

// State is how the observer stands with the quorum, at one moment.
type State struct {
	Status Status
	// Leader and Epoch are the quorum's as far as known: of the leader that answers when Connected, else what
	// was last heard. Leader is ident.NoNode when unknown.
	Leader ident.NodeID
	Epoch  ident.Epoch
	// Addr is the leader's address when Connected or LoadingSnapshot.
	Addr string
	// Attempts are the addresses tried in the last round, in order of address, when there is no connection.
	Attempts []Attempt
	// Snapshot is what is fetched when LoadingSnapshot.
	Snapshot metadata.SnapshotID
	// Err is why the status is Failed.
	Err error
}

// Tried lists the attempts for a message to people: each address with its error.
func (s State) Tried() string {
	var b strings.Builder
	for i, a := range s.Attempts {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %v", a.Addr, a.Err)
	}
	return b.String()
}

// same says whether a and b tell a consumer the same. The attempts count by which were reached, not by the
// text of their errors, which may have port numbers in it.
func (s State) same(o State) bool {
	if s.Status != o.Status || s.Leader != o.Leader || s.Epoch != o.Epoch || s.Addr != o.Addr || s.Snapshot != o.Snapshot || len(s.Attempts) != len(o.Attempts) {
		return false
	}
	for i := range s.Attempts {
		if s.Attempts[i].Addr != o.Attempts[i].Addr || s.Attempts[i].Reached != o.Attempts[i].Reached {
			return false
		}
	}
	return true
}
