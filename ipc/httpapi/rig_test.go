package httpapi_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/ipc/service"
	"github.com/permesso-dev/permesso/security/receipt"
)

const (
	home  = "personal"
	other = "other"
)

// rig is a real gate with fake handlers, behind the HTTP API.
type rig struct {
	*gatetest.Rig
	t      testing.TB
	view   *read.Viewer
	server *httpapi.Server
	base   string // base URL
	web    *http.Client

	mu      sync.Mutex
	keys    map[string]*apikey.Key // by hash
	secrets map[string]string      // by name
	grants  []grant.Use
	ws      map[string]approval.Workspace
	logs    bytes.Buffer
	feed    *feed
	// territory is that of every tool.
	territory string
	closing   chan func() // receives the function that stops the server; may be nil
}

// newRig starts the server. shape may change the rig before.
func newRig(t testing.TB, shape ...func(*rig)) *rig {
	h := &rig{
		t: t, keys: map[string]*apikey.Key{}, secrets: map[string]string{},
		ws: map[string]approval.Workspace{}, feed: &feed{moved: make(chan struct{})},
	}
	for _, name := range []string{home, other} {
		h.ws[name] = approval.Workspace{
			Name: name, Timeout: time.Hour, Approvers: []string{"ann", "bob"}, LocalDecisions: true, Channels: []string{"telegram", "email"},
			Limits: approval.Limits{Pending: 5000, PerMinute: 100_000, AskPerMinute: 100_000},
		}
	}
	h.Rig = gatetest.New(t, gatetest.Options{
		Dir: gatetest.MemoryFolder(t), Workspaces: slices.Collect(maps.Values(h.ws)),
		Gate: func(g *gate.Gate) { h.serve(g, shape) },
	})
	h.Open()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.base = "http://" + l.Addr().String()
	h.server.Hosts = []string{l.Addr().String()}
	h.web = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	ctx, stopServer := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	h.Run(0)
	wg.Go(func() { require.NoError(t, h.server.Run(ctx, l)) })
	stop := func() { stopServer(); wg.Wait() }
	if h.closing != nil {
		h.closing <- stop
	}
	t.Cleanup(func() {
		stop()
		h.web.CloseIdleConnections()
	})
	h.newKey("agent", home, "", apikey.MayRequest, apikey.MayRead)
	h.newKey("another", home, "", apikey.MayRequest, apikey.MayRead)
	h.newKey("ann", home, "ann", apikey.MayDecide, apikey.MayRead)
	h.newKey("bob", home, "bob", apikey.MayDecide, apikey.MayRead)
	return h
}

// serve wires the server to the gate. shape may change the rig.
func (h *rig) serve(g *gate.Gate, shape []func(*rig)) {
	h.Log.OnEntry = func(x event.Entry) {
		h.Policy.Learn(x)
		h.feed.add(x)
	}
	g.Config, g.Grants = func() (gate.Settings, gate.Policy) { return h, h.Policy }, h
	h.view = &read.Viewer{Store: h.Store, Seal: h.Seal}
	h.server = &httpapi.Server{
		Service: &service.Service{Gate: g, Viewer: h.view, Settings: rigSettings{h}, History: h}, Keys: h, Feed: h.feed, Grants: h,
		Decider: &gate.Decider{Store: h.Store, Seal: h.Seal, Decided: g.Decided, May: h.authorize, Grants: h},
		Ready:   g.Alive, Version: "test", Log: zerolog.New(&h.logs), Receipts: rigReceipts{h},
	}
	for _, f := range shape {
		f(h)
	}
	g.Changed = h.server.Changed
}

func (h *rig) newKey(name, ws, owner string, scopes ...string) {
	secret := "permesso_" + name + strings.Repeat("x", 40)
	k := apikey.New(secret)
	k.Workspace, k.Owner, k.Scopes, k.Name, k.CreatedAt, k.CreatedBy = ws, owner, scopes, name, time.Now(), "test"
	require.NoError(h.t, k.Check())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys[k.Hash], h.secrets[name] = k, secret
}

// Key implements httpapi.Keys.
func (h *rig) Key(hash string) (*apikey.Key, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k, ok := h.keys[hash]
	if !ok {
		return nil, fs.ErrNotExist
	}
	copied := *k
	return &copied, nil
}

func (h *rig) client(name string) string {
	return apikey.New(h.secrets[name]).ClientID()
}

func (h *rig) revoke(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys[approval.Digest([]byte(h.secrets[name]))].RevokedAt = time.Now()
}

// Workspace implements gate.Settings.
func (h *rig) Workspace(name string) (approval.Workspace, bool) {
	ws, ok := h.ws[name]
	return ws, ok
}

// Tool implements gate.Settings.
func (h *rig) Tool(name string) (approval.Tool, bool) {
	t, ok := h.Rig.Tool(name)
	t.Territory = h.territory
	return t, ok
}

func (h *rig) runs() int { return len(h.Executor.Jobs()) }

// authorize allows the approvers of the workspace.
func (h *rig) authorize(ws string, p *approval.Pending, by approval.Person) (string, bool) {
	if p != nil && p.Principal != "" && p.Principal != by.Name {
		return "", false
	}
	return by.Name, slices.Contains(h.ws[ws].Approvers, by.Name)
}

type rigSettings struct{ *rig }

// WorkspaceInfo implements httpapi.Settings.
func (p rigSettings) WorkspaceInfo(name string) (service.WorkspaceInfo, bool) {
	ws, ok := p.ws[name]
	return service.WorkspaceInfo{
		Channels: ws.Channels, Targets: map[string][]string{"telegram": {"123"}, "email": {"ann@example.org"}}, MaxSize: ws.Limits.WithDefaults().RequestSize,
	}, ok
}

// GrantsIn implements httpapi.Grants.
func (h *rig) GrantsIn(ws string) []grant.Use {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.grants), func(c grant.Use) bool { return c.Workspace != ws })
}

// RevokeGrant implements httpapi.Grants.
func (h *rig) RevokeGrant(id, _ string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.grants {
		if h.grants[i].ID == id {
			h.grants[i].RevokedAt = time.Now()
			require.NoError(h.t, h.Policy.AddGrant(h.grants[i].Grant))
		}
	}
	return true, nil
}

// AddFromDecision implements gate.grantStore.
func (h *rig) AddFromDecision(p *approval.Pending, d *approval.Decision) error {
	g := grant.From(p, d)
	h.mu.Lock()
	defer h.mu.Unlock()
	if g == nil || h.Policy.HasGrant(g.ID) {
		return nil
	}
	h.grants = append(h.grants, grant.Use{Grant: *g})
	return h.Policy.AddGrant(*g)
}

// Requests implements the history of a service from the records.
func (h *rig) Requests(q read.Query) (list []*read.Request, more bool, err error) {
	ws := q.Workspaces[0]
	names, err := filepath.Glob(filepath.Join(h.Layout.Records(ws), "*.json"))
	if err != nil {
		return nil, false, err
	}
	view := &read.Viewer{Store: h.Store, Seal: h.Seal}
	for _, name := range names {
		k := approval.Key{Workspace: ws, ID: strings.TrimSuffix(filepath.Base(name), ".json")}
		rec, err := view.Record(context.Background(), k)
		if err != nil || rec == nil {
			continue
		}
		r := &read.Request{Key: k, AskedAt: rec.RequestedAt, Status: rec.Status, ClientID: rec.ClientID}
		if p := view.OpenPending(k, rec.Pending); p != nil {
			r.ClientID = p.ClientID
		}
		if q.Match(r) && (q.Until.IsZero() || rec.RequestedAt.Before(q.Until)) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *read.Request) int { return b.AskedAt.Compare(a.AskedAt) })
	more = len(list) > q.Limit
	return list[:min(q.Limit, len(list))], more, nil
}

// rigReceipts verifies the rig's receipts.
type rigReceipts struct{ *rig }

// Parse implements httpapi.Receipts.
func (p rigReceipts) Parse(text string) (f approval.ReceiptFacts, err error) {
	return p.Verifier.Parse(text)
}

// CheckSubset implements httpapi.Receipts.
func (p rigReceipts) CheckSubset(text string, approved, used []byte) error {
	f, err := p.Parse(text)
	if err != nil {
		return err
	}
	return receipt.CheckSubset(f, approved, used)
}

// Check implements httpapi.Receipts.
func (p rigReceipts) Check(text, tool, argsSHA256 string, _ bool) error {
	f, err := p.Verifier.Parse(text)
	if err != nil {
		return err
	}
	return p.Verifier.Verify(text, f.Workspace, f.RequestID, cmp.Or(tool, f.Tool), cmp.Or(argsSHA256, f.ArgsSHA256))
}

// Redeem implements httpapi.Receipts.
func (p rigReceipts) Redeem(ctx context.Context, f approval.ReceiptFacts, by string) error {
	return p.Store.Commit(ctx, store.Put(approval.DocRedeemed, approval.Key{Workspace: f.Workspace, ID: f.RequestID}, []byte(by)))
}

// feed is an audit feed in memory.
type feed struct {
	mu    sync.Mutex
	all   []event.Entry
	moved chan struct{}
}

func (f *feed) add(e event.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, e)
	close(f.moved)
	f.moved = make(chan struct{})
}

// Since implements httpapi.AuditFeed.
func (f *feed) Since(seq int64, each func(event.Entry) error) error {
	f.mu.Lock()
	all := slices.Clone(f.all)
	f.mu.Unlock()
	for _, e := range all {
		if e.Seq > seq {
			if err := each(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// Moved implements httpapi.AuditFeed.
func (f *feed) Moved() (int64, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) == 0 {
		return 0, f.moved
	}
	return f.all[len(f.all)-1].Seq, f.moved
}

// answer is a response with its decoded body.
type answer struct {
	*http.Response
	body []byte
	json map[string]any
}

// do sends a request with the key of that name; body is a value for json.Marshal, or a
// string that is sent unchanged.
func (h *rig) do(key, method, path string, body any, headers ...string) answer {
	h.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		require.NoError(h.t, err)
		in = bytes.NewReader(raw)
	}
	r, err := http.NewRequest(method, h.base+path, in)
	require.NoError(h.t, err)
	if secret := h.secret(key); secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	return h.send(r)
}

func (h *rig) send(r *http.Request) answer {
	h.t.Helper()
	resp, err := h.web.Do(r)
	require.NoError(h.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(h.t, err)
	a := answer{Response: resp, body: b}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		require.NoError(h.t, json.Unmarshal(b, &a.json), "%s", b)
	}
	return a
}

func (h *rig) secret(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secrets[key]
}

// ask creates a request that a person must decide.
func (h *rig) ask(more ...func(map[string]any)) (id string) {
	h.t.Helper()
	request := map[string]any{"tool_name": "run", "request_data": map[string]any{"text": "hi"}}
	for _, f := range more {
		f(request)
	}
	a := h.do("agent", "POST", "/v1/approvals", request)
	require.Equal(h.t, http.StatusCreated, a.StatusCode, "%s", a.body)
	require.Equal(h.t, "pending", a.json["status"])
	return a.json["approval_id"].(string)
}

func (h *rig) key(id string) approval.Key {
	return approval.Key{Workspace: home, ID: strings.TrimPrefix(id, "appr_")}
}

// requireProblem checks a response's status and the detail of its problem.
func (h *rig) requireProblem(a answer, status int, detail string) {
	h.t.Helper()
	require.Equal(h.t, status, a.StatusCode, "%s", a.body)
	require.Equal(h.t, "application/problem+json", a.Header.Get("Content-Type"))
	require.Equal(h.t, detail, a.json["detail"])
	require.InDelta(h.t, status, a.json["status"], 0)
}

func path(id string, more ...string) string { return "/v1/approvals/" + id + strings.Join(more, "") }

func code(c string) map[string]any { return map[string]any{"code": c} }

func jsonOf(t testing.TB, v any) string {
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}
