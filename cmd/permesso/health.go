package main

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

// healthReport is run/health.json: the daemon's health, for status and for
// monitoring.
type healthReport struct {
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
	healthOK       = "ok"
	healthPaused   = "paused"
	healthDegraded = "degraded"
)

// health maintains run/health.json. The zero value writes no file. It is safe
// for concurrent use.
type health struct {
	fs     ipc.FS
	file   string      // "": no file
	paused func() bool // may be nil

	mu     sync.Mutex
	report healthReport
	issues map[string]healthIssue
}

// newHealth returns the health of this daemon.
func (h *instance) newHealth(version string) *health {
	return &health{
		fs: h.fs, file: h.layout.Health(),
		paused: func() bool { list, err := h.store.Pauses(); return err != nil || len(list) > 0 },
		report: healthReport{PID: os.Getpid(), Version: version, StartedAt: time.Now().UTC(), ConfigSHA256: h.cfg.SHA256},
	}
}

// Set adds an issue under a name such as "config" or "disk". Setting it again
// keeps the time since when it exists.
func (h *health) Set(name, what, hint string) {
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
func (h *health) Clear(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.issues[name]; ok {
		delete(h.issues, name)
		h.write()
	}
}

// Refresh updates the time of the report: the daemon is alive.
func (h *health) Refresh() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.write()
}

// configured sets the digest of the active configuration.
func (h *health) configured(sha256 string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.ConfigSHA256 = sha256
	h.write()
}

// setUI sets the address of the web UI.
func (h *health) setUI(at string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.UI = at
	h.write()
}

// current returns the report as it was written last.
func (h *health) current() healthReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.report
}

// write replaces the file without a sync: it describes the current state, and
// run/ is emptied at every start.
func (h *health) write() {
	r := &h.report
	r.Status, r.Issues = healthOK, []healthIssue{}
	for _, name := range slices.Sorted(maps.Keys(h.issues)) {
		r.Issues = append(r.Issues, h.issues[name])
	}
	switch {
	case len(r.Issues) > 0:
		r.Status = healthDegraded
	case h.paused != nil && h.paused():
		r.Status = healthPaused
	}
	r.UpdatedAt = time.Now().UTC()
	if h.file == "" {
		return
	}
	b, err := json.Marshal(r)
	if err == nil {
		b = append(b, '\n')
		if err = h.replace(b); err != nil {
			err = h.overwrite(b)
		}
	}
	if err != nil {
		// A missing report is better than an old one that says ok.
		_ = h.fs.Remove(h.file)
	}
}

// overwrite is used if there is no space for a second file.
func (h *health) overwrite(b []byte) error {
	f, err := h.fs.OpenFile(h.file, os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func (h *health) replace(b []byte) error {
	temp := h.file + ".new"
	f, err := h.fs.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return h.fs.Rename(temp, h.file)
}

// maxReportAge is the age at which a report means that the daemon hangs.
const maxReportAge = time.Minute

// healthOf reads the health of a running daemon. A report that is missing, old
// or of another process counts as degraded.
func (h *instance) healthOf(now time.Time) healthReport {
	var r healthReport
	b, err := os.ReadFile(h.layout.Health())
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	unknown := func(what string) healthReport {
		r.Status = healthDegraded
		r.Issues = append(r.Issues, healthIssue{What: what, Since: r.UpdatedAt, Hint: "check the daemon's log and the free disk space"})
		return r
	}
	switch {
	case err != nil:
		r = healthReport{}
		return unknown("no health report from the daemon")
	case errors.Is(syscall.Kill(r.PID, 0), syscall.ESRCH):
		r = healthReport{}
		return unknown("the health report is left over from another process")
	case now.Sub(r.UpdatedAt) > maxReportAge:
		return unknown("no health report from the daemon since " + r.UpdatedAt.Local().Format(time.DateTime))
	}
	return r
}

func (r *healthReport) lines() string {
	var b strings.Builder
	for _, p := range r.Issues {
		b.WriteString("\n⚠ " + p.What)
		if p.Hint != "" {
			b.WriteString("\n  hint: " + p.Hint)
		}
	}
	return b.String()
}
