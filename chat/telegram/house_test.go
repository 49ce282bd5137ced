package telegram_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

// The people and chats of these tests. ann and bob may decide in personal, carl in other; eve nowhere.
const (
	ann, bob, carl, eve int64 = 1001, 1002, 1003, 6666
	family              int64 = -1001000000001 // a group where personal is asked
	forum               int64 = -1001000000002

	personal = "personal"
	other    = "other"

	awhile = time.Minute
)

// house is a gate with everything real in it except the handlers, a Telegram channel, and a strict Telegram.
type house struct {
	t       testing.TB
	api     *botapi.Server
	layout  ipc.Layout
	store   *ipc.Store
	seal    *seal.Key
	log     *audit.Log
	gate    *gate.Gate
	hands   *hands
	revoker *attic
	release func() error
	changes chan approval.Key

	mu         sync.Mutex
	workspaces []telegram.Workspace
	approvers  map[string][]string // ids by workspace
	problem    string
	logged     []string
	refused    []approval.Person
	night      approval.QuietHours
	style      func(*chat.Style)
	nextUpdate int64
	brittle    bool      // the notebook's writes fail
	opened     time.Time // when the channel was last opened

	ctx  context.Context
	stop []func()
}

// hands count what is run.
type hands struct {
	mu   sync.Mutex
	runs map[string]int
	slow time.Duration
	fail string
}

func (h *hands) Run(_ context.Context, job approval.Job) approval.Effect {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs = map[string]int{}
	}
	h.runs[job.RequestID]++
	time.Sleep(h.slow)
	if h.fail != "" {
		return approval.Effect{Started: true, Error: h.fail}
	}
	return approval.Effect{Started: true, Result: approval.Raw(`"done"`)}
}

func (h *hands) count(k approval.Key) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[k.ID]
}

// newHouse opens a house in which personal is asked in these places, or else in ann's private chat.
func newHouse(t testing.TB, places ...telegram.Place) *house {
	t.Helper()
	if len(places) == 0 {
		places = []telegram.Place{{Chat: ann}}
	}
	h := &house{
		t: t, api: &botapi.Server{}, layout: ipc.Layout{Home: folder(t)}, hands: &hands{}, revoker: &attic{},
		changes:   make(chan approval.Key, 256),
		approvers: map[string][]string{personal: {"1001", "1002"}, other: {"1003"}},
		workspaces: []telegram.Workspace{
			{Name: personal, Language: "en", Places: places},
			{Name: other, Language: "en", Places: []telegram.Place{{Chat: carl}}},
		},
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	h.ctx = ctx
	t.Cleanup(stop)
	require.NoError(t, h.api.Listen())
	t.Cleanup(h.api.Close)
	for id, name := range map[int64]string{ann: "Ann", bob: "Bob", carl: "Carl", eve: "Eve"} {
		h.api.AddUser(botapi.User{ID: id, FirstName: name, Username: strings.ToLower(name)})
		h.api.Say(id, id, "hello")
	}
	h.api.AddChat(botapi.Chat{ID: family, Type: botapi.Supergroup, Title: "Family"})
	h.api.AddChat(botapi.Chat{ID: forum, Type: botapi.Supergroup, Title: "Forum", IsForum: true})
	h.openGate()
	t.Cleanup(func() {
		h.close()
		h.closeGate()
	})
	return h
}

// folder is a temporary one, in memory where there is such a place.
func folder(t testing.TB) string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shm, "permesso-telegram-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func (h *house) openGate() {
	t := h.t
	require.NoError(t, h.layout.PrepareHome(ipc.OS()))
	for _, ws := range []string{personal, other} {
		require.NoError(t, h.layout.Prepare(ipc.OS(), ws))
	}
	h.store = &ipc.Store{FS: ipc.OS(), Layout: h.layout, RequestSize: func(string) int64 { return 4 << 20 }}
	var err error
	h.release, err = h.store.Open()
	require.NoError(t, err)
	h.seal, err = seal.LoadOrCreate(ipc.OS(), h.layout.Keys())
	require.NoError(t, err)
	signer, err := receipt.LoadOrCreate(ipc.OS(), h.layout.Keys(), "test")
	require.NoError(t, err)
	h.log, err = audit.Open(ipc.OS(), h.layout.Audit(), time.Now)
	require.NoError(t, err)
	rules := &policy.Engine{}
	require.NoError(t, rules.Load(policy.Config{Rules: []policy.Rule{{Name: "auto", Tool: "auto", Outcome: approval.Allow}}}))
	h.gate = &gate.Gate{
		Store: h.store, Workspaces: h.store, Seal: h.seal, Receipts: signer, Policy: rules, Executor: h.hands, Audit: h.log,
		Settings: h, Log: zerolog.Nop(), Changed: h.changed,
	}
	keys, err := h.gate.Start()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = h.gate.Run(ctx, keys) }()
	h.stop = append(h.stop, func() { cancel(); <-done })
}

func (h *house) closeGate() {
	for _, f := range slices.Backward(h.stop) {
		f()
	}
	h.stop = nil
	require.NoError(h.t, errors.Join(h.log.Close(), h.release()))
}

func (h *house) changed(k approval.Key) {
	select {
	case h.changes <- k:
	default:
	}
}

// Workspace implements gate.Settings.
func (h *house) Workspace(name string) (approval.Workspace, bool) {
	if name != personal && name != other {
		return approval.Workspace{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return approval.Workspace{
		Name: name, Autonomy: approval.Supervised, Timeout: time.Hour, MaxTimeout: 24 * time.Hour, QuietHours: h.night,
		Limits: approval.Limits{Pending: 1000, AskPerMinute: 10000, PerMinute: 100000, RequestSize: 4 << 20},
	}, true
}

// Tool implements gate.Settings.
func (h *house) Tool(name string) (approval.Tool, bool) {
	if name != "x_post" && name != "auto" {
		return approval.Tool{}, false
	}
	writes := approval.Property("true")
	if name == "auto" {
		writes = "false"
	}
	return approval.Tool{
		Name: name, ActionType: "send_message", Verb: map[string]string{"en": "post", "it": "pubblichi su X"},
		Summary: "{text}", Target: "x.com/ricardo", Facts: map[string][]string{"recipient": {"to"}}, Reversibility: approval.Irreversible, Territory: "none",
		Trust:   approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: writes},
		Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/true"}},
	}, true
}

// May implements telegram.Guard, and is what Decide asks.
func (h *house) May(ws string, _ *approval.Pending, by approval.Person) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := map[string]string{"1001": "ann", "1002": "bob", "1003": "carl", "9": "operator:root"}
	ok := by.Channel == "telegram" && slices.Contains(h.approvers[ws], by.ID) || by.Channel == "local"
	return names[by.ID], ok
}

// Refused implements telegram.Guard.
func (h *house) Refused(_ approval.Key, by approval.Person) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = append(h.refused, by)
}

func (h *house) decider() *gate.Decider {
	return &gate.Decider{
		Store: h.store, Seal: h.seal, May: h.May, Daemon: true, Decided: h.gate.Wake,
		Refused: func(k approval.Key, by approval.Person, _ string) { h.Refused(k, by) },
	}
}

func (h *house) viewer() desk {
	return desk{&gate.Viewer{Store: h.store, Workspaces: h.store, Seal: h.seal}, h.store}
}

// desk is what the wiring gives the channel to look at.
type desk struct {
	*gate.Viewer
	store *ipc.Store
}

func (d desk) Story(ctx context.Context, k approval.Key) (st telegram.Story, err error) {
	w, err := d.Pending(k)
	if err != nil {
		return st, err
	}
	if w != nil {
		st.Pending, st.SHA256 = w.Pending, w.SHA256
		if b, err := d.store.Read(approval.DocDecision, k); err == nil {
			if dec := d.Decision(k, b); dec != nil && dec.PendingSHA256 == w.SHA256 {
				st.Decision = dec
			}
		}
	}
	rec, err := d.Record(ctx, k)
	if err != nil || rec == nil {
		return st, err
	}
	return telegram.Story{Pending: d.Asked(k, rec.Pending), Decision: d.Decision(k, rec.Decision), Record: rec}, nil
}

// channel is one as cmd wires it.
func (h *house) channel() *telegram.Channel {
	notebook := &ipc.SentStore{Store: h.store, Channel: "telegram"}
	updates, err := notebook.State("updates")
	require.NoError(h.t, err)
	notes, err := notebook.State("notes")
	require.NoError(h.t, err)
	return &telegram.Channel{
		Token: botapi.Token, ServerURL: h.api.URL, Updates: updates, Notes: notes, Notebook: notebook,
		Viewer: h.viewer(), Guard: h, Changes: h.changes, Every: 50 * time.Millisecond, Retry: 10 * time.Millisecond,
		Interceptor: &chat.Interceptor{Decider: h.decider(), Viewer: h.viewer(), Revoker: h.revoker, CanDecide: h.decider().CanDecide},
		Workspaces: func() []telegram.Workspace {
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
	}
}

// open lets a channel run, changed before by some.
func (h *house) open(changes ...func(*telegram.Channel)) {
	c := h.channel()
	h.opened = time.Now()
	telegram.Eager(c)
	for _, change := range changes {
		change(c)
	}
	h.run(c)
}

// run lets a channel run as it is.
func (h *house) run(c *telegram.Channel) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	h.stop = append(h.stop, func() { cancel(); <-done }) //nolint:errcheck // how it ended is of no account here
}

// close ends the channel and leaves the gate open.
func (h *house) close() {
	for len(h.stop) > 1 {
		h.stop[len(h.stop)-1]()
		h.stop = h.stop[:len(h.stop)-1]
	}
}

// key of n in a workspace: ids with different short ids.
func keyIn(ws string, n int) approval.Key {
	return approval.Key{Workspace: ws, ID: fmt.Sprintf("%08x%08x", 0xa7000000+uint32(n), 0xabcdef01)}
}

// request drops a request of an agent's and wakes the gate.
func (h *house) request(k approval.Key, members string) {
	h.t.Helper()
	body := fmt.Sprintf(`{"request_id":%q,%s}`, k.ID, members)
	temp := filepath.Join(h.layout.Requests(k.Workspace), "."+k.ID)
	require.NoError(h.t, os.WriteFile(temp, []byte(body), 0o644))
	require.NoError(h.t, os.Rename(temp, filepath.Join(h.layout.Requests(k.Workspace), k.ID+".json")))
	h.gate.Wake(k)
}

const post = `"tool_name":"x_post","session_id":"s1","request_data":{"text":"Meeting at 5"},"rationale":"I need to remind the team."`

// asks drops a request and awaits its card in a chat, until it is noted.
func (h *house) asks(k approval.Key, chatID int64, members string) botapi.Message {
	h.t.Helper()
	h.request(k, members)
	m := h.card(k, chatID)
	if !h.brittle {
		h.until("the card to be noted", func() bool {
			page := h.page(k)
			return page == "" || strings.Contains(page, fmt.Sprintf(`"message_id":%d,`, m.ID))
		})
	}
	return m
}

// card awaits a message in the chat with the request's id on it and buttons.
func (h *house) card(k approval.Key, chatID int64) botapi.Message {
	h.t.Helper()
	return h.sees(chatID, "a card of "+k.ID, func(m botapi.Message) bool {
		return m.Keyboard != nil && strings.Contains(m.Text, approval.ShortID(k.ID)) && strings.HasPrefix(m.Text, "🔐")
	})
}

// sees awaits a message of the bot's in a chat.
func (h *house) sees(chatID int64, what string, ok func(botapi.Message) bool) (found botapi.Message) {
	h.t.Helper()
	h.await(what, func(s botapi.State) bool {
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

func (h *house) await(what string, ok func(botapi.State) bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.ctx, awhile)
	defer cancel()
	if err := h.api.Await(ctx, ok); err != nil {
		require.Failf(h.t, "waited in vain", "for %s\n%s", what, h.chats())
	}
}

// until awaits what Telegram does not see.
func (h *house) until(what string, ok func() bool) {
	h.t.Helper()
	for end := time.Now().Add(awhile); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.Failf(h.t, "waited in vain", "for %s\n%s", what, h.chats())
		}
	}
}

// becomes awaits that a message looks otherwise.
func (h *house) becomes(m botapi.Message, what string, ok func(botapi.Message) bool) (now botapi.Message) {
	h.t.Helper()
	h.await(what, func(s botapi.State) bool {
		now, _ = s.Message(m.Chat.ID, m.ID)
		return ok(now)
	})
	return now
}

// says awaits that a message holds a text.
func (h *house) says(m botapi.Message, text string) botapi.Message {
	h.t.Helper()
	return h.becomes(m, "a message that says "+text, func(m botapi.Message) bool { return strings.Contains(m.Text, text) })
}

// chats is what there is to be read, for a test that failed.
func (h *house) chats() string {
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

// taps touches a button and gives the answer.
func (h *house) taps(user int64, m botapi.Message, button string) botapi.Answer {
	h.t.Helper()
	tap, err := h.api.Tap(user, m.Chat.ID, m.ID, button)
	require.NoError(h.t, err)
	return h.answer(tap)
}

func (h *house) answer(tap *botapi.Tap) botapi.Answer {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.ctx, awhile)
	defer cancel()
	a, err := tap.Answer(ctx)
	if err != nil {
		require.Failf(h.t, "no answer to a tap", "%v\n%s", err, h.chats())
	}
	return a
}

// settled awaits the response of a request.
func (h *house) settled(k approval.Key) *approval.Response {
	h.t.Helper()
	var r *approval.Response
	h.until("the response of "+k.ID, func() bool {
		b, err := h.store.Read(approval.DocResponse, k)
		if err != nil {
			return false
		}
		r, err = approval.ParseResponse(b)
		return err == nil
	})
	return r
}

func (h *house) page(k approval.Key) string {
	b, err := (&ipc.SentStore{Store: h.store, Channel: "telegram"}).Load(k)
	if err != nil {
		return ""
	}
	return string(b)
}

// trouble is what status and doctor show of the channel.
func (h *house) trouble() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.problem
}

func (h *house) logs() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.logged, "\n")
}

// operator decides at the gate, and not through Telegram.
func (h *house) operator(k approval.Key, v approval.Verdict) {
	h.t.Helper()
	_, err := h.decider().Decide(h.ctx, approval.DecisionInput{
		Key: k, Verdict: v, By: approval.Person{Channel: "local", ID: "9", Name: "operator:root"}, Via: "cli",
	})
	require.NoError(h.t, err)
}

// attic is what is remembered.
type attic struct {
	mu     sync.Mutex
	grants []approval.Grant
}

func (a *attic) Given(p *approval.Pending, d *approval.Decision) *approval.Grant {
	return policy.GrantFrom(p, d)
}

func (a *attic) Remembered(_ context.Context, workspaces []string) ([]approval.Grant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.grants), func(g approval.Grant) bool {
		return !slices.Contains(workspaces, g.Workspace) || !g.RevokedAt.IsZero()
	}), nil
}

func (a *attic) Revoke(_ context.Context, g approval.Grant, by approval.Person) (bool, error) {
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

// slow is a Decider on a slow disk.
type slow struct{ h *house }

func (s slow) Decide(ctx context.Context, a approval.DecisionInput) (*approval.Decision, error) {
	time.Sleep(2200 * time.Millisecond)
	return s.h.decider().Decide(ctx, a)
}
