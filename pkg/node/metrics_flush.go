package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/highwater-io/highwater/pkg/log"
)

// flushMetrics are about flushes of partition logs. The count of each histogram is the number of flushes.
type flushMetrics struct {
	seconds, records, bytes prometheus.Histogram
}

func newFlushMetrics() flushMetrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "highwater", Name: name, Help: help, Buckets: buckets})
	}
	return flushMetrics{
		seconds: histogram("log_flush_seconds", "How long one flush of a partition's log took on the disk, failures too; its count is the number of flushes.",
			prometheus.ExponentialBuckets(0.0001, 2, 16)),
		records: histogram("log_flush_records", "Records that one flush of a partition's log made durable: how many acknowledgements share it.",
			prometheus.ExponentialBuckets(1, 4, 10)),
		bytes: histogram("log_flush_bytes", "Bytes that one flush of a partition's log made durable.",
			prometheus.ExponentialBuckets(1024, 4, 11)),
	}
}

// flushed notes one flush.
func (m *nodeMetrics) flushed(f *log.PendingFlush, took time.Duration) {
	m.logFlush.seconds.Observe(took.Seconds())
	m.logFlush.records.Observe(float64(f.Records()))
	m.logFlush.bytes.Observe(float64(f.Bytes()))
}
