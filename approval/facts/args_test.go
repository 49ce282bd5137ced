package facts_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

func TestArgTypes(t *testing.T) {
	for argType, c := range map[string]struct{ fits, not []string }{
		"text":       {[]string{`"a"`, `""`, `"\u0000"`}, []string{`1`, `["a"]`, `null`, `{}`}},
		"number":     {[]string{`1`, `-0.0`, `1e400`}, []string{`"1"`, `true`, `[1]`}},
		"bool":       {[]string{`true`, `false`}, []string{`"true"`, `0`, `null`}},
		"path":       {[]string{`"/a"`, `"../b"`, `["a","b"]`, `[]`}, []string{`""`, `"a\u0000b"`, `["a",""]`, `[["a"]]`, `1`, `{}`}},
		"host":       {[]string{`"a.org"`, `"a.org:80"`, `"[::1]:8"`, `["a","b"]`, `"ex\u0430mple.org"`}, []string{`""`, `"a/b"`, `"u@a"`, `"a b"`, `"https://a"`, `"a\\b"`, `":80"`}},
		"recipients": {[]string{`"a@b"`, `["a@b","c"]`, `"\u00e9@b"`}, []string{`[]`, `"a@b.c\nBcc: x@y.z"`, `["a@b","c\r"]`, `"a@b\u0085"`, `"a\u2028@b"`, `"a\u0000@b"`, `""`, `" "`, `["a@b",{}]`, `[["a@b"]]`, `{"a":1}`, `null`}},
		"amount":     {[]string{`10`, `10.50`, `"10.50"`, `-3`, `"-0.01"`}, []string{`"10,50"`, `"ten"`, `1e3`, `"1e3"`, `"."`, `""`, `[1]`, `"1."`}},
		"table":      {[]string{`"users"`, `["a","b"]`}, []string{`""`, `1`}},
		"command":    {[]string{`"ls /"`, `["ls","/"]`, `["ls",""]`}, []string{`""`, `[]`, `["ls",1]`, `["a\u0000"]`, `{}`}},
		"diff":       {[]string{`"+a"`}, []string{`["+a"]`}},
		"list":       {[]string{`[]`, `["a",1,true]`}, []string{`"a"`, `[["a"]]`, `[null]`, `[{}]`}},
		"json":       {[]string{`null`, `{"a":[1]}`, `3`}, nil},
		"program":    {[]string{`"x"`}, []string{`["x"]`}},
		"url": {
			[]string{`"https://a.org/b?c=%20d#e"`, `"http://a.org:81"`, `["https://a","https://b"]`, `"https://ex\u0430mple.org/"`},
			[]string{`"a.org"`, `"ftp://a"`, `"https://u@a/"`, `"https://u:p@a/"`, `"https:///a"`, `"https://good.org\\@evil.org/"`, `"https://a b/"`, `"javascript:x"`, `""`, `"https:a.org"`, `"//a.org"`, `"https://a.org/b c"`, `"https://a.org/ "`, `"https://a.org/\u00a0"`, `"https://a.org/\u0085"`, `"https://a.org/?a\u2028b"`, `"https://a.org/#\tb"`},
		},
		"":        {[]string{`"a"`}, []string{`1`}}, // text
		"unknown": {nil, []string{`"a"`, `null`}},
	} {
		args := map[string]approval.Argument{"x": {Type: argType}}
		for _, v := range c.fits {
			require.Zero(t, facts.CheckArgs(args, approval.Raw(`{"x":`+v+`}`)), "%s %s", argType, v)
		}
		for _, v := range c.not {
			why := facts.CheckArgs(args, approval.Raw(`{"x":`+v+`}`))
			require.Equal(t, "argument_type", why.Code, "%s %s", argType, v)
		}
	}
	for _, name := range facts.ArgTypes() {
		optional := map[string]approval.Argument{"x": {Type: name, Optional: true}}
		require.Zero(t, facts.CheckArgs(optional, approval.Raw(`{}`)), name)
		require.Zero(t, facts.CheckArgs(optional, approval.Raw(`{"x":null}`)), name)
		require.Equal(t, "argument_missing", facts.CheckArgs(argTypes("x", name), approval.Raw(`{}`)).Code, name)
	}
	for _, data := range []string{``, `null`, `[]`, `"a"`, `3`, `{"a":`} {
		require.Equal(t, "argument_none", facts.CheckArgs(argTypes("x", "json"), approval.Raw(data)).Code, data)
	}
}

// The currency of an amount is a short code.
func TestCurrencies(t *testing.T) {
	args := map[string]approval.Argument{
		"sum": {Type: "amount", Currency: "unit"}, "unit": {Type: "text", Optional: true}, "fee": {Type: "amount", Currency: "EUR", Optional: true},
	}
	for _, data := range []string{`{"sum":1,"unit":"EUR"}`, `{"sum":1,"unit":"usdt"}`, `{"sum":1,"unit":"C98"}`, `{"sum":1}`, `{"sum":1,"unit":null}`, `{"sum":1,"fee":2}`} {
		require.Zero(t, facts.CheckArgs(args, approval.Raw(data)), data)
	}
	for unit, shown := range map[string]string{
		`""`: `"\"\""`, `"E"`: `"\"E\""`, `"EUR "`: `"\"EUR \""`, `"€€"`: `"\"€€\""`, `"ABCDEFGHIJK"`: `"\"ABCDEFGHIJK\""`, `"EU\n"`: `"\"EU\\n\""`,
	} {
		why := facts.CheckArgs(args, approval.Raw(`{"sum":1,"unit":`+unit+`}`))
		require.Equal(t, "argument_type name=unit value="+shown+" why=is_currency", why.String())
	}
	require.Equal(t, "argument_type", facts.CheckArgs(map[string]approval.Argument{"sum": args["sum"], "unit": {Type: "json"}}, approval.Raw(`{"sum":1,"unit":5}`)).Code)
}

// What an error says of a value shows its type.
func TestErrorsShowTypes(t *testing.T) {
	for v, want := range map[string]string{`"true"`: `"true"`, `1`: `1`, `["a"]`: `["a"]`, `"a\u202eb"`: "\"a\u202eb\"", `"` + strings.Repeat("é", 70) + `"`: `"` + strings.Repeat("é", 60) + `…"`} {
		require.Equal(t, want, facts.CheckArgs(argTypes("x", "bool"), approval.Raw(`{"x":`+v+`}`)).Args["value"])
	}
}

// A tool without declared arguments takes the names in its templates, and nothing else.
func TestArguments(t *testing.T) {
	tool := approval.Tool{
		Name: "t", Summary: "{a} {not plain} {", Target: "x/{b}", Verb: map[string]string{"en": "do {v}"},
		Handler: approval.Handler{Kind: "command", Argv: []string{"/bin/x", "{{c}", "--d={d}"}},
	}
	require.Equal(t, argTypes("a", "text", "b", "text", "d", "text", "v", "text"), facts.Arguments(tool))
	tool.Handler = approval.Handler{Kind: "http", HTTP: approval.HTTP{URL: "https://x/{e}?f={f}", Body: `{"g":{g},"h":{}}`}}
	require.Equal(t, argTypes("a", "text", "b", "text", "e", "text", "f", "text", "g", "text", "v", "text"), facts.Arguments(tool))
	tool.Args = argTypes("z", "json")
	require.Equal(t, argTypes("z", "json"), facts.Arguments(tool))
	_, why := facts.Fill(approval.Tool{Name: "t", Handler: approval.Handler{Kind: "none"}}, approval.Raw(`{"a":1}`))
	require.Equal(t, "argument_undeclared name=a", why.String(), "neither")
	for action, name := range map[string]string{"exec_cmd": "argv", "http_request": "url", "write_file": "path", "send_message": "to"} {
		require.Contains(t, facts.ReleaseArgs(action), name, action)
	}
	require.Empty(t, facts.ReleaseArgs("custom:x"))
}

func TestFill(t *testing.T) {
	args := argTypes("text", "text", "n", "number")
	command := approval.Tool{Args: args, Handler: approval.Handler{Kind: "command", Argv: []string{"/bin/rm", "-rf", "/srv/{{data/{text}", "--n={n}"}, Dir: "/srv"}}
	post := approval.Tool{Args: args, Handler: approval.Handler{Kind: "http", HTTP: approval.HTTP{
		Method: "POST", URL: "https://api.example.org/{n}?q={text}", Body: `{"t":{text},"u":{"v":1}}`,
		Headers: map[string]string{"X-B": "b"}, SecretHeaders: map[string]string{"Authorization": "Bearer /etc/token", "X-A": "/etc/a"},
	}}}
	const data = `{"text":"a \u0062","n":1.50}`
	for _, c := range []struct {
		tool approval.Tool
		want approval.Runs
	}{
		{command, approval.Runs{
			Kind: "command", Dir: "/srv", WithArgs: true, Args: args,
			Argv: [][]approval.Part{{{Text: "/bin/rm"}}, {{Text: "-rf"}}, {{Text: "/srv/{data/"}, {Text: "a b", Arg: "text"}}, {{Text: "--n="}, {Text: "1.50", Arg: "n"}}},
		}},
		{post, approval.Runs{
			Kind: "http", Method: "POST", Args: args,
			URL:     []approval.Part{{Text: "https://api.example.org/"}, {Text: "1.50", Arg: "n"}, {Text: "?q="}, {Text: "a%20b", Arg: "text"}},
			Headers: []approval.Header{{Name: "Authorization", Value: "Bearer ", File: "/etc/token"}, {Name: "X-A", File: "/etc/a"}, {Name: "X-B", Value: "b"}},
			Body:    []approval.Part{{Text: `{"t":`}, {Text: `"a \u0062"`, Arg: "text"}, {Text: `,"u":{"v":1}}`}},
		}},
		{approval.Tool{Args: args, Handler: approval.Handler{Kind: "none"}}, approval.Runs{Kind: "none", Args: args}},
		{approval.Tool{Args: args, Handler: approval.Handler{Kind: "http", HTTP: approval.HTTP{Method: "PUT", URL: "https://x.org/", BodyArgs: true}}}, approval.Runs{
			Kind: "http", Method: "PUT", WithArgs: true, Args: args, URL: []approval.Part{{Text: "https://x.org/"}},
		}},
	} {
		got, why := facts.Fill(c.tool, approval.Raw(data))
		require.Zero(t, why)
		require.Equal(t, c.want, got)
		p := &approval.Pending{Version: 1, RequestID: someID, SourceGroup: "w", Timestamp: noon(), ExpiresAt: noon(), Runs: got}
		b, err := p.Encode()
		require.NoError(t, err)
		read, err := approval.ParsePending(b, approval.Key{Workspace: "w", ID: someID})
		require.NoError(t, err)
		require.Equal(t, got, read.Runs, "as written: the claim compares it")
	}
	_, why := facts.Fill(command, approval.Raw(`{"text":"a\u0000","n":1}`))
	require.Equal(t, `argument_unfillable name=text value="\"a\\u0000\"" why=fit_nul`, why.String())
}

func TestNearest(t *testing.T) {
	require.Equal(t, "tool_unknown near=x_post tool=x_pots", facts.UnknownTool("x_pots", []string{"mail", "x_post"}).String())
	require.Equal(t, "tool_unknown tool=zzz", facts.UnknownTool("zzz", []string{"mail", "x_post"}).String())
}
