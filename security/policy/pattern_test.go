package policy_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

// toolFacts is a request for a tool that runs a command in a folder.
func toolFacts(args string) approval.Facts {
	f := factsFor("code:exec")
	f.Declared = map[string]approval.Argument{"command": {Type: facts.TypeCommand}, "dir": {Type: facts.TypePath, Optional: true}}
	f.Args = approval.Raw(args)
	return f
}

// pendingOf is the pending of a request that is asked.
func pendingOf(e *policy.Engine, f approval.Facts) *approval.Pending {
	return &approval.Pending{
		RequestID: f.RequestID, ShortID: f.RequestID[:8], ToolName: f.Tool, ActionType: f.ActionType, Capability: f.Capability,
		RequestData: f.Args, Runs: approval.Runs{Args: f.Declared}, Offers: e.Offers(f, execRuling(f)),
	}
}

// givePattern approves a request with a pattern, and adds the grant.
func givePattern(t *testing.T, e *policy.Engine, f approval.Facts, line string) {
	t.Helper()
	p := pendingOf(e, f)
	words, why := policy.Pattern(p, line)
	require.Zero(t, why, line)
	g := grant.From(p, &approval.Decision{
		Verdict: approval.Approved, Scope: approval.Always, Commands: words, DecidedBy: "ann", DecidedAt: f.Now,
	})
	require.NotNil(t, g, line)
	require.Equal(t, grant.Command, g.Form)
	require.Equal(t, words, g.Words)
	addGrants(t, e, *g)
}

func TestPatterns(t *testing.T) {
	for _, row := range []struct {
		line, pattern   string
		covers, covers0 string // lines, separated by semicolons: covered, and not
	}{
		{"go test ./...", "go test ...", "go test; go test ./a ./b; go test example.com/x; go test 'a'", "go test -v; go test -exec sh; go test ./a -exec sh; go vet ./...; " +
			"go; go test /etc; go test ../x; go test a=b; go test ext::sh; go test https://x; go run ./x; /usr/bin/go test; ./go test; go test 'a b'; X=1 go test; go test sh; go test python3"},
		{"go test -v ./...", "go test -v ...", "go test -v; go test -v ./x", "go test ./x -v; go test -v -v; go test ./x; go test -v -exec ./x"},
		{"go test -run TestX ./a", "go test -run ... ./a", "go test -run TestY ./a; go test -run ./a", "go test -run; go test -run TestX ./b; go test -run -exec ./a"},
		{"go test -v -run TestX ./a ./b", "go test -v -run TestX ./a ...", "go test -v -run TestX ./a", "go test -v -run TestX ./b; go test -v -run TestY ./a; go test -v"},
		{"git status", "git status", "git status", "git status x; git -c a.b=sh status; git difftool; git"},
		{"git log -n 5 main", "git log ...  -n 5 ...", "git log a -n 5 b; git log -n 5", "git log -n 6; git log -5; git log --ext-diff -n 5"},
		{"make test", "make test", "make test", "make; make test lint; make deploy; make test SHELL=./x; make -f x test; make test -f x; make --eval=x test"},
		{"pytest tests", "pytest ...", "pytest; pytest a b", "pytest -p x; pytest /x"},
		{"ls a", "ls ...", "ls; ls .", "ls /; ls -l; ls ..; ls vim; ls exec"},
		{"/usr/bin/ls a", "/usr/bin/ls ...", "/usr/bin/ls b", "ls b; /bin/ls b; /usr/bin/../../tmp/ls b; /tmp/ls b"},
	} {
		e := engine(t, policy.Config{})
		givePattern(t, e, execFacts(command(row.line)), row.pattern)
		for line := range strings.SplitSeq(row.covers, ";") {
			require.True(t, allowed(e, command(strings.TrimSpace(line))), "%q covers %q", row.pattern, line)
		}
		for line := range strings.SplitSeq(row.covers0, ";") {
			require.False(t, allowed(e, command(strings.TrimSpace(line))), "%q covers %q", row.pattern, line)
		}
	}
}

// Neither the same request nor a pattern is remembered of a program that the agent can
// rewrite, or that interprets its input.
func TestCommandsThatAreNeverRemembered(t *testing.T) {
	for line, why := range map[string]string{
		"./check.sh": "command_path", "scripts/check": "command_path", "/work/x": "command_path", "/usr/bin/../../work/x": "command_path",
		"~/x": "command_shell", "posh x": "command_interprets", "/lib64/ld-linux-x86-64.so.2 ./x": "command_path",
		"ld-linux-x86-64.so.2 ./x": "command_interprets", "chronic python3 -c x": "command_interprets", "python3.11 -c x": "command_interprets",
		"unknown python3 -c x": "command_interprets", "unknown --shell=/bin/sh": "command_interprets", "tar --checkpoint-action=exec=x": "command_interprets",
		"find . -name x -exec ls": "command_interprets", "rsync -e x a b": "command_interprets", "ssh h": "command_interprets", "npx x": "command_interprets",
		"git": "command_sub", "git -c core.pager=x status": "command_sub", "git difftool": "command_sub", "git bisect run x": "command_sub",
		"git fetch ext::sh": "command_interprets", "git log --ext-diff": "command_option", "go": "command_sub", "go run ./x": "command_sub",
		"go generate ./...": "command_sub", "go test -exec ./x": "command_option", "go vet -vettool=./x": "command_option",
		"go build --toolexec ./x": "command_option", "cargo +nightly test": "command_sub", "cargo test --config x": "command_option",
		"npm run x": "command_sub", "npm exec x": "command_sub", "docker run x": "command_sub", "docker exec a b": "command_sub",
		"kubectl exec a": "command_sub", "kubectl get pods --kubeconfig x": "command_option", "make": "command_sub", "make test SHELL=x": "command_option",
		"ls | sh": "command_shell", "X=1 ls": "command_shell", "ls > x": "command_shell", "ls $X": "command_shell", "ls *": "command_shell", "": "command_shell",
	} {
		for _, o := range pendingOf(engine(t, policy.Config{}), execFacts(command(line))).Offers {
			require.Equal(t, why, o.WhyNot.Code, "%q %s", line, o.Scope)
		}
	}
}

// An argv is refused like the line with the same words.
func TestArgvThatIsNeverRemembered(t *testing.T) {
	for argv, why := range map[string]string{
		`["ls","a;b"]`: "command_shell", `["ls","$(id)"]`: "command_shell", `["ls","a\u0000"]`: "command_shell", `["ls","a\nb"]`: "command_shell",
		`["sh","-c","x"]`: "command_interprets", `["./x"]`: "command_path", `["ls",1]`: "command_none", `[]`: "command_none", `{"a":1}`: "command_none",
	} {
		for _, o := range pendingOf(engine(t, policy.Config{}), execFacts(approval.Raw(`{"argv":`+argv+`}`))).Offers {
			require.Equal(t, why, o.WhyNot.Code, "%s %s", argv, o.Scope)
		}
	}
}

// What may be remembered exactly, but not as a pattern; and patterns that are refused.
func TestRefusedPatterns(t *testing.T) {
	for line, why := range map[string]string{
		"git commit -m x": "command_sub", "docker start x": "command_sub", "unknown exec x": "command_word", "curl example.com": "command_network",
		"unknown --exec y a": "command_option", "unknown --config=x a": "command_option",
	} {
		p := pendingOf(engine(t, policy.Config{}), execFacts(command(line)))
		require.Zero(t, grant.WhyNot(p, approval.Always), line)
		require.Equal(t, why, grant.WhyNot(p, approval.Commands).Code, line)
	}
	p := pendingOf(engine(t, policy.Config{}), execFacts(command("go test ./a")))
	for pattern, why := range map[string]string{
		"...": "pattern_wide", "... test ./a": "pattern_wide", "go ...": "command_sub", "go ... ./a": "command_sub", "go vet ...": "pattern_other",
		"go test": "pattern_other", "go test -v ...": "pattern_other", "go test -exec ...": "command_option", "go test ... | sh": "command_shell",
		"make test ...": "command_sub", "go test *": "command_shell", "sh ...": "command_interprets", "./go test ...": "command_path", "": "command_shell",
		"go test" + strings.Repeat(" ...", 100): "pattern_wide",
	} {
		_, got := policy.Pattern(p, pattern)
		require.Equal(t, why, got.Code, pattern)
	}
}

func TestSuggestedPatterns(t *testing.T) {
	for line, want := range map[string]string{
		"go test ./...": "go test ...", "go test -v -run TestX ./a ./b": "go test -v -run TestX ...", "go test a -count=1 b": "go test ... -count=1 ...",
		"git log": "git log", "ls -la src": "ls -la src", "ls src/a src/b": "ls ...", "ls /etc a": "ls /etc ...", "terraform apply x.tf": "terraform apply ...",
		"cp 'a b' c.txt": "cp 'a b' ...",
	} {
		words := strings.Fields(line)
		if strings.Contains(line, "'") {
			words = []string{"cp", "a b", "c.txt"}
		}
		require.Equal(t, want, facts.JoinWords(policy.SuggestPattern(words)), line)
	}
}

// A pattern of a tool's command leaves every other argument as it was, and the tool's
// definition, the client and the workspace.
func TestPatternOfTool(t *testing.T) {
	e := engine(t, policy.Config{})
	givePattern(t, e, toolFacts(`{"command":"go test ./a","dir":"/srv"}`), "go test ...")
	later := toolFacts(`{"dir": "/srv", "command": "go test ./b"}`)
	require.Equal(t, approval.Allow, e.Judge(later).Outcome)
	for why, change := range map[string]func(*approval.Facts){
		"another folder":     func(f *approval.Facts) { f.Args = approval.Raw(`{"command":"go test ./b","dir":"/etc"}`) },
		"no folder":          func(f *approval.Facts) { f.Args = approval.Raw(`{"command":"go test ./b"}`) },
		"an argv":            func(f *approval.Facts) { f.Args = approval.Raw(`{"command":["go","test","./b"],"dir":"/srv"}`) },
		"another option":     func(f *approval.Facts) { f.Args = approval.Raw(`{"command":"go test -v","dir":"/srv"}`) },
		"another tool":       func(f *approval.Facts) { f.Tool = "u" },
		"another definition": func(f *approval.Facts) { f.ToolSHA256 = "new" },
		"another client":     func(f *approval.Facts) { f.ClientID = "api:x" },
		"another workspace":  func(f *approval.Facts) { f.Workspace = "v" },
		"release-only":       func(f *approval.Facts) { *f = execFacts(f.Args) },
	} {
		f := later
		change(&f)
		require.NotEqual(t, approval.Allow, e.Judge(f).Outcome, why)
	}
	two := toolFacts(`{"command":"ls a","other":"ls b"}`)
	two.Declared["other"] = approval.Argument{Type: facts.TypeCommand}
	require.Len(t, pendingOf(e, two).Offers, 2, "no pattern for two commands")
}

// The figure of a pattern counts what it would have allowed; commands of before a restart do
// not count.
func TestFigureOfPattern(t *testing.T) {
	e := engine(t, policy.Config{})
	for i, line := range []string{"go test ./a", "go test -v ./a", "go test ./b", "go vet ./a", "go test ./a; id"} {
		f := execFacts(command(line))
		f.RequestID = fmt.Sprintf("%032x", i)
		e.Offers(f, execRuling(f))
		e.Learn(event.Entry{
			Event: event.Requested, Workspace: f.Workspace, RequestID: f.RequestID, ActionType: f.ActionType, ClientID: f.ClientID,
			SessionID: f.SessionID, Time: noon, Exact: execRuling(f).Exact, Soft: true,
		})
	}
	o, ok := pendingOf(e, execFacts(command("go test ./c"))).Offer(approval.Commands)
	require.True(t, ok)
	require.Equal(t, []string{"go", "test", "..."}, o.Terms.Words)
	require.Equal(t, [2]int{2, 5}, [2]int{o.Would, o.Of})
	b, err := e.Snapshot()
	require.NoError(t, err)
	require.NotContains(t, string(b), "./a", "no arguments on disk")
}

var (
	anyWord = []string{"go", "test", "ls", "a", "./b", "c.go", "-v", "--x=y", "-", "N=1", "a::b", "/etc", "..", "../x", "...", "", "a b", "@f", "u@h", "é", "sh", "$x", "vet", "."}
	named   = regexp.MustCompile(`^[A-Za-z_]\w*=`)
)

// Whatever a pattern covers differs from it only in free words, and a suggestion covers what
// it was made of.
func TestWidthOfPatterns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string, from []string) []string {
			return append([]string{rapid.SampledFrom([]string{"go", "ls", "make"}).Draw(rt, "program")},
				rapid.SliceOfN(rapid.SampledFrom(from), 0, 6).Draw(rt, name)...)
		}
		words := draw("words", anyWord)
		pattern := draw("pattern", append([]string{"...", "...", "..."}, anyWord...))
		if policy.MatchWords(pattern, words) {
			require.True(rt, differsInFreeWords(pattern, words), "%q covers %q", pattern, words)
		}
		suggested := policy.SuggestPattern(words)
		e := engine(t, policy.Config{})
		args, _ := json.Marshal(map[string][]string{"argv": words})
		if o, ok := pendingOf(e, execFacts(args)).Offer(approval.Commands); ok {
			require.Equal(rt, suggested, o.Terms.Words)
			require.True(rt, policy.MatchWords(suggested, words), "%q covers %q", suggested, words)
		}
	})
}

// differsInFreeWords checks independently of the matcher, by every way to split the words.
func differsInFreeWords(pattern, words []string) bool {
	if len(pattern) == 0 {
		return len(words) == 0
	}
	if pattern[0] != "..." {
		return len(words) > 0 && words[0] == pattern[0] && differsInFreeWords(pattern[1:], words[1:])
	}
	if differsInFreeWords(pattern[1:], words) {
		return true
	}
	if len(words) == 0 || words[0] == "" || words[0] == ".." || strings.HasPrefix(words[0], "../") {
		return false
	}
	return !strings.ContainsAny(words[0][:1], "-/@") && !named.MatchString(words[0]) && !strings.Contains(words[0], "::") &&
		differsInFreeWords(pattern, words[1:])
}
