package exec

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func command(argv ...string) approval.Handler {
	return approval.Handler{Kind: approval.HandlerCommand, Argv: argv}
}

func jsonQuote(s string) (string, error) {
	b, err := jsontext.AppendQuote(nil, s)
	return string(b), err
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		why     string
		handler approval.Handler
		want    string // "" if valid
	}{
		{"none", approval.Handler{}, ""},
		{"explicit none", approval.Handler{Kind: "none"}, ""},
		{"argv without a kind", approval.Handler{Argv: []string{"x"}}, "argv without kind"},
		{"unknown", approval.Handler{Kind: "shell"}, "unknown handler kind"},
		{"url without a kind", approval.Handler{HTTP: approval.HTTP{URL: "https://x.org/"}}, "without kind"},
		{"a request and a command", approval.Handler{Kind: "command", Argv: []string{"x"}, HTTP: approval.HTTP{URL: "https://x.org/"}}, "without kind"},
		{"no argv", approval.Handler{Kind: "command"}, "argv is empty"},
		{"no name", command(""), "argv[0] is empty"},
		{"a relative path", command("./x"), "write an absolute path"},
		{"a name", command("x"), ""},
		{"a path", command("/x"), ""},
		{"the agent chooses the program", command("{x}"), "the program itself"},
		{"the agent chooses part of the program", command("/opt/{x}"), "the program itself"},
		{"relative folder", approval.Handler{Kind: "command", Argv: []string{"x"}, Dir: "x"}, "not an absolute path"},
		{"negative timeout", approval.Handler{Kind: "command", Argv: []string{"x"}, Timeout: -time.Second}, "negative"},
		{"negative cap", approval.Handler{Kind: "command", Argv: []string{"x"}, MaxOutput: -1}, "negative"},
		{"a value in env", approval.Handler{Kind: "command", Argv: []string{"x"}, Env: []string{"A=b"}}, "list names only"},
		{"a digit first", approval.Handler{Kind: "command", Argv: []string{"x"}, Env: []string{"1A"}}, "list names only"},
		{"an empty name", approval.Handler{Kind: "command", Argv: []string{"x"}, Env: []string{""}}, "a name is empty"},
		{"a name of the daemon", approval.Handler{Kind: "command", Argv: []string{"x"}, Env: []string{"PERMESSO_RUN"}}, "set by the gate"},
		{"a good name", approval.Handler{Kind: "command", Argv: []string{"x"}, Env: []string{"_A1"}}, ""},
		{"complete element", command("x", "{a}"), ""},
		{"after an equals sign", command("x", "--text={text}"), ""},
		{"short option with its value", command("x", "-n{count}"), ""},
		{"the agent names the option", command("x", "-{a}"), "choose the option"},
		{"the agent names a long option", command("x", "--{a}"), "choose the option"},
		{"the agent names the end of an option", command("x", "--no-{a}=1"), "choose the option"},
		{"no options after --", command("x", "--", "-{a}"), ""},
		{"literal brace", command("awk", "{{print $1}", "{file}"), ""},
		{"not a plain name", command("awk", "{print $1}"), "{{ for a literal brace"},
		{"not closed", command("x", "{a"), "{{ for a literal brace"},
		{"empty name", command("x", "{}"), "{{ for a literal brace"},
		{"a closing brace alone is text", command("x", "a}"), ""},
		{"NUL", command("x", "a\x00b"), "NUL"},
		{"part of a shell's text", command("sh", "-c", "echo {a}"), "program text"},
		{"all of a shell's text", command("/bin/bash", "-lc", "{a}"), "program text"},
		{"after env", command("/usr/bin/env", "python3.12", "-c", "{a}"), "program text"},
		{"attached", command("perl", "-e{a}"), "program text"},
		{"attached, long", command("node", "--eval={a}"), "program text"},
		{"arguments of a shell", command("sh", "-c", `echo "$1"`, "sh", "{a}"), ""},
		{"a server", approval.Handler{Kind: "mcp", Argv: []string{"/x", "{a", "-c"}, Env: []string{"A"}, MaxMemory: 1}, ""},
		{"a server at a URL", approval.Handler{Kind: "mcp", HTTP: approval.HTTP{URL: "https://x.org/mcp"}}, ""},
		{"no server", approval.Handler{Kind: "mcp"}, "argv or url"},
		{"two servers", approval.Handler{Kind: "mcp", Argv: []string{"/x"}, HTTP: approval.HTTP{URL: "https://x.org/mcp"}}, "not both"},
		{"a server in PATH", approval.Handler{Kind: "mcp", Argv: []string{"x"}}, "not an absolute path"},
		{"a server with NUL", approval.Handler{Kind: "mcp", Argv: []string{"/x", "a\x00"}}, "NUL"},
		{"a server in a relative folder", approval.Handler{Kind: "mcp", Argv: []string{"/x"}, Dir: "x"}, "not an absolute path"},
		{"a server with a variable of the daemon", approval.Handler{Kind: "mcp", Argv: []string{"/x"}, Env: []string{"PERMESSO_RUN"}}, "set by the gate"},
		{"variables at a URL", approval.Handler{Kind: "mcp", Env: []string{"A"}, HTTP: approval.HTTP{URL: "https://x.org/mcp"}}, "belong to a server with argv"},
		{"the agent chooses the server", approval.Handler{Kind: "mcp", HTTP: approval.HTTP{URL: "https://x.org/{a}"}}, "placeholder"},
		{"a secret over http", approval.Handler{Kind: "mcp", HTTP: approval.HTTP{URL: "http://x.org/", SecretHeaders: map[string]string{"A": "/x"}}}, "https"},
		{"-c of something else", command("grep", "-c", "{a}"), ""},
	} {
		t.Run(tc.why, func(t *testing.T) {
			err := Check(tc.handler)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}
