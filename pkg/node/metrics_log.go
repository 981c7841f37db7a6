package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/highwater-io/highwater/pkg/log"
)

// What the logs of a node may hold open together beside their active segments; see log.Files.
const (
	openSegmentFiles  = 1000
	segmentIndexBytes = 64 << 20
)

// logCollector tells what the logs hold open when it is asked to.
type logCollector struct{ files *log.Files }

var (
	segmentFilesDesc = prometheus.NewDesc("highwater_log_open_segment_files", "Open segment files: the active segment of every log, and the sealed ones that were read last or hold what was not flushed.", nil, nil)
	indexBytesDesc   = prometheus.NewDesc("highwater_log_index_cache_bytes", "Memory of the indexes of sealed segments, which are loaded when they are read.", nil, nil)
)

// Describe is prometheus.Collector's.
func (c logCollector) Describe(out chan<- *prometheus.Desc) {
	out <- segmentFilesDesc
	out <- indexBytesDesc
}

// Collect is prometheus.Collector's.
func (c logCollector) Collect(out chan<- prometheus.Metric) {
	stats := c.files.Stats()
	out <- prometheus.MustNewConstMetric(segmentFilesDesc, prometheus.GaugeValue, float64(stats.SegmentFiles))
	out <- prometheus.MustNewConstMetric(indexBytesDesc, prometheus.GaugeValue, float64(stats.IndexBytes))
}
