package home

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/ipc"
)

// healthIssue is a condition that an operator must handle.
type healthIssue struct {
	What  string    `json:"what"`
	Since time.Time `json:"since"`
	Hint  string    `json:"hint,omitempty"`
}

// HealthReport is run/health.json: the daemon's health, for status and for
// monitoring.
type HealthReport struct {
	Status       string        `json:"status"` // ok, degraded, paused
	Issues       []healthIssue `json:"problems"`
	PID          int           `json:"pid"`
	Version      string        `json:"version"`
	StartedAt    time.Time     `json:"started_at"`
	UpdatedAt    time.Time     `json:"updated_at"`
	ConfigSHA256 string        `json:"config_sha256"`
	UI           string        `json:"ui,omitzero"` // address of the web UI
}

// Values of healthReport.Status, the worst last.
const (
	HealthOK       = "ok"
	HealthPaused   = "paused"
	HealthDegraded = "degraded"
)

// Health maintains run/health.json. The zero value writes no file. It is safe
// for concurrent use.
type Health struct {
	fs     ipc.FS
	file   string      // "": no file
	paused func() bool // may be nil

	mu     sync.Mutex
	report HealthReport
	issues map[string]healthIssue
}

// NewHealth returns the health of this daemon.
func (h *Home) NewHealth(version string) *Health {
	return &Health{
		fs: h.FS, file: h.Layout.Health(),
		paused: func() bool { list, err := h.Store.Pauses(); return err != nil || len(list) > 0 },
		report: HealthReport{PID: os.Getpid(), Version: version, StartedAt: time.Now().UTC(), ConfigSHA256: h.Config.SHA256},
	}
}

// Set adds an issue under a name such as "config" or "disk". Setting it again
// keeps the time since when it exists.
func (h *Health) Set(name, what, hint string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := time.Now().UTC()
	if old, ok := h.issues[name]; ok {
		since = old.Since
	}
	if h.issues == nil {
		h.issues = map[string]healthIssue{}
	}
	h.issues[name] = healthIssue{what, since, hint}
	h.write()
}

// Clear removes an issue, if it is set.
func (h *Health) Clear(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.issues[name]; ok {
		delete(h.issues, name)
		h.write()
	}
}

// Refresh updates the time of the report: the daemon is alive.
func (h *Health) Refresh() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.write()
}

// SetConfig sets the digest of the active configuration.
func (h *Health) SetConfig(sha256 string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.ConfigSHA256 = sha256
	h.write()
}

// SetUI sets the address of the web UI.
func (h *Health) SetUI(at string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.UI = at
	h.write()
}

// Current returns the report as it was written last.
func (h *Health) Current() HealthReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.report
}

// write replaces the file without a sync: it describes the current state, and
// run/ is emptied at every start.
func (h *Health) write() {
	r := &h.report
	r.Status, r.Issues = HealthOK, []healthIssue{}
	for _, name := range slices.Sorted(maps.Keys(h.issues)) {
		r.Issues = append(r.Issues, h.issues[name])
	}
	switch {
	case len(r.Issues) > 0:
		r.Status = HealthDegraded
	case h.paused != nil && h.paused():
		r.Status = HealthPaused
	}
	r.UpdatedAt = time.Now().UTC()
	if h.file == "" {
		return
	}
	b, err := json.Marshal(r)
	if err == nil {
		b = append(b, '\n')
		if err = h.replace(b); err != nil {
			err = h.overwrite(h.file, 0, b) // there may be no space for a second file
		}
	}
	if err != nil {
		// A missing report is better than an old one that says ok.
		_ = h.fs.Remove(h.file)
	}
}

// overwrite writes a file; with os.O_CREATE it may be new.
func (h *Health) overwrite(name string, create int, b []byte) error {
	f, err := h.fs.OpenFile(name, os.O_WRONLY|os.O_TRUNC|create, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func (h *Health) replace(b []byte) error {
	temp := h.file + ".new"
	if err := h.overwrite(temp, os.O_CREATE, b); err != nil {
		return err
	}
	return h.fs.Rename(temp, h.file)
}

// maxReportAge is the age at which a report means that the daemon hangs.
const maxReportAge = time.Minute

// HealthAt reads the health of a running daemon. A report that is missing, old
// or of another process counts as degraded.
func (h *Home) HealthAt(now time.Time) HealthReport {
	var r HealthReport
	b, err := os.ReadFile(h.Layout.Health())
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	unknown := func(what string) HealthReport {
		r.Status = HealthDegraded
		r.Issues = append(r.Issues, healthIssue{What: what, Since: r.UpdatedAt, Hint: "check the daemon's log and the free disk space"})
		return r
	}
	switch {
	case err != nil:
		r = HealthReport{}
		return unknown("no health report from the daemon")
	case errors.Is(syscall.Kill(r.PID, 0), syscall.ESRCH):
		r = HealthReport{}
		return unknown("the health report is left over from another process")
	case now.Sub(r.UpdatedAt) > maxReportAge:
		return unknown("no health report from the daemon since " + r.UpdatedAt.Local().Format(time.DateTime))
	}
	return r
}

func (r *HealthReport) lines() string {
	var b strings.Builder
	for _, p := range r.Issues {
		b.WriteString("\n⚠ " + p.What)
		if p.Hint != "" {
			b.WriteString("\n  hint: " + p.Hint)
		}
	}
	return b.String()
}
