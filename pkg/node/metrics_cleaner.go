package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/highwater-io/highwater/pkg/log"
)

// cleanerMetrics are about log compaction.
type cleanerMetrics struct {
	cleaner       *cleaner // nil for the documentation
	runs          *prometheus.CounterVec
	read, written prometheus.Counter
	removed       prometheus.Counter
	seconds       prometheus.Histogram
}

func newCleanerMetrics(c *cleaner) *cleanerMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "highwater", Name: name, Help: help})
	}
	m := &cleanerMetrics{
		cleaner: c,
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "highwater", Name: "log_cleaner_runs_total",
			Help: "Compactions of a log: done, given up because the log changed meanwhile, or failed.",
		}, []string{"result"}),
		read:    counter("log_cleaner_read_bytes_total", "Bytes that compactions read."),
		written: counter("log_cleaner_written_bytes_total", "Bytes that compactions wrote."),
		removed: counter("log_cleaner_removed_records_total", "Records that compactions removed."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "highwater", Name: "log_cleaner_run_seconds", Help: "How long one compaction of a log took.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}),
	}
	for _, result := range []string{"done", "given_up", "failed"} {
		m.runs.WithLabelValues(result)
	}
	return m
}

// ran notes one compaction.
func (m *cleanerMetrics) ran(s log.CleanStats, done bool, err error, took time.Duration) {
	result := "given_up"
	switch {
	case err != nil:
		result = "failed"
	case done:
		result = "done"
		m.removed.Add(float64(s.Removed))
	}
	m.runs.WithLabelValues(result).Inc()
	m.read.Add(float64(s.BytesRead))
	m.written.Add(float64(s.BytesWritten))
	m.seconds.Observe(took.Seconds())
}

var (
	dirtyRatioDesc  = prometheus.NewDesc("highwater_log_cleaner_max_dirty_ratio", "The largest part of a compacted log that is not compacted yet, from 0 to 1, when the cleaner last looked.", nil, nil)
	uncleanableDesc = prometheus.NewDesc("highwater_log_cleaner_uncleanable_partitions", "Compacted logs that could not be compacted, and grow: the node's log says why.", nil, nil)
	sinceRunDesc    = prometheus.NewDesc("highwater_log_cleaner_seconds_since_last_run", "Time since a compaction was done, or since the node started.", nil, nil)
)

// Describe is prometheus.Collector's.
func (m *cleanerMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.runs, m.read, m.written, m.removed, m.seconds} {
		c.Describe(out)
	}
	out <- dirtyRatioDesc
	out <- uncleanableDesc
	out <- sinceRunDesc
}

// Collect is prometheus.Collector's.
func (m *cleanerMetrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.runs, m.read, m.written, m.removed, m.seconds} {
		c.Collect(out)
	}
	m.cleaner.mu.Lock()
	ratio, uncleanable, last := m.cleaner.maxRatio, len(m.cleaner.uncleanable), m.cleaner.lastRun
	m.cleaner.mu.Unlock()
	for desc, v := range map[*prometheus.Desc]float64{dirtyRatioDesc: ratio, uncleanableDesc: float64(uncleanable), sinceRunDesc: time.Since(last).Seconds()} {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v)
	}
}
