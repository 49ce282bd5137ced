package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/policy"
)

var opGrants = get("grants", "/grants", "Grants, newest first", (*Service).grants)

func (s *Service) grants(_ context.Context, c *httpapi.Caller, _ *none) ([]grant.Use, error) {
	m, err := s.Memory()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(m.Grants(), func(g grant.Use) bool { return !c.Sees(g.Workspace) }), nil
}

// GrantBody is a new grant.
type GrantBody struct {
	Workspace  string `json:"workspace,omitempty"` // "": the only one
	Client     string `json:"client_id,omitempty"` // 4 or more digits of an API key; "": the agent with the folder
	Session    string `json:"session_id,omitempty"`
	Tool       string `json:"tool_name,omitempty"`   // "": ActionType, which opens no tool
	ActionType string `json:"action_type,omitempty"` // release-only
	Target     string `json:"target,omitempty"`      // of a tool with a target
	From       string `json:"request_id,omitempty"`  // with Command: the request in Workspace that it is given for
	Command    string `json:"command,omitempty"`     // a command pattern
	Reason     string `json:"reason,omitempty"`
	Life       string `json:"for"`
	Uses       int    `json:"max_uses,omitempty"`
}

var opGrantAdd = post("grant-add", "/grants", "Allow calls of a tool without asking",
	(*Service).grantAdd).forOperator()

func (s *Service) grantAdd(ctx context.Context, c *httpapi.Caller, in *struct{ Body GrantBody }) (*grant.Grant, error) {
	ws, err := ChooseWorkspace(s.Home, in.Body.Workspace)
	if err != nil {
		return nil, err
	}
	w := s.Home.Current().Workspaces[ws]
	in.Body.Workspace = ws
	if !w.LocalDecisions {
		return nil, console.Fail(console.ExitRefused, "an approver can choose \"always\" when a request is pending", "workspace '%s' has local_decisions = false", ws)
	}
	g, err := in.Body.grant(c, time.Now())
	if err != nil {
		return nil, err
	}
	tool, known := s.Home.Current().Tools[in.Body.Tool]
	if in.Body.From != "" {
		g.Terms, err = s.commandTerms(ctx, c, &in.Body)
	} else if in.Body.Client, err = s.clientNamed(in.Body.Client, ws); err == nil {
		g.Terms, err = in.Body.terms(w, tool, known)
	}
	if err != nil {
		return nil, err
	}
	m, err := s.Memory()
	if err != nil {
		return nil, err
	}
	if err := m.SaveGrant(g, store.Durable); err != nil {
		return nil, console.Fail(console.ExitUsage, "permesso grant add --help", "%w", err)
	}
	return g, nil
}

// clientNamed is the client of a workspace that is named by digits of its API key; "": the
// agent with the folder.
func (s *Service) clientNamed(typed, workspace string) (string, error) {
	if folder := submit.FolderClient(workspace); typed == "" || typed == folder {
		return folder, nil
	}
	k, err := s.Home.Keyring(s.Keys).Find(typed)
	switch {
	case err != nil:
		return "", err
	case k.Workspace != workspace || !k.Can(apikey.MayRequest):
		return "", console.Fail(console.ExitRefused, "permesso key list shows the keys", "API key %s cannot request anything in workspace '%s'", k.ID, workspace)
	}
	return k.ClientID(), nil
}

// ChooseWorkspace is the configured workspace with this name. "" is the only one.
func ChooseWorkspace(h *home.Home, name string) (string, error) {
	names := home.WorkspaceNames(h.Current())
	switch {
	case name == "" && len(names) == 1:
		return names[0], nil
	case name == "":
		return "", console.Fail(console.ExitUsage, "workspaces: "+strings.Join(names, ", "), "name one of the %d workspaces", len(names))
	}
	return name, console.CheckWorkspace(name, names)
}

// grant is the grant without its terms.
func (b *GrantBody) grant(c *httpapi.Caller, now time.Time) (*grant.Grant, error) {
	life, err := time.ParseDuration(b.Life)
	switch {
	case err != nil || life <= 0:
		return nil, console.Fail(console.ExitUsage, "write for example --for 24h", "--for %s must be positive", b.Life)
	case (b.From == "") != (b.Command == ""):
		return nil, console.Fail(console.ExitUsage, "permesso grant add --help", "a command pattern needs the request that it is given for, and only that: --from and --command belong together")
	case b.From != "" && b.Client+b.Session+b.Tool+b.ActionType+b.Target != "":
		return nil, console.Fail(console.ExitUsage, "leave out --client, --session, --tool, --action-type and --target", "with --from they are those of the request")
	case b.ActionType != "" && b.Target != "":
		return nil, console.Fail(console.ExitUsage, "leave out --target", "--action-type covers every target")
	case b.Uses < 0:
		return nil, console.Fail(console.ExitUsage, "0 means no limit", "--max-uses %d must not be negative", b.Uses)
	}
	return &grant.Grant{
		Version: grant.Version, ID: client.NewID(), By: c.Person.Name, ByID: c.Person.ID, Via: c.Via, Reason: b.Reason,
		CreatedAt: now.UTC(), ExpiresAt: now.Add(life).UTC(), MaxUses: b.Uses,
	}, nil
}

// commandTerms are what a command pattern allows: requests like that it is given for, but
// with another command.
func (s *Service) commandTerms(ctx context.Context, c *httpapi.Caller, b *GrantBody) (t approval.Terms, err error) {
	var st read.Story
	if k := (approval.Key{Workspace: b.Workspace, ID: b.From}); s.visible(c, k) {
		st, err = s.Viewer.Story(ctx, k)
	}
	if err != nil {
		return t, err
	}
	if st.Pending == nil {
		return t, &decide.Refusal{Reason: decide.ErrUnknown, Hint: "no request with this ID needed an approver"}
	}
	o, _ := st.Pending.Offer(approval.Commands)
	why := grant.WhyNot(st.Pending, approval.Commands)
	if why.IsZero() {
		o.Terms.Words, why = policy.Pattern(st.Pending, b.Command)
	}
	if tool := s.Home.Current().Tools[o.Terms.Tool]; why.IsZero() && o.Terms.Tool != "" && tool.SHA256() != o.Terms.ToolSHA256 {
		why = approval.Because("grant_tool_changed")
	}
	if !why.IsZero() {
		return t, console.Fail(console.ExitRefused, "permesso show "+b.From+" shows the request", "%s", chat.Words{}.Reasons([]approval.Reason{why}))
	}
	return o.Terms, nil
}

// terms are what the grant allows.
func (b *GrantBody) terms(w approval.Workspace, tool approval.Tool, known bool) (approval.Terms, error) {
	t := approval.Terms{
		Workspace: w.Name, ClientID: b.Client, SessionID: b.Session, Tool: b.Tool,
	}
	c, has := facts.CapabilityNamed(tool.Capability)
	like := approval.Request{ToolName: b.Tool, ActionType: b.ActionType, SessionID: b.Session}
	doc, err := like.Encode()
	if err == nil {
		_, err = approval.ParseDraft(doc)
	}
	switch {
	case (b.Tool == "") == (b.ActionType == ""):
		return t, console.Fail(console.ExitUsage, "permesso grant add --help", "name --tool or --action-type")
	case err != nil:
		return t, console.Fail(console.ExitUsage, "permesso grant add --help", "no request can match: %w", err)
	case b.Tool == "" && b.ActionType == "exec_cmd" && !w.RememberExec:
		return t, console.Fail(console.ExitRefused, `set remember_exec_cmd = "any" in the workspace if you mean every command`,
			"a grant for exec_cmd covers the same request only: an approver gives it with the request")
	case b.Tool == "":
		t.Form, t.ActionType = grant.Action, b.ActionType
		return t, nil
	case !known:
		return t, console.Fail(console.ExitError, "tools are in the configuration, under [tools]", "no tool '%s' in the configuration", b.Tool)
	case has && c.Default == facts.AskAlways:
		return t, console.Fail(console.ExitRefused, "a configured rule can allow it if it names the tool and every argument",
			"%s always asks: a grant covers the same request only", c.Name)
	}
	t.Form, t.ToolSHA256 = grant.Tool, tool.SHA256()
	if tool.Target == "" || has && c.TargetKind == "none" {
		if b.Target != "" {
			return t, console.Fail(console.ExitUsage, "leave out --target", "tool '%s' has no target", b.Tool)
		}
		return t, nil
	}
	t.Form, t.TargetKind = grant.Target, "exact"
	if has {
		t.TargetKind = c.TargetKind
	}
	fixed := !strings.ContainsAny(tool.Target, "{}")
	switch {
	case fixed && t.TargetKind == "exact" && b.Target != "" && b.Target != tool.Target:
		return t, console.Fail(console.ExitUsage, "leave out --target", "the target of tool '%s' is always %s", b.Tool, chat.Escape(tool.Target))
	case fixed && b.Target == "":
		b.Target = tool.Target
	}
	if t.Target, err = policy.CheckTarget(t.TargetKind, b.Target); err != nil {
		return t, console.Fail(console.ExitUsage, "set --target to what "+chat.Escape(tool.Target)+" is in the requests", "tool '%s': %w", b.Tool, err)
	}
	return t, nil
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
	g, err := m.Find(in.ID, c.Sees)
	if err != nil || g == nil {
		return "no-op", err
	}
	if done, err := m.RevokeGrant(g.ID, s.name(c, g.Workspace)); err != nil || !done {
		return "no-op", err
	}
	return "revoked", nil
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

func (s *Service) clearTaints(ctx context.Context, c *httpapi.Caller, in *struct{ Body ClearBody }) ([]string, error) {
	return s.ClearTaints(ctx, c, in.Body)
}

// ClearTaints returns what it clears. The caller is the operator.
func (s *Service) ClearTaints(ctx context.Context, c *httpapi.Caller, b ClearBody) ([]string, error) {
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
	x := &grant.Clearing{
		Version: approval.Version, ID: client.NewID(), Workspace: ws, SessionID: b.SessionID,
		By: c.Person.Name, ByID: c.Person.ID, Via: c.Via, Reason: b.Reason, At: time.Now().UTC(),
	}
	body, err := x.Encode()
	if err != nil {
		return nil, err
	}
	k := grant.Key(x.ID)
	body = s.Keys.Seal.Seal(approval.DocClear, k, body)
	if err := s.Home.Store.Commit(ctx, store.Put(approval.DocClear, k, body)); err != nil {
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
	// Others are pauses in the same workspaces.
	Others []ipc.Pause `json:"others,omitempty"`
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
		return "", &decide.Refusal{Reason: decide.ErrNotAuthorized, Hint: "name one of your workspaces: " + strings.Join(c.Workspaces, ", ")}
	}
	// A HOME of an earlier version lacks the folder of pauses.
	if err := s.Home.Layout.PrepareHome(s.Home.FS); err != nil || ws == "" {
		return ipc.AllWorkspaces, err
	}
	names, err := s.Home.Store.Workspaces(ctx)
	if err == nil {
		err = console.CheckWorkspace(ws, names)
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
	s.PausesChanged()
	if err != nil {
		return out, err
	}
	out.Already = !changed
	if now, ok := s.Home.Store.Paused(name); ok {
		out.Pause = now
	}
	if out.Others, err = s.Home.Store.Pauses(); err != nil {
		return out, err
	}
	out.Others = slices.DeleteFunc(out.Others, func(p ipc.Pause) bool {
		return p.Workspace == name || name != ipc.AllWorkspaces && p.Workspace != ipc.AllWorkspaces
	})
	out.Claims, err = s.countClaims(ctx, name)
	return out, err
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
	s.PausesChanged()
	if still, ok := s.Home.Store.Paused(name); ok {
		out.Still = &still
	}
	out.Left, err = s.Home.Store.Pauses()
	out.Left = slices.DeleteFunc(out.Left, func(p ipc.Pause) bool { return p.Workspace != ipc.AllWorkspaces && !c.Sees(p.Workspace) })
	return out, err
}

// KeyList is the keys of the HTTP API, oldest first.
type KeyList struct {
	Keys    []*apikey.Key `json:"keys"`
	Damaged int           `json:"damaged"` // unreadable ones, which are not accepted
}

var opKeys = get("keys", "/keys", "Keys of the HTTP API, oldest first", (*Service).keys).forOperator()

func (s *Service) keys(_ context.Context, _ *httpapi.Caller, _ *none) (l KeyList, err error) {
	l.Keys, l.Damaged, err = s.Home.Keyring(s.Keys).All()
	return l, err
}

// KeyBody is a new key.
type KeyBody struct {
	Workspace string   `json:"workspace"`
	Scopes    []string `json:"scopes"`
	Owner     string   `json:"owner,omitempty"`
	Name      string   `json:"name,omitempty"`

	AuthenticatesSenders bool `json:"authenticates_senders,omitempty"`
}

// NewKey is a created key. Only its hash is stored.
type NewKey struct {
	Key    *apikey.Key `json:"key"`
	Secret string      `json:"secret"`
	Trusts bool        `json:"trusts"` // session ids that it sends are trusted
}

var opKeyCreate = post("key-create", "/keys", "Create a key of the HTTP API", (*Service).createKey).forOperator()

// longestName is the maximum length of a key's name in bytes.
const longestName = 60

func (s *Service) createKey(_ context.Context, c *httpapi.Caller, in *struct{ Body KeyBody }) (out NewKey, err error) {
	b := in.Body
	ws, err := ChooseWorkspace(s.Home, b.Workspace)
	if err != nil {
		return out, err
	}
	w := s.Home.Current().Workspaces[ws]
	switch {
	case b.Owner != "" && !slices.Contains(w.Approvers, b.Owner):
		return out, console.Fail(console.ExitUsage, "approvers of the workspace: "+cmp.Or(strings.Join(w.Approvers, ", "), "none"), "%q is not an approver of workspace '%s'", b.Owner, ws)
	case b.Owner != "" && w.Principal != "" && b.Owner != w.Principal:
		return out, console.Fail(console.ExitRefused, "--owner "+w.Principal+", or no --owner", "workspace '%s' has principal %s: only that person decides there", ws, w.Principal)
	case len(b.Name) > longestName || b.Name != chat.Escape(b.Name):
		return out, console.Fail(console.ExitUsage, "", "--name must be one line of at most %d bytes without invisible characters", longestName)
	}
	out.Secret = newSecret()
	k := apikey.New(out.Secret)
	k.Workspace, k.Scopes, k.Owner, k.Name, k.CreatedAt, k.CreatedBy = ws, b.Scopes, b.Owner, b.Name, time.Now().UTC(), c.Person.Name
	k.AuthenticatesSenders = b.AuthenticatesSenders
	if err := k.Check(); err != nil {
		return out, console.Fail(console.ExitUsage, "permesso key create --help", "%w", err)
	}
	out.Key, out.Trusts = k, w.BindsSessions && k.Can(apikey.MayRequest)
	return out, errors.Join(s.Home.Layout.PrepareAPIKeys(s.Home.FS), s.Home.Keyring(s.Keys).Save(k, store.Durable))
}

// newSecret returns a key: a prefix that secret scanners can find, and 256
// random bits.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return "permesso_" + base64.RawURLEncoding.EncodeToString(b[:])
}

type keyQuery struct {
	ID string `path:"id" doc:"The id of the key or of its client, or its first 4 or more digits."`
}

// RevokedKey is the result of revoking a key: revoked, or no-op.
type RevokedKey struct {
	ID     string `json:"id"`
	Result string `json:"result"`
	// Waiting is how many requests that were made with the key still wait.
	Waiting int `json:"waiting"`
}

var opKeyRevoke = del("key-revoke", "/keys/{id}", "Revoke a key of the HTTP API", (*Service).revokeKey).forOperator()

func (s *Service) revokeKey(ctx context.Context, c *httpapi.Caller, in *keyQuery) (RevokedKey, error) {
	ring := s.Home.Keyring(s.Keys)
	k, err := ring.Find(in.ID)
	if err != nil {
		return RevokedKey{}, err
	}
	out := RevokedKey{ID: k.ID, Result: "no-op"}
	if k.RevokedAt.IsZero() {
		out.Result = "revoked"
		k.RevokedAt, k.RevokedBy = time.Now().UTC(), c.Person.Name
		if err := ring.Save(k, store.Replace); err != nil {
			return out, err
		}
	}
	list, _ := s.Viewer.Waiting(ctx, []string{k.Workspace}) // the key is revoked, whatever waits
	for _, w := range list {
		if w.Pending.ClientID == k.ClientID() {
			out.Waiting++
		}
	}
	return out, nil
}

// keyEnded says when and by whom the key of a client was revoked, "" if it was not.
func (s *Service) keyEnded(client string) string {
	keys, _, _ := s.Home.Keyring(s.Keys).All() // without them a card does not say it
	for _, k := range keys {
		if k.ClientID() == client && !k.RevokedAt.IsZero() {
			return "revoked at " + k.RevokedAt.Local().Format(time.DateTime) + " by " + chat.Escape(k.RevokedBy)
		}
	}
	return ""
}
