package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/ipc/service"
)

// localRig is a LocalServer with one operation for approvers and one for the operator.
// The UID of the test process is ann's.
type localRig struct {
	t      *testing.T
	path   string
	server *LocalServer

	mu      sync.Mutex
	caller  Caller
	refused []approval.Person
	asked   []Caller
	big     int // bytes of a response
	broken  error
	holding chan struct{} // the operation waits for it
	entered chan struct{}
}

// sayIn is the input of the test's operation.
type sayIn struct {
	Name string `path:"name"`
	Body struct {
		Note string `json:"note"`
	}
}

func (h *localRig) Key(string) (*apikey.Key, error) { return nil, fs.ErrNotExist }

func (h *localRig) WorkspaceInfo(ws string) (service.WorkspaceInfo, bool) {
	return service.WorkspaceInfo{MaxSize: 1 << 10}, ws == "annes"
}

func (h *localRig) Submit(_ context.Context, k approval.Key, _ []byte, from submit.Origin) (submit.Result, error) {
	if k.Workspace != "annes" || from.Principal != "" {
		return submit.Result{}, errors.New("wrong origin")
	}
	return submit.Result{Pending: &approval.Pending{RequestID: k.ID, SourceGroup: k.Workspace, ExpiresAt: time.Now().Add(time.Hour)}}, nil
}

func (h *localRig) Cancel(context.Context, approval.Key, submit.Origin, string) (*approval.Decision, error) {
	return nil, &decide.Refusal{Reason: decide.ErrUnknown}
}

func newLocalRig(t *testing.T, change ...func(*localRig)) (h *localRig, stop func()) {
	t.Helper()
	h = &localRig{t: t, path: filepath.Join(t.TempDir(), "p.sock")}
	h.caller = Caller{Via: "socket", Workspaces: []string{"annes"}, Language: "it"}
	api := &Server{Version: "7", Log: zerolog.Nop(), Keys: h, Service: &service.Service{Gate: h, Settings: h}}
	api.Local = []LocalOperation{
		Operation("say", http.MethodPost, "/say/{name}", "Say", func(_ context.Context, c *Caller, in *sayIn) (string, error) {
			if h.holding != nil {
				close(h.entered)
				<-h.holding
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.asked = append(h.asked, *c)
			return in.Name + " " + in.Body.Note, h.broken
		}),
		Operation("cancelled", http.MethodGet, "/cancelled", "Whether the caller can cancel it", func(ctx context.Context, _ *Caller, _ *struct{}) (bool, error) {
			return ctx.Done() != nil, nil
		}),
		Operation("big", http.MethodGet, "/big", "A long response", func(context.Context, *Caller, *struct{}) (string, error) {
			return strings.Repeat("x", h.big), nil
		}),
	}
	h.server = &LocalServer{
		API: api,
		Who: func(uid, _ string) *Caller {
			h.mu.Lock()
			defer h.mu.Unlock()
			c := h.caller
			c.Person = approval.Person{Channel: "local", ID: uid}
			if uid != strconv.Itoa(os.Getuid()) {
				c.Operator, c.Workspaces = false, nil
			}
			return &c
		},
		Refused: func(p approval.Person) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.refused = append(h.refused, p)
		},
	}
	for _, f := range change {
		f(h)
	}
	l, err := ListenLocal(h.path, false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.server.Run(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			require.Fail(t, "Run does not end")
		}
	})
	t.Cleanup(stop)
	return h, stop
}

func (h *localRig) set(change func(c *Caller)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.caller)
}

func (h *localRig) dial(sent string) net.Conn {
	h.t.Helper()
	conn, err := DialUnix(h.t.Context(), h.path)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { conn.Close() })
	_, _ = io.WriteString(conn, sent) // refused unread: then the answer is already there
	return conn
}

// post is a request as a client writes it.
func post(path, body string, header ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), strings.Join(header, ""), body)
}

const (
	hello = "/v1/local/say/ann"
	empty = `{"note":"n"}`
)

func response(r *bufio.Reader) (status int, header http.Header, body string, err error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(b), err
}

func (h *localRig) ask(request string) (status int, body string) {
	h.t.Helper()
	conn := h.dial(request)
	defer conn.Close()
	status, header, body, err := response(bufio.NewReader(conn))
	require.NoError(h.t, err)
	require.Equal(h.t, "7", header.Get(VersionHeader))
	return status, body
}

// A caller that closes its direction of the connection after the request gets the answer.
func TestLocalCallerSendsNoMore(t *testing.T) {
	h, _ := newLocalRig(t)
	conn := h.dial("GET /v1/local/cancelled HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, conn.(*net.UnixConn).CloseWrite())
	status, _, body, err := response(bufio.NewReader(conn))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "false", body)
}

func TestLocalCaller(t *testing.T) {
	h, _ := newLocalRig(t)
	status, body := h.ask(post(hello, empty, "Authorization: Bearer permesso_forged\r\n"))
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, `"ann n"`, body)
	require.Equal(t, []Caller{{
		Person: approval.Person{Channel: "local", ID: strconv.Itoa(os.Getuid())}, Via: "socket", Workspaces: []string{"annes"}, Language: "it",
	}}, h.asked, "the kernel reports who decides")
	require.Empty(t, h.refused)
	for _, row := range []struct {
		why, request string
		status       int
		says         string
	}{
		{"an unknown member", post(hello, `{"note":"n","by":"bob"}`), 422, "unexpected property"},
		{"an unknown query", "GET /v1/local/big?root=1 HTTP/1.1\r\nHost: x\r\n\r\n", 422, "unknown query"},
		{"another type, as a page sends it", strings.Replace(post(hello, empty), "application/json", "text/plain", 1), 415, "must be application/json"},
		{"from a page", post(hello, empty, "Origin: http://evil.example\r\n"), 403, "browser requests are refused"},
		{"a path that does not exist", post("/v1/local/none", empty), 404, "unknown path"},
		{"a request, which only the operator submits", post("/v1/approvals", "{}", "Permesso-Workspace: annes\r\n"), 403, "only the operator"},
		{"the list of requests", "GET /v1/approvals HTTP/1.1\r\nHost: x\r\nPermesso-Workspace: annes\r\n\r\n", 403, "only the operator"},
		{"metrics of all workspaces", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 403, "only the operator"},
	} {
		status, body := h.ask(row.request)
		require.Equal(t, row.status, status, "%s: %s", row.why, body)
		require.Contains(t, body, row.says, row.why)
	}
}

func TestLocalOperatorSubmits(t *testing.T) {
	h, _ := newLocalRig(t, func(h *localRig) { h.caller = Caller{Operator: true} })
	body := `{"type":"action","tool_name":"x"}`
	status, text := h.ask(post("/v1/approvals", body, "Permesso-Workspace: annes\r\n"))
	require.Equal(t, http.StatusCreated, status, text)
	require.Contains(t, text, `"status":"pending"`)
	status, text = h.ask(post("/v1/approvals", body))
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, text, "Permesso-Workspace")
}

// An operation for local callers does not take a key.
func TestLocalOperationWithAKey(t *testing.T) {
	h, _ := newLocalRig(t)
	w := &recorder{header: http.Header{}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+hello, strings.NewReader(empty))
	require.NoError(t, err)
	h.server.API.Hosts = []string{"x"}
	h.server.API.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusUnauthorized, w.status)
	require.Empty(t, h.asked)

	k := &apikey.Key{Scopes: apikey.Scopes()}
	r = r.WithContext(context.WithValue(t.Context(), keyContext{}, k))
	mux := http.NewServeMux()
	h.server.API.api(mux)
	w = &recorder{header: http.Header{}}
	mux.ServeHTTP(w, r)
	require.Equal(t, http.StatusForbidden, w.status)
	require.Empty(t, h.asked)
}

type recorder struct {
	header http.Header
	status int
	bytes.Buffer
}

func (w *recorder) Header() http.Header    { return w.header }
func (w *recorder) WriteHeader(status int) { w.status = status }

func TestLocalStrangers(t *testing.T) {
	h, _ := newLocalRig(t, func(h *localRig) { h.caller.Workspaces = nil })
	for range 50 { // whichever side writes or closes first
		status, body := h.ask(post(hello, empty))
		require.Equal(t, http.StatusForbidden, status)
		require.Contains(t, body, `"detail":"nothing here for you"`)
	}
	require.Empty(t, h.asked)
	h.mu.Lock()
	require.Len(t, h.refused, 50)
	require.Equal(t, strconv.Itoa(os.Getuid()), h.refused[0].ID)
	h.mu.Unlock()

	// The answer comes unread: nothing was sent.
	status, _, body, err := response(bufio.NewReader(h.dial("")))
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, body, "nothing here for you")
}

// The configuration counts at every request, not when the caller connected.
func TestLocalStrangerFromNowOn(t *testing.T) {
	h, _ := newLocalRig(t)
	conn := h.dial("")
	r := bufio.NewReader(conn)
	ask := func() int {
		_, _ = io.WriteString(conn, post(hello, empty))
		status, _, _, err := response(r)
		require.NoError(t, err)
		return status
	}
	require.Equal(t, http.StatusOK, ask())
	h.set(func(c *Caller) { c.Workspaces = nil })
	require.Equal(t, http.StatusForbidden, ask())
	_, err := r.ReadByte()
	require.Error(t, err, "closed")
	require.Len(t, h.refused, 1)
}

func TestLocalSlowClients(t *testing.T) {
	h, _ := newLocalRig(t, func(h *localRig) { h.server.IOTimeout, h.big = 200*time.Millisecond, 4<<20 }) // more than a socket holds
	big := "GET /v1/local/big HTTP/1.1\r\nHost: x\r\n\r\n"
	silent, half, deaf := h.dial(""), h.dial("GET /v1/loc"), h.dial(big)
	for _, conn := range []net.Conn{silent, half} {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, err := io.ReadAll(conn)
		require.NoError(t, err, "closed by the server")
	}
	// Meanwhile, while one does not read, others are served.
	require.Eventually(t, func() bool {
		conn, err := DialUnix(t.Context(), h.path)
		if err != nil {
			return false
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, post(hello, empty))
		status, _, _, err := response(bufio.NewReader(conn))
		return err == nil && status == http.StatusOK
	}, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		h.server.open.mu.Lock()
		defer h.server.open.mu.Unlock()
		return len(h.server.open.n) == 0
	}, 20*time.Second, time.Millisecond, "the server closes it in the end")
	require.NoError(t, deaf.SetReadDeadline(time.Now().Add(20*time.Second)))
	b, _ := io.ReadAll(deaf)
	require.Less(t, len(b), h.big, "not sent completely")
}

// What a socket does not hold at once arrives whole at a client that reads.
func TestLocalBigAnswer(t *testing.T) {
	h, _ := newLocalRig(t, func(h *localRig) { h.big = 4 << 20 })
	status, body := h.ask("GET /v1/local/big HTTP/1.1\r\nHost: x\r\n\r\n")
	require.Equal(t, http.StatusOK, status)
	require.Len(t, body, h.big+2)
}

func TestLocalTooManyConnections(t *testing.T) {
	h, _ := newLocalRig(t)
	var held []net.Conn
	for range maxPerUser {
		conn := h.dial(post(hello, empty))
		held = append(held, conn)
		_, _, _, err := response(bufio.NewReader(conn))
		require.NoError(t, err) // so that it is admitted
	}
	status, body := h.ask(post(hello, empty))
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Contains(t, body, "too many connections")
	require.NoError(t, held[0].Close())
	require.Eventually(t, func() bool { status, _ := h.ask(post(hello, empty)); return status == http.StatusOK }, time.Minute, time.Millisecond)
}

// What was decided while the server stops is still answered, and idle connections do not
// delay the stop.
func TestLocalStopAnswersRequestsInProgress(t *testing.T) {
	h, stop := newLocalRig(t, func(h *localRig) { h.holding, h.entered = make(chan struct{}), make(chan struct{}) })
	h.dial("")
	h.dial("GET /v1/lo")
	answered := make(chan string, 1)
	conn := h.dial(post(hello, empty))
	go func() {
		_, _, body, err := response(bufio.NewReader(conn))
		answered <- fmt.Sprint(body, err)
	}()
	<-h.entered
	stopped := make(chan struct{})
	began := time.Now()
	go func() { stop(); close(stopped) }()
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", h.path)
		if err == nil {
			c.Close()
		}
		return err != nil
	}, 20*time.Second, time.Millisecond, "no new client is accepted")
	close(h.holding)
	require.Equal(t, `"ann n"<nil>`, <-answered)
	<-stopped
	require.Less(t, time.Since(began), 4*time.Second)
}

func TestLocalHugeRequest(t *testing.T) {
	h, _ := newLocalRig(t)
	status, body := h.ask(post(hello, `{"note":"`+strings.Repeat("x", maxLocalBody)+`"}`))
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Contains(t, body, "too large")
	require.Empty(t, h.asked)
}

// A home may lie so deep that its socket's path does not fit into an address.
func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, "permesso.sock")
	for range 2 { // the second time it exists already
		l, err := ListenLocal(path, true)
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
		c, err := DialUnix(t.Context(), path)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
	}
}
