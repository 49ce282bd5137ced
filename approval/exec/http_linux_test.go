package exec

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// request is a handler that calls a server on loopback, which is named.
func request(method, to string, change ...func(*approval.HTTP)) approval.Handler {
	u, _ := url.Parse(strings.NewReplacer("{", "", "}", "").Replace(to))
	h := approval.Handler{Kind: approval.HandlerHTTP, HTTP: approval.HTTP{Method: method, URL: to, AllowPrivate: []string{u.Host}}}
	for _, c := range change {
		c(&h.HTTP)
	}
	return h
}

func secretIn(t testing.TB, content string) string {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// seen is one request as a server got it.
type seen struct {
	method, uri, body string
	header            http.Header
}

// recorder keeps the requests of a server that answers all of them alike.
func recorder(t testing.TB, answer http.HandlerFunc) (*httptest.Server, *[]seen) {
	var got []seen
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, seen{r.Method, r.RequestURI, string(b), r.Header.Clone()})
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv, &got
}

func TestARequestIsSentAsConfigured(t *testing.T) {
	srv, got := recorder(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Location", "/v1/posts/7")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, ` {"id":9007199254740993, "text":"\u00e9"}`+"\n")
	})
	h := request("POST", srv.URL+"/v1/{box}/posts?q={text}&n={n}", func(h *approval.HTTP) {
		h.Body = `{"text":{text},"n":[{n}],"to":{to},"fix":"{ }"}`
		h.Headers = map[string]string{"X-Kind": "post"}
		h.SecretHeaders = map[string]string{"Authorization": "Bearer " + secretIn(t, "s3cr3t-t0ken\n"), "X-Api-Key": secretIn(t, "another-secret")}
	})
	job := jobOf(h, `{"text":"a b&c=\u00e9/..","n":1.50e400,"to":null,"box":"in box"}`)
	job.Key = "a7f3b2c1d4e5f6a7"
	e := newRunner(t).Run(t.Context(), job)
	require.Equal(t, approval.Effect{
		Result:  approval.Raw(`{"status":201,"location":"/v1/posts/7","body":{"id":9007199254740993, "text":"\u00e9"}}`),
		Started: true,
	}, e)
	require.Len(t, *got, 1)
	r := (*got)[0]
	require.Equal(t, "POST", r.method)
	require.Equal(t, "/v1/in%20box/posts?q=a%20b%26c%3D%C3%A9%2F..&n=1.50e400", r.uri)
	require.Equal(t, `{"text":"a b&c=\u00e9/..","n":[1.50e400],"to":null,"fix":"{ }"}`, r.body)
	require.Equal(t, http.Header{
		"Accept-Encoding": {"identity"}, "Authorization": {"Bearer s3cr3t-t0ken"}, "Connection": {"close"}, "Content-Length": {"63"},
		"Content-Type": {"application/json"}, "Idempotency-Key": {"a7f3b2c1d4e5f6a7"}, "User-Agent": {"permesso"}, "X-Api-Key": {"another-secret"}, "X-Kind": {"post"},
	}, r.header)
}

// raw is a server that says what it likes on a connection, or nothing. It
// counts the connections it got.
func raw(t testing.TB, serve func(conn net.Conn, r *bufio.Reader)) (address string, count func() int) {
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

// Nobody is told that nothing happened when something may have, and a request
// is never sent twice.
func TestABrokenConnectionIsAnUnknownOutcome(t *testing.T) {
	whole := func(r *bufio.Reader) { _, _ = http.ReadRequest(r) }
	for why, tc := range map[string]struct {
		serve func(net.Conn, *bufio.Reader)
		want  string
	}{
		"closed at once":            {func(net.Conn, *bufio.Reader) {}, "outcome unknown: the connection broke"},
		"reset after a byte":        {func(c net.Conn, r *bufio.Reader) { _, _ = r.ReadByte(); _ = c.(*net.TCPConn).SetLinger(0) }, "outcome unknown: the connection broke"},
		"closed after a byte":       {func(_ net.Conn, r *bufio.Reader) { _, _ = r.ReadByte() }, "outcome unknown: the connection broke"},
		"closed after the request":  {func(_ net.Conn, r *bufio.Reader) { whole(r) }, "outcome unknown: the connection broke"},
		"closed in the status line": {func(c net.Conn, r *bufio.Reader) { whole(r); _, _ = io.WriteString(c, "HTTP/1.1 20") }, "outcome unknown: the connection broke"},
		"closed in the headers": {func(c net.Conn, r *bufio.Reader) {
			whole(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le")
		}, "outcome unknown: the connection broke"},
		"not HTTP": {func(c net.Conn, r *bufio.Reader) { whole(r); _, _ = io.WriteString(c, "220 mail\r\n\r\n") }, "outcome unknown: the connection broke"},
		"too many headers": {func(c net.Conn, r *bufio.Reader) {
			whole(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 200<<10)+"\r\n\r\n")
		}, "outcome unknown: the connection broke"},
	} {
		for _, method := range []string{"POST", "GET"} {
			t.Run(why+" "+method, func(t *testing.T) {
				address, count := raw(t, tc.serve)
				h := request(method, "http://"+address+"/", func(h *approval.HTTP) { h.BodyArgs = method == "POST" })
				e := run(t, newRunner(t), h, `{"a":1}`)
				require.Contains(t, e.Error, "Execution failed: "+tc.want)
				require.Contains(t, e.Error, "check before you ask again")
				require.True(t, e.Started)
				require.Equal(t, 1, count(), "sent once")
			})
		}
	}
}
