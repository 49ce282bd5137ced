package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// botTown is a Telegram with ann in it, and a gate that asks her there.
type botTown struct {
	*place
	api *botapi.Server
}

const ann int64 = 1001

func newBotTown(t *testing.T, config string) *botTown {
	t.Helper()
	api := botapi.Start(t)
	api.AddUser(botapi.User{ID: ann, FirstName: "Ann"})
	api.Say(ann, ann, "/start")
	h := newPlace(t, "default", "")
	token := filepath.Join(h.dir, "telegram.token")
	require.NoError(t, os.WriteFile(token, []byte(botapi.Token+"\n"), 0o600))
	text := fmt.Sprintf("[channels.telegram]\nserver_url = %q\ntoken_file = %q\n", api.URL, token) + config + askAll
	require.NoError(t, os.WriteFile(h.config, []byte(text), 0o600))
	return &botTown{h, api}
}

const annDecides = `
[approvers.ann]
telegram = 1001
[workspaces.default]
approvers = ["ann"]
channels = ["telegram"]
approval_timeout = "1h"
`

// sees awaits a message in ann's chat.
func (b *botTown) sees(what string, ok func(botapi.Message) bool) (found botapi.Message) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	err := b.api.Await(ctx, func(s botapi.State) bool {
		for _, m := range s.FromBot(ann) {
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

func (b *botTown) card(id string) botapi.Message {
	b.t.Helper()
	return b.sees("a card", func(m botapi.Message) bool {
		return strings.Contains(m.Text, approval.ShortID(id)) && len(m.Buttons()) > 0
	})
}

func (b *botTown) taps(m botapi.Message, button string) string {
	b.t.Helper()
	tap, err := b.api.Tap(ann, ann, m.ID, button)
	require.NoError(b.t, err)
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	a, err := tap.Answer(ctx)
	require.NoError(b.t, err)
	return a.Text
}

// The whole house: a request, a card, a tap, the deed, the response, and a card
// that says so; consent that is remembered and taken back; a pause.
func TestTelegramFromEndToEnd(t *testing.T) {
	t.Parallel()
	b := newBotTown(t, annDecides)
	d := b.serve()
	d.awaitLog(`"serving"`)
	id := b.ask(`{"tool_name":"say","session_id":"s1","request_data":{"text":"hello"}}`)
	m := b.card(id)
	require.Contains(t, b.taps(m, "✅ This session"), "Approved: ")
	r := b.response(id)
	require.Equal(t, approval.StatusApproved, r.Status)
	require.Equal(t, "ann", *r.Decision.By)
	require.Equal(t, "telegram", *r.Decision.Via)
	m = b.sees("an undo button", func(x botapi.Message) bool {
		return x.ID == m.ID && strings.Contains(strings.Join(x.Buttons(), ""), "Undo")
	})
	require.Contains(t, m.Text, "✅ Approved for this session by ann at ")

	b.api.Say(ann, ann, "grants")
	b.sees("what is remembered", func(x botapi.Message) bool { return strings.Contains(x.Text, approval.ShortID(id)+" · default · ") })
	require.Contains(t, b.taps(m, "↩ Undo"), "Taken back: ")
	b.sees("no undo button", func(x botapi.Message) bool { return x.ID == m.ID && len(x.Buttons()) == 0 })

	b.api.Say(ann, ann, "/pause it goes wild")
	b.sees("a pause", func(x botapi.Message) bool { return strings.Contains(x.Text, "⏸ default: paused") })
	id = b.ask(`{"tool_name":"say","session_id":"s1","request_data":{"text":"again"}}`)
	m = b.card(id)
	require.Contains(t, m.Text, "paused since ")
	require.Contains(t, m.Text, "by ann: nothing runs until resume (it goes wild)")
	b.taps(m, "✅ Once")
	b.api.Say(ann, ann, "/resume")
	require.Equal(t, approval.StatusApproved, b.response(id).Status)
	b.sees("the outcome", func(x botapi.Message) bool { return x.ID == m.ID && strings.Contains(x.Text, "✅ Approved by ann") })

	b.api.Say(ann, ann, "last")
	b.sees("what was decided", func(x botapi.Message) bool {
		return strings.Contains(x.Text, approval.ShortID(id)+" · approved · by ann (telegram)")
	})
	d.stop()
	require.NotContains(t, d.said(), strings.Split(botapi.Token, ":")[1])
	code, out, _ := b.run("", "audit", "tail", "-n", "100")
	require.Zero(t, code)
	require.Contains(t, out, "paused")
}

// A stranger is in the audit log, a chat that cannot be written to in status.
func TestTelegramTellsWhatIsWrong(t *testing.T) {
	b := newBotTown(t, annDecides)
	b.api.AddUser(botapi.User{ID: 6666, FirstName: "Eve"})
	d := b.serve()
	d.awaitLog(`"serving"`)
	b.api.Say(6666, 6666, "approve a7f3b2c1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, b.api.Await(ctx, func(s botapi.State) bool { return len(s.FromBot(6666)) == 1 }))
	b.api.Block(ann, true)
	id := b.ask(`{"tool_name":"say"}`)
	b.awaitPending("default", id)
	await(t, b.layout.Run(), func() bool {
		_, out, _ := b.run("", "status")
		return strings.Contains(out, "Telegram chat 1001 cannot be written to")
	})
	d.stop()
	_, out, _ := b.run("", "audit", "tail", "-n", "100")
	require.Contains(t, out, "refused_decider")
}

// A token that does not hold is told, and mended without a restart.
func TestTelegramTokenIsMended(t *testing.T) {
	b := newBotTown(t, annDecides)
	token := filepath.Join(b.dir, "telegram.token")
	require.NoError(t, os.WriteFile(token, []byte("110201543:AAwrongwrongwrongwrongwrongwrong\n"), 0o600))
	d := b.serve()
	d.awaitLog("does not accept the token")
	troubled := func() bool {
		_, out, _ := b.run("", "status")
		return strings.Contains(out, "channel telegram is down: ")
	}
	await(t, b.layout.Run(), troubled)
	require.NoError(t, os.WriteFile(token, []byte(botapi.Token+"\n"), 0o600))
	id := b.ask(`{"tool_name":"say"}`)
	require.Contains(t, b.taps(b.card(id), "❌ Deny"), "Denied: ")
	require.Equal(t, approval.StatusDenied, b.response(id).Status)
	require.NotContains(t, d.said(), "wrongwrong")
	await(t, b.layout.Run(), func() bool { return !troubled() })
	d.stop()
}

// What its client wants to be asked by mail alone is not asked here as well, hints or no hints.
func TestTelegramIsNotForAll(t *testing.T) {
	t.Parallel()
	b := newBotTown(t, strings.Replace(annDecides, `["telegram"]`, `["telegram", "email"]`, 1))
	text, err := os.ReadFile(b.config)
	require.NoError(t, err)
	word := filepath.Join(b.dir, "password")
	require.NoError(t, os.WriteFile(word, []byte("secret\n"), 0o600))
	nowhere := `{ address = "127.0.0.1:9", security = "starttls", username = "permesso@gate.test", password_file = "` + word + `" }`
	mail := "listen = \"127.0.0.1:0\"\n[channels.email]\nfrom = \"permesso@gate.test\"\nsmtp = " + nowhere + "\nimap = " + nowhere + "\n"
	text = []byte(mail + strings.Replace(string(text), "telegram = 1001", "telegram = 1001\nemail = \"ann@example.org\"", 1))
	require.NoError(t, os.WriteFile(b.config, text, 0o600))
	d := b.serve()
	d.awaitLog("HTTP API listening")
	code, key, errs := b.run("", "key", "create", "default")
	require.Zero(t, code, errs)
	agent := &restClient{b.place, "http://" + listensOn.FindStringSubmatch(d.said())[1], strings.TrimSpace(key)}
	ask := func(channel string) (id string) {
		status, a := agent.do("POST", "/v1/approvals", `{"tool_name":"say","channel":"`+channel+`"}`)
		require.Equal(t, 201, status, "%v", a)
		id, _ = a["approval_id"].(string)
		return strings.TrimPrefix(id, "appr_")
	}
	mailed := ask("email")
	b.card(ask("telegram")) // heeded after that one
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
		{"the file counts", write("b", botapi.Token, 0o400), "111111:AAotherotherotherotherother", botapi.Token, ""},
		{"nowhere", "", "", "", "no bot token: run permesso telegram setup"},
		{"others may read it", write("c", botapi.Token, 0o644), "", "", "chmod 600"},
		{"two lines", write("d", botapi.Token+"\nx", 0o600), "", "", "one line"},
		{"no token", write("e", "hunter2", 0o600), "", "", "has no valid bot token"},
		{"a folder", dir, "", "", "not a regular file"},
		{"nothing", filepath.Join(dir, "none"), "", "", "no such file"},
	} {
		token, err := botToken(&config.Telegram{TokenFile: tc.file}, func(string) string { return tc.env })
		require.Equal(t, tc.want, token, tc.why)
		if tc.problem == "" {
			require.NoError(t, err, tc.why)
			continue
		}
		require.ErrorContains(t, err, tc.problem, tc.why)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
