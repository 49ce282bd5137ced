package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// annTelegram is what setup finds when ann has written to the bot.
var annTelegram = config.NewTelegram{TokenFile: "/etc/p/telegram.token", Workspace: "one", Approver: "ann", ID: 7}

func TestAddTelegram(t *testing.T) {
	group := annTelegram
	group.Chat = config.TelegramChat{ChatID: -100, ThreadID: 3}
	served := annTelegram
	served.ServerURL = "http://127.0.0.1:8081"
	bare := config.NewTelegram{Workspace: "default", Approver: "ann", ID: 7}
	for _, row := range []struct {
		why, before, after string
		t                  config.NewTelegram
	}{
		{
			"into a commented file", fullConfig, strings.NewReplacer(
				"limits = { pending = 3 }\n", "limits = { pending = 3 }\napprovers = [\"ann\"]\nchannels = [\"telegram\"]\n",
				"local = 1000\n", "local = 1000\ntelegram = 7\n",
			).Replace(fullConfig) + "\n[channels.telegram]\ntoken_file = \"/etc/p/telegram.token\"\n", annTelegram,
		},
		{
			"into an empty file", "", "\n[channels.telegram]\n\n[approvers.ann]\ntelegram = 7\n\n[workspaces.default]\napprovers = [\"ann\"]\nchannels = [\"telegram\"]\n", bare,
		},
		{
			"a group's topic, a server, comments at the end of lines, no newline at the end of the file",
			"[workspaces.one] # one\nautonomy = \"full\" # all\n# end\n[approvers.ann] # me\nlanguage = \"it\" # ciao\n[channels.telegram] # bot",
			"[workspaces.one] # one\nautonomy = \"full\" # all\napprovers = [\"ann\"]\nchannels = [\"telegram\"]\ntelegram = { chat_id = -100, thread_id = 3 }\n# end\n" +
				"[approvers.ann] # me\nlanguage = \"it\" # ciao\ntelegram = 7\n[channels.telegram] # bot\ntoken_file = \"/etc/p/telegram.token\"\n",
			group,
		},
		{
			"into lists, one on several lines", "[approvers.bob]\nlocal = 7\n[approvers.ann]\ntelegram=7\n[workspaces.one]\napprovers = [ # who\n  'bob', # [he]\n]\nchannels = []\n",
			"[approvers.bob]\nlocal = 7\n[approvers.ann]\ntelegram=7\n[workspaces.one]\napprovers = [ # who\n  'bob', \"ann\", # [he]\n]\nchannels = [\"telegram\"]\n" +
				"\n[channels.telegram]\ntoken_file = \"/etc/p/telegram.token\"\nserver_url = \"http://127.0.0.1:8081\"\n", served,
		},
		{
			"into an empty list with a comment", "[approvers.ann]\ntelegram=7\n[workspaces.one]\napprovers = [\n# none yet ]\n]\nchannels = [\"telegram\",]\n[channels.telegram]\ntoken_file = '/x'\n",
			"[approvers.ann]\ntelegram=7\n[workspaces.one]\napprovers = [\n# none yet ]\n\"ann\"]\nchannels = [\"telegram\",]\n[channels.telegram]\ntoken_file = '/x'\n",
			config.NewTelegram{Workspace: "one", Approver: "ann", ID: 7},
		},
		{
			"another chat", "[workspaces.one]\ntelegram = {chat_id=5} # old\napprovers=[\"ann\"]\nchannels=[\"telegram\"]\n[approvers.ann]\ntelegram=7\n[channels.telegram]\ntoken_file = '/etc/p/telegram.token'\n",
			"[workspaces.one]\ntelegram = { chat_id = -100, thread_id = 3 } # old\napprovers=[\"ann\"]\nchannels=[\"telegram\"]\n[approvers.ann]\ntelegram=7\n[channels.telegram]\ntoken_file = '/etc/p/telegram.token'\n", group,
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			after, err := config.Reader{}.AddTelegram("p.toml", []byte(row.before), row.t)
			require.NoError(t, err)
			require.Equal(t, row.after, string(after))
			c, err := config.Parse("p.toml", after)
			require.NoError(t, err)
			require.Equal(t, "7", c.Approvers["ann"].IDs["telegram"])
			require.Contains(t, c.Workspaces[row.t.Workspace].Approvers, "ann")
			require.Equal(t, row.t.Chat, c.TelegramChats[row.t.Workspace])
			require.Equal(t, []string{"telegram"}, c.Workspaces[row.t.Workspace].Channels)
			for _, w := range c.Warnings {
				require.NotContains(t, w.Message, "telegram", "approvers can be asked")
			}
			again, err := config.Reader{}.AddTelegram("p.toml", after, row.t)
			require.NoError(t, err)
			require.Equal(t, string(after), string(again), "a second time changes nothing")
		})
	}
}

func TestAddTelegramRefuses(t *testing.T) {
	with := func(change func(*config.NewTelegram)) config.NewTelegram {
		n := annTelegram
		change(&n)
		return n
	}
	for _, row := range []struct {
		why, before, says string
		t                 config.NewTelegram
	}{
		{"an unknown workspace", fullConfig, `there is no workspace "three"`, with(func(n *config.NewTelegram) { n.Workspace = "three" })},
		{"an invalid name", fullConfig, "an approver's name is", with(func(n *config.NewTelegram) { n.Approver = "x]\n[tools.y" })},
		{"the id of another approver", fullConfig + "[approvers.bob]\ntelegram = 7\n", `the id 7 already belongs to approver "bob"`, annTelegram},
		{"the approver has another id", strings.Replace(fullConfig, "local = 1000", "telegram = 8", 1), `approver "ann" already has the Telegram id 8, not 7`, annTelegram},
		{
			"the workspace has another principal", "[approvers.bob]\nlocal=1\n[approvers.ann]\nlocal=2\n[workspaces.one]\napprovers=[\"bob\"]\nprincipal=\"bob\"\n",
			`only the principal "bob" may decide in workspace "one"`, annTelegram,
		},
		{"another token file", fullConfig + "[channels.telegram]\ntoken_file = \"/y\"\n", "another token_file", annTelegram},
		{"another server", fullConfig + "[channels.telegram]\nserver_url = \"https://y.org\"\n", "another server_url", with(func(n *config.NewTelegram) { n.ServerURL = "https://x.org" })},
		{
			"an invalid id", fullConfig, "telegram must be 1 to", with(func(n *config.NewTelegram) { n.ID = -7 }),
		},
		{
			"a workspace on one line", "workspaces = { one = {} }\n[approvers.ann]\nlocal = 1\n",
			"[workspaces.one] has no header of its own here\nhint: add by hand: approvers = [\"ann\"]; channels = [\"telegram\"]", annTelegram,
		},
		{
			"an approver by a dotted key", "approvers.ann.local = 1\n[workspaces.one]\n",
			"[approvers.ann] has no header of its own here\nhint: add by hand: telegram = 7", annTelegram,
		},
		{
			"a chat in its own table", fullConfig + "[workspaces.one.telegram]\nchat_id = 5\n",
			`the chat of workspace "one" is not on one line here`, with(func(n *config.NewTelegram) { n.Chat.ChatID = -100 }),
		},
		{"an invalid file", "gaet = 1\n", "unknown key", annTelegram},
		{"a token instead of its file", fullConfig, "token_file must be an absolute path", with(func(n *config.NewTelegram) { n.TokenFile = "123456:AAhunter2hunter2" })},
	} {
		t.Run(row.why, func(t *testing.T) {
			out, err := config.Reader{}.AddTelegram("p.toml", []byte(row.before), row.t)
			require.Contains(t, printed(err), row.says)
			require.NotContains(t, printed(err), "hunter2")
			require.Nil(t, out)
		})
	}
}
