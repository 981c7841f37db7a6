package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// recoveryProgress is how far the logs are opened that were there at the start. Safe for concurrent use.
type recoveryProgress struct {
	mu                   sync.Mutex
	active               bool
	started              time.Time
	logs, logsDone       int
	bytes, bytesDone     int64 // what is to be read; what was, or need not be after all
	read, readBeforeNote int64 // since the process started
	noted                time.Time
}

func newRecoveryProgress() *recoveryProgress { return &recoveryProgress{} }

func (p *recoveryProgress) begin(logs int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active, p.started, p.noted = true, time.Now(), time.Now()
	p.logs, p.bytes = logs, bytes
}

// scanned counts bytes of logs that were read and checked.
func (p *recoveryProgress) scanned(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read += bytes
	p.bytesDone += bytes
}

// done counts a log that is open; rest is what it was expected to have read and did not.
func (p *recoveryProgress) done(rest int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logsDone++
	p.bytesDone += rest
}

// end says what it was all together.
func (p *recoveryProgress) end() (logs int, bytes int64, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.active {
		return 0, 0, 0
	}
	p.active = false
	return p.logs, p.read, time.Since(p.started)
}

// remaining is what metrics show.
func (p *recoveryProgress) remaining() (logs int, bytes, read int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active {
		logs, bytes = p.logs-p.logsDone, max(0, p.bytes-p.bytesDone)
	}
	return logs, bytes, p.read
}

// String is for people: "12 of 40 logs, 3.2 GiB of 12.0 GiB".
func (p *recoveryProgress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := fmt.Sprintf("%d of %d logs", p.logsDone, p.logs)
	if p.bytes > 0 {
		text += fmt.Sprintf(", %s of %s", byteSize(p.bytesDone), byteSize(p.bytes))
	}
	return text
}

// rate returns the bytes read per second since it was last asked, and false when nothing is under way.
func (p *recoveryProgress) rate() (perSecond int64, active bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := time.Since(p.noted)
	if !p.active || elapsed <= 0 {
		return 0, false
	}
	perSecond = int64(float64(p.read-p.readBeforeNote) / elapsed.Seconds())
	p.noted, p.readBeforeNote = time.Now(), p.read
	return perSecond, true
}

// byteSize writes a number of bytes as people read it.
func byteSize(n int64) string {
	const units = "KMGTPE"
	size, unit := float64(n), -1
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", size, units[unit])
}

// recoveryLogInterval is how often a node that recovers says how far it is.
const recoveryLogInterval = 5 * time.Second

// recoveryLoop tells of a recovery that takes long.
func (b *broker) recoveryLoop(ctx context.Context) {
	every(ctx, recoveryLogInterval, func() {
		if rate, active := b.openings.progress.rate(); active {
			b.logger.Info("opening logs", "done", b.openings.progress.String(), "rate", byteSize(rate)+"/s")
		}
	})
}

// recoveryCollector shows the progress when it is asked to.
type recoveryCollector struct{ progress *recoveryProgress }

var (
	recoveryLogsDesc  = prometheus.NewDesc("highwater_log_recovery_logs_remaining", "Logs that this node still has to open since it started; it stays fenced until then.", nil, nil)
	recoveryBytesDesc = prometheus.NewDesc("highwater_log_recovery_bytes_remaining", "Bytes of logs that this node still has to read and check after an unclean stop.", nil, nil)
	recoveryReadDesc  = prometheus.NewDesc("highwater_log_recovery_scanned_bytes_total", "Bytes of logs that were read and checked after an unclean stop.", nil, nil)
)

// Describe is prometheus.Collector's.
func (c recoveryCollector) Describe(out chan<- *prometheus.Desc) {
	out <- recoveryLogsDesc
	out <- recoveryBytesDesc
	out <- recoveryReadDesc
}

// Collect is prometheus.Collector's.
func (c recoveryCollector) Collect(out chan<- prometheus.Metric) {
	logs, bytes, read := c.progress.remaining()
	out <- prometheus.MustNewConstMetric(recoveryLogsDesc, prometheus.GaugeValue, float64(logs))
	out <- prometheus.MustNewConstMetric(recoveryBytesDesc, prometheus.GaugeValue, float64(bytes))
	out <- prometheus.MustNewConstMetric(recoveryReadDesc, prometheus.CounterValue, float64(read))
}
