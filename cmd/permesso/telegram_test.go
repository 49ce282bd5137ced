package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// botRig is a fake Telegram with ann, and a daemon that asks her there.
type botRig struct {
	*rig
	api *botapi.Server
}

const ann int64 = 1001

func newBotRig(t *testing.T, config string) *botRig {
	t.Helper()
	api := botapi.Start(t)
	api.AddUser(botapi.User{ID: ann, FirstName: "Ann"})
	api.Say(ann, ann, "/start")
	h := newRig(t, "default", "")
	token := filepath.Join(h.dir, "telegram.token")
	require.NoError(t, os.WriteFile(token, []byte(botapi.Token+"\n"), 0o600))
	text := fmt.Sprintf("[channels.telegram]\nserver_url = %q\ntoken_file = %q\n", api.URL, token) + config + askAll
	require.NoError(t, os.WriteFile(h.config, []byte(text), 0o600))
	return &botRig{h, api}
}

const annDecides = `
[approvers.ann]
telegram = 1001
[workspaces.default]
approvers = ["ann"]
channels = ["telegram"]
approval_timeout = "1h"
`

// awaitMessage waits for a message in ann's chat.
func (b *botRig) awaitMessage(what string, ok func(botapi.Message) bool) (found botapi.Message) {
	b.t.Helper()
	return b.awaitMessageTo(ann, what, ok)
}

func (b *botRig) awaitMessageTo(chat int64, what string, ok func(botapi.Message) bool) (found botapi.Message) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), testTimeout)
	defer cancel()
	err := b.api.Await(ctx, func(s botapi.State) bool {
		for _, m := range s.FromBot(chat) {
			if ok(m) {
				found = m
				return true
			}
		}
		return false
	})
	require.NoError(b.t, err, what)
	return found
}

func (b *botRig) card(id string) botapi.Message { return b.cardOf(ann, id) }

func (b *botRig) cardOf(chat int64, id string) botapi.Message {
	b.t.Helper()
	return b.awaitMessageTo(chat, "a card", func(m botapi.Message) bool {
		return strings.Contains(m.Text, approval.ShortID(id)) && len(m.Buttons()) > 0
	})
}

// buttonOf is the one button whose text begins so.
func buttonOf(t *testing.T, m botapi.Message, begin string) string {
	t.Helper()
	all := slices.DeleteFunc(m.Buttons(), func(text string) bool { return !strings.HasPrefix(text, begin) })
	require.Len(t, all, 1, "%q", m.Buttons())
	return all[0]
}

func (b *botRig) tap(m botapi.Message, button string) string {
	b.t.Helper()
	tap, err := b.api.Tap(ann, ann, m.ID, button)
	require.NoError(b.t, err)
	ctx, cancel := context.WithTimeout(b.t.Context(), testTimeout)
	defer cancel()
	a, err := tap.Answer(ctx)
	require.NoError(b.t, err)
	return a.Text
}

// All of it: a request, its card, a tap, the run, the response and the edited card;
// a grant that is used and revoked; a pause.
func TestTelegramFromEndToEnd(t *testing.T) {
	t.Parallel()
	b := newBotRig(t, annDecides)
	d := b.serve()
	d.awaitLog(`"serving"`)
	id := b.ask(`{"tool_name":"say","session_id":"s1","request_data":{"text":"hello"}}`)
	m := b.card(id)
	require.Contains(t, b.tap(m, buttonOf(t, m, "✅ For this session: say ")), "Approved: ")
	r := b.response(id)
	require.Equal(t, approval.StatusApproved, r.Status)
	require.Equal(t, "ann", *r.Decision.By)
	require.Equal(t, "telegram", *r.Decision.Via)
	m = b.awaitMessage("an undo button", func(x botapi.Message) bool {
		return x.ID == m.ID && strings.Contains(strings.Join(x.Buttons(), ""), "Undo")
	})
	require.Contains(t, m.Text, "✅ Approved for this session by ann at ")

	b.api.Say(ann, ann, "grants")
	b.awaitMessage("the list of grants", func(x botapi.Message) bool {
		return strings.Contains(x.Text, approval.ShortID(id)+" · In session s1: say with any arguments in default, until ")
	})
	require.Contains(t, b.tap(m, "↩ Undo"), "Revoked: ")
	b.awaitMessage("no undo button", func(x botapi.Message) bool { return x.ID == m.ID && len(x.Buttons()) == 0 })

	b.api.Say(ann, ann, "/pause it goes wild")
	b.awaitMessage("a pause", func(x botapi.Message) bool { return strings.Contains(x.Text, "⏸ default: paused") })
	id = b.ask(`{"tool_name":"say","session_id":"s1","request_data":{"text":"again"}}`)
	m = b.card(id)
	require.Contains(t, m.Text, "paused since ")
	require.Contains(t, m.Text, "by ann: nothing runs until resume (it goes wild)")
	b.tap(m, "✅ Once")
	b.api.Say(ann, ann, "/resume")
	require.Equal(t, approval.StatusApproved, b.response(id).Status)
	b.awaitMessage("the outcome", func(x botapi.Message) bool { return x.ID == m.ID && strings.Contains(x.Text, "✅ Approved by ann") })

	b.api.Say(ann, ann, "last")
	b.awaitMessage("the list of decisions", func(x botapi.Message) bool {
		return strings.Contains(x.Text, approval.ShortID(id)+" · approved · by ann (telegram)")
	})
	d.stop()
	require.NotContains(t, d.logged(), strings.Split(botapi.Token, ":")[1])
	code, out, _ := b.run("", "audit", "tail", "-n", "100")
	require.Zero(t, code)
	require.Contains(t, out, "paused")
}

// An unknown user is in the audit log; a chat that is not writable is in the status.
func TestTelegramReportsProblems(t *testing.T) {
	t.Parallel()
	b := newBotRig(t, annDecides)
	b.api.AddUser(botapi.User{ID: 6666, FirstName: "Eve"})
	d := b.serve()
	d.awaitLog(`"serving"`)
	b.api.Say(6666, 6666, "approve a7f3b2c1")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	require.NoError(t, b.api.Await(ctx, func(s botapi.State) bool { return len(s.FromBot(6666)) == 1 }))
	b.api.Block(ann, true)
	id := b.ask(`{"tool_name":"say"}`)
	b.awaitPending("default", id)
	await(t, b.layout.Run(), func() bool {
		_, out, _ := b.run("", "status")
		return strings.Contains(out, "Telegram chat 1001 is unreachable")
	})
	d.stop()
	_, out, _ := b.run("", "audit", "tail", "-n", "100")
	require.Contains(t, out, "refused_decider")
}

// An invalid token is reported, and can be replaced without a restart.
func TestTelegramTokenIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBotRig(t, annDecides)
	token := filepath.Join(b.dir, "telegram.token")
	require.NoError(t, os.WriteFile(token, []byte("110201543:AAwrongwrongwrongwrongwrongwrong\n"), 0o600))
	d := b.serve()
	d.awaitLog("does not accept the token")
	unreachable := func() bool {
		_, out, _ := b.run("", "status")
		return strings.Contains(out, "channel telegram is down: ")
	}
	await(t, b.layout.Run(), unreachable)
	require.NoError(t, os.WriteFile(token, []byte(botapi.Token+"\n"), 0o600))
	id := b.ask(`{"tool_name":"say"}`)
	require.Contains(t, b.tap(b.card(id), "❌ Deny"), "Denied: ")
	require.Equal(t, approval.StatusDenied, b.response(id).Status)
	require.NotContains(t, d.logged(), "wrongwrong")
	await(t, b.layout.Run(), func() bool { return !unreachable() })
	d.stop()
}

// A request that its client sends only to email gets no card in Telegram.
func TestTelegramSkipsRequestsOfOtherChannels(t *testing.T) {
	t.Parallel()
	b := newBotRig(t, strings.Replace(annDecides, `["telegram"]`, `["telegram", "email"]`, 1))
	text, err := os.ReadFile(b.config)
	require.NoError(t, err)
	password := filepath.Join(b.dir, "password")
	require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	nowhere := `{ address = "127.0.0.1:9", security = "starttls", username = "permesso@gate.test", password_file = "` + password + `" }`
	mail := "listen = \"127.0.0.1:0\"\n[channels.email]\nfrom = \"permesso@gate.test\"\nsmtp = " + nowhere + "\nimap = " + nowhere + "\n"
	text = []byte(mail + strings.Replace(string(text), "telegram = 1001", "telegram = 1001\nemail = \"ann@example.org\"", 1))
	require.NoError(t, os.WriteFile(b.config, text, 0o600))
	d := b.serve()
	d.awaitLog("HTTP API listening")
	code, key, errs := b.run("", "key", "create", "default")
	require.Zero(t, code, errs)
	agent := &restClient{b.rig, "http://" + listenPattern.FindStringSubmatch(d.logged())[1], strings.TrimSpace(key)}
	ask := func(channel string) (id string) {
		status, a := agent.do("POST", "/v1/approvals", `{"tool_name":"say","channel":"`+channel+`"}`)
		require.Equal(t, 201, status, "%v", a)
		id, _ = a["approval_id"].(string)
		return strings.TrimPrefix(id, "appr_")
	}
	mailed := ask("email")
	b.card(ask("telegram")) // sent after the other one was processed
	for _, m := range b.api.State().FromBot(ann) {
		require.NotContains(t, m.Text, approval.ShortID(mailed))
	}
	d.stop()
}

func TestBotToken(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), mode))
		return file
	}
	for _, tc := range []struct {
		why, file, env, want, problem string
	}{
		{"from a file", write("a", botapi.Token+"\n", 0o600), "", botapi.Token, ""},
		{"from the environment", "", botapi.Token, botapi.Token, ""},
		{"the file takes precedence", write("b", botapi.Token, 0o400), "111111:AAotherotherotherotherother", botapi.Token, ""},
		{"no token configured", "", "", "", "no bot token: run permesso telegram setup"},
		{"others may read it", write("c", botapi.Token, 0o644), "", "", "chmod 600"},
		{"two lines", write("d", botapi.Token+"\nx", 0o600), "", "", "one line"},
		{"no token", write("e", "hunter2", 0o600), "", "", "has no valid bot token"},
		{"a folder", dir, "", "", "not a regular file"},
		{"a missing file", filepath.Join(dir, "none"), "", "", "no such file"},
	} {
		token, err := home.BotToken(&config.Telegram{TokenFile: tc.file}, func(string) string { return tc.env })
		require.Equal(t, tc.want, token, tc.why)
		if tc.problem == "" {
			require.NoError(t, err, tc.why)
			continue
		}
		require.ErrorContains(t, err, tc.problem, tc.why)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
