package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

const advised = `[workspaces.w]
autonomy = "supervised"
[tools.shell]
capability = "code:exec"
args = { command = "command", cwd = { type = "path", optional = true } }
[tools.job]
capability = "code:exec"
args = { name = "text", folder = "path" }
[tools.build]
capability = "code:exec"
[tools.read]
capability = "fs:read"
target = "{path}"
args = { path = "path" }
[tools.fetch]
capability = "network:http"
args = { url = "url" }
[tools.post]
capability = "channel:out"
args = { text = "text", html = { type = "bool", optional = true }, n = { type = "number", optional = true }, more = { type = "json", optional = true } }
`

// Each row warns; with the changes it does not.
func TestAdvice(t *testing.T) {
	for _, row := range []struct {
		why, rules, want string
		without          []string
	}{
		{
			"an argument without a condition", `allow tool = "job", args = { name = "lint" }`,
			`rule lifts no ask of "job": code:exec asks each time, unless a rule has a condition on every argument; missing: folder`,
			[]string{`args = { name = "lint", folder = "/srv" }`, `tool = "post", args = { text = "hi" }`, `args = { name = "lint" }, other_args = true`},
		},
		{
			"no argument, and none refused", `allow tool = "build"`,
			`rule lifts no ask of "build": code:exec asks each time, unless a rule has a condition on every argument`,
			[]string{`tool = "build", other_args = false`},
		},
		{"no tool by name", `allow capability = "code:exec"`, "rule lifts nothing: code:exec asks each time, unless a rule names the tool", []string{`capability = "fs:read"`, `capability = ["code:exec", "fs:read"]`}},
		{"a tool with a star", `allow tool = "buil*"`, "unless a rule names the tool", []string{`tool = "re*"`}},
		{"a required argument that other_args refuses", `allow tool = "read", other_args = false`, `rule never matches: with other_args = false, each request of "read" needs a condition on path`, []string{`tool = "read"`, `tool = "read", args = { path = "/srv/**" }, other_args = false`}},
		{"a number for a text", `allow tool = "post", args = { text = { equals = 5 } }`, "rule never matches: it compares with 5", []string{`tool = "post", args = { text = { equals = "5" } }`, `tool = "post", args = { n = 5 }`, `tool = "post", args = { "more.n" = { equals = 5 } }`}},
		{"a truth that is a text", `allow tool = "post", args = { html = { equals = "yes" } }`, `rule never matches: it compares with "yes"`, []string{`tool = "post", args = { html = true }`}},
		{"a number below 0", `allow tool = "post", args = { n = { max = -1 } }`, "without min nothing below 0 matches", []string{`tool = "post", args = { n = { max = -1, min = -5 } }`, `tool = "post", args = { n = { max = 0 } }`}},
		{"a line break", `allow tool = "post", args = { text = { contains = "a\nb" } }`, "contains matches no text with a line break", []string{`tool = "post", args = { text = { equals = "a\nb" } }`}},
		{"a relative path", `allow tool = "read", args = { path = { equals = "notes.txt" } }`, "a path matches only if it is absolute", []string{`tool = "read", args = { path = { equals = "/srv/notes.txt" } }`}},
		{"another capability", `allow tool = "read", capability = "fs:write"`, "rule never matches: its tools have another capability", []string{`tool = "read", capability = "fs:read"`}},
		{"a target that no request has", `allow tool = "fetch", target = "x.com"`, "rule never matches: its tools have no target", []string{`tool = "read", target = "/srv/**"`}},
		{"a denied target that no request has", `deny tool = "fetch", target = "x.com"`, "rule always asks: its tools have no target", []string{`tool = "fetch", args = { url = "x.com" }`}},
		{"every path", `allow tool = "read", args = { path = "/**" }`, `"/**" matches everything`, []string{`tool = "read", args = { path = "/srv/**" }`}},
		{"every host of a top-level domain", `allow tool = "fetch", args = { url = ["x.com", "*.com"] }`, `"*.com" matches everything`, []string{`tool = "fetch", args = { url = ["x.com", "*.x.com"] }`}},
		{"every URL", `allow tool = "fetch", args = { url = { matches = ".*" } }`, `".*" matches everything`, []string{`tool = "fetch", args = { url = { matches = "https://x\\.com/.*" } }`, `tool = "post", args = { text = { matches = ".*" } }`}},
		{
			"the words of one command", `allow tool = "shell", args = { command = ["git", "status"] }`, `a list has one pattern for each command: this is "git", or "status"`,
			[]string{`tool = "shell", args = { command = ["git status"] }`, `tool = "shell", args = { command = ["ls", "pwd"] }`, `tool = "shell", args = { command = ["make", "pytest"] }`, `tool = "shell", args = { command = ["git status", "git diff"] }`},
		},
		{"the words of one denied command", `deny tool = "shell", args = { command = ["git", "push"] }`, `this is "git", or "push"`, []string{`tool = "shell", args = { command = "git push" }`}},
		{"an interpreter", command("python3 ..."), `"python3 ..." lets the agent choose what runs: the words behind "python3" say it`, commands("python3 tools/check.py ...", "python3 -m pytest ...", "go test [-run *] ...")},
		{"an interpreter's program", command("bash -c *"), `"bash -c *" lets the agent choose what runs`, commands("bash build.sh")},
		{"any shell script", command("bash x.sh ..."), "lets the agent choose what runs", commands("./x.sh ...")},
		{"a runner", command("npx ..."), "lets the agent choose what runs", commands("npx eslint ...", "find ...")},
		{"a runner's subcommand", command("uv run *"), "lets the agent choose what runs", commands("uv run pytest ...")},
		{"another user", command("sudo ..."), "lets the agent choose what runs", commands("sudo systemctl status ...")},
		{"what a program reads", command("xargs grep ..."), "lets the agent choose what runs", commands("grep [-r] ...")},
		{"any subcommand", command("git ..."), "lets the agent choose what runs", commands("git status ...", "git push ...", "git stash ...", "git log [-n *] *", "git")},
		{"a program from anywhere", command("go run ..."), `the words behind "go run" say it`, commands("go run ./tools/gen ...", "cargo run ...", "npm run *", "make ...", "go build ...")},
		{"a package from anywhere", command("npm install *"), "lets the agent choose what runs", commands("npm install", "npm ci", "npm test ...")},
		{"an option that names a program", command("go test [-v -exec *] ..."), `the words behind "go test -exec" say it`, commands("go test [-v -run *] ...", "git commit [-m *]")},
		{"a deny of the same", "allow tool = \"read\", args = { path = \"/srv/**\" }\ndeny tool = \"read\"", `rule has no effect: "rule 2" (line 24) is stricter and applies to all that it matches`, []string{"tool = \"read\"\ndeny tool = \"read\", args = { path = \"/srv/**\" }", "tool = \"read\"\ndeny tool = \"read\", between = \"08:00-18:00\"", "tool = \"read\"\ndeny tool = \"read\", workspace = \"w\"", "tool = \"read\"\ndeny tool = \"fetch\""}},
		{"a deny with more patterns", "allow tool = \"read\", args = { path = [\"/srv/a\"] }\ndeny tool = \"re*\", args = { path = [\"/srv/a\", \"/srv/b\"] }", "rule has no effect", []string{"tool = \"read\", args = { path = [\"/srv/a\", \"/srv/c\"] }\ndeny tool = \"re*\", args = { path = [\"/srv/a\", \"/srv/b\"] }"}},
		{"an ask of the capability", "allow tool = \"read\"\nask capability = [\"fs:read\", \"fs:write\"]", "rule has no effect", []string{"tool = \"read\"\nask capability = \"fs:write\""}},
		{"an ask that is denied", "ask tool = \"read\", session = \"s1\"\ndeny tool = \"read\", session = \"s*\"", "rule has no effect", []string{"tool = \"read\", session = \"s*\"\ndeny tool = \"read\", session = \"s1\""}},
	} {
		t.Run(row.why, func(t *testing.T) {
			outcome, match, _ := strings.Cut(row.rules, " ")
			got := warnings(t, advised+rulesOf(outcome+" "+match))
			require.Len(t, got, 1, "%v", got)
			require.Contains(t, got[0].Message, row.want)
			require.GreaterOrEqual(t, got[0].Line, 20)
			require.NotZero(t, got[0].Col)
			for _, good := range row.without {
				require.Empty(t, warnings(t, advised+rulesOf(outcome+" "+good)), good)
			}
		})
	}
}

func command(pattern string) string { return "allow " + commands(pattern)[0] }

func commands(patterns ...string) (matches []string) {
	for _, p := range patterns {
		matches = append(matches, `tool = "shell", args = { command = "`+p+`" }`)
	}
	return matches
}

// rulesOf writes lines "OUTCOME MATCH" as rules of three lines.
func rulesOf(lines string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(lines, "\n") {
		outcome, match, _ := strings.Cut(line, " ")
		b.WriteString("[[rules]]\nmatch = { " + match + " }\noutcome = \"" + outcome + "\"\n")
	}
	return b.String()
}

func warnings(t *testing.T, file string) []config.Issue {
	t.Helper()
	c, err := config.Parse("p.toml", []byte(file))
	require.NoError(t, err)
	return c.Warnings
}

func TestAdviceOnProofs(t *testing.T) {
	const proven = "when_proven = [{ domain = \"mail\", at_most = 10 }]\n"
	got := warnings(t, advised+rulesOf(`allow tool = "job", args = { name = "lint", folder = "/srv" }`)+proven)
	require.Len(t, got, 1)
	require.Contains(t, got[0].Message, "code:exec asks each time, whatever is proven")
	require.Empty(t, warnings(t, advised+rulesOf(`allow tool = "post"`)+proven))
}

// An allow that another rule makes ask still says what its requests read and reach.
func TestAdviceKeepsTrust(t *testing.T) {
	const trusted = "[[rules]]\nmatch = { tool = \"shell\" }\noutcome = \"allow\"\ntrust = { public_sink = false }\n"
	require.Empty(t, warnings(t, advised+trusted))
	require.Empty(t, warnings(t, advised+trusted+rulesOf(`ask tool = "shell"`)))
	require.Len(t, warnings(t, advised+trusted+rulesOf(`deny tool = "shell"`)), 1)
}

func TestAdviceOnTools(t *testing.T) {
	got := warnings(t, "[workspaces.a]\nautonomy = \"readonly\"\n[tools.write]\ncapability = \"fs:write\"\n[tools.read]\ncapability = \"fs:read\"\n")
	require.Equal(t, []config.Issue{{
		Line: 3, Col: 8, Key: "tools.write",
		Message: `tool "write" never runs: at autonomy readonly, what it does is denied`,
		Hint:    "permesso policy table shows what each level of autonomy denies; no rule lifts that",
	}}, got)
	require.Empty(t, warnings(t, "[workspaces.a]\nautonomy = \"readonly\"\n[workspaces.b]\n[tools.write]\ncapability = \"fs:write\"\n"))
	require.Empty(t, warnings(t, "[workspaces.a]\n[tools.write]\ncapability = \"fs:write\"\n[[rules]]\nmatch = { tool = \"write\" }\noutcome = \"deny\"\n"), "denied on purpose")
}

// What the operator states of a tool can contradict: it can do no harm, and cannot be undone.
func TestAdviceOnHarmlessTools(t *testing.T) {
	const two, four = "[workspaces.a]\n[workspaces.b]\n", "public_source = true\nsecret_data = true\npublic_sink = true\ndangerous_writes = false\n"
	tool := func(lines string) string { return two + "[tools.x]\n" + lines }
	require.Equal(t, []config.Issue{{
		Line: 4, Col: 9, Key: "tools.x.trust",
		Message: "tool \"x\": `trust = false` says that it can do no harm, so it runs without approval, but it is irreversible",
		Hint:    `state a capability, or add a rule with outcome "ask"`,
	}}, warnings(t, tool("trust = false\nreversibility = \"irreversible\"\n")))
	got := warnings(t, tool(four+"reversibility = \"partial\"\n"))
	require.Len(t, got, 1)
	require.Equal(t, "tool \"x\": `dangerous_writes = false` says that it can do no harm, so it runs without approval, but it is only partly reversible", got[0].Message)
	require.Equal(t, 7, got[0].Line)

	const irreversible = "trust = false\nreversibility = \"irreversible\"\n"
	for _, quiet := range []string{
		"trust = false\n",
		"trust = false\nreversibility = \"reversible\"\n",
		"capability = \"fs:write\"\nreversibility = \"irreversible\"\n",
		strings.Replace(four, "writes = false", "writes = true", 1) + "reversibility = \"irreversible\"\n",
		irreversible + rulesOf(`ask tool = "x"`),
		irreversible + rulesOf(`deny tool = "x"`),
		irreversible + rulesOf(`allow tool = "x"`),
		irreversible + rulesOf("ask tool = \"x\", workspace = \"a\"\ndeny tool = \"x\", workspace = \"b\""),
	} {
		require.Empty(t, warnings(t, tool(quiet)), quiet)
	}
	for _, part := range []string{
		`ask tool = "x", workspace = "a"`, `ask tool = "y"`, `deny tool = "x", args = { n = "1" }`,
		`ask tool = "x", between = "08:00-18:00"`, `allow tool = "x", args = { n = "1" }`,
	} {
		got := warnings(t, tool("args = { n = \"text\" }\n"+irreversible+"[tools.y]\ntrust = false\n"+rulesOf(part)))
		require.Len(t, got, 1, "%s covers not every request: %v", part, got)
		require.Equal(t, "tools.x.trust", got[0].Key)
	}
}

// What depends on this machine is looked at only where the reader has the functions for it.
func TestAdviceOnThisMachine(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("/srv", link))
	file := "[workspaces.w]\n[tools.read]\ncapability = \"fs:read\"\nargs = { path = \"path\" }\nhandler = { kind = \"command\", argv = [\"/opt/none\"] }\n" +
		rulesOf(`allow tool = "read", args = { path = ["`+link+`/**", "`+dir+`/real/**"] }`)
	require.Empty(t, warnings(t, file))
	rd := config.Reader{
		Ready: func(h approval.Handler) error {
			if h.Kind == approval.HandlerCommand {
				return errors.New("program " + h.Argv[0] + " is missing")
			}
			return nil
		},
		Resolve: filepath.EvalSymlinks,
	}
	c, err := rd.Parse("p.toml", []byte(file))
	require.NoError(t, err)
	require.Len(t, c.Warnings, 2)
	require.Equal(t, `tool "read" cannot run on this machine: program /opt/none is missing`, c.Warnings[0].Message)
	require.Equal(t, 5, c.Warnings[0].Line)
	require.Contains(t, c.Warnings[1].Message, link+" leads to /srv")
	require.Equal(t, `write "/srv/**"`, c.Warnings[1].Hint)
}
