package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func TestCheckURLAndKey(t *testing.T) {
	const good = "permesso_x"
	for _, row := range []struct {
		why, url, key string
		says          string // "": no error
	}{
		{"loopback", "http://127.0.0.1:8765", good, ""},
		{"behind TLS, with a path", "https://gate.example.org/permesso/", good, ""},
		{"a socket", "unix:///run/permesso/rest.sock", good, ""},
		{"as in the configuration file", "unix:/run/permesso/rest.sock", good, ""},
		{"a socket URL with a host", "unix://run/permesso.sock", good, "PERMESSO_URL must be"},
		{"no scheme", "127.0.0.1:8765", good, "PERMESSO_URL must be"},
		{"another protocol", "ftp://127.0.0.1", good, "PERMESSO_URL must be"},
		{"no host", "http://", good, "PERMESSO_URL must be"},
		{"a password, which is not repeated", "http://me:hunter2@127.0.0.1", good, "PERMESSO_URL must be"},
		{"a query", "http://127.0.0.1/?key=hunter2", good, "PERMESSO_URL must be"},
		{"no key", "http://127.0.0.1:8765", "", "no valid key"},
		{"two lines, the second one a header", "http://127.0.0.1:8765", "hunter2\r\nHost: x", "no valid key"},
		{"a space", "http://127.0.0.1:8765", "hunter2 hunter2", "no valid key"},
		{"too long", "http://127.0.0.1:8765", strings.Repeat("hunter2", 99), "no valid key"},
	} {
		t.Run(row.why, func(t *testing.T) {
			err := (&REST{URL: row.url, Key: row.key}).Check()
			if row.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.says)
			require.NotContains(t, err.Error(), "hunter2")
			_, err = FromEnv(func(name string) string {
				return map[string]string{"PERMESSO_URL": row.url, "PERMESSO_KEY": row.key}[name]
			})
			require.Error(t, err)
		})
	}
}

func TestKeyIsNeverPrinted(t *testing.T) {
	r := &REST{URL: "http://127.0.0.1:1", Key: "hunter2", Timeout: time.Nanosecond}
	_, err := r.Ask(t.Context(), approval.Request{ActionType: "exec_cmd"})
	require.ErrorIs(t, err, ErrUnreachable)
	b, jsonErr := json.Marshal(r)
	require.NoError(t, jsonErr)
	for _, text := range []string{err.Error(), fmt.Sprint(r), fmt.Sprintf("%+v %#v %s", r, r, r), string(b)} {
		require.NotContains(t, text, "hunter2")
	}
}

// A proxy would receive the key.
func TestNoProxyIsUsed(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the proxy was used") }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	r := &REST{URL: "http://gate.invalid", Key: "k", Timeout: time.Nanosecond}
	_, err := r.Ask(t.Context(), approval.Request{ActionType: "exec_cmd"})
	require.ErrorIs(t, err, ErrUnreachable)
	require.NoError(t, r.Check())
	tr, ok := r.web.Transport.(*http.Transport)
	require.True(t, ok)
	require.Nil(t, tr.Proxy)
}

func TestFromEnv(t *testing.T) {
	env := map[string]string{}
	get := func(name string) string { return env[name] }
	g, err := FromEnv(get)
	require.NoError(t, err)
	require.Equal(t, Files{Requests: DefaultRequests, Responses: DefaultResponses}, g)
	env["PERMESSO_REQUESTS"], env["PERMESSO_RESPONSES"] = "/a", "/b"
	g, err = FromEnv(get)
	require.NoError(t, err)
	require.Equal(t, Files{Requests: "/a", Responses: "/b"}, g)
	env["PERMESSO_URL"], env["PERMESSO_KEY"] = "http://127.0.0.1:8765", "k"
	g, err = FromEnv(get)
	require.NoError(t, err)
	require.IsType(t, &REST{}, g)
}

// answering is a gate with a fixed response.
func answering(t *testing.T, status int, header http.Header, body string) *REST {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	return &REST{URL: srv.URL, Key: "k", Timeout: time.Nanosecond}
}

func TestRefusals(t *testing.T) {
	problem := http.Header{"Content-Type": {"application/problem+json"}}
	for _, row := range []struct {
		why    string
		status int
		header http.Header
		body   string
		is     error
		says   string
	}{
		{"a problem's sentence", 422, problem, `{"detail":"title: too long"}`, ErrInvalid, "the gate returned 422: title: too long"},
		{"control characters are removed", 422, problem, `{"detail":"a\u001b[2Jb\u202ec\nd"}`, ErrInvalid, "the gate returned 422: a [2Jb c d"},
		{"the text of another server is not repeated", 404, http.Header{"Content-Type": {"text/html"}}, "<b>hi</b>", ErrNotFound, "the gate returned 404: Not Found"},
		{"an unknown key", 401, problem, `{"detail":"Invalid API key"}`, ErrKey, "Invalid API key"},
		{"a key without the scope", 403, problem, `{}`, ErrKey, "403: Forbidden"},
		{"ended", 410, problem, `{"detail":"approval expired"}`, ErrNotPending, "approval expired"},
		{"a limit", 429, problem, `{"detail":"too many requests"}`, ErrUnreachable, "too many requests"},
		{"a degraded gate", 503, nil, "", ErrUnreachable, "503: Service Unavailable"},
		{"an unknown status", 299, nil, `{"approval_id":"appr_0123456789abcdef"}`, ErrNoGate, "299"},
		{"no JSON", 200, nil, "ok", ErrNoGate, "no approval"},
		{"JSON of another kind", 200, nil, `{"id":7}`, ErrNoGate, "no approval"},
		{"no id", 201, nil, `{"approval_id":"../../x"}`, ErrNoGate, "no approval_id"},
		{"an approval without a receipt", 200, nil, `{"approval_id":"appr_0123456789abcdef","outcome":"approved"}`, ErrIDConflict, "without a receipt"},
	} {
		t.Run(row.why, func(t *testing.T) {
			_, err := answering(t, row.status, row.header, row.body).Ask(t.Context(), approval.Request{ActionType: "exec_cmd"})
			require.ErrorIs(t, err, row.is)
			require.ErrorContains(t, err, row.says)
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "0": 0, "-5": 0, "soon": 0, "99999999999999999999": 0,
		"Sat, 21 Nov 2026 12:00:07 GMT": 7 * time.Second, "Sat, 21 Nov 2026 11:59:00 GMT": 0,
	} {
		require.Equal(t, want, retryAfter(text, now), text)
	}
}

// A wait ends with its context, and the error is not ErrUnreachable.
func TestAwaitEndsWithItsContext(t *testing.T) {
	stop := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	}))
	defer srv.Close()
	defer close(stop)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := (&REST{URL: srv.URL, Key: "k"}).Await(ctx, Submitted{ID: "0123456789abcdef"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrUnreachable)
}

// Arguments are sent unchanged, and empty fields are not sent.
func TestRequestBodyIsVerbatim(t *testing.T) {
	b, err := requestBody(&approval.Request{ToolName: "x", RequestData: approval.Raw(`{ "n":1.50e2 ,"a":9007199254740993}`), RequestID: "0123456789abcdef"})
	require.NoError(t, err)
	require.Equal(t, `{"tool_name":"x","request_data":{ "n":1.50e2 ,"a":9007199254740993}}`, string(b)) //nolint:testifylint // byte for byte
	b, err = requestBody(&approval.Request{})
	require.NoError(t, err)
	require.Equal(t, `{"request_data":{}}`, string(b)) //nolint:testifylint // byte for byte
}

func TestNotApproved(t *testing.T) {
	text := func(s string) *string { return &s }
	for status, is := range map[approval.Status]error{
		approval.StatusApproved: nil, approval.StatusAutoApproved: nil,
		approval.StatusDenied: ErrDenied, approval.StatusAutoRejected: ErrRejected, approval.StatusMalformed: ErrMalformed,
		approval.StatusExpired: ErrExpired, approval.StatusCancelled: ErrCancelled, approval.StatusRequestMore: ErrRequestMore,
		approval.StatusOverridden: ErrOverridden, approval.StatusFailed: ErrFailed, approval.StatusInterrupted: ErrFailed,
		approval.StatusAnswered: ErrDenied, // an answer to a question approves nothing
		"":                      ErrDenied, "APPROVED": ErrDenied, "perhaps": ErrDenied,
	} {
		err := Approved(&approval.Response{Status: status, Error: text("why"), Feedback: text("more")})
		require.ErrorIs(t, err, is, status)
		if is != nil {
			require.ErrorContains(t, err, is.Error()+": more")
		}
	}
	require.Error(t, Approved(&approval.Response{}), "the zero response approves nothing")
	require.ErrorIs(t, ErrRejected, ErrDenied)
	require.ErrorIs(t, ErrMalformed, ErrDenied)
}

// fakeGate is a gate with a fixed end.
type fakeGate struct {
	status    approval.Status
	asked     approval.Request
	cancelled int
	waiting   func() // called by Await, which then waits for the end of ctx
	asking    func(context.Context) error
}

func (f *fakeGate) Ask(ctx context.Context, r approval.Request) (Submitted, error) {
	f.asked = r
	if f.asking != nil {
		if err := f.asking(ctx); err != nil {
			return Submitted{}, err
		}
	}
	return Submitted{ID: "0123456789abcdef"}, nil
}

func (f *fakeGate) Await(ctx context.Context, _ Submitted) (*approval.Response, error) {
	if f.waiting != nil {
		f.waiting()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &approval.Response{Status: f.status}, nil
}

func (f *fakeGate) Cancel(ctx context.Context, _ Submitted) error {
	f.cancelled++
	return ctx.Err()
}

func TestNeedsApproval(t *testing.T) {
	ran := 0
	do := func(_ context.Context, a map[string]any) (int, error) {
		ran++
		return len(a), nil
	}
	arg := map[string]any{"b": 1, "a": "x"}
	request := approval.Request{ActionType: "custom:x", Title: "t"}
	g := &fakeGate{status: approval.StatusApproved}
	n, err := NeedsApproval(g, request, do)(t.Context(), arg)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, `{"a":"x","b":1}`, string(g.asked.RequestData)) //nolint:testifylint // byte for byte
	require.Equal(t, "t", g.asked.Title)
	require.Equal(t, 1, ran)

	_, err = NeedsApproval(&fakeGate{status: approval.StatusOverridden}, request, do)(t.Context(), arg)
	require.ErrorIs(t, err, ErrOverridden)
	var no *NotApproved
	require.ErrorAs(t, err, &no)
	_, err = NeedsApproval(g, approval.Request{ToolName: "x_post"}, do)(t.Context(), arg)
	require.ErrorIs(t, err, ErrInvalid, "a tool would also run on the host")
	_, err = NeedsApproval(g, approval.Request{Type: approval.TypeQuestion}, do)(t.Context(), arg)
	require.ErrorIs(t, err, ErrInvalid, "an answer is no approval")
	_, err = NeedsApproval(g, request, func(context.Context, int) (int, error) { ran++; return 0, nil })(t.Context(), 7)
	require.ErrorIs(t, err, ErrInvalid, "the argument is no object")
	_, err = NeedsApproval(g, request, func(context.Context, func()) (int, error) { ran++; return 0, nil })(t.Context(), func() {})
	require.Error(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	g = &fakeGate{waiting: cancel}
	_, err = NeedsApproval(g, request, do)(ctx, arg)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, g.cancelled, "the request is cancelled")
	require.Equal(t, 1, ran)

	ctx, cancel = context.WithCancel(t.Context())
	g = &fakeGate{waiting: func() {}, asking: func(asking context.Context) error { cancel(); return asking.Err() }}
	_, err = NeedsApproval(g, request, do)(ctx, arg)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, g.cancelled, "the request is cancelled if ctx ends during the submission")
	g = &fakeGate{status: approval.StatusApproved}
	_, err = NeedsApproval(g, request, do)(ctx, arg)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, g.asked.Title, "no request after the end of ctx")
	ctx, cancel = context.WithCancel(t.Context())
	g = &fakeGate{asking: func(context.Context) error { cancel(); return ErrUnreachable }}
	_, err = NeedsApproval(g, request, do)(ctx, arg)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, g.cancelled)
	require.Equal(t, 1, ran)
}

// A response for other bytes under the same id is refused.
func TestFilesCompareTheDigest(t *testing.T) {
	f := Files{Requests: t.TempDir(), Responses: t.TempDir()}
	a, err := f.Ask(t.Context(), approval.Request{ToolName: "x"})
	require.NoError(t, err)
	put := Files{Requests: f.Responses}
	b, err := (&approval.Response{Version: approval.Version, RequestID: a.ID, Status: approval.StatusApproved, RequestSHA256: approval.Digest(nil)}).Encode()
	require.NoError(t, err)
	require.NoError(t, put.Submit(a.ID, b))
	_, err = f.Await(t.Context(), a)
	require.ErrorIs(t, err, ErrIDConflict)
	_, err = f.Await(t.Context(), Submitted{ID: a.ID})
	require.NoError(t, err, "with only the id there is no digest to compare")
}

// Errors of the network contain the URL, but never the key.
func TestErrorsOfTheNetwork(t *testing.T) {
	_, err := (&REST{URL: "http://127.0.0.1:1/p", Key: "hunter2", Timeout: time.Nanosecond}).Await(t.Context(), Submitted{ID: "appr_0123456789abcdef"})
	var u *url.Error
	require.ErrorAs(t, err, &u)
	require.Contains(t, u.URL, "http://127.0.0.1:1/p/v1/approvals/appr_0123456789abcdef?wait=30")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

// What goes wrong in the network is told in words, with the address that was given.
func TestNetworkErrorsArePlain(t *testing.T) {
	serve := func(answer string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, answer)
				_ = c.Close()
			}
		}()
		return "http://" + l.Addr().String()
	}
	none := "unix://" + filepath.Join(t.TempDir(), "none.sock")
	for url, says := range map[string]string{
		serve(""):              " ", // it has closed the connection, or does not speak HTTP, as the transport sees it
		serve("SSH-2.0-x\r\n"): " ",
		none:                   "nothing listens at " + none,
		"http://127.0.0.1:1":   "nothing listens at http://127.0.0.1:1",
	} {
		r := &REST{URL: url, Key: "k"}
		require.NoError(t, r.Check())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := r.Await(ctx, Submitted{ID: "0123456789abcdef"})
		cancel()
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, url)
		require.NotRegexp(t, `dial |read tcp|EOF|net/http|malformed|Get "`, err.Error())
	}
}
