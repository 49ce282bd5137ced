package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/ntfy/ntfyserver"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

const ntfyTopic, ntfyToken = "secret-topic-0123456789", "tk_secrettoken"

// newNtfyRig is a home with a server of ntfy. It does not start the daemon.
func newNtfyRig(t *testing.T, more string) (*rig, *ntfyserver.Server) {
	t.Helper()
	s := ntfyserver.New(t, ntfyTopic)
	s.Token = ntfyToken
	h := newRig(t, "personal", "")
	for name, secret := range map[string]string{"topic": ntfyTopic, "token": ntfyToken} {
		require.NoError(t, os.WriteFile(filepath.Join(h.dir, name), []byte(secret+"\n"), 0o600))
	}
	text := strings.Replace(uiConfig, "[workspaces.personal]\n", "[workspaces.personal]\nchannels = [\"ntfy\"]\n"+more+"\n", 1)
	_, tool, found := strings.Cut(text, "[tools.hello]")
	require.True(t, found)
	text += "[tools.deploy]" + strings.NewReplacer("hello", "deploy", "/bin/echo", "/bin/false").Replace(tool) + fmt.Sprintf("[channels.ntfy]\nserver = %q\ntopic_file = %q\ntoken_file = %q\nui_url = \"https://gate.example.org\"\n", s.URL, filepath.Join(h.dir, "topic"), filepath.Join(h.dir, "token"))
	require.NoError(t, os.WriteFile(h.config, []byte(text), 0o600))
	return h, s
}

// awaitNtfy waits for a message.
func awaitNtfy(t *testing.T, s *ntfyserver.Server, ok func(m ntfyserver.Message) bool) (found ntfyserver.Message) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, m := range s.Messages() {
			if ok(m) {
				found = m
				return true
			}
		}
		return false
	}, testTimeout, 10*time.Millisecond)
	return found
}

// A phone hears what waits and how it ended, with no word of the agent. The secrets are in no log and no status.
func TestNtfy(t *testing.T) {
	t.Parallel()
	h, s := newNtfyRig(t, "")
	d := h.serve()
	id := h.ask(`{"tool_name":"hello","request_data":{"name":"hostile: see http://evil.example"},"preview":"hostile"}`)
	m := awaitNtfy(t, s, func(m ntfyserver.Message) bool { return strings.Contains(m.Text, approval.ShortID(id)) })
	require.Equal(t, "🔐 May I say hello?", m.Title)
	require.Equal(t, "hello · personal · "+approval.ShortID(id), m.Text)
	require.Equal(t, "https://gate.example.org/r/personal/"+id, m.Click)
	require.Equal(t, 4, m.Priority)
	code, _, errs := h.run("", "deny", id)
	require.Zero(t, code, errs)
	settled := awaitNtfy(t, s, func(m ntfyserver.Message) bool { return m.Priority == 1 })
	require.Equal(t, m.Sequence, settled.Sequence)
	require.Equal(t, "Settled: denied · "+approval.ShortID(id), settled.Text)
	require.Len(t, s.Messages(), 1)
	fails := h.ask(`{"tool_name":"deploy","request_data":{"name":"hostile"}}`)
	h.awaitPending("personal", fails)
	code, _, errs = h.run("", "approve", fails)
	require.Equal(t, console.ExitFailed, code, errs)
	failed := awaitNtfy(t, s, func(m ntfyserver.Message) bool { return strings.HasPrefix(m.Title, "⚠") })
	require.Equal(t, 4, failed.Priority)
	for _, shown := range []ntfyserver.Message{m, settled, failed} {
		require.NotContains(t, shown.Title+shown.Text, "hostile")
		text := strings.NewReplacer(approval.ShortID(id), "a7f3b2c1", approval.ShortID(fails), "b81c07de").Replace(shown.Title + "\n" + shown.Text)
		requireReadme(t, "ntfy", text)
	}

	s.Fail(http.StatusUnauthorized)
	other := h.ask(`{"tool_name":"hello","request_data":{"name":"ann"}}`)
	h.awaitPending("personal", other)
	require.Eventually(t, func() bool {
		_, out, _ := h.run("", "status")
		requireNoTopic(t, out)
		return strings.Contains(out, "HTTP status 401")
	}, testTimeout, 50*time.Millisecond)
	_, out, _ := h.run("", "doctor", "--quick")
	requireNoTopic(t, out)
	requireNoTopic(t, d.logged())
	d.stop()
}

// requireReadme fails unless the README of a channel shows a notification.
func requireReadme(t *testing.T, channel, text string) {
	t.Helper()
	readme, err := os.ReadFile("../../chat/" + channel + "/README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```\n"+text+"\n```")
}

// Requests that a limit refuses are told with their number.
func TestNtfyLimited(t *testing.T) {
	t.Parallel()
	h, s := newNtfyRig(t, "limits = { ask_per_minute = 1 }")
	h.serve()
	for range 3 {
		h.ask(`{"tool_name":"hello","request_data":{"name":"hostile"}}`)
	}
	m := awaitNtfy(t, s, func(m ntfyserver.Message) bool { return strings.HasPrefix(m.Text, "🚫") })
	require.Empty(t, m.Click)
	// The notification may go out between the two refusals.
	requireReadme(t, "ntfy", m.Title+"\n"+regexp.MustCompile(`: [12]$`).ReplaceAllString(m.Text, ": 2"))
}

func requireNoTopic(t *testing.T, text string) {
	t.Helper()
	require.NotContains(t, text, ntfyTopic)
	require.NotContains(t, text, ntfyToken)
}
