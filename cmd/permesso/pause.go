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
		Use: "pause [WORKSPACE]", Short: "Hold everything that would run, until resume", Args: cobra.MaximumNArgs(1),
		Long: "Hold everything that would run, allowed or approved, in one workspace or in all, until permesso resume.\n\n" +
			"When it returns, nothing more is started; what runs already goes on. People are still asked and may\n" +
			"decide; what was approved and is not started before its time ends as expired. A pause survives a\n" +
			"restart, and works with the gate stopped, too.",
		ValidArgsFunction: a.completeWorkspaces,
		RunE: func(_ *cobra.Command, pos []string) error {
			if strings.ContainsFunc(reason, unicode.IsControl) || len(reason) > 300 {
				return fail(codeUsage, "say it in one line of at most 300 bytes", "the reason cannot be shown on a card")
			}
			return a.pause(pos, reason)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "`text` for those who wonder why nothing runs")
	return c
}

func (a *app) resumeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "resume [WORKSPACE]", Short: "End a pause: what was held runs", Args: cobra.MaximumNArgs(1),
		Long: "End a pause: what was held runs now, unless its time is over.\n\n" +
			"Without WORKSPACE it ends the pause of everything; workspaces that were paused by name stay so.",
		ValidArgsFunction: a.completeWorkspaces,
		RunE:              func(_ *cobra.Command, pos []string) error { return a.resume(pos) },
	}
}

// pausable is the house and the name of what is to be paused or resumed. It
// asks neither the configuration nor the keys: whoever wants to stop the gate
// may want it because they are broken.
func (a *app) pausable(pos []string) (*house, string, error) {
	home, err := config.LocateHome(a.homeFlag, a.Env)
	if err != nil {
		return nil, "", err
	}
	h := &house{layout: ipc.Layout{Home: home}, fs: ipc.OS()}
	h.store = &ipc.Store{FS: h.fs, Layout: h.layout}
	if _, err := h.fs.Stat(h.layout.IPC()); err != nil {
		return nil, "", fail(codeError, "permesso init makes one; or name another --home", "no gate lives in %s", home)
	}
	if err := h.layout.PreparePauses(h.fs); err != nil || len(pos) == 0 {
		return h, ipc.Everything, err
	}
	names, err := h.store.Workspaces()
	if err != nil {
		return nil, "", err
	}
	if !slices.Contains(names, pos[0]) {
		return nil, "", fail(codeError, "the workspaces are: "+strings.Join(names, ", "), "no workspace %q", pos[0])
	}
	return h, pos[0], nil
}

// claimPatience is how long pause waits for claims that have begun.
const claimPatience = 10 * time.Second

func (a *app) pause(pos []string, reason string) error {
	h, name, err := a.pausable(pos)
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
		text += fmt.Sprintf("\n%d already running or to be finished: see permesso status", running)
	}
	return a.print(p, text)
}

// running counts what has begun in a workspace, or everywhere, and is not over.
func (h *house) running(name string) (n int, err error) {
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

// awaitClaims waits until nothing can be started any more that saw no pause.
func (h *house) awaitClaims(name string) error {
	deadline := time.Now().Add(claimPatience)
	return h.store.AwaitClaims(name, func() error {
		if time.Now().After(deadline) {
			return fail(codeError, "what begins from now on is held; see permesso status",
				"it is paused, but something that began before is still being started")
		}
		time.Sleep(time.Millisecond)
		return nil
	})
}

func (a *app) resume(pos []string) error {
	h, name, err := a.pausable(pos)
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
		return fail(codeError, "permesso resume, without a workspace, ends the pause of everything", "%s is not paused by itself: %s", name, pauseLine(still))
	case err != nil:
		return a.print(struct{}{}, "nothing is paused here")
	case held:
		return a.print(p, "resumed, but still "+pauseLine(still))
	}
	text := "resumed: what was held runs"
	if left, err := h.store.Pauses(); err == nil && name == ipc.Everything && len(left) > 0 {
		text = "resumed, except for what was paused by name:"
		for _, p := range left {
			text += " " + p.Workspace
		}
	}
	return a.print(p, text)
}

// pauseLine is a pause in a few words, for the command line.
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

// pausedIn tells a card whether its workspace is paused.
func (h *house) pausedIn(ws string) *chat.Pause {
	if h.store == nil {
		return nil // another user's gate: its status says it
	}
	p, ok := h.store.Paused(ws)
	if !ok {
		return nil
	}
	return &chat.Pause{By: strings.TrimPrefix(p.By, "operator:"), Since: p.At, Reason: p.Reason}
}

// minutes writes pauses and their ends into the audit log, each once, however
// often the daemon is killed meanwhile: a pause is known by its id, and its
// file stays until the log has it.
type minutes struct {
	store *ipc.Store
	log   gateAudit
	known map[string]bool // facts that stand in the log; nil: not read yet
}

type gateAudit interface{ Append(approval.Entry) error }

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

// take writes down what is not in the log yet.
func (m *minutes) take() error {
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
		if err := m.write(pausedFact(p)); err != nil {
			return err
		}
	}
	for _, r := range over {
		if err := errors.Join(m.write(pausedFact(r.Pause)), m.write(resumedFact(r))); err != nil {
			return err
		}
		if err := m.store.Forget(r.Pause.ID); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (m *minutes) write(e approval.Entry) error {
	if m.known[factName(e)] {
		return nil
	}
	e.Time = time.Now().UTC()
	if err := m.log.Append(e); err != nil {
		return fmt.Errorf("write down a pause: %w", err)
	}
	m.known[factName(e)] = true
	return nil
}

// learn reads the log, once, and only where there is a pause to look up.
func (m *minutes) learn() error {
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

// lookAtPauses follows what happened in the folder of pauses. The gate itself
// looks there before every claim: this is only for the log and for what is held.
func (s *server) lookAtPauses() {
	s.gate.Resumed()
	s.pausing.Lock()
	defer s.pausing.Unlock()
	err := s.minutes.take()
	if err != nil {
		s.log.Error().Err(err).Msg("pauses")
	}
	list, err := s.store.Pauses()
	if err != nil {
		s.log.Error().Err(err).Msg("pauses")
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
	s.health.Beat()
	s.notify("STATUS=" + s.inAWord())
	s.changed(approval.Key{})
}
