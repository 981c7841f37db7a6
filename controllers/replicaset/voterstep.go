package replicaset

import (
	"fmt"
	"slices"
	"time"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
)

// healthyLag is how long ago a voter may last have had all of the log and be counted on. A fetch comes twice a second.
const healthyLag = 5 * time.Second

// candidate is a node that the spec wants to vote.
type candidate struct {
	cluster.Voter
	pod string
	// formatted says that it has its directory and no permit to format it any more; listens that its pod has the
	// voters' listener.
	formatted, listens bool
}

// voterStep is the next change of the voter set, if there is one to be made, and why the set is not as it should be;
// empty when it is.
type voterStep struct {
	add, remove     *cluster.Voter
	reason, message string
}

// nextVoterStep decides on one change, from the committed voter set and what the quorum's leader says: a voter whose
// volume was replaced goes first, since its id can't be there twice; then the missing ones come, each when it has caught
// up; then the surplus ones go, those that are behind first and the leader last. After each step a majority of the new set is caught up, or it is not
// made (the projection of cluster-api's control planes).
func nextVoterStep(wanted []candidate, actual []cluster.Voter, quorum cluster.QuorumState) voterStep {
	wants := func(v cluster.Voter) bool {
		return slices.ContainsFunc(wanted, func(c candidate) bool { return c.ID == v.ID })
	}
	has := func(id ident.NodeID) bool {
		return slices.ContainsFunc(actual, func(v cluster.Voter) bool { return v.ID == id })
	}
	waits := voterStep{}
	for _, v := range actual {
		if i := slices.IndexFunc(wanted, func(c candidate) bool { return c.ID == v.ID }); i >= 0 && wanted[i].DirectoryID != v.DirectoryID {
			step := removal(v, actual, quorum, fmt.Sprintf("voter %d has lost its volume: its old identity leaves the quorum, and it joins again on the new one", v.ID))
			if step.remove != nil {
				return step
			}
			waits = step // another one that comes may make it possible
			break
		}
	}
	for _, c := range wanted {
		if has(c.ID) {
			continue
		}
		step := addition(c, actual, quorum)
		if step.add != nil {
			return step
		}
		if waits.reason == "" {
			waits = step
		}
	}
	if waits.reason != "" {
		return waits
	}
	var leaving []cluster.Voter
	for _, v := range actual {
		if !wants(v) {
			leaving = append(leaving, v)
		}
	}
	if len(leaving) == 0 {
		return voterStep{}
	}
	slices.SortFunc(leaving, func(a, b cluster.Voter) int {
		switch {
		case a.ID == quorum.Leader:
			return 1
		case b.ID == quorum.Leader:
			return -1
		case caughtUp(quorum, a) != caughtUp(quorum, b):
			if caughtUp(quorum, a) {
				return 1
			}
			return -1 // a majority of fewer is then needed of those that are well
		}
		return int(b.ID - a.ID)
	})
	return removal(leaving[0], actual, quorum, fmt.Sprintf("voters that leave the quorum, one at a time: %s", voterIDs(leaving)))
}

func addition(c candidate, actual []cluster.Voter, quorum cluster.QuorumState) voterStep {
	switch {
	case !c.formatted:
		return voterStep{reason: hwv1alpha1.ReasonVotersChanging, message: fmt.Sprintf("voter %d is being made; it joins the quorum when it has caught up", c.ID)}
	case !c.listens:
		return voterStep{reason: hwv1alpha1.ReasonVotersChanging, message: fmt.Sprintf(
			"node %d joins the quorum when its pod listens as a voter, which it does when it is next made: delete pod %s", c.ID, c.pod)}
	case !caughtUp(quorum, c.Voter):
		return voterStep{reason: hwv1alpha1.ReasonVoterCatchingUp, message: fmt.Sprintf("voter %d follows the metadata log, and joins the quorum when it has caught up", c.ID)}
	}
	after := append(slices.Clone(actual), c.Voter)
	if n := countCaughtUp(quorum, after); n < majority(after) {
		return blocked("voter %d can't join", c.ID, n, after)
	}
	return voterStep{add: &c.Voter, reason: hwv1alpha1.ReasonVotersChanging, message: fmt.Sprintf("voter %d joins the quorum", c.ID)}
}

func removal(v cluster.Voter, actual []cluster.Voter, quorum cluster.QuorumState, message string) voterStep {
	after := without(actual, v)
	if n := countCaughtUp(quorum, after); len(after) == 0 || n < majority(after) {
		return blocked("voter %d can't leave", v.ID, n, after)
	}
	return voterStep{remove: &v, reason: hwv1alpha1.ReasonVotersChanging, message: message}
}

func blocked(what string, id ident.NodeID, n int, after []cluster.Voter) voterStep {
	return voterStep{reason: hwv1alpha1.ReasonVoterChangeBlocked, message: fmt.Sprintf(
		what+": of the %d voters %s that there would be, %d are caught up, and %d must be", id, len(after), voterIDs(after), n, majority(after))}
}

func without(voters []cluster.Voter, gone cluster.Voter) []cluster.Voter {
	return slices.DeleteFunc(slices.Clone(voters), func(v cluster.Voter) bool { return v == gone })
}

func majority(voters []cluster.Voter) int { return len(voters)/2 + 1 }

func countCaughtUp(quorum cluster.QuorumState, voters []cluster.Voter) int {
	n := 0
	for _, v := range voters {
		if caughtUp(quorum, v) {
			n++
		}
	}
	return n
}

// caughtUp says whether a replica lately had all of the metadata log.
func caughtUp(quorum cluster.QuorumState, voter cluster.Voter) bool {
	for _, r := range slices.Concat(quorum.Voters, quorum.Observers) {
		if r.Voter == voter {
			return r.Lag >= 0 && r.Lag <= healthyLag
		}
	}
	return false
}

func voterIDs(voters []cluster.Voter) string { return listIDs(idsOf(voters)) }

func idsOf(voters []cluster.Voter) []int32 {
	var ids []int32
	for _, v := range voters {
		ids = append(ids, int32(v.ID))
	}
	return ids
}

func voterOf(identity specs.Identity) cluster.Voter {
	return cluster.Voter{ID: ident.NodeID(identity.NodeID), DirectoryID: identity.DirectoryID}
}

// knownVoters are the ids of the voter set: as committed, else as the status last had it; none when nobody ever knew.
func knownVoters(rs *hwv1alpha1.ReplicaSet, state cluster.State) []int32 {
	ids := idsOf(state.Voters)
	if len(ids) == 0 && rs.Status.Quorum != nil {
		ids = slices.Clone(rs.Status.Quorum.Voters)
	}
	return ids
}
