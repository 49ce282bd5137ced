package exec

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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

func TestExpand(t *testing.T) {
	const args = ` { "s":"a b","e":"","d":"-x","n":-1.50,"big":9007199254740993,"exp":1e400,"t":true,"z":null,"l":[1],"o":{},"nul":"a\u0000b","u":"\u00e9" } `
	for _, tc := range []struct {
		why  string
		argv []string
		want []string // nil when refused
		err  string
	}{
		{"no placeholder", []string{"x", "", "-a"}, []string{"x", "", "-a"}, ""},
		{"a string is one element", []string{"x", "{s}"}, []string{"x", "a b"}, ""},
		{"an empty string stays an element", []string{"x", "{e}", "y"}, []string{"x", "", "y"}, ""},
		{"escapes are decoded", []string{"x", "{u}"}, []string{"x", "é"}, ""},
		{"numbers are never rounded", []string{"x", "{big}", "{exp}"}, []string{"x", "9007199254740993", "1e400"}, ""},
		{"a boolean", []string{"x", "{t}"}, []string{"x", "true"}, ""},
		{"embedded", []string{"x", "--a={s}", "<{s}|{t}>"}, []string{"x", "--a=a b", "<a b|true>"}, ""},
		{"braces", []string{"x", "{{s}", "{{{s}}"}, []string{"x", "{s}", "{a b}"}, ""},
		{"values are not templates", []string{"x", "{s}{{e}"}, []string{"x", "a b{e}"}, ""},
		{"a dash could be an option", []string{"x", "{d}"}, nil, `"d" starts with "-"`},
		{"a negative number too", []string{"x", "{n}"}, nil, `"n" starts with "-"`},
		{"after an empty value", []string{"x", "{e}{d}"}, nil, `"d" starts with "-"`},
		{"after text without =", []string{"x", "a{d}"}, nil, `"d" starts with "-"`},
		{"an empty value makes a literal dash come first", []string{"x", "{e}-{s}"}, nil, `"e" leaves an element`},
		{"after --", []string{"x", "--", "{d}", "{n}"}, []string{"x", "--", "-x", "-1.50"}, ""},
		{"-- after it does not help", []string{"x", "{d}", "--"}, nil, `"d" starts with "-"`},
		{"after =", []string{"x", "--a={d}", "{e}={d}"}, []string{"x", "--a=-x", "=-x"}, ""},
		{"missing", []string{"x", "{S}"}, nil, `"S" is missing`},
		{"null", []string{"x", "{z}"}, nil, "is not text, a number or a boolean"},
		{"an array", []string{"x", "{l}"}, nil, "is not text, a number or a boolean"},
		{"an object", []string{"x", "--a={o}"}, nil, "is not text, a number or a boolean"},
		{"NUL", []string{"x", "--", "{nul}"}, nil, "NUL"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			got, err := expandArgv(tc.argv, []byte(args))
			require.Equal(t, tc.want, got)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestExpandNeedsAnObject(t *testing.T) {
	for _, args := range []string{``, `null`, `[]`, `"a"`, `{"a":1,"a":2}`, `{"a":1}{}`, `{"a":`} {
		_, err := expandArgv([]string{"x", "{a}"}, []byte(args))
		require.ErrorContains(t, err, "not a JSON object", args)
		_, err = expandArgv([]string{"x"}, []byte(args))
		require.NoError(t, err, "without placeholders the arguments are not read")
	}
}

// For all values, a checked template keeps its number of elements, and no element
// gets a leading dash.
func TestValuesNeverBecomeOptions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		element := rapid.StringMatching(`[-=x{]{0,2}(\{[ab]\})?[-=x]{0,2}(\{[ab]\})?`)
		argv := append([]string{"x"}, rapid.SliceOfN(element, 1, 4).Draw(t, "argv")...)
		if checkArgv(argv) != nil {
			return
		}
		a, _ := jsonQuote(rapid.StringMatching(`-{0,2}[a=]{0,2}`).Draw(t, "a"))
		b, _ := jsonQuote(rapid.StringMatching(`-{0,2}[b={}]{0,2}`).Draw(t, "b"))
		got, err := expandArgv(argv, []byte(`{"a":`+a+`,"b":`+b+`}`))
		if err != nil {
			return
		}
		require.Len(t, got, len(argv))
		for i, s := range got {
			if argv[i] == "--" {
				break
			}
			if argv[i] != "" && argv[i][0] != '-' {
				require.False(t, s != "" && s[0] == '-', "%q became %q", argv[i], s)
			}
		}
	})
}
