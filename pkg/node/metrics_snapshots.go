package node

import "github.com/prometheus/client_golang/prometheus"

// snapshotMetrics count what becomes of snapshots of the metadata on this node.
type snapshotMetrics struct {
	seconds                  prometheus.Histogram
	failures, loads, damaged prometheus.Counter
	downloadsFailed          *prometheus.CounterVec
}

func newSnapshotMetrics() snapshotMetrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "highwater", Subsystem: "metadata", Name: name, Help: help}
	}
	return snapshotMetrics{
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "highwater", Name: "metadata_snapshot_seconds", Help: "How long writing a snapshot of the metadata took. Its count is that of the snapshots that this node has taken.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}),
		failures: prometheus.NewCounter(counter("snapshot_failures_total", "Snapshots of the metadata that this node could not write.")),
		loads:    prometheus.NewCounter(counter("snapshots_loaded_total", "Snapshots that took the place of this node's state of the metadata: at its start, and after each install. Growth means that the node is often behind its leader's log.")),
		damaged:  prometheus.NewCounter(counter("snapshots_damaged_total", "Snapshots of the metadata that this node's disk has damaged.")),
		downloadsFailed: prometheus.NewCounterVec(counter("snapshot_downloads_failed_total", "Downloads of a leader's snapshot that this node gave up, by reason; another one follows."),
			[]string{"reason"}),
	}
}

func (m snapshotMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.seconds, m.failures, m.loads, m.damaged, m.downloadsFailed}
}
