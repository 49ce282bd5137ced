package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// everyKey sets every key that stands in the table. Keys that exclude each other are
// in different tables.
const everyKey = `gate = "g"
run_before = "1m"
log_level = "info"
log_format = "json"
language = "it"
local_decisions = true
listen = ["127.0.0.1:9"]
listen_hosts = ["h"]
elicitation = "notify"
ui = false
socket = "/run/s"
[approvers.ann]
local = 1
telegram = 2
email = "ann@example.org"
language = "en"
autonomy = "full"
[workspaces.w]
autonomy = "full"
approvers = ["ann"]
agent_uid = [7]
channels = ["telegram"]
telegram = { chat_id = -5, thread_id = 3 }
language = "en"
local_decisions = true
principal = "ann"
own_domains = ["example.org"]
email_ceiling = "partial"
approval_timeout = "1m"
approval_timeout_max = "1h"
quiet_hours = "22:00-07:00"
night_timeout = "8h"
contains_secrets = true
admin = true
remember_exec_cmd = "any"
release_trust = { public_source = true, secret_data = false, public_sink = "forbidden" }
folder = false
binds_sessions = true
sessions = { s = "full" }
ask_above = { "none" = "1/1m" }
deny_above = { "mail:send" = "1/1m" }
budget_session = { soft = 1, hard = 2 }
budget_day = { soft = 1, hard = 2 }
limits = { pending = 1, ask_per_minute = 1, per_minute = 1, request_size = "1KiB", running = 1, stored = "16MiB" }
[tools.a]
capability = "fs:write"
action_type = "write_file"
verb = { en = "x" }
summary = "s"
target = "/t"
reversibility = "partial"
territory = "session"
cost = 2
secrets = "deny"
size = "p"
args = { p = "path", c = { type = "text", writes = "p" }, a = { type = "amount", currency = "EUR", optional = true }, o = "text", r = { type = "text", replaces = "o" } }
public_source = false
secret_data = true
public_sink = "forbidden"
dangerous_writes = false
handler = { kind = "command", argv = ["/x"], dir = "/", env = ["LANG"], timeout = "1s", max_output = 2048, max_memory = "1GiB", max_processes = 9, idempotent = true }
[tools.b]
trust = false
verb = "x"
undo = "m"
[tools.b.handler]
kind = "http"
method = "POST"
url = "https://x.org/"
body = "{}"
body_args = false
headers = { A = "b" }
secret_headers = { B = "/x" }
ca_file = "/x"
status = [200]
allow_private = ["h"]
[tools.m]
trust = false
verb = "x"
reads = true
handler = { kind = "mcp", server = "s", tool = "t" }
[mcp.s]
argv = ["/x"]
dir = "/"
env = ["LANG"]
max_memory = "1GiB"
max_processes = 9
[mcp.h]
url = "https://x.org/mcp"
headers = { A = "b" }
secret_headers = { B = "/x" }
ca_file = "/x"
allow_private = ["h"]
[mcp.g.tools.t]
capability = "fs:write"
[provers.p]
public_key = "Mu3GE0tOuZvktwmf+XVEj5xfDfTn8XYklvcc17KgkwU="
[[rules]]
name = "n"
outcome = "allow"
despite = ["trifecta", "secrets"]
reason = "r"
match = { tool = "a", workspace = "w", approver = "ann", capability = "fs:write", target = "/t", session = "s", client = "ws:w", subagent = "h", program = true, tools = ["a", "b*"], max_steps = 5, max_calls = 1, args = { p = "/x/y", n = 3, f = true, l = ["a"], e = { equals = "*" }, j = { json = "1.5" }, c = { contains = "x", matches = ".*", optional = true }, a = { max = "2.50", min = 1, currency = "EUR" } }, other_args = false, between = "08:00-18:00", weekdays = ["mon-fri", "sun"], time_zone = "Europe/Rome" }
trust = { public_source = false, secret_data = false, public_sink = false }
when_proven = [{ domain = "d", op = "o", only = { x = "y" } }, { domain = "d", under = { path = ["/srv"] } }, { domain = "d", unique = "x" }, { domain = "d", at_most = 3, of = { x = "y" } }, { domain = "d", sum_at_most = "2.50", currency = "EUR" }]
[[rules]]
outcome = "deny"
match = { tool = "b" }
unless_proven = [{ domain = "d", op = "o", only = { x = "y" } }, { domain = "d", under = { path = ["/srv"] } }, { domain = "d", unique = "x" }, { domain = "d", at_most = 3, of = { x = "y" } }, { domain = "d", sum_at_most = "2.50", currency = "EUR" }]
[channels.email]
from = "p@example.org"
smtp = { address = "m:25", security = "starttls", username = "u", password_file = "/x", ca_file = "/x" }
imap = { address = "m:993", security = "tls", username = "u", password_file = "/x", ca_file = "/x", mailbox = "INBOX" }
oauth = { provider = "other", client_id = "c", client_secret_file = "/x", auth_url = "https://x.org/a", token_url = "https://x.org/t", device_url = "https://x.org/d", scope = "mail" }
authserv_id = "mx"
dkim = true
trust_relay = false
sub_addressing = true
follow_up = false
dns = "127.0.0.1"
[channels.telegram]
token_file = "/x"
server_url = "https://x.org"
feed = true
webhook = { listen = ":1", url = "https://x.org/t", secret_file = "/x" }
[channels.ntfy]
server = "https://x.org"
topic_file = "/x"
token_file = "/x"
ui_url = "https://x.org"
[webhooks.n]
url = "https://x.org/t"
secret_file = "/x"
events = ["settled"]
workspaces = ["w"]
allow_private = ["h"]
[retention]
responses = "1d"
records = "2d"
`

// excluded are keys that cannot be set together with those of everyKey.
var excluded = map[string]string{
	"provers.NAME.public_key_file":    "instead of public_key",
	"channels.email.maildir":          "instead of imap",
	"channels.email.authserv_unnamed": "instead of authserv_id",
}

// shownAs reports whether a setting is that of a row.
func shownAs(path string) *regexp.Regexp {
	p := regexp.QuoteMeta(path)
	p = strings.ReplaceAll(p, `\[\]`, `\[\d+\]`)
	if strings.HasSuffix(path, ".TOOL") {
		p += `\..+` // its keys have no rows of their own
	}
	return regexp.MustCompile("^" + regexp.MustCompile(`\b[A-Z]+\b`).ReplaceAllString(p, `.+`) + `(\[\d+\].*)?$`)
}

// Every row of the table has a help line, a type and a default that is valid; the
// key is in the example, in the manual page, in the schema and in config show.
func TestEveryKeyIsEverywhere(t *testing.T) {
	c, err := config.Parse("every.toml", []byte(everyKey))
	require.NoError(t, err)
	example, manual := config.Example(), config.Manual("2026-11-22")
	schema, err := config.Schema()
	require.NoError(t, err)
	rows := config.Rows()
	require.Greater(t, len(rows), 120)
	var patterns []*regexp.Regexp
	for _, r := range rows {
		_, entry, _ := strings.Cut(manual, "\n.B "+strings.ReplaceAll(r.Path, "-", `\-`)+"\n")
		entry, _, _ = strings.Cut(entry, "\n.TP\n")
		require.Regexp(t, `^.{3,}\.(\n|$)`, entry, "the type of %s", r.Path)
		require.Regexp(t, `(?m)^(Default|Example): .+\.$`, entry, r.Path)
		shown := shownAs(r.Path)
		patterns = append(patterns, shown)
		last := r.Path[strings.LastIndexByte(r.Path, '.')+1:]
		require.True(t, r.Help != "" || last == strings.ToUpper(last), "%s has no help", r.Path)
		require.Contains(t, manual, "\n.B "+strings.ReplaceAll(r.Path, "-", `\-`)+"\n")
		if last != strings.ToUpper(last) {
			require.Regexp(t, `(?m)(^|[#{,:] ?)`+last+` = |\[\[`+last+`\]\]`, example, r.Path)
			require.Contains(t, string(schema), `"`+last+`": {`, r.Path)
		}
		if excluded[r.Path] == "" {
			require.True(t, slices.ContainsFunc(c.Settings, func(s config.Setting) bool {
				return s.Line > 0 && shown.MatchString(s.Key)
			}), "%s is not shown, or not in everyKey", r.Path)
		}
	}
	for _, s := range c.Settings {
		require.True(t, slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(s.Key) }), "%s has no row", s.Key)
	}
}

// The schema accepts what the reader accepts, and refuses unknown keys and values of
// the wrong type.
func TestSchema(t *testing.T) {
	raw, err := config.Schema()
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("permesso.json", doc))
	schema, err := compiler.Compile("permesso.json")
	require.NoError(t, err)
	validate := func(text string) error {
		var v map[string]any
		require.NoError(t, toml.Unmarshal([]byte(text), &v), text)
		return schema.Validate(v)
	}
	good := map[string]string{
		"every key": everyKey, "the example": config.Example(), "nothing": "",
		"the example with its options": strings.Replace(regexp.MustCompile(`(?m)^#([a-z[])`).ReplaceAllString(config.Example(), "$1"), "approvers = []", `approvers = ["ann"]`, 1),
	}
	for _, pattern := range []string{"testdata/*.toml", "../examples/*/permesso.toml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			good[file] = string(b)
		}
	}
	for why, text := range good {
		_, err := config.Parse(why, []byte(text))
		require.NoError(t, err)
		require.NoError(t, validate(text), why)
	}
	for _, bad := range []string{
		"gat = 1", "gate = 1", "gate = \"My Gate\"", "run_before = \"5\"", "local_decisions = \"false\"", "workspaces = 3",
		"[workspaces.w]\nautonomy = \"supervisd\"", "[workspaces.w]\napprovers = \"ann\"", "[workspaces.w]\nlimits = { pending = 0 }",
		"[workspaces.w]\nlimits = { pending = 10001 }", "[workspaces.w]\napprovers = [1]",
		"[workspaces.w]\nlimits = { per_hour = 3 }", "[workspaces.w]\nask_above = { \"mail:snd\" = \"1/1h\" }",
		"[approvers.ann]\ntelegram = \"@ann\"", "[tools.t]\nhandler = { kind = \"grpc\" }", "[mcp.s]\nurl = 1", "[mcp.s]\nhandler = 1", "[mcp.s.tools.t]\nhandler = { kind = \"agent\" }", "[tools.t]\npublic_sink = \"true\"",
		"[tools.t]\nverb = { fr = \"x\" }", "[tools.t]\nargs = { a = \"texts\" }", "[tools.t]\nargs = { a = { typ = \"text\" } }", "[tools.t]\nfacts = { path = \"p\" }", "[[rules]]\nmatch = { tol = \"t\" }", "rules = [1]", "[channels.irc]", "[channels.telegram]\ntoken = \"x\"",
	} {
		_, err := config.Parse("bad.toml", []byte(bad))
		require.Error(t, err, bad)
		require.Error(t, validate(bad), bad)
	}
}
