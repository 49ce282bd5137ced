package facts

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

func TestFillURL(t *testing.T) {
	const args = `{"s":"a b","e":"","n":-1.50e400,"t":true,"z":null,"l":[1],"up":"..","dot":".","slash":"a/../b","back":"a\\b","nul":"a\u0000",` +
		`"del":"a\u007f","line":"a\r\nHost: x","amp":"a&b=c#d?e;f+g%2F%","u":"\u00e9\u202e","tpl":"{s}","at":"@evil.example:1"}`
	for _, row := range []struct{ why, template, want, err string }{
		{"no placeholder", "https://a.b/c?d=e", "https://a.b/c?d=e", ""},
		{"a text", "https://a.b/{s}?q={s}", "https://a.b/a%20b?q=a%20b", ""},
		{"numbers are never rounded", "https://a.b/{n}", "https://a.b/-1.50e400", ""},
		{"booleans", "https://a.b/?x={t}", "https://a.b/?x=true", ""},
		{"separators are encoded", "https://a.b/{tpl}?q={amp}", "https://a.b/%7Bs%7D?q=a%26b%3Dc%23d%3Fe%3Bf%2Bg%252F%25", ""},
		{"not ASCII", "https://a.b/{u}", "https://a.b/%C3%A9%E2%80%AE", ""},
		{"an @", "https://a.b/{at}", "https://a.b/%40evil.example%3A1", ""},
		{"slashes in the query are text", "https://a.b/?q={slash}", "https://a.b/?q=a%2F..%2Fb", ""},
		{"an empty value", "https://a.b/?q={e}", "https://a.b/?q=", ""},
		{"line feeds in the query", "https://a.b/?q={line}", "https://a.b/?q=a%0D%0AHost%3A%20x", ""},
		{"an empty segment", "https://a.b/{e}/c", "", "e fit_segment"},
		{"an empty part of a segment", "https://a.b/x{e}", "", "e fit_segment"},
		{"..", "https://a.b/{up}/c", "", "up fit_dots"},
		{".", "https://a.b/{dot}", "", "dot fit_dots"},
		{"a literal dot and a field", "https://a.b/.{dot}/c", "", "dot fit_dots"},
		{"dots in a name", "https://a.b/{up}x", "https://a.b/..x", ""},
		{"a slash in the path", "https://a.b/{slash}", "", "slash fit_segment"},
		{"a backslash in the path", "https://a.b/{back}", "", "back fit_segment"},
		{"a line feed in the path", "https://a.b/{line}", "", "line fit_segment"},
		{"a control character in the path", "https://a.b/{del}", "", "del fit_segment"},
		{"NUL", "https://a.b/?q={nul}", "", "nul fit_nul"},
		{"missing", "https://a.b/{S}", "", "S fit_missing"},
		{"null", "https://a.b/{z}", "", "z fit_plain"},
		{"an array", "https://a.b/{l}", "", "l fit_plain"},
	} {
		t.Run(row.why, func(t *testing.T) {
			require.NoError(t, CheckURL(row.template))
			parts, why := fillerOf(t, args).url(row.template)
			require.Equal(t, row.err, unfilled(why))
			if why.IsZero() {
				require.Equal(t, row.want, Join(parts))
			}
		})
	}
}

func TestFillBody(t *testing.T) {
	const args = `{"s":"a\" , \"b\":\"\u00e9","n":1.50e400,"o":{ "a" : [ 1 ] },"z":null}`
	for _, row := range []struct{ why, template, want, err string }{
		{"values verbatim", `{"s":{s},"n":{n},"o":{o},"z":{z}}`, `{"s":"a\" , \"b\":\"\u00e9","n":1.50e400,"o":{ "a" : [ 1 ] },"z":null}`, ""},
		{"alone", `{s}`, `"a\" , \"b\":\"\u00e9"`, ""},
		{"missing", `[{S}]`, "", "S fit_missing"},
		{"too deep", strings.Repeat("[", 31) + "{o}" + strings.Repeat("]", 31), "", "o fit_deep"},
	} {
		t.Run(row.why, func(t *testing.T) {
			require.NoError(t, CheckBody(row.template))
			parts, why := fillerOf(t, args).body(row.template)
			require.Equal(t, row.err, unfilled(why))
			require.Equal(t, row.want, Join(parts))
		})
	}
}

// Different arguments must give different requests: what runs is what the approver
// was shown.
func TestExpansionIsInjective(t *testing.T) {
	const target, body = "https://a.b/x{a}/{b}.json?q={a}&r=s{b}", `{"a":{a},"b":[{b},"]"]}`
	text := rapid.StringMatching(`[ab.%2F/&=?#{}"\\,:\[\]]{0,4}`)
	rapid.Check(t, func(t *rapid.T) {
		args := func(label string) (string, string, string) {
			a, b := text.Draw(t, label+"a"), text.Draw(t, label+"b")
			qa, err := jsonQuote(a)
			require.NoError(t, err)
			qb, err := jsonQuote(b)
			require.NoError(t, err)
			return a, b, `{"a":` + qa + `,"b":` + qb + `}`
		}
		a1, b1, args1 := args("1")
		a2, b2, args2 := args("2")
		same := a1 == a2 && b1 == b2
		body1, why := fillerOf(t, args1).body(body)
		require.Zero(t, why)
		body2, why := fillerOf(t, args2).body(body)
		require.Zero(t, why)
		require.Equal(t, same, Join(body1) == Join(body2))
		u1, why1 := fillerOf(t, args1).url(target)
		u2, why2 := fillerOf(t, args2).url(target)
		if why1.IsZero() && why2.IsZero() {
			require.Equal(t, same, Join(u1) == Join(u2))
		}
	})
}

// FuzzTarget: in every accepted template a value stays in its place.
func FuzzTarget(f *testing.F) {
	f.Add("https://api.example.org/v1/{a}/x?q={a}", "a/../b")
	f.Add("http://a.b:80/{a}.json", "..")
	f.Add("https://[::1]/?a=b;c&d={a}", "&x=\u2028")
	f.Add("https://a.b/%2e{a}", ".")
	f.Add("https://a.b/{{a}", "")
	f.Fuzz(func(t *testing.T, template, v string) {
		if CheckURL(template) != nil {
			return
		}
		quoted, err := jsonQuote(v)
		if err != nil {
			return // not UTF-8
		}
		pieces, err := parse(template)
		require.NoError(t, err)
		filled, err := url.Parse(fillWith(pieces, "x"))
		require.NoError(t, err)
		// Every field of the template has the same value.
		fields := map[string]codec.Field{}
		for _, name := range namesOf(pieces) {
			fields[name] = codec.Field{Name: name, Value: approval.Raw(quoted)}
		}
		parts, why := filler{fields}.url(template)
		if !why.IsZero() {
			return
		}
		u, err := url.Parse(Join(parts))
		require.NoError(t, err)
		require.Equal(t, filled.Scheme, u.Scheme)
		require.Equal(t, filled.Host, u.Host)
		require.Nil(t, u.User)
		require.Empty(t, u.Fragment)
		require.Equal(t, strings.Count(filled.EscapedPath(), "/"), strings.Count(u.EscapedPath(), "/"))
		require.Equal(t, strings.Count(filled.RawQuery, "&"), strings.Count(u.RawQuery, "&"))
		require.Equal(t, strings.Count(filled.RawQuery, "="), strings.Count(u.RawQuery, "="))
		for _, segment := range strings.Split(u.Path, "/") {
			require.NotContains(t, []string{".", ".."}, segment)
		}
		require.NotContains(t, u.String(), " ")
		if len(fields) > 0 {
			decoded, err := url.PathUnescape(u.RequestURI())
			require.NoError(t, err)
			require.Contains(t, decoded, v)
		}
	})
}

// FuzzBody: in every accepted template a value stays one value.
func FuzzBody(f *testing.F) {
	f.Add(`{"a":{a},"b":"{"}`, `"x","c":1`)
	f.Add(`[{a},{b}]`, `{"a":{}}`)
	f.Add(`{a}`, `1.5`)
	f.Add(`"\"{a}"`, `1`)
	f.Fuzz(func(t *testing.T, template, value string) {
		if CheckBody(template) != nil || !isJSON([]byte(value)) {
			return
		}
		fields := map[string]codec.Field{}
		for _, name := range NamesIn(template) {
			fields[name] = codec.Field{Name: name, Value: approval.Raw(strings.TrimSpace(value))}
		}
		parts, why := filler{fields}.body(template)
		if !why.IsZero() {
			return
		}
		b := []byte(Join(parts))
		require.True(t, isJSON(b))
		// Outside of the placeholders the document is the same.
		with, without := shape(t, b), shape(t, []byte(fillWith(parseText(template), "0")))
		if k := approval.Raw(value).Kind(); k != '{' && k != '[' {
			require.Equal(t, without, with)
		}
	})
}

// shape counts the members and elements of a document at each depth.
func shape(t *testing.T, b []byte) []int {
	var counts []int
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' || c == ':':
			for len(counts) <= depth {
				counts = append(counts, 0)
			}
			counts[depth]++
		}
	}
	require.Zero(t, depth)
	return counts
}
