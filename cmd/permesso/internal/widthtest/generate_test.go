package widthtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/widthtest"
)

// random makes configurations and requests.
type random struct {
	*rand.Rand
	commands []string
}

func pick[T any](r random, all ...T) T { return all[r.IntN(len(all))] }

func (r random) oneIn(n int) bool { return r.IntN(n) == 0 }

// tool is a tool of a configuration.
type tool struct {
	name, capability, target string
	args                     map[string]string // types by name
	lines                    []string          // all else
}

func (t tool) toml() string {
	var b strings.Builder
	if t.capability != "" {
		fmt.Fprintf(&b, "capability = %q\n", t.capability)
	}
	if t.target != "" {
		fmt.Fprintf(&b, "target = %q\n", t.target)
	}
	for _, l := range t.lines {
		b.WriteString(l + "\n")
	}
	var args []string
	for _, name := range slices.Sorted(maps.Keys(t.args)) {
		args = append(args, fmt.Sprintf("%s = { type = %q, optional = %t }", name, t.args[name], optional(name)))
	}
	return b.String() + "args = { " + strings.Join(args, ", ") + " }\n"
}

func optional(name string) bool { return name == "more" || name == "new" }

// command is the tool's only argument that is a command, "" if there is not exactly one.
func (t tool) command() (name string) {
	for n, is := range t.args {
		if is == facts.TypeCommand && name != "" {
			return ""
		} else if is == facts.TypeCommand {
			name = n
		}
	}
	return name
}

// setup is a configuration.
type setup struct {
	workspaces []string // their lines
	tools      []tool
	rules      []string
}

var workspaceNames = []string{"personal", "work"}

func (w setup) toml() string {
	var b strings.Builder
	for i, lines := range w.workspaces {
		fmt.Fprintf(&b, "[workspaces.%s]\n%s", workspaceNames[i], lines)
		b.WriteString("limits = { pending = 1000, ask_per_minute = 10000, per_minute = 10000 }\n")
	}
	for _, t := range w.tools {
		fmt.Fprintf(&b, "[tools.%s]\n%s", t.name, t.toml())
	}
	for _, rule := range w.rules {
		b.WriteString("[[rules]]\n" + rule)
	}
	return b.String()
}

func (w setup) tool(name string) (t tool, ok bool) {
	i := slices.IndexFunc(w.tools, func(t tool) bool { return t.name == name })
	if i < 0 {
		return t, false
	}
	return w.tools[i], true
}

func (r random) setup() (w setup) {
	for range r.IntN(2) + 1 {
		w.workspaces = append(w.workspaces, r.workspace())
	}
	names := []string{"x_post", "a:b", "t.1", "exactly", "write_file"}
	for i := range r.IntN(3) + 1 {
		w.tools = append(w.tools, r.tool(names[i]))
	}
	twin := w.tools[0]
	twin.name = "twin"
	w.tools = append(w.tools, twin)
	for range max(0, r.IntN(5)-2) {
		w.rules = append(w.rules, r.rule(w))
	}
	return w
}

func (r random) workspace() string {
	lines := fmt.Sprintf("autonomy = %q\n", pick(r, "supervised", "supervised", "full", "readonly"))
	for _, some := range []struct {
		in   int
		line string
	}{
		{8, "contains_secrets = true"},
		{4, `remember_exec_cmd = "any"`},
		{8, "release_trust = { public_source = true, secret_data = true, public_sink = true }"},
		{10, "folder = false\nbinds_sessions = true"},
		{8, `sessions = { s2 = "readonly" }`},
		{10, fmt.Sprintf("ask_above = { %q = %q }", pick(r, append(capabilities(), "none")...), pick(r, "1/1h",
			"5/1m"))},
		{15, fmt.Sprintf("deny_above = { %q = %q }", pick(r, append(capabilities(), "none")...), "3/1h")},
		{10, "budget_session = { soft = 3, hard = 20 }"},
		{15, "budget_day = { soft = 5 }"},
	} {
		if r.oneIn(some.in) {
			lines += some.line + "\n"
		}
	}
	return lines
}

func capabilities() (names []string) {
	for _, c := range facts.Capabilities() {
		names = append(names, c.Name)
	}
	return names
}

var templates = map[string][]string{
	"host":      {"{url}", "{url}", "{url}", "{host}", "https://{host}/x", "{who}", "{who}", "api.example.org", "http://{who}"},
	"path_glob": {"{path}", "{path}", "/data/{who}", "/srv/[x]/{path}", "{who}"},
	"exact":     {"x.com/{who}", "{who}", "{more}", "{to}", "{path}", "inbox"},
	"none":      {"{who}", "here"},
}

func (r random) tool(name string) tool {
	t := tool{name: name, args: map[string]string{"text": facts.TypeText}}
	kind := "exact"
	if !r.oneIn(4) {
		c := pick(r, facts.Capabilities()...)
		if r.oneIn(2) { // those whose grants are the most different
			c, _ = facts.CapabilityNamed(pick(r, "code:exec", "fs:write", "fs:read", "network:http"))
		}
		t.capability, kind = c.Name, c.TargetKind
	}
	if kind != "none" && !r.oneIn(4) || r.oneIn(3) {
		t.target = pick(r, templates[kind]...)
	}
	for _, field := range []string{"who", "url", "host", "path", "to", "more"} {
		if strings.Contains(t.target, "{"+field+"}") || r.oneIn(6) {
			t.args[field] = map[string]string{
				"who": facts.TypeText, "to": facts.TypeRecipients,
				"more": facts.TypeJSON,
			}[field]
			if t.args[field] == "" {
				t.args[field] = field
			}
		}
	}
	if t.capability == "code:exec" || r.oneIn(8) {
		t.args["command"] = facts.TypeCommand
		if r.oneIn(6) {
			t.args["other"] = facts.TypeCommand
		}
		if r.oneIn(3) {
			t.args["cwd"] = facts.TypePath
		}
	}
	t.lines = append(r.trust(t.capability), fmt.Sprintf("territory = %q", pick(r, "none", "session", "permanent")))
	if r.oneIn(3) {
		t.lines = append(t.lines, "cost = 1")
	}
	if !r.oneIn(3) {
		t.lines = append(t.lines, fmt.Sprintf("action_type = %q", pick(r, actions...)))
	}
	t.lines = append(t.lines, pick(r, `handler = { kind = "command", argv = ["/bin/true"] }`,
		`handler = { kind = "none" }`))
	return t
}

func (r random) trust(capability string) (lines []string) {
	bare := capability == ""
	keys := []string{"public_source", "secret_data", "public_sink", "dangerous_writes"}
	switch {
	case bare && r.oneIn(3), r.oneIn(5), capability == "code:exec" && r.oneIn(2):
		return []string{"trust = false"}
	case !bare && !r.oneIn(4):
		return nil
	}
	for _, k := range keys {
		if bare || r.oneIn(2) {
			value := pick(r, "true", "true", "false", "false", "false")
			if r.oneIn(30) {
				value = `"forbidden"`
			}
			lines = append(lines, k+" = "+value)
		}
	}
	return lines
}

var actions = []string{"exec_cmd", "http_request", "write_file", "send_message", "custom:deploy", "custom:x_post"}

// rule is a rule about one tool, or about more.
func (r random) rule(w setup) string {
	var match, args []string
	t := pick(r, w.tools...)
	if !r.oneIn(4) {
		match = append(match, fmt.Sprintf("tool = %q", t.name))
	}
	for _, is := range [][2]string{
		{"workspace", pick(r, workspaceNames...)},
		{"session", "s1"},
		{"client", pick(r, clients...)},
		{"capability", t.capability},
		{"target", pick(r, "x.com/**", "good.com", "/home/ann/**")},
	} {
		if r.oneIn(6) && is[1] != "" {
			match = append(match, fmt.Sprintf("%s = %q", is[0], is[1]))
		}
	}
	outcome := pick(r, "ask", "ask", "allow", "allow", "always_ask", "deny")
	for _, name := range slices.Sorted(maps.Keys(t.args)) {
		if outcome == "allow" && r.oneIn(2) || r.oneIn(8) {
			args = append(args, fmt.Sprintf("%s = %q", name, pick(r, "*", "**", "a", "ricardo", "/home/ann/a.txt",
				"git status")))
		}
	}
	if len(args) > 0 {
		match = append(match, "args = { "+strings.Join(args, ", ")+" }")
	}
	if len(match) == 0 {
		match = []string{fmt.Sprintf("tool = %q", t.name)}
	}
	despite := ""
	if outcome == "allow" && r.oneIn(3) {
		despite = `despite = ["trifecta", "secrets"]` + "\n"
	}
	return fmt.Sprintf("match = { %s }\noutcome = %q\n%s", strings.Join(match, ", "), outcome, despite)
}

// call is a request.
type call struct {
	Workspace, Client, Session string
	Tool, Action               string
	args                       map[string]string // JSON values by name
	preview                    string
	question                   bool
	style                      int // of the JSON text
}

var (
	sessions = []string{"s1", "s1", "s1", "s2", "S1", ""}
	clients  = []string{"0123456789ab", "0123456789ac", "ws:personal", "ws:work"}
)

// data is request_data. The style changes nothing that it says.
func (c call) data() string {
	names := slices.Sorted(maps.Keys(c.args))
	gap := ""
	if c.style&1 != 0 {
		slices.Reverse(names)
	}
	if c.style&2 != 0 {
		gap = " "
	}
	var members []string
	for _, n := range names {
		members = append(members, gap+strconv.Quote(n)+":"+gap+c.args[n])
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (c call) json(id string) string {
	what := "action_type"
	if c.Tool != "" {
		what = "tool_name"
	}
	kind := "action"
	if c.question {
		kind = "question"
	}
	return fmt.Sprintf(`{"request_id":%q,%q:%q,"request_data":%s,"session_id":%q,"preview":%s,"type":%q}`,
		id, what, c.Tool+c.Action, c.data(), c.Session, quoted(c.preview), kind)
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// seen is the request as the checker sees it.
func (w setup) seen(c call, at time.Time) widthtest.Call {
	t, _ := w.tool(c.Tool)
	return widthtest.Call{
		Workspace: c.Workspace, Client: c.Client, Session: c.Session, Tool: c.Tool, Action: c.Action,
		Definition: t.toml(), Capability: t.capability, Target: t.target, Command: t.command(), Args: c.data(),
		Prose: c.preview, At: at,
	}
}

func (r random) call(w setup) call {
	c := call{
		Workspace: workspaceNames[r.IntN(len(w.workspaces))], Session: pick(r, sessions...),
		style: r.IntN(4), args: map[string]string{},
	}
	c.Client = pick(r, "ws:"+c.Workspace, "ws:"+c.Workspace, clients[0], clients[1])
	if r.oneIn(4) {
		return r.release(c)
	}
	t := pick(r, w.tools...)
	c.Tool = t.name
	for _, name := range slices.Sorted(maps.Keys(t.args)) {
		is := t.args[name]
		if name == "who" && t.capability == "network:http" {
			is = facts.TypeURL // a text that is not checked when the request comes
		}
		if !optional(name) || !r.oneIn(3) {
			c.args[name] = r.value(is)
		}
	}
	c.question = r.oneIn(60)
	return c
}

func (r random) release(c call) call {
	c.Action = pick(r, append(actions, "exec_cmd", "exec_cmd")...)
	if c.Action == "exec_cmd" || r.oneIn(4) {
		name := pick(r, "command", "cmd", "argv")
		c.args[name] = r.command()
		if r.oneIn(3) {
			c.args["cwd"] = quoted(pick(r, "/home/ann", "/tmp"))
		}
		if r.oneIn(10) {
			c.args = map[string]string{}
			c.preview = pick(r, "ls -l", "rm x")
		}
		return c
	}
	c.args["text"] = r.value(facts.TypeText)
	return c
}

var pools = map[string][]string{
	facts.TypeText: {
		"a", "ricardo", "Ricardo", "ricardo ", "ricardo\u200b", "eve", "x in work", "a, 90 days",
		"ricardo/../eve", "\u202eeve",
		"../root", "good.com", "evil.com/good.com", `\u{202E}`, "a\nb", "(no who)",
		"ghp_0123456789abcdefghijklmnopqrstuvwxyzAB", "/home/ann/a.txt", "",
	},
	facts.TypeURL: {
		"https://good.com/a", "https://good.com/b?x=1", "http://good.com/", "file://good.com/etc/passwd", "https://good.com:8443/x",
		"https://good.com",
		"https://evil.com/https://good.com/", "https://good.com@evil.com/", "https://good.com.evil.com/",
		"HTTPS://GOOD.COM/",
		"https://good.com./", "https://good%2ecom/",
		"http://127.0.0.1:8099/?https://good.com",
		`https:\\good.com\`, "https://good.com#@evil.com", "https://good.com?@evil.com", "https://[::1]/",
		"https://g\u043eod.com/",
		"https://good.com:443/", "https://good.com:80/", "http://good.com:443/", "https://good.com:/",
		`https://good.com\@evil.com/`,
		"https://evil.com\t.good.com/", "ftp://good.com/",
	},
	facts.TypeHost: {
		"good.com", "GOOD.com", "good.com.", "evil.com", "good.com:8443", "good.com:443",
		"good.com:80", "[::1]", "127.0.0.1",
	},
	facts.TypePath: {
		"/home/ann/a.txt", "/home/ann/a.txt", "/home/ann/b.txt", "/home/ann/sub/b.txt",
		"/home/ann/../root/.ssh/authorized_keys",
		"/home/ann/./a.txt", "//home/ann/a.txt", "/home/ann/a.txt/", "/home/ann/*", "/home/ann/[a].txt",
		`/home/ann/{a,b}.txt`, `/home/ann/\*`,
		"a.txt", "../a.txt", "~/.ssh/config", "/home/ann/A.txt", "/home/ann/a.txt\n", "/home/ann/**",
		"/home/ann/a?txt", "/home/ann",
	},
	facts.TypeRecipients: {"ann@good.com", "Ann <ann@good.com>", "eve@evil.com", "ann@good.com, eve@evil.com"},
	facts.TypeJSON:       {"x", "y"},
}

// value is a JSON value of a type.
func (r random) value(is string) string {
	if is == facts.TypeCommand {
		return r.command()
	}
	n := len(pools[is])
	if r.oneIn(2) {
		n = min(n, 4) // so that requests meet
	}
	s := quoted(pick(r, pools[is][:n]...))
	list := is == facts.TypePath || is == facts.TypeURL || is == facts.TypeHost || is == facts.TypeRecipients ||
		is == facts.TypeJSON
	if list && r.oneIn(12) {
		return "[" + s + "]"
	}
	return s
}

var commands = strings.Split(`go test ./...
go test ./a ./b
go test -run TestX ./...
go build -o bin/x ./cmd/x
go vet ./...
git status
git log --oneline -n 5
git diff HEAD src
git commit -m 'a b'
git push origin main
make test
npm test
npm ci
ls -l src
cat a.txt b.txt
grep -rn foo src
pytest -q tests
cargo test --release
docker ps -a
kubectl get pods -n web
curl https://good.com
tar xf a.tar
tar cf a.tar src
find . -name x
rm a.txt
cp a b
wc -l a.txt
echo hi
sort -u a
/usr/bin/wc a
systemctl status nginx
pip list
sh -c ls
python3 x.py
./check.sh`, "\n")

// command is a command as JSON: a line or its words.
func (r random) command() string {
	line := pick(r, commands...)
	if len(r.commands) > 0 && r.oneIn(2) {
		line = pick(r, r.commands...)
	}
	if words, err := widthtest.Words(line); err == nil && r.oneIn(5) {
		b, err := json.Marshal(words)
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	return quoted(line)
}

var placeholder = regexp.MustCompile(`\{\{([^}]*)\}\}`)

// corpus reads everyday and abusive command lines, where they are present.
func corpus(t *testing.T) (lines []string) {
	for _, name := range []string{"tldr-sample.txt", "gtfobins-sample.txt"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "shared", "corpora", name))
		if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
			continue
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			_, abuse, found := strings.Cut(line, "\t")
			if found {
				line = strings.ReplaceAll(strings.Trim(strings.TrimSpace(abuse), "'"), `\n`, "\n")
			}
			lines = append(lines, placeholder.ReplaceAllString(strings.TrimSpace(line), "$1"))
		}
	}
	return lines
}
