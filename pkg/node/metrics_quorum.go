package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/highwater-io/highwater/pkg/ident"
)

// quorumCollector shows where this node stands in the metadata log, and its snapshots.
type quorumCollector struct{ quorum *quorum }

func quorumDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("highwater_metadata_"+name, help, nil, nil)
}

var (
	descMetadataStart       = quorumDesc("log_start_offset", "First offset of this node's metadata log; what is before is in its snapshots.")
	descMetadataEnd         = quorumDesc("log_end_offset", "End of this node's metadata log.")
	descMetadataCommitted   = quorumDesc("high_watermark", "End of what this node knows to be committed of the metadata log, -1 when nothing.")
	descMetadataBytes       = quorumDesc("log_bytes", "Size of this node's metadata log on disk, without snapshots.")
	descMetadataSnapshots   = quorumDesc("snapshots", "Snapshots of the metadata on this node's disk.")
	descMetadataSnapshotEnd = quorumDesc("snapshot_end_offset", "End of the latest snapshot on this node's disk, 0 when there is none.")
	descMetadataSnapshotLen = quorumDesc("snapshot_bytes", "Size of the latest snapshot on this node's disk.")
	descInstalling          = quorumDesc("snapshot_installing", "1 while this node fetches and installs a snapshot of its leader's, else 0.")
	descInstallBytes        = quorumDesc("snapshot_install_bytes", "Bytes that are here of the snapshot that is being installed.")
	descInstallSize         = quorumDesc("snapshot_install_size_bytes", "Size of the snapshot that is being installed, 0 until the leader has told it.")
	descInstalls            = prometheus.NewDesc("highwater_metadata_snapshots_installed_total", "Snapshots of a leader that this node has installed.", nil, nil)
	descSnapshotServed      = prometheus.NewDesc("highwater_metadata_snapshot_sent_bytes_total", "Bytes of snapshots that this node, as leader, has sent to others.", nil, nil)
)

// Describe is prometheus.Collector's.
func (c quorumCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descMetadataStart, descMetadataEnd, descMetadataCommitted, descMetadataBytes, descMetadataSnapshots, descMetadataSnapshotEnd,
		descMetadataSnapshotLen, descInstalling, descInstallBytes, descInstallSize, descInstalls, descSnapshotServed,
	} {
		out <- d
	}
}

// Collect is prometheus.Collector's.
func (c quorumCollector) Collect(out chan<- prometheus.Metric) {
	c.quorum.mu.Lock()
	q := c.quorum.exec
	log, snapshots, install := q.Log(), q.Snapshots(), q.Core().Install()
	start, end, size, committed := log.StartOffset(), log.EndOffset(), log.Size(), q.HighWatermark()
	c.quorum.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(descMetadataStart, float64(start))
	gauge(descMetadataEnd, float64(end))
	gauge(descMetadataCommitted, float64(max(committed, ident.UnknownOffset)))
	gauge(descMetadataBytes, float64(size))
	gauge(descMetadataSnapshots, float64(snapshots.Count))
	gauge(descMetadataSnapshotEnd, float64(snapshots.Latest.EndOffset))
	gauge(descMetadataSnapshotLen, float64(snapshots.LatestBytes))
	active := 0.0
	if install.Active {
		active = 1
	} else {
		install.Bytes, install.Size = 0, 0
	}
	gauge(descInstalling, active)
	gauge(descInstallBytes, float64(install.Bytes))
	gauge(descInstallSize, float64(install.Size))
	out <- prometheus.MustNewConstMetric(descInstalls, prometheus.CounterValue, float64(snapshots.Installed))
	out <- prometheus.MustNewConstMetric(descSnapshotServed, prometheus.CounterValue, float64(snapshots.SentBytes))
}
