package httpapi

import (
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Metrics counts requests to the API, and what the daemon adds to its Set. Labels are names
// of workspaces, events and statuses, never of requests, clients or people.
type Metrics struct {
	*metrics.Set
	created   *metrics.Counter
	durations *metrics.Summary
	waiting   atomic.Int64
	listening atomic.Int64
}

// NewMetrics returns metrics without counts.
func NewMetrics() *Metrics {
	m := &Metrics{Set: metrics.NewSet()}
	m.created = m.NewCounter("permesso_rest_created_total")
	m.durations = m.NewSummary("permesso_rest_duration_seconds")
	m.NewGauge("permesso_rest_waiting_clients", func() float64 { return float64(m.waiting.Load()) })
	m.NewGauge("permesso_rest_event_clients", func() float64 { return float64(m.listening.Load()) })
	return m
}

func (m *Metrics) observe(d time.Duration) { m.durations.Update(d.Seconds()) }

func (m *Metrics) countWaiting() (stop func())   { return increment(&m.waiting) }
func (m *Metrics) countListening() (stop func()) { return increment(&m.listening) }

func increment(n *atomic.Int64) (down func()) {
	n.Add(1)
	return func() { n.Add(-1) }
}
