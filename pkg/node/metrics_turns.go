package node

import "github.com/prometheus/client_golang/prometheus"

// turnMetrics count how often the loops of the metadata quorum turn. A timer that passed and was not set anew makes a
// loop spin without anything else to be seen of it than a busy core (KAFKA-17751).
type turnMetrics struct {
	all                                 *prometheus.CounterVec
	timer, flush, publisher, controller prometheus.Counter
}

func newTurnMetrics() turnMetrics {
	all := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "highwater", Name: "metadata_loop_turns_total",
		Help: "Turns of this node's loops for the metadata: some tens a second when idle.",
	}, []string{"loop"})
	return turnMetrics{
		all: all, timer: all.WithLabelValues("timer"), flush: all.WithLabelValues("flush"),
		publisher: all.WithLabelValues("publisher"), controller: all.WithLabelValues("controller"),
	}
}
