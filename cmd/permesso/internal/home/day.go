package home

import (
	"cmp"
	"context"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// maxDayRequests limits the requests of a workspace in a Day. Older ones are only counted.
const maxDayRequests = 500

// DayQuery says what a Day is about.
type DayQuery struct {
	Workspaces []string // nil: all
	Since      time.Time
	May        func(ws string, p *approval.Pending) bool // who asks may see a request of a person; nil: all
	Grants     []grant.Use
	Style      chat.Style
}

// StartOfDay is the last midnight in the local time zone.
func StartOfDay(now time.Time) time.Time {
	y, m, d := now.Local().Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.Local)
}

// Day tells what the agents of some workspaces did. With an error it has what could be read.
func (h *Home) Day(ctx context.Context, v *read.Viewer, q DayQuery) (*chat.Day, error) {
	b := &dayBuilder{home: h, viewer: v, q: q, by: map[string]*chat.DayWorkspace{}, sums: map[string]map[string]*big.Rat{}}
	err := v.Each(read.Query{Workspaces: q.Workspaces, Since: q.Since}, func(r *read.Request) error {
		b.add(ctx, r)
		return ctx.Err()
	})
	for _, g := range q.Grants {
		seen := (q.Workspaces == nil || slices.Contains(q.Workspaces, g.Workspace)) && (q.May == nil || q.May(g.Workspace, nil))
		if seen && g.Live(time.Now()) && !g.CreatedAt.Before(q.Since) {
			ws := b.workspace(g.Workspace)
			ws.Grants = append(ws.Grants, q.Style.Grant(&g.Grant)+" · "+chat.Escape(g.By))
		}
	}
	d := &chat.Day{Since: q.Since, Until: time.Now(), Workspaces: []chat.DayWorkspace{}}
	for name, ws := range b.by {
		for currency, sum := range b.sums[name] {
			ws.Amounts[currency] = decimal(sum)
		}
		slices.SortStableFunc(ws.Requests, func(x, y chat.DayRequest) int { return x.At.Compare(y.At) })
		d.Workspaces = append(d.Workspaces, *ws)
	}
	slices.SortFunc(d.Workspaces, func(x, y chat.DayWorkspace) int { return strings.Compare(x.Workspace, y.Workspace) })
	return d, err
}

type dayBuilder struct {
	home   *Home
	viewer *read.Viewer
	q      DayQuery
	by     map[string]*chat.DayWorkspace
	sums   map[string]map[string]*big.Rat // by workspace and currency
}

func (b *dayBuilder) workspace(name string) *chat.DayWorkspace {
	ws := b.by[name]
	if ws == nil {
		ws = &chat.DayWorkspace{
			Workspace: name, Counts: map[approval.Status]int{}, Amounts: map[string]string{}, Requests: []chat.DayRequest{}, Grants: []string{},
		}
		b.by[name], b.sums[name] = ws, map[string]*big.Rat{}
	}
	return ws
}

// add adds a request if it may be seen. One whose documents are gone has what the log has.
func (b *dayBuilder) add(ctx context.Context, r *read.Request) {
	st, err := b.viewer.Story(ctx, r.Key)
	p := st.Pending
	if b.q.May != nil && (err != nil || !b.q.May(r.Key.Workspace, p)) {
		return
	}
	ws := b.workspace(r.Key.Workspace)
	ws.Counts[r.Status]++
	if p == nil && st.Record != nil {
		p = b.home.ruled(r, st.Record)
	}
	if r.Status == approval.StatusApproved || r.Status == approval.StatusAutoApproved {
		b.addAmounts(r.Key.Workspace, p)
	}
	if len(ws.Requests) == maxDayRequests {
		ws.Omitted++
		return
	}
	x := chat.DayRequest{RequestID: r.Key.ID, At: r.EndedAt, Status: r.Status, What: b.what(r, p)}
	if x.At.IsZero() {
		x.At = r.Asked()
	}
	if r.ByPerson() {
		x.By = chat.Escape(r.By)
	} else if r.Status == approval.StatusAutoApproved {
		x.By = chat.Escape(r.Rule)
	}
	ws.Requests = append(ws.Requests, x)
}

// what is a request in a few words.
func (b *dayBuilder) what(r *read.Request, p *approval.Pending) string {
	if p != nil && (p.Type == approval.TypeQuestion || p.ToolName+p.ActionType != "") {
		return b.q.Style.VerbAndObject(p)
	}
	return b.q.Style.OneLine(&approval.Pending{}, strings.TrimSuffix(cmp.Or(r.Kind(), "–")+" → "+r.Target, " → "))
}

// ruled is a request that policy decided, with what the operator says about its tool now.
func (h *Home) ruled(r *read.Request, rec *approval.Record) *approval.Pending {
	p := read.Requested(r.Key, rec)
	p.Target, p.ActionType = r.Target, cmp.Or(p.ActionType, r.ActionType)
	if rec.Facts != nil {
		p.Facts = *rec.Facts
	}
	if t, ok := h.Current().Tools[p.ToolName]; ok {
		p.Verb, p.Runs.Args = t.Verb, t.Args
		p.Summary, p.SummaryParts = facts.ExpandQuoted(t.Summary, p.RequestData), facts.Parts(t.Summary)
	}
	return p
}

// addAmounts adds the amounts of a request that ran.
func (b *dayBuilder) addAmounts(workspace string, p *approval.Pending) {
	if p == nil {
		return
	}
	for _, f := range p.Facts.Host {
		if f.Domain != facts.Money {
			continue
		}
		for _, text := range f.Values {
			if a := facts.AmountOf(text); !a.Valid || a.Exponent {
				continue // with an exponent it could have a million digits
			}
			x, ok := new(big.Rat).SetString(text)
			if !ok {
				continue
			}
			if sum := b.sums[workspace][f.Currency]; sum != nil {
				x.Add(x, sum)
			}
			b.sums[workspace][f.Currency] = x
		}
	}
}

// decimal writes a sum of decimals, with the digits that it needs.
func decimal(x *big.Rat) string {
	n, _ := x.FloatPrec()
	if n == 1 {
		n = 2 // 12.50
	}
	return x.FloatString(n)
}
