package web_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat/web"
)

// set sets headers of a request. The value "" removes one.
func set(pairs ...string) func(r *http.Request) {
	return func(r *http.Request) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] == "" {
				r.Header.Del(pairs[i])
			} else {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
}

// A POST from a foreign page decides nothing, even with the session's path and
// cookie.
func TestCrossOriginPosts(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	path := b.sessionPath + "r/personal/" + k.ID + "/decide"
	body := url.Values{"sha": {w.sha(k)}, "code": {"1"}, "sure": {"yes"}}.Encode()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(w.base, "http://"))
	require.NoError(t, err)
	for _, c := range []struct {
		why    string
		code   int
		change func(r *http.Request)
	}{
		{"another site", 403, set("Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")},
		{"another site, no Sec-Fetch-Site", 403, set("Origin", "https://evil.example", "Sec-Fetch-Site", "")},
		{"a sandboxed frame", 403, set("Origin", "null", "Sec-Fetch-Site", "cross-site")},
		{"Origin: null, no Sec-Fetch-Site", 403, set("Origin", "null", "Sec-Fetch-Site", "")},
		{"Origin: null, but same-origin", 403, set("Origin", "null")},
		{"no Origin, cross-site", 403, set("Origin", "", "Sec-Fetch-Site", "cross-site")},
		{"another port of this host: same site, other origin", 403, set("Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site")},
		{"another port, no Sec-Fetch-Site", 403, set("Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "")},
		{"no Origin, from another port", 403, set("Origin", "", "Sec-Fetch-Site", "same-site")},
		{"a typed address", 403, set("Origin", "", "Sec-Fetch-Site", "none")},
		{"neither Origin nor Sec-Fetch-Site", 403, set("Origin", "", "Sec-Fetch-Site", "")},
		{"one of our names, but not that of Host", 403, set("Origin", "http://localhost:"+port)},
		{"a name that begins with ours", 403, set("Origin", w.base+".evil.example")},
		{"two origins", 403, func(r *http.Request) { r.Header["Origin"] = []string{w.base, "https://evil.example"} }},
		{"a foreign name", 421, func(r *http.Request) { r.Host = "evil.example" }},
		{"a foreign name rebound to our address", 421, func(r *http.Request) {
			r.Host = "rebound.example:" + port
			r.Header.Set("Origin", "http://rebound.example:"+port)
		}},
		{"our address, another port", 421, func(r *http.Request) { r.Host = "127.0.0.1:1" }},
		{"our name with a trailing dot", 421, func(r *http.Request) { r.Host = "localhost.:" + port }},
		{"in a frame", 403, set("Sec-Fetch-Dest", "iframe")},
		{"in an object", 403, set("Sec-Fetch-Dest", "object")},
		{"text/plain, which any page may send", 415, set("Content-Type", "text/plain")},
		{"multipart", 415, set("Content-Type", "multipart/form-data; boundary=x")},
		{"JSON", 415, set("Content-Type", "application/json")},
		{"no content type", 415, set("Content-Type", "")},
		{"two content types", 415, func(r *http.Request) {
			r.Header["Content-Type"] = []string{"application/x-www-form-urlencoded", "text/plain"}
		}},
		{"another charset", 415, set("Content-Type", "application/x-www-form-urlencoded; charset=utf-7")},
		{"compressed", 415, set("Content-Encoding", "gzip")},
		{"another cookie", 403, set("Cookie", "permesso_ui="+strings.Repeat("0", 64))},
		{"another method", 405, func(r *http.Request) { r.Method = http.MethodPut }},
		{"a GET with a body", 403, func(r *http.Request) { r.Method = http.MethodGet }},
		{"GET instead of POST", 405, func(r *http.Request) { r.Method = http.MethodGet; r.Body, r.ContentLength = nil, 0 }},
	} {
		var p *page
		if c.why == "another cookie" {
			p = w.newBrowser().do(http.MethodPost, path, body, c.change)
		} else {
			p = b.do(http.MethodPost, path, body, c.change)
		}
		require.Equal(t, c.code, p.StatusCode, c.why)
		require.Zero(t, w.decisionCount(), c.why)
	}
	for _, host := range []string{"localhost:" + port, "[::1]:" + port, "LocalHost:" + port, "gate.test"} {
		require.Equal(t, http.StatusOK, b.do(http.MethodGet, "/", "", func(r *http.Request) { r.Host = host }).StatusCode, host)
	}
	for why, change := range map[string]func(*http.Request){
		"our page":                    nil,
		"only Origin, an old browser": set("Sec-Fetch-Site", ""),
		"only Sec-Fetch-Site":         set("Origin", ""),
	} {
		k := w.addRequest(2, nil)
		before := w.decisionCount()
		p := b.do(http.MethodPost, b.sessionPath+"r/personal/"+k.ID+"/decide", url.Values{"sha": {w.sha(k)}, "code": {"3"}}.Encode(), func(r *http.Request) {
			if change != nil {
				change(r)
			}
		})
		require.Equal(t, http.StatusSeeOther, p.StatusCode, why)
		require.Equal(t, before+1, w.decisionCount(), why)
		w.mu.Lock()
		delete(w.decided, k)
		w.mu.Unlock()
	}
}

// Foreign pages cannot read our pages or put them in a frame.
func TestCrossOriginGets(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	for _, path := range []string{"", "r/personal/" + k.ID, "events?rev=0", "history", "audit"} {
		for _, change := range []func(*http.Request){
			set("Sec-Fetch-Site", "cross-site"), set("Sec-Fetch-Site", "same-site"), set("Sec-Fetch-Dest", "iframe"),
			func(r *http.Request) { r.Host = "evil.example" },
		} {
			p := b.do(http.MethodGet, b.sessionPath+path, "", change)
			require.GreaterOrEqual(t, p.StatusCode, 400, path)
			require.NotContains(t, p.text, "Meeting")
		}
	}
	for _, path := range []string{b.sessionPath, b.sessionPath + "r/personal/" + k.ID, "/", "/enter/x", "/nothing", "/static/app.js", b.sessionPath + "nothing"} {
		h := b.get(path).Header
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
		} {
			require.Contains(t, policy, part, path)
		}
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "DENY", h.Get("X-Frame-Options"))
		require.Equal(t, "same-origin", h.Get("Referrer-Policy"))
		require.Equal(t, "same-origin", h.Get("Cross-Origin-Opener-Policy"))
		require.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"))
		require.Regexp(t, "no-store|no-cache", h.Get("Cache-Control"), path)
		require.Empty(t, h.Get("Access-Control-Allow-Origin"))
	}
}

func TestLinks(t *testing.T) {
	w := newFixture(t)
	b := w.newBrowser()
	token := w.token()
	require.Len(t, token, 64, "256 bits")
	for range 3 {
		p := b.get("/enter/" + token)
		require.Equal(t, http.StatusOK, p.StatusCode)
		require.Equal(t, token, attr(p.find("login"), "data-never")+token)
		require.Empty(t, p.Cookies(), "opening the login page starts no session")
	}
	require.Equal(t, 200, b.get("/enter/"+strings.Repeat("0", 64)).StatusCode, "an invalid link looks the same")
	enter := func(token string, change func(*http.Request)) *page {
		return w.newBrowser().do(http.MethodPost, "/enter", url.Values{"token": {token}}.Encode(), change)
	}
	require.Equal(t, 403, enter(token, set("Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")).StatusCode)
	first := enter(token, nil)
	require.Equal(t, http.StatusSeeOther, first.StatusCode, "the refused attempt did not use it up")
	c := first.Cookies()[0]
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.Equal(t, first.Header.Get("Location"), c.Path, "limited to the session's path: other ports of this host get all other cookies")
	require.Regexp(t, "^/s/[0-9a-f]{32}/$", c.Path)
	require.Empty(t, c.Domain)
	require.Zero(t, c.MaxAge)
	require.Equal(t, 403, enter(token, nil).StatusCode, "used")
	late := w.token()
	w.advance(time.Minute)
	require.Equal(t, 403, enter(late, nil).StatusCode, "expired")
	for _, wrong := range []string{"", "x", strings.Repeat("0", 64), strings.ToUpper(w.token()), w.token() + "0"} {
		require.Equal(t, 403, enter(wrong, nil).StatusCode, wrong)
	}
	for range 200 {
		if _, _, err := w.server.Link(ann); err != nil {
			require.ErrorIs(t, err, web.ErrFull)
			return
		}
	}
	t.Fatal("no limit on links")
}

func TestSessionsEnd(t *testing.T) {
	w := newFixture(t)
	is := func(b *browser, code int, why string) {
		t.Helper()
		require.Equal(t, code, b.page("").StatusCode, why)
	}
	one, two := w.login(), w.login()
	two.client.Jar = one.client.Jar
	is(two, 403, "the cookie of another session")

	b := w.login()
	s := b.listen("rev=0")
	require.Equal(t, http.StatusSeeOther, b.post(b.sessionPath+"leave", nil).StatusCode)
	s.until(func(e streamEvent) bool { return e.name == "over" })
	is(b, 403, "logged out")

	b = w.login()
	w.advance(59 * time.Minute)
	is(b, 200, "used")
	w.advance(59 * time.Minute)
	is(b, 200, "used again")
	w.advance(time.Hour)
	is(b, 403, "idle for an hour")

	b = w.login()
	for range 11 {
		w.advance(50 * time.Minute)
		is(b, 200, "in use")
	}
	w.advance(3 * time.Hour)
	is(b, 403, "12 hours, although in use")

	b = w.login()
	s = b.listen("rev=0")
	s.next()
	w.advance(2 * time.Hour)
	is(b, 200, "an open page counts as use")
	w.allow(func(r *web.Rights) { r.See, r.Decide = nil, nil })
	w.server.Changed(approval.Key{})
	s.until(func(e streamEvent) bool { return e.name == "over" })
	is(b, 403, "no longer an approver")
	w.allow(func(r *web.Rights) { r.See, r.Decide = []string{workspace}, []string{workspace} })
	is(b, 403, "the session stays ended")

	b = w.login()
	w.stop()
	w.server = &web.Server{People: w, Viewer: w, Workspaces: w.server.Workspaces, Now: w.clock}
	w.serve()
	b.base = w.base
	is(b, 403, "a cookie of an earlier daemon")

	sessions := []*browser{}
	for range 70 {
		sessions = append(sessions, w.login())
		w.advance(time.Second)
	}
	is(sessions[0], 403, "too many sessions: the least recently used one ended")
	is(sessions[69], 200, "the newest stays")
}

// Every route but the login page needs a session, and no GET changes anything.
func TestEveryRouteNeedsASession(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	w.grants = []grant.Use{{Grant: grant.Grant{ID: k.ID, Terms: approval.Terms{Workspace: workspace}, ExpiresAt: w.clock().Add(time.Hour)}}}
	form := url.Values{
		"sha": {w.sha(k)}, "code": {"1"}, "sure": {"yes"}, "ws": {workspace}, "id": {k.ID}, "undo": {"yes"}, "lang": {"it"}, "keys": {"on"}, "verify": {"yes"},
	}
	patterns := web.SessionRoutes()
	require.Greater(t, len(patterns), 15)
	for _, pattern := range patterns {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{ws}", workspace, "{id}", k.ID, "{$}", "").Replace(path)
		body := ""
		if method == http.MethodPost {
			body = form.Encode()
		}
		for why, at := range map[string]string{
			"the right path, without its cookie": strings.TrimSuffix(b.sessionPath, "/"), "a path of no session": "/s/" + strings.Repeat("0", 32),
		} {
			p := w.newBrowser().do(method, at+path, body, nil)
			require.Equal(t, http.StatusForbidden, p.StatusCode, "%s: %s", pattern, why)
			require.NotContains(t, p.text, "Meeting")
			require.Empty(t, p.Cookies(), pattern)
		}
		if strings.HasSuffix(path, "/events") {
			continue // the stream does not end
		}
		p := b.do(http.MethodGet, strings.TrimSuffix(b.sessionPath, "/")+path+"?"+form.Encode(), "", nil)
		if method == http.MethodPost {
			require.Equal(t, http.StatusMethodNotAllowed, p.StatusCode, pattern)
		}
		require.Empty(t, p.Cookies(), pattern)
	}
	require.Zero(t, w.decisionCount())
	require.Empty(t, w.pausedWorkspaces)
	require.Zero(t, w.verified)
	require.Empty(t, w.cleared)
	require.Empty(t, w.reveals)
	require.True(t, w.grants[0].RevokedAt.IsZero())
	require.Equal(t, http.StatusOK, b.page("").StatusCode, "the session still works")
}

// The zero Server refuses everything.
func TestZeroServer(t *testing.T) {
	w := newFixture(t)
	w.stop()
	w.server = &web.Server{Now: w.clock}
	w.serve()
	b := w.login()
	require.Equal(t, http.StatusForbidden, b.page("").StatusCode)
	w.stop()
	w.server.Hosts = nil
	hosts := w.server.Handler()
	require.NotNil(t, hosts)
}

// A thousand clients that send nothing, or part of a request, do not block other
// clients.
func TestSlowClients(t *testing.T) {
	const timeout = time.Minute
	w := newFixture(t, func(w *fixture) { w.server.IOTimeout = timeout })
	b := w.login()
	k := w.addRequest(1, nil)
	address := strings.TrimPrefix(w.base, "http://")
	var wg sync.WaitGroup
	conns := make(chan net.Conn, 1000)
	for n := range 1000 {
		wg.Go(func() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			switch n % 3 {
			case 0:
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: ")
			case 1:
				_, _ = io.WriteString(c, "POST "+b.sessionPath+"r/personal/"+k.ID+"/decide HTTP/1.1\r\nHost: "+address+"\r\nOrigin: "+w.base+
					"\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 60000\r\n\r\nsha=")
			}
			conns <- c
		})
	}
	wg.Wait()
	close(conns)
	for c := range conns {
		t.Cleanup(func() { _ = c.Close() })
	}
	s := b.listen("rev=0")
	began := time.Now()
	require.Equal(t, http.StatusOK, b.page("").StatusCode)
	p := b.follow(b.decide(k, url.Values{"code": {"3"}}))
	require.Contains(t, innerText(p.find("note")), "Denied")
	s.until(func(e streamEvent) bool { return e.Waiting == 0 })
	require.Less(t, time.Since(began), timeout, "the slow clients are still connected")
	require.Equal(t, 1, w.decisionCount())
}

// A connection beyond the limit is closed at once, and a closed one frees its slot.
func TestTooManyConnections(t *testing.T) {
	w := newFixture(t, func(w *fixture) { w.server.Connections = 2 })
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.base, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	served := func(c net.Conn) bool {
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: gate.test\r\n\r\n")
		if err != nil {
			return false
		}
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		n, _ := c.Read(make([]byte, 1))
		return n == 1
	}
	first, second := dial(), dial()
	require.True(t, served(first))
	require.True(t, served(second))
	require.False(t, served(dial()))
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { return served(dial()) }, time.Minute, time.Millisecond)
	require.False(t, served(dial()))
}

// Streams and bodies are limited.
func TestBounds(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	p := b.decide(k, url.Values{"code": {"4"}, "text": {strings.Repeat("x", 65<<10)}})
	require.Equal(t, http.StatusBadRequest, p.StatusCode)
	require.Zero(t, w.decisionCount())
	full := false
	for range 40 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+b.sessionPath+"events?rev=0", nil)
		require.NoError(t, err)
		resp, err := (&http.Client{Jar: b.client.Jar}).Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		full = full || resp.StatusCode == http.StatusTooManyRequests
	}
	require.True(t, full, "no limit on the streams of a session")
}

// Many searches in a long log do not block other pages.
func TestLogReadersAreLimited(t *testing.T) {
	w := newFixture(t)
	w.blockHistory = make(chan struct{})
	b := w.login()
	k := w.addRequest(1, nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { b.page("history?q=x") })
	}
	for end := time.Now().Add(time.Minute); w.historyReaders.Load() < 2; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "no page reads the log")
	}
	for range 10 { // the other searches wait for a slot, these pages do not
		require.Equal(t, http.StatusOK, b.page("r/personal/"+k.ID).StatusCode)
		require.EqualValues(t, 2, w.historyReaders.Load())
	}
	close(w.blockHistory)
	wg.Wait()
}

// No token and no other input of a browser is logged.
func TestSecretsAreNotLogged(t *testing.T) {
	var mu sync.Mutex
	var logged strings.Builder
	w := newFixture(t, func(w *fixture) {
		w.server.Log = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			logged.WriteString(err.Error())
		}
	})
	token := w.token()
	b := w.newBrowser()
	b.get("/enter/" + token)
	b.post("/enter", url.Values{"token": {token}})
	b.post("/enter", url.Values{"token": {token}})
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, logged.String())
}

// The bundled htmx is the published file, with its license.
func TestHtmx(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("static", "htmx.min.js"))
	require.NoError(t, err)
	require.Contains(t, string(b), `version:"2.0.11"`)
	require.Equal(t, htmxDigest, approval.Digest(b))
	_, err = os.Stat(filepath.Join("static", "htmx.LICENSE"))
	require.NoError(t, err)
}

const htmxDigest = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
