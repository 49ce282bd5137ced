package httpapi

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Metrics counts requests and events. Labels are names of workspaces, events and
// statuses, never of requests, clients or people.
type Metrics struct {
	set       *metrics.Set
	created   *metrics.Counter
	durations *metrics.Summary
	waiting   atomic.Int64
	listening atomic.Int64
}

// NewMetrics returns metrics without counts.
func NewMetrics() *Metrics {
	m := &Metrics{set: metrics.NewSet()}
	m.created = m.set.NewCounter("permesso_rest_created_total")
	m.durations = m.set.NewSummary("permesso_rest_duration_seconds")
	m.set.NewGauge("permesso_rest_waiting_clients", func() float64 { return float64(m.waiting.Load()) })
	m.set.NewGauge("permesso_rest_event_clients", func() float64 { return float64(m.listening.Load()) })
	return m
}

// Event counts an entry of the audit log.
func (m *Metrics) Event(workspace, event string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("permesso_events_total{workspace=%q,event=%q}", workspace, event)).Inc()
}

// Ended counts an ended request.
func (m *Metrics) Ended(workspace, status string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("permesso_requests_total{workspace=%q,status=%q}", workspace, status)).Inc()
}

// Decided records how long a person took.
func (m *Metrics) Decided(workspace string, took time.Duration) {
	m.set.GetOrCreateSummary(fmt.Sprintf("permesso_decision_seconds{workspace=%q}", workspace)).Update(took.Seconds())
}

// Gauge adds a metric that is read at every scrape.
func (m *Metrics) Gauge(name string, value func() float64) { m.set.GetOrCreateGauge(name, value) }

func (m *Metrics) observe(d time.Duration) { m.durations.Update(d.Seconds()) }

func (m *Metrics) countWaiting() (stop func())   { return increment(&m.waiting) }
func (m *Metrics) countListening() (stop func()) { return increment(&m.listening) }

func increment(n *atomic.Int64) (down func()) {
	n.Add(1)
	return func() { n.Add(-1) }
}

// Write writes all metrics in Prometheus' text format.
func (m *Metrics) Write(w io.Writer) { m.set.WritePrometheus(w) }
