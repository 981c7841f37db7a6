package node

import (
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// observed is what a histogram has.
func observed(t *testing.T, m *nodeMetrics, name string) (count uint64, sum float64) {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			histogram := family.GetMetric()[0].GetHistogram()
			return histogram.GetSampleCount(), histogram.GetSampleSum()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0, 0
}

func TestCommitsAreTimedFromAppendToHighWatermark(t *testing.T) {
	m := newMetrics()
	l := newQuorumLatency(m, 0)
	at := func(ms int64) ident.Instant { return ident.Instant(ms * int64(time.Millisecond)) }
	l.leadership(at(5), raft.Leadership{Leader: 1, Epoch: 1}, 1)
	l.appended(at(10), 5)
	l.appended(at(20), 7)
	l.committed(at(25), 4)
	if n, _ := observed(t, m, "highwater_quorum_commit_seconds"); n != 0 {
		t.Fatalf("%d commits below their end", n)
	}
	l.committed(at(30), 6)
	l.committed(at(40), 9)
	if n, sum := observed(t, m, "highwater_quorum_commit_seconds"); n != 2 || sum < 0.0399 || sum > 0.0401 {
		t.Fatalf("%d commits took %v, want 20 ms and 20 ms", n, sum)
	}
	// What a leader appended that lost the epoch is not committed by it.
	l.appended(at(50), 12)
	l.leadership(at(60), raft.Leadership{Leader: ident.NoNode, Epoch: 1}, 1)
	l.leadership(at(70), raft.Leadership{Leader: ident.NoNode, Epoch: 2}, 1)
	l.leadership(at(160), raft.Leadership{Leader: 2, Epoch: 2}, 1)
	l.committed(at(170), 20)
	if n, _ := observed(t, m, "highwater_quorum_commit_seconds"); n != 2 {
		t.Fatalf("%d commits, one of another leader's", n)
	}
	if n, sum := observed(t, m, "highwater_quorum_election_seconds"); n != 2 || sum < 0.1049 || sum > 0.1051 {
		t.Fatalf("%d elections took %v, want 5 ms and 100 ms", n, sum)
	}
	for range 2 * maxPendingCommits {
		l.appended(at(200), 30)
	}
	if len(l.pending) != maxPendingCommits {
		t.Fatalf("%d appends are kept", len(l.pending))
	}
}

// What the nodes of a cluster say of themselves and the leader of them fits together.
func TestQuorumMetricsOfAClusterFitTogether(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitReady(1000, 1001, 1002, 0)
	c.createTopic("orders", 1, 1, nil)
	leader := c.quorumLeader(1000)
	for id := range c.nodes {
		state := "observer"
		switch {
		case id == leader:
			state = "leader"
		case id >= 1000:
			state = "follower"
		}
		for _, s := range []string{"leader", "follower", "observer", "candidate", "prospective", "unattached", "resigned"} {
			want := 0.0
			if s == state {
				want = 1
			}
			c.wantMetric(id, `highwater_quorum_state{state="`+s+`"}`, want)
		}
		c.wantMetric(id, "highwater_quorum_leader_id", float64(leader))
		c.wantMetric(id, "highwater_quorum_voters", 3)
		c.wantMetric(id, "highwater_quorum_uncommitted_voter_change", 0)
		c.wantMetric(id, "highwater_metadata_version", 27)
		for name, ok := range map[string]func(float64) bool{
			"highwater_quorum_epoch":                  func(v float64) bool { return v >= 1 },
			"highwater_quorum_election_seconds_count": func(v float64) bool { return v >= 1 },
			"highwater_metadata_applied_offset":       func(v float64) bool { return v > 3 },
			"highwater_metadata_applied_age_seconds":  func(v float64) bool { return v >= 0 && v < 30 },
			"highwater_metadata_log_end_epoch":        func(v float64) bool { return v >= 1 },
		} {
			if v, err := c.metric(id, name); err != nil || !ok(v) {
				t.Errorf("node %d: %s is %v, %v", id, name, v, err)
			}
		}
		// Of each node the leader knows how far it is; the others say nothing of it.
		_, err := c.metric(id, `highwater_quorum_replica_lag{node="0"}`)
		if (err == nil) != (id == leader) {
			t.Errorf("node %d tells the lag of node 0: %v", id, err)
		}
	}
	c.wantMetric(leader, "highwater_quorum_observers", 1)
	commits, err := c.metric(leader, "highwater_quorum_commit_seconds_count")
	if err != nil || commits < 2 {
		t.Errorf("%v commits were timed: %v", commits, err)
	}
	for _, node := range []string{"0", "1000", "1001", "1002"} {
		for name, ok := range map[string]func(float64) bool{
			"highwater_quorum_replica_lag":                func(v float64) bool { return v >= 0 && v < 20 },
			"highwater_quorum_replica_log_start_distance": func(v float64) bool { return v > 3 },
		} {
			if v, err := c.metric(leader, name+`{node="`+node+`"}`); err != nil || !ok(v) {
				t.Errorf("%s of node %s is %v, %v", name, node, v, err)
			}
		}
	}
}
