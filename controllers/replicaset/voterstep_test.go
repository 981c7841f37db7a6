package replicaset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/ident"
)

// fakeQuorum is a quorum that does what it is told, and who of its replicas is well.
type fakeQuorum struct {
	leader  ident.NodeID
	voters  []cluster.Voter
	follows map[cluster.Voter]time.Duration // the lag
}

func member(id ident.NodeID) cluster.Voter {
	return cluster.Voter{ID: id, DirectoryID: directory(int32(id))}
}

func quorumOf(ids ...ident.NodeID) *fakeQuorum {
	q := &fakeQuorum{leader: ids[0], follows: map[cluster.Voter]time.Duration{}}
	for _, id := range ids {
		q.voters = append(q.voters, member(id))
		q.follows[member(id)] = 0
	}
	return q
}

func (q *fakeQuorum) describe() cluster.QuorumState {
	s := cluster.QuorumState{Leader: q.leader}
	for v, lag := range q.follows {
		r := cluster.ReplicaState{Voter: v, Lag: lag}
		if slices.Contains(q.voters, v) {
			s.Voters = append(s.Voters, r)
		} else {
			s.Observers = append(s.Observers, r)
		}
	}
	return s
}

// do makes a step, as the quorum's leader does it, and says what it was.
func (q *fakeQuorum) do(s voterStep) string {
	switch {
	case s.add != nil:
		q.voters = append(q.voters, *s.add)
		return fmt.Sprintf("+%d", s.add.ID)
	case s.remove != nil:
		q.voters = without(q.voters, *s.remove)
		if q.leader == s.remove.ID {
			q.leader = q.voters[0].ID
		}
		return fmt.Sprintf("-%d", s.remove.ID)
	}
	return s.reason
}

func wantVoters(ids ...ident.NodeID) []candidate {
	var all []candidate
	for _, id := range ids {
		all = append(all, candidate{Voter: member(id), formatted: true, listens: true})
	}
	return all
}

func TestVotersComeAndGoOneByOneTheLeaderLast(t *testing.T) {
	for name, c := range map[string]struct {
		leader   ident.NodeID
		from, to []ident.NodeID
		steps    []string
	}{
		"1 to 3":                      {1000, []ident.NodeID{1000}, []ident.NodeID{1000, 1001, 1002}, []string{"+1001", "+1002"}},
		"3 to 5":                      {1001, []ident.NodeID{1000, 1001, 1002}, []ident.NodeID{1000, 1001, 1002, 1003, 1004}, []string{"+1003", "+1004"}},
		"5 to 3, one that goes leads": {1004, []ident.NodeID{1000, 1001, 1002, 1003, 1004}, []ident.NodeID{1000, 1001, 1002}, []string{"-1003", "-1004"}},
		"3 to 1, one that goes leads": {1002, []ident.NodeID{1000, 1001, 1002}, []ident.NodeID{1000}, []string{"-1001", "-1002"}},
		"5 to 1":                      {1000, []ident.NodeID{1000, 1001, 1002, 1003, 1004}, []ident.NodeID{1000}, []string{"-1004", "-1003", "-1002", "-1001"}},
	} {
		q := quorumOf(c.from...)
		q.leader = c.leader
		for _, id := range c.to {
			q.follows[member(id)] = 0
		}
		var steps []string
		for range 10 {
			s := nextVoterStep(wantVoters(c.to...), q.voters, q.describe())
			if s.reason == "" {
				break
			}
			steps = append(steps, q.do(s))
		}
		if !slices.Equal(steps, c.steps) {
			t.Errorf("%s: steps %v, want %v", name, steps, c.steps)
		}
	}
}

func TestVoterStepWaitsAndSaysForWhat(t *testing.T) {
	three := []ident.NodeID{1000, 1001, 1002}
	for name, c := range map[string]struct {
		wanted []candidate
		befall func(*fakeQuorum, []candidate)
		does   string
	}{
		"nothing to be done":          {wantVoters(three...), func(*fakeQuorum, []candidate) {}, ""},
		"a newcomer is being made":    {wantVoters(1000, 1001, 1002, 1003), func(_ *fakeQuorum, w []candidate) { w[3].formatted = false }, hwv1alpha1.ReasonVotersChanging},
		"its pod does not listen":     {wantVoters(1000, 1001, 1002, 1003), func(_ *fakeQuorum, w []candidate) { w[3].listens = false }, hwv1alpha1.ReasonVotersChanging},
		"it does not follow":          {wantVoters(1000, 1001, 1002, 1003), func(*fakeQuorum, []candidate) {}, hwv1alpha1.ReasonVoterCatchingUp},
		"it lags":                     {wantVoters(1000, 1001, 1002, 1003), func(q *fakeQuorum, _ []candidate) { q.follows[member(1003)] = time.Minute }, hwv1alpha1.ReasonVoterCatchingUp},
		"it never had all":            {wantVoters(1000, 1001, 1002, 1003), func(q *fakeQuorum, _ []candidate) { q.follows[member(1003)] = -1 }, hwv1alpha1.ReasonVoterCatchingUp},
		"another one is ready before": {wantVoters(1000, 1001, 1002, 1003, 1004), func(q *fakeQuorum, _ []candidate) { q.follows[member(1004)] = 0 }, "+1004"},
		"two of three are down": {wantVoters(1000, 1001, 1002, 1003), func(q *fakeQuorum, _ []candidate) {
			q.follows[member(1001)], q.follows[member(1002)], q.follows[member(1003)] = -1, -1, 0
		}, hwv1alpha1.ReasonVoterChangeBlocked},
		"one of three is down, it goes":   {wantVoters(1000), func(q *fakeQuorum, _ []candidate) { q.follows[member(1001)] = time.Hour }, "-1001"},
		"the one that stays is down":      {wantVoters(1000), func(q *fakeQuorum, _ []candidate) { q.follows[member(1000)] = time.Hour }, hwv1alpha1.ReasonVoterChangeBlocked},
		"a newcomer first, then one goes": {wantVoters(1000, 1001, 1003), func(*fakeQuorum, []candidate) {}, hwv1alpha1.ReasonVoterCatchingUp},
		"a volume was replaced":           {wantVoters(three...), func(_ *fakeQuorum, w []candidate) { w[1].DirectoryID = directory(7); w[1].formatted = false }, "-1001"},
		"it was, and another one is down": {wantVoters(three...), func(q *fakeQuorum, w []candidate) {
			w[1].DirectoryID = directory(7)
			q.follows[member(1002)] = time.Hour
		}, hwv1alpha1.ReasonVoterChangeBlocked},
		"that of the only voter was": {wantVoters(1000), func(q *fakeQuorum, w []candidate) { w[0].DirectoryID = directory(7); q.voters = q.voters[:1] }, hwv1alpha1.ReasonVoterChangeBlocked},
	} {
		q := quorumOf(three...)
		c.befall(q, c.wanted)
		s := nextVoterStep(c.wanted, q.voters, q.describe())
		if does := q.do(s); does != c.does || (s.message == "") != (c.does == "") {
			t.Errorf("%s: %s (%s), want %s", name, does, s.message, c.does)
		}
	}
}

// Whatever is wanted and whoever is well: each step is one voter, keeps a majority of the new set caught up, and when all
// are well it comes to its end.
func TestVoterStepsKeepAMajorityAndEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(1000, 1006), func(i int) ident.NodeID { return ident.NodeID(i) }), 1, 5, rapid.ID[ident.NodeID])
		q := quorumOf(ids.Draw(t, "actual")...)
		wanted := wantVoters(ids.Draw(t, "wanted")...)
		for i := range wanted {
			if len(q.voters) > 1 && rapid.IntRange(0, 3).Draw(t, "replaced") == 0 {
				wanted[i].DirectoryID = directory(int32(7 + i))
			}
			q.follows[wanted[i].Voter] = 0
		}
		allWell := rapid.Bool().Draw(t, "all well")
		for v := range q.follows {
			if !allWell && rapid.IntRange(0, 2).Draw(t, "ill") == 0 {
				q.follows[v] = time.Hour
			}
		}
		for range 30 {
			before := slices.Clone(q.voters)
			s := nextVoterStep(wanted, q.voters, q.describe())
			if s.add == nil && s.remove == nil {
				break
			}
			q.do(s)
			if d := len(q.voters) - len(before); d != 1 && d != -1 {
				t.Fatalf("%v became %v", before, q.voters)
			}
			if n := countCaughtUp(q.describe(), q.voters); n < majority(q.voters) {
				t.Fatalf("%v became %v, of which %d are caught up", before, q.voters, n)
			}
		}
		if end := nextVoterStep(wanted, q.voters, q.describe()); allWell && (end.reason != "" || !sameVoters(wanted, q.voters)) {
			t.Fatalf("ends with %v, wanted %v: %+v", q.voters, wanted, end)
		}
	})
}

func TestAnErrorThatLastsIsTheSameTextAtEachAttempt(t *testing.T) {
	for _, format := range []string{
		"Fetch: read tcp 10.0.0.7:%d->10.0.0.9:9093: i/o timeout",
		"the new voter 1001 does not answer: lookup logs-1001 on 10.96.0.10:53: read udp [fd00::7]:%d->[fd00::a]:53: i/o timeout",
	} {
		first, second := lasting(fmt.Errorf(format, 40001)), lasting(fmt.Errorf(format, 40002))
		if first != second || !strings.Contains(first, "i/o timeout") || !strings.Contains(first, ":53") && !strings.Contains(first, ":9093") {
			t.Errorf("%q, then %q", first, second)
		}
	}
}

func TestAVoterThatIsDownLeavesBeforeThoseThatTheMajorityNeeds(t *testing.T) {
	var wanted []candidate
	var actual []cluster.Voter
	quorum := cluster.QuorumState{Leader: 1000}
	for id := ident.NodeID(1000); id < 1005; id++ {
		v, lag := member(id), time.Duration(0)
		if id == 1001 || id == 1003 {
			lag = time.Hour
		}
		actual = append(actual, v)
		quorum.Voters = append(quorum.Voters, cluster.ReplicaState{Voter: v, LogEndOffset: 5, Lag: lag})
		if id < 1003 {
			wanted = append(wanted, candidate{Voter: v, formatted: true, listens: true})
		}
	}
	for _, leaves := range []ident.NodeID{1003, 1004} {
		step := nextVoterStep(wanted, actual, quorum)
		if step.remove == nil || step.remove.ID != leaves {
			t.Fatalf("%d is to leave next: %+v", leaves, step)
		}
		actual = without(actual, *step.remove)
	}
}
