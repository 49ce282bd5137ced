package daemon

import (
	"fmt"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
)

// feed publishes audit entries to followers once they are in the log's files.
type feed struct {
	home *home.Home

	mu      sync.Mutex
	last    []event.Entry // newest entries, in order
	durable int64         // sequence number of the newest entry in the files
	changed chan struct{}
}

// maxBuffered is how many entries are buffered for followers that are behind.
const maxBuffered = 4096

func newFeed(h *home.Home, log *audit.Log) *feed {
	return &feed{home: h, durable: log.Appended(), changed: make(chan struct{})}
}

// add adds an entry. The audit log calls it under its own lock.
func (f *feed) add(e event.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last = append(f.last, e); len(f.last) >= 2*maxBuffered {
		f.last = append(f.last[:0], f.last[len(f.last)-maxBuffered:]...)
	}
}

// written notifies the followers. The audit log calls it under its own lock.
func (f *feed) written(seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.durable = seq
	close(f.changed)
	f.changed = make(chan struct{})
}

// Moved implements httpapi.Log.
func (f *feed) Moved() (newest int64, moved <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.durable, f.changed
}

// Since implements httpapi.Log.
func (f *feed) Since(seq int64, each func(event.Entry) error) error {
	f.mu.Lock()
	durable := f.durable
	var list []event.Entry
	here := len(f.last) > 0 && f.last[0].Seq <= seq+1
	for _, e := range f.last {
		if here && e.Seq > seq && e.Seq <= durable {
			list = append(list, e)
		}
	}
	f.mu.Unlock()
	if !here {
		return audit.EntriesAfter(f.home.FS, f.home.Layout.Audit(), seq, func(e event.Entry) error {
			if e.Seq > durable {
				return nil
			}
			return each(e)
		})
	}
	for _, e := range list {
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

// requestMetrics counts audit entries for monitoring.
type requestMetrics struct {
	metrics *httpapi.Metrics
	now     func() time.Time

	mu    sync.Mutex
	since map[string]map[string]time.Time // workspace → id → pending since
}

// newRequestMetrics starts with the requests that are pending already.
func newRequestMetrics(waiting []approval.StoredPending) *requestMetrics {
	c := &requestMetrics{metrics: httpapi.NewMetrics(), now: time.Now, since: map[string]map[string]time.Time{}}
	for _, w := range waiting {
		c.begin(w.Key(), w.Pending.Timestamp)
	}
	return c
}

// begin records a pending request. The caller holds the lock, or is alone.
func (c *requestMetrics) begin(k approval.Key, at time.Time) {
	ws := c.since[k.Workspace]
	if ws == nil {
		ws = map[string]time.Time{}
		c.since[k.Workspace] = ws
		c.metrics.NewGauge(fmt.Sprintf("permesso_waiting{workspace=%q}", k.Workspace),
			func() float64 { return c.count(k.Workspace) })
		c.metrics.NewGauge(fmt.Sprintf("permesso_oldest_waiting_seconds{workspace=%q}", k.Workspace),
			func() float64 { return c.oldest(k.Workspace) })
	}
	ws[k.ID] = at
}

// observe counts an audit entry.
func (c *requestMetrics) observe(e event.Entry) {
	if e.RequestID == "" || e.Workspace == "" {
		return
	}
	c.metrics.GetOrCreateCounter(fmt.Sprintf("permesso_events_total{workspace=%q,event=%q}", e.Workspace, e.Event)).Inc()
	k := approval.Key{Workspace: e.Workspace, ID: e.RequestID}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Event == event.Requested {
		c.begin(k, e.Time)
		return
	}
	status := read.EndedBy(&e)
	at, waited := c.since[k.Workspace][k.ID]
	if decided := e.Event == event.Approved || status != ""; decided && waited {
		if e.By != "" && e.Via != "gate" {
			name := fmt.Sprintf("permesso_decision_seconds{workspace=%q}", e.Workspace)
			c.metrics.GetOrCreateSummary(name).Update(e.Time.Sub(at).Seconds())
		}
		delete(c.since[k.Workspace], k.ID)
	}
	if _, step := approval.CutStep(e.RequestID); status != "" && step == 0 {
		name := fmt.Sprintf("permesso_requests_total{workspace=%q,status=%q}", e.Workspace, status)
		c.metrics.GetOrCreateCounter(name).Inc()
	}
}

func (c *requestMetrics) count(ws string) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(len(c.since[ws]))
}

func (c *requestMetrics) oldest(ws string) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := time.Duration(0)
	for _, at := range c.since[ws] {
		age = max(age, c.now().Sub(at))
	}
	return age.Seconds()
}
