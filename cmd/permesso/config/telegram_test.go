package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func TestTelegram(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(`
[channels.telegram]
token_file = "/etc/permesso/telegram.token"
server_url = "http://127.0.0.1:8081/"
feed = true
webhook = { listen = ":8443", url = "https://gate.example.org/telegram", secret_file = "/etc/permesso/webhook" }

[workspaces.forum]
approvers = ["ann"]
channels = ["telegram"]
telegram = { chat_id = -100123, thread_id = 7 }
quiet_hours = "22:00-07:30"
night_timeout = "10h"

[workspaces.private]
approvers = ["ann"]
channels = ["telegram"]

[approvers.ann]
telegram = 7
`))
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.Equal(t, &config.Telegram{
		TokenFile: "/etc/permesso/telegram.token", ServerURL: "http://127.0.0.1:8081", Feed: true,
		Webhook: &config.TelegramWebhook{Listen: ":8443", URL: "https://gate.example.org/telegram", SecretFile: "/etc/permesso/webhook"},
	}, c.Telegram)
	require.Equal(t, map[string]config.TelegramChat{"forum": {-100123, 7}}, c.TelegramChats)
	require.Equal(t, approval.QuietHours{From: 22 * time.Hour, To: 7*time.Hour + 30*time.Minute, Timeout: 10 * time.Hour}, c.Workspaces["forum"].QuietHours)
	require.Zero(t, c.Workspaces["private"].QuietHours)
	c, err = config.Parse("p.toml", []byte("[channels.telegram]\n"))
	require.NoError(t, err)
	require.Equal(t, &config.Telegram{}, c.Telegram, "the token may be in the environment")
}

func TestTelegramIssues(t *testing.T) {
	for _, tc := range []struct{ why, file, want string }{
		{"a token instead of its file", "[channels.telegram]\ntoken_file = \"123456:AAhunter2\"", "p.toml:2:14: token_file must be an absolute path"},
		{"a token in the file", "[channels.telegram]\nbot_token = \"123456:AAhunter2\"", "p.toml:2:1: bot_token: secrets are not allowed in this file"},
		{"a webhook's secret in the file", "[channels.telegram]\nwebhook = { listen = \":1\", url = \"https://x.org\", secret = \"hunter2\" }", "p.toml:2:51: secret: secrets are not allowed in this file"},
		{"an incomplete webhook", "[channels.telegram]\nwebhook = { listen = \":8443\" }", "p.toml:2:11: a webhook needs url"},
		{"a webhook without encryption", "[channels.telegram]\nwebhook = { listen = \":8443\", url = \"http://gate.example.org\", secret_file = \"/x\" }", "p.toml:2:37: url must use https"},
		{"a server without encryption", "[channels.telegram]\nserver_url = \"http://telegram.example.org\"", "p.toml:2:14: server_url must use https"},
		{"an invalid server", "[channels.telegram]\nserver_url = \"telegram\"", "p.toml:2:14: server_url must be a URL without user, query and fragment"},
		{"a password in an address", "[channels.telegram]\nserver_url = \"https://a:hunter2@x.org\"", "p.toml:2:14: server_url must be a URL without user, query and fragment"},
		{"no address", "[channels.telegram]\nwebhook = { listen = \"8443\", url = \"https://x.org\", secret_file = \"/x\" }", "p.toml:2:22: listen must be an address and a port"},
		{"a topic without a group", "[workspaces.w]\ntelegram = { thread_id = 3 }", "p.toml:2:26: thread_id needs the chat_id of its group"},
		{"a topic of a private chat", "[workspaces.w]\ntelegram = { chat_id = 7, thread_id = 3 }", "p.toml:2:39: a private chat has no topics"},
		{"invalid hours", "[workspaces.w]\nquiet_hours = \"25:00-7\"", "p.toml:2:15: quiet_hours must be two different times of day"},
		{"the same hour twice", "[workspaces.w]\nquiet_hours = \"22:00-22:00\"", "p.toml:2:15: quiet_hours must be two different times of day"},
		{"night_timeout without quiet_hours", "[workspaces.w]\nnight_timeout = \"8h\"", "p.toml:2:1: night_timeout needs quiet_hours"},
		{"a key in the wrong place", "[workspaces.w]\ntoken_file = \"/x\"", "it belongs in [channels.telegram]"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			_, err := config.Parse("p.toml", []byte(tc.file))
			require.Error(t, err)
			require.Contains(t, printed(err), tc.want)
			require.NotContains(t, printed(err), "hunter2")
		})
	}
}

func TestTelegramWarnings(t *testing.T) {
	for _, tc := range []struct{ why, file, want string }{
		{"no bot", "[approvers.ann]\ntelegram = 7\n[workspaces.w]\napprovers = [\"ann\"]\nchannels = [\"telegram\"]", `p.toml:3:13: workspace "w" uses channel telegram, but there is no [channels.telegram]: no approver is asked there`},
		{"no chat", "[channels.telegram]\n[approvers.ann]\nlocal = 7\n[workspaces.w]\napprovers = [\"ann\"]\nchannels = [\"telegram\"]", `p.toml:4:13: no Telegram chat is configured for workspace "w"`},
		{"no approver", "[channels.telegram]\n[workspaces.w]\nchannels = [\"telegram\"]\ntelegram = { chat_id = 5 }", `p.toml:2:13: workspace "w" uses channel telegram, but has no approvers`},
	} {
		c, err := config.Parse("p.toml", []byte(tc.file))
		require.NoError(t, err, tc.why)
		var all []string
		for _, w := range c.Warnings {
			all = append(all, printed(w.Format("p.toml")))
		}
		require.Contains(t, strings.Join(all, "\n"), tc.want, tc.why)
	}
}
