package web_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/web"
)

// browser simulates a browser: cookies, Origin and Sec-Fetch-Site.
type browser struct {
	*fixture
	client      *http.Client
	sessionPath string // /s/KEY/
}

// page is a complete HTTP response.
type page struct {
	*http.Response
	text string
	tree *html.Node
}

func (w *fixture) newBrowser() *browser {
	jar, err := cookiejar.New(nil)
	require.NoError(w.t, err)
	return &browser{fixture: w, client: &http.Client{
		Jar: jar, Timeout: time.Minute, Transport: &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// token requests a link as permesso ui does.
func (w *fixture) token() string {
	address, _, err := w.server.Link(ann)
	require.NoError(w.t, err)
	_, token, ok := strings.Cut(address, w.base+"/enter/")
	require.True(w.t, ok, address)
	return token
}

// login returns a browser with a session.
func (w *fixture) login() *browser {
	b := w.newBrowser()
	r := b.post("/enter", url.Values{"token": {w.token()}})
	require.Equal(w.t, http.StatusSeeOther, r.StatusCode, r.text)
	b.sessionPath = r.Header.Get("Location")
	return b
}

func (b *browser) do(method, path, body string, change func(r *http.Request)) *page {
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, strings.NewReader(body))
	require.NoError(b.t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.base)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	} else {
		r.Body, r.ContentLength = nil, 0
	}
	if change != nil {
		change(r)
	}
	resp, err := b.client.Do(r)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	p := &page{Response: resp, text: string(text)}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		p.tree, err = html.Parse(strings.NewReader(p.text))
		require.NoError(b.t, err)
	}
	return p
}

func (b *browser) get(path string) *page { return b.do(http.MethodGet, path, "", nil) }

func (b *browser) post(path string, form url.Values) *page {
	return b.do(http.MethodPost, path, form.Encode(), nil)
}

func (b *browser) page(path string) *page { return b.get(b.sessionPath + path) }

func (b *browser) decide(k approval.Key, form url.Values) *page {
	if !form.Has("sha") {
		form.Set("sha", b.sha(k))
	}
	return b.post(b.sessionPath+"r/"+k.Workspace+"/"+k.ID+"/decide", form)
}

// follow loads the page that a response redirects to.
func (b *browser) follow(p *page) *page {
	require.Equal(b.t, http.StatusSeeOther, p.StatusCode, p.text)
	return b.get(p.Header.Get("Location"))
}

// find returns the element with an id, or nil.
func (p *page) find(id string) *html.Node {
	for n := range p.tree.Descendants() {
		if n.Type == html.ElementNode && attr(n, "id") == id {
			return n
		}
	}
	return nil
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func innerText(n *html.Node) string {
	if n == nil {
		return "(no element)"
	}
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.TrimSpace(b.String())
}

// change is the data of an event.
type change struct {
	Waiting int    `json:"waiting"`
	New     int    `json:"new"`
	First   string `json:"first"`
	HTML    string `json:"html"`
	Stale   bool   `json:"stale"`
}

// stream reads the events of a page.
type stream struct {
	t      *testing.T
	body   io.ReadCloser
	events chan streamEvent
}

type streamEvent struct {
	name string
	change
}

func (b *browser) listen(query string) *stream {
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.base+b.sessionPath+"events?"+query, nil)
	require.NoError(b.t, err)
	client := &http.Client{Jar: b.client.Jar, Transport: &http.Transport{}}
	resp, err := client.Do(r) //nolint:bodyclose // close does
	require.NoError(b.t, err)
	require.Equal(b.t, http.StatusOK, resp.StatusCode)
	s := &stream{b.t, resp.Body, make(chan streamEvent, 1000)}
	b.t.Cleanup(s.close)
	go s.read()
	return s
}

func (s *stream) close() { _ = s.body.Close() }

func (s *stream) read() {
	defer close(s.events)
	in := bufio.NewScanner(s.body)
	in.Buffer(nil, 64<<20)
	var e streamEvent
	for in.Scan() {
		name, value, _ := strings.Cut(in.Text(), ": ")
		switch name {
		case "event":
			e.name = value
		case "data":
			if json.Unmarshal([]byte(value), &e.change) != nil {
				return
			}
		case "":
			if e.name != "" {
				s.events <- e
			}
			e = streamEvent{}
		}
	}
}

// next returns the next event. It fails after a minute without one.
func (s *stream) next() streamEvent {
	s.t.Helper()
	select {
	case e, ok := <-s.events:
		require.True(s.t, ok, "the stream is closed")
		return e
	case <-time.After(time.Minute):
		s.t.Fatal("no event within a minute")
		return streamEvent{}
	}
}

// until returns the first event that matches.
func (s *stream) until(matches func(streamEvent) bool) streamEvent {
	s.t.Helper()
	for {
		if e := s.next(); matches(e) {
			return e
		}
	}
}

// TestARowIsRemovedOnce: what is removed after the list of an event was read belongs to the
// next event. Otherwise both remove the row, and the second finds none.
func TestARowIsRemovedOnce(t *testing.T) {
	ids := []string{"a", "b", "c"} // added with revisions 1 to 3, removed with 4 to 6
	require.Equal(t, []string{"a"}, web.RemovedBetween(ids, 3, 4))
	require.Equal(t, []string{"b", "c"}, web.RemovedBetween(ids, 4, 6))
	require.Equal(t, []string{"a"}, web.RemovedBetween(ids, 1, 5), "b came after the first revision")
}
