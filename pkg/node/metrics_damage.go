package node

import (
	"github.com/prometheus/client_golang/prometheus"
)

// damageCollector counts the replicas whose records are damaged when it is asked.
type damageCollector struct{ broker *broker }

var (
	damagedDesc = prometheus.NewDesc("highwater_log_damaged_replicas",
		"Replicas of this node with records that are damaged on its disk, those that are being fetched again included.", nil, nil)
	quarantinedDesc = prometheus.NewDesc("highwater_log_quarantined_bytes",
		"Bytes of damaged logs that are kept aside until their replicas are refilled.", nil, nil)
)

// Describe is prometheus.Collector's.
func (c damageCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- damagedDesc
	ch <- quarantinedDesc
}

// Collect is prometheus.Collector's.
func (c damageCollector) Collect(ch chan<- prometheus.Metric) {
	damaged, bytes := 0, int64(0)
	c.broker.eachReplica(func(r *replica) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed {
			return
		}
		state := r.partition.Core().Damage()
		if state.Damaged || state.Refilling {
			damaged++
		}
		if state.Refilling {
			if n, err := r.partition.Log().QuarantinedBytes(); err == nil {
				bytes += n
			}
		}
	})
	ch <- prometheus.MustNewConstMetric(damagedDesc, prometheus.GaugeValue, float64(damaged))
	ch <- prometheus.MustNewConstMetric(quarantinedDesc, prometheus.GaugeValue, float64(bytes))
}
