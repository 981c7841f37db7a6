package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// quorumMetrics are how long things take in the metadata quorum.
type quorumMetrics struct {
	commitSeconds, electionSeconds prometheus.Histogram
}

func newQuorumMetrics() quorumMetrics {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "highwater", Subsystem: "quorum", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		})
	}
	return quorumMetrics{
		commitSeconds:   histogram("commit_seconds", "How long it took, on the leader, from the append of records to the metadata log until they were committed."),
		electionSeconds: histogram("election_seconds", "How long this node knew no leader of the metadata quorum, until it knew one."),
	}
}

// quorumLatency measures them. The quorum's mutex guards it.
type quorumLatency struct {
	metrics quorumMetrics
	// leaderless is since when no leader is known; false while one is.
	leaderless    ident.Instant
	withoutLeader bool
	// pending are appends of this leadership that are not committed, in order.
	pending []pendingCommit
}

type pendingCommit struct {
	end ident.Offset
	at  ident.Instant
}

// maxPendingCommits bounds what is measured while nothing is committed.
const maxPendingCommits = 4096

func newQuorumLatency(metrics *nodeMetrics, now ident.Instant) quorumLatency {
	return quorumLatency{metrics: metrics.quorum, leaderless: now, withoutLeader: true}
}

// leadership is told of each change of who leads.
func (l *quorumLatency) leadership(now ident.Instant, leadership raft.Leadership, self ident.NodeID) {
	if leadership.Leader != self {
		l.pending = nil // whoever leads next decides what becomes of them
	}
	switch {
	case leadership.Leader == ident.NoNode && !l.withoutLeader:
		l.leaderless, l.withoutLeader = now, true
	case leadership.Leader != ident.NoNode && l.withoutLeader:
		l.withoutLeader = false
		l.metrics.electionSeconds.Observe(now.Sub(l.leaderless).Seconds())
	}
}

// appended is told of an append of this leader.
func (l *quorumLatency) appended(now ident.Instant, end ident.Offset) {
	if len(l.pending) < maxPendingCommits {
		l.pending = append(l.pending, pendingCommit{end, now})
	}
}

// committed is told of the high watermark.
func (l *quorumLatency) committed(now ident.Instant, highWatermark ident.Offset) {
	done := 0
	for done < len(l.pending) && l.pending[done].end <= highWatermark {
		l.metrics.commitSeconds.Observe(now.Sub(l.pending[done].at).Seconds())
		done++
	}
	if l.pending = l.pending[done:]; len(l.pending) == 0 {
		l.pending = nil
	}
}
