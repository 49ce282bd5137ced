package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

func (a *app) pauseCmd() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "pause [WORKSPACE]", Short: "Pause all executions until resume", Args: cobra.MaximumNArgs(1),
		Long: "Pause all executions in one workspace or in all, until permesso resume, whether a rule or a person approved them.\n\n" +
			"When the command returns, nothing more is started; what is running continues. Approvers still get requests and may\n" +
			"decide; an approved request that is not started in time expires. A pause survives a restart. The daemon may be\n" +
			"stopped.",
		ValidArgsFunction: a.completeWorkspaces,
		RunE: func(_ *cobra.Command, pos []string) error {
			if strings.ContainsFunc(reason, unicode.IsControl) || len(reason) > 300 {
				return fail(exitUsage, "use one line of at most 300 bytes", "--reason of %d bytes is too long or has control characters", len(reason))
			}
			return a.pause(pos, reason)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "reason `text`, shown to approvers and in status")
	return c
}

func (a *app) resumeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "resume [WORKSPACE]", Short: "Resume paused executions", Args: cobra.MaximumNArgs(1),
		Long: "Resume paused executions. Paused requests run now unless they have expired.\n\n" +
			"Without WORKSPACE it ends the pause of everything; workspaces that were paused by name stay paused.",
		ValidArgsFunction: a.completeWorkspaces,
		RunE:              func(_ *cobra.Command, pos []string) error { return a.resume(pos) },
	}
}

// pauseTarget returns the home and the name to pause or resume. It reads neither
// the configuration nor the keys: a pause must work when they are broken.
func (a *app) pauseTarget(pos []string) (*instance, string, error) {
	home, err := config.LocateHome(a.homeFlag, a.Env)
	if err != nil {
		return nil, "", err
	}
	h := &instance{layout: ipc.Layout{Home: home}, fs: ipc.OS()}
	h.store = &ipc.Store{FS: h.fs, Layout: h.layout}
	if _, err := h.fs.Stat(h.layout.IPC()); err != nil {
		return nil, "", fail(exitError, "run permesso init, or name another --home", "no daemon for this user in %s", home)
	}
	if err := h.layout.PreparePauses(h.fs); err != nil || len(pos) == 0 {
		return h, ipc.Everything, err
	}
	names, err := h.store.Workspaces()
	if err != nil {
		return nil, "", err
	}
	if !slices.Contains(names, pos[0]) {
		return nil, "", fail(exitError, "workspaces: "+strings.Join(names, ", "), "no workspace %q", pos[0])
	}
	return h, pos[0], nil
}

// claimTimeout is how long pause waits for claims in progress.
const claimTimeout = 10 * time.Second

func (a *app) pause(pos []string, reason string) error {
	h, name, err := a.pauseTarget(pos)
	if err != nil {
		return err
	}
	p := ipc.Pause{Workspace: name, By: operator().Name, At: time.Now().UTC(), Reason: reason}
	err = h.store.Pause(p)
	already := errors.Is(err, fs.ErrExist)
	if err != nil && !already {
		return err
	}
	if err := h.awaitClaims(name); err != nil {
		return err
	}
	running, err := h.running(name)
	if err != nil {
		return err
	}
	if now, ok := h.store.Paused(name); ok {
		p = now
	}
	text := "paused: nothing runs until permesso " + strings.TrimSpace("resume "+strings.Join(pos, " "))
	if already {
		text = "already " + pauseLine(p)
	}
	if running > 0 {
		text += fmt.Sprintf("\n%d already running or interrupted: see permesso status", running)
	}
	return a.print(p, text)
}

// running counts the claims of a workspace, or of all.
func (h *instance) running(name string) (n int, err error) {
	names := []string{name}
	if name == ipc.Everything {
		if names, err = h.store.Workspaces(); err != nil {
			return 0, err
		}
	}
	for _, ws := range names {
		ids, _, err := h.store.List(approval.DocClaim, ws)
		if err != nil {
			return 0, err
		}
		n += len(ids)
	}
	return n, nil
}

// awaitClaims waits until every claim that did not see the pause is written.
func (h *instance) awaitClaims(name string) error {
	deadline := time.Now().Add(claimTimeout)
	return h.store.AwaitClaims(name, func() error {
		if time.Now().After(deadline) {
			return fail(exitError, "nothing new is started; see permesso status",
				"paused, but a request from before the pause is still being started")
		}
		time.Sleep(time.Millisecond)
		return nil
	})
}

func (a *app) resume(pos []string) error {
	h, name, err := a.pauseTarget(pos)
	if err != nil {
		return err
	}
	p, err := h.store.Resume(name, operator().Name, time.Now().UTC())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	still, held := h.store.Paused(name)
	switch {
	case err != nil && held:
		return fail(exitError, "permesso resume without a workspace ends the pause of everything", "%s is not paused by name: %s", name, pauseLine(still))
	case err != nil:
		return a.print(struct{}{}, "not paused")
	case held:
		return a.print(p, "resumed, but still "+pauseLine(still))
	}
	text := "resumed: paused requests run"
	if left, err := h.store.Pauses(); err == nil && name == ipc.Everything && len(left) > 0 {
		text = "resumed, except workspaces paused by name:"
		for _, p := range left {
			text += " " + p.Workspace
		}
	}
	return a.print(p, text)
}

// pauseLine describes a pause in one line.
func pauseLine(p ipc.Pause) string {
	what := p.Workspace
	if what == ipc.Everything {
		what = "everything"
	}
	text := fmt.Sprintf("paused: %s, since %s by %s", what, p.At.Local().Format(time.DateTime), chat.Escape(p.By))
	if p.Reason != "" {
		text += ": " + chat.Escape(p.Reason)
	}
	return text
}

// pausedIn returns the pause of a workspace for its cards, nil if it is not paused.
func (h *instance) pausedIn(ws string) *chat.Pause {
	if h.store == nil {
		return nil // another user's daemon: its status shows the pause
	}
	p, ok := h.store.Paused(ws)
	if !ok {
		return nil
	}
	return &chat.Pause{By: strings.TrimPrefix(p.By, "operator:"), Since: p.At, Reason: p.Reason}
}

// pauseAudit writes pauses and resumes to the audit log, each once, even if the
// daemon is killed in between: a pause has an id, and its file stays until the
// log has the entry.
type pauseAudit struct {
	store *ipc.Store
	log   auditAppender
	known map[string]bool // facts in the log; nil: not read yet
}

type auditAppender interface{ Append(approval.Entry) error }

func pausedFact(p ipc.Pause) approval.Entry {
	ws := p.Workspace
	if ws == ipc.Everything {
		ws = ""
	}
	return approval.Entry{Event: approval.EventPaused, Workspace: ws, By: p.By, Via: cmp.Or(p.Via, "cli"), Reason: p.Reason, Detail: "pause " + p.ID}
}

func resumedFact(r ipc.Resumed) approval.Entry {
	e := pausedFact(r.Pause)
	e.Event, e.By, e.Via, e.Reason = approval.EventResumed, r.By, cmp.Or(r.Via, "cli"), ""
	return e
}

func factName(e approval.Entry) string { return string(e.Event) + " " + e.Detail }

// recordNew audits what is not in the log yet.
func (m *pauseAudit) recordNew() error {
	now, err := m.store.Pauses()
	if err != nil {
		return err
	}
	over, err := m.store.Ended()
	if err != nil || len(now)+len(over) == 0 {
		return err
	}
	if err := m.learn(); err != nil {
		return err
	}
	for _, p := range now {
		if err := m.recordOnce(pausedFact(p)); err != nil {
			return err
		}
	}
	for _, r := range over {
		if err := errors.Join(m.recordOnce(pausedFact(r.Pause)), m.recordOnce(resumedFact(r))); err != nil {
			return err
		}
		if err := m.store.Forget(r.Pause.ID); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (m *pauseAudit) recordOnce(e approval.Entry) error {
	if m.known[factName(e)] {
		return nil
	}
	e.Time = time.Now().UTC()
	if err := m.log.Append(e); err != nil {
		return fmt.Errorf("audit pause: %w", err)
	}
	m.known[factName(e)] = true
	return nil
}

// learn reads the log once, and only if there is a pause.
func (m *pauseAudit) learn() error {
	if m.known != nil {
		return nil
	}
	known := map[string]bool{}
	err := audit.Entries(m.store.FS, m.store.Layout.Audit(), func(e approval.Entry) error {
		if e.Event == approval.EventPaused || e.Event == approval.EventResumed {
			known[factName(e)] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.known = known
	return nil
}

// refreshPauses updates log, health and queue after a change of the pauses. The
// gate itself reads them before every claim.
func (s *server) refreshPauses() {
	s.gate.Resumed()
	s.pausing.Lock()
	defer s.pausing.Unlock()
	err := s.pauseAudit.recordNew()
	if err != nil {
		s.log.Error().Err(err).Msg("audit pauses failed")
	}
	list, err := s.store.Pauses()
	if err != nil {
		s.log.Error().Err(err).Msg("list pauses failed")
		return
	}
	now := map[string]bool{}
	for _, p := range list {
		now[p.ID] = true
		if !s.paused[p.ID] {
			s.log.Warn().Str("ws", pausedFact(p).Workspace).Str("by", p.By).Msg("paused: nothing runs until permesso resume")
		}
	}
	for id := range s.paused {
		if !now[id] {
			s.log.Info().Msg("resumed")
		}
	}
	s.paused = now
	s.health.Refresh()
	s.notify("STATUS=" + s.statusLine())
	s.changed(approval.Key{})
}
