package telegram_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/seal"
)

// The users and chats of these tests. ann and bob may decide in personal, carl in other, eve nowhere.
const (
	ann, bob, carl, eve int64 = 1001, 1002, 1003, 6666
	family              int64 = -1001000000001 // a group that is asked about personal
	forum               int64 = -1001000000002

	personal = "personal"
	other    = "other"

	testTimeout = 2 * time.Minute
)

// rig is a real gate with fake handlers, a Telegram channel, and a strict fake of Telegram.
type rig struct {
	t       testing.TB
	api     *botapi.Server
	layout  ipc.Layout
	store   *ipc.Store
	seal    *seal.Key
	gate    *gate.Gate
	handler *fakeHandler
	revoker *fakeGrants
	changes chan approval.Key
	pause   fakePause

	mu         sync.Mutex
	workspaces []deliver.Workspace
	approvers  map[string][]string // IDs by workspace
	problem    string
	logged     []string
	refused    []approval.Person
	quiet      approval.QuietHours
	style      func(*chat.Style)
	nextUpdate int64
	asked      int       // requests of passes
	writesFail bool      // writes to the sent store fail
	startedAt  time.Time // when the channel was last started

	ctx   context.Context
	stops []func()
}

// fakeHandler counts its runs.
type fakeHandler struct {
	mu   sync.Mutex
	runs map[string]int
	slow time.Duration
	fail string
}

func (h *fakeHandler) Resume(ctx context.Context, job approval.Job) approval.Effect {
	return h.Run(ctx, job)
}

func (h *fakeHandler) Run(_ context.Context, job approval.Job) approval.Effect {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs = map[string]int{}
	}
	h.runs[job.RequestID]++
	time.Sleep(h.slow)
	if h.fail != "" {
		return approval.Effect{Error: h.fail}
	}
	return approval.Effect{Result: approval.Raw(`"done"`)}
}

func (h *fakeHandler) count(k approval.Key) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[k.ID]
}

// newRig starts a rig that asks about personal in these places, by default in ann's private chat.
func newRig(t testing.TB, places ...deliver.Place) *rig {
	t.Helper()
	if len(places) == 0 {
		places = []deliver.Place{{Address: at(ann, 0)}}
	}
	h := &rig{
		t: t, api: &botapi.Server{}, handler: &fakeHandler{}, revoker: &fakeGrants{},
		changes:   make(chan approval.Key, 256),
		approvers: map[string][]string{personal: {"1001", "1002"}, other: {"1003"}},
		workspaces: []deliver.Workspace{
			{Name: personal, Language: "en", Places: places},
			{Name: other, Language: "en", Places: []deliver.Place{{Address: at(carl, 0)}}},
		},
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	h.ctx = ctx
	t.Cleanup(stop)
	require.NoError(t, h.api.Listen())
	t.Cleanup(h.api.Close)
	for id, name := range map[int64]string{ann: "Ann", bob: "Bob", carl: "Carl", eve: "Eve"} {
		h.api.AddUser(botapi.User{ID: id, FirstName: name, Username: strings.ToLower(name)})
		h.api.Open(id)
	}
	h.api.AddChat(botapi.Chat{ID: family, Type: botapi.Supergroup, Title: "Family"})
	h.api.AddChat(botapi.Chat{ID: forum, Type: botapi.Supergroup, Title: "Forum", IsForum: true})
	h.openGate()
	t.Cleanup(h.stopChannel)
	return h
}

func (h *rig) openGate() {
	limits := approval.Limits{RequestSize: 4 << 20}
	g := gatetest.New(h.t, gatetest.Options{
		Dir: gatetest.MemoryFolder(h.t), Workspaces: []approval.Workspace{{Name: personal, Limits: limits}, {Name: other, Limits: limits}},
		Gate: func(g *gate.Gate) {
			_, policy := g.Config()
			g.Config = func() (gate.Settings, gate.Policy) { return h, policy }
			g.Executor, g.Changed, g.Pauses = h.handler, h.changed, &h.pause
		},
	})
	g.Open()
	g.Run(0)
	h.layout, h.store, h.seal, h.gate = g.Layout, g.Store, g.Seal, g.Gate
}

func (h *rig) changed(k approval.Key) {
	select {
	case h.changes <- k:
	default:
	}
}

// Workspace implements gate.Settings.
func (h *rig) Workspace(name string) (approval.Workspace, bool) {
	if name != personal && name != other {
		return approval.Workspace{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return approval.Workspace{
		Name: name, Autonomy: grant.Supervised, Timeout: time.Hour, MaxTimeout: 24 * time.Hour, QuietHours: h.quiet,
		Limits: approval.Limits{Pending: 1000, AskPerMinute: 10000, PerMinute: 100000, RequestSize: 4 << 20},
	}, true
}

// Provers implements gate.Settings.
func (*rig) Provers() facts.Provers { return nil }

// ToolNames implements gate.Settings.
func (*rig) ToolNames() []string { return []string{"auto", "note", "x_post"} }

// Tool implements gate.Settings.
func (h *rig) Tool(name string) (approval.Tool, bool) {
	if !slices.Contains(h.ToolNames(), name) {
		return approval.Tool{}, false
	}
	writes := approval.Property("true")
	if name == "auto" {
		writes = "false"
	}
	summary := "{text}"
	if name == "note" {
		summary = "" // its card shows the arguments only
	}
	return approval.Tool{
		Name: name, ActionType: "send_message", Verb: map[string]string{"en": "post", "it": "pubblichi su X"},
		Summary: summary, Target: "x.com/ricardo", Reversibility: approval.Irreversible, Territory: "none",
		Trust:   approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: writes},
		Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/true"}},
		Args:    map[string]approval.Argument{"text": {Type: "text", Optional: true}, "to": {Type: "recipients", Optional: true}, "n": {Type: "number", Optional: true}},
	}, true
}

// May implements telegram.guard; Decide uses it too.
func (h *rig) May(ws string, _ *approval.Pending, by approval.Person) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := map[string]string{"1001": "ann", "1002": "bob", "1003": "carl", "9": "operator:root"}
	ok := by.Channel == "telegram" && slices.Contains(h.approvers[ws], by.ID) || by.Channel == "local"
	return names[by.ID], ok
}

// Refused implements telegram.guard.
func (h *rig) Refused(_ approval.Key, by approval.Person) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = append(h.refused, by)
}

func (h *rig) decider() *gate.Decider {
	return &gate.Decider{
		Store: h.store, Seal: h.seal, May: h.May, Decided: h.gate.Decided,
		Refused: func(k approval.Key, by approval.Person, _ string) { h.Refused(k, by) },
	}
}

func (h *rig) viewer() *read.Viewer { return &read.Viewer{Store: h.store, Seal: h.seal} }

// channel is a delivery channel with its adapter.
type channel struct {
	*deliver.Channel
	*telegram.Adapter
}

// at is a chat, or a topic of it.
func at(chatID, thread int64) deliver.Address {
	return deliver.Address{Chat: deliver.NumberID(chatID), Thread: deliver.NumberID(thread)}
}

// channel returns a channel, wired like the one of cmd/permesso.
func (h *rig) channel() *channel {
	notebook := &ipc.SentStore{Store: h.store, Channel: "telegram"}
	updates, err := notebook.State("updates")
	require.NoError(h.t, err)
	notes, err := notebook.State("notes")
	require.NoError(h.t, err)
	adapter := &telegram.Adapter{Token: botapi.Token, ServerURL: h.api.URL, Updates: updates}
	return &channel{Adapter: adapter, Channel: &deliver.Channel{
		Name: telegram.Via, Adapter: adapter, State: notes, Sent: notebook,
		Viewer: h.viewer(), Guard: h, Changes: h.changes, Every: 50 * time.Millisecond, Retry: 10 * time.Millisecond,
		Interceptor: &chat.Interceptor{Decider: h.decider(), Viewer: h.viewer(), Revoker: h.revoker, CanDecide: h.decider().CanDecide},
		Workspaces: func() []deliver.Workspace {
			h.mu.Lock()
			defer h.mu.Unlock()
			return slices.Clone(h.workspaces)
		},
		Style: func(language string) chat.Style {
			s := chat.Style{Language: language}
			if h.style != nil {
				h.style(&s)
			}
			return s
		},
		Foot: func() string { return "log 1042 9f3c" },
		Configure: func(ws string, chat deliver.ID) string {
			return fmt.Sprintf("write under [workspaces.%s]: telegram = { chat_id = %s }", ws, chat)
		},
		Problem: func(what, _ string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.problem = what
		},
		Log: func(err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.logged = append(h.logged, err.Error())
		},
	}}
}

// start runs a channel without rate limits, after these changes.
func (h *rig) start(changes ...func(*channel)) {
	c := h.channel()
	h.startedAt = time.Now()
	telegram.DisableLimits(c.Adapter)
	c.MaxCards = 1 << 20
	for _, change := range changes {
		change(c)
	}
	h.runChannel(c)
}

// runChannel runs a channel as it is.
func (h *rig) runChannel(c *channel) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	h.stops = append(h.stops, func() { cancel(); <-done }) //nolint:errcheck // how it ended is of no account here
}

// stopChannel stops the channel; the gate keeps running.
func (h *rig) stopChannel() {
	for len(h.stops) > 0 {
		h.stops[len(h.stops)-1]()
		h.stops = h.stops[:len(h.stops)-1]
	}
}

// keyIn returns a key; each n gives another short ID.
func keyIn(ws string, n int) approval.Key {
	return approval.Key{Workspace: ws, ID: fmt.Sprintf("%08x%08x", 0xa7000000+uint32(n), 0xabcdef01)}
}

// request writes an agent's request and wakes the gate.
func (h *rig) request(k approval.Key, members string) {
	h.t.Helper()
	body := fmt.Sprintf(`{"request_id":%q,%s}`, k.ID, members)
	temp := filepath.Join(h.layout.Requests(k.Workspace), "."+k.ID)
	require.NoError(h.t, os.WriteFile(temp, []byte(body), 0o644))
	require.NoError(h.t, os.Rename(temp, filepath.Join(h.layout.Requests(k.Workspace), k.ID+".json")))
	h.gate.Wake(k)
}

// The buttons of postRequest that would remember something, in personal.
const (
	sessionButton = "✅ For this session: x_post to x.com/ricardo in personal"
	alwaysButton  = "✅ Always: x_post to x.com/ricardo in personal, 90 days"
)

const postRequest = `"tool_name":"x_post","session_id":"s1","request_data":{"text":"Meeting at 5"},"rationale":"I need to remind the team."`

// ask writes a request and waits until its card in a chat is recorded.
func (h *rig) ask(k approval.Key, chatID int64, members string) botapi.Message {
	h.t.Helper()
	h.request(k, members)
	m := h.waitForCard(k, chatID)
	if !h.writesFail {
		h.waitFor("the recorded card", func() bool {
			page := h.record(k)
			return page == "" || strings.Contains(page, fmt.Sprintf(`"message_id":%d,`, m.ID))
		})
	}
	return m
}

// waitForCard waits for a message with the request's ID and with buttons.
func (h *rig) waitForCard(k approval.Key, chatID int64) botapi.Message {
	h.t.Helper()
	return h.waitForMessage(chatID, "a card of "+k.ID, func(m botapi.Message) bool {
		return m.Keyboard != nil && strings.Contains(m.Text, approval.ShortID(k.ID)) && strings.HasPrefix(m.Text, "🔐")
	})
}

// waitForMessage waits for a message of the bot in a chat.
func (h *rig) waitForMessage(chatID int64, what string, ok func(botapi.Message) bool) (found botapi.Message) {
	h.t.Helper()
	h.waitForState(what, func(s botapi.State) bool {
		for _, m := range s.FromBot(chatID) {
			if ok(m) {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

func (h *rig) waitForState(what string, ok func(botapi.State) bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.ctx, testTimeout)
	defer cancel()
	if err := h.api.Await(ctx, ok); err != nil {
		require.Failf(h.t, "timeout", "waiting for %s\n%s", what, h.dump())
	}
}

// waitFor waits for a condition outside of the fake Telegram.
func (h *rig) waitFor(what string, ok func() bool) {
	h.t.Helper()
	for end := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.Failf(h.t, "timeout", "waiting for %s\n%s", what, h.dump())
		}
	}
}

// waitForEdit waits until a message meets a condition.
func (h *rig) waitForEdit(m botapi.Message, what string, ok func(botapi.Message) bool) (now botapi.Message) {
	h.t.Helper()
	h.waitForState(what, func(s botapi.State) bool {
		now, _ = s.Message(m.Chat.ID, m.ID)
		return ok(now)
	})
	return now
}

// waitForText waits until a message contains a text.
func (h *rig) waitForText(m botapi.Message, text string) botapi.Message {
	h.t.Helper()
	return h.waitForEdit(m, "a message with "+text, func(m botapi.Message) bool { return strings.Contains(m.Text, text) })
}

// dump shows the chats and logs, for a failed test.
func (h *rig) dump() string {
	var b strings.Builder
	s := h.api.State()
	for _, id := range []int64{ann, bob, carl, eve, family, forum} {
		for _, m := range s.Chat(id) {
			fmt.Fprintf(&b, "--- %d/%d\n%s\n%q\n", id, m.ID, m.Text, m.Buttons())
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(&b, "problem: %s\nlog: %s\nrefused calls: %+v\n", h.problem, strings.Join(h.logged, "\n"), s.Refused())
	return b.String()
}

// tap taps a button and returns the answer.
func (h *rig) tap(user int64, m botapi.Message, button string) botapi.Answer {
	h.t.Helper()
	tap, err := h.api.Tap(user, m.Chat.ID, m.ID, button)
	require.NoError(h.t, err)
	return h.waitForAnswer(tap)
}

func (h *rig) waitForAnswer(tap *botapi.Tap) botapi.Answer {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.ctx, testTimeout)
	defer cancel()
	a, err := tap.Answer(ctx)
	if err != nil {
		require.Failf(h.t, "no answer to a tap", "%v\n%s", err, h.dump())
	}
	return a
}

// waitForResponse waits for the response to a request.
func (h *rig) waitForResponse(k approval.Key) *approval.Response {
	h.t.Helper()
	var r *approval.Response
	h.waitFor("the response of "+k.ID, func() bool {
		b, err := h.store.Read(context.Background(), approval.DocResponse, k)
		if err != nil {
			return false
		}
		r, err = approval.ParseResponse(b)
		return err == nil
	})
	return r
}

func (h *rig) record(k approval.Key) string {
	b, err := (&ipc.SentStore{Store: h.store, Channel: "telegram"}).Load(k)
	if err != nil {
		return ""
	}
	return string(b)
}

// reported is the problem that the channel last reported.
func (h *rig) reported() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.problem
}

func (h *rig) logs() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.logged, "\n")
}

// decideAsOperator decides outside of Telegram.
func (h *rig) decideAsOperator(k approval.Key, v approval.Verdict) {
	h.t.Helper()
	_, err := h.decider().Decide(h.ctx, decide.Input{
		Key: k, Verdict: v, By: approval.Person{Channel: "local", ID: "9", Name: "operator:root"}, Via: "cli",
	})
	require.NoError(h.t, err)
}

// fakeGrants is a chat.revoker in memory.
type fakeGrants struct {
	mu     sync.Mutex
	grants []grant.Grant
}

func (a *fakeGrants) Given(p *approval.Pending, d *approval.Decision) *grant.Grant {
	return grant.From(p, d)
}

func (a *fakeGrants) Remembered(_ context.Context, workspaces []string) ([]grant.Grant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.grants), func(g grant.Grant) bool {
		return !slices.Contains(workspaces, g.Workspace) || !g.RevokedAt.IsZero()
	}), nil
}

func (a *fakeGrants) Revoke(_ context.Context, g grant.Grant, by approval.Person) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.grants {
		if a.grants[i].ID == g.ID && a.grants[i].RevokedAt.IsZero() {
			a.grants[i].RevokedAt, a.grants[i].RevokedBy = time.Now(), by.ID
			return true, nil
		}
	}
	return false, nil
}

// slowDecider is a Decider on a disk that is stuck until release is closed.
type slowDecider struct {
	h       *rig
	release chan struct{}
}

func (s slowDecider) Decide(ctx context.Context, a decide.Input) (*approval.Decision, error) {
	select {
	case <-s.release:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.h.decider().Decide(ctx, a)
}
