package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat/web"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
)

// uiBackend is the data of the web UI besides requests.
func (s *server) uiBackend() web.Backend {
	d := &uiData{server: s}
	return web.Backend{Grants: s.memory, Rules: s.uiRules, Audit: d, WorkspaceInfo: d, Pauser: d}
}

// uiRules returns the configured rules that can match in these workspaces.
func (s *server) uiRules(workspaces []string) (list []web.Rule) {
	for _, r := range s.Current().Rules {
		begin, open := strings.CutSuffix(r.Workspace, "*")
		theirs := slices.ContainsFunc(workspaces, func(ws string) bool {
			return r.Workspace == "" || ws == r.Workspace || open && strings.HasPrefix(ws, begin)
		})
		if theirs {
			list = append(list, web.Rule{Name: r.Name, Match: matchOf(r), Outcome: r.Outcome, Reason: r.Reason})
		}
	}
	return list
}

// matchOf describes the conditions of a rule.
func matchOf(r policy.Rule) (parts []string) {
	for _, p := range []struct{ name, value string }{
		{"tool", r.Tool},
		{"capability", r.Capability},
		{"target", r.Target},
		{"workspace", r.Workspace},
		{"approver", r.Approver},
		{"session", r.Session},
		{"client", r.Client},
	} {
		if p.value != "" {
			parts = append(parts, p.name+" "+p.value)
		}
	}
	for _, c := range r.Args {
		if c.Glob != "" {
			parts = append(parts, c.Field+" like "+c.Glob)
		} else {
			parts = append(parts, c.Field+" = "+string(c.Equals))
		}
	}
	return parts
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
	c := &audit.Check{FS: u.FS, Dir: u.Layout.Audit(), Receipts: map[string]string{}}
	if c.Keys, err = u.TrustedKeys(""); err != nil {
		return "", err
	}
	note := u.AddReceipts(c.Receipts)
	report, err := c.Run()
	if err != nil {
		return "", err
	}
	found = fmt.Sprintf("%d / %d, %d checkpoints, %d other proofs", report.Signed, report.Entries, report.Checkpoints, report.Witnesses)
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
		Timeout: ws.Timeout, Rates: rateLines(cfg.Limits[name]), Taints: u.memory.Taints(name),
	}
	ids, _, err := u.Store.List(ctx, approval.DocPending, name)
	if err != nil {
		return nil, err
	}
	p.Waiting = len(ids)
	found, _, err := u.Viewer(u.keys).Requests(read.Query{Workspaces: []string{name}, Since: time.Now().Add(-statsPeriod)})
	p.Stats = read.NewStats(found)
	return p, err
}

// rateLines formats the policy's limits as in the configuration.
func rateLines(l policy.Limits) (lines []string) {
	for what, rates := range map[string]map[string]policy.Rate{"ask_above": l.Ask, "deny_above": l.Deny} {
		for capability, r := range rates {
			if capability == "" {
				capability = "other"
			}
			lines = append(lines, fmt.Sprintf("%s: %s %d per %s", what, capability, r.Burst, r.Per))
		}
	}
	slices.Sort(lines)
	for _, b := range []struct {
		name string
		b    policy.Budget
	}{{"budget_session", l.Session}, {"budget_day", l.Day}} {
		if b.b != (policy.Budget{}) {
			lines = append(lines, fmt.Sprintf("%s: ask from %d, deny above %d", b.name, b.b.Soft, b.b.Hard))
		}
	}
	return lines
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
