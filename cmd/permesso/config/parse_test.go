package config_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/policy"
)

const people = `
[approvers.ann]
telegram = 1
[approvers.bob]
email = "bob@example.org"
`

func TestParseAllKeys(t *testing.T) {
	c, err := config.Parse("permesso.toml", []byte(`
gate = "gate-1.example.org"
run_before = "1m"
log_level = "debug"
language = "it"
local_decisions = false

[workspaces.personal]
autonomy = "full"
approvers = ["ann", "bob"]
principal = "bob"
approval_timeout = "30h"
local_decisions = true
language = "en"
telegram = { chat_id = -100123 }
limits = { pending = 1, ask_per_minute = 2, per_minute = 3, request_size = "4KiB", running = 5, stored = "16MiB" }

[workspaces.plain]

[approvers.ann]
telegram = 123456789
local = 0
[approvers.bob]
email = "Bob@Example.ORG"
language = "en"

[tools."x.post:v1"]
capability = "channel:out"
action_type = "custom:post"
verb = { en = "post", it = "pubblichi su X" }
summary = "{text} -> x.com"
target = "x.com"
reversibility = "partial"
territory = "session"
public_source = false
secret_data = "forbidden"
public_sink = true
handler = { kind = "command", argv = ["/opt/x", "--", "{text}"], dir = "/srv", env = ["LANG", "LC_ALL"], timeout = "90s", max_output = 2048, max_memory = "3GiB", max_processes = 9, idempotent = true }

[tools.bare]
capability = "time:read"
[tools.clear]
trust = false
verb = "clear"
handler = { kind = "none" }

[[rules]]
match = { tool = "bare", workspace = "personal" }
outcome = "allow"
reason = "mine"
[[rules]]
name = "nothing here"
outcome = "deny"
[rules.match]
workspace = "plain"
`))
	require.NoError(t, err)
	require.Equal(t, "permesso.toml", c.File)
	require.Equal(t, "gate-1.example.org", c.GateName)
	require.Equal(t, time.Minute, c.RunBefore)
	require.Equal(t, "debug", c.LogLevel)
	require.False(t, c.LocalDecisions)
	require.Equal(t, approval.Workspace{
		Name: "personal", Autonomy: "full", Approvers: []string{"ann", "bob"}, Principal: "bob",
		LocalDecisions: true, Timeout: 30 * time.Hour,
		MaxTimeout: 30 * time.Hour, // the default of 24 h would be shorter than the timeout
		Language:   "en", ChatJID: "telegram:-100123",
		Limits: approval.Limits{Pending: 1, AskPerMinute: 2, PerMinute: 3, RequestSize: 4096, Running: 5, Stored: 16 << 20},
	}, c.Workspaces["personal"])
	require.Equal(t, approval.Workspace{
		Name: "plain", Autonomy: "supervised", Timeout: 5 * time.Minute, MaxTimeout: 24 * time.Hour,
		Language: "it", Limits: approval.Limits{}.WithDefaults(),
	}, c.Workspaces["plain"], "an empty workspace gets the settings of the top of the file and the defaults")
	require.Equal(t, map[string]approval.Approver{
		"ann": {Name: "ann", IDs: map[string]string{"telegram": "123456789", "local": "0"}, Language: ""},
		"bob": {Name: "bob", IDs: map[string]string{"email": "Bob@example.org"}, Language: "en"},
	}, c.Approvers)
	require.Equal(t, approval.Tool{
		Name: "x.post:v1", Capability: "channel:out", ActionType: "custom:post",
		Verb: map[string]string{"en": "post", "it": "pubblichi su X"}, Summary: "{text} -> x.com", Target: "x.com",
		Reversibility: approval.Partial, Territory: "session",
		Trust: approval.Trust{PublicSource: "false", SecretData: "forbidden", PublicSink: "true"},
		Handler: approval.Handler{
			Kind: "command", Argv: []string{"/opt/x", "--", "{text}"}, Dir: "/srv", Env: []string{"LANG", "LC_ALL"},
			Timeout: 90 * time.Second, MaxOutput: 2048, Idempotent: true, MaxMemory: 3 << 30, MaxProcesses: 9,
		},
	}, c.Tools["x.post:v1"])
	require.Equal(t, approval.Tool{Name: "bare", Capability: "time:read", Territory: "none", Handler: approval.Handler{Kind: "none"}}, c.Tools["bare"],
		"unset fields stay unset: policy derives their meaning")
	require.Equal(t, approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: "false"}, c.Tools["clear"].Trust)
	require.Equal(t, map[string]string{"en": "clear"}, c.Tools["clear"].Verb)
	require.Equal(t, []policy.Rule{
		{Tool: policy.Names{"bare"}, Workspace: policy.Names{"personal"}, Outcome: approval.Allow, Reason: "mine", Name: "rule 1"},
		{Workspace: policy.Names{"plain"}, Outcome: approval.Deny, Name: "nothing here"},
	}, c.Rules)
	require.Len(t, c.Warnings, 2)
	require.Contains(t, c.Warnings[0].Message, `approver "bob" is never asked in workspace "personal"`)
	require.Equal(t, map[string]config.TelegramChat{"personal": {ChatID: -100123}}, c.TelegramChats)
	require.Nil(t, c.Telegram)
	require.Contains(t, c.Warnings[1].Message, `no person may approve in workspace "plain"`)
}

func TestDefault(t *testing.T) {
	c := config.Default()
	require.Equal(t, map[string]approval.Workspace{"default": {
		Name: "default", Autonomy: "supervised", LocalDecisions: true, Timeout: 5 * time.Minute, MaxTimeout: 24 * time.Hour,
		Language: "en", Limits: approval.Limits{Pending: 32, AskPerMinute: 60, PerMinute: 600, RequestSize: 256 << 10, Running: 8, Stored: 256 << 20},
	}}, c.Workspaces)
	require.Empty(t, c.Tools)
	require.Empty(t, c.Rules)
	require.Equal(t, 10*time.Minute, c.RunBefore)

	empty, err := config.Parse("", nil)
	require.NoError(t, err)
	empty.SHA256 = "" // an empty file has a digest
	require.Equal(t, c, empty, "an empty file equals no file")
}

// Each document has one or more issues. The text is the complete error.
func TestIssues(t *testing.T) {
	for _, row := range []struct{ why, toml, want string }{
		{
			"a misspelled key", "[workspaces.personal]\n  aproval_timeout = \"5m\"",
			`p.toml:2:3: unknown key "aproval_timeout"
hint: did you mean "approval_timeout"?`,
		},
		{
			"a part of a key", "[workspaces.w]\ntimeout = \"5m\"",
			`p.toml:2:1: unknown key "timeout"
hint: did you mean "approval_timeout"?`,
		},
		{
			"a key that is similar to no other", "zzzzzzzz = 1",
			`p.toml:1:1: unknown key "zzzzzzzz"`,
		},
		{
			"a very long key", strings.Repeat("k", 1000) + " = 1",
			`p.toml:1:1: unknown key "` + strings.Repeat("k", 64) + `..."`,
		},
		{
			"a date", "gate = 2026-11-21",
			`p.toml:1:8: gate must be a string, not a date or time`,
		},
		{
			"invisible characters in a key", `"gat\u202ee" = 1`,
			`p.toml:1:1: unknown key "gat\u202ee"
hint: did you mean "gate"?`,
		},
		{
			"a top-level key in a table", "[tools.t]\nrun_before = \"1m\"",
			`p.toml:2:1: unknown key "run_before"
hint: it belongs at the top of the file, before the first [table]`,
		},
		{
			"the state folder is not a setting", `home = "/srv"`,
			`p.toml:1:1: unknown key "home"
hint: set the state folder with --home or PERMESSO_HOME`,
		},
		{
			"a bad enumeration", "[workspaces.w]\nautonomy = \"supervisd\"",
			`p.toml:2:12: autonomy must be readonly, supervised or full
hint: did you mean "supervised"?`,
		},
		{
			"a value similar to no allowed one is not quoted", "[workspaces.w]\nautonomy = \"hunter2hunter2\"",
			`p.toml:2:12: autonomy must be readonly, supervised or full`,
		},
		{
			"an empty value", "[workspaces.w]\nautonomy = \"\"",
			`p.toml:2:12: autonomy must be readonly, supervised or full`,
		},
		{
			"log level", `log_level = "warning"`,
			`p.toml:1:13: log_level must be debug, info, warn or error
hint: did you mean "warn"?`,
		},
		{
			"an unsupported language", `language = "de"`,
			`p.toml:1:12: language must be en or it`,
		},
		{
			"the wrong type", `log_level = 3`,
			`p.toml:1:13: log_level must be a string, not a whole number
hint: one of debug, info, warn or error`,
		},
		{
			"a quoted boolean", `local_decisions = "false"`,
			`p.toml:1:19: local_decisions must be true or false, not a string
hint: true or false, without quotes`,
		},
		{
			"a value instead of tables", `workspaces = 3`,
			`p.toml:1:14: workspaces must be a table, not a whole number
hint: write [workspaces.NAME]`,
		},
		{
			"an array of workspaces", "[[workspaces]]\n",
			`p.toml:1:3: workspaces must be a table, not an array
hint: write [workspaces.NAME]`,
		},
		{
			"a key of a workspace without its name", "[workspaces]\nautonomy = \"full\"",
			`p.toml:2:1: "autonomy" in [workspaces] must be a table, not a string
hint: write [workspaces.NAME]`,
		},
		{
			"no workspace in workspaces", "[workspaces]",
			`p.toml:1:2: no workspace is configured here
hint: write [workspaces.NAME], or remove it`,
		},

		{
			"a duration without a unit", `run_before = "5"`,
			`p.toml:1:14: run_before is not a duration
hint: write it with its unit: "30s", "5m", "1h30m"`,
		},
		{
			"a number instead of a duration", `run_before = 5`,
			`p.toml:1:14: run_before must be a string, not a whole number
hint: write it with its unit: "30s", "5m", "1h30m"`,
		},
		{
			"zero", `run_before = "0s"`,
			`p.toml:1:14: run_before must be 1s to 24h`,
		},
		{
			"negative", "[workspaces.w]\napproval_timeout = \"-5m\"",
			`p.toml:2:20: approval_timeout must be 1s to 8784h`,
		},
		{
			"too long", "[workspaces.w]\napproval_timeout = \"100000h\"",
			`p.toml:2:20: approval_timeout must be 1s to 8784h`,
		},
		{
			"more than a duration holds", "[workspaces.w]\napproval_timeout = \"99999999999h\"",
			`p.toml:2:20: approval_timeout is not a duration
hint: write it with its unit: "30s", "5m", "1h30m"`,
		},
		{
			"the maximum below the default", "[workspaces.w]\napproval_timeout_max = \"4m\"",
			`p.toml:2:24: approval_timeout_max is shorter than approval_timeout, which is 5m`,
		},
		{
			"own domains that are none", "[workspaces.w]\nown_domains = [\"@example.org\", \"Example.org\", \"*.example.org\", \"exаmple.org\", \"a..b\", \"example.org.\", \"10.0.0.1\", \"\", \"example.org\"]",
			badDomains(16, 32, 47, 64, 80, 88, 104, 116),
		},
		{
			"one own domain without a list", "[workspaces.w]\nown_domains = \"example.org\"",
			"p.toml:2:15: own_domains must be an array, not a string\nhint: a list of domain names: own_domains = [\"example.org\"]",
		},

		{
			"the gate's name is part of signatures", `gate = "My Gate+1"`,
			`p.toml:1:8: gate must be a host name: 1 to 63 of a-z 0-9 . and -`,
		},
		{
			"a workspace's name is used as a folder", "[workspaces.\"../x\"]\n[workspaces.Big]\n[workspaces._x]",
			`p.toml:1:13: workspace "../x": a name is 1 to 63 of a-z 0-9 _ and -, beginning with a letter or digit
p.toml:2:13: workspace "Big": a name is 1 to 63 of a-z 0-9 _ and -, beginning with a letter or digit
p.toml:3:13: workspace "_x": a name is 1 to 63 of a-z 0-9 _ and -, beginning with a letter or digit`,
		},
		{
			"an approver with the operator's prefix", "[approvers.\"operator:root\"]\nlocal = 1",
			`p.toml:1:12: approver "operator:root": a name is 1 to 63 of a-z 0-9 _ and -, beginning with a letter or digit`,
		},

		{
			"an undefined approver", "[approvers.ricardo]\nlocal = 1\n[workspaces.w]\napprovers = [\n  \"riccardo\"]",
			`p.toml:5:3: approver "riccardo" is not defined
hint: did you mean "ricardo"?`,
		},
		{
			"no approver is defined", "[workspaces.w]\napprovers = [\"ann\"]",
			`p.toml:2:14: approver "ann" is not defined
hint: define it: [approvers.ann]`,
		},
		{
			"an invalid name is not quoted", "[workspaces.w]\napprovers = [\"Secret Value\"]",
			`p.toml:2:14: approvers: an approver's name is 1 to 63 of a-z 0-9 _ and -, beginning with a letter or digit`,
		},
		{
			"an approver twice", people + "[workspaces.w]\napprovers = [\"ann\", \"ann\"]",
			`p.toml:7:21: approver "ann" is listed twice`,
		},
		{
			"a name instead of a list", people + "[workspaces.w]\napprovers = \"ann\"",
			`p.toml:7:13: approvers must be an array, not a string
hint: a list of names: approvers = ["ann"]`,
		},
		{
			"a list of numbers", people + "[workspaces.w]\napprovers = [1]",
			`p.toml:7:14: approvers must hold strings, not a whole number
hint: a list of names: approvers = ["ann"]`,
		},
		{
			"an undefined principal", people + "[workspaces.w]\napprovers = [\"ann\"]\nprincipal = \"anne\"",
			`p.toml:8:13: approver "anne" is not defined
hint: did you mean "ann"?`,
		},
		{
			"a principal who may not approve", people + "[workspaces.w]\napprovers = [\"ann\"]\nprincipal = \"bob\"",
			`p.toml:8:13: principal "bob" is not an approver of this workspace
hint: add it to approvers`,
		},

		{
			"a Telegram user name, which can change its owner", "[approvers.ann]\ntelegram = \"@ann\"",
			`p.toml:2:12: telegram must be a whole number, not a string
hint: the numeric id, without quotes; never a @username, which can change its owner`,
		},
		{
			"a group instead of a person", "[approvers.ann]\ntelegram = -100",
			`p.toml:2:12: telegram must be 1 to 4503599627370496
hint: the numeric id, without quotes; never a @username, which can change its owner`,
		},
		{
			"a user name instead of a UID", "[approvers.ann]\nlocal = \"root\"",
			"p.toml:2:9: local must be a whole number, not a string\nhint: the number that `id -u NAME` prints, without quotes",
		},
		{
			"the UID -1", "[approvers.ann]\nlocal = 4294967295",
			"p.toml:2:9: local must be 0 to 4294967294\nhint: the number that `id -u NAME` prints, without quotes",
		},
		{
			"an address with a display name", "[approvers.ann]\nemail = \"Ann <ann@example.org>\"",
			`p.toml:2:9: email must be an email address
hint: the bare address: "ann@example.org"`,
		},
		{
			"a look-alike domain", "[approvers.ann]\nemail = \"ann@exаmple.org\"",
			`p.toml:2:9: email must be an email address
hint: the bare address: "ann@example.org"`,
		},
		{
			"one id for two people", "[approvers.ann]\ntelegram = 7\nemail = \"a@example.org\"\nlocal = 5\n[approvers.bob]\ntelegram = 7\nemail = \"A@EXAMPLE.org\"\nlocal = 0x5",
			`p.toml:6:12: approver "ann" already has this telegram id
hint: each id belongs to one person
p.toml:7:9: approver "ann" already has this email id
hint: each id belongs to one person
p.toml:8:9: approver "ann" already has this local id
hint: each id belongs to one person`,
		},

		{
			"a channel that needs no entry", "[workspaces.w]\nchannels = [\"terminal\"]",
			`p.toml:2:13: channels must hold telegram, email or ntfy
hint: terminal, CLI and browser need no entry: they are on unless local_decisions = false`,
		},
		{
			"a misspelled channel", "[workspaces.w]\nchannels = [\"telegramm\"]",
			`p.toml:2:13: channels must be telegram, email or ntfy
hint: did you mean "telegram"?`,
		},
		{
			"channels without a channel", "channels = [\"telegram\"]",
			`p.toml:1:1: no channel is configured here
hint: write [channels.telegram]`,
		},
		{
			"a token in the file", "[channels.telegram]\ntoken = \"123:hunter2\"",
			`p.toml:2:1: token: secrets are not allowed in this file
hint: put it into a separate file that only the daemon can read: token_file = "/path"`,
		},
		{
			"secrets in other tables", "smtp_password = \"hunter2\"\n[tools.t]\nhandler = { kind = \"none\", api_key = \"hunter2\" }\n[approvers]\ntoken = \"hunter2\"",
			`p.toml:1:1: smtp_password: secrets are not allowed in this file
hint: put it into a separate file that only the daemon can read: smtp_password_file = "/path"
p.toml:3:28: api_key: secrets are not allowed in this file
hint: put it into a separate file that only the daemon can read: api_key_file = "/path"
p.toml:5:1: token: secrets are not allowed in this file
hint: put it into a separate file that only the daemon can read: token_file = "/path"`,
		},

		{
			"limits", "[workspaces.w]\nlimits = { pending = 0, request_size = \"1GB\", running = 1.5, per_hour = 3 }",
			`p.toml:2:22: pending must be 1 to 10000
p.toml:2:40: request_size is not a size
hint: write it with its unit: "256KiB", "1MiB"
p.toml:2:57: running must be a whole number, not a decimal number
p.toml:2:62: unknown key "per_hour"`,
		},
		{
			"sizes have limits", "[workspaces.w]\nlimits = { request_size = \"999999999MiB\" }\n[workspaces.v]\nlimits = { request_size = 3 }",
			`p.toml:2:27: request_size must be 1024 to 16777216 bytes
p.toml:4:27: request_size must be 1024 to 16777216
hint: write it with its unit: "256KiB", "1MiB"`,
		},
		{
			"the name of a chat instead of its id", "[workspaces.w]\ntelegram = { chat_id = \"@family\" }",
			`p.toml:2:24: chat_id must be a whole number, not a string
hint: the numeric id of the chat, without quotes`,
		},

		{
			"the capabilities are a closed set", "[tools.t]\ncapability = \"mail_send\"",
			`p.toml:2:14: capability must be fs:read, fs:write, code:exec, network:http, llm:local, llm:online, mail:read, mail:send, channel:in, channel:out, time:read, parse:local or calendar:read
hint: did you mean "mail:send"?`,
		},
		{
			"an action type", "[tools.t]\naction_type = \"send_mesage\"\n[tools.u]\naction_type = \"custom:\"",
			`p.toml:2:15: action_type must be exec_cmd, http_request, write_file, send_message, or custom:NAME
hint: did you mean "send_message"?
p.toml:4:15: action_type must be exec_cmd, http_request, write_file, send_message, or custom:NAME`,
		},
		{
			"a tool's name", "[tools.\"a b\"]",
			`p.toml:1:8: tool "a b": a name is 1 to 64 of A-Z a-z 0-9 _ . : and -`,
		},
		{
			"reversibility, territory", "[tools.t]\nreversibility = \"reversable\"\nterritory = \"permanet\"",
			`p.toml:2:17: reversibility must be reversible, partial or irreversible
hint: did you mean "reversible"?
p.toml:3:13: territory must be none, session or permanent
hint: did you mean "permanent"?`,
		},
		{
			"trust properties", "[tools.t]\npublic_sink = \"true\"\nsecret_data = \"forbiden\"\npublic_source = 1",
			`p.toml:2:15: public_sink must be true, false or "forbidden"
hint: write true and false without quotes
p.toml:3:15: secret_data must be true, false or "forbidden"
hint: did you mean "forbidden"?
p.toml:4:17: public_source must be a string, not a whole number
hint: true, false or "forbidden"`,
		},
		{
			"trust only clears", "[tools.t]\ntrust = true\n[tools.u]\ntrust = false\npublic_sink = true",
			`p.toml:2:9: trust can only be false
hint: set the properties: public_source, secret_data, public_sink, dangerous_writes
p.toml:4:1: trust = false must not be combined with one of the properties
hint: remove one of them`,
		},
		{
			"verbs", "[tools.t]\nverb = { it = \"pubblichi\" }\n[tools.u]\nverb = { en = \"x\", fr = \"y\" }\n[tools.v]\nverb = 3\n[tools.w]\nverb = \"\"",
			`p.toml:2:1: verb has no English form, which is the fallback
hint: verb = { en = "post", it = "pubblichi" }
p.toml:4:20: unknown key "fr"
p.toml:6:8: verb must be a string, not a whole number
p.toml:8:8: verb must be one line of 1 to 200 bytes, without invisible characters`,
		},
		{
			"text with invisible characters", "[tools.t]\nsummary = \"a\\nb\"\ntarget = \"a\\u202eb\"",
			`p.toml:2:11: summary must be one line of 1 to 1000 bytes, without invisible characters
p.toml:3:10: target must be one line of 1 to 1000 bytes, without invisible characters`,
		},

		{
			"an mcp handler needs server and tool", "[tools.u]\nhandler = { kind = \"mcp\", timeout = \"1s\" }",
			`p.toml:2:1: an mcp handler needs server
hint: server = "github", with argv or url in [mcp.github]
p.toml:2:1: an mcp handler needs tool
hint: tool = "create_issue"`,
		},
		{
			"an unknown MCP server", "[tools.u]\ntrust = false\nhandler = { kind = \"mcp\", server = \"githup\", tool = \"x\" }\n[mcp.github]\nargv = [\"/x\"]",
			`p.toml:3:36: no MCP server "githup"
hint: did you mean "github"?`,
		},
		{
			"no MCP server", "[tools.u]\ntrust = false\nhandler = { kind = \"mcp\", server = \"jira\", tool = \"x\" }",
			`p.toml:3:36: no MCP server "jira"
hint: add [mcp.jira] with argv = ["/usr/local/bin/github-mcp-server", "stdio"], or with url = "https://mcp.example.org/mcp"`,
		},
		{
			"an MCP server that the agent runs", "[tools.u]\ntrust = false\nhandler = { kind = \"mcp\", server = \"jira\", tool = \"x\" }\n[mcp.jira]",
			`p.toml:3:36: MCP server "jira" has neither argv nor url: the host cannot reach it
hint: add argv or url to [mcp.jira]`,
		},
		{
			"an MCP server with both", "[mcp.jira]\nargv = [\"/x\"]\nurl = \"https://x.org/mcp\"",
			`p.toml:3:1: a server has argv or url, not both
hint: remove one of them`,
		},
		{
			"keys of the other kind of MCP server", "[mcp.a]\nargv = [\"x\"]\nca_file = \"/x\"\n[mcp.b]\nurl = \"https://x.org/mcp\"\nenv = [\"LANG\"]",
			`p.toml:2:9: argv must begin with the absolute path of a program
hint: PATH is not searched and no shell runs
p.toml:3:1: ca_file belongs to a server with url
hint: ` + serverHint + `
p.toml:6:1: env belongs to a server with argv
hint: ` + serverHint,
		},
		{
			"a name of an MCP server", "[mcp.\"a.b\"]", `p.toml:1:6: MCP server "a.b": a name is 1 to 63 of a-z 0-9 _ and -, beginning with a letter or digit`,
		},
		{
			"the same tool twice", "[tools.\"mcp.a.b\"]\ntrust = false\n[mcp.a.tools.b]\ntrust = false",
			`p.toml:3:14: tool "mcp.a.b" is also in [tools.mcp.a.b]
hint: remove one of them`,
		},
		{
			"a handler of a tool of a gateway", "[mcp.a.tools.b]\ntrust = false\nhandler = { kind = \"none\" }",
			`p.toml:3:1: unknown key "handler"`,
		},
		{
			"an http handler needs url and method", "[tools.t]\nhandler = { kind = \"http\" }",
			`p.toml:2:1: an http handler needs method
hint: method = "POST"
p.toml:2:1: an http handler needs url
hint: url = "https://api.example.org/v1/posts/{id}"`,
		},
		{
			"keys of another kind of handler", `[tools.t]
handler = { kind = "http", method = "GET", url = "https://x.org/", argv = ["/x"], dir = "/x", env = ["X"] }
[tools.u]
handler = { kind = "command", argv = ["/x"], url = "https://x.org/", timeout = "1s" }
[tools.v]
handler = { kind = "none", method = "GET", timeout = "1s" }`,
			`p.toml:2:68: argv belongs to kind "command"
p.toml:2:83: dir belongs to kind "command"
p.toml:2:95: env belongs to kind "command"
p.toml:4:46: url belongs to kind "http"
p.toml:6:28: method belongs to kind "http"; "none" runs nothing
p.toml:6:44: timeout belongs to kind "command"; "none" runs nothing`,
		},
		{
			"types of an http handler's values", `[tools.t]
handler = { kind = "http", method = 1, url = [], body = { a = 1 }, body_args = "yes", headers = ["Accept: x"], secret_headers = { Authorization = 1 }, allow_private = "10.0.0.1", ca_file = true, status = [200, "201"], redirects = true }
[tools.u]
handler = { kind = "http", method = "GET", url = "https://x.org/", status = [99], token = "hunter2", header = {} }`,
			`p.toml:2:37: method must be a string, not a whole number
hint: method = "POST"
p.toml:2:40: url must be a string, not an array
hint: url = "https://api.example.org/v1/posts/{id}"
p.toml:2:57: body must be a string, not a table
hint: JSON with {field} instead of values: body = '{"text":{text}}'
p.toml:2:80: body_args must be true or false, not a string
hint: true or false, without quotes
p.toml:2:87: headers must be a table, not an array
hint: headers = { Accept = "application/json" }
p.toml:2:147: Authorization must be a string, not a whole number
hint: secret_headers = { Authorization = "Bearer /path/of/the/token" }
p.toml:2:168: allow_private must be an array, not a string
hint: allow_private = ["10.1.2.3", "internal.example"]
p.toml:2:190: ca_file must be a string, not true or false
p.toml:2:211: status must hold codes from 200 to 599
hint: a list of numbers: status = [200, 201]
p.toml:2:219: unknown key "redirects"
p.toml:4:78: status must hold codes from 200 to 599
hint: a list of numbers: status = [200, 201]
p.toml:4:83: token: secrets are not allowed in this file
hint: put it into a separate file that only the daemon can read: token_file = "/path"
p.toml:4:102: unknown key "header"
hint: did you mean "headers"?`,
		},
		{
			"a misspelled kind", "[tools.t]\nhandler = { kind = \"comand\", argv = [\"/x\"] }",
			`p.toml:2:20: kind must be command, http, mcp, agent or none
hint: did you mean "command"?`,
		},
		{
			"no kind", "[tools.t]\nhandler = { argv = [\"/x\"] }",
			`p.toml:2:1: handler has no kind
hint: kind = "command", "http" or "mcp", "agent" if the agent executes it, or "none" to run nothing`,
		},
		{
			"no argv", "[tools.t]\nhandler = { kind = \"command\" }\n[tools.u]\nhandler = { kind = \"command\", argv = [] }",
			`p.toml:2:1: a command needs argv
hint: a list with the program's absolute path first: argv = ["/usr/bin/env", "true"]
p.toml:4:1: a command needs argv
hint: a list with the program's absolute path first: argv = ["/usr/bin/env", "true"]`,
		},
		{
			"argv as a shell line", "[tools.t]\nhandler = { kind = \"command\", argv = \"rm -rf x\" }",
			`p.toml:2:38: argv must be an array, not a string
hint: a list with the program's absolute path first: argv = ["/usr/bin/env", "true"]`,
		},
		{
			"a relative program, or one chosen by the request", "[tools.t]\nhandler = { kind = \"command\", argv = [\"echo\"] }\n[tools.u]\nhandler = { kind = \"command\", argv = [\"/bin/{prog}\"] }\n[tools.v]\nhandler = { kind = \"command\", argv = [\"/x\", \"\\u0000\"] }",
			`p.toml:2:39: argv must begin with the absolute path of a program
hint: PATH is not searched and no shell runs
p.toml:4:39: the program must not depend on the request
p.toml:6:45: argv must not contain NUL`,
		},
		{
			"argv of a handler that runs nothing", "[tools.t]\nhandler = { kind = \"none\", argv = [\"/x\"] }",
			`p.toml:2:28: argv belongs to kind "command"; "none" runs nothing`,
		},
		{
			"other keys of a handler", "[tools.t]\nhandler = { kind = \"command\", argv = [\"/x\"], dir = \"x\", env = [\"TOKEN=hunter2\"], timeout = \"25h\", max_output = \"1KB\", idempotent = 1, shell = true }",
			`p.toml:2:52: dir must be an absolute path
hint: remove it to run in a new empty folder each time
p.toml:2:64: env must hold names of variables
hint: names only: env = ["LANG"]; the values come from the daemon's environment
p.toml:2:92: timeout must be 1ms to 24h
p.toml:2:112: max_output is not a size
hint: write it with its unit: "256KiB", "1MiB"
p.toml:2:132: idempotent must be true or false, not a whole number
hint: true or false, without quotes
p.toml:2:135: unknown key "shell"`,
		},

		{
			"an incomplete rule", "[[rules]]\n",
			`p.toml:1:3: rule has no outcome: allow, ask, always_ask or deny
hint: outcome = "ask"
p.toml:1:3: rule has no match
hint: match = { tool = "x_post", workspace = "personal" }`,
		},
		{
			"a rule for everything", "[[rules]]\nmatch = {}\noutcome = \"allow\"",
			`p.toml:2:1: match must name a tool or a workspace
hint: match = { tool = "x_post", workspace = "personal" }`,
		},
		{
			"patterns instead of names", "[[rules]]\nmatch = { tool = \"*\", workspace = \"\" }\noutcome = \"allow\"",
			`p.toml:2:18: tool is not a name
hint: remove it to match every tool
p.toml:2:35: workspace is not a name
hint: remove it to match every workspace`,
		},
		{
			"a misspelled outcome", "[[rules]]\nmatch = { tool = \"t\" }\noutcome = \"alow\"",
			`p.toml:3:11: outcome must be allow, ask, always_ask or deny
hint: did you mean "allow"?`,
		},
		{
			"keys of a rule", "[[rules]]\nmatch = { tol = \"t\" }\noutcom = \"ask\"",
			`p.toml:1:3: rule has no outcome: allow, ask, always_ask or deny
hint: outcome = "ask"
p.toml:2:11: unknown key "tol"
hint: did you mean "tool"?
p.toml:3:1: unknown key "outcom"
hint: did you mean "outcome"?`,
		},
		{
			"two rules of one name", "[[rules]]\nmatch.tool = \"t\"\noutcome = \"ask\"\n[[rules]]\nmatch.tool = \"u\"\noutcome = \"ask\"\nname = \"rule 1\"",
			`p.toml:7:8: another rule has the name "rule 1"`,
		},
		{
			"a single rule", "[rules]\noutcome = \"ask\"",
			`p.toml:1:2: rules must be an array, not a table
hint: write [[rules]]`,
		},
		{
			"a list without tables", "rules = [1]",
			`p.toml:1:10: rules must hold tables, not a whole number
hint: write [[rules]]`,
		},

		{
			"not TOML", "[workspaces.w]\nautonomy = full",
			`p.toml:2:12: not valid TOML: expected keyword "false"`,
		},
		{
			"a key twice", "gate = \"a\"\ngate = \"b\"",
			`p.toml:2:1: not valid TOML: key gate is already defined`,
		},
		{
			"a value that is used as a table", "gate.a = 1\ngate.a.b = 2",
			`p.toml:2:1: not valid TOML: key a is already defined`,
		},
		{
			"a very long key twice", strings.Repeat("k", 1000) + " = 1\n" + strings.Repeat("k", 1000) + " = 1",
			`p.toml:2:1: not valid TOML: key ` + strings.Repeat("k", 196) + `...`,
		},
		{
			"a table twice", "[tools.t]\n[tools.t]",
			`p.toml:2:2: not valid TOML: table t already exists`,
		},
		{
			"not UTF-8", "gate = \"\xff\"",
			`p.toml:1:9: not valid TOML: invalid UTF-8 character in basic string`,
		},
		{
			"a byte order mark", "\xef\xbb\xbfgate = \"a\"",
			`p.toml:1:1: the file starts with a byte order mark
hint: save it as UTF-8 without one`,
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			c, err := config.Parse("p.toml", []byte(row.toml))
			require.Equal(t, row.want, printed(err))
			require.Nil(t, c, "no partial configuration")
			require.NotContains(t, printed(err), "hunter2")
		})
	}
}

func TestIssuesNameTheirKey(t *testing.T) {
	_, err := config.Parse("p.toml", []byte("[tools.t]\nhandler = { kind = \"x\" }\n[[rules]]\nmatch.tool = \"t\"\noutcome = 1"))
	var e *config.Error
	require.ErrorAs(t, err, &e)
	var keys []string
	for _, p := range e.Errors {
		keys = append(keys, p.Key)
	}
	require.Equal(t, []string{"tools.t.handler.kind", "rules[1].outcome"}, keys)
}

func TestManyIssues(t *testing.T) {
	_, err := config.Parse("p.toml", []byte(strings.Repeat("[[rules]]\nmatch.tool = \"t\"\n", 25)))
	var e *config.Error
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Errors, 25, "all issues")
	require.Equal(t, 20, strings.Count(printed(err), "\nhint:"), "only twenty are printed")
	require.True(t, strings.HasSuffix(printed(err), "\np.toml: 5 more"))
}

func TestTooLong(t *testing.T) {
	_, err := config.Parse("p.toml", make([]byte, 1<<20+1))
	require.Equal(t, "p.toml: longer than 1048576 bytes\nhint: is this the right file?", printed(err))
}

func TestDeepNesting(t *testing.T) {
	for _, doc := range []string{
		"gate = " + strings.Repeat("[", 100_000),
		"gate = " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000),
		"gate = " + strings.Repeat("{a=", 9_000) + "1" + strings.Repeat("}", 9_000),
		"[" + strings.Repeat("a.", 100_000) + "a]",
	} {
		_, err := config.Parse("p.toml", []byte(doc))
		require.Error(t, err)
	}
}

func TestWarnings(t *testing.T) {
	for _, row := range []struct{ why, toml, want string }{
		{
			"a rule for an unknown tool is valid, but probably a mistake", "tools.x_post.trust = false\n[[rules]]\nmatch = { tool = \"x_posst\" }\noutcome = \"deny\"",
			"p.toml:3:18: rule never matches: there is no tool \"x_posst\"\nhint: did you mean \"x_post\"?",
		},
		{
			"a rule for an unknown workspace", "[[rules]]\nmatch = { workspace = \"defalt\" }\noutcome = \"deny\"",
			"p.toml:2:23: rule never matches: there is no workspace \"defalt\"\nhint: did you mean \"default\"?",
		},
		{
			"a channel that is not configured", "[workspaces.w]\nchannels = [\"email\"]",
			"p.toml:2:1: channel email is not configured: no approver is asked by email\nhint: permesso email setup",
		},
		{
			"an approver here who may not decide", "[approvers.ann]\nlocal = 1001\n[workspaces.w]",
			"p.toml:3:13: workspace \"w\" names no approvers: ann, whose UID is in [approvers], may not decide there\nhint: approvers = [\"ann\"] in [workspaces.w]",
		},
		{
			"no person may approve", "[workspaces.w]\nlocal_decisions = false",
			"p.toml:1:13: no person may approve in workspace \"w\"\nhint: add approvers, or set local_decisions = true",
		},
		{
			"a name without an id", "[approvers.ann]",
			"p.toml:1:12: approver \"ann\" has no id, so the gate cannot recognize this person\nhint: add telegram, email or local",
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			c, err := config.Parse("p.toml", []byte(row.toml))
			require.NoError(t, err)
			require.Len(t, c.Warnings, 1)
			require.Equal(t, row.want, printed(c.Warnings[0].Format("p.toml")))
		})
	}
}

func TestCheckHandler(t *testing.T) {
	var seen []string
	rd := config.Reader{CheckHandler: func(h approval.Handler) error {
		seen = append(seen, h.Argv[0])
		if h.Argv[0] == "/bad" {
			return errors.New("no such template\n\x1b[2J")
		}
		return nil
	}}
	_, err := rd.Parse("p.toml", []byte(`tools.good = { trust = false, handler = { kind = "command", argv = ["/good"] } }
tools.bad.handler = { kind = "command", argv = ["/bad"] }
tools.none = { trust = false, handler = { kind = "none" } }
tools.worse.handler = { kind = "command", argv = ["/worse"], timeout = 3 }`))
	require.Equal(t, `p.toml:2:41: no such template\u{a}\u{1b}[2J
p.toml:4:72: timeout must be a string, not a whole number
hint: write it with its unit: "30s", "5m", "1h30m"`, printed(err))
	require.Equal(t, []string{"/good", "/bad"}, seen, "only valid commands")
}

const serverHint = `[mcp.github] with argv = ["/usr/local/bin/github-mcp-server", "stdio"], or with url = "https://mcp.example.org/mcp"`

const httpTool = `tools.post.trust = false
[tools.post.handler]
kind = "http"
method = "POST"
url = "https://api.example.org:8443/v1/{id}?q={q}"
body = '{"text":{text},"tags":["a"]}'
headers = { Accept = "application/json", X-Kind = "post" }
secret_headers = { Authorization = "Bearer /etc/permesso/api.token" }
allow_private = ["10.1.2.3:8080", "api.internal"]
ca_file = "/etc/ca.pem"
status = [200, 201]
timeout = "10s"
max_output = "64KiB"
idempotent = true
`

func TestHTTPHandler(t *testing.T) {
	rd := config.Reader{CheckHandler: exec.Check}
	c, err := rd.Parse("p.toml", []byte(httpTool))
	require.NoError(t, err)
	tool := c.Tools["post"]
	require.Equal(t, approval.Handler{
		Kind: "http", Timeout: 10 * time.Second, MaxOutput: 64 << 10, Idempotent: true,
		HTTP: approval.HTTP{
			Method: "POST", URL: "https://api.example.org:8443/v1/{id}?q={q}", Body: `{"text":{text},"tags":["a"]}`,
			Headers:       map[string]string{"Accept": "application/json", "X-Kind": "post"},
			SecretHeaders: map[string]string{"Authorization": "Bearer /etc/permesso/api.token"},
			AllowPrivate:  []string{"10.1.2.3:8080", "api.internal"}, CAFile: "/etc/ca.pem", Status: []int{200, 201},
		},
	}, tool.Handler)
	require.Equal(t, "api.example.org:8443", tool.Target, "a card without a target shows the host")

	c, err = rd.Parse("p.toml", []byte("tools.post.capability = \"channel:out\"\ntools.post.target = \"the board\"\n"+
		"tools.post.handler = { kind = \"http\", method = \"GET\", url = \"https://x.org/\" }"))
	require.NoError(t, err)
	require.Equal(t, "the board", c.Tools["post"].Target)
}

// Parse refuses what the executor would refuse, with its position. It quotes no
// value: it may be a secret.
func TestHTTPHandlerIssues(t *testing.T) {
	rd := config.Reader{CheckHandler: exec.Check}
	for _, row := range []struct{ why, from, to, want string }{
		{"the host", "api.example.org", "{host}", `p.toml:5:7: url: write https://HOST/PATH or http://HOST/PATH with literal scheme, host and port; a {field} is allowed only in the path and in values of the query`},
		{"a body", `{text}`, `"{text}"`, `p.toml:6:8: body: a {field} must be a complete JSON value: write it without quotation marks, and not as a name`},
		{"a method", `"POST"`, `"BREW"`, `p.toml:4:10: method: must be one of GET, HEAD, POST, PUT, PATCH, DELETE`},
		{"a body with GET", `"POST"`, `"GET"`, `p.toml:4:10: method: GET has no body`},
		{"an inline secret", `X-Kind = "post"`, `X-Token = "hunter2"`, `p.toml:7:52: headers.X-Token: put the secret into a file: secret_headers = { X-Token = "/path" }`},
		{"an inline bearer token", `Bearer /etc/permesso/api.token`, `Bearer hunter2`, `p.toml:8:36: secret_headers.Authorization: write the path of a file with the secret, as in "/path" or "Bearer /path"`},
		{"a network", `10.1.2.3:8080`, `10.0.0.0/8`, `p.toml:9:1: allow_private: must contain addresses or host names, each with or without a port`},
		{"a relative file", `/etc/ca.pem`, `ca.pem`, `p.toml:10:11: ca_file: must be an absolute path`},
		{"a secret without encryption", `https:`, `http:`, `p.toml:8:18: secret_headers: secrets require https, unless allow_private names the host`},
	} {
		t.Run(row.why, func(t *testing.T) {
			require.Contains(t, httpTool, row.from)
			_, err := rd.Parse("p.toml", []byte(strings.Replace(httpTool, row.from, row.to, 1)))
			require.Equal(t, row.want, printed(err))
		})
	}
}

func TestExample(t *testing.T) {
	c, err := config.Parse("example", []byte(config.Example()))
	require.NoError(t, err)
	require.Empty(t, c.Warnings, "no warnings for the example")
	require.Contains(t, c.Workspaces, "default")
	require.Contains(t, c.Tools, "hello")

	on := regexp.MustCompile(`(?m)^#([a-z[])`).ReplaceAllString(config.Example(), "$1")
	require.NotEqual(t, config.Example(), on)
	on = strings.Replace(on, "approvers = []", `approvers = ["ann"]`, 1)
	c, err = config.Reader{CheckHandler: exec.Check}.Parse("example", []byte(on))
	require.NoError(t, err, "the settings in comments must be valid")
	require.Contains(t, c.Approvers, "ann")
	require.Empty(t, c.Warnings)
}

// TestDesignExample reads the design's own example, without its channel tables.
func TestDesignExample(t *testing.T) {
	c, err := config.Parse("design", designExample(t))
	require.NoError(t, err)
	require.Equal(t, map[string]approval.Argument{"text": {Type: "text"}}, c.Tools["x_post"].Args)
	require.Equal(t, "ricardo", c.Workspaces["personal"].Principal)
	require.Equal(t, "telegram:123456789", c.Workspaces["personal"].ChatJID)
	require.Equal(t, []string{"/opt/tools/x-post"}, c.Tools["x_post"].Handler.Argv)
	require.Equal(t, "channel:out", c.Tools["x_post"].Capability)
	require.Equal(t, approval.Allow, c.Rules[0].Outcome)
}

func designExample(t *testing.T) []byte {
	data, err := os.ReadFile("testdata/design.toml")
	require.NoError(t, err)
	shared, err := os.ReadFile("../../../../shared/DESIGN.md")
	if errors.Is(err, os.ErrNotExist) && !sharedRequired(t) {
		return data
	}
	require.NoError(t, err)
	_, block, found := strings.Cut(string(shared), "\n```toml\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "\n```")
	block, _, found = strings.Cut(block, "\n[channels.")
	require.True(t, found)
	require.Equal(t, strings.TrimSpace(string(data)), strings.TrimSpace(block), "testdata/design.toml differs from DESIGN.md")
	return []byte(block)
}

// sharedRequired reports whether a missing shared folder is an error.
func sharedRequired(t *testing.T) bool {
	ci, _ := strconv.ParseBool(os.Getenv("CI"))
	if !ci {
		t.Log("../shared is absent: using testdata alone")
	}
	return ci
}

// printed is an error as the command line prints it: each line with its hint below.
func printed(err error) string {
	var lines []string
	for _, e := range hints.Split(err) {
		lines = append(lines, e.Error())
		if hint := hints.Of(e); hint != "" {
			lines = append(lines, "hint: "+hint)
		}
	}
	return strings.Join(lines, "\n")
}

func badDomains(columns ...int) string {
	var all []string
	for _, c := range columns {
		all = append(all, fmt.Sprintf("p.toml:2:%d: own_domains must hold domain names in lower case, without @, * or a final dot\n"+
			"hint: a list of domain names: own_domains = [\"example.org\"]", c))
	}
	return strings.Join(all, "\n")
}
