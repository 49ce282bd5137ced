package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/ipc/service"
)

// TestBrowserRequestsAreRefused sends requests that a page could make a browser send.
func TestBrowserRequestsAreRefused(t *testing.T) {
	h := newRig(t)
	request := `{"tool_name":"auto"}`
	for _, tt := range []struct {
		why     string
		headers []string
		status  int
	}{
		{"a DNS name rebound to this address", []string{"Host", "evil.example"}, 403},
		{"the right address and another port", []string{"Host", "127.0.0.1:1"}, 403},
		{"our name as part of another", []string{"Host", h.server.Hosts[0] + ".evil.example"}, 403},
		{"a sandboxed page, a file, or a redirect", []string{"Origin", "null"}, 403},
		{"another origin", []string{"Origin", "https://evil.example"}, 403},
		{"our own origin: there are no pages of ours", []string{"Origin", h.base}, 403},
		{"a cross-site request", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"another port of this machine", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"a type that a form can send", []string{"Content-Type", "text/plain"}, 415},
		{"the same with JSON in a parameter", []string{"Content-Type", "text/plain; application/json"}, 415},
		{"a form", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		{"a form with files", []string{"Content-Type", "multipart/form-data; boundary=x"}, 415},
		{"no type", []string{"Content-Type", ""}, 415},
		{"mail on another path", []string{"Content-Type", "message/rfc822"}, 415},
		{"another charset", []string{"Content-Type", "application/json; charset=utf-16"}, 415},
		{"compressed", []string{"Content-Encoding", "gzip"}, 415},
		{"an unknown parameter", []string{"Content-Type", "application/json; q=1"}, 415},
	} {
		a := h.do("agent", "POST", "/v1/approvals", request, tt.headers...)
		require.Equal(t, tt.status, a.StatusCode, "%s: %s", tt.why, a.body)
		for name := range a.Header {
			require.NotContains(t, name, "Access-Control", tt.why)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/v1/events", "/v1/approvals", "/metrics"} {
		require.Equal(t, 403, h.do("ann", "GET", path, nil, "Host", "evil.example").StatusCode, path)
		require.Equal(t, 403, h.do("ann", "GET", path, nil, "Origin", "null").StatusCode, path)
	}
	preflight := h.do("", "OPTIONS", "/v1/approvals", nil, "Origin", "https://evil.example", "Access-Control-Request-Method", "POST")
	require.Equal(t, 403, preflight.StatusCode)
	require.Empty(t, preflight.Header.Get("Access-Control-Allow-Origin"))
	require.Zero(t, h.runs(), "none of these became a request")
	require.Equal(t, 201, h.do("agent", "POST", "/v1/approvals", request, "Content-Type", "application/json; charset=UTF-8").StatusCode)
}

func TestTooLarge(t *testing.T) {
	h := newRig(t)
	big := `{"tool_name":"auto","preview":"` + strings.Repeat("x", 10<<20) + `"}`
	h.requireProblem(h.do("agent", "POST", "/v1/approvals", big), 413, "the body is too large")
	r, err := http.NewRequest("POST", h.base+"/v1/approvals", struct{ io.Reader }{strings.NewReader(big)}) // chunked: no Content-Length
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+h.secret("agent"))
	r.Header.Set("Content-Type", "application/json")
	require.Contains(t, []int{413, 0}, h.status(r))
	deep := `{"tool_name":"auto","request_data":` + strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40) + "}"
	require.Equal(t, 400, h.do("agent", "POST", "/v1/approvals", deep).StatusCode, "nested too deeply")
	r, err = http.NewRequest("GET", h.base+"/v1/approvals", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+h.secret("agent"))
	r.Header.Set("X-Long", strings.Repeat("x", 64<<10))
	require.Contains(t, []int{431, 0}, h.status(r))
	require.Equal(t, 401, h.do("", "GET", "/v1/approvals", nil, "Authorization", "Bearer "+strings.Repeat("x", 4096)).StatusCode)
	require.Equal(t, 400, h.do("agent", "GET", "/v1/approvals", "{}").StatusCode, "a GET has no body")
	require.Equal(t, 404, h.do("agent", "GET", "/v1/nothing", nil).StatusCode)
	a := h.do("agent", "PUT", "/v1/approvals", nil)
	require.Equal(t, 405, a.StatusCode)
	require.Equal(t, "GET, POST", a.Header.Get("Allow"))
	require.Zero(t, h.runs())
}

// status is the status of the response, 0 if the connection was closed while the request
// was sent.
func (h *rig) status(r *http.Request) int {
	resp, err := h.web.Do(r)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestSlowClients opens a thousand connections that send hardly anything. Other clients
// are served meanwhile, and then the slow ones are closed.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	const ioTimeout = 15 * time.Second
	h := newRig(t, func(h *rig) { h.server.IOTimeout = ioTimeout })
	addr := strings.TrimPrefix(h.base, "http://")
	const many = 1000
	ended := make(chan struct{}, many)
	for n := range many {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		head := "POST /v1/approvals HTTP/1.1\r\nHost: " + addr + "\r\nAuthorization: Bearer " + h.secret("agent") + "\r\nContent-Type: application/json\r\n"
		if n%2 == 0 {
			head += "Content-Length: 1000\r\n\r\n{"
		}
		_, err = c.Write([]byte(head))
		require.NoError(t, err)
		go func() {
			b, _ := io.ReadAll(c) // the response, if there is one
			if n%2 != 0 || strings.HasPrefix(string(b), "HTTP/1.1 408 ") || strings.HasPrefix(string(b), "HTTP/1.1 429 ") {
				ended <- struct{}{}
			}
		}()
	}
	for range 5 {
		began := time.Now()
		id := h.askAs("another")
		require.Equal(t, 200, h.do("ann", "POST", path(id, "/decision"), code("1")).StatusCode)
		require.Equal(t, "approved", h.do("another", "GET", path(id, "?wait=60"), nil).json["status"])
		require.Less(t, time.Since(began), ioTimeout, "other clients are served meanwhile")
	}
	deadline := time.After(2 * time.Minute)
	for range many {
		select {
		case <-ended:
		case <-deadline:
			require.Fail(t, "a slow client was not cut")
		}
	}
}

// askAs is ask for another client.
func (h *rig) askAs(key string) string {
	h.t.Helper()
	a := h.do(key, "POST", "/v1/approvals", map[string]any{"tool_name": "run"})
	require.Equal(h.t, 201, a.StatusCode, "%s", a.body)
	return a.json["approval_id"].(string)
}

// TestConnectionLimits checks the limits: a connection too many is closed at once, and no
// key uses more than half of the connections.
func TestConnectionLimits(t *testing.T) {
	h := newRig(t, func(h *rig) { h.server.Connections, h.server.IOTimeout = 20, time.Hour })
	id := h.ask()
	answers := make(chan answer, 12)
	for range 12 {
		go func() { answers <- h.do("agent", "GET", path(id, "?wait=60"), nil) }()
	}
	for range 2 {
		a := h.receive(answers)
		require.Equal(t, 429, a.StatusCode, "%s", a.body)
		require.Equal(t, "1", a.Header.Get("Retry-After"))
	}
	require.Equal(t, 200, h.do("ann", "POST", path(id, "/decision"), code("3")).StatusCode)
	for range 10 {
		require.Equal(t, "denied", h.receive(answers).json["status"])
	}
	h.web.CloseIdleConnections()

	addr := strings.TrimPrefix(h.base, "http://")
	var lines []net.Conn
	for range 40 {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		lines = append(lines, c)
	}
	closed := make(chan struct{}, len(lines))
	for _, c := range lines {
		go func() {
			_, _ = c.Read(make([]byte, 1)) // no data: returns when the connection is closed
			closed <- struct{}{}
		}()
	}
	for range 20 {
		select {
		case <-closed:
		case <-time.After(time.Minute):
			require.Fail(t, "a connection too many was not closed")
		}
	}
	for _, c := range lines {
		_ = c.Close()
	}
	require.Eventually(t, func() bool {
		resp, err := h.web.Get(h.base + "/healthz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == 200
	}, time.Minute, 10*time.Millisecond, "connections are accepted again below the limit")
}

func TestPendingLimit(t *testing.T) {
	h := newRig(t, func(h *rig) {
		ws := h.ws[home]
		ws.Limits = approval.Limits{Pending: 1}
		h.ws[home] = ws
	})
	h.ask()
	a := h.do("agent", "POST", "/v1/approvals", map[string]any{"tool_name": "run"})
	h.requireProblem(a, 429, "too many requests: limit_pending n=1")
	require.Equal(t, "5", a.Header.Get("Retry-After"))
}

// TestOneListingPerKey lists with a key while its previous list request is in progress.
func TestOneListingPerKey(t *testing.T) {
	slow := &slowHistory{begun: make(chan struct{}), end: make(chan struct{})}
	h := newRig(t, func(h *rig) { h.server.History = slow })
	done := make(chan answer, 1)
	go func() { done <- h.do("agent", "GET", "/v1/approvals", nil) }()
	<-slow.begun
	h.requireProblem(h.do("agent", "GET", "/v1/approvals", nil), 429, "this key already has a list request in progress")
	require.Equal(t, 200, h.do("agent", "GET", "/v1/approvals?status=pending", nil).StatusCode, "pending requests are not limited")
	close(slow.end)
	require.Equal(t, 200, h.receive(done).StatusCode)
	go func() { done <- h.do("agent", "GET", "/v1/approvals", nil) }()
	<-slow.begun
	require.Equal(t, 200, h.receive(done).StatusCode)
}

// slowHistory reports when it is called, and returns when the test allows it.
type slowHistory struct{ begun, end chan struct{} }

// Requests implements the history of a service.
func (s *slowHistory) Requests(read.Query) ([]*read.Request, bool, error) {
	s.begun <- struct{}{}
	<-s.end
	return nil, false, nil
}

func TestDegradedAndPaused(t *testing.T) {
	t.Parallel()
	h := newRig(t, func(h *rig) {
		h.Gate.Pauses = alwaysPaused{}
		h.server.SubmitTimeout = 2 * time.Second
		h.server.Ready = func(context.Context) error { return io.ErrUnexpectedEOF }
	})
	a := h.do("agent", "POST", "/v1/approvals", map[string]any{"tool_name": "auto"})
	h.requireProblem(a, 503, "the gate is paused, or all handler slots are in use: retry with the same Idempotency-Key")
	require.Equal(t, "5", a.Header.Get("Retry-After"))
	h.requireProblem(h.do("", "GET", "/readyz", nil), 503, "not ready: the status of the daemon says why")
	require.Equal(t, 200, h.do("", "GET", "/healthz", nil).StatusCode)
	h.ask() // requests are accepted during a pause
}

// A handler that panicked is answered, and the log says where it was, not with which text.
func TestPanicIsLogged(t *testing.T) {
	t.Parallel()
	h := newRig(t, func(h *rig) { h.server.Ready = func(context.Context) error { panic("planted") } })
	h.requireProblem(h.do("", "GET", "/readyz", nil), 500, "internal error: see the daemon's log")
	require.Contains(t, h.logs.String(), "ipc/httpapi_test.TestPanicIsLogged")
	require.NotContains(t, h.logs.String(), "planted")
}

// alwaysPaused is a pause that does not end.
type alwaysPaused struct{}

func (alwaysPaused) Enter(string) bool { return false }
func (alwaysPaused) Leave(string)      {}

// TestNothingIsEchoed puts a secret into every place that a client controls.
func TestNothingIsEchoed(t *testing.T) {
	h := newRig(t)
	const secret = "s3cret-V4lue"
	id := h.ask()
	for _, body := range []string{
		`{"` + secret + `":1}`, `{"tool_name":"` + secret + `!"}`, `{"tool_name":["` + secret + `"]}`, `{"channel":"` + secret + `"}`,
		`{"tool_name":"run","target":{"tg_chat_id":"` + secret + `"}}`, `{"tool_name":"run","target":{"` + secret + `":1}}`,
		`{"tool_name":"run","expires_in_sec":"` + secret + `"}`, `{"request_data":"` + secret + `"}`, secret, `"` + secret,
		`{"action_type":"` + secret + `"}`, `{"tool_name":"run","resubmits":"` + secret + `"}`, `{"type":"question","options":[{"` + secret + `":1}]}`,
	} {
		a := h.do("agent", "POST", "/v1/approvals", body)
		require.Contains(t, []int{400, 422}, a.StatusCode, "%s: %s", body, a.body)
		require.NotContains(t, string(a.body), secret, body)
		require.NotEmpty(t, a.json["detail"])
	}
	for _, path := range []string{"/" + secret, "/v1/approvals/" + secret, "/v1/approvals?status=" + secret, "/v1/approvals?" + secret + "=1", "/v1/allow-rules/" + secret} {
		a := h.do("agent", "GET", path, nil)
		require.GreaterOrEqual(t, a.StatusCode, 400)
		require.NotContains(t, string(a.body), secret, path)
	}
	a := h.do("ann", "POST", path(id, "/decision"), map[string]any{"code": secret})
	require.Equal(t, 422, a.StatusCode)
	require.NotContains(t, string(a.body), secret)
	h.requireProblem(h.do("", "GET", path(id), nil, "Authorization", "Bearer "+secret), 401, "Invalid API key")
	require.NotContains(t, h.logs.String(), secret)
	require.NotContains(t, h.logs.String(), h.secret("agent"))
}

func TestAuthorization(t *testing.T) {
	h := newRig(t)
	good := h.secret("agent")
	for header, want := range map[string]int{
		"Bearer " + good: 200, "bearer " + good: 200, "BEARER " + good: 200,
		"": 401, good: 401, "Bearer": 401, "Bearer" + " ": 401, "Basic " + good: 401, "Bearer  " + good: 401, "Bearer " + good + " ": 200,
		"Bearer " + good + "x": 401, "Bearer " + good[:len(good)-1]: 401, "Bearer " + strings.ToUpper(good): 401, "Bearer " + approval.Digest([]byte(good)): 401,
	} {
		require.Equal(t, want, h.do("", "GET", "/v1/approvals", nil, "Authorization", header).StatusCode, "%q", strings.ReplaceAll(header, good, "KEY"))
	}
	r, err := http.NewRequest("GET", h.base+"/v1/approvals", nil)
	require.NoError(t, err)
	r.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + good}
	require.Equal(t, 401, h.send(r).StatusCode, "two keys are refused")
	h.requireProblem(h.do("agent", "GET", "/v1/approvals?access_token="+good, nil, "Authorization", ""), 401, "Invalid API key")
	a := h.do("", "GET", "/v1/approvals", nil)
	require.Equal(t, `Bearer realm="permesso"`, a.Header.Get("WWW-Authenticate"))
}

// TestUnixSocket uses a Unix socket: any Host is allowed.
func TestUnixSocket(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "rest.sock")
	stale, err := httpapi.ListenUnix(name)
	require.NoError(t, err)
	stale.SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	l, err := httpapi.ListenUnix(name)
	require.NoError(t, err, "the socket of a killed daemon is replaced")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	_, err = httpapi.ListenUnix(filepath.Join(dir, "file"))
	require.ErrorContains(t, err, "exists and is not a socket")
	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o777))
	_, err = httpapi.ListenUnix(filepath.Join(open, "rest.sock"))
	require.ErrorContains(t, err, "other users may write to")

	h := newRig(t)
	s := &httpapi.Server{Service: &service.Service{Gate: h.Gate, Viewer: h.view, Settings: rigSettings{h}}, Keys: h}
	ctx, cancel := cancelled()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	c, err := net.Dial("unix", name)
	require.NoError(t, err)
	_, err = fmt.Fprintf(c, "GET /v1/approvals HTTP/1.1\r\nHost: whatever\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", h.secret("agent"))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	cancel()
	require.NoError(t, <-done)
	_, err = os.Stat(name)
	require.ErrorIs(t, err, os.ErrNotExist)
}
