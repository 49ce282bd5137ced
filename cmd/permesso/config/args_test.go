package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func TestParseArgs(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(`
[tools.save]
trust = false
size = "path"
summary = "{path}"
[tools.save.args]
path = "path"
amount = { type = "amount", currency = "EUR" }
dry_run = { type = "bool", optional = true }
content = { writes = "path" }
[tools.none]
trust = false
[tools.nothing]
trust = false
args = {}
[tools.implied]
trust = false
summary = "{a}"
size = "b"
handler = { kind = "command", argv = ["/bin/true", "{b}"] }
`))
	require.NoError(t, err)
	require.Equal(t, map[string]approval.Argument{
		"path": {Type: "path"}, "amount": {Type: "amount", Currency: "EUR"}, "dry_run": {Type: "bool", Optional: true},
		"content": {Type: "text", Writes: "path"},
	}, c.Tools["save"].Args)
	require.Equal(t, "path", c.Tools["save"].Size)
	require.Nil(t, c.Tools["none"].Args)
	require.Equal(t, map[string]approval.Argument{}, c.Tools["nothing"].Args)
	require.Nil(t, c.Tools["implied"].Args, "the names in its templates")
}

// Each mistake names the line to write.
func TestArgsIssues(t *testing.T) {
	for _, c := range []struct{ why, file, want string }{
		{"an unknown type", `args = { to = "recipient" }`, "p.toml:2:15: to must be text, number, bool, path, url, host, recipients, amount, table, command, diff, list, json or program\nhint: did you mean \"recipients\"?"},
		{"an unknown key of an argument", `args = { to = { type = "text", option = true } }`, "p.toml:2:32: unknown key \"option\"\nhint: did you mean \"optional\"?"},
		{"not a type", `args = { n = 3 }`, "p.toml:2:14: n must be a string, not a whole number\nhint: args = { to = \"recipients\""},
		{"a template names another argument", "summary = \"{text} to {to}\"\nargs = { to = \"recipients\" }", "p.toml:2:11: {text} is not an argument of the tool\nhint: args = { text = \"text\", to = \"recipients\" }"},
		{"argv does", "handler = { kind = \"command\", argv = [\"/bin/x\", \"{a}\"] }\nargs = {}", "p.toml:2:31: {a} is not an argument of the tool\nhint: args = { a = \"text\" }"},
		{"the URL does", "handler = { kind = \"http\", method = \"GET\", url = \"https://x.org/{a}\" }\nargs = {}", "{a} is not an argument of the tool\nhint: args = { a = \"text\" }"},
		{"the body does", "handler = { kind = \"http\", method = \"POST\", url = \"https://x.org/\", body = '{\"a\":{a}}' }\nargs = {}", "{a} is not an argument of the tool\nhint: args = { a = \"text\" }"},
		{"the verb does", "verb = \"do {a}\"\nargs = {}", "{a} is not an argument of the tool\nhint: args = { a = \"text\" }"},
		{"the target does", "target = \"{a}\"\nargs = {}", "{a} is not an argument of the tool\nhint: args = { a = \"text\" }"},
		{"an optional argument in a template", "summary = \"{a}\"\nargs = { a = { type = \"bool\", optional = true } }", "p.toml:2:11: {a} is optional: a request may leave it out\nhint: args = { a = \"bool\" }"},
		{"writes names no argument", `args = { content = { type = "text", writes = "file" } }`, "p.toml:2:46: writes must name an argument of the type path\nhint: args = { content = { type = \"text\", writes = \"path\" }, path = \"path\" }"},
		{"writes names a text", `args = { content = { type = "text", writes = "to" }, to = "text", file = "path" }`, "hint: args = { content = { type = \"text\", writes = \"file\" }, file = \"path\", to = \"text\" }"},
		{"replaces names no argument", `args = { new = { type = "text", replaces = "old" } }`, "replaces must name another argument of the type text\nhint: args = { new = { type = \"text\", replaces = \"old\" }, old = \"text\" }"},
		{"replaces itself", `args = { new = { type = "text", replaces = "new" }, old = "text" }`, "replaces must name another argument"},
		{"a path replaces", `args = { new = { type = "path", replaces = "old" }, old = "text" }`, "replaces belongs to a text that writes nothing"},
		{"a number writes", `args = { n = { type = "number", writes = "p" }, p = "path" }`, "writes belongs to a text\nhint: args = { n = \"number\", p = \"path\" }"},
		{"no currency", `args = { a = { type = "amount", currency = "Euro" } }`, "p.toml:2:44: currency must be three capital letters, or name an argument\nhint: args = { a = { type = \"amount\", currency = \"EUR\" } }"},
		{"a text has no currency", `args = { a = { currency = "EUR" } }`, "currency belongs to an amount\nhint: args = { a = \"text\" }"},
		{"two programs", `args = { a = "program", b = "program" }`, "a tool has one program\nhint: args = { a = \"program\", b = \"text\" }"},
		{"size names no argument", "size = \"pat\"\nargs = { path = \"path\" }", "p.toml:2:8: size names no argument of the tool\nhint: did you mean \"path\"?"},
		{"size without arguments", `size = "x"`, "size names no argument of the tool\nhint: remove it, or write args = { x = \"text\" }"},

		{"facts of an earlier version", `facts = { recipient = ["to", "cc"], path = "file", host = "url", amount = "sum", table = "from" }`, "p.toml:2:1: facts is now part of args, which declares every argument\nhint: args = { cc = \"recipients\", file = \"path\", from = \"table\", sum = \"amount\", to = \"recipients\", url = \"url\" }"},
		{"program of an earlier version", `program = "code"`, "p.toml:2:1: program is now part of args, which declares every argument\nhint: args = { code = \"program\" }"},
		{"both, with templates", "program = \"code\"\nfacts = { host = [\"api host\"] }\nsummary = \"{text}\"", "hint: args = { \"api host\" = \"host\", code = \"program\", text = \"text\" }"},
		{"facts without names", "facts = {}", "hint: args = {"},
	} {
		_, err := config.Parse("p.toml", []byte("[tools.t]\n"+c.file))
		require.Contains(t, printed(err), c.want, c.why)
	}
	_, err := config.Parse("p.toml", []byte("facts = { path = \"p\" }"))
	require.ErrorContains(t, err, `unknown key "facts"`, "only tools had it")
	ok := "args = { a = { type = \"amount\", currency = \"of\" }, of = \"text\" }"
	_, err = config.Parse("p.toml", []byte("[tools.t]\ntrust = false\n"+ok))
	require.NoError(t, err)
}
