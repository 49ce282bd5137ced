package home

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

// State is what status prints.
type State struct {
	Home       string         `json:"home"`
	Config     string         `json:"config"`
	Running    bool           `json:"running"`
	Script     string         `json:"script,omitempty"` // the approval script that decides instead of people
	Pending    map[string]int `json:"pending"`
	Claims     map[string]int `json:"unfinished"`
	Held       map[string]int `json:"held,omitempty"` // decided, and not carried out yet: by a pause, or without a daemon
	Workspaces []string       `json:"workspaces"`
	Paused     []ipc.Pause    `json:"paused"`
	Alarm      *audit.Alarm   `json:"alarm"`  // of the audit log; null: none
	Health     *HealthReport  `json:"health"` // null if no daemon runs
}

// State reads the state from the files; running is in the daemon.
func (h *Home) State(running bool) (st *State, err error) {
	st = &State{Home: h.Layout.Home, Config: h.Current().File, Running: running, Pending: map[string]int{}, Claims: map[string]int{}, Held: map[string]int{}}
	if st.Script, err = h.Scripted(); err != nil {
		return nil, err
	}
	if running {
		health := h.HealthAt(time.Now())
		health.addFailure(h.Store)
		st.Health = &health
	}
	if st.Workspaces, err = h.Store.Workspaces(context.Background()); err != nil {
		return nil, err
	}
	if st.Alarm, err = audit.ReadAlarm(h.FS, h.Layout.Audit()); err != nil {
		return nil, err
	}
	if st.Paused, err = h.Store.Pauses(); err != nil {
		return nil, err
	}
	for _, ws := range st.Workspaces {
		for d, count := range map[approval.Doc]map[string]int{approval.DocPending: st.Pending, approval.DocClaim: st.Claims} {
			ids, _, err := h.Store.List(context.Background(), d, ws)
			if err != nil {
				return nil, err
			}
			count[ws] = len(ids)
		}
	}
	return st, nil
}

// String is the state as status prints it.
func (s *State) String() string {
	var b strings.Builder
	up := "not running: decisions take effect when it starts (permesso serve)"
	if s.Running {
		up = "running"
		if s.Health != nil && s.Health.Status == HealthDegraded {
			up = "running, degraded"
		}
	}
	fmt.Fprintf(&b, "daemon  %s\nhome    %s\nconfig  %s", up, s.Home, cmp.Or(s.Config, "defaults"))
	if s.Script != "" {
		fmt.Fprintf(&b, "\nscript  %s decides instead of people: for tests only", chat.Escape(s.Script))
	}
	if s.Health != nil && s.Health.UI != "" {
		fmt.Fprintf(&b, "\nweb UI  %s (permesso ui opens it)", chat.Escape(s.Health.UI))
	}
	if s.Health != nil {
		b.WriteString(s.Health.lines())
	}
	if s.Alarm != nil {
		fmt.Fprintf(&b, "\n⚠ audit log: %s\n  hint: %s", chat.Escape(s.Alarm.Reason), console.AlarmHint)
	}
	for _, p := range s.Paused {
		fmt.Fprintf(&b, "\n⏸ %s", PauseLine(p))
	}
	for _, ws := range s.Workspaces {
		held := ""
		if n := s.Held[ws]; n > 0 {
			held = fmt.Sprintf("%d held, ", n)
		}
		fmt.Fprintf(&b, "\n%-7s %d pending, %s%d running or interrupted", ws, s.Pending[ws], held, s.Claims[ws])
	}
	return b.String()
}

// Scripted returns the script that decides in this home, "" if people do.
func (h *Home) Scripted() (string, error) {
	b, err := os.ReadFile(h.Layout.Scripted())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return cmp.Or(line, "a script"), err
}

// Only is the state as an approver of these workspaces may see it.
func (s *State) Only(workspaces []string) *State {
	st := *s
	st.Workspaces = slices.DeleteFunc(slices.Clone(s.Workspaces), func(ws string) bool { return !slices.Contains(workspaces, ws) })
	st.Paused = slices.DeleteFunc(slices.Clone(s.Paused), func(p ipc.Pause) bool {
		return p.Workspace != ipc.AllWorkspaces && !slices.Contains(workspaces, p.Workspace)
	})
	if s.Health != nil {
		health := *s.Health
		health.Issues, health.Notes, health.Config, health.ConfigSHA256 = []healthIssue{}, nil, "", "" // shown to the operator only
		st.Health = &health
		if st.Health.Status == HealthPaused && len(st.Paused) == 0 {
			st.Health.Status = HealthOK // a workspace that the approver does not see is paused
		}
	}
	st.Alarm = nil // shown to the operator only
	st.Pending, st.Claims, st.Held = map[string]int{}, map[string]int{}, map[string]int{}
	for _, ws := range st.Workspaces {
		st.Pending[ws], st.Claims[ws] = s.Pending[ws], s.Claims[ws]
		if n := s.Held[ws]; n > 0 {
			st.Held[ws] = n
		}
	}
	return &st
}

// healthIssue is a condition that an operator must handle.
type healthIssue struct {
	What  string    `json:"what"`
	Since time.Time `json:"since"`
	Hint  string    `json:"hint,omitempty"`

	note bool // it degrades nothing
}

// HealthReport is run/health.json: the daemon's health, for status and for
// monitoring.
type HealthReport struct {
	Status       string        `json:"status"` // ok, degraded, paused
	Issues       []healthIssue `json:"problems"`
	Notes        []healthIssue `json:"notes,omitempty"` // to be seen, but no reason to be degraded
	PID          int           `json:"pid"`
	Version      string        `json:"version"`
	StartedAt    time.Time     `json:"started_at"`
	UpdatedAt    time.Time     `json:"updated_at"`
	Config       string        `json:"config"` // its path, "" without one
	ConfigSHA256 string        `json:"config_sha256"`
	UI           string        `json:"ui,omitzero"` // address of the web UI

	// How max_memory and max_processes are kept: "kernel", or "counted" and why the kernel does not keep them.
	// "" if no tool runs a command.
	HandlerLimits       string `json:"handler_limits,omitzero"`
	HandlerLimitsReason string `json:"handler_limits_reason,omitzero"`
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
	file   string      // "": no file
	served string      // the file with the path of the configuration, "": none
	paused func() bool // may be nil

	mu     sync.Mutex
	report HealthReport
	issues map[string]healthIssue
}

// NewHealth returns the health of this daemon.
func (h *Home) NewHealth(version string) *Health {
	s := &Health{
		file: h.Layout.Health(), served: h.Layout.Served(),
		paused: func() bool { list, err := h.Store.Pauses(); return err != nil || len(list) > 0 },
		report: HealthReport{PID: os.Getpid(), Version: version, StartedAt: time.Now().UTC()},
	}
	s.use(h.Config)
	return s
}

// use reports a configuration, and writes its path for commands that run when the daemon has ended.
func (h *Health) use(cfg *config.Config) {
	h.report.Config, h.report.ConfigSHA256 = cfg.File, cfg.SHA256
	if path, err := filepath.Abs(cfg.File); err == nil && cfg.File != "" {
		h.report.Config = path
	}
	if h.served != "" {
		_ = replaceFile(h.served, []byte(h.report.Config)) // without it, commands need --config
	}
}

// Use says that a configuration is in use now.
func (h *Health) Use(cfg *config.Config) { h.Update(func(*HealthReport) { h.use(cfg) }) }

// Issue returns an issue by its name, "" if it is not set.
func (h *Health) Issue(name string) (what, hint string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.issues[name].What, h.issues[name].Hint
}

// Set adds an issue under a name such as "config" or "disk". Setting it again
// keeps the time since when it exists.
func (h *Health) Set(name, what, hint string) { h.set(name, healthIssue{What: what, Hint: hint}) }

// Note is Set for what is to be seen in the status, and degrades nothing.
func (h *Health) Note(name, what, hint string) {
	h.set(name, healthIssue{What: what, Hint: hint, note: true})
}

func (h *Health) set(name string, i healthIssue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i.Since = time.Now().UTC()
	if old, ok := h.issues[name]; ok {
		i.Since = old.Since
	}
	if h.issues == nil {
		h.issues = map[string]healthIssue{}
	}
	h.issues[name] = i
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
func (h *Health) Refresh() { h.Update(func(*HealthReport) {}) }

// Update changes the report, and updates its time.
func (h *Health) Update(change func(r *HealthReport)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.report)
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
	r.Status, r.Issues, r.Notes = HealthOK, []healthIssue{}, nil
	for _, name := range slices.Sorted(maps.Keys(h.issues)) {
		if i := h.issues[name]; i.note {
			r.Notes = append(r.Notes, i)
		} else {
			r.Issues = append(r.Issues, i)
		}
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
	b, err := json.Marshal(r, codec.Times())
	if err == nil {
		err = replaceFile(h.file, append(b, '\n'))
	}
	if err != nil {
		// A missing report is better than an old one that says ok.
		_ = os.Remove(h.file)
	}
}

// replaceFile replaces a small file without a sync.
func replaceFile(name string, b []byte) error {
	err := os.WriteFile(name+".new", b, 0o600)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		err = os.WriteFile(name, b, 0o600) // there may be no space for a second file
	}
	return err
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

// addFailure tells of a journal that has failed since the report was written.
func (r *HealthReport) addFailure(s *ipc.Store) {
	if d, err := s.Disk(); err == nil && d.Failed != "" && r.Status != HealthDegraded {
		r.Status = HealthDegraded
		r.Issues = append(r.Issues, healthIssue{What: "nothing is committed any more: " + d.Failed, Since: time.Now().UTC(), Hint: "permesso doctor says what is missing"})
	}
}

func (r *HealthReport) lines() string {
	var b strings.Builder
	for i, p := range slices.Concat(r.Issues, r.Notes) {
		mark := "⚠ "
		if i >= len(r.Issues) {
			mark = "note    "
		}
		b.WriteString("\n" + mark + p.What)
		if p.Hint != "" {
			b.WriteString("\n  hint: " + p.Hint)
		}
	}
	return b.String()
}

// claimTimeout is how long pause waits for claims in progress.
const claimTimeout = 10 * time.Second

// Pause pauses a workspace, and waits until no request from before is being started.
// changed is false if it was paused already.
func (h *Home) Pause(p ipc.Pause) (changed bool, err error) {
	err = h.Store.Pause(p)
	if changed = err == nil; !changed && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	deadline := time.Now().Add(claimTimeout)
	return changed, h.Store.AwaitClaims(p.Workspace, func() error {
		if time.Now().After(deadline) {
			return console.Fail(console.ExitError, "nothing new is started; see permesso status",
				"paused, but a request from before the pause is still being started")
		}
		time.Sleep(time.Millisecond)
		return nil
	})
}

// PauseLine describes a pause in one line.
func PauseLine(p ipc.Pause) string {
	what := p.Workspace
	if what == ipc.AllWorkspaces {
		what = "everything"
	}
	text := fmt.Sprintf("paused: %s, since %s by %s", what, p.At.Local().Format(time.DateTime), chat.Escape(p.By))
	if p.Reason != "" {
		text += ": " + chat.Escape(p.Reason)
	}
	return text
}

// PausedIn returns the pause of a workspace for its cards, nil if it is not paused.
func (h *Home) PausedIn(ws string) *chat.Pause {
	if p, ok := h.Store.Paused(ws); ok {
		return CardPause(&p)
	}
	return nil
}

// CardPause is a pause as cards show it, nil if there is none.
func CardPause(p *ipc.Pause) *chat.Pause {
	if p == nil {
		return nil
	}
	return &chat.Pause{By: strings.TrimPrefix(p.By, "operator:"), Since: p.At, Reason: p.Reason}
}
