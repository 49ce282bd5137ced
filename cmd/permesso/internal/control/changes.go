package control

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/policy"
)

var opGrants = get("grants", "/grants", "Grants, newest first", (*Service).grants)

func (s *Service) grants(_ context.Context, c *httpapi.Caller, _ *none) ([]approval.GrantUse, error) {
	m, err := s.Memory()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(m.Grants(), func(g approval.GrantUse) bool { return !c.Sees(g.Workspace) }), nil
}

// GrantBody is a new grant.
type GrantBody struct {
	Workspace  string `json:"workspace,omitempty"` // "": the first
	Capability string `json:"capability"`
	Target     string `json:"target,omitempty"`
	Session    string `json:"session_id,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Life       string `json:"for"`
	Uses       int    `json:"max_uses,omitempty"`
	Channel    string `json:"channel,omitempty"`
	Sender     string `json:"sender,omitempty"`
}

var opGrantAdd = post("grant-add", "/grants", "Allow a capability on a target without asking",
	(*Service).grantAdd).forOperator()

func (s *Service) grantAdd(_ context.Context, c *httpapi.Caller, in *struct{ Body GrantBody }) (*approval.Grant, error) {
	ws, err := ChooseWorkspace(s.Home, in.Body.Workspace)
	if err != nil {
		return nil, err
	}
	w := s.Home.Current().Workspaces[ws]
	if !w.LocalDecisions {
		return nil, console.Fail(console.ExitRefused, "an approver can choose \"always\" when a request is pending", "workspace '%s' has local_decisions = false", ws)
	}
	g, err := in.Body.grant(w, c, time.Now())
	if err != nil {
		return nil, err
	}
	g.Workspace = ws
	m, err := s.Memory()
	if err != nil {
		return nil, err
	}
	if err := m.SaveGrant(g, approval.Durable); err != nil {
		return nil, console.Fail(console.ExitUsage, "permesso grant add --help", "%w", err)
	}
	return g, nil
}

// ChooseWorkspace is the configured workspace with this name, or the first.
func ChooseWorkspace(h *home.Home, name string) (string, error) {
	names := home.WorkspaceNames(h.Current())
	if name == "" {
		return names[0], nil
	}
	if !slices.Contains(names, name) {
		return "", console.Fail(console.ExitError, "workspaces: "+strings.Join(names, ", "), "no workspace '%s' in the configuration", name)
	}
	return name, nil
}

func (b *GrantBody) grant(w approval.Workspace, c *httpapi.Caller, now time.Time) (*approval.Grant, error) {
	capability, ok := approval.CapabilityNamed(b.Capability)
	life, err := time.ParseDuration(b.Life)
	switch {
	case !ok:
		return nil, console.Fail(console.ExitUsage, "permesso policy registry lists the capabilities", "%q is not a capability", b.Capability)
	case capability.Default == approval.AskAlways:
		return nil, console.Fail(console.ExitRefused, "a configured rule can allow it if it names the tool and every argument", "%s always asks: a grant cannot allow it", capability.Name)
	case err != nil || life <= 0:
		return nil, console.Fail(console.ExitUsage, "write for example --for 24h", "--for %s must be positive", b.Life)
	case b.Uses < 0:
		return nil, console.Fail(console.ExitUsage, "0 means no limit", "--max-uses %d must not be negative", b.Uses)
	case (b.Channel == "") != (b.Sender == ""):
		return nil, console.Fail(console.ExitUsage, "", "set --channel and --sender together or not at all")
	}
	target, err := policy.CheckTarget(capability, b.Target)
	if err != nil {
		return nil, console.Fail(console.ExitUsage, "permesso policy registry shows the kind of target of each capability", "%w", err)
	}
	channel, sender := gate.GrantHolder(w)
	return &approval.Grant{
		Version: approval.Version, ID: client.NewID(), Kind: approval.GrantTarget, SessionID: b.Session,
		Channel: cmp.Or(b.Channel, channel), Sender: cmp.Or(b.Sender, sender),
		Capability: capability.Name, TargetKind: capability.TargetKind, Target: target,
		By: c.Person.Name, ByID: c.Person.ID, Via: c.Via, Reason: b.Reason, CreatedAt: now.UTC(), ExpiresAt: now.Add(life).UTC(), MaxUses: b.Uses,
	}, nil
}

type grantQuery struct {
	ID string `path:"id" doc:"The grant's id, or its first 4 or more digits."`
}

var opRevoke = del("revoke", "/grants/{id}", "Revoke a grant", (*Service).revoke)

func (s *Service) revoke(_ context.Context, c *httpapi.Caller, in *grantQuery) (string, error) {
	m, err := s.Memory()
	if err != nil {
		return "", err
	}
	g, err := m.Find(in.ID)
	if err != nil || g == nil || !g.RevokedAt.IsZero() || !c.Sees(g.Workspace) {
		return "no-op", err
	}
	g.RevokedAt, g.RevokedBy = time.Now().UTC(), s.name(c, g.Workspace)
	return "revoked", m.SaveGrant(g, approval.Replace)
}

// Taints are those of a workspace and of its sessions.
type Taints struct {
	Workspace string              `json:"workspace"`
	Autonomy  string              `json:"autonomy"`
	Sessions  map[string][]string `json:"sessions"` // "": the whole workspace, any session
}

var opTaints = get("taints", "/taints", "Taints by workspace and session", (*Service).taints)

func (s *Service) taints(_ context.Context, c *httpapi.Caller, _ *none) (list []Taints, err error) {
	m, err := s.Memory()
	if err != nil {
		return nil, err
	}
	cfg := s.Home.Current()
	for _, ws := range home.WorkspaceNames(cfg) {
		if !c.Sees(ws) {
			continue
		}
		t := Taints{ws, cfg.Workspaces[ws].Autonomy, maps.Clone(m.Taints(ws))}
		if t.Sessions == nil {
			t.Sessions = map[string][]string{}
		}
		if _, ok := t.Sessions[""]; !ok {
			t.Sessions[""] = []string{}
		}
		list = append(list, t)
	}
	return list, nil
}

// ClearBody says which taints to clear.
type ClearBody struct {
	Workspace string `json:"workspace"`
	SessionID string `json:"session_id,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

var opClearTaints = post("taints-clear", "/taints/clear", "Clear the taints of a workspace or session",
	(*Service).clearTaints).forOperator()

// clearTaints returns what it clears.
func (s *Service) clearTaints(ctx context.Context, c *httpapi.Caller, in *struct{ Body ClearBody }) ([]string, error) {
	b := in.Body
	ws, err := ChooseWorkspace(s.Home, b.Workspace)
	if err != nil {
		return nil, err
	}
	w := s.Home.Current().Workspaces[ws]
	switch {
	case !w.LocalDecisions:
		return nil, console.Fail(console.ExitRefused, "an approver of this workspace must do it", "workspace '%s' has local_decisions = false", ws)
	case b.SessionID != "" && !w.BindsSessions:
		return nil, console.Fail(console.ExitRefused, "permesso session clear "+ws, "workspace '%s' has binds_sessions = false, so taints apply to all its sessions", ws)
	}
	m, err := s.Memory()
	if err != nil {
		return nil, err
	}
	had := slices.Clone(m.Taints(ws)[b.SessionID])
	x := &approval.Clearing{
		Version: approval.Version, ID: client.NewID(), Workspace: ws, SessionID: b.SessionID,
		By: c.Person.Name, ByID: c.Person.ID, Via: c.Via, Reason: b.Reason, At: time.Now().UTC(),
	}
	body, err := x.Encode()
	if err != nil {
		return nil, err
	}
	k := approval.GrantKey(x.ID)
	body = s.Keys.Seal.Seal(approval.DocClear, k, body)
	if err := s.Home.Store.Create(ctx, approval.DocClear, k, body, approval.Durable); err != nil {
		return nil, err
	}
	return had, m.ApplyChanges(time.Now())
}

// PauseBody is a new pause; without a workspace it is of all.
type PauseBody struct {
	Workspace string `json:"workspace,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// Paused is the result of a pause.
type Paused struct {
	Pause   ipc.Pause `json:"pause"`
	Already bool      `json:"already"`
	Claims  int       `json:"claims"` // running or interrupted
}

var opPause = post("pause", "/pauses", "Pause executions", (*Service).pause)

type resumeQuery struct {
	Workspace string `query:"workspace" doc:"Without one, the pause of all workspaces ends."`
}

// Resumed is the result of resuming.
type Resumed struct {
	Pause  ipc.Pause   `json:"pause"`
	Paused bool        `json:"paused"`          // there was such a pause
	Still  *ipc.Pause  `json:"still,omitempty"` // another pause
	Left   []ipc.Pause `json:"left"`
}

var opResume = del("resume", "/pauses", "Resume paused executions", (*Service).resume)

// pauseTarget is the name of a pause that the caller may make. It needs neither the
// configuration nor keys: a pause must work when they are broken.
func (s *Service) pauseTarget(ctx context.Context, c *httpapi.Caller, ws string) (string, error) {
	if ws == "" && !c.Operator || ws != "" && !c.Sees(ws) {
		return "", &approval.Refusal{Reason: approval.ErrNotAuthorized}
	}
	if err := s.Home.Layout.PreparePauses(s.Home.FS); err != nil || ws == "" {
		return ipc.AllWorkspaces, err
	}
	names, err := s.Home.Store.Workspaces(ctx)
	if err == nil && !slices.Contains(names, ws) {
		err = console.Fail(console.ExitError, "workspaces: "+strings.Join(names, ", "), "no workspace %q", ws)
	}
	return ws, err
}

func (s *Service) pause(ctx context.Context, c *httpapi.Caller, in *struct{ Body PauseBody }) (Paused, error) {
	reason := in.Body.Reason
	if strings.ContainsFunc(reason, unicode.IsControl) || len(reason) > 300 {
		return Paused{}, console.Fail(console.ExitUsage, "use one line of at most 300 bytes",
			"--reason of %d bytes is too long or has control characters", len(reason))
	}
	return s.Pause(ctx, c, in.Body.Workspace, reason)
}

// Pause stops new executions in a workspace ("": in all), and waits for claims that have
// begun.
func (s *Service) Pause(ctx context.Context, c *httpapi.Caller, ws, reason string) (out Paused, err error) {
	name, err := s.pauseTarget(ctx, c, ws)
	if err != nil {
		return out, err
	}
	out.Pause = ipc.Pause{Workspace: name, By: s.name(c, ws), Via: c.Via, At: time.Now().UTC(), Reason: reason}
	changed, err := s.Home.Pause(out.Pause)
	s.pausesChanged()
	if err != nil {
		return out, err
	}
	out.Already = !changed
	if now, ok := s.Home.Store.Paused(name); ok {
		out.Pause = now
	}
	out.Claims, err = s.countClaims(ctx, name)
	return out, err
}

func (s *Service) pausesChanged() {
	if s.PausesChanged != nil {
		s.PausesChanged()
	}
}

// countClaims counts the claims of a workspace, or of all.
func (s *Service) countClaims(ctx context.Context, name string) (n int, err error) {
	names := []string{name}
	if name == ipc.AllWorkspaces {
		if names, err = s.Home.Store.Workspaces(ctx); err != nil {
			return 0, err
		}
	}
	for _, ws := range names {
		ids, _, err := s.Home.Store.List(ctx, approval.DocClaim, ws)
		if err != nil {
			return 0, err
		}
		n += len(ids)
	}
	return n, nil
}

func (s *Service) resume(ctx context.Context, c *httpapi.Caller, in *resumeQuery) (Resumed, error) {
	return s.Resume(ctx, c, in.Workspace)
}

// Resume ends the pause of a workspace ("": of all).
func (s *Service) Resume(ctx context.Context, c *httpapi.Caller, ws string) (out Resumed, err error) {
	name, err := s.pauseTarget(ctx, c, ws)
	if err != nil {
		return out, err
	}
	out.Pause, err = s.Home.Store.Resume(name, s.name(c, ws), c.Via, time.Now().UTC())
	if out.Paused = err == nil; !out.Paused && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	s.pausesChanged()
	if still, ok := s.Home.Store.Paused(name); ok {
		out.Still = &still
	}
	out.Left, err = s.Home.Store.Pauses()
	return out, err
}
