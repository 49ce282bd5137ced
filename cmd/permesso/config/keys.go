package config

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/security/policy"
)

// Key is a row of the table of keys. The reader, config show, the example file, the
// JSON schema and the manual page follow from the table.
type Key struct {
	Name    string // in capitals: stands for any name
	Help    string // one line
	Default string // in TOML; "": none
	Example string // in TOML; "": the default
	Hint    string // of an error in its value
	Restart bool   // a change takes effect after a restart
	Keys    []Key  // of a table, or of each table in a list
	valueType

	prose       string        // name of the text above it in the example
	after       func() string // after it in the example
	exampleName string        // what the example writes for a name
	shown       bool          // the example sets it
	instead     bool          // the example only mentions it: another key excludes it
	handler     string        // the kind of handler to which it belongs
	names       []string      // that are allowed; none: any
	named       bool          // Name is from a file
	listed      bool          // Rows has its keys already, as those of another table
	implied     func() *node  // of a table that is there without being written
	unknown     string        // error for an unknown key
	unknownHint string
}

// fromTop is the default of a key that has the value of the key of that name at the
// top of the file.
const fromTop = "^"

func (k Key) isName() bool { return unicode.IsUpper(rune(k.Name[0])) }

func (k Key) hintText() string {
	if k.Hint != "" {
		return k.Hint
	}
	return k.hint
}

func (k Key) isTable() bool { return k.Keys != nil && k.read == nil && len(k.kinds) < 2 }

// Row is a key of the table with its complete path.
type Row struct {
	Path string // tables and names are parts: workspaces.NAME.autonomy; rules[] is each of [[rules]]
	Key
}

// Rows returns every key that takes a value or a list of tables, in the order of the example.
func Rows() []Row { return rows(nil, "", permessoKeys()) }

func rows(all []Row, path string, k Key) []Row {
	for _, below := range k.Keys {
		at := strings.TrimPrefix(path+"."+below.Name, ".")
		if !below.isTable() || below.isList() || below.listed {
			all = append(all, Row{at, below})
		}
		if below.isList() {
			at += "[]"
		}
		if !below.listed {
			all = rows(all, at, below)
		}
	}
	return all
}

func (k Key) isList() bool { return k.isTable() && len(k.kinds) > 0 && k.kinds[0] == array }

// literal returns a default as a node.
func literal(toml string) *node {
	switch {
	case toml[0] == '"':
		return &node{kind: text, text: strings.Trim(toml, `"`)}
	case toml == "true" || toml == "false":
		return &node{kind: boolean, text: toml}
	}
	return &node{kind: integer, text: toml}
}

// whereKeyBelongs tells in which table an unknown key is known.
func (r *reader) whereKeyBelongs(key, path string) string {
	if key == "home" && path == "" {
		return "set the state folder with --home or PERMESSO_HOME"
	}
	if r.rows == nil {
		r.rows = Rows()
	}
	for _, r := range r.rows {
		before, last := cutLast(r.Path)
		if last != key {
			continue
		}
		var inline string
		if parent, inner := cutLast(before); inner != "" && !unicode.IsUpper(rune(inner[0])) && parent != "channels" && parent != "" {
			inline, before = inner+" of ", parent
		}
		switch {
		case before == "":
			return "it belongs at the top of the file, before the first [table]"
		case strings.HasSuffix(before, "[]"):
			return "it belongs in " + inline + "[[" + strings.TrimSuffix(before, "[]") + "]]"
		}
		return "it belongs in " + inline + "[" + before + "]"
	}
	return ""
}

func cutLast(path string) (before, last string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}

// Capabilities are the names of the capabilities.
func Capabilities() []string {
	var names []string
	for _, c := range facts.Capabilities() {
		names = append(names, c.Name)
	}
	return names
}

func reversibilities() []string {
	return []string{string(approval.Reversible), string(approval.Partial), string(approval.Irreversible)}
}

// permessoKeys is the table of keys of permesso.toml.
func permessoKeys() Key {
	languages := word(chat.Languages()...)
	languageHelp := strings.Join(chat.Languages(), ", ")
	return Key{Keys: []Key{
		{Name: "gate", Default: `"permesso"`, Help: "the name in receipts", valueType: matching("host name", `^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`, "a host name: 1 to 63 of a-z 0-9 . and -"), Restart: true},
		{Name: "run_before", Default: `"10m"`, Help: "an approved action that has not started by then expires", valueType: duration(time.Second, dayLong)},
		{Name: "log_level", Default: `"info"`, Help: "debug, info, warn, error", valueType: word("debug", "info", "warn", "error")},
		{Name: "log_format", Default: `"auto"`, Help: "json, console; auto: console on a terminal, json elsewhere", valueType: word("auto", "json", "console")},
		{Name: "language", Default: `"` + chat.Languages()[0] + `"`, Help: languageHelp, valueType: languages},
		{Name: "local_decisions", Default: "true", Help: "false: no decisions by terminal, CLI or browser", valueType: flag()},
		{Name: "listen", Default: `"` + DefaultListen + `"`, Help: `HTTP API for agents with a key: permesso key create; "" turns it off`, Hint: listenHint, valueType: oneOrMoreTexts(), Restart: true},
		{Name: "listen_hosts", Example: `["host.docker.internal:8765"]`, Help: "host names of the API and the web UI besides their address", Hint: `a list of names as clients write them: listen_hosts = ["host.docker.internal:8765"]`, valueType: listOf("list of host names", anyText(), validText(validHostName), "host names in lower case, with a port or without"), Restart: true},
		{Name: "elicitation", Default: `"off"`, Help: "notify: MCP clients of the HTTP API may show their user a request's page of the web UI, or a question as a form; neither approves", valueType: word("off", ElicitNotify)},
		{Name: "ui", Default: `"` + DefaultUI + `"`, Help: "web UI, only on this machine: permesso ui; false turns it off", Hint: uiHint, valueType: uiType(), Restart: true},
		{Name: "socket", Example: `"` + DefaultSocket + `"`, Help: "for approvers, if the daemon runs as a system user", Hint: `for example "` + DefaultSocket + `"`, valueType: must("absolute path, at most 107 bytes", socketPath, "must be an absolute path of at most 107 bytes"), Restart: true},
		{Name: "workspaces", Hint: "write [workspaces.NAME]", valueType: tables(""), implied: defaultWorkspace, Keys: []Key{
			{Name: "NAME", exampleName: DefaultWorkspace, shown: true, valueType: tables(""), Keys: workspaceKeys(languages, languageHelp), prose: "workspace"},
		}},
		{Name: "approvers", Hint: "write [approvers.NAME]", valueType: tables(""), Keys: []Key{
			{Name: "NAME", exampleName: "ann", valueType: tables(""), prose: "approver", Keys: []Key{
				{Name: "local", Example: "1000", Help: "the UID: what id -u prints", Hint: uidHint, valueType: number(0, highestUID)},
				{Name: "telegram", Example: "123456789", Help: "the numeric id, never a username", Hint: "the numeric id, without quotes; never a @username, which can change its owner", valueType: number(1, 1<<52)},
				{Name: "email", Example: `"ann@example.org"`, Help: "the bare address", Hint: `the bare address: "ann@example.org"`, valueType: must("email address", validEmail, "must be an email address")},
				{Name: "language", Example: `"it"`, Help: languageHelp + "; default: that of the workspace, else of the top", valueType: languages},
				{Name: "autonomy", Example: `"supervised"`, Help: "of agents that work for this person, as principal of their workspace: not more than this", valueType: word(grant.Levels()...)},
			}},
		}},
		{Name: "tools", Hint: "write [tools.NAME]", valueType: tables(""), Keys: []Key{
			{Name: "NAME", exampleName: "hello", shown: true, valueType: tables(""), Keys: toolKeys(), prose: "tool", after: toolExamples},
		}},
		{Name: "mcp", Hint: "write [mcp.SERVER]", valueType: tables(""), Keys: []Key{
			{Name: "SERVER", exampleName: "github", valueType: tables(""), Keys: serverKeys(), prose: "mcp"},
		}},
		{Name: "provers", Hint: "write [provers.NAME]", valueType: tables(""), Keys: []Key{
			{Name: "NAME", exampleName: "lab", valueType: tables(""), prose: "prover", Keys: []Key{
				{Name: "public_key", Example: `"Mu3GE0tOuZvktwmf+XVEj5xfDfTn8XYklvcc17KgkwU="`, Help: "an Ed25519 key in base64, or PEM", Hint: keyHint, valueType: anyText()},
				{Name: "public_key_file", Example: `"/etc/permesso/prover.pub"`, Help: "instead of public_key", valueType: must("absolute path", absolutePath, "must be an absolute path"), instead: true},
			}},
		}},
		{Name: "rules", Example: "[[rules]]", Help: "what is allowed, asked and denied", Hint: "write [[rules]]", shown: true, valueType: tableList(), Keys: ruleKeys(), prose: "rule", after: ruleExamples},
		{Name: "channels", valueType: valueType{}, unknown: "unknown channel %s", unknownHint: "remove it; approvers decide at the daemon's terminal, or with permesso approve", Keys: []Key{
			{Name: channelEmail, valueType: tables(""), Keys: emailKeys(), prose: "email"},
			{Name: channelTelegram, valueType: tables(""), Keys: telegramKeys(), prose: "telegram"},
			{Name: channelNtfy, valueType: tables(""), Keys: ntfyKeys(), prose: "ntfy"},
		}},
		{Name: "webhooks", Hint: "write [webhooks.NAME]", valueType: tables(""), Keys: []Key{
			{Name: "NAME", exampleName: "ci", Hint: webhookHint, valueType: tables(""), prose: "webhook", Keys: webhookKeys()},
		}},
		{Name: "retention", Hint: `[retention] with responses = "7d" and records = "90d"`, valueType: tables(""), implied: emptyTable, prose: "retention", Keys: []Key{
			{Name: "responses", Default: `"7d"`, Help: "for agents that read them late", Hint: daysHint, valueType: duration(time.Hour, maxRetention), Restart: true},
			{Name: "records", Default: `"90d"`, Help: "the complete history of each request, for permesso show", Hint: daysHint, valueType: duration(dayLong, maxRetention), Restart: true},
		}},
	}}
}

func workspaceKeys(languages valueType, languageHelp string) []Key {
	limits := approval.Limits{}.WithDefaults()
	budget := []Key{
		{Name: "soft", Example: "100", Help: "above it, approval is needed", Hint: budgetHint, valueType: costType()},
		{Name: "hard", Example: "1000", Help: "above it, nothing runs", Hint: budgetHint, valueType: costType()},
	}
	rates := []Key{{Name: "CAPABILITY", exampleName: `"mail:send"`, Example: `"10/1h"`, Help: "number per duration", names: append(Capabilities(), "none"), valueType: rateType()}}
	return []Key{
		{Name: "autonomy", Default: `"supervised"`, Help: "readonly, supervised, full", valueType: word(grant.Levels()...), shown: true},
		{Name: "approvers", Example: "[]", Help: "names from [approvers]; empty: only the local operator", Hint: `a list of names: approvers = ["ann"]`, valueType: listOf("list of names", anyText(), anyItem, ""), shown: true},
		{Name: "agent_uid", Example: "1001", Help: "or [1001, 1002]: UID of the agent or of its rootless sandbox; it reaches its folders and may not decide", Hint: uidHint, valueType: oneOrMore("UID, or list of UIDs", number(1, highestUID), numbers("", 1, highestUID, "whole numbers from 1 to 4294967294"))},
		{Name: "channels", Example: `["telegram", "email", "ntfy"]`, Help: "also ask approvers there", Hint: `a list of names: channels = ["telegram"]`, valueType: listOf("list of names of channels", anyText(), anyItem, "")},
		{Name: "telegram", Help: "a group, or one topic of it; default: each approver's private chat", Hint: "telegram = { chat_id = 123456789 }", valueType: tables(""), Keys: []Key{
			{Name: "chat_id", Example: "-1001234567890", Help: "the numeric id of the chat", Hint: "the numeric id of the chat, without quotes", valueType: number(-1<<52, 1<<52)},
			{Name: "thread_id", Example: "7", Help: "the number of the forum's topic", Hint: "the number of the forum's topic", valueType: number(1, 1<<31-1)},
		}},
		{Name: "language", Default: fromTop, Example: `"en"`, Help: languageHelp + "; default: that of the top", valueType: languages},
		{Name: "local_decisions", Default: fromTop, Example: "true", Help: "default: that of the top", valueType: flag()},
		{Name: "principal", Example: `"ann"`, Help: "the human it works for: only this approver decides", Hint: "the name of one approver", valueType: anyText()},
		{Name: "own_domains", Example: `["example.org"]`, Help: "a card marks recipients elsewhere as outsiders; list each domain", Hint: `a list of domain names: own_domains = ["example.org"]`, valueType: domainList()},
		{Name: "email_ceiling", Example: `"reversible"`, Help: "by email, approve only up to: reversible, partial, irreversible; deny always works", valueType: word(reversibilities()...)},
		{Name: "approval_timeout", Default: `"5m"`, Help: "a request that is not decided by then expires", valueType: duration(time.Second, maxWait), shown: true},
		{Name: "approval_timeout_max", Default: `"24h"`, Help: "the longest timeout that an agent may request", valueType: duration(time.Second, maxWait), shown: true},
		{Name: "quiet_hours", Example: `"22:00-07:00"`, Help: "silent notifications", Hint: quietHint, valueType: timesOfDay()},
		{Name: "night_timeout", Example: `"10h"`, Help: "the approval_timeout then", valueType: duration(time.Second, maxWait)},
		{Name: "contains_secrets", Default: "false", Help: "true: what its agent reads counts as secret", valueType: flag()},
		{Name: "admin", Default: "false", Help: "true: no tool may read public sources there", valueType: flag()},
		{Name: "remember_exec_cmd", Example: `"any"`, Help: "any: a grant for exec_cmd covers every command of the agent, not only the same", valueType: word("any"), instead: true},
		{Name: "release_trust", Help: "what requests without a tool read and write; default: they neither taint nor fall under the trifecta", Hint: "release_trust = { public_source = true }", valueType: tables(""), instead: true, Keys: propertyKeys()[:3]},
		{Name: "folder", Default: "true", Help: "false: requests only over the API, with a key", valueType: flag()},
		{Name: "binds_sessions", Default: "false", Help: "true: taints belong to the session_id, which the holder of the key chooses; needs folder = false", valueType: flag()},
		{Name: "sessions", Help: "autonomy of single sessions", Hint: `sessions = { "sess_1" = "readonly" }`, valueType: tables(""), Keys: []Key{{Name: "SESSION", exampleName: "sess_1", Example: `"readonly"`, Help: "readonly, supervised, full", valueType: word(grant.Levels()...)}}},
		{Name: "ask_above", Help: "more requests need approval; by capability, none: without one", Hint: rateHint, valueType: tables(""), Keys: rates, unknown: "%s is not a capability"},
		{Name: "deny_above", Help: "more requests are denied", Hint: rateHint, valueType: tables(""), Keys: rates, unknown: "%s is not a capability"},
		{Name: "budget_session", Help: "cost of a session, in the units of a tool's cost", Hint: budgetHint, valueType: tables(""), Keys: budget},
		{Name: "budget_day", Help: "cost of a day", Hint: budgetHint, valueType: tables(""), Keys: budget},
		{Name: "limits", Hint: "limits = { pending = 32 }", Help: "of requests", valueType: tables(""), implied: emptyTable, Keys: []Key{
			{Name: "pending", Default: strconv.Itoa(limits.Pending), Help: "requests that wait for a decision", valueType: number(1, 10_000)},
			{Name: "ask_per_minute", Default: strconv.Itoa(limits.AskPerMinute), Help: "requests that need a decision", valueType: number(1, 100_000)},
			{Name: "per_minute", Default: strconv.Itoa(limits.PerMinute), Help: "all requests", valueType: number(1, 100_000)},
			{Name: "request_size", Default: strconv.Itoa(limits.RequestSize), Example: `"256KiB"`, Help: "of one request", valueType: size(1<<10, 16<<20)},
			{Name: "running", Default: strconv.Itoa(limits.Running), Help: "actions at the same time", valueType: number(1, 1_000)},
			{Name: "stored", Default: strconv.FormatInt(limits.Stored, 10), Example: `"256MiB"`, Help: "records and responses on the disk; refused, denied and expired requests make room, and if what ran takes it all, new requests are refused", valueType: size(16<<20, 1<<40)},
		}},
	}
}

// propertyKeys are the four trust properties.
func propertyKeys() []Key {
	const hint = `true, false or "forbidden"`
	property := propertyType()
	return []Key{
		{Name: "public_source", Example: "false", Help: `it reads what strangers wrote: true, false, "forbidden"`, Hint: hint, valueType: property, instead: true},
		{Name: "secret_data", Example: "false", Help: "it reads secrets", Hint: hint, valueType: property, instead: true},
		{Name: "public_sink", Example: "false", Help: "strangers can read what it writes", Hint: hint, valueType: property, instead: true},
		{Name: "dangerous_writes", Example: "false", Help: "it can do damage", Hint: hint, valueType: property, instead: true},
	}
}

func toolKeys() []Key {
	return slices.Concat([]Key{
		{Name: "capability", Example: `"code:exec"`, Help: "what it does; without one, only trust and the rules count", valueType: word(Capabilities()...)},
		{Name: "action_type", Example: `"custom:hello"`, Help: strings.Join(approval.ActionTypes(), ", ") + ", custom:NAME", valueType: actionTypeType(), shown: true},
		{Name: "verb", Example: `{ en = "say hello", it = "saluti" }`, Help: "for the question on the card; or one text for every language", valueType: verbType(), shown: true, Keys: []Key{{Name: "LANGUAGE", Example: `"say hello"`, names: chat.Languages(), valueType: line(200), exampleName: "en"}}},
		{Name: "summary", Example: `"hello to {name}"`, Help: "what the card says; {fields} of the request", valueType: line(1000), shown: true},
		{Name: "target", Example: `"this machine"`, Help: "where the effect is; default: the host of an http handler", valueType: line(1000), shown: true},
		{Name: "reversibility", Example: `"reversible"`, Help: "reversible, partial, irreversible", valueType: word(reversibilities()...), shown: true},
		{Name: "territory", Default: `"none"`, Help: "session or permanent: the grant that the card suggests", valueType: word("none", "session", "permanent"), shown: true},
		{Name: "trust", Example: "false", Help: "only false: it can do no harm, and without a capability it runs without approval; instead of setting all four of these to false:", Hint: "trust = false clears the four properties", valueType: flag(), shown: true},
	}, propertyKeys(), []Key{
		{Name: "cost", Example: "1", Help: "of one request, in units of your own, for the budgets; or the name of an amount argument", Hint: costHint, valueType: toolCostType()},
		{Name: "secrets", Default: `"ask"`, Help: "what a secret in a request leads to: ask, allow, deny", valueType: word("ask", "allow", "deny")},
		{Name: "args", Example: `{ name = "text" }`, Help: "every argument, with its type; default: the {fields}, as text", Hint: argsKeyHint, valueType: tables(""), shown: true, Keys: []Key{{Name: "ARGUMENT", Example: `"text"`, exampleName: "name", valueType: argumentType(), Keys: argumentKeys()}}},
		{Name: "size", Example: `"name"`, Help: "the argument whose size the card shows; default: all of them", Hint: `the name of an argument: size = "path"`, valueType: must("name of an argument", validArgument, "must name an argument of the tool"), instead: true},
		{Name: "reads", Default: "false", Help: "true: it only reads, so a program may look at its result while its plan is made", Hint: readsHint, valueType: flag()},
		{Name: "undo", Example: `"delete_event"`, Help: "the tool that undoes a run, with arguments from its result and its own", Hint: `the name of a tool: undo = "delete_event"`, valueType: must("name of a tool", approval.ValidToolName, "is not the name of a tool"), instead: true},
		{Name: "handler", Example: `{ kind = "command", argv = ["/bin/echo", "hello"], timeout = "30s", env = ["LANG"] }`, Hint: `handler = { kind = "command", argv = ["/usr/bin/true"] }`, valueType: tables(""), shown: true, Keys: handlerKeys(), prose: "handler"},
	})
}

// serverKeys are those of an MCP server: what starts it or where it is, as in handlers, and its tools.
func serverKeys() (keys []Key) {
	for _, k := range handlerKeys() {
		switch k.handler, k.instead = "", k.handler == approval.HandlerHTTP; k.Name {
		case "argv":
			k.Example, k.Hint, k.Help = `["/usr/local/bin/github-mcp-server", "stdio"]`, serverHint, "the program that the host runs, with its arguments"
		case "url":
			k.Example, k.Hint, k.Help = `"https://mcp.example.org/mcp"`, serverHint, "instead of argv: a server elsewhere"
		case "dir":
			k.Help, k.Hint = "where it runs; default: a new empty folder", "remove it to run in a new empty folder"
		case "env", "max_memory", "max_processes", "headers", "secret_headers", "allow_private", "ca_file":
		default:
			continue
		}
		keys = append(keys, k)
	}
	tool := slices.DeleteFunc(toolKeys(), func(k Key) bool { return slices.Contains([]string{"handler", "reads", "undo"}, k.Name) })
	return append(keys, Key{
		Name: "tools", Example: `{ create_issue = { capability = "network:http", args = { title = "text" } } }`, Help: "its tools that an agent calls through permesso mcp proxy",
		Hint: "write [mcp.SERVER.tools.TOOL]", valueType: tables(""), Keys: []Key{
			{Name: "TOOL", Example: `{ capability = "network:http" }`, Help: "as [tools.\"mcp.SERVER.TOOL\"] with the handler kind agent: the same keys, without handler, reads and undo", valueType: tables(""), Keys: tool, listed: true},
		},
	})
}

func handlerKeys() []Key {
	named := func(example string) []Key { return []Key{{Name: "NAME", Example: example, valueType: anyText()}} }
	absolute := must("absolute path", absoluteDir, "must be an absolute path")
	return []Key{
		{Name: "kind", Example: `"http"`, Help: "command, http, mcp, agent, none", valueType: handlerKindType()},
		{Name: "argv", Example: `["/bin/echo", "{name}"]`, Help: "the program with its arguments", Hint: argvHint, valueType: listOf("list of strings", anyText(), anyItem, ""), handler: approval.HandlerCommand},
		{Name: "dir", Example: `"/srv/work"`, Help: "where it runs; default: a new empty folder", Hint: "remove it to run in a new empty folder each time", valueType: absolute, handler: approval.HandlerCommand},
		{Name: "env", Example: `["LANG"]`, Help: "names of variables of the daemon's environment that it gets", Hint: `names only: env = ["LANG"]; the values come from the daemon's environment`, valueType: listOf("list of names", anyText(), validText(validEnv), "names of variables"), handler: approval.HandlerCommand},
		{Name: "method", Example: `"POST"`, Help: "GET, HEAD, POST, PUT, PATCH, DELETE", Hint: `method = "POST"`, valueType: anyText(), handler: approval.HandlerHTTP},
		{Name: "url", Example: `"https://api.example.org/v1/boards/{board}/posts"`, Help: "{fields} in the path and the query", Hint: `url = "https://api.example.org/v1/posts/{id}"`, valueType: anyText(), handler: approval.HandlerHTTP},
		{Name: "body", Example: `'{"text":{text}}'`, Help: "JSON with {fields} for complete values", Hint: `JSON with {field} instead of values: body = '{"text":{text}}'`, valueType: anyText(), handler: approval.HandlerHTTP},
		{Name: "body_args", Default: "false", Help: "true, instead of body: send the request's data", valueType: flag(), handler: approval.HandlerHTTP},
		{Name: "headers", Example: `{ Accept = "application/json" }`, Help: "of the HTTP request", Hint: `headers = { Accept = "application/json" }`, valueType: tables(""), Keys: named(`"application/json"`), handler: approval.HandlerHTTP},
		{Name: "secret_headers", Example: `{ Authorization = "Bearer /etc/permesso/api.token" }`, Help: "read from files (mode 600)", Hint: `secret_headers = { Authorization = "Bearer /path/of/the/token" }`, valueType: tables(""), Keys: named(`"Bearer /etc/permesso/api.token"`), handler: approval.HandlerHTTP},
		{Name: "server", Example: `"github"`, Help: "the MCP server: the name of a table in [mcp]", Hint: `server = "github", with argv or url in [mcp.github]`, valueType: anyText(), handler: approval.HandlerMCP},
		{Name: "tool", Example: `"create_issue"`, Help: "the server's name of the tool", Hint: `tool = "create_issue"`, valueType: line(200), handler: approval.HandlerMCP},
		{Name: "timeout", Example: `"30s"`, Help: "of one run", valueType: duration(time.Millisecond, dayLong)},
		{Name: "max_output", Example: `"256KiB"`, Help: "of a command's output, which fails if it is more, or of a response, which is cut off and marked", valueType: size(1<<10, 64<<20)},
		{Name: "max_memory", Example: `"2GiB"`, Help: "of all its processes together; a run with more is killed", valueType: size(16<<20, 1<<40), handler: approval.HandlerCommand},
		{Name: "max_processes", Example: "1024", Help: "processes and threads at the same time; a run with more is killed", valueType: number(1, 100_000), handler: approval.HandlerCommand},
		{Name: "status", Example: "[200, 201]", Help: "success; default: 200 to 299", Hint: "a list of numbers: status = [200, 201]", valueType: numbers("list of status codes", 200, 599, "codes from 200 to 599"), handler: approval.HandlerHTTP},
		{Name: "allow_private", Example: `["10.1.2.3:8080", "api.internal"]`, Help: "private addresses that it may reach", Hint: `allow_private = ["10.1.2.3", "internal.example"]`, valueType: listOf("list of hosts", anyText(), anyItem, ""), handler: approval.HandlerHTTP},
		{Name: "ca_file", Example: `"/etc/permesso/ca.pem"`, Help: "instead of the system's authorities", valueType: anyText(), handler: approval.HandlerHTTP},
		{Name: "idempotent", Default: "false", Help: "true: repeat it once after a crash, with the same Idempotency-Key", valueType: flag()},
	}
}

func ruleKeys() []Key {
	return []Key{
		{Name: "name", Example: `"first hello"`, Help: `for the audit log; default: "rule 1"`, valueType: line(63)},
		{Name: "match", Example: `{ tool = "hello", workspace = "default" }`, Help: "what it applies to", Hint: `match = { tool = "x_post", workspace = "personal" }`, valueType: tables(""), shown: true, Keys: slices.Concat([]Key{
			{Name: "tool", Example: `"post"`, Help: "the tool, or a list; mcp.github.* for all that begin so", Hint: "remove it to match every tool", valueType: namesType(approval.ValidToolName)},
			{Name: "workspace", Example: `"default"`, Help: "the workspace, or a list", Hint: "remove it to match every workspace", valueType: namesType(validName)},
			{Name: "approver", instead: true, Example: `"ann"`, Help: "the principal of the workspace, or a list", Hint: "remove it to match every approver", valueType: oneOrMore("name, or a list", must("name", validName, "is not a name"), listOf("", anyText(), validText(validName), "names"))},
			{Name: "capability", instead: true, Example: `"channel:out"`, Help: "the tool's capability, or a list", valueType: oneOrMore("capability, or a list", word(Capabilities()...), listOf("", word(Capabilities()...), validText(func(v string) bool { return slices.Contains(Capabilities(), v) }), "capabilities: permesso policy registry"))},
			{Name: "target", instead: true, Example: `"api.example.org"`, Help: "the target that the card shows, or a list: paths, hosts or texts, by the capability", valueType: oneOrMoreTexts()},
			{Name: "session", instead: true, Example: `"sess_1"`, Help: "the session, or a list", valueType: oneOrMoreTexts()},
			{Name: "client", instead: true, Example: `"ws:default"`, Help: "the client: ws:WORKSPACE, or of an API key", valueType: oneOrMoreTexts()},
			{Name: "subagent", instead: true, Example: `"explorer"`, Help: "the helper of the agent that asks, or a list; grants do not count for one", valueType: oneOrMoreTexts()},
			{Name: "program", instead: true, Example: "true", Help: "true: only steps of programs; false: only requests outside of programs; default: both", Hint: programHint, valueType: flag()},
			{Name: "tools", instead: true, Example: `["send_email", "calendar_*"]`, Help: "with program = true: the only tools that the program's plan calls", Hint: programHint, valueType: namesType(approval.ValidToolName)},
			{Name: "max_steps", instead: true, Example: "5", Help: "with program = true: so many calls of the program's plan have not run, at most", Hint: programHint, valueType: number(1, approval.MaxSteps)},
			{Name: "max_calls", instead: true, Example: "1", Help: "with program = true: so many calls of the step's own tool have not run, at most", Hint: programHint, valueType: number(1, approval.MaxSteps)},
			{Name: "args", instead: true, Example: `{ board = "team", count = { max = 3 } }`, Help: "conditions on the arguments, by their types: permesso config schema", Hint: argsHint, valueType: tables(""), Keys: []Key{{Name: "ARGUMENT", Example: `"team"`, valueType: conditionType(), Keys: conditionKeys()}}},
			{Name: "other_args", instead: true, Default: "true", Help: "false: a request with other arguments than those of args does not match", valueType: flag()},
		}, windowKeys())},
		{Name: "outcome", Example: `"ask"`, Help: "allow, ask, always_ask (no grant lifts it), deny", valueType: word("allow", "ask", "always_ask", "deny"), shown: true},
		{Name: "reason", Example: `"an approver should see it once"`, Help: "for the approver and the audit log", valueType: line(300), shown: true},
		{Name: "trust", instead: true, Help: "for allow: what the matched requests read and reach", Hint: "trust = { public_source = false, public_sink = false }", valueType: tables(""), Keys: propertyKeys()[:3]},
		{Name: "despite", instead: true, Example: `["trifecta"]`, Help: "for allow: trifecta, secrets: allow even then; match must name a tool and list every destination", Hint: `a list: despite = ["trifecta"], ["secrets"] or both`, valueType: despiteType()},
		{Name: "when_proven", Help: "for allow: all of this must be proven", Hint: clauseHint, valueType: tableList(), Keys: clauseKeys(), instead: true, Example: `[{ domain = "mail", at_most = 10 }]`},
		{Name: "unless_proven", Help: "for deny and ask: not if all of this is proven", Hint: clauseHint, valueType: tableList(), Keys: clauseKeys(), instead: true, Example: `[{ domain = "mail", at_most = 0, of = { recipient = "boss@example.org" } }]`},
	}
}

func clauseKeys() []Key {
	argument := func(kind policy.ClauseKind, help string) Key {
		return Key{Name: string(kind), Help: help, Hint: string(kind) + ` = { recipient = ["ann@example.org"] }`, valueType: tables(""), Keys: []Key{{Name: "ARGUMENT", Example: `["ann@example.org"]`, valueType: oneOrMoreTexts()}}}
	}
	of := argument("of", "counted are only actions of this argument")
	of.Hint = atMostHint
	return []Key{
		{Name: "domain", Example: `"mail"`, Help: "of the actions", valueType: line(100)},
		{Name: "op", Example: `"send"`, Help: "the operation; default: every one", valueType: line(100)},
		argument(policy.Only, "an argument has only these values"),
		argument(policy.Under, "a path is under one of these folders"),
		{Name: string(policy.Unique), Example: `"recipient"`, Help: "no two actions have the same value of this argument", valueType: line(100)},
		{Name: string(policy.SumAtMost), Example: `"20.00"`, Help: "the sum of all amounts of the actions", Hint: sumHint, valueType: decimalType(false)},
		{Name: "currency", Example: `"EUR"`, Help: "of sum_at_most: every amount must have it", Hint: sumHint, valueType: matching("currency", `^[A-Za-z0-9]{2,10}$`, "2 to 10 letters and digits")},
		{Name: string(policy.AtMost), Example: "10", Help: "the number of actions", Hint: atMostHint, valueType: number(0, 1_000_000)},
		of,
	}
}

func telegramKeys() []Key {
	const example = `webhook = { listen = "127.0.0.1:8443", url = "https://gate.example.org/telegram", secret_file = "/path" }`
	const urlHint = `for example "https://gate.example.org/telegram"`
	secretFile := must("absolute path", absolutePath, "must be an absolute path")
	const fileHint = "put the secret into a file that only the daemon can read: chmod 600"
	return []Key{
		{Name: "token_file", Example: `"/etc/permesso/telegram.token"`, Help: "mode 600; or set PERMESSO_TELEGRAM_TOKEN", Hint: fileHint, valueType: secretFile},
		{Name: "feed", Default: "false", Help: "true: also report what policy allowed, silently", valueType: flag()},
		{Name: "server_url", Example: `"http://127.0.0.1:8081"`, Help: "a Bot API server of your own", Hint: urlHint, valueType: checked("https URL, or http on this machine", webAddress(true))},
		{Name: "webhook", Help: "where Telegram delivers updates; default: the daemon polls", Hint: example, valueType: tables(""), Keys: []Key{
			{Name: "listen", Example: `"127.0.0.1:8443"`, Help: "the daemon's address behind your proxy", Hint: `for example "127.0.0.1:8443"`, valueType: must("address and port", validListenAddress, "must be an address and a port")},
			{Name: "url", Example: `"https://gate.example.org/telegram"`, Help: "the proxy's address", Hint: urlHint, valueType: checked("https URL", webAddress(false))},
			{Name: "secret_file", Example: `"/etc/permesso/webhook.secret"`, Help: "mode 600", Hint: fileHint, valueType: secretFile},
		}},
	}
}

func oauthKeys() Key {
	const example = `oauth = { provider = "google", client_id = "…", client_secret_file = "/path" }`
	address := checked("https URL, or http on this machine", webAddress(true))
	return Key{Name: "oauth", Help: "for servers without password_file; permesso email setup authorizes the daemon", Hint: example, valueType: tables(""), instead: true, Keys: []Key{
		{Name: "provider", Example: `"google"`, Help: "google, microsoft or other", valueType: word("google", "microsoft", "other")},
		{Name: "client_id", Example: `"1234.apps.googleusercontent.com"`, Help: "of the client that you registered there", valueType: line(200)},
		{Name: "client_secret_file", Example: `"/etc/permesso/oauth.secret"`, Help: "mode 600; if the client has a secret", valueType: must("absolute path", absolutePath, "must be an absolute path")},
		{Name: "auth_url", Example: `"https://login.example.org/authorize"`, Help: "of another provider: for a browser on this machine", valueType: address, instead: true},
		{Name: "token_url", Example: `"https://login.example.org/token"`, Help: "of another provider", valueType: address, instead: true},
		{Name: "device_url", Example: `"https://login.example.org/device"`, Help: "of another provider: for a browser anywhere", valueType: address, instead: true},
		{Name: "scope", Example: `"mail offline_access"`, Help: "of another provider", valueType: line(500), instead: true},
	}}
}

func emailKeys() []Key {
	absolute := must("absolute path", absolutePath, "must be an absolute path")
	hostAndPort := must("host:port", func(v string) bool { return hostPort(v, "") != "" }, "must be host:port")
	server := func(name, address string, more ...Key) Key {
		return Key{Name: name, Hint: name + ` = { address = "mail.example.org:587", username = "permesso", password_file = "/path" }`, valueType: tables(""), Keys: append([]Key{
			{Name: "address", Example: `"` + address + `"`, Help: "host:port", Hint: `for example "mail.example.org:587"`, valueType: hostAndPort},
			{Name: "security", Default: `"starttls"`, Help: "starttls, tls, none; default for ports 465 and 993: tls", valueType: word("starttls", "tls", "none"), instead: true},
			{Name: "username", Example: `"permesso"`, Help: "for the login", valueType: line(200)},
			{Name: "password_file", Example: `"/etc/permesso/mail.password"`, Help: "mode 600", valueType: absolute},
			{Name: "ca_file", Example: `"/etc/permesso/ca.pem"`, Help: "instead of the system's authorities", valueType: absolute, instead: true},
		}, more...)}
	}
	return []Key{
		{Name: "from", Example: `"permesso@example.org"`, Help: "the daemon's address", Hint: `the bare address: "permesso@example.org"`, valueType: must("email address", validFrom, "must be an email address without + and quotation marks")},
		server("smtp", "mail.example.org:587"),
		server("imap", "mail.example.org:993", Key{Name: "mailbox", Example: `"INBOX"`, Help: "default: INBOX", valueType: line(200)}),
		oauthKeys(),
		{Name: "maildir", Example: `"/var/mail/permesso"`, Help: "instead of imap: a folder that receives replies", valueType: absolute, instead: true},
		{Name: "authserv_id", Example: `"mx.example.org"`, Help: "trust its Authentication-Results", Hint: "permesso email test shows what it is", valueType: matching("name", `^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`, "the name that your mail server puts into Authentication-Results")},
		{Name: "authserv_unnamed", Default: "false", Help: "true: the server puts Authentication-Results without its name above all others, in every email", valueType: flag(), instead: true},
		{Name: "dkim", Default: "true", Help: "verify DKIM signatures", valueType: flag()},
		{Name: "trust_relay", Default: "false", Help: "true: trust From; only if a mail server on this machine checks it", valueType: flag()},
		{Name: "sub_addressing", Default: "false", Help: "true: permesso+anything@example.org is delivered to from", valueType: flag()},
		{Name: "follow_up", Default: "true", Help: "send the outcome by email", valueType: flag()},
		{Name: "dns", Example: `"127.0.0.1:53"`, Help: "instead of the system's resolver", Hint: `for example "127.0.0.1:53"`, valueType: must("host, or host:port", func(v string) bool { return hostPort(v, "53") != "" }, "must be host:port")},
	}
}
