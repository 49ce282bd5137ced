package exec

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
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
