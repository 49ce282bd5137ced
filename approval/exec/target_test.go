package exec

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

func httpHandler(change func(*approval.HTTP)) approval.Handler {
	h := approval.Handler{Kind: approval.HandlerHTTP, HTTP: approval.HTTP{Method: "POST", URL: "https://api.example.org/v1/{id}"}}
	change(&h.HTTP)
	return h
}

func TestCheckHTTP(t *testing.T) {
	set := func(field *string) func(string) { return func(s string) { *field = s } }
	for key, rows := range map[string][]struct{ why, value, want string }{
		"url": {
			{"plain", "https://api.example.org/", ""},
			{"all parts", "http://xn--bcher-kva.example:8080/a/{b}.json/c%20d/?e={f}&g=h{i}&j", ""},
			{"an address", "https://[2001:db8::1]:443/x", ""},
			{"nothing", "", "write https://"},
			{"only a field", "{url}", "write https://"},
			{"another scheme", "file:///etc/passwd", "write https://"},
			{"no host", "https:///x", "write https://"},
			{"the host", "https://{host}/", "write https://"},
			{"part of the host", "https://api.{domain}/", "write https://"},
			{"no slash after the host", "https://api.example.org{path}", "write https://"},
			{"the port", "https://api.example.org:{port}/", "write https://"},
			{"a field as user", "https://{user}@api.example.org/", "write https://"},
			{"a user", "https://me@api.example.org/", "must not contain a user or password"},
			{"a user that looks like a host", "https://api.example.org:1@evil.example/", "must not contain a user or password"},
			{"no slash before the query", "https://api.example.org?x={x}", "write https://"},
			{"a slash only in the query", "https://api.example.org?x=/{x}", "not valid"},
			{"a backslash, a slash to browsers", `https://api.example.org\@evil.example/`, "not valid"},
			{"capitals", "https://API.example.org/", "lower-case"},
			{"other scripts", "https://api.ex\u0430mple.org/", "lower-case"},
			{"a number that a resolver reads as an address", "https://2130706433/", "lower-case"},
			{"an empty port", "https://api.example.org:/", "port"},
			{"no port", "https://api.example.org:65536/", "port"},
			{"a fragment", "https://api.example.org/#{x}", "percent-encoded"},
			{"a literal brace", "https://api.example.org/{{x}", "percent-encoded"},
			{"not a plain name", "https://api.example.org/{a.b}", "a placeholder must be"},
			{"not closed", "https://api.example.org/{a", "a placeholder must be"},
			{"a blank", "https://api.example.org/a b", "final form"},
			{"a line feed", "https://api.example.org/a\nHost: x", "final form"},
			{"not ASCII", "https://api.example.org/\u00e9", "final form"},
			{"a bad escape", "https://api.example.org/%zz", "final form"},
			{"..", "https://api.example.org/a/../{b}", "a path segment must not be empty"},
			{".. encoded", "https://api.example.org/a/%2e%2E/{b}", "a path segment must not be empty"},
			{"an empty segment", "https://api.example.org//{b}", "a path segment must not be empty"},
			{"two in a segment", "https://api.example.org/{a}{b}", "each path segment"},
			{"two in a value", "https://api.example.org/?q={a}-{b}", "each query value"},
			{"the name of a parameter", "https://api.example.org/?{a}=b", "the parameter's name"},
			{"a field as query", "https://api.example.org/?{a}", "the parameter's name"},
			{"a separator for some servers", "https://api.example.org/?a=b;c={d}", "; is not allowed"},
		},
		"body": {
			{"none", "", ""},
			{"values", `{"a":{b},"c":[{d}, {d}],"e":"{ }"}`, ""},
			{"only a field", `{all}`, ""},
			{"fixed", `"hi"`, ""},
			{"braces of JSON", `{"a":{},"b":{"c":{d}}}`, ""},
			{"in a string", `{"a":"x {b}"}`, "without quotation marks"},
			{"a string", `{"a":"{b}"}`, "without quotation marks"},
			{"in a name", `{"{a}":1}`, "without quotation marks"},
			{"a name", `{{a}:1}`, "complete values"},
			{"part of a number", `[1{a}]`, "complete values"},
			{"in place of a member", `{"a":1,{b}}`, "complete values"},
			{"a form", `a={a}`, "complete values"},
			{"a duplicate name", `{"a":1,"a":{b}}`, "complete values"},
		},
		"method": {
			{"fine", "DELETE", ""},
			{"lower case", "post", "must be one of"},
			{"CONNECT", "CONNECT", "must be one of"},
			{"a field", "{method}", "must be one of"},
		},
		"ca_file": {
			{"fine", "/etc/ca.pem", ""},
			{"relative", "ca.pem", "absolute"},
			{"not clean", "/etc/../ca.pem", "absolute"},
		},
		"headers.X-Kind": {
			{"fine", "a b; c={}", ""},
			{"empty", "", "printable ASCII"},
			{"another header", "a\r\nHost: b", "printable ASCII"},
			{"not ASCII", "\u00e9", "printable ASCII"},
			{"from the request", "a {b}", "not allowed in a header"},
		},
		"secret_headers.Authorization": {
			{"a file", "/etc/permesso/token", ""},
			{"after a scheme", "Bearer /etc/permesso/token", ""},
			{"the secret itself", "Bearer hunter2", "write the path of a file"},
			{"relative", "Bearer token", "write the path of a file"},
			{"two words", "a b /c", "write the path of a file"},
			{"not clean", "/a/../b", "write the path of a file"},
		},
		"allow_private": {
			{"an address", "10.1.2.3", ""},
			{"with a port", "127.0.0.1:8080", ""},
			{"IPv6", "[fd00::1]:80", ""},
			{"a name", "internal.example", ""},
			{"a name with a port", "internal.example:8080", ""},
			{"a network", "10.0.0.0/8", "must contain addresses"},
			{"a pattern", "*.example", "must contain addresses"},
			{"half an address", "10.1.2", "must contain addresses"},
			{"empty", "", "must contain addresses"},
			{"a bad port", "internal.example:0", "must contain addresses"},
			{"unspecified", "0.0.0.0", "an address with a zone"},
			{"multicast", "224.0.0.1", "an address with a zone"},
			{"a zone", "fe80::1%eth0", "an address with a zone"},
		},
	} {
		for _, row := range rows {
			t.Run(key+" "+row.why, func(t *testing.T) {
				err := Check(httpHandler(func(h *approval.HTTP) {
					map[string]func(string){
						"url": set(&h.URL), "body": set(&h.Body), "method": set(&h.Method), "ca_file": set(&h.CAFile),
						"headers.X-Kind":               func(s string) { h.Headers = map[string]string{"X-Kind": s} },
						"secret_headers.Authorization": func(s string) { h.SecretHeaders = map[string]string{"Authorization": s} },
						"allow_private":                func(s string) { h.AllowPrivate = []string{s} },
					}[key](row.value)
				}))
				if row.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, row.want)
				var at *keyError
				require.ErrorAs(t, err, &at)
				require.Equal(t, key, at.ConfigKey())
				require.NotContains(t, err.Error(), "hunter2")
			})
		}
	}
}

func TestCheckHTTPCombinations(t *testing.T) {
	for _, row := range []struct {
		why    string
		change func(*approval.HTTP)
		want   string
	}{
		{"fine", func(*approval.HTTP) {}, ""},
		{"two bodies", func(h *approval.HTTP) { h.Body, h.BodyArgs = "{}", true }, "body: only one body"},
		{"a body of GET", func(h *approval.HTTP) { h.Method, h.BodyArgs = "GET", true }, "method: GET has no body"},
		{"a body of HEAD", func(h *approval.HTTP) { h.Method, h.Body = "HEAD", "{}" }, "method: HEAD has no body"},
		{"an informational status", func(h *approval.HTTP) { h.Status = []int{100} }, "status: must contain"},
		{"a header twice", func(h *approval.HTTP) { h.Headers = map[string]string{"x-a": "b", "X-A": "b"} }, "duplicate header"},
		{"also as a secret header", func(h *approval.HTTP) {
			h.Headers, h.SecretHeaders = map[string]string{"x-a": "b"}, map[string]string{"X-A": "/b"}
		}, "secret_headers.X-A: duplicate header"},
		{"invalid header name", func(h *approval.HTTP) { h.Headers = map[string]string{"a b": "c"} }, "not a valid header name"},
		{"a name that indicates a secret", func(h *approval.HTTP) { h.Headers = map[string]string{"X-Api-Key": "hunter2"} }, `secret_headers = { X-Api-Key = "/path" }`},
		{"another such name", func(h *approval.HTTP) { h.Headers = map[string]string{"private_token": "hunter2"} }, "put the secret into a file"},
		{"a name that indicates no secret", func(h *approval.HTTP) { h.Headers = map[string]string{"X-Author": "Keyes"} }, ""},
		{"a secret over plain http", func(h *approval.HTTP) {
			h.URL, h.SecretHeaders = "http://api.example.org/", map[string]string{"X-A": "/b"}
		}, "secret_headers: secrets require https"},
		{"to an allowed host", func(h *approval.HTTP) {
			h.URL, h.SecretHeaders, h.AllowPrivate = "http://api.example.org/", map[string]string{"X-A": "/b"}, []string{"api.example.org"}
		}, ""},
		{"another address is allowed", func(h *approval.HTTP) {
			h.URL, h.SecretHeaders, h.AllowPrivate = "http://10.0.0.1/", map[string]string{"X-A": "/b"}, []string{"10.0.0.2"}
		}, "secrets require https"},
	} {
		t.Run(row.why, func(t *testing.T) {
			err := Check(httpHandler(row.change))
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
	for _, name := range []string{"Host", "content-length", "Transfer-Encoding", "Connection", "Proxy-Authorization", "Expect", "Idempotency-Key", "accept-encoding"} {
		require.ErrorContains(t, Check(httpHandler(func(h *approval.HTTP) { h.SecretHeaders = map[string]string{name: "/x"} })), "the daemon sets this header")
	}
	for _, change := range []func(*approval.Handler){
		func(h *approval.Handler) { h.Argv = []string{"/x"} },
		func(h *approval.Handler) { h.Env = []string{"X"} },
		func(h *approval.Handler) { h.Dir = "/x" },
	} {
		h := httpHandler(func(*approval.HTTP) {})
		change(&h)
		require.ErrorContains(t, Check(h), "belong to kind")
	}
}

func fieldsIn(t require.TestingT, args string) map[string]codec.Field {
	fields, err := fieldsOf([]byte(args))
	require.NoError(t, err)
	return fields
}

func TestExpandTarget(t *testing.T) {
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
		{"an empty segment", "https://a.b/{e}/c", "", "must not be empty"},
		{"an empty part of a segment", "https://a.b/x{e}", "", "must not be empty"},
		{"..", "https://a.b/{up}/c", "", `"." or ".."`},
		{".", "https://a.b/{dot}", "", `"." or ".."`},
		{"a literal dot and a field", "https://a.b/.{dot}/c", "", `"." or ".."`},
		{"dots in a name", "https://a.b/{up}x", "https://a.b/..x", ""},
		{"a slash in the path", "https://a.b/{slash}", "", "or contain"},
		{"a backslash in the path", "https://a.b/{back}", "", "or contain"},
		{"a line feed in the path", "https://a.b/{line}", "", "or contain"},
		{"a control character in the path", "https://a.b/{del}", "", "or contain"},
		{"NUL", "https://a.b/?q={nul}", "", "NUL"},
		{"missing", "https://a.b/{S}", "", `"S" is missing`},
		{"null", "https://a.b/{z}", "", "is not text, a number or a boolean"},
		{"an array", "https://a.b/{l}", "", "is not text, a number or a boolean"},
	} {
		t.Run(row.why, func(t *testing.T) {
			require.NoError(t, checkTarget(row.template))
			u, err := expandTarget(row.template, fieldsIn(t, args))
			if row.err != "" {
				require.ErrorContains(t, err, row.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, row.want, u.String())
		})
	}
}

func TestExpandBody(t *testing.T) {
	const args = `{"s":"a\" , \"b\":\"\u00e9","n":1.50e400,"o":{ "a" : [ 1 ] },"z":null}`
	for _, row := range []struct{ why, template, want, err string }{
		{"values verbatim", `{"s":{s},"n":{n},"o":{o},"z":{z}}`, `{"s":"a\" , \"b\":\"\u00e9","n":1.50e400,"o":{ "a" : [ 1 ] },"z":null}`, ""},
		{"alone", `{s}`, `"a\" , \"b\":\"\u00e9"`, ""},
		{"missing", `[{S}]`, "", `"S" is missing`},
		{"too deep", strings.Repeat("[", 31) + "{o}" + strings.Repeat("]", 31), "", "nested too deeply"},
	} {
		t.Run(row.why, func(t *testing.T) {
			require.NoError(t, checkBody(row.template))
			b, err := expandBody(row.template, fieldsIn(t, args))
			if row.err != "" {
				require.ErrorContains(t, err, row.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, row.want, string(b))
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
		body1, err := expandBody(body, fieldsIn(t, args1))
		require.NoError(t, err)
		body2, err := expandBody(body, fieldsIn(t, args2))
		require.NoError(t, err)
		require.Equal(t, same, string(body1) == string(body2))
		u1, err1 := expandTarget(target, fieldsIn(t, args1))
		u2, err2 := expandTarget(target, fieldsIn(t, args2))
		if err1 == nil && err2 == nil {
			require.Equal(t, same, u1.String() == u2.String())
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
		if checkTarget(template) != nil {
			return
		}
		quoted, err := jsonQuote(v)
		if err != nil {
			return // not UTF-8
		}
		filled, err := url.Parse(fill(mustParse(template), "x"))
		require.NoError(t, err)
		// Every field of the template has the same value.
		fields := map[string]codec.Field{}
		for _, p := range mustParse(template) {
			fields[p.field] = codec.Field{Name: p.field, Value: approval.Raw(quoted)}
		}
		u, err := expandTarget(template, fields)
		if err != nil {
			return
		}
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
		if len(fields) > 1 { // not only the field "" of literal text
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
		if checkBody(template) != nil || !isJSON([]byte(value)) {
			return
		}
		fields := map[string]codec.Field{}
		for _, p := range parseBody(template) {
			fields[p.field] = codec.Field{Name: p.field, Value: approval.Raw(strings.TrimSpace(value))}
		}
		b, err := expandBody(template, fields)
		if err != nil {
			return
		}
		require.True(t, isJSON(b))
		// Outside of the placeholders the document is the same.
		with, without := shape(t, b), shape(t, []byte(fill(parseBody(template), "0")))
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
