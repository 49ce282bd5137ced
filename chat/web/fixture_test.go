package web_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/web"
)

// fixture is an in-memory gate for the pages: it holds pending requests and
// decisions. Tests in cmd/permesso use the real one.
type fixture struct {
	t      *testing.T
	server *web.Server
	base   string // http://127.0.0.1:port
	stop   func()

	mu               sync.Mutex
	now              time.Time
	waiting          map[approval.Key]approval.StoredPending
	decided          map[approval.Key]*approval.Decision
	records          map[approval.Key]*approval.Record
	asked            map[approval.Key]*approval.Pending
	decisions        []decide.Input
	rights           web.Rights
	grants           []grant.Use
	operatorText     string // in rules and workspaces
	history          []*read.Request
	entries          []event.Entry
	pausedWorkspaces []string
	verified         int
	reveals          []approval.Key // audited
	revealErr        error
	reads            int
	blockHistory     chan struct{} // history blocks until it is closed; nil: it does not
	historyReaders   atomic.Int32
	cleared          []string    // workspaces and sessions
	pause            *chat.Pause // of all workspaces, as cards tell it
	proposal         chat.Proposal
	proposalErr      error
}

const workspace = "personal"

var ann = web.User{Person: approval.Person{Channel: "local", ID: "1000", Name: "operator:ann"}, Operator: true}

// newFixture starts a server. Before that, with changes its settings.
func newFixture(t *testing.T, with ...func(w *fixture)) *fixture {
	w := &fixture{
		t: t, now: time.Now(), waiting: map[approval.Key]approval.StoredPending{}, decided: map[approval.Key]*approval.Decision{},
		records: map[approval.Key]*approval.Record{}, asked: map[approval.Key]*approval.Pending{},
		rights: web.Rights{Name: "ann", See: []string{workspace}, Decide: []string{workspace}, Language: "en", Operator: true},
	}
	w.server = &web.Server{
		People: w, Viewer: w, Workspaces: func() []string { return []string{workspace} }, Now: w.clock,
		Backend: web.Backend{
			Grants: w, Audit: w, WorkspaceInfo: w, Pauser: w, Reveal: w.reveal, ClearTaints: w.clearTaints,
			ProposeRule: w.proposeRule,
			Rules: func([]string) []web.Rule {
				w.mu.Lock()
				defer w.mu.Unlock()
				return []web.Rule{{Name: "first" + w.operatorText, Match: []string{"tool x_post" + w.operatorText}, Outcome: approval.Ask, Reason: "see it once" + w.operatorText}}
			},
		},
		Style: func(language string) chat.Style { return chat.Style{Language: language, Paused: w.pauseIn} },
		Log:   func(err error) { t.Log(err) },
	}
	for _, set := range with {
		set(w)
	}
	w.serve()
	return w
}

func (w *fixture) serve() {
	l, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	port := l.Addr().(*net.TCPAddr).Port
	w.base = "http://" + l.Addr().String()
	w.server.BaseURL = w.base
	w.server.Hosts = []string{l.Addr().String(), fmt.Sprintf("localhost:%d", port), fmt.Sprintf("[::1]:%d", port), "gate.test"}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.server.Run(ctx, l) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-done)
	})
	w.t.Cleanup(w.stop)
}

func (w *fixture) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *fixture) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// addRequest adds a pending request.
func (w *fixture) addRequest(n int, change func(p *approval.Pending)) approval.Key {
	id := fmt.Sprintf("a7f3%04x00000000", n)
	p := &approval.Pending{
		Version: 1, RequestID: id, ShortID: id[:8], Type: approval.TypeAction, ToolName: "x_post", ToolSHA256: "t",
		SourceGroup: workspace, RequestData: approval.Raw(`{"text":"Meeting at 5"}`), Timestamp: w.clock().Add(time.Duration(n) * time.Millisecond),
		ExpiresAt: w.clock().Add(time.Hour), ActionType: "send_message", SessionID: "s1", Reversibility: approval.Reversible,
		Summary: "Meeting at 5", Ruling: approval.Ruling{Outcome: approval.Ask, Rule: "trust", Reasons: []approval.Reason{approval.Because("text", "text", "ask: x")}},
	}
	always := approval.Terms{
		Form: grant.Tool, Workspace: workspace, ClientID: "ws:personal", Tool: "x_post", ToolSHA256: "t",
	}
	session := always
	session.SessionID = p.SessionID
	p.Offers = []approval.Offer{
		{Scope: approval.Session, Terms: session, Hours: 24}, {Scope: approval.Always, Terms: always, Hours: 2160},
	}
	if change != nil {
		change(p)
	}
	k := approval.Key{Workspace: p.SourceGroup, ID: p.RequestID}
	w.put(k, p)
	return k
}

func (w *fixture) put(k approval.Key, p *approval.Pending) {
	b, err := p.Encode()
	require.NoError(w.t, err)
	w.mu.Lock()
	w.waiting[k] = approval.StoredPending{Pending: p, SHA256: approval.Digest(b)}
	w.asked[k] = p
	w.mu.Unlock()
	w.server.Changed(k)
}

func (w *fixture) sha(k approval.Key) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting[k].SHA256
}

// settle ends a request.
func (w *fixture) settle(k approval.Key, status approval.Status) {
	w.mu.Lock()
	p := w.asked[k]
	delete(w.waiting, k)
	response, err := (&approval.Response{Version: 1, RequestID: k.ID, Status: status, RespondedAt: w.now, Result: approval.Raw(`"done\n"`)}).Encode()
	require.NoError(w.t, err)
	w.records[k] = &approval.Record{
		Version: 1, RequestID: k.ID, Workspace: k.Workspace, Status: status, Pending: approval.Raw(`{}`), RequestedAt: p.Timestamp,
		EndedAt: w.now, Response: response, Decision: approval.Raw(`{}`),
	}
	w.mu.Unlock()
	w.server.Changed(k)
}

func (w *fixture) decisionCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.decisions)
}

func (w *fixture) reveal(_ context.Context, u web.User, k approval.Key) (*approval.StoredPending, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.revealErr != nil {
		return nil, w.revealErr
	}
	w.reveals = append(w.reveals, k)
	return new(w.waiting[k]), nil
}

// Decide implements chat.Decider.
func (w *fixture) Decide(_ context.Context, a decide.Input) (*approval.Decision, error) {
	d, err := w.decide(a)
	if err == nil {
		w.server.Changed(a.Key) // as the daemon does
	}
	return d, err
}

// decide checks a decision in the same order as the gate.
func (w *fixture) decide(a decide.Input) (*approval.Decision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.rights.Decide, a.Key.Workspace) {
		return nil, &decide.Refusal{Reason: decide.ErrNotAuthorized}
	}
	if d := w.decided[a.Key]; d != nil {
		return nil, &decide.Refusal{Reason: decide.ErrDecided, By: d.DecidedBy, At: d.DecidedAt, Verdict: d.Verdict}
	}
	now, ok := w.waiting[a.Key]
	switch {
	case !ok:
		return nil, &decide.Refusal{Reason: decide.ErrUnknown}
	case a.PendingSHA256 != now.SHA256:
		return nil, &decide.Refusal{Reason: decide.ErrChanged, Hint: "look at it again"}
	case !w.now.Before(now.Pending.ExpiresAt):
		return nil, &decide.Refusal{Reason: decide.ErrTooLate, Hint: "it expired"}
	}
	d := &approval.Decision{
		Version: 1, RequestID: a.Key.ID, Approved: a.Verdict == approval.Approved, Verdict: a.Verdict, Code: a.Code, Scope: a.Scope,
		Note: a.Note, Override: a.Override, Feedback: a.Feedback, Answer: a.Text, PendingSHA256: a.PendingSHA256,
		DecidedBy: "ann", Via: a.Via, DecidedAt: w.now, RunBefore: w.now.Add(time.Minute),
	}
	if a.Commands != "" {
		d.Commands = strings.Fields(a.Commands)
	}
	w.decided[a.Key] = d
	w.decisions = append(w.decisions, a)
	return d, nil
}

// Waiting implements web.viewer.
func (w *fixture) Waiting(_ context.Context, workspaces []string) (list []approval.StoredPending, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	for k, p := range w.waiting {
		if slices.Contains(workspaces, k.Workspace) {
			list = append(list, p)
		}
	}
	return list, nil
}

// Find implements chat.viewer.
func (*fixture) Find(context.Context, []string, string) ([]approval.Key, error) { return nil, nil }

// Story implements web.viewer.
func (w *fixture) Story(_ context.Context, k approval.Key) (st read.Story, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.Record = w.records[k]; st.Record != nil {
		st.Pending, st.Decision = w.asked[k], w.decided[k]
	} else if p, ok := w.waiting[k]; ok {
		st.Pending, st.SHA256, st.Decision = p.Pending, p.SHA256, w.decided[k]
	}
	return st, nil
}

// Decided implements web.viewer.
func (w *fixture) Decided(_ context.Context, p approval.StoredPending) (*approval.Decision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.decided[p.Key()], nil
}

// Rights implements web.people.
func (w *fixture) Rights(web.User) web.Rights {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rights
}

func (w *fixture) allow(change func(r *web.Rights)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.rights)
}

// May implements web.people.
func (w *fixture) May(_ web.User, ws string, p *approval.Pending) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.rights.Decide, ws) && (p == nil || p.Principal == "" || p.Principal == "ann")
}

// Interceptor implements web.people.
func (w *fixture) Interceptor(web.User) *chat.Interceptor {
	return &chat.Interceptor{Decider: w, Viewer: w, Revoker: w, Paused: w.pauseIn}
}

func (w *fixture) pauseIn(string) *chat.Pause {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pause
}

// setPause begins a pause of all workspaces, or ends it with nil.
func (w *fixture) setPause(p *chat.Pause) {
	w.mu.Lock()
	w.pause = p
	w.mu.Unlock()
	w.server.Changed(approval.Key{})
}

// Given implements chat.revoker.
func (w *fixture) Given(p *approval.Pending, d *approval.Decision) *grant.Grant {
	return grant.From(p, d)
}

// Remembered implements chat.revoker.
func (w *fixture) Remembered(_ context.Context, workspaces []string) (list []grant.Grant, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.grants {
		if c.RevokedAt.IsZero() && slices.Contains(workspaces, c.Workspace) {
			list = append(list, c.Grant)
		}
	}
	return list, nil
}

// Revoke implements chat.revoker.
func (w *fixture) Revoke(_ context.Context, g grant.Grant, _ approval.Person) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.grants {
		if w.grants[i].ID == g.ID && w.grants[i].RevokedAt.IsZero() {
			w.grants[i].RevokedAt = w.now
			return true, nil
		}
	}
	return false, nil
}

// GrantsIn implements web.grants.
func (w *fixture) GrantsIn(ws string) (list []grant.Use) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.grants {
		if c.Workspace == ws {
			list = append(list, c)
		}
	}
	return list
}

// Requests implements web.history.
func (w *fixture) Requests(q read.Query) ([]*read.Request, bool, error) {
	w.historyReaders.Add(1)
	defer w.historyReaders.Add(-1)
	if w.blockHistory != nil {
		<-w.blockHistory
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Clone(w.history)
	if len(list) > q.Limit {
		return list[:q.Limit], true, nil
	}
	return list, false, nil
}

// Entries implements web.audit.
func (w *fixture) Entries(context.Context, read.EntryQuery) ([]event.Entry, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.entries), false, nil
}

// Verify implements web.audit.
func (w *fixture) Verify(context.Context) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verified++
	return "12 entries", nil
}

// Workspace implements web.workspaceInfo.
func (w *fixture) Workspace(_ context.Context, ws string) (*web.Workspace, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	median, share := 1.2, 1.0
	more := w.operatorText
	return &web.Workspace{
		Name: ws, Autonomy: "supervised" + more, Approvers: []string{"ann" + more}, Principal: more, Channels: []string{"telegram" + more}, Timeout: 5 * time.Minute,
		Taints: map[string][]string{"ws:" + ws + more: {"secret" + more}}, Rates: []string{"ask_above: network:http 10 per 1m0s" + more},
		Stats: &read.Stats{Requests: 40, Median: &median, Approvers: []read.Tally{{Name: "ann" + more, Decided: 40, Approved: 40, Share: &share, Median: &median, Hasty: 39}}},
	}, nil
}

// Paused implements web.workspaceInfo.
func (w *fixture) Paused(ws string) (own, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.pausedWorkspaces, ws), slices.Contains(w.pausedWorkspaces, "")
}

// Pause implements web.pauser.
func (w *fixture) Pause(_ context.Context, ws string, _ approval.Person, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pausedWorkspaces = append(w.pausedWorkspaces, ws)
	return nil
}

// Resume implements web.pauser.
func (w *fixture) Resume(_ context.Context, ws string, _ approval.Person) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pausedWorkspaces = slices.DeleteFunc(w.pausedWorkspaces, func(s string) bool { return s == ws })
	return nil
}
