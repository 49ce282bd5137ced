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

// rows are the rendered rows of what waits, by pending and language: what is
// written on one depends on nothing else.
type rows struct {
	mu   sync.Mutex
	html map[rowName]template.HTML
	lang map[string]bool // those that somebody reads
}

type rowName struct{ sha, lang string }

// maxRows bounds what is remembered; more than that wait nowhere.
const maxRows = 20_000

func rowID(k approval.Key) string { return "q-" + k.Workspace + "-" + k.ID }

// pathOf is where a request is, from the session's beginning.
func pathOf(k approval.Key) string { return "r/" + k.Workspace + "/" + k.ID }

type row struct {
	W             *words
	ID, Path      string
	Workspace     string
	Tool          string // "" for a question
	Brief         string
	Short         string
	Asked, Until  clock
	Reversibility approval.Reversibility
	Question      bool
}

// clock is a time as people read it, and as a program does.
type clock struct {
	Text string
	RFC  string
}

func clockOf(t time.Time, zone *time.Location, now time.Time) clock {
	if t.IsZero() {
		return clock{}
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
	return clock{text, t.UTC().Format(time.RFC3339)}
}

// row is the rendered row of an item.
func (s *Server) row(i *item, lang string) (template.HTML, error) {
	name := rowName{i.SHA256, lang}
	c := &s.rows
	c.mu.Lock()
	html, ok := c.html[name]
	c.mu.Unlock()
	if ok {
		return html, nil
	}
	style, p := s.Style(lang), i.Pending
	var b bytes.Buffer
	err := s.render(&b, "row", row{
		W: catalogue(lang), ID: rowID(i.Key()), Path: pathOf(i.Key()), Workspace: chat.Escape(p.SourceGroup), Brief: style.Brief(p), Short: chat.Escape(p.ShortID), Tool: style.OneLine(p, cmp.Or(p.ToolName, p.ActionType)),
		// With its date, if it is not of the day on which it was asked.
		Asked: clockOf(p.Timestamp, style.Zone, p.Timestamp), Until: clockOf(p.ExpiresAt, style.Zone, p.Timestamp),
		Reversibility: p.Reversibility, Question: p.Type == approval.TypeQuestion,
	})
	if err != nil {
		return "", err
	}
	html = template.HTML(b.String()) //nolint:gosec // our own template has escaped it
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.html == nil || len(c.html) >= maxRows {
		c.html = map[rowName]template.HTML{}
	}
	c.html[name] = html
	return html, nil
}

// warmRows renders the rows of a list in every language that somebody reads.
func (s *Server) warmRows(list []*item) {
	c := &s.rows
	c.mu.Lock()
	langs := []string{chat.Language(s.Style("").Language)}
	for l := range c.lang {
		if l != langs[0] {
			langs = append(langs, l)
		}
	}
	c.mu.Unlock()
	for _, l := range langs {
		_, err := s.rowsOf(list, l)
		s.log(err)
	}
}

// forget lets the rows go: nobody reads them.
func (c *rows) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.html, c.lang = nil, nil
}

func (s *Server) reads(lang string) {
	s.rows.mu.Lock()
	defer s.rows.mu.Unlock()
	if s.rows.lang == nil {
		s.rows.lang = map[string]bool{}
	}
	s.rows.lang[lang] = true
}

// count is how many wait, in words.
type count struct {
	W *words
	N int
}

func (st *stream) countOf(n int) count { return count{st.w, n} }

type listPage struct {
	page
	Rows  []template.HTML
	Rev   int64
	Count count
	Pause []string
}

// list is the page of what waits.
func (v *visit) list() {
	v.reads(v.lang)
	mine, rev, err := v.mine()
	if err != nil {
		v.broken(err)
		return
	}
	p := listPage{page: v.page("list", v.w.ListTitle), Rev: rev, Count: count{v.w, len(mine)}, Pause: v.pauses()}
	p.Waiting = len(mine)
	p.Stream, p.Refresh = "events?rev="+itoa(rev), true
	if p.Rows, err = v.rowsOf(mine, v.lang); err != nil {
		v.broken(err)
		return
	}
	v.write(v.rw, http.StatusOK, "list", p)
}

// rowsOf are the rows of a list, by all processors: the first time, each has to
// be looked through for secrets.
func (s *Server) rowsOf(list []*item, lang string) ([]template.HTML, error) {
	out, errs := make([]template.HTML, len(list)), make([]error, len(list))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(list)) {
		wg.Go(func() {
			for n := next.Add(1) - 1; int(n) < len(list); n = next.Add(1) - 1 {
				out[n], errs[n] = s.row(list[n], lang)
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// pauses says where nothing runs for the time being.
func (v *visit) pauses() (lines []string) {
	style := v.Style(v.lang)
	for _, ws := range v.rights.See {
		if line := style.PauseLine(ws, v.Now()); line != "" {
			lines = append(lines, ws+": "+line)
		}
	}
	return lines
}

// next leads to the oldest request that waits, or to the next one after a given
// one, or back to the list.
func (v *visit) next() {
	mine, _, err := v.mine()
	if err != nil {
		v.broken(err)
		return
	}
	after := approval.Key{Workspace: v.r.URL.Query().Get("ws"), ID: v.r.URL.Query().Get("id")}
	to := ""
	for n, i := range mine {
		if n == 0 {
			to = pathOf(i.Key())
		}
		if i.Key() == after {
			if n+1 < len(mine) {
				to = pathOf(mine[n+1].Key())
			}
			break
		}
	}
	if to == pathOf(after) {
		to = ""
	}
	v.go303(to)
}
