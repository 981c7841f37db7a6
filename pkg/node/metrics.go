package node

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/buildinfo"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/wire"
)

// nodeMetrics are what /metrics shows. Names are stable; no label grows with the number of partitions.
type nodeMetrics struct {
	registry *prometheus.Registry

	isrShrinks, isrExpands, isrRefused prometheus.Counter
	alterSeconds                       prometheus.Histogram
	alterFailures                      prometheus.Counter
	logFlush                           flushMetrics
	chores                             choreMetrics
	turns                              turnMetrics
	snapshots                          snapshotMetrics
	quorum                             quorumMetrics
	scrubbed                           prometheus.Counter
	requests                           *prometheus.HistogramVec
	connections                        *prometheus.GaugeVec
	closed                             *prometheus.CounterVec
}

func newMetrics() *nodeMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "highwater", Name: name, Help: help})
	}
	m := &nodeMetrics{
		registry:   prometheus.NewRegistry(),
		isrShrinks: counter("isr_shrinks_total", "Replicas that this node, as leader, had taken out of an ISR."),
		isrExpands: counter("isr_expands_total", "Replicas that this node, as leader, had taken into an ISR."),
		isrRefused: counter("isr_changes_refused_total", "ISR changes that the controller refused."),
		alterSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "highwater", Name: "alter_partition_seconds", Help: "How long AlterPartition took, answers and failures.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 13),
		}),
		alterFailures: counter("alter_partition_failures_total", "AlterPartition requests without an answer."),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "highwater", Name: "request_seconds", Help: "From a request's first byte to its written answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"listener", "api"}),
		logFlush:  newFlushMetrics(),
		chores:    newChoreMetrics(),
		turns:     newTurnMetrics(),
		snapshots: newSnapshotMetrics(),
		quorum:    newQuorumMetrics(),
		scrubbed:  counter("log_scrubbed_bytes_total", "Bytes of sealed segments that were read to check their checksums."),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "highwater", Name: "connections", Help: "Open connections.",
		}, []string{"listener"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "highwater", Name: "connections_closed_total", Help: "Connections that ended, by reason.",
		}, []string{"listener", "reason"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "highwater", Name: "build_info", Help: "Always 1; the label is the version.",
		ConstLabels: prometheus.Labels{"version": buildinfo.Version},
	})
	build.Set(1)
	m.registry.MustRegister(m.turns.all, m.scrubbed)
	m.registry.MustRegister(m.snapshots.collectors()...)
	m.registry.MustRegister(m.quorum.commitSeconds, m.quorum.electionSeconds)
	m.registry.MustRegister(m.chores.runs, m.chores.failures, m.logFlush.seconds, m.logFlush.records, m.logFlush.bytes)
	m.registry.MustRegister(m.isrShrinks, m.isrExpands, m.isrRefused, m.alterSeconds, m.alterFailures, m.requests,
		m.connections, m.closed, build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *nodeMetrics) alterPartition(took time.Duration, err error) {
	m.alterSeconds.Observe(took.Seconds())
	if err != nil {
		m.alterFailures.Inc()
	}
}

// listenerMetrics is wire.Metrics of one listener.
type listenerMetrics struct {
	metrics  *nodeMetrics
	listener string
}

func (l listenerMetrics) ConnectionOpened() { l.metrics.connections.WithLabelValues(l.listener).Inc() }

func (l listenerMetrics) ConnectionClosed(reason wire.CloseReason) {
	l.metrics.connections.WithLabelValues(l.listener).Dec()
	l.metrics.closed.WithLabelValues(l.listener, string(reason)).Inc()
}

func (l listenerMetrics) RequestDone(key, _ int16, _, _ int64, took time.Duration) {
	name := kmsg.NameForKey(key)
	if name == "" {
		name = strconv.Itoa(int(key))
	}
	l.metrics.requests.WithLabelValues(l.listener, name).Observe(took.Seconds())
}

// partitionCollector counts the replicas of a broker when it is asked to.
type partitionCollector struct{ broker *broker }

var (
	hostedDesc          = prometheus.NewDesc("highwater_partitions", "Replicas on this node, by role.", []string{"role"}, nil)
	underReplicatedDesc = prometheus.NewDesc("highwater_under_replicated_partitions", "Partitions that this node leads with an assigned replica that is not in sync; those that a reassignment is adding don't count.", nil, nil)
	underMinISRDesc     = prometheus.NewDesc("highwater_under_min_isr_partitions", "Partitions that this node leads with fewer in-sync replicas than min.insync.replicas: acks=all writes are refused.", nil, nil)
	atMinISRDesc        = prometheus.NewDesc("highwater_at_min_isr_partitions", "Partitions that this node leads with exactly min.insync.replicas in sync: one more loss stops writes.", nil, nil)
	isrChangeDesc       = prometheus.NewDesc("highwater_isr_change_in_flight_seconds", "How long the oldest ISR change that this node proposed has waited to be settled, retries included; 0 when none waits. Nobody else joins or leaves that ISR meanwhile.", nil, nil)
)

// Describe is prometheus.Collector's.
func (c partitionCollector) Describe(out chan<- *prometheus.Desc) {
	out <- hostedDesc
	out <- underReplicatedDesc
	out <- underMinISRDesc
	out <- atMinISRDesc
	out <- isrChangeDesc
}

// Collect is prometheus.Collector's.
func (c partitionCollector) Collect(out chan<- prometheus.Metric) {
	roles := map[replication.Role]int{replication.Leader: 0, replication.Follower: 0, replication.Idle: 0, replication.Failed: 0}
	var underReplicated, underMinISR, atMinISR int
	var oldestChange time.Duration
	now, image := c.broker.clock.now(), c.broker.image()
	c.broker.eachReplica(func(r *replica) {
		r.mu.Lock()
		defer r.mu.Unlock()
		core := r.partition.Core()
		roles[core.Role()]++
		if core.Role() != replication.Leader {
			return
		}
		state := core.Metadata()
		oldestChange = max(oldestChange, core.PendingFor(now))
		var adding []ident.NodeID
		if p, ok := image.Partition(r.id); ok {
			adding = p.Adding
		}
		if core.UnderReplicated(adding) {
			underReplicated++
		}
		switch required := min(state.MinISR, len(state.Replicas)); {
		case len(state.ISR) < required:
			underMinISR++
		case len(state.ISR) == required:
			atMinISR++
		}
	})
	gauge := func(desc *prometheus.Desc, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
	}
	for role, n := range roles {
		gauge(hostedDesc, n, role.String())
	}
	gauge(underReplicatedDesc, underReplicated)
	gauge(underMinISRDesc, underMinISR)
	gauge(atMinISRDesc, atMinISR)
	out <- prometheus.MustNewConstMetric(isrChangeDesc, prometheus.GaugeValue, oldestChange.Seconds())
}

// MetricDescriptions lists what a data node's /metrics describes, for the documentation.
func MetricDescriptions() []*prometheus.Desc {
	m := newMetrics()
	m.registry.MustRegister(partitionCollector{}, recoveryCollector{}, logDirCollector{}, logCollector{}, damageCollector{}, quorumCollector{}, newCleanerMetrics(nil))
	out := make(chan *prometheus.Desc)
	go func() {
		m.registry.Describe(out)
		close(out)
	}()
	var all []*prometheus.Desc
	for d := range out {
		all = append(all, d)
	}
	return all
}
