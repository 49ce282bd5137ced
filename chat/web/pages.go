package web

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// perPage is the number of rows on a page of the history or the log.
const perPage = 50

// maxQueryLength limits a search text, in bytes.
const maxQueryLength = 200

// oneLine returns text of an agent or operator on one line, with secrets masked.
func (v *visit) oneLine(text string) string {
	if text == "" {
		return ""
	}
	return v.Style(v.lang).OneLine(&approval.Pending{}, text)
}

func (v *visit) displayTime(t time.Time) displayTime {
	return newDisplayTime(t, v.Style(v.lang).Zone, v.Now())
}

// grantView is a grant with its state, and whether the user may revoke it.
type grantView struct {
	grant.Use
	What, State string // State: active, expired, used, revoked
	May         bool
}

type grantsPage struct {
	page
	Grants []grantView
}

// grants is the page of the grants.
func (v *visit) grants() {
	p := grantsPage{page: v.page("grants", v.w.GrantsTitle)}
	for _, ws := range v.rights.See {
		for _, c := range v.Backend.Grants.GrantsIn(ws) {
			p.Grants = append(p.Grants, v.grantView(c))
		}
	}
	v.write(v.rw, http.StatusOK, "grants", p)
}

func (v *visit) grantView(c grant.Use) grantView {
	what := v.Style(v.lang).Grant(&c.Grant)
	state := c.State(v.Now())
	return grantView{c, what, state, state == "active" && slices.Contains(v.rights.Decide, c.Workspace)}
}

// revoke revokes a grant.
func (v *visit) revoke() {
	id, ok := formValue(v.r, "id")
	ws, ok2 := formValue(v.r, "ws")
	if !ok || !ok2 || !slices.Contains(v.rights.Decide, ws) {
		v.fail(http.StatusBadRequest, v.w.BadForm)
		return
	}
	list := v.Backend.Grants.GrantsIn(ws)
	i := slices.IndexFunc(list, func(c grant.Use) bool { return c.ID == id })
	ic := v.People.Interceptor(v.se.user)
	if i < 0 {
		v.fail(http.StatusNotFound, v.w.GrantNotFound)
		return
	}
	done, err := ic.Revoker.Revoke(v.r.Context(), list[i].Grant, v.se.user.Person)
	var ref *decide.Refusal
	switch {
	case errors.As(err, &ref):
		v.redirectWithNote("grants", note{text: v.w.NotAllowed})
	case err != nil:
		v.internalError(err)
	case !done:
		v.redirectWithNote("grants", note{text: v.w.GrantNotFound})
	default:
		v.redirectWithNote("grants", note{text: v.w.Revoked, Acted: true})
	}
}

type rulesPage struct {
	page
	Rules []Rule
}

// rules is the page of the operator's rules. It is read-only.
func (v *visit) rules() {
	v.write(v.rw, http.StatusOK, "rules", rulesPage{v.page("rules", v.w.RulesTitle), v.Backend.Rules(v.rights.See)})
}

// historyView is a request with what is composed for its line.
type historyView struct {
	*read.Request
	What, By, Took string
	Detail         string // the reason, the error or the result
	Class          string // the CSS class of its status
}

type historyPage struct {
	page
	Query    string
	Status   string
	Statuses []string
	Kind     string
	List     []historyView
	More     string // address of the next page; "": none
	Error    string
}

// history is the page of earlier requests.
func (v *visit) history() {
	q := v.r.URL.Query()
	p := historyPage{
		page: v.page("history", v.w.HistoryTitle), Query: cleanQuery(q.Get("q")), Kind: cleanQuery(q.Get("kind")),
		Status: q.Get("status"), Statuses: read.Statuses(),
	}
	if !slices.Contains(p.Statuses, p.Status) {
		p.Status = ""
	}
	before, _ := time.Parse(time.RFC3339Nano, q.Get("before"))
	text := strings.ToLower(p.Query)
	list, more, err := v.findHistory(read.Query{
		Workspaces: v.rights.See, Until: before, Limit: perPage,
		Match: func(r *read.Request) bool {
			return (p.Kind == "" || p.Kind == r.Kind()) && (p.Status == "" || p.Status == string(r.Status)) &&
				(text == "" || strings.Contains(strings.ToLower(strings.Join([]string{
					r.Key.ID, r.Key.Workspace, r.Tool, r.ActionType, r.Target, r.By, r.Rule, r.Reason,
				}, "\n")), text))
		},
	})
	if err != nil {
		v.log(err)
		p.Error = v.w.LogUnreadable
	}
	for _, x := range list {
		p.List = append(p.List, v.historyView(x))
	}
	if more && len(list) > 0 {
		next := url.Values{"q": {p.Query}, "status": {p.Status}, "kind": {p.Kind}, "before": {list[len(list)-1].Asked().UTC().Format(time.RFC3339Nano)}}
		p.More = "history?" + next.Encode()
	}
	v.write(v.rw, http.StatusOK, "history", p)
}

// acquireLogReader waits for a slot to read the log. The caller must call done.
func (v *visit) acquireLogReader() (done func(), err error) {
	select {
	case v.logReaders <- struct{}{}:
		return func() { <-v.logReaders }, nil
	case <-v.r.Context().Done():
		return nil, v.r.Context().Err()
	}
}

// findHistory leaves out pending requests that the user may not see.
func (v *visit) findHistory(q read.Query) ([]*read.Request, bool, error) {
	if len(q.Workspaces) == 0 {
		return nil, false, nil
	}
	done, err := v.acquireLogReader()
	if err != nil {
		return nil, false, err
	}
	defer done()
	list, more, err := v.Viewer.Requests(q)
	if v.se.user.Operator {
		return list, more, err
	}
	return slices.DeleteFunc(list, func(x *read.Request) bool {
		st, err := v.Viewer.Story(v.r.Context(), x.Key)
		return st.Record == nil && (err != nil || st.Pending != nil && !v.visible(v.se.user, v.rights, st.Pending))
	}), more, err
}

func (v *visit) historyView(x *read.Request) historyView {
	what, detail := v.whatCameOf(x)
	by := chat.Escape(x.By)
	switch {
	case x.By == "" && x.Status == read.StatusPending: // nothing has decided
	case x.By == "":
		by = v.grantOrRule(x.Key.Workspace, x.Grant, x.Rule)
	case x.Via != "":
		by += " (" + chat.Escape(x.Via) + ")"
	}
	l := historyView{Request: x, What: what, By: by, Detail: cmp.Or(detail, v.oneLine(x.Reason))}
	if slices.Contains(read.Statuses(), string(x.Status)) {
		l.Class = string(x.Status)
	}
	if asked := x.Asked(); !asked.IsZero() && !x.EndedAt.IsZero() && !x.EndedAt.Before(asked) {
		l.Took = formatDuration(x.EndedAt.Sub(asked))
	}
	return l
}

// maxDetail is how many bytes of a result the history shows.
const maxDetail = 200

// whatCameOf says what a request would do, and its error or result: from its documents, or
// without them from the log.
func (v *visit) whatCameOf(x *read.Request) (what, detail string) {
	what = x.Kind()
	if x.Target != "" {
		what += " → " + x.Target
	}
	what = v.oneLine(cmp.Or(what, "–"))
	st, err := v.Viewer.Story(v.r.Context(), x.Key)
	if err != nil || st.Pending != nil && !v.visible(v.se.user, v.rights, st.Pending) {
		return what, ""
	}
	style, p := v.Style(v.lang), st.Pending
	if p == nil && st.Record != nil {
		p = read.Requested(x.Key, st.Record)
	}
	if p != nil && p.ToolName+p.ActionType != "" {
		what = style.VerbAndObject(p)
	}
	var parts []string
	if d := st.Decision; d != nil {
		said := v.oneLine(cmp.Or(d.Feedback, d.Note, d.Override, d.Answer))
		if d.ByAgent() && d.Feedback != "" {
			said = style.Quoted(p, d.Feedback)
		}
		parts = append(parts, said)
	}
	if st.Record != nil && x.Status != approval.StatusDenied && x.Status != approval.StatusExpired { // these say it
		out := v.w.outputOf(style, p, st.Record)
		parts = append(parts, out.rendered...)
		for _, text := range out.texts {
			parts = append(parts, style.OneLine(p, text))
		}
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	detail = strings.Join(parts, " · ")
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "") + "…"
	}
	return what, detail
}

// grantOrRule names what allowed a request: a grant by its sentence, or a rule.
func (v *visit) grantOrRule(workspace, id, rule string) string {
	if g := v.grantNamed(workspace, id); g != nil {
		return v.Style(v.lang).Grant(g)
	}
	return v.oneLine(rule)
}

// grantNamed returns the grant with this id, nil if there is none.
func (v *visit) grantNamed(workspace, id string) *grant.Grant {
	if id == "" {
		return nil
	}
	list := v.Backend.Grants.GrantsIn(workspace)
	if i := slices.IndexFunc(list, func(g grant.Use) bool { return g.ID == id }); i >= 0 {
		return &list[i].Grant
	}
	return nil
}

// cleanQuery makes a search text one short line.
func cleanQuery(q string) string {
	q = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(q, "")))
	if len(q) > maxQueryLength {
		q = strings.ToValidUTF8(q[:maxQueryLength], "")
	}
	return q
}

// formatDuration shows a duration in its one or two largest units.
func formatDuration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 24*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + "d" + strconv.Itoa(int(d%(24*time.Hour)/time.Hour)) + "h"
}

// similar lists earlier requests of the same kind, for the page of one of them.
func (v *visit) similar() {
	ws, kind := v.r.URL.Query().Get("ws"), cleanQuery(v.r.URL.Query().Get("kind"))
	p := historyPage{page: v.page("history", v.w.HistoryTitle), Kind: kind}
	if slices.Contains(v.rights.See, ws) && kind != "" {
		list, _, err := v.findHistory(read.Query{Workspaces: []string{ws}, Limit: 6, Match: func(r *read.Request) bool { return r.Kind() == kind }})
		if err != nil {
			v.log(err)
			p.Error = v.w.LogUnreadable
		}
		for _, x := range list {
			p.List = append(p.List, v.historyView(x))
		}
	}
	v.write(v.rw, http.StatusOK, "like", p)
}
