package web

import (
	"bytes"
	"cmp"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
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
	rows map[rowKey]renderedRow
	lang map[string]bool // languages in use
}

type renderedRow struct {
	html template.HTML
	text string // what a search finds, in lower case
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
	Title         string
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
func (s *Server) renderRow(i *item, lang string) (renderedRow, error) {
	name := rowKey{i.SHA256, lang}
	c := &s.rowCache
	c.mu.Lock()
	rendered, ok := c.rows[name]
	c.mu.Unlock()
	if ok {
		return rendered, nil
	}
	style, p := s.Style(lang), i.Pending
	r := row{
		W: textsIn(lang), ID: rowID(i.Key()), Path: pathOf(i.Key()), Workspace: chat.Escape(p.SourceGroup), Title: style.VerbAndObject(p), Short: chat.Escape(p.ShortID), Tool: style.OneLine(p, cmp.Or(p.ToolName, p.ActionType)),
		// With a date, if it is not the day of the request.
		Asked: newDisplayTime(p.Timestamp, style.Zone, p.Timestamp), Until: newDisplayTime(p.ExpiresAt, style.Zone, p.Timestamp),
		Reversibility: p.Reversibility, Question: p.Type == approval.TypeQuestion,
	}
	var b bytes.Buffer
	if err := s.render(&b, "row", r); err != nil {
		return renderedRow{}, err
	}
	//nolint:gosec // our template has escaped it
	rendered = renderedRow{template.HTML(b.String()), strings.ToLower(strings.Join([]string{r.Title, r.Workspace, r.Tool, r.Short}, "\n"))}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows == nil || len(c.rows) >= maxRows {
		c.rows = map[rowKey]renderedRow{}
	}
	c.rows[name] = rendered
	return rendered, nil
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
	c.rows, c.lang = nil, nil
}

func (s *Server) addLanguage(lang string) {
	s.rowCache.mu.Lock()
	defer s.rowCache.mu.Unlock()
	if s.rowCache.lang == nil {
		s.rowCache.lang = map[string]bool{}
	}
	s.rowCache.lang[lang] = true
}

// count is the data of the line with the number of pending requests, and of those shown.
type count struct {
	W        texts
	N, Shown int
}

// listView is how the user filters and orders the list. The zero listView is all of it,
// the oldest first.
type listView struct {
	Query, In, Show, Sort string
}

// currentView returns the view that the address names.
func (v *visit) currentView() listView {
	q := v.r.URL.Query()
	known := func(name string, values ...string) string {
		if !slices.Contains(values, q.Get(name)) {
			return ""
		}
		return q.Get(name)
	}
	return listView{cleanQuery(q.Get("q")), known("in", v.rights.See...), known("show", "irreversible", "question"), known("sort", "new", "due")}
}

// Whole reports whether the view is the zero listView.
func (l listView) Whole() bool { return l == listView{} }

// Encode is the view as a part of an address.
func (l listView) Encode() string {
	return url.Values{"q": {l.Query}, "in": {l.In}, "show": {l.Show}, "sort": {l.Sort}}.Encode()
}

func (l listView) has(i *item, row renderedRow) bool {
	p := i.Pending
	return (l.In == "" || l.In == p.SourceGroup) && strings.Contains(row.text, strings.ToLower(l.Query)) &&
		(l.Show != "irreversible" || needsConfirmation(p)) && (l.Show != "question" || p.Type == approval.TypeQuestion)
}

// rowsOf returns the rows of a view.
func (v *visit) rowsOf(l listView, items []*item) (rows []template.HTML, err error) {
	items = slices.Clone(items)
	switch l.Sort {
	case "new":
		slices.Reverse(items)
	case "due":
		slices.SortStableFunc(items, func(a, b *item) int { return a.Pending.ExpiresAt.Compare(b.Pending.ExpiresAt) })
	}
	rendered, err := v.renderRows(items, v.lang)
	for n, r := range rendered {
		if l.has(items[n], r) {
			rows = append(rows, r.html)
		}
	}
	return rows, err
}

type listPage struct {
	page
	View  listView
	Rows  []template.HTML
	Rev   int64
	Count count
}

// list is the page of pending requests.
func (v *visit) list() {
	v.addLanguage(v.lang)
	items, rev, err := v.visiblePending()
	if err != nil {
		v.internalError(err)
		return
	}
	p := listPage{page: v.page("list", v.w.ListTitle), View: v.currentView(), Rev: rev}
	p.Waiting = len(items)
	p.Stream, p.Refresh = "events?rev="+itoa(rev)+"&"+p.View.Encode(), true
	if p.Rows, err = v.rowsOf(p.View, items); err != nil {
		v.internalError(err)
		return
	}
	p.Count = count{p.W, len(items), len(p.Rows)}
	v.write(v.rw, http.StatusOK, "list", p)
}

// renderRows returns the rows of a list. It uses all processors: the first time,
// each request must be scanned for secrets.
func (s *Server) renderRows(list []*item, lang string) ([]renderedRow, error) {
	out, errs := make([]renderedRow, len(list)), make([]error, len(list))
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

// pause is a pause of one or more workspaces.
type pause struct {
	Where []string // workspaces, or the word for all of them
	Line  string
}

// pauses lists the pauses, each once.
func (v *visit) pauses() (list []pause) {
	style := v.Style(v.lang)
	for _, ws := range v.rights.See {
		line := style.PauseLine(ws, v.Now())
		if line == "" {
			continue
		}
		if own, all := v.Backend.WorkspaceInfo.Paused(ws); all && !own {
			ws = v.w.Everything
		}
		n := slices.IndexFunc(list, func(p pause) bool { return p.Line == line })
		if n < 0 {
			n, list = len(list), append(list, pause{Line: line})
		}
		if !slices.Contains(list[n].Where, ws) {
			list[n].Where = append(list[n].Where, ws)
		}
	}
	return list
}

// nextPending returns the path of the first pending request behind p that the user may
// decide, else of the first one; "" if there is no other.
func (v *visit) nextPending(p *approval.Pending) string {
	items, _, err := v.visiblePending()
	v.log(err)
	first := ""
	for _, i := range items {
		switch order := byAge(i.Pending, p); {
		case order == 0, len(v.rights.Decide) > 0 && !v.mayDecide(i.Pending):
		case order > 0:
			return pathOf(i.Key())
		case first == "":
			first = pathOf(i.Key())
		}
	}
	return first
}

// next redirects to the request after a given one, else to the oldest one. If there
// is no other request, it redirects to the list.
func (v *visit) next() {
	k := approval.Key{Workspace: v.r.URL.Query().Get("ws"), ID: v.r.URL.Query().Get("id")}
	after := &approval.Pending{}
	if approval.ValidID(k.ID) && slices.Contains(v.rights.See, k.Workspace) {
		if p, err := v.shownPending(k); err == nil && p != nil {
			after = p
		}
	}
	v.redirect(v.nextPending(after))
}
