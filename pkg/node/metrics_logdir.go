package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/highwater-io/highwater/pkg/nodefact"
)

// logDirCollector shows how a directory stands and what its volume has room for, when it is asked to.
type logDirCollector struct{ dir *logDir }

var (
	dirOfflineDesc = prometheus.NewDesc("highwater_log_dir_offline", "1 while the data directory is offline: nothing on it is served, and its replicas are in no ISR.", nil, nil)
	dirReasonDesc  = prometheus.NewDesc("highwater_log_dir_offline_reason", "1 for what the data directory is offline for: DiskFull and ReadOnly end by themselves, IOError and Unreadable do not.", []string{"reason"}, nil)
	dirFreeDesc    = prometheus.NewDesc("highwater_log_dir_free_bytes", "Bytes that can still be written to the volume of the data directory.", nil, nil)
	dirTotalDesc   = prometheus.NewDesc("highwater_log_dir_total_bytes", "Size of the volume of the data directory.", nil, nil)
	dirKeptDesc    = prometheus.NewDesc("highwater_log_dir_min_free_bytes", "With fewer free bytes the data directory goes offline as with a full disk.", nil, nil)
)

// Describe is prometheus.Collector's.
func (c logDirCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{dirOfflineDesc, dirReasonDesc, dirFreeDesc, dirTotalDesc, dirKeptDesc} {
		out <- d
	}
}

// Collect is prometheus.Collector's.
func (c logDirCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, n float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, n, labels...)
	}
	failure := c.dir.offline()
	offline := 0.0
	if failure != nil {
		offline = 1
	}
	gauge(dirOfflineDesc, offline)
	for _, reason := range logDirReasons {
		is := 0.0
		if failure != nil && failure.reason == reason {
			is = 1
		}
		gauge(dirReasonDesc, is, reason)
	}
	gauge(dirKeptDesc, float64(c.dir.minFreeBytes))
	if space, err := c.dir.space(); err == nil {
		gauge(dirFreeDesc, float64(space.FreeBytes))
		gauge(dirTotalDesc, float64(space.TotalBytes))
	}
}

// logDirReasons are what a directory can be offline for.
var logDirReasons = []string{nodefact.DiskFull, nodefact.ReadOnly, nodefact.IOError, nodefact.Unreadable}
