package facts_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

func TestExpand(t *testing.T) {
	data := approval.Raw(`{"to":"ann","n":1e400,"big":9007199254740993,"on":true,"no":null,"list":[ 1, "a" ],"obj":{"to":"eve"},` +
		`"tpl":"{to} {n}","quote":"a\" -> \"b","back":"a\\","empty":"","line":"a\nb","Cc_2":"c","a b":"d"}`)
	for _, c := range []struct{ why, template, plain, quoted string }{
		{"no template", "", "", ""},
		{"no field", "post it", "post it", "post it"},
		{"a text", "to {to}!", "to ann!", `to "ann"!`},
		{"twice, and side by side", "{to}{to}", "annann", `"ann""ann"`},
		{"numbers keep their digits", "{n} {big}", "1e400 9007199254740993", "1e400 9007199254740993"},
		{"true and null", "{on} {no}", "true null", "true null"},
		{"lists and objects as written", "{list} {obj}", `[ 1, "a" ] {"to":"eve"}`, `[ 1, "a" ] {"to":"eve"}`},
		{"a missing field", "{cc}", "(no cc)", "(no cc)"},
		{"letter case counts", "{To}", "(no To)", "(no To)"},
		{"an empty text", "<{empty}>", "<>", `<"">`},
		{"a template in a value is not expanded", "{tpl}", "{to} {n}", `"{to} {n}"`},
		{"quotation marks in a value are escaped", "{quote} -> x", `a" -> "b -> x`, `"a\" -> \"b" -> x`},
		{"and backslashes", "{back}", `a\`, `"a\\"`},
		{"line feeds stay", "{line}", "a\nb", "\"a\nb\""},
		{"digits and capitals", "{Cc_2}", "c", `"c"`},
		{"braces without a name", "{} { } {a b} {-}", "{} { } {a b} {-}", "{} { } {a b} {-}"},
		{"no path into objects", "{obj.to}", "{obj.to}", "{obj.to}"},
		{"an open brace", "a {to", "a {to", "a {to"},
		{"an open brace at the end", "a {", "a {", "a {"},
		{"a closing brace", "a } b", "a } b", "a } b"},
		{"doubled braces", "{{to}}", "{ann}", `{"ann"}`},
		{"an open brace before a field", "{a{to}", "{aann", `{a"ann"`},
		{"letters of other scripts are not names", "{\u0442o}", "{\u0442o}", "{\u0442o}"},
	} {
		require.Equal(t, c.plain, facts.Expand(c.template, data), c.why)
		require.Equal(t, c.quoted, facts.ExpandQuoted(c.template, data), c.why)
	}
	for _, data := range []string{"", "null", "[]", `{"to":`, `{"to":1,"to":2}`} {
		require.Equal(t, "to (no to)", facts.Expand("to {to}", approval.Raw(data)), "%q has no fields", data)
	}
}

func TestCapabilitiesAreTheClosedSet(t *testing.T) {
	names, critical := []string{}, []string{}
	for _, c := range facts.Capabilities() {
		names = append(names, c.Name)
		if c.Critical {
			critical = append(critical, c.Name)
		}
		require.Contains(t, []facts.AskMode{facts.AskNone, facts.AskPerTarget, facts.AskAlways}, c.Default)
		require.Contains(t, []string{"exact", "host", "path_glob", "none"}, c.TargetKind)
	}
	require.Len(t, names, 13)
	require.Equal(t, []string{"fs:write", "code:exec", "mail:send"}, critical)
	facts.Capabilities()[0].Name = "changed"
	require.Equal(t, "fs:read", facts.Capabilities()[0].Name, "callers get a copy")
}
