package web

import (
	"bytes"
	"cmp"
	"errors"
	"html/template"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// rowCache holds rendered rows of the list, by pending and language: a row depends
// on nothing else.
type rowCache struct {
	mu   sync.Mutex
	html map[rowKey]template.HTML
	lang map[string]bool // languages in use
}

type rowKey struct{ sha, lang string }

// maxRows limits the cache. More requests are never pending at the same time.
const maxRows = 20_000

func rowID(k approval.Key) string { return "q-" + k.Workspace + "-" + k.ID }

// pathOf returns the path of a request, relative to the session.
func pathOf(k approval.Key) string { return "r/" + k.Workspace + "/" + k.ID }

type row struct {
	W             texts
	ID, Path      string
	Workspace     string
	Tool          string // "" for a question
	Brief         string
	Short         string
	Asked, Until  displayTime
	Reversibility approval.Reversibility
	Question      bool
}

// displayTime is a time as text and in RFC 3339.
type displayTime struct {
	Text string
	RFC  string
}

func newDisplayTime(t time.Time, zone *time.Location, now time.Time) displayTime {
	if t.IsZero() {
		return displayTime{}
	}
	if zone == nil {
		zone = time.UTC
	}
	t = t.In(zone)
	layout := "15:04"
	if t.Format(time.DateOnly) != now.In(zone).Format(time.DateOnly) {
		layout = "2006-01-02 15:04"
	}
	text := t.Format(layout)
	if zone == time.UTC {
		text += " UTC"
	}
	return displayTime{text, t.UTC().Format(time.RFC3339)}
}

// renderRow returns the rendered row of an item.
func (s *Server) renderRow(i *item, lang string) (template.HTML, error) {
	name := rowKey{i.SHA256, lang}
	c := &s.rowCache
	c.mu.Lock()
	html, ok := c.html[name]
	c.mu.Unlock()
	if ok {
		return html, nil
	}
	style, p := s.Style(lang), i.Pending
	var b bytes.Buffer
	err := s.render(&b, "row", row{
		W: textsIn(lang), ID: rowID(i.Key()), Path: pathOf(i.Key()), Workspace: chat.Escape(p.SourceGroup), Brief: style.Brief(p), Short: chat.Escape(p.ShortID), Tool: style.OneLine(p, cmp.Or(p.ToolName, p.ActionType)),
		// With a date, if it is not the day of the request.
		Asked: newDisplayTime(p.Timestamp, style.Zone, p.Timestamp), Until: newDisplayTime(p.ExpiresAt, style.Zone, p.Timestamp),
		Reversibility: p.Reversibility, Question: p.Type == approval.TypeQuestion,
	})
	if err != nil {
		return "", err
	}
	html = template.HTML(b.String()) //nolint:gosec // our template has escaped it
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.html == nil || len(c.html) >= maxRows {
		c.html = map[rowKey]template.HTML{}
	}
	c.html[name] = html
	return html, nil
}

// prerenderRows renders the rows of a list in every language in use.
func (s *Server) prerenderRows(list []*item) {
	c := &s.rowCache
	c.mu.Lock()
	langs := []string{chat.Language(s.Style("").Language)}
	for l := range c.lang {
		if l != langs[0] {
			langs = append(langs, l)
		}
	}
	c.mu.Unlock()
	for _, l := range langs {
		_, err := s.renderRows(list, l)
		s.log(err)
	}
}

// clear drops all rows and languages.
func (c *rowCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.html, c.lang = nil, nil
}

func (s *Server) addLanguage(lang string) {
	s.rowCache.mu.Lock()
	defer s.rowCache.mu.Unlock()
	if s.rowCache.lang == nil {
		s.rowCache.lang = map[string]bool{}
	}
	s.rowCache.lang[lang] = true
}

// count is the data of the line with the number of pending requests.
type count struct {
	W texts
	N int
}

func (st *stream) countOf(n int) count { return count{textsIn(st.lang), n} }

type listPage struct {
	page
	Rows       []template.HTML
	Rev        int64
	Count      count
	PauseLines []string
}

// list is the page of pending requests.
func (v *visit) list() {
	v.addLanguage(v.lang)
	items, rev, err := v.visiblePending()
	if err != nil {
		v.internalError(err)
		return
	}
	p := listPage{page: v.page("list", v.w.ListTitle), Rev: rev, PauseLines: v.pauseLines()}
	p.Count = count{p.W, len(items)}
	p.Waiting = len(items)
	p.Stream, p.Refresh = "events?rev="+itoa(rev), true
	if p.Rows, err = v.renderRows(items, v.lang); err != nil {
		v.internalError(err)
		return
	}
	v.write(v.rw, http.StatusOK, "list", p)
}

// renderRows returns the rows of a list. It uses all processors: the first time,
// each request must be scanned for secrets.
func (s *Server) renderRows(list []*item, lang string) ([]template.HTML, error) {
	out, errs := make([]template.HTML, len(list)), make([]error, len(list))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(list)) {
		wg.Go(func() {
			for n := next.Add(1) - 1; int(n) < len(list); n = next.Add(1) - 1 {
				out[n], errs[n] = s.renderRow(list[n], lang)
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// pauseLines names the paused workspaces.
func (v *visit) pauseLines() (lines []string) {
	style := v.Style(v.lang)
	for _, ws := range v.rights.See {
		if line := style.PauseLine(ws, v.Now()); line != "" {
			lines = append(lines, ws+": "+line)
		}
	}
	return lines
}

// next redirects to the request after a given one, else to the oldest one. If there
// is no other request, it redirects to the list.
func (v *visit) next() {
	items, _, err := v.visiblePending()
	if err != nil {
		v.internalError(err)
		return
	}
	after := approval.Key{Workspace: v.r.URL.Query().Get("ws"), ID: v.r.URL.Query().Get("id")}
	to := ""
	for n, i := range items {
		if n == 0 {
			to = pathOf(i.Key())
		}
		if i.Key() == after {
			if n+1 < len(items) {
				to = pathOf(items[n+1].Key())
			}
			break
		}
	}
	if to == pathOf(after) {
		to = ""
	}
	v.redirect(to)
}
