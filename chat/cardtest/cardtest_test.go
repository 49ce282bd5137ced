package cardtest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

const (
	githubToken = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
	posting     = "runs: /opt/tools/x-post\n--to=ann\n‹text›\n"
)

// A checker that finds nothing here would find nothing in the channels.
func TestCheckerBites(t *testing.T) {
	tool := approval.Tool{
		Name: "x_post", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/opt/tools/x-post", "--to={to}", "{text}"}},
		Args: map[string]approval.Argument{"to": {}, "text": {}},
	}
	for _, tt := range []struct{ why, text, card, want string }{
		{"all is there", "hello", posting + "text: hello", ""},
		{"in a block", "a\nb", posting + "text:\n│ a\n│ b", ""},
		{"in quotation marks", "5", posting + `text: "5"`, ""},
		{"an escape is read", "a\u202eb", posting + `text: a\u{202E}b`, ""},
		{"a masked secret", "t " + githubToken, posting + "text: t ‹github token, 40 characters›", ""},
		{"a secret that is encoded", "Z2hwX0ExYjJDM2Q0RTVmNkc3aDhJOWowSzFsMk0zbjRPNXA2UTdyOA==", posting + "text: ‹github token, 56 characters›", ""},

		{"a character is missing", "hello", posting + "text: hell", `argument "text"`},
		{"a character is too many", "hello", posting + "text: hello!", `argument "text"`},
		{"a line is missing", "a\nb", posting + "text:\n│ a", `argument "text"`},
		{"a line is too many", "a", posting + "text:\n│ a\n│ b", `argument "text"`},
		{"a line of the text is one of the card", "a\nb", posting + "text:\na\nb", `argument "text"`},
		{"the value is nowhere", "hello", posting, `argument "text"`},
		{"the value stands elsewhere", "hello", posting + "note: hello", `argument "text"`},
		{"an element is missing", "hello", "runs: /opt/tools/x-post\n‹text›\ntext: hello", "the command"},
		{"an element is changed", "hello", "runs: /opt/tools/x-post\n--to=bob\n‹text›\ntext: hello", "the command"},
		{"another argument's name", "hello", "runs: /opt/tools/x-post\n--to=ann\n‹to›\ntext: hello", "the command"},
		{"a mask one longer", "t " + githubToken + "x", posting + "text: t ‹github token, 41 characters›", "no secret"},
		{"a mask of a blank", "t " + githubToken, posting + "text: t‹github token, 41 characters›", "no bounded token"},
		{"a mask of a word", "delete it", posting + "text: ‹github token, 6 characters› it", "no secret"},
		{"a mask shorter than it says", githubToken, posting + "text: ‹github token, 50 characters›", `argument "text"`},
		{"a mask that an agent wrote", "‹github token, 40 characters›", posting + "text: ‹github token, 40 characters›", `argument "text"`},
		{"a reference that an agent wrote", "‹to›", posting + "text: ‹to›", `argument "text"`},
		{"an escape that an agent wrote", `\u{202E}`, posting + `text: \u{202E}`, `argument "text"`},
		{"a character out of sight", "a\u202eb", posting + "text: a\u202eb", "invisible"},
	} {
		data := object()
		data.set("to", str("ann"))
		data.set("text", str(tt.text))
		got := lacking(readRules(t), tt.card, tool, tool.Args, data, nil)
		if tt.want == "" {
			require.Empty(t, got, tt.why)
		} else {
			require.Contains(t, got, tt.want, tt.why)
		}
	}
}

// A line of prose does not count, but one with another kind of secret of the same length is no such line.
func TestCheckerLeavesProseOut(t *testing.T) {
	tool := approval.Tool{Name: "x_post", Handler: approval.Handler{Kind: approval.HandlerNone}, Args: map[string]approval.Argument{"text": {}}}
	for prose, reads := range map[string]bool{"│ ‹secret, 40 characters›": true, "│ ‹github token, 40 characters›": false} {
		data := object()
		data.set("text", str(githubToken+"\nb"))
		got := lacking(readRules(t), "text:\n│ ‹github token, 40 characters›\n│ b", tool, tool.Args, data, []string{prose})
		require.Equal(t, reads, got == "", "%s: %s", prose, got)
	}
}

// A text that becomes a file is read as what is then in that file.
func TestCheckerReadsFiles(t *testing.T) {
	tool := approval.Tool{
		Name: "save", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/opt/tools/x-post", "--to={to}", "{text}"}},
		Args: map[string]approval.Argument{"to": {Type: "path"}, "text": {Type: "text", Writes: "to"}},
	}
	for _, tt := range []struct {
		why, text, card string
		reads           bool
	}{
		{"nothing, and it is said", "", "text: +0 -1\n- │ a\n(the file is then empty)", true},
		{"nothing before and after, and it is said", "", "text: +0 -0\n(the file is then empty)", true},
		{"nothing, and it is not said", "", "text: +0 -1\n- │ a", false},
		{"nothing before and after, and it is not said", "", "text: +0 -0", false},
		{"said of a text", "a\n", "text: +1 -0\n+ │ a\n(the file is then empty)", false},
		{"said instead of a text", "a\n", "text: +1 -0\n(the file is then empty)", false},
		{"no line break at the end, and it is said", "a", "text: +1 -0\n+ │ a\n(no line break at the end)", true},
		{"no line break at the end, and it is not said", "a", "text: +1 -0\n+ │ a", false},
	} {
		data := object()
		data.set("to", str("ann"))
		data.set("text", str(tt.text))
		got := lacking(readRules(t), posting+tt.card, tool, tool.Args, data, nil)
		require.Equal(t, tt.reads, got == "", "%s: %s", tt.why, got)
	}
}

// A text that another one replaces is read in their comparison.
func TestCheckerReadsComparisons(t *testing.T) {
	tool := approval.Tool{
		Name: "edit", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/opt/tools/x-post", "--to={to}", "{text}"}},
		Args: map[string]approval.Argument{"to": {Type: "text"}, "text": {Type: "text", Replaces: "to"}},
	}
	const runs = "runs: /opt/tools/x-post\n--to=‹to›\n‹text›\n"
	for _, tt := range []struct {
		why, old, text, card string
		reads                bool
	}{
		{"both", "a\nb", "a\nc", "text: +1 -1\n  │ a\n- │ b\n+ │ c", true},
		{"a break at the end of one", "a\n", "a", "text: +0 -1\n  │ a\n- │ ", true},
		{"a break at the end that is not there", "a\n", "a", "text: +0 -0\n  │ a", false},
		{"the old one lacks a line", "a\nb", "a\nc", "text: +1 -0\n  │ a\n+ │ c", false},
		{"the new one lacks a line", "a\nb", "a\nc", "text: +0 -1\n  │ a\n- │ b", false},
		{"the signs are wrong", "b", "c", "text: +1 -1\n+ │ b\n- │ c", false},
	} {
		data := object()
		data.set("to", str(tt.old))
		data.set("text", str(tt.text))
		got := lacking(readRules(t), runs+tt.card, tool, tool.Args, data, nil)
		require.Equal(t, tt.reads, got == "", "%s: %s", tt.why, got)
	}
}

// No mask may cover what a request does.
func TestCheckerRefusesMasks(t *testing.T) {
	rules := readRules(t)
	for _, typ := range []string{"path", "url", "host", "recipients", "amount"} {
		f := field{name: "x", typ: typ, text: githubToken}
		require.NotEmpty(t, (&reader{rules: rules}).mayMask(githubToken, f, 0), typ)
	}
	for text, ok := range map[string]bool{
		"echo ": false, "": false, "bash ": false, "git -c alias.x=!": false, "curl -o ": false,
		"curl -H 'Authorization: Bearer ": true, "login --token ": true, "curl -H \"X-Api-Key: ": true,
	} {
		line := field{name: "x", typ: "command", text: text + githubToken}
		require.Equal(t, ok, (&reader{rules: rules}).mayMask(githubToken, line, len(text)) == "", text)
	}
	for text, ok := range map[string]bool{"+x = ": true, " ": true, "--- ": false, "+++ b/": false, "rename from ": false} {
		diff := field{name: "x", typ: "diff", text: text + githubToken}
		require.Equal(t, ok, (&reader{rules: rules}).mayMask(githubToken, diff, len(text)) == "", text)
	}
}

// The requests hold secrets of each rule. A rule that no text of letters matches is left out.
func TestSecretsOfEveryRule(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	var none []string
	for _, r := range readRules(t) {
		if _, ok := r.sample(rnd); !ok {
			none = append(none, r.id)
		}
	}
	require.Empty(t, none)
}

// A seed repeats the requests.
func TestSeed(t *testing.T) {
	requests := func() string {
		g := generator{Rand: rand.New(rand.NewPCG(7, 0)), rules: readRules(t)}
		var all []string
		for range 50 {
			r := g.request()
			all = append(all, r.raw, g.mutant(r).raw)
		}
		return strings.Join(all, "\n")
	}
	first, second := requests(), requests()
	require.Equal(t, first, second)
}
