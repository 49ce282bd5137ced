package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/web"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
)

// newUI wires the web UI.
func (s *server) newUI() *web.Server {
	var errs rateLimited
	return &web.Server{
		People: uiPeople{s}, Viewer: s.Viewer(s.keys), Style: s.uiStyle,
		Workspaces: func() []string { return home.WorkspaceNames(s.Current()) }, Backend: s.uiBackend(),
		Log: func(err error) {
			if errs.allow("") {
				s.log.Error().Err(err).EmbedObject(console.Advice{Err: err}).Str("via", web.Via).Msg("web UI failed")
			}
		},
	}
}

// openWebUI listens on the configured address; nil without one.
func (s *server) openWebUI() ([]part, error) {
	if s.Config.UI == "" || s.script != nil { // no people with a script
		return nil, nil
	}
	l, err := listenUI(s.Config)
	if err != nil {
		return nil, err
	}
	if at := l.Addr().String(); at != s.Config.UI && !s.Config.UISet {
		s.log.Warn().Str("path", at).Msg("web UI uses another port: " + s.Config.UI + " is in use; set ui to a free address")
	}
	s.ui.Hosts = names(l.Addr(), s.Config.ListenHosts)
	s.ui.BaseURL = "http://" + l.Addr().String()
	s.health.Update(func(r *home.HealthReport) { r.UI = s.ui.BaseURL })
	s.log.Info().Str("path", l.Addr().String()).Msg("web UI listening")
	return []part{{func(ctx context.Context) error { return s.ui.Run(ctx, l) }, []io.Closer{l}}}, nil
}

func listenUI(cfg *config.Config) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", cfg.UI)
	if errors.Is(err, syscall.EADDRINUSE) && !cfg.UISet {
		host, _, splitErr := net.SplitHostPort(cfg.UI)
		if splitErr != nil {
			return nil, splitErr
		}
		l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, console.Wrap(console.ExitError, fmt.Errorf("web UI: listen on %s: %w", cfg.UI, err), "set ui to another address, or to false to turn it off")
	}
	return l, nil
}

// giveLink logs who gets a link, but never the link. It is "" without a web UI.
func (s *server) giveLink(g web.User) (string, time.Duration, error) {
	if s.ui.BaseURL == "" {
		return "", 0, nil
	}
	address, life, err := s.ui.Link(g)
	if err == nil {
		s.log.Info().Str("by", g.Person.StableID()).Str("via", web.Via).Msg("web UI link issued")
	}
	return address, life, err
}

// uiPeople implements web.People.
type uiPeople struct{ *server }

// Rights implements web.People.
func (u uiPeople) Rights(g web.User) web.Rights {
	may, all := u.authorizer().May, home.WorkspaceNames(u.Current())
	r := web.Rights{Operator: g.Operator, Language: u.languageOf(g.Person)}
	for _, ws := range all {
		if name, ok := may(ws, nil, g.Person); ok {
			r.Name, r.Decide = name, append(r.Decide, ws)
		}
	}
	if r.See = r.Decide; g.Operator {
		r.See = all
	}
	return r
}

// May implements web.People.
func (u uiPeople) May(g web.User, ws string, p *approval.Pending) bool {
	_, ok := u.authorizer().May(ws, p, g.Person)
	return ok
}

// Interceptor implements web.People.
func (u uiPeople) Interceptor(web.User) *chat.Interceptor {
	ic := u.interceptor()
	ic.Local = true
	return ic
}

// uiStyle is the style of the web UI; "" is the configured language.
func (s *server) uiStyle(language string) chat.Style {
	style := s.style(language)
	style.Foot, style.Local, style.Buttons = s.foot(), true, true
	return style
}

// uiBackend is the data of the web UI besides requests.
func (s *server) uiBackend() web.Backend {
	d := &uiData{server: s}
	return web.Backend{
		Grants: s.memory, Rules: s.uiRules, Audit: d, WorkspaceInfo: d, Pauser: d,
		Reveal: s.uiReveal, ClearTaints: s.uiClearTaints, ProposeRule: s.uiProposeRule, Push: s.push,
	}
}

// uiClearTaints is permesso session clear. The session counts only where the host names it.
func (s *server) uiClearTaints(ctx context.Context, u web.User, workspace, session string) error {
	b := control.ClearBody{Workspace: workspace}
	if s.Current().Workspaces[workspace].BindsSessions {
		b.SessionID = session
	}
	_, err := s.control.ClearTaints(ctx, s.uiCaller(u), b)
	return err
}

func (s *server) uiCaller(u web.User) *httpapi.Caller {
	return &httpapi.Caller{Person: u.Person, Via: web.Via, Operator: u.Operator, Workspaces: uiPeople{s}.Rights(u).See}
}

// uiReveal returns a request to show what its card masks.
func (s *server) uiReveal(ctx context.Context, u web.User, k approval.Key) (*approval.StoredPending, error) {
	return s.control.Reveal(ctx, s.uiCaller(u), k)
}

// uiProposeRule is permesso rule add --from.
func (s *server) uiProposeRule(ctx context.Context, u web.User, k approval.Key) (chat.Proposal, error) {
	return s.control.ProposeRule(ctx, s.uiCaller(u), k)
}

// uiRules returns the configured rules that can match in these workspaces.
func (s *server) uiRules(workspaces []string) (list []web.Rule) {
	cfg := s.Current()
	for i, r := range cfg.Rules {
		if slices.ContainsFunc(workspaces, r.Workspace.Include) {
			match := written(cfg, fmt.Sprintf("rules[%d].match.", i+1), "")
			list = append(list, web.Rule{Name: r.Name, Match: match, Outcome: r.Outcome, Reason: r.Reason})
		}
	}
	return list
}

// written returns the keys below a table that begin so, as the configuration sets them.
func written(cfg *config.Config, table, begin string) (lines []string) {
	for _, s := range cfg.Settings {
		if key, ok := strings.CutPrefix(s.Key, table); ok && strings.HasPrefix(key, begin) && s.Line > 0 {
			lines = append(lines, key+" = "+s.Text())
		}
	}
	return lines
}

// uiData is the daemon as the web UI reads and changes it.
type uiData struct {
	*server
	verifying sync.Mutex
}

// Entries implements web.Audit.
func (u *uiData) Entries(ctx context.Context, q read.EntryQuery) (list []event.Entry, more bool, err error) {
	q.Line = home.EntryLine
	return read.Entries(ctx, u.ReadLog, q)
}

// Verify implements web.Audit.
func (u *uiData) Verify(context.Context) (found string, err error) {
	if !u.verifying.TryLock() {
		return "", web.ErrBusy
	}
	defer u.verifying.Unlock()
	c := &audit.Check{FS: u.FS, Dir: u.Layout.Audit()}
	if c.Keys, err = u.TrustedKeys(""); err != nil {
		return "", err
	}
	note, err := u.AddRecords(c)
	if err != nil {
		return "", err
	}
	report, err := c.Run()
	if err != nil {
		return "", err
	}
	found = fmt.Sprintf("%d / %d, %s, %s", report.Signed, report.Entries, hints.Plural(report.Checkpoints, "checkpoint"), hints.Plural(report.Witnesses, "other proof"))
	if note != "" {
		found += "; " + note
	}
	return found, nil
}

// statsPeriod is the period of the statistics of approvers.
const statsPeriod = 30 * 24 * time.Hour

// Workspace implements web.WorkspaceInfo.
func (u *uiData) Workspace(ctx context.Context, name string) (*web.Workspace, error) {
	cfg := u.Current()
	ws, ok := cfg.Workspaces[name]
	if !ok {
		return nil, nil
	}
	p := &web.Workspace{
		Name: name, Autonomy: ws.Autonomy, Principal: ws.Principal, Approvers: ws.Approvers, Channels: ws.Channels, Limits: ws.Limits,
		Timeout: ws.Timeout, Taints: u.memory.Taints(name),
	}
	for _, key := range []string{"ask_above.", "deny_above.", "budget_session.", "budget_day."} {
		p.Rates = append(p.Rates, written(cfg, "workspaces."+name+".", key)...)
	}
	ids, _, err := u.Store.List(ctx, approval.DocPending, name)
	if err != nil {
		return nil, err
	}
	p.Waiting = len(ids)
	p.Stats, err = u.Viewer(u.keys).Stats(read.Query{Workspaces: []string{name}, Since: time.Now().Add(-statsPeriod)})
	return p, err
}

// Paused implements web.WorkspaceInfo.
func (u *uiData) Paused(ws string) (own, all bool) {
	list, err := u.Store.Pauses()
	if err != nil {
		return true, true // the gate pauses everything if it cannot read the pauses
	}
	for _, p := range list {
		own = own || p.Workspace == ws
		all = all || p.Workspace == ipc.AllWorkspaces
	}
	return own, all
}

// Pause implements web.Pauser.
func (u *uiData) Pause(ctx context.Context, ws string, by approval.Person, reason string) error {
	_, err := u.control.Pause(ctx, pauser(ws, by, web.Via), ws, reason)
	return err
}

// Resume implements web.Pauser.
func (u *uiData) Resume(ctx context.Context, ws string, by approval.Person) error {
	_, err := u.control.Resume(ctx, pauser(ws, by, web.Via), ws)
	return err
}
