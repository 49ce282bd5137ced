package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

// telegramTools has a tool that needs approval and appends a line to a file.
const telegramTools = `
[tools.post]
dangerous_writes = true
verb = "post"
summary = "{text} -> x.com/ricardo"
target = "x.com/ricardo"
reversibility = "irreversible"
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = ["/bin/sh", "-c", 'cat >/dev/null; echo "$PERMESSO_REQUEST_ID" >>"$1"; echo posted', "sh", %q], timeout = "1m" }
`

// telegramConfig has the approvers ann and bob. Each workspace has its own chat, because Telegram accepts
// one message a second for each chat.
func telegramConfig(server, tokenFile, effects string, chats map[string]int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[channels.telegram]\nserver_url = %q\ntoken_file = %q\n[approvers.ann]\ntelegram = %d\n[approvers.bob]\ntelegram = %d\n",
		server, tokenFile, tgAnn, tgBob)
	for ws, chat := range chats {
		fmt.Fprintf(&b, "[workspaces.%s]\napprovers = [\"ann\", \"bob\"]\nchannels = [\"telegram\"]\ntelegram = { chat_id = %d }\napproval_timeout = \"10m\"\n"+
			"limits = { pending = 1000, ask_per_minute = 10000, per_minute = 10000 }\n", ws, chat)
	}
	fmt.Fprintf(&b, telegramTools, effects)
	return b.String()
}

// telegramRig is a daemon and its approvers on a strict fake of Telegram.
type telegramRig struct {
	*rig
	api     *botapi.Server
	chats   map[string]int64 // by workspace
	effects string
}

// newTelegramRig does not start the daemon. It creates a group for each workspace without a chat.
func newTelegramRig(t testing.TB, chats map[string]int64) *telegramRig {
	t.Helper()
	w := &telegramRig{rig: newRig(t, "none", ""), api: newTelegram(t), chats: chats}
	w.effects = filepath.Join(w.dir, "effects")
	for ws, chat := range chats {
		if chat == 0 {
			chats[ws] = tgFamily - 1000 - int64(len(w.api.State().Calls)) - int64(slices.Index(sortedKeys(chats), ws))
		}
		if chats[ws] < 0 {
			w.api.AddChat(botapi.Chat{ID: chats[ws], Type: botapi.Supergroup, Title: ws})
		}
	}
	w.api.Open(tgAnn, tgBob)
	token := filepath.Join(w.dir, "token")
	require.NoError(t, os.WriteFile(token, []byte(botapi.Token+"\n"), 0o600))
	require.NoError(t, os.WriteFile(w.config, []byte(telegramConfig(w.api.URL, token, w.effects, chats)), 0o600))
	return w
}

func sortedKeys(m map[string]int64) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// runs counts the runs of a request.
func (w *telegramRig) runs(id string) int {
	b, err := os.ReadFile(w.effects)
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(w.t, err)
	return strings.Count(string(b), id+"\n")
}

// chatRig is one workspace, its chat, and an agent in a sandbox.
type chatRig struct {
	*telegramRig
	t         *testing.T
	ws        string
	chat      int64
	mounts    string
	responses chan string // the agent's response
}

func (w *telegramRig) chatRig(t *testing.T, ws string) *chatRig {
	t.Helper()
	code, mounts, errs := w.run("", "mounts", ws, "--bwrap")
	require.Zero(t, code, errs)
	return &chatRig{telegramRig: w, t: t, ws: ws, chat: w.chats[ws], mounts: strings.TrimSpace(mounts)}
}

// submitAndWait submits a request in the sandbox, which waits for the response, and returns the card.
func (s *chatRig) submitAndWait(args string) botapi.Message {
	s.t.Helper()
	before := len(s.api.State().FromBot(s.chat))
	responses := make(chan string, 1)
	s.responses = responses
	go func() { // ends when the sandbox exits, or after testTimeout
		_, out := (&sandboxRig{rig: s.rig}).runInside(s.t, s.mounts, nil, nil, "exec permesso request "+args+" --wait --timeout 120s --json 2>/dev/null")
		responses <- out
	}()
	return s.awaitRecorded(s.awaitMessage(func(m botapi.Message) bool {
		return m.ID > before && strings.HasPrefix(m.Text, "🔐 ") && strings.Contains(m.Text, "\n"+s.ws+" · ") && m.Keyboard != nil
	}))
}

// awaitRecorded waits until the daemon has recorded a sent message: an approver is slower than the test.
func (s *chatRig) awaitRecorded(m botapi.Message) botapi.Message {
	s.t.Helper()
	dir := s.layout.Sent("telegram", s.ws)
	await(s.t, dir, func() bool {
		names, _ := os.ReadDir(dir) // the folder may not exist yet
		return slices.ContainsFunc(names, func(n os.DirEntry) bool {
			b, err := os.ReadFile(filepath.Join(dir, n.Name()))
			return err == nil && strings.Contains(string(b), fmt.Sprintf(`"message_id":%d,`, m.ID))
		})
	})
	return m
}

// awaitPrompt waits for the message that asks for a reply.
func (s *chatRig) awaitPrompt(m botapi.Message) botapi.Message {
	s.t.Helper()
	return s.awaitRecorded(s.awaitMessage(func(p botapi.Message) bool { return p.ForceReply && p.ReplyTo != nil && p.ReplyTo.ID == m.ID }))
}

// response is the response that the agent read.
func (s *chatRig) response() *approval.Response {
	s.t.Helper()
	select {
	case out := <-s.responses:
		r, err := approval.ParseResponse([]byte(out))
		require.NoError(s.t, err, out)
		return r
	case <-time.After(testTimeout):
		require.Fail(s.t, "the agent has no response")
		return nil
	}
}

// awaitMessage waits for a message from the bot in the chat.
func (s *chatRig) awaitMessage(ok func(m botapi.Message) bool) (found botapi.Message) {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), testTimeout)
	defer stop()
	err := s.api.Await(ctx, func(st botapi.State) bool {
		for _, m := range st.FromBot(s.chat) {
			if ok(m) {
				found = m
				return true
			}
		}
		return false
	})
	if err != nil {
		for _, m := range s.api.Messages(s.chat) {
			s.t.Logf("%d: %s %q", m.ID, m.Text, m.Buttons())
		}
		require.NoError(s.t, err)
	}
	return found
}

// awaitText waits until a message contains text.
func (s *chatRig) awaitText(m botapi.Message, text string) botapi.Message {
	s.t.Helper()
	return s.awaitMessage(func(now botapi.Message) bool { return now.ID == m.ID && strings.Contains(now.Text, text) })
}

// awaitReply waits for the bot's reply to a message.
func (s *chatRig) awaitReply(said botapi.Message, text string) {
	s.t.Helper()
	s.awaitMessage(func(m botapi.Message) bool {
		return m.ReplyTo != nil && m.ReplyTo.ID == said.ID && strings.Contains(m.Text, text)
	})
}

// tap taps a button and returns the answer.
func (s *chatRig) tap(user int64, m botapi.Message, button string) string {
	s.t.Helper()
	tap, err := s.api.Tap(user, m.Chat.ID, m.ID, button)
	require.NoError(s.t, err)
	ctx, stop := context.WithTimeout(s.t.Context(), testTimeout)
	defer stop()
	a, err := tap.Answer(ctx)
	require.NoError(s.t, err)
	return a.Text
}

// requireOutcome requires the status of the response and the number of runs.
func (s *chatRig) requireOutcome(status approval.Status, runs int) *approval.Response {
	s.t.Helper()
	r := s.response()
	require.Equal(s.t, status, r.Status)
	require.Equal(s.t, runs, s.runs(r.RequestID))
	return r
}

// shortIDPattern finds a short id of eight digits.
var shortIDPattern = regexp.MustCompile(`\b[0-9a-f]{8}\b`)

// shortOf is the short id on a card.
func shortOf(m botapi.Message) string {
	return shortIDPattern.FindString(m.Text)
}

const ask5 = `post --arg text='Meeting at 5' --session s1`

// A request from a sandbox, decided in Telegram.
func TestTelegramFromASandbox(t *testing.T) {
	t.Parallel()
	path, err := osexec.LookPath("bwrap")
	require.NoError(t, err, "hint: make deps, or: apt-get install bubblewrap")
	out, err := osexec.Command(path, append(sandbox.BwrapSystem(), "true")...).CombinedOutput()
	require.NoError(t, err, "bubblewrap makes no sandbox here: %s\nhint: .ci/deps bwrap says what it needs", out)
	flows := map[string]func(s *chatRig){
		"tap": func(s *chatRig) {
			m := s.submitAndWait(ask5)
			require.Contains(s.t, m.Text, "May I post?\n\"Meeting at 5\" -> x.com/ricardo")
			require.Contains(s.t, s.tap(tgAnn, m, "✅ Once"), `Approved: post "Meeting at 5"`)
			r := s.requireOutcome(approval.StatusApproved, 1)
			require.JSONEq(s.t, `{"output":"posted\n"}`, string(r.Result))
			require.Equal(s.t, "ann", *r.Decision.By)
			require.Equal(s.t, "telegram", *r.Decision.Via)
			require.Empty(s.t, s.awaitText(m, "✅ Approved by ann at ").Buttons())
		},
		"text": func(s *chatRig) { // in a private chat: in groups a bot receives only commands
			m := s.submitAndWait(ask5)
			id := shortOf(m)
			s.awaitReply(s.api.Say(tgAnn, s.chat, "approve "+id), `Approved: post "Meeting at 5"`)
			s.requireOutcome(approval.StatusApproved, 1)
			require.Empty(s.t, s.awaitText(m, "✅ Approved by ann at ").Buttons())
			m = s.submitAndWait(ask5)
			id = shortOf(m)
			s.awaitReply(s.api.Say(tgAnn, s.chat, "deny "+id[:4]+" not today"), "Denied: ")
			require.Equal(s.t, "not today", *s.requireOutcome(approval.StatusDenied, 0).Feedback)
		},
		"command": func(s *chatRig) {
			m := s.submitAndWait(ask5)
			id := shortOf(m)
			s.awaitReply(s.api.Say(tgBob, s.chat, "/approve@permesso_bot "+id), `Approved: post "Meeting at 5"`)
			require.Equal(s.t, "bob", *s.requireOutcome(approval.StatusApproved, 1).Decision.By)
			s.awaitText(m, "✅ Approved by bob at ")
		},
		"note": func(s *chatRig) {
			m := s.submitAndWait(ask5)
			s.awaitReply(s.api.Reply(tgAnn, s.chat, m.ID, "4 be brief,\nplease"), "Approved: ")
			require.Equal(s.t, "be brief,\nplease", *s.requireOutcome(approval.StatusApproved, 1).Decision.Note)
			s.awaitText(m, "to the agent: ")
			m = s.submitAndWait(ask5)
			s.tap(tgAnn, m, "✎ Allow with a note")
			prompt := s.awaitPrompt(m)
			s.awaitReply(s.api.Reply(tgAnn, s.chat, prompt.ID, "but louder"), "Approved: ")
			require.Equal(s.t, "but louder", *s.requireOutcome(approval.StatusApproved, 1).Decision.Note)
		},
		"change": func(s *chatRig) {
			m := s.submitAndWait(ask5)
			s.awaitReply(s.api.Reply(tgAnn, s.chat, m.ID, "5 say six o'clock"), "Not run: ")
			r := s.requireOutcome(approval.StatusOverridden, 0)
			require.Equal(s.t, "say six o'clock", *r.Decision.Override)
			s.awaitText(m, "✎ Changed, not run by ann at ")
		},
		"deny": func(s *chatRig) {
			m := s.submitAndWait(ask5)
			require.Contains(s.t, s.tap(tgBob, m, "❌ Deny"), "Denied: ")
			require.Equal(s.t, "Denied by user", *s.requireOutcome(approval.StatusDenied, 0).Error)
			require.Empty(s.t, s.awaitText(m, "❌ Denied by bob at ").Buttons())
		},
		"ask": func(s *chatRig) {
			m := s.submitAndWait(ask5)
			s.tap(tgAnn, m, "❓ Ask")
			prompt := s.awaitPrompt(m)
			s.awaitReply(s.api.Reply(tgAnn, s.chat, prompt.ID, "which meeting?"), "reply: ? agent, which meeting?")
			s.awaitReply(s.api.Reply(tgAnn, s.chat, prompt.ID, "? agent, which meeting?"), "Sent back to the agent")
			require.Equal(s.t, "which meeting?", *s.requireOutcome(approval.StatusRequestMore, 0).Feedback)
			s.awaitText(m, "❓ Sent back by ann at ")
		},
		"expiry": func(s *chatRig) {
			m := s.submitAndWait(ask5 + " --expires 10s") // enough time to see the buttons
			late := m.Keyboard.InlineKeyboard[0][0].CallbackData
			require.Equal(s.t, "Approval expired (no response within timeout)", *s.requireOutcome(approval.StatusExpired, 0).Error)
			require.Empty(s.t, s.awaitText(m, "⌛ Expired at ").Buttons())
			tap := s.api.TapData(tgAnn, s.chat, m.ID, late)
			a, err := tap.Answer(s.t.Context())
			require.NoError(s.t, err)
			require.Contains(s.t, a.Text, "expired")
		},
		"show": func(s *chatRig) {
			text := strings.Repeat("All work and no play. ", 300)
			m := s.submitAndWait("post --arg text='" + text + "the end'")
			require.Equal(s.t, []string{"📄 Show all", "❌ Deny", "❓ Ask", "💡 Why?"}, m.Buttons())
			s.awaitReply(s.api.Reply(tgAnn, s.chat, m.ID, "1"), "was shown here yet")
			s.tap(tgAnn, m, "📄 Show all")
			doc := s.awaitMessage(func(m botapi.Message) bool { return m.Document != nil })
			require.Contains(s.t, string(doc.Document.Content), text+"the end")
			m = s.awaitMessage(func(now botapi.Message) bool { _, ok := now.Button("✅ Once"); return now.ID == m.ID && ok })
			require.Contains(s.t, s.tap(tgAnn, m, "✅ Once"), "Approved: ")
			s.requireOutcome(approval.StatusApproved, 1)
		},
		"session": func(s *chatRig) {
			m := s.submitAndWait(ask5)
			require.Contains(s.t, s.tap(tgAnn, m, buttonOf(s.t, m, "✅ For this session: post ")), "Approved: ")
			s.requireOutcome(approval.StatusApproved, 1)
			m = s.awaitText(m, "✅ Approved for this session by ann at ")
			require.Equal(s.t, []string{"↩ Undo"}, m.Buttons())
			code, out := (&sandboxRig{rig: s.rig}).runInside(s.t, s.mounts, nil, nil, "exec permesso request "+ask5+" --wait --timeout 60s --json")
			require.Zero(s.t, code, out)
			require.Contains(s.t, out, `"status":"auto_approved"`)
			require.NotEmpty(s.t, s.tap(tgAnn, m, "↩ Undo"))
			s.awaitText(m, "grant revoked")
			m = s.submitAndWait(ask5)
			s.tap(tgAnn, m, "❌ Deny")
			s.requireOutcome(approval.StatusDenied, 0)
		},
	}
	chats := map[string]int64{}
	for name := range flows {
		chats[name] = 0
	}
	chats["text"] = tgAnn
	w := newTelegramRig(t, chats)
	d := w.serve()
	d.awaitLog(`"serving"`)
	t.Run("flows", func(t *testing.T) {
		for name, flow := range flows {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				flow(w.chatRig(t, name))
			})
		}
	})
	require.Empty(t, w.api.State().Refused(), "Telegram refused no call")
	d.stop()
	require.NotContains(t, d.logged(), secretHalf)
}

// The daemon works with a Bot API server of a third party.
func TestTelegramWithAThirdPartyServer(t *testing.T) {
	t.Parallel()
	f := botapi.StartThirdParty(t)
	client := &botapi.JSONClient{}
	// That server accepts only JSON, so a proxy converts the calls.
	proxy := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, f.URL+r.URL.Path, r.Body)
		if err != nil {
			panic(err)
		}
		req.Header = r.Header
		resp, err := client.Do(req)
		if err != nil {
			to.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		to.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(to, resp.Body)
	}))
	t.Cleanup(proxy.Close)
	w := newTelegramRig(t, map[string]int64{"one": tgAnn})
	b, err := os.ReadFile(w.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.config, []byte(strings.Replace(string(b), w.api.URL, proxy.URL, 1)), 0o600))
	w.agent.Requests, w.agent.Responses = w.layout.Requests("one"), w.layout.Responses("one")
	d := w.serve()
	ann, chat := botapi.User{ID: tgAnn, FirstName: "Ann"}, botapi.Chat{ID: tgAnn, Type: botapi.Private}
	eve := botapi.User{ID: tgEve, FirstName: "Ann"}
	sees := func(what string) (found botapi.Message) {
		t.Helper()
		for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
			all, err := f.FromBot(t.Context(), tgAnn)
			require.NoError(t, err)
			for _, m := range all {
				if strings.Contains(m.Text, what) {
					m.Chat = chat // that server omits it
					return m
				}
			}
			require.True(t, time.Now().Before(end), "not seen: %s in %+v", what, all)
		}
	}
	button := func(m botapi.Message, text string) string {
		b, ok := m.Button(text)
		require.True(t, ok, m.Buttons())
		return b.CallbackData
	}

	id := w.ask(`{"tool_name":"post","request_data":{"text":"one"}}`)
	m := sees("→ approve " + id[:8])
	require.NoError(t, f.Tap(t.Context(), eve, m, button(m, "✅ Once")))
	require.NoError(t, f.Say(t.Context(), eve, botapi.Chat{ID: tgEve, Type: botapi.Private}, "approve "+id))
	require.NoError(t, f.Tap(t.Context(), ann, m, button(m, "✅ Once")))
	require.Equal(t, approval.StatusApproved, w.response(id).Status)
	require.Equal(t, 1, w.runs(id))
	sees("✅ Approved by ann at ")

	// A text counts only for a card that the daemon has recorded as sent: an approver is slower than the test.
	shown := func(id string) {
		t.Helper()
		sees("→ approve " + id[:8])
		await(t, w.layout.Sent("telegram", "one"), func() bool {
			b, err := os.ReadFile(filepath.Join(w.layout.Sent("telegram", "one"), id+".json"))
			return err == nil && strings.Contains(string(b), `"message_id":`)
		})
	}
	id = w.ask(`{"tool_name":"post","request_data":{"text":"two"}}`)
	shown(id)
	require.NoError(t, f.Say(t.Context(), ann, chat, "deny "+id[:8]+" no"))
	r := w.response(id)
	require.Equal(t, approval.StatusDenied, r.Status)
	require.Equal(t, "no", *r.Feedback)
	require.Zero(t, w.runs(id))
	sees("❌ Denied by ann at ")

	id = w.ask(`{"tool_name":"post","request_data":{"text":"three"}}`)
	shown(id)
	require.NoError(t, f.Say(t.Context(), ann, chat, "pending"))
	require.NoError(t, f.Say(t.Context(), ann, chat, "approve "+id[:4]))
	require.Equal(t, approval.StatusApproved, w.response(id).Status)
	d.stop()
}
