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

// problem is something that an operator should see to.
type problem struct {
	What  string    `json:"what"`
	Since time.Time `json:"since"`
	Hint  string    `json:"hint,omitempty"`
}

// healthReport is run/health.json: what the daemon says of itself, for status
// and for whoever watches over many.
type healthReport struct {
	Status       string    `json:"status"` // ok, degraded, paused
	Problems     []problem `json:"problems"`
	PID          int       `json:"pid"`
	Version      string    `json:"version"`
	StartedAt    time.Time `json:"started_at"`
	UpdatedAt    time.Time `json:"updated_at"`
	ConfigSHA256 string    `json:"config_sha256"`
	UI           string    `json:"ui,omitzero"` // where the pages for people are
}

// The words of healthReport.Status, the worst last.
const (
	healthOK       = "ok"
	healthPaused   = "paused"
	healthDegraded = "degraded"
)

// health keeps run/health.json. Its zero value keeps a report that nobody
// sees; it is safe for concurrent use.
type health struct {
	fs     ipc.FS
	file   string      // "": none
	paused func() bool // may be nil

	mu       sync.Mutex
	report   healthReport
	problems map[string]problem
}

// newHealth is how a daemon of this home says how it is.
func (h *house) newHealth() *health {
	return &health{
		fs: h.fs, file: h.layout.Health(),
		paused: func() bool { list, err := h.store.Pauses(); return err != nil || len(list) > 0 },
		report: healthReport{PID: os.Getpid(), Version: version, StartedAt: time.Now().UTC(), ConfigSHA256: h.cfg.SHA256},
	}
}

// Set notes a problem under a name of its own, such as "config" or "disk". A
// problem that is set again keeps the time at which it began.
func (h *health) Set(name, what, hint string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := time.Now().UTC()
	if old, ok := h.problems[name]; ok {
		since = old.Since
	}
	if h.problems == nil {
		h.problems = map[string]problem{}
	}
	h.problems[name] = problem{what, since, hint}
	h.write()
}

// Clear ends a problem; one that was not set is none.
func (h *health) Clear(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.problems[name]; ok {
		delete(h.problems, name)
		h.write()
	}
}

// Beat says that the daemon is alive at this moment.
func (h *health) Beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.write()
}

// configured notes which configuration holds.
func (h *health) configured(sha256 string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.ConfigSHA256 = sha256
	h.write()
}

// pages notes where the pages for people are.
func (h *health) pages(at string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.UI = at
	h.write()
}

// write replaces the file, without syncing it: it describes this moment, and
// run/ is emptied at every start.
func (h *health) write() {
	r := &h.report
	r.Status, r.Problems = healthOK, []problem{}
	for _, name := range slices.Sorted(maps.Keys(h.problems)) {
		r.Problems = append(r.Problems, h.problems[name])
	}
	switch {
	case len(r.Problems) > 0:
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
		// No report is better than an old one that says that all is well.
		_ = h.fs.Remove(h.file)
	}
}

// overwrite is for a disk that has no room for another file.
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

// stale is the age from which a report counts as one of a daemon that hangs.
const stale = time.Minute

// healthOf reads what a running daemon says of itself. A report that is missing,
// old or another process's says nothing good.
func (h *house) healthOf(now time.Time) healthReport {
	var r healthReport
	b, err := os.ReadFile(h.layout.Health())
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	unknown := func(what string) healthReport {
		r.Status = healthDegraded
		r.Problems = append(r.Problems, problem{What: what, Since: r.UpdatedAt, Hint: "look at the log of permesso serve; is the disk full?"})
		return r
	}
	switch {
	case err != nil:
		r = healthReport{}
		return unknown("the gate says nothing of how it is")
	case errors.Is(syscall.Kill(r.PID, 0), syscall.ESRCH):
		r = healthReport{}
		return unknown("what the gate says of itself is left over from another process")
	case now.Sub(r.UpdatedAt) > stale:
		return unknown("the gate has not been heard of since " + r.UpdatedAt.Local().Format(time.DateTime))
	}
	return r
}

func (r *healthReport) lines() string {
	var b strings.Builder
	for _, p := range r.Problems {
		b.WriteString("\n⚠ " + p.What)
		if p.Hint != "" {
			b.WriteString("\n  hint: " + p.Hint)
		}
	}
	return b.String()
}
