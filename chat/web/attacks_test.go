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
	"github.com/permesso-dev/permesso/chat/web"
)

// set gives headers of a request, "" takes one away.
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

// Who has the session's path and its cookie, as a browser on the attacker's page
// would send it, decides nothing all the same.
func TestForeignPosts(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, nil)
	path := b.at + "r/personal/" + k.ID + "/decide"
	body := url.Values{"sha": {w.sha(k)}, "code": {"1"}, "sure": {"yes"}}.Encode()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(w.base, "http://"))
	require.NoError(t, err)
	for _, c := range []struct {
		why    string
		code   int
		change func(r *http.Request)
	}{
		{"another site", 403, set("Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")},
		{"another site, whose browser says no more", 403, set("Origin", "https://evil.example", "Sec-Fetch-Site", "")},
		{"a sandboxed frame", 403, set("Origin", "null", "Sec-Fetch-Site", "cross-site")},
		{"Origin: null, and no more said", 403, set("Origin", "null", "Sec-Fetch-Site", "")},
		{"Origin: null, as if from us", 403, set("Origin", "null")},
		{"no Origin, and the site is another", 403, set("Origin", "", "Sec-Fetch-Site", "cross-site")},
		{"another port of this host is of the same site", 403, set("Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site")},
		{"another port, whose browser says no more", 403, set("Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "")},
		{"no Origin, from another port", 403, set("Origin", "", "Sec-Fetch-Site", "same-site")},
		{"typed by somebody", 403, set("Origin", "", "Sec-Fetch-Site", "none")},
		{"nothing is said: no browser, and no page of ours", 403, set("Origin", "", "Sec-Fetch-Site", "")},
		{"one of our names, but not the one in Host", 403, set("Origin", "http://localhost:"+port)},
		{"our name as the beginning of another", 403, set("Origin", w.base+".evil.example")},
		{"two origins", 403, func(r *http.Request) { r.Header["Origin"] = []string{w.base, "https://evil.example"} }},
		{"a foreign name", 421, func(r *http.Request) { r.Host = "evil.example" }},
		{"a name bound anew to our address", 421, func(r *http.Request) {
			r.Host = "rebound.example:" + port
			r.Header.Set("Origin", "http://rebound.example:"+port)
		}},
		{"our address, another port", 421, func(r *http.Request) { r.Host = "127.0.0.1:1" }},
		{"our name with a dot behind", 421, func(r *http.Request) { r.Host = "localhost.:" + port }},
		{"in a frame", 403, set("Sec-Fetch-Dest", "iframe")},
		{"in an object", 403, set("Sec-Fetch-Dest", "object")},
		{"text/plain, which every page may send", 415, set("Content-Type", "text/plain")},
		{"multipart", 415, set("Content-Type", "multipart/form-data; boundary=x")},
		{"JSON", 415, set("Content-Type", "application/json")},
		{"no type", 415, set("Content-Type", "")},
		{"two types", 415, func(r *http.Request) {
			r.Header["Content-Type"] = []string{"application/x-www-form-urlencoded", "text/plain"}
		}},
		{"another charset", 415, set("Content-Type", "application/x-www-form-urlencoded; charset=utf-7")},
		{"compressed", 415, set("Content-Encoding", "gzip")},
		{"another cookie", 403, set("Cookie", "permesso_ui="+strings.Repeat("0", 64))},
		{"other methods", 405, func(r *http.Request) { r.Method = http.MethodPut }},
		{"a GET with a body", 403, func(r *http.Request) { r.Method = http.MethodGet }},
		{"a method in the body's clothes", 405, func(r *http.Request) { r.Method = http.MethodGet; r.Body, r.ContentLength = nil, 0 }},
	} {
		var p *page
		if c.why == "another cookie" {
			p = w.stranger().do(http.MethodPost, path, body, c.change)
		} else {
			p = b.do(http.MethodPost, path, body, c.change)
		}
		require.Equal(t, c.code, p.StatusCode, c.why)
		require.Zero(t, w.count(), c.why)
	}
	for _, host := range []string{"localhost:" + port, "[::1]:" + port, "LocalHost:" + port, "gate.test"} {
		require.Equal(t, http.StatusOK, b.do(http.MethodGet, "/", "", func(r *http.Request) { r.Host = host }).StatusCode, host)
	}
	for why, change := range map[string]func(*http.Request){
		"a browser of ours":                     nil,
		"an old browser, which says its origin": set("Sec-Fetch-Site", ""),
		"one that hides its origin":             set("Origin", ""),
	} {
		k := w.asks(2, nil)
		before := w.count()
		p := b.do(http.MethodPost, b.at+"r/personal/"+k.ID+"/decide", url.Values{"sha": {w.sha(k)}, "code": {"3"}}.Encode(), func(r *http.Request) {
			if change != nil {
				change(r)
			}
		})
		require.Equal(t, http.StatusSeeOther, p.StatusCode, why)
		require.Equal(t, before+1, w.count(), why)
		w.mu.Lock()
		delete(w.decided, k)
		w.mu.Unlock()
	}
}

// Pages cannot be read by other pages either, and are nobody's frame.
func TestForeignGets(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, nil)
	for _, path := range []string{"", "r/personal/" + k.ID, "events?rev=0", "history", "audit"} {
		for _, change := range []func(*http.Request){
			set("Sec-Fetch-Site", "cross-site"), set("Sec-Fetch-Site", "same-site"), set("Sec-Fetch-Dest", "iframe"),
			func(r *http.Request) { r.Host = "evil.example" },
		} {
			p := b.do(http.MethodGet, b.at+path, "", change)
			require.GreaterOrEqual(t, p.StatusCode, 400, path)
			require.NotContains(t, p.text, "Meeting")
		}
	}
	for _, path := range []string{b.at, b.at + "r/personal/" + k.ID, "/", "/enter/x", "/nothing", "/static/app.js", b.at + "nothing"} {
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
	w := newWorld(t)
	b := w.stranger()
	token := w.token()
	require.Len(t, token, 64, "256 bits")
	for range 3 {
		p := b.get("/enter/" + token)
		require.Equal(t, http.StatusOK, p.StatusCode)
		require.Equal(t, token, attr(p.find("door"), "data-never")+token)
		require.Empty(t, p.Cookies(), "looking at the door opens nothing")
	}
	require.Equal(t, 200, b.get("/enter/"+strings.Repeat("0", 64)).StatusCode, "a wrong one looks the same")
	enter := func(token string, change func(*http.Request)) *page {
		return w.stranger().do(http.MethodPost, "/enter", url.Values{"token": {token}}.Encode(), change)
	}
	require.Equal(t, 403, enter(token, set("Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")).StatusCode)
	first := enter(token, nil)
	require.Equal(t, http.StatusSeeOther, first.StatusCode, "what a foreign page tried has not used it up")
	c := first.Cookies()[0]
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.Equal(t, first.Header.Get("Location"), c.Path, "bound to the session's own path, for other ports of this host get it otherwise")
	require.Regexp(t, "^/s/[0-9a-f]{32}/$", c.Path)
	require.Empty(t, c.Domain)
	require.Zero(t, c.MaxAge)
	require.Equal(t, 403, enter(token, nil).StatusCode, "once")
	late := w.token()
	w.later(time.Minute)
	require.Equal(t, 403, enter(late, nil).StatusCode, "soon")
	for _, wrong := range []string{"", "x", strings.Repeat("0", 64), strings.ToUpper(w.token()), w.token() + "0"} {
		require.Equal(t, 403, enter(wrong, nil).StatusCode, wrong)
	}
	for range 200 {
		if _, _, err := w.server.Link(ann); err != nil {
			require.ErrorIs(t, err, web.ErrFull)
			return
		}
	}
	t.Fatal("nothing bounds the links")
}

func TestSessionsEnd(t *testing.T) {
	w := newWorld(t)
	is := func(b *browser, code int, why string) {
		t.Helper()
		require.Equal(t, code, b.in("").StatusCode, why)
	}
	one, two := w.login(), w.login()
	two.client.Jar = one.client.Jar
	is(two, 403, "another session's cookie opens nothing, whatever the path")

	b := w.login()
	s := b.listen("rev=0")
	require.Equal(t, http.StatusSeeOther, b.post(b.at+"leave", nil).StatusCode)
	s.until(func(e event) bool { return e.name == "over" })
	is(b, 403, "logged out")

	b = w.login()
	w.later(59 * time.Minute)
	is(b, 200, "used")
	w.later(59 * time.Minute)
	is(b, 200, "and again")
	w.later(time.Hour)
	is(b, 403, "idle for an hour")

	b = w.login()
	for range 11 {
		w.later(50 * time.Minute)
		is(b, 200, "in use")
	}
	w.later(3 * time.Hour)
	is(b, 403, "12 hours, whatever happens")

	b = w.login()
	s = b.listen("rev=0")
	s.next()
	w.later(2 * time.Hour)
	is(b, 200, "an open page is in use")
	w.allow(func(r *web.Rights) { r.See, r.Decide = nil, nil })
	w.server.Changed(approval.Key{})
	s.until(func(e event) bool { return e.name == "over" })
	is(b, 403, "no longer an approver")
	w.allow(func(r *web.Rights) { r.See, r.Decide = []string{workspace}, []string{workspace} })
	is(b, 403, "and it does not come back")

	b = w.login()
	w.stop()
	w.server = &web.Server{People: w, Viewer: w, Workspaces: w.server.Workspaces, Now: w.clock}
	w.serve()
	b.base = w.base
	is(b, 403, "a cookie of an older daemon")

	sessions := []*browser{}
	for range 70 {
		sessions = append(sessions, w.login())
		w.later(time.Second)
	}
	is(sessions[0], 403, "so many at once; the one that was not used for longest goes")
	is(sessions[69], 200, "the newest stays")
}

// No route but the door does anything for who has no session, and no GET ever
// changes anything.
func TestEveryRouteNeedsASession(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, nil)
	w.grants = []web.GrantUse{{Grant: approval.Grant{ID: k.ID, Workspace: workspace, ExpiresAt: w.clock().Add(time.Hour)}}}
	form := url.Values{
		"sha": {w.sha(k)}, "code": {"1"}, "sure": {"yes"}, "ws": {workspace}, "id": {k.ID}, "undo": {"yes"}, "lang": {"it"}, "keys": {"on"}, "verify": {"yes"},
	}
	patterns := web.Inside()
	require.Greater(t, len(patterns), 15)
	for _, pattern := range patterns {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{ws}", workspace, "{id}", k.ID, "{$}", "").Replace(path)
		body := ""
		if method == http.MethodPost {
			body = form.Encode()
		}
		for why, at := range map[string]string{
			"the right path, without its cookie": strings.TrimSuffix(b.at, "/"), "a path that is nobody's": "/s/" + strings.Repeat("0", 32),
		} {
			p := w.stranger().do(method, at+path, body, nil)
			require.Equal(t, http.StatusForbidden, p.StatusCode, "%s: %s", pattern, why)
			require.NotContains(t, p.text, "Meeting")
			require.Empty(t, p.Cookies(), pattern)
		}
		if strings.HasSuffix(path, "/events") {
			continue // it does not end
		}
		p := b.do(http.MethodGet, strings.TrimSuffix(b.at, "/")+path+"?"+form.Encode(), "", nil)
		if method == http.MethodPost {
			require.Equal(t, http.StatusMethodNotAllowed, p.StatusCode, pattern)
		}
		require.Empty(t, p.Cookies(), pattern)
	}
	require.Zero(t, w.count())
	require.Empty(t, w.braked)
	require.Zero(t, w.verified)
	require.True(t, w.grants[0].RevokedAt.IsZero())
	require.Equal(t, http.StatusOK, b.in("").StatusCode, "the session has not noticed")
}

// The zero Server refuses everything.
func TestZeroServer(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.server = &web.Server{Now: w.clock}
	w.serve()
	b := w.login()
	require.Equal(t, http.StatusForbidden, b.in("").StatusCode)
	w.stop()
	w.server.Hosts = nil
	hosts := w.server.Handler()
	require.NotNil(t, hosts)
}

// A thousand clients that send nothing, half a line, or read nothing take no
// page from anybody else.
func TestSlowClients(t *testing.T) {
	const patience = time.Minute
	w := newWorld(t, func(w *world) { w.server.IOTimeout = patience })
	b := w.login()
	k := w.asks(1, nil)
	address := strings.TrimPrefix(w.base, "http://")
	var wg sync.WaitGroup
	lines := make(chan net.Conn, 1000)
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
				_, _ = io.WriteString(c, "POST "+b.at+"r/personal/"+k.ID+"/decide HTTP/1.1\r\nHost: "+address+"\r\nOrigin: "+w.base+
					"\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 60000\r\n\r\nsha=")
			}
			lines <- c
		})
	}
	wg.Wait()
	close(lines)
	for c := range lines {
		t.Cleanup(func() { _ = c.Close() })
	}
	s := b.listen("rev=0")
	began := time.Now()
	require.Equal(t, http.StatusOK, b.in("").StatusCode)
	p := b.follow(b.answer(k, url.Values{"code": {"3"}}))
	require.Contains(t, inner(p.find("note")), "Denied")
	s.until(func(e event) bool { return e.Waiting == 0 })
	require.Less(t, time.Since(began), patience, "they are still there")
	require.Equal(t, 1, w.count())
}

// Streams, bodies and headers have their bounds.
func TestBounds(t *testing.T) {
	w := newWorld(t)
	b := w.login()
	k := w.asks(1, nil)
	p := b.answer(k, url.Values{"code": {"4"}, "text": {strings.Repeat("x", 65<<10)}})
	require.Equal(t, http.StatusBadRequest, p.StatusCode)
	require.Zero(t, w.count())
	full := false
	for range 40 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+b.at+"events?rev=0", nil)
		require.NoError(t, err)
		resp, err := (&http.Client{Jar: b.client.Jar}).Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		full = full || resp.StatusCode == http.StatusTooManyRequests
	}
	require.True(t, full, "nothing bounds the streams of a session")
}

// However many look for something in a long log, the gate goes on.
func TestFewReadTheLogAtOnce(t *testing.T) {
	w := newWorld(t)
	w.hold = make(chan struct{})
	b := w.login()
	k := w.asks(1, nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { b.in("history?q=x") })
	}
	for end := time.Now().Add(time.Minute); w.looking.Load() < 2; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "nobody reads the log")
	}
	for range 10 { // the others stand in line, and these do not
		require.Equal(t, http.StatusOK, b.in("r/personal/"+k.ID).StatusCode)
		require.EqualValues(t, 2, w.looking.Load())
	}
	close(w.hold)
	wg.Wait()
}

// Nothing that could open a session, and nothing that somebody sent, is logged.
func TestNothingSecretIsLogged(t *testing.T) {
	var mu sync.Mutex
	var said strings.Builder
	w := newWorld(t, func(w *world) {
		w.server.Log = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			said.WriteString(err.Error())
		}
	})
	token := w.token()
	b := w.stranger()
	b.get("/enter/" + token)
	b.post("/enter", url.Values{"token": {token}})
	b.post("/enter", url.Values{"token": {token}})
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, said.String())
}

// The library beside our own files is what it was published as, with its licence.
func TestHtmx(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("static", "htmx.min.js"))
	require.NoError(t, err)
	require.Contains(t, string(b), `version:"2.0.11"`)
	require.Equal(t, htmxDigest, approval.Digest(b))
	_, err = os.Stat(filepath.Join("static", "htmx.LICENSE"))
	require.NoError(t, err)
}

const htmxDigest = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
