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
	"github.com/permesso-dev/permesso/chat"
)

// perPage is how much of history stands on a page.
const perPage = 50

// longestSearch bounds what is looked for.
const longestSearch = 200

// plain is a text that an agent or an operator may have written, on one line,
// without secrets.
func (v *visit) plain(text string) string {
	if text == "" {
		return ""
	}
	return v.Style(v.lang).OneLine(&approval.Pending{}, text)
}

func (v *visit) clock(t time.Time) clock { return clockOf(t, v.Style(v.lang).Zone, v.Now()) }

type grantLine struct {
	ID, Short, Path string
	Workspace       string
	What            string
	By, Reason      string
	Since, Until    clock
	Uses, MaxUses   int
	LastUsed        clock
	State           string // active, expired, used, revoked
	May             bool
}

type grantsPage struct {
	page
	Grants []grantLine
}

// grants is the page of what is remembered.
func (v *visit) grants() {
	p := grantsPage{page: v.page("grants", v.w.GrantsTitle)}
	for _, ws := range v.rights.See {
		if v.Backend.Grants == nil {
			break
		}
		for _, c := range v.Backend.Grants.List(ws) {
			p.Grants = append(p.Grants, v.grantLine(c))
		}
	}
	v.write(v.rw, http.StatusOK, "grants", p)
}

func (v *visit) grantLine(c GrantUse) grantLine {
	what := c.ActionType
	if c.Kind == approval.GrantTarget {
		what = strings.TrimSpace(c.Capability + " " + c.Target)
	}
	what = v.plain(what)
	if c.Exact != "" {
		what += " · " + v.w.GrantExact
	}
	if c.SessionID != "" {
		what += " · " + v.w.GrantSession + " " + v.plain(c.SessionID)
	}
	l := grantLine{
		ID: c.ID, Short: chat.Escape(approval.ShortID(c.ID)), Workspace: c.Workspace, What: what,
		By: chat.Escape(c.By), Reason: v.plain(c.Reason), Since: v.clock(c.CreatedAt), Until: v.clock(c.ExpiresAt),
		Uses: c.Uses, MaxUses: c.MaxUses, LastUsed: v.clock(c.LastUsed), State: "active",
	}
	switch {
	case !c.RevokedAt.IsZero():
		l.State = "revoked"
	case !v.Now().Before(c.ExpiresAt):
		l.State = "expired"
	case c.MaxUses > 0 && c.Uses >= c.MaxUses:
		l.State = "used"
	}
	l.May = l.State == "active" && slices.Contains(v.rights.Decide, c.Workspace)
	return l
}

// revoke takes a remembered consent back.
func (v *visit) revoke() {
	id, ok := one(v.r, "id")
	ws, ok2 := one(v.r, "ws")
	if !ok || !ok2 || !slices.Contains(v.rights.Decide, ws) || v.Backend.Grants == nil {
		v.fail(http.StatusBadRequest, v.w.BadForm)
		return
	}
	list := v.Backend.Grants.List(ws)
	i := slices.IndexFunc(list, func(c GrantUse) bool { return c.ID == id })
	ic := v.People.Interceptor(v.se.guest)
	if i < 0 || ic == nil || ic.Revoker == nil {
		v.fail(http.StatusNotFound, v.w.NoGrant)
		return
	}
	done, err := ic.Revoker.Revoke(v.r.Context(), list[i].Grant, v.se.guest.Person)
	var ref *approval.Refusal
	switch {
	case errors.As(err, &ref):
		v.tellAt("grants", v.w.NotYours, false)
	case err != nil:
		v.broken(err)
	case !done:
		v.tellAt("grants", v.w.NoGrant, false)
	default:
		v.tellAt("grants", v.w.Revoked, true)
	}
}

// tellAt leads to a page on which the guest reads what came of it.
func (v *visit) tellAt(path, text string, acted bool) {
	n := v.se.tell(note{text: text, acted: acted})
	v.go303(path + "?said=" + strconv.Itoa(n))
}

type ruleLine struct{ Name, Match, Outcome, Reason string }

type rulesPage struct {
	page
	Rules []ruleLine
}

// rules is the page of the operator's rules, which only the configuration changes.
func (v *visit) rules() {
	p := rulesPage{page: v.page("rules", v.w.RulesTitle)}
	if v.Backend.Rules != nil {
		for _, r := range v.Backend.Rules(v.rights.See) {
			p.Rules = append(p.Rules, ruleLine{chat.Escape(r.Name), chat.Escape(strings.Join(r.Match, " · ")), v.w.Outcomes[r.Outcome.String()], chat.Escape(r.Reason)})
		}
	}
	v.write(v.rw, http.StatusOK, "rules", p)
}

type pastLine struct {
	Path, Short, Workspace, What, Status, By string
	Asked                                    clock
	Took                                     string
}

type historyPage struct {
	page
	Query    string
	Status   string
	Statuses []string
	Kind     string
	Shown    string // the kind, to be read
	List     []pastLine
	More     string // address of the next page; "": there is none
	Error    string
}

// history is the page of what was asked.
func (v *visit) history() {
	q := v.r.URL.Query()
	p := historyPage{
		page: v.page("history", v.w.HistoryTitle), Query: searched(q.Get("q")), Kind: searched(q.Get("kind")),
		Status: q.Get("status"), Statuses: statuses(),
	}
	p.Shown = v.plain(p.Kind)
	if !slices.Contains(p.Statuses, p.Status) {
		p.Status = ""
	}
	before, _ := time.Parse(time.RFC3339Nano, q.Get("before"))
	list, more, err := v.past(HistoryQuery{
		Workspaces: v.rights.See, Text: p.Query, Status: approval.Status(p.Status), Kind: p.Kind, Before: before, Limit: perPage,
	})
	if err != nil {
		v.log(err)
		p.Error = v.w.LogBroken
	}
	for _, x := range list {
		p.List = append(p.List, v.pastLine(x))
	}
	if more && len(list) > 0 {
		next := url.Values{"q": {p.Query}, "status": {p.Status}, "kind": {p.Kind}, "before": {list[len(list)-1].Asked.UTC().Format(time.RFC3339Nano)}}
		p.More = "history?" + next.Encode()
	}
	v.write(v.rw, http.StatusOK, "history", p)
}

// takeTurn waits until the log may be read; done must be called then.
func (v *visit) takeTurn() (done func(), err error) {
	select {
	case v.readers <- struct{}{}:
		return func() { <-v.readers }, nil
	case <-v.r.Context().Done():
		return nil, v.r.Context().Err()
	}
}

// past leaves out what waits for somebody else.
func (v *visit) past(q HistoryQuery) ([]HistoryItem, bool, error) {
	if v.Backend.History == nil || len(q.Workspaces) == 0 {
		return nil, false, nil
	}
	done, err := v.takeTurn()
	if err != nil {
		return nil, false, err
	}
	defer done()
	list, more, err := v.Backend.History.Past(v.r.Context(), q)
	if v.se.guest.Operator {
		return list, more, err
	}
	return slices.DeleteFunc(list, func(x HistoryItem) bool {
		w, err := v.Viewer.Pending(x.Key)
		return err != nil || w != nil && !v.visible(v.se.guest, v.rights, w.Pending)
	}), more, err
}

func (v *visit) pastLine(x HistoryItem) pastLine {
	what := x.Kind
	if x.Target != "" {
		what += " → " + x.Target
	}
	by := chat.Escape(x.By)
	switch {
	case x.By == "":
		by = v.plain(x.Rule)
	case x.Via != "":
		by += " (" + chat.Escape(x.Via) + ")"
	}
	l := pastLine{
		Path: pathOf(x.Key), Short: chat.Escape(approval.ShortID(x.Key.ID)), Workspace: x.Key.Workspace,
		What: v.plain(cmp.Or(what, "–")), Status: v.status(string(x.Status)), By: by, Asked: v.clock(x.Asked),
	}
	if !x.Asked.IsZero() && !x.EndedAt.IsZero() && !x.EndedAt.Before(x.Asked) {
		l.Took = brief(x.EndedAt.Sub(x.Asked))
	}
	return l
}

func (v *visit) status(s string) string { return cmp.Or(v.w.Statuses[s], chat.Escape(s)) }

// statuses lists what can be looked for.
func statuses() []string {
	return []string{
		"pending", "running", string(approval.StatusApproved), string(approval.StatusAutoApproved), string(approval.StatusDenied),
		string(approval.StatusAutoRejected), string(approval.StatusExpired), string(approval.StatusCancelled), string(approval.StatusRequestMore),
		string(approval.StatusOverridden), string(approval.StatusAnswered), string(approval.StatusFailed), string(approval.StatusInterrupted),
		string(approval.StatusMalformed),
	}
}

// searched is what somebody looks for, in one short line.
func searched(q string) string {
	q = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(q, "")))
	if len(q) > longestSearch {
		q = strings.ToValidUTF8(q[:longestSearch], "")
	}
	return q
}

// brief is a span in its biggest unit or two.
func brief(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 24*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + "d" + strconv.Itoa(int(d%(24*time.Hour)/time.Hour)) + "h"
}

// like is what became of requests of this kind, for the page of one of them.
func (v *visit) like() {
	ws, kind := v.r.URL.Query().Get("ws"), searched(v.r.URL.Query().Get("kind"))
	p := historyPage{page: v.page("history", v.w.HistoryTitle), Kind: kind}
	if slices.Contains(v.rights.See, ws) && kind != "" {
		list, _, err := v.past(HistoryQuery{Workspaces: []string{ws}, Kind: kind, Limit: 6})
		if err != nil {
			v.log(err)
			p.Error = v.w.LogBroken
		}
		for _, x := range list {
			p.List = append(p.List, v.pastLine(x))
		}
	}
	v.write(v.rw, http.StatusOK, "like", p)
}
