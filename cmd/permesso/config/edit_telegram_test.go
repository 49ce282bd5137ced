package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// told is what setup finds out of ann, who wrote to the bot by herself.
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
			"into a file that people wrote", fullConfig, strings.NewReplacer(
				"limits = { pending = 3 }\n", "limits = { pending = 3 }\napprovers = [\"ann\"]\nchannels = [\"telegram\"]\n",
				"local = 1000\n", "local = 1000\ntelegram = 7\n",
			).Replace(fullConfig) + "\n[channels.telegram]\ntoken_file = \"/etc/p/telegram.token\"\n", annTelegram,
		},
		{
			"into nothing", "", "\n[channels.telegram]\n\n[approvers.ann]\ntelegram = 7\n\n[workspaces.default]\napprovers = [\"ann\"]\nchannels = [\"telegram\"]\n", bare,
		},
		{
			"a group's topic, a server, comments at the end of lines, no newline at the end of the file",
			"[workspaces.one] # one\nautonomy = \"full\" # all\n# end\n[approvers.ann] # me\nlanguage = \"it\" # ciao\n[channels.telegram] # bot",
			"[workspaces.one] # one\nautonomy = \"full\" # all\napprovers = [\"ann\"]\nchannels = [\"telegram\"]\ntelegram = { chat_id = -100, thread_id = 3 }\n# end\n" +
				"[approvers.ann] # me\nlanguage = \"it\" # ciao\ntelegram = 7\n[channels.telegram] # bot\ntoken_file = \"/etc/p/telegram.token\"\n",
			group,
		},
		{
			"into lists, one of them long", "[approvers.bob]\nlocal = 7\n[approvers.ann]\ntelegram=7\n[workspaces.one]\napprovers = [ # who\n  'bob', # [he]\n]\nchannels = []\n",
			"[approvers.bob]\nlocal = 7\n[approvers.ann]\ntelegram=7\n[workspaces.one]\napprovers = [ # who\n  'bob', \"ann\", # [he]\n]\nchannels = [\"telegram\"]\n" +
				"\n[channels.telegram]\ntoken_file = \"/etc/p/telegram.token\"\nserver_url = \"http://127.0.0.1:8081\"\n", served,
		},
		{
			"into an empty list with a comment", "[approvers.ann]\ntelegram=7\n[workspaces.one]\napprovers = [\n# nobody yet ]\n]\nchannels = [\"telegram\",]\n[channels.telegram]\ntoken_file = '/x'\n",
			"[approvers.ann]\ntelegram=7\n[workspaces.one]\napprovers = [\n# nobody yet ]\n\"ann\"]\nchannels = [\"telegram\",]\n[channels.telegram]\ntoken_file = '/x'\n",
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
			require.Equal(t, "7", c.Approvers["ann"].Telegram)
			require.Contains(t, c.Workspaces[row.t.Workspace].Approvers, "ann")
			require.Equal(t, row.t.Chat, c.TelegramChats[row.t.Workspace])
			require.Equal(t, []string{"telegram"}, c.Workspaces[row.t.Workspace].Channels)
			for _, w := range c.Warnings {
				require.NotContains(t, w.Message, "telegram", "and somebody can be asked")
			}
			again, err := config.Reader{}.AddTelegram("p.toml", after, row.t)
			require.NoError(t, err)
			require.Equal(t, string(after), string(again), "twice is once")
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
		{"no such workspace", fullConfig, `there is no workspace "three"`, with(func(n *config.NewTelegram) { n.Workspace = "three" })},
		{"no name", fullConfig, "an approver's name is", with(func(n *config.NewTelegram) { n.Approver = "x]\n[tools.y" })},
		{"somebody else's id", fullConfig + "[approvers.bob]\ntelegram = 7\n", `7 is approver "bob" already`, annTelegram},
		{"another id of hers", strings.Replace(fullConfig, "local = 1000", "telegram = 8", 1), `approver "ann" is 8 at Telegram already, and not 7`, annTelegram},
		{
			"somebody else's agent", "[approvers.bob]\nlocal=1\n[approvers.ann]\nlocal=2\n[workspaces.one]\napprovers=[\"bob\"]\nprincipal=\"bob\"\n",
			`only "bob" decides in workspace "one"`, annTelegram,
		},
		{"another token file", fullConfig + "[channels.telegram]\ntoken_file = \"/y\"\n", "another token_file", annTelegram},
		{"another server", fullConfig + "[channels.telegram]\nserver_url = \"https://y.org\"\n", "another server_url", with(func(n *config.NewTelegram) { n.ServerURL = "https://x.org" })},
		{
			"an id that there is none of", fullConfig, "telegram must be 1 to", with(func(n *config.NewTelegram) { n.ID = -7 }),
		},
		{
			"a workspace in one line", "workspaces = { one = {} }\n[approvers.ann]\nlocal = 1\n",
			"[workspaces.one] is not a table with a header of its own here\nhint: write into it by hand: approvers = [\"ann\"]; channels = [\"telegram\"]", annTelegram,
		},
		{
			"an approver by a dotted key", "approvers.ann.local = 1\n[workspaces.one]\n",
			"[approvers.ann] is not a table with a header of its own here\nhint: write into it by hand: telegram = 7", annTelegram,
		},
		{
			"a chat in a table of its own", fullConfig + "[workspaces.one.telegram]\nchat_id = 5\n",
			`the chat of workspace "one" does not stand in one line here`, with(func(n *config.NewTelegram) { n.Chat.ChatID = -100 }),
		},
		{"a file that is wrong already", "gaet = 1\n", "unknown key", annTelegram},
		{"a token in the place of its file", fullConfig, "token_file must be an absolute path", with(func(n *config.NewTelegram) { n.TokenFile = "123456:AAhunter2hunter2" })},
	} {
		t.Run(row.why, func(t *testing.T) {
			out, err := config.Reader{}.AddTelegram("p.toml", []byte(row.before), row.t)
			require.ErrorContains(t, err, row.says)
			require.NotContains(t, err.Error(), "hunter2")
			require.Nil(t, out)
		})
	}
}
