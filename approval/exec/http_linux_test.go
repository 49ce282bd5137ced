package exec

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
)

// request is a handler that calls a server on loopback, allowed by allow_private.
func request(method, to string, change ...func(*approval.HTTP)) approval.Handler {
	u, _ := url.Parse(strings.NewReplacer("{", "", "}", "").Replace(to))
	h := approval.Handler{Kind: approval.HandlerHTTP, HTTP: approval.HTTP{Method: method, URL: to, AllowPrivate: []string{u.Host}}}
	for _, c := range change {
		c(&h.HTTP)
	}
	return h
}

func secretFileWith(t testing.TB, content string) string {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// recordedRequest is one request as received by a server.
type recordedRequest struct {
	method, uri, body string
	header            http.Header
}

// recorder starts a server that records its requests and gives the same response to
// all.
func recorder(t testing.TB, answer http.HandlerFunc) (*httptest.Server, *[]recordedRequest) {
	var got []recordedRequest
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, recordedRequest{r.Method, r.RequestURI, string(b), r.Header.Clone()})
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv, &got
}

func TestRequestIsSentAsConfigured(t *testing.T) {
	srv, got := recorder(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Location", "/v1/posts/7")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, ` {"id":9007199254740993, "text":"\u00e9"}`+"\n")
	})
	h := request("POST", srv.URL+"/v1/{box}/posts?q={text}&n={n}", func(h *approval.HTTP) {
		h.Body = `{"text":{text},"n":[{n}],"to":{to},"fix":"{ }"}`
		h.Headers = map[string]string{"X-Kind": "post"}
		h.SecretHeaders = map[string]string{"Authorization": "Bearer " + secretFileWith(t, "s3cr3t-t0ken\n"), "X-Api-Key": secretFileWith(t, "another-secret")}
	})
	job := jobOf(h, `{"text":"a b&c=\u00e9/..","n":1.50e400,"to":null,"box":"in box"}`)
	job.Key = "a7f3b2c1d4e5f6a7"
	e := newRunner(t).Run(t.Context(), job)
	require.Equal(t, approval.Effect{
		Result: approval.Raw(`{"status":201,"location":"/v1/posts/7","body":{"id":9007199254740993, "text":"\u00e9"}}`),
	}, e)
	require.Len(t, *got, 1)
	r := (*got)[0]
	require.Equal(t, "POST", r.method)
	require.Equal(t, "/v1/in%20box/posts?q=a%20b%26c%3D%C3%A9%2F..&n=1.50e400", r.uri)
	require.Equal(t, `{"text":"a b&c=\u00e9/..","n":[1.50e400],"to":null,"fix":"{ }"}`, r.body) //nolint:testifylint // byte for byte
	require.Equal(t, http.Header{
		"Accept-Encoding": {"identity"}, "Authorization": {"Bearer s3cr3t-t0ken"}, "Connection": {"close"}, "Content-Length": {"63"},
		"Content-Type": {"application/json"}, "Idempotency-Key": {"a7f3b2c1d4e5f6a7"}, "User-Agent": {"permesso"}, "X-Api-Key": {"another-secret"}, "X-Kind": {"post"},
	}, r.header)
}

// rawServer starts a server whose connections serve controls. count stops it and
// returns the number of connections.
func rawServer(t testing.TB, serve func(conn net.Conn, r *bufio.Reader)) (address string, count func() int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conns := make(chan net.Conn, 100)
	done := make(chan struct{})
	n := 0
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n++
			conns <- conn
			serve(conn, bufio.NewReader(conn))
			_ = conn.Close()
		}
	}()
	stop := func() int {
		_ = l.Close()
		<-done
		return n
	}
	t.Cleanup(func() { stop() })
	return l.Addr().String(), stop
}

// If the server may have acted, the agent must read "outcome unknown", and the
// request must not be sent again.
func TestLostConnectionIsUnknownOutcome(t *testing.T) {
	complete := func(r *bufio.Reader) { _, _ = http.ReadRequest(r) }
	for why, tc := range map[string]struct {
		serve func(net.Conn, *bufio.Reader)
		want  string
	}{
		"closed at once":            {func(net.Conn, *bufio.Reader) {}, "outcome unknown: the connection was lost"},
		"reset after a byte":        {func(c net.Conn, r *bufio.Reader) { _, _ = r.ReadByte(); _ = c.(*net.TCPConn).SetLinger(0) }, "outcome unknown: the connection was lost"},
		"closed after a byte":       {func(_ net.Conn, r *bufio.Reader) { _, _ = r.ReadByte() }, "outcome unknown: the connection was lost"},
		"closed after the request":  {func(_ net.Conn, r *bufio.Reader) { complete(r) }, "outcome unknown: the connection was lost"},
		"closed in the status line": {func(c net.Conn, r *bufio.Reader) { complete(r); _, _ = io.WriteString(c, "HTTP/1.1 20") }, "outcome unknown: the connection was lost"},
		"closed in the headers": {func(c net.Conn, r *bufio.Reader) {
			complete(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le")
		}, "outcome unknown: the connection was lost"},
		"not HTTP": {func(c net.Conn, r *bufio.Reader) { complete(r); _, _ = io.WriteString(c, "220 mail\r\n\r\n") }, "outcome unknown: the connection was lost"},
		"too many headers": {func(c net.Conn, r *bufio.Reader) {
			complete(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 200<<10)+"\r\n\r\n")
		}, "outcome unknown: the connection was lost"},
	} {
		for _, method := range []string{"POST", "GET"} {
			t.Run(why+" "+method, func(t *testing.T) {
				address, count := rawServer(t, tc.serve)
				h := request(method, "http://"+address+"/", func(h *approval.HTTP) { h.BodyArgs = method == "POST" })
				e := run(t, newRunner(t), h, `{"a":1}`)
				require.Contains(t, e.Error, "Execution failed: "+tc.want)
				require.Contains(t, e.Error, "check before you ask again")
				require.False(t, e.Unstarted, "it may have read")
				require.Equal(t, 1, count(), "sent once")
			})
		}
	}
}

func TestNothingWasSent(t *testing.T) {
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, unused.Close())
	mute, connections := rawServer(t, func(_ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	plainHTTP, _ := recorder(t, func(http.ResponseWriter, *http.Request) {})
	for _, row := range []struct {
		why     string
		handler approval.Handler
		want    string
	}{
		{"nothing listens", request("POST", "http://"+unused.Addr().String()+"/"), "connection refused"},
		{"no such host", request("POST", "https://host.invalid/"), "host.invalid"},
		{"no TLS", request("POST", strings.Replace(plainHTTP.URL, "http:", "https:", 1)+"/"), "does not look like a TLS handshake"},
		{"no TLS handshake", withShortTimeout(request("POST", "https://"+mute+"/")), "timed out after 50ms"},
	} {
		t.Run(row.why, func(t *testing.T) {
			e := run(t, newRunner(t), row.handler, `{}`)
			require.Contains(t, e.Error, "Execution failed: nothing was sent: ")
			require.Contains(t, e.Error, row.want)
			require.True(t, e.Unstarted)
		})
	}
	require.Equal(t, 1, connections())
}

func withShortTimeout(h approval.Handler) approval.Handler {
	h.Timeout = 50 * time.Millisecond
	return h
}

// With a proxy the daemon could not check the server's address.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	proxy, got := recorder(t, func(http.ResponseWriter, *http.Request) {})
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	e := run(t, newRunner(t), request("GET", "http://host.invalid/"), `{}`)
	require.Contains(t, e.Error, "nothing was sent")
	require.Empty(t, *got)
	// net/http reads the environment once per process, perhaps before this test.
	trip, err := newTransport(t.Context(), approval.HTTP{}, "host.invalid")
	require.NoError(t, err)
	require.Nil(t, trip.Proxy)
}

func TestPrivateAddressesMustBeAllowed(t *testing.T) {
	srv, got := recorder(t, func(http.ResponseWriter, *http.Request) {})
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	for _, row := range []struct {
		why, host string
		allowed   []string
		ok        bool
	}{
		{"address", "127.0.0.1", nil, false},
		{"name", "localhost", nil, false},
		{"mapped into IPv6", "[::ffff:127.0.0.1]", nil, false},
		{"unspecified, which means the machine itself", "0.0.0.0", nil, false},
		{"another port is allowed", "127.0.0.1", []string{"127.0.0.1:1"}, false},
		{"another name is allowed", "localhost", []string{"localhost.example"}, false},
		{"allowed by address", "127.0.0.1", []string{"127.0.0.1"}, true},
		{"allowed by name", "localhost", []string{"localhost"}, true},
		{"allowed by the name's address", "localhost", []string{"127.0.0.1:" + port}, true},
	} {
		t.Run(row.why, func(t *testing.T) {
			*got = nil
			e := run(t, newRunner(t), request("GET", "http://"+row.host+":"+port+"/", func(h *approval.HTTP) { h.AllowPrivate = row.allowed }), `{}`)
			if row.ok {
				require.Empty(t, e.Error)
				require.Len(t, *got, 1)
				return
			}
			require.Contains(t, e.Error, "Execution failed: nothing was sent: ")
			require.Contains(t, e.Error, "is not a public address; to allow it, add it to allow_private")
			require.Empty(t, *got)
		})
	}
}

func TestRedirects(t *testing.T) {
	other, stolen := recorder(t, func(http.ResponseWriter, *http.Request) {})
	otherPort := other.URL + "/there"
	var to string
	code := http.StatusFound
	srv, got := recorder(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/there" {
			_, _ = io.WriteString(w, "arrived")
			return
		}
		if to != "" {
			w.Header().Set("Location", to)
		}
		w.WriteHeader(code)
	})
	host := strings.TrimPrefix(srv.URL, "http://")
	for _, row := range []struct {
		why, method, to string
		code, requests  int
		want            string // "" if followed
	}{
		{"within the host", "GET", "/there", 302, 2, ""},
		{"absolute URL", "GET", srv.URL + "/there", 301, 2, ""},
		{"HEAD, too", "HEAD", "/there", 308, 2, ""},
		{"another port", "GET", otherPort, 302, 1, "another host, port or scheme"},
		{"without a scheme", "GET", strings.TrimPrefix(otherPort, "http:"), 307, 1, "another host, port or scheme"},
		{"another name of the host", "GET", strings.Replace(srv.URL, "127.0.0.1", "localhost", 1) + "/there", 302, 1, "another host, port or scheme"},
		{"another scheme", "GET", strings.Replace(srv.URL, "http:", "https:", 1) + "/there", 302, 1, "another host, port or scheme"},
		{"another user", "GET", "http://me:you@" + host + "/there", 302, 1, "another host, port or scheme"},
		{"a file", "GET", "file:///etc/passwd", 302, 1, "another host, port or scheme"},
		{"no Location", "GET", "", 302, 1, "no valid Location"},
		{"not a URL", "GET", "http://%zz/", 302, 1, "no valid Location"},
		{"a loop", "GET", "/", 302, 6, "more than 5 redirects"},
		{"a POST is not sent again", "POST", "/there", 307, 1, "a POST is never sent twice"},
		{"nor changed into a GET", "POST", "/there", 303, 1, "a POST is never sent twice"},
		{"nor a DELETE", "DELETE", "/there", 308, 1, "a DELETE is never sent twice"},
		{"no redirect", "GET", "/there", 304, 1, "status 304 Not Modified"},
	} {
		t.Run(row.why, func(t *testing.T) {
			*got, to, code = nil, row.to, row.code
			h := request(row.method, srv.URL+"/", func(h *approval.HTTP) {
				h.SecretHeaders = map[string]string{"Authorization": secretFileWith(t, "hunter2hunter2")}
				h.AllowPrivate = []string{"127.0.0.1", "localhost"}
			})
			e := run(t, newRunner(t), h, `{}`)
			require.Len(t, *got, row.requests)
			require.Empty(t, *stolen, "the other server received nothing")
			if row.want == "" {
				require.Empty(t, e.Error)
				return
			}
			require.Contains(t, e.Error, "Execution failed: status ")
			require.Contains(t, e.Error, row.want)
		})
	}
	*got, to, code = nil, otherPort, http.StatusSeeOther
	e := run(t, newRunner(t), request("POST", srv.URL+"/", func(h *approval.HTTP) { h.Status = []int{303} }), `{}`)
	require.JSONEq(t, `{"status":303,"location":"`+otherPort+`","body":""}`, string(e.Result), "an expected redirect is the result")
}

func TestResponses(t *testing.T) {
	var header http.Header
	var code int
	var body string
	srv, _ := recorder(t, func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, row := range []struct {
		why, kind string
		code      int
		body      string
		want      string // result, or error
	}{
		{"no body", "", 204, "", `{"status":204,"body":""}`},
		{"text", "text/plain", 200, "a \"b\"\n\x1b", `{"status":200,"body":"a \"b\"\n\u001b"}`},
		{"undeclared JSON is text", "text/plain", 200, `{"a":1}`, `{"status":200,"body":"{\"a\":1}"}`},
		{"JSON of any kind", "application/problem+json", 200, "\n[1e400 ]", `{"status":200,"body":[1e400 ]}`},
		{"a value alone", "application/json", 200, `null`, `{"status":200,"body":null}`},
		{"declared but invalid", "application/json", 200, `{"a":`, `{"status":200,"body":"{\"a\":"}`},
		{"two values", "application/json", 200, `{}{}`, `{"status":200,"body":"{}{}"}`},
		{"two names", "application/json", 200, `{"a":1,"a":2}`, `{"status":200,"body":"{\"a\":1,\"a\":2}"}`},
		{"not UTF-8", "application/json", 200, "\"\xff\"", `{"status":200,"body":"\"` + "\uFFFD" + `\""}`},
		{"bytes", "image/png", 200, "\x89PNG\xff\xfe", `{"status":200,"body":"` + "\uFFFD" + `PNG` + "\uFFFD" + `"}`},
		{"deep", "application/json", 200, deep(31), `{"status":200,"body":` + deep(31) + `}`},
		{"over the maximum depth", "application/json", 200, deep(32), `{"status":200,"body":"` + deep(32) + `"}`},
		{"refused", "application/json", 422, `{"error":"too long"}`, `status 422 Unprocessable Entity: {"error":"too long"}`},
		{"error without a body", "", 403, "", "status 403 Forbidden"},
		{"error with a long body", "", 400, strings.Repeat("é", 2000), "status 400 Bad Request: " + strings.Repeat("é", 1024) + "…"},
		{"unknown status", "", 499, "", "status 499"},
		{"5xx: the server may have acted", "", 503, "later", "status 503 Service Unavailable; outcome unknown: the server may have acted, check before you ask again: later"},
		{"408: the server may have acted", "", 408, "", "status 408 Request Timeout; outcome unknown: the server may have acted, check before you ask again"},
	} {
		t.Run(row.why, func(t *testing.T) {
			header, code, body = http.Header{"Content-Type": {row.kind}}, row.code, row.body
			e := run(t, newRunner(t), request("POST", srv.URL+"/"), `{}`)
			if row.code > 299 {
				require.Equal(t, "Execution failed: "+row.want, e.Error)
				return
			}
			require.Equal(t, row.want, string(e.Result))
			require.True(t, e.Result.IsValid())
		})
	}
	header, code, body = nil, 404, "gone"
	wanted := request("POST", srv.URL+"/", func(h *approval.HTTP) { h.Status = []int{200, 404} })
	require.JSONEq(t, `{"status":404,"body":"gone"}`, string(run(t, newRunner(t), wanted, `{}`).Result))
	code = 201
	require.Equal(t, "Execution failed: status 201 Created: gone", run(t, newRunner(t), wanted, `{}`).Error, "not in the list")

	header, code, body = http.Header{"Content-Encoding": {"gzip"}}, 200, strings.Repeat("\x1f\x8b", 50)
	require.JSONEq(t, `{"status":200,"body":"","note":"left out: 100 bytes in an unsupported encoding"}`,
		string(run(t, newRunner(t), request("GET", srv.URL+"/"), `{}`).Result), "nothing is decompressed")
}

// The status is known, so an incomplete body is only a note.
func TestIncompleteResponses(t *testing.T) {
	for _, row := range []struct {
		why   string
		serve func(w io.Writer, hold func())
		want  string
	}{
		{"endless", func(w io.Writer, _ func()) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\n\r\n")
			for {
				if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
					return
				}
			}
		}, `"body":"` + strings.Repeat("x", 1024) + `","note":"cut after 1024 bytes: the response is longer"`},
		{"too long, with a Content-Length", func(w io.Writer, _ func()) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 1025\r\n\r\n"+strings.Repeat("é", 512)+"x")
		}, `"body":"` + strings.Repeat("é", 512) + `","note":"cut after 1024 bytes: the response is longer"`},
		{"just long enough", func(w io.Writer, _ func()) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n"+strings.Repeat("x", 1024))
		}, `"body":"` + strings.Repeat("x", 1024) + `"}`},
		{"broken off", func(w io.Writer, _ func()) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{}")
		}, `"body":"{}","note":"cut after 2 bytes: the connection was lost"`},
		{"broken off in a chunk", func(w io.Writer, _ func()) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
		}, `"body":"ab","note":"cut after 2 bytes: the connection was lost"`},
		{"cut inside a secret", func(w io.Writer, _ func()) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nyour token: hunter2hun")
		}, `"body":"your token: ","note":"cut after 22 bytes: the connection was lost"`},
		{"slow", func(w io.Writer, hold func()) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab")
			hold()
		}, `"body":"ab","note":"cut after 2 bytes: timed out after 300ms"`},
	} {
		t.Run(row.why, func(t *testing.T) {
			address, _ := rawServer(t, func(c net.Conn, r *bufio.Reader) {
				_, _ = http.ReadRequest(r)
				row.serve(c, func() { _, _ = io.Copy(io.Discard, r) })
			})
			h := request("GET", "http://"+address+"/", func(h *approval.HTTP) {
				h.SecretHeaders = map[string]string{"Authorization": "Bearer " + secretFileWith(t, "hunter2hunter2")}
			})
			h.MaxOutput = 1024
			if row.why == "slow" {
				h.Timeout = 300 * time.Millisecond
			}
			e := run(t, newRunner(t), h, `{}`)
			require.Empty(t, e.Error)
			require.Contains(t, string(e.Result), row.want)
			require.True(t, e.Result.IsValid())
		})
	}
}

// hangingServer starts a server that receives requests and never responds.
func hangingServer(t testing.TB) (address string, asked <-chan struct{}) {
	got := make(chan struct{}, 10)
	address, _ = rawServer(t, func(_ net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			got <- struct{}{}
			_, _ = io.Copy(io.Discard, r)
		}
	})
	return address, got
}

func TestTimeoutIsUnknownOutcome(t *testing.T) {
	address, _ := hangingServer(t)
	h := request("POST", "http://"+address+"/")
	h.Timeout = 300 * time.Millisecond
	require.Equal(t, approval.Effect{
		Error: "Execution failed: outcome unknown: timed out after 300ms after the request was sent; check before you ask again",
	}, run(t, newRunner(t), h, `{}`))
}

func TestCancelAndCloseEndARequest(t *testing.T) {
	address, asked := hangingServer(t)
	const want = "Execution failed: outcome unknown: cancelled after the request was sent; check before you ask again"
	r := newRunner(t)
	job := jobOf(request("POST", "http://"+address+"/"), `{}`)
	effect := make(chan approval.Effect, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { effect <- r.Run(ctx, job) }()
	<-asked
	cancel()
	require.Equal(t, approval.Effect{Error: want}, <-effect)

	go func() { effect <- r.Run(t.Context(), job) }()
	<-asked
	require.NoError(t, r.Close())
	require.Equal(t, approval.Effect{Error: want}, <-effect)
	require.Equal(t, approval.Effect{Error: "Execution failed: nothing was sent: the daemon is stopping", Unstarted: true}, r.Run(t.Context(), job))
	require.Empty(t, asked)
}

func TestNoRequestWithoutReceipt(t *testing.T) {
	srv, got := recorder(t, func(http.ResponseWriter, *http.Request) {})
	r := newRunner(t)
	r.Verifier = refuseAll{}
	require.Equal(t, approval.Effect{Error: "Execution refused: verify receipt: not valid", Unstarted: true}, run(t, r, request("POST", srv.URL+"/"), `{}`))
	r.Verifier = acceptAll{}
	for args, want := range map[string]string{
		`{"id":".."}`:      `argument_unfillable name=id value="\"..\"" why=fit_dots`,
		`{"id":"Roma/.."}`: `argument_unfillable name=id value="\"Roma/..\"" why=fit_segment`,
		`{}`:               "argument_missing detail=\"id (json)\" name=id why=is_json",
		`[]`:               "argument_none",
	} {
		e := run(t, r, request("POST", srv.URL+"/{id}"), args)
		require.Contains(t, e.Error, "Execution refused: ")
		require.Contains(t, e.Error, want)
	}
	require.Empty(t, *got)
}

func TestSecretFilesMustBePrivate(t *testing.T) {
	srv, got := recorder(t, func(http.ResponseWriter, *http.Request) {})
	file := secretFileWith(t, "hunter2hunter2")
	h := request("POST", srv.URL+"/", func(h *approval.HTTP) { h.SecretHeaders = map[string]string{"Authorization": "Bearer " + file} })
	for _, row := range []struct {
		why     string
		prepare func()
		want    string
	}{
		{"missing", func() { require.NoError(t, os.Remove(file)) }, "no such file"},
		{"a pipe without a writer", func() { require.NoError(t, unix.Mkfifo(file, 0o600)) }, "not a regular file"},
		{"a folder", func() { require.NoError(t, os.Remove(file)); require.NoError(t, os.Mkdir(file, 0o700)) }, "not a regular file"},
		{"empty", func() { require.NoError(t, os.Remove(file)); require.NoError(t, os.WriteFile(file, nil, 0o600)) }, "one line of printable ASCII"},
		{"two lines", func() { require.NoError(t, os.WriteFile(file, []byte("hunter2\nhunter2"), 0o600)) }, "one line of printable ASCII"},
		{"a blank line after it", func() { require.NoError(t, os.WriteFile(file, []byte("hunter2hunter2\n\n"), 0o600)) }, "one line of printable ASCII"},
		{"CRLF", func() { require.NoError(t, os.WriteFile(file, []byte("hunter2hunter2\r\n"), 0o600)) }, "one line of printable ASCII"},
		{"short", func() { require.NoError(t, os.WriteFile(file, []byte("hunter2"), 0o600)) }, "shorter than 8"},
		{"huge", func() { require.NoError(t, os.WriteFile(file, make([]byte, 9000), 0o600)) }, "longer than 8192"},
		{"the group reads it", func() {
			require.NoError(t, os.WriteFile(file, []byte("hunter2hunter2"), 0o600))
			require.NoError(t, os.Chmod(file, 0o640))
		}, "other users can read it; run chmod 600 "},
		{"all users read it", func() { require.NoError(t, os.Chmod(file, 0o604)) }, "other users can read it; run chmod 600 "},
	} {
		t.Run(row.why, func(t *testing.T) {
			row.prepare()
			e := run(t, newRunner(t), h, `{}`)
			require.Contains(t, e.Error, "Execution failed: nothing was sent: secret header Authorization: "+file+": ")
			require.Contains(t, e.Error, row.want)
			require.NotContains(t, e.Error, "hunter2")
		})
	}
	require.Empty(t, *got)
	for _, secret := range []string{"hunter2hunter2\n", "a-new-one-since\n"} {
		require.NoError(t, os.WriteFile(file, []byte(secret), 0o600))
		require.NoError(t, os.Chmod(file, 0o600))
		require.Empty(t, run(t, newRunner(t), h, `{}`).Error)
		require.Equal(t, "Bearer "+strings.TrimSuffix(secret, "\n"), (*got)[len(*got)-1].header.Get("Authorization"), "read at each run")
	}
}

// A server that echoes its request must not reveal the secret to the agent.
func TestEchoedSecretsAreRedacted(t *testing.T) {
	const secret = `hunter2/"hunter2`
	for _, row := range []struct{ why, answer, want string }{
		{
			"in JSON", "200 OK\r\nContent-Type: application/json\r\n\r\n" + `{"n":1.0,"auth":"Bearer hunter2\/\u0022hunter2"}`,
			`{"status":200,"body":{"n":1.0,"auth":"Bearer [redacted: secret of 16 characters]"}}`,
		},
		{"in text", "200 OK\r\n\r\nBearer " + secret, `{"status":200,"body":"Bearer [redacted: secret of 16 characters]"}`},
		{"in invalid JSON", "200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":\"hunter2/\\\"hunter2\"", `{"status":200,"body":"{\"a\":\"[redacted: secret of 17 characters]\""}`},
		{"in a header", "201 Created\r\nLocation: /x?token=hunter2%2F%22hunter2\r\n\r\n", `{"status":201,"location":"/x?token=[redacted: secret of 20 characters]","body":""}`},
		{"in an error", "401 Unauthorized\r\n\r\nno such token: " + secret, "status 401 Unauthorized: no such token: [redacted: secret of 16 characters]"},
		{"instead of a response", secret, "outcome unknown: the connection was lost ("},
		{"instead of a length", "200 OK\r\nContent-Length: hunter2hunter2\r\n\r\n", "outcome unknown: the connection was lost ("},
	} {
		t.Run(row.why, func(t *testing.T) {
			address, _ := rawServer(t, func(c net.Conn, r *bufio.Reader) {
				_, _ = http.ReadRequest(r)
				_, _ = io.WriteString(c, "HTTP/1.1 "+row.answer)
			})
			h := request("GET", "http://"+address+"/", func(h *approval.HTTP) {
				h.SecretHeaders = map[string]string{"Authorization": "Bearer " + secretFileWith(t, secret), "X-Other": secretFileWith(t, "hunter2hunter2")}
			})
			e := run(t, newRunner(t), h, `{}`)
			require.Contains(t, e.Error+string(e.Result), row.want)
			require.NotContains(t, e.Error+string(e.Result), "hunter2")
		})
	}
}

// caFileOf writes a test server's certificate to a file for ca_file.
func caFileOf(t testing.TB, srv *httptest.Server) string {
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o644))
	return file
}

func tlsServer(t testing.TB, change func(*httptest.Server)) (*httptest.Server, *[]string) {
	var protos []string
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protos = append(protos, r.Proto) }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	change(srv)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv, &protos
}

func TestTLS(t *testing.T) {
	for _, row := range []struct {
		why    string
		server func(*httptest.Server)
		call   func(srv *httptest.Server, h *approval.HTTP)
		want   string
	}{
		{"configured authority", func(*httptest.Server) {}, func(*httptest.Server, *approval.HTTP) {}, ""},
		{"a server that speaks HTTP/2 as well", func(s *httptest.Server) { s.EnableHTTP2 = true }, func(*httptest.Server, *approval.HTTP) {}, ""},
		{"a server without HTTP", func(s *httptest.Server) {
			s.TLS = &tls.Config{NextProtos: []string{"other/1"}}
		}, func(*httptest.Server, *approval.HTTP) {}, "no application protocol"},
		{"unknown authority", func(*httptest.Server) {}, func(_ *httptest.Server, h *approval.HTTP) { h.CAFile = "" }, "unknown authority"},
		{"a certificate for another name", func(*httptest.Server) {}, func(srv *httptest.Server, h *approval.HTTP) {
			h.URL, h.AllowPrivate = strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)+"/", []string{"localhost"}
		}, "not localhost"},
		{"an old TLS version", func(s *httptest.Server) {
			s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
		}, func(*httptest.Server, *approval.HTTP) {}, "protocol version"},
		{"no ca_file", func(*httptest.Server) {}, func(_ *httptest.Server, h *approval.HTTP) { h.CAFile = "/none" }, "ca_file: /none: no such file"},
		{"an empty ca_file", func(*httptest.Server) {}, func(_ *httptest.Server, h *approval.HTTP) { h.CAFile = "/dev/null" }, "ca_file: /dev/null: not a regular file"},
		{"not a certificate", func(*httptest.Server) {}, func(_ *httptest.Server, h *approval.HTTP) { h.CAFile = secretFileWith(t, "hunter2") }, "no certificate in PEM"},
	} {
		t.Run(row.why, func(t *testing.T) {
			srv, protos := tlsServer(t, row.server)
			h := request("POST", srv.URL+"/", func(h *approval.HTTP) { h.CAFile, h.BodyArgs = caFileOf(t, srv), true })
			row.call(srv, &h.HTTP)
			e := run(t, newRunner(t), h, `{}`)
			if row.want == "" {
				require.Empty(t, e.Error)
				require.Equal(t, []string{"HTTP/1.1"}, *protos)
				return
			}
			require.Contains(t, e.Error, "Execution failed: nothing was sent: ")
			require.Contains(t, e.Error, row.want)
			require.Empty(t, *protos)
		})
	}
}
